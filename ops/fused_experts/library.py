"""`ascend_k3::fused_experts`."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops.fused_experts import reference
from ascend_k3.ops.library import register


def _output(x: Tensor, *_: object) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


register(
    "fused_experts",
    "(Tensor x, Tensor weights, Tensor ids, Tensor w13, Tensor? w13_scale, Tensor w2, Tensor? w2_scale, str format, "
    "float beta, float? linear_beta) -> Tensor",
    reference.fused_experts,
    _output,
    differentiable=("x", "weights", "w13", "w2"),
    backward=reference.fused_experts_backward,
)
