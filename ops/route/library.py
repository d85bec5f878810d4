"""`ascend_k3::route`."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops.library import register
from ascend_k3.ops.route import reference
from ascend_k3.ops.route.kernel import launch


def _weights_and_ids(logits: Tensor, bias: Tensor, top_k: int, *_: object) -> tuple[Tensor, Tensor]:
    shape = (logits.shape[0], top_k)
    return logits.new_empty(shape), logits.new_empty(shape, dtype=torch.int64)


register(
    "route",
    "(Tensor logits, Tensor bias, int top_k, bool renormalize, float scaling_factor) -> (Tensor, Tensor)",
    reference.route,
    _weights_and_ids,
    differentiable=("logits",),
    backward=reference.route_backward,
    kernel=launch.route,
)
