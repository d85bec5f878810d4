"""Calls on which the norms' kernels are tried."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ascend_k3.ops.kernel_cases import Case
from ascend_k3.ops.rms_norm import cost, rms_norm, rms_norm_gated

NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
# rows, width, whether it is a shape of K3: hidden size 7168, latent 3584, key-value rank 512, a head of 128
SHAPES = (
    (1, 1, False),
    (3, 17, False),
    (450, 100, False),
    (7, 257, False),
    (26, 272, False),
    (26, 1000, False),
    (1, 7168, True),
    (512, 7168, True),
    (512, 3584, True),
    (1024, 512, True),
    (768, 128, True),
)
# The gate follows KDA, whose rows are heads of 128: 96 for each token. Those of one token are spread so thin that the
# weight, which every core reads, counts.
GATED_SHAPES = (
    (1, 1, False),
    (3, 17, False),
    (450, 100, False),
    (26, 257, False),
    (26, 272, False),
    (96, 128, False),
    (16 * 96, 128, True),
    (64 * 96, 128, True),
)
MUTATED = ((450, 100), (26, 1000), (26, 257), (26, 272))  # short rows and long ones, with and without a gap in UB


def _norm(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    source = torch.Generator().manual_seed(rows * 10_000 + width)
    x = 3 * torch.randn(rows, width, generator=source)
    weight = 1 + 0.2 * torch.randn(width, generator=source)
    return rms_norm(x.to(dtype), weight.to(dtype), eps=1e-5)


def _gated(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    source = torch.Generator().manual_seed(rows * 10_000 + width)
    x, gate = 3 * torch.randn(2, rows, width, generator=source)
    weight = 1 + 0.2 * torch.randn(width, generator=source)
    return rms_norm_gated(x.to(dtype), gate.to(dtype), weight.to(dtype), eps=1e-5)


CASES = [
    Case(
        name=f"rms_norm {rows} x {width} {NAMES[dtype]}",
        call=partial(_norm, rows, width, dtype),
        dtype=dtype,
        cost=cost.rms_norm(rows=rows, width=width, dtype=NAMES[dtype]),
        judged=judged,
        mutated=(rows, width) in MUTATED and dtype != torch.float16,
    )
    for rows, width, judged in SHAPES
    for dtype in NAMES
]
CASES += [
    Case(
        name=f"rms_norm_gated {rows} x {width} {NAMES[dtype]}",
        call=partial(_gated, rows, width, dtype),
        dtype=dtype,
        cost=cost.rms_norm_gated(rows=rows, width=width, dtype=NAMES[dtype]),
        judged=judged,
        mutated=(rows, width) in MUTATED and dtype != torch.float16,
    )
    for rows, width, judged in GATED_SHAPES
    for dtype in NAMES
]
