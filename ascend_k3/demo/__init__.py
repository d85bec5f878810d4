"""The demo: a small Kimi K3 that learns two tasks on the CPU, and goes through every part of the package on its way.

`recall` and `pictures` are the tasks, `lessons` what they have in common, `small` the model, `training` how it learns,
`story` the run from the first draw of the parameters to the answers of the reloaded checkpoint.
"""

from ascend_k3.demo.story import run_demo

__all__ = ["run_demo"]
