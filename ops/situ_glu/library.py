"""`ascend_k3::situ_glu` and `ascend_k3::situ_glu_mx_quantize`."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops.library import register
from ascend_k3.ops.mx.formats import BLOCK, FORMATS
from ascend_k3.ops.situ_glu import reference
from ascend_k3.ops.situ_glu.kernel import launch


def _half(gate_up: Tensor, *_: object) -> Tensor:
    return gate_up.new_empty((*gate_up.shape[:-1], gate_up.shape[-1] // 2))


def _fake_quantized(
    gate_up: Tensor, beta: float, linear_beta: float | None, format: str, rule: str
) -> tuple[Tensor, Tensor]:
    element = FORMATS[format]
    lead, width = gate_up.shape[:-1], gate_up.shape[-1] // 2
    return (
        gate_up.new_empty((*lead, width // element.per_byte), dtype=element.dtype),
        gate_up.new_empty((*lead, width // BLOCK), dtype=torch.uint8),
    )


register(
    "situ_glu",
    "(Tensor gate_up, float beta, float? linear_beta) -> Tensor",
    reference.situ_glu,
    _half,
    differentiable=("gate_up",),
    backward=reference.situ_glu_backward,
    kernel=launch.situ_glu,
)
register(
    "situ_glu_mx_quantize",
    "(Tensor gate_up, float beta, float? linear_beta, str format, str rule) -> (Tensor, Tensor)",
    reference.situ_glu_mx_quantize,
    _fake_quantized,
    kernel=launch.situ_glu_mx_quantize,
)
