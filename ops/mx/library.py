"""`ascend_k3::mx_quantize`, `ascend_k3::mx_dequantize` and `ascend_k3::mx_matmul`."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops.library import register
from ascend_k3.ops.mx import reference
from ascend_k3.ops.mx.formats import BLOCK, FORMATS
from ascend_k3.ops.mx.kernel import launch


def _fake_quantize(x: Tensor, format: str, rule: str) -> tuple[Tensor, Tensor]:
    element = FORMATS[format]
    lead, width = x.shape[:-1], x.shape[-1]
    return (
        x.new_empty((*lead, width // element.per_byte), dtype=element.dtype),
        x.new_empty((*lead, width // BLOCK), dtype=torch.uint8),
    )


def _fake_dequantize(data: Tensor, scale: Tensor, format: str, dtype: torch.dtype) -> Tensor:
    return data.new_empty((*data.shape[:-1], data.shape[-1] * FORMATS[format].per_byte), dtype=dtype)


def _fake_matmul(
    a: Tensor,
    a_scale: Tensor | None,
    a_format: str | None,
    b: Tensor,
    b_scale: Tensor,
    b_format: str,
    out_dtype: torch.dtype,
) -> Tensor:
    return a.new_empty((*a.shape[:-1], b.shape[0]), dtype=out_dtype)


register(
    "mx_quantize",
    "(Tensor x, str format, str rule) -> (Tensor, Tensor)",
    reference.quantize,
    _fake_quantize,
    kernel=launch.mx_quantize,
)
register(
    "mx_dequantize",
    "(Tensor data, Tensor scale, str format, ScalarType dtype) -> Tensor",
    reference.dequantize,
    _fake_dequantize,
    kernel=launch.mx_dequantize,
)
register(
    "mx_matmul",
    "(Tensor a, Tensor? a_scale, str? a_format, Tensor b, Tensor b_scale, str b_format, ScalarType out_dtype)"
    " -> Tensor",
    reference.matmul,
    _fake_matmul,
    differentiable=("a",),
    backward=reference.matmul_backward,
)
