"""`ascend_k3::rms_norm` and `ascend_k3::rms_norm_gated`."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops.library import register
from ascend_k3.ops.rms_norm import reference
from ascend_k3.ops.rms_norm.kernel import launch


def _like_first(x: Tensor, *_: object) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


register(
    "rms_norm",
    "(Tensor x, Tensor weight, float eps) -> Tensor",
    reference.rms_norm,
    _like_first,
    differentiable=("x", "weight"),
    kernel=launch.rms_norm,
)
register(
    "rms_norm_gated",
    "(Tensor x, Tensor gate, Tensor weight, float eps) -> Tensor",
    reference.rms_norm_gated,
    _like_first,
    differentiable=("x", "gate", "weight"),
    kernel=launch.rms_norm_gated,
)
