"""Ascend C on a laptop: run a kernel's own source on the CPU, find its hazards, count its cost.

    kernel = emulator.build("kernel.cpp", entry="my_kernel", soc="a3")
    report = kernel.launch(8, x, y, z, tiling=...)
    report.hazards

See docs/emulator.md.
"""

from ascend_k3.ops.emulator.compiler import KernelBuildError
from ascend_k3.ops.emulator.launch import Kernel, build
from ascend_k3.ops.emulator.report import Hazard, Report
from ascend_k3.ops.emulator.timeline import plot, write_trace

__all__ = ["Hazard", "Kernel", "KernelBuildError", "Report", "build", "plot", "write_trace"]
