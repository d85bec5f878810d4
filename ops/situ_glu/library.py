"""`ascend_k3::situ_glu`."""

from __future__ import annotations

from torch import Tensor

from ascend_k3.ops.library import register
from ascend_k3.ops.situ_glu import reference


def _half(gate_up: Tensor, *_: object) -> Tensor:
    return gate_up.new_empty((*gate_up.shape[:-1], gate_up.shape[-1] // 2))


register(
    "situ_glu",
    "(Tensor gate_up, float beta, float? linear_beta) -> Tensor",
    reference.situ_glu,
    _half,
    differentiable=("gate_up",),
    backward=reference.situ_glu_backward,
)
