"""Calls on which the kernels of MX formats are tried. Codes and scales are those of the reference, bit for bit."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ascend_k3.ops.kernel_cases import Case
from ascend_k3.ops.mx import MXTensor, cost, mx_dequantize, mx_quantize, reference
from ascend_k3.ops.mx.formats import FORMATS, RULES

NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
# rows, width, whether it is a shape of K3: hidden size 7168, width 3072 of an expert
SHAPES = (
    (1, 32, False),
    (3, 96, False),
    (33, 544, False),
    (1, 7168, True),
    (64, 3072, True),
)
# Every format, and both ways of having float inputs.
MUTATED = {
    (torch.bfloat16, "mxfp4", "even"),
    (torch.float32, "mxfp8_e4m3", "floor"),
    (torch.bfloat16, "mxfp8_e5m2", "floor"),
}


def _numbers(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    source = torch.Generator().manual_seed(rows * 10_000 + width)
    size = torch.randn(rows, width // 32, 1, generator=source).mul(4).exp2()
    return (torch.randn(rows, width // 32, 32, generator=source) * size).view(rows, width).to(dtype)


def _quantize(rows: int, width: int, dtype: torch.dtype, format: str, rule: str) -> list[Tensor]:
    x = _numbers(rows, width, dtype)
    x.view(-1)[::331] = torch.nan  # the whole block is one then
    q = mx_quantize(x, format=format, rule=rule)
    return [q.data, q.scale]


def _dequantize(rows: int, width: int, dtype: torch.dtype, format: str) -> Tensor:
    data, scale = reference.quantize(_numbers(rows, width, torch.float32), format, "floor")
    return mx_dequantize(MXTensor(data, scale, format), dtype=dtype)


CASES = [
    Case(
        name=f"mx_quantize {rows} x {width} {NAMES[dtype]} to {format} ({rule})",
        call=partial(_quantize, rows, width, dtype, format, rule),
        dtype=dtype,
        cost=cost.mx_quantize(elements=rows * width, dtype=NAMES[dtype], format=format),
        judged=judged,
        mutated=rows in (3, 33) and (dtype, format, rule) in MUTATED,
        exact=True,
    )
    for rows, width, judged in SHAPES
    for dtype in NAMES
    for format in FORMATS
    for rule in RULES
]
CASES += [
    Case(
        name=f"mx_dequantize {rows} x {width} {format} to {NAMES[dtype]}",
        call=partial(_dequantize, rows, width, dtype, format),
        dtype=dtype,
        cost=cost.mx_dequantize(elements=rows * width, format=format, dtype=NAMES[dtype]),
        judged=judged,
        mutated=rows in (3, 33) and (dtype, format) in {(dtype, format) for dtype, format, _ in MUTATED},
        exact=True,
    )
    for rows, width, judged in SHAPES
    for dtype in NAMES
    for format in FORMATS
]
