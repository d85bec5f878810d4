"""Calls on which SiTU-GLU's kernels are tried."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ascend_k3.ops.kernel_cases import Case
from ascend_k3.ops.mx import reference as mx
from ascend_k3.ops.mx.formats import FORMATS
from ascend_k3.ops.situ_glu import cost, situ_glu, situ_glu_mx_quantize

NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
# rows, width, whether it is a shape of K3: width 3072 of a routed expert, 6144 of the shared ones, 33792 of the dense
# layer
SHAPES = (
    (1, 1, False),
    (3, 17, False),
    (26, 100, False),
    (7, 1000, False),
    (1, 3072, True),
    (64, 3072, True),
    (32, 6144, True),
    (4, 33792, True),
)
QUANTIZED_SHAPES = (
    (1, 32, False),
    (3, 96, False),
    (26, 256, False),
    (26, 544, False),
    (1, 3072, True),
    (64, 3072, True),
)
MUTATED = {(torch.bfloat16, "mxfp4"), (torch.float32, "mxfp8_e4m3"), (torch.bfloat16, "mxfp8_e5m2")}


def _inputs(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    source = torch.Generator().manual_seed(rows * 10_000 + width)
    return (6 * torch.randn(rows, 2 * width, generator=source)).to(dtype)


def _situ(rows: int, width: int, dtype: torch.dtype, linear_beta: float | None) -> Tensor:
    return situ_glu(_inputs(rows, width, dtype), beta=4.0, linear_beta=linear_beta)


def _quantized(rows: int, width: int, dtype: torch.dtype, format: str) -> Tensor:
    gate_up = _inputs(rows, width, dtype)
    gate_up.view(-1)[::331] = torch.nan  # the whole block is one then
    q = situ_glu_mx_quantize(gate_up, beta=4.0, linear_beta=25.0, format=format)
    y = mx.dequantize(q.data, q.scale, format, torch.float32)  # codes may be a step apart where y is a bit
    return y.nan_to_num(nan=1000.0)  # larger than any y


CASES = [
    Case(
        name=f"situ_glu {rows} x {width} {NAMES[dtype]}" + ("" if linear_beta else ", no linear_beta"),
        call=partial(_situ, rows, width, dtype, linear_beta),
        dtype=dtype,
        cost=cost.situ_glu(rows=rows, width=width, dtype=NAMES[dtype], linear_beta=linear_beta is not None),
        judged=judged,
        mutated=rows == 26 and dtype != torch.float16,
    )
    for rows, width, judged in SHAPES
    for dtype in NAMES
    for linear_beta in ((25.0, None) if rows * width < 10_000 else (25.0,))
]
CASES += [
    Case(
        name=f"situ_glu_mx_quantize {rows} x {width} {NAMES[dtype]} to {format}",
        call=partial(_quantized, rows, width, dtype, format),
        dtype=dtype,
        cost=cost.situ_glu_mx_quantize(rows=rows, width=width, dtype=NAMES[dtype], format=format),
        judged=judged,
        mutated=rows == 26 and (dtype, format) in MUTATED,
    )
    for rows, width, judged in QUANTIZED_SHAPES
    for dtype in NAMES
    for format in FORMATS
]
