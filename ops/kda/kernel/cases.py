"""Calls on which the kernels of KDA are tried."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from ascend_k3.ops.kda import cost, kda
from ascend_k3.ops.kernel_cases import Case
from ascend_k3.ops.tolerances import KDA_STATE_RMS

NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
BOUND = -5.0
# lengths of packed sequences, heads, width
SHAPES = (
    ((1,), 1, 64),
    ((64, 64), 2, 128),
    ((0, 17, 0, 130), 3, 64),
    ((300,), 3, 128),
)
MUTATED = ((0, 17, 0, 130), 3, 64)  # two blocks' worth of pairs of heads, an idle vector core, tails


def _kda(lengths: Sequence[int], heads: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(sum(lengths) * 1000 + width)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source)

    q, k, v, g = (normal(1, sum(lengths), heads, width).to(dtype) for _ in range(4))
    return kda(
        q,
        k,
        v,
        g,
        normal(1, sum(lengths), heads).to(dtype),
        A_log=normal(heads) / 2,
        dt_bias=normal(heads * width) - 2,
        lower_bound=BOUND,
        initial_state=normal(len(lengths), heads, width, width),
        cu_seqlens=torch.tensor([0, *torch.tensor(lengths).cumsum(0)]),
    )


CASES = [
    Case(
        name=f"kda {'+'.join(map(str, lengths))} x {heads} heads of {width} {NAMES[dtype]}",
        call=partial(_kda, lengths, heads, width, dtype),
        dtype=dtype,
        cost=cost.kda(
            lengths=lengths,
            heads=heads,
            key=width,
            value=width,
            dtype=NAMES[dtype],
            initial_state=True,
            index_dtype="int64",
        ),
        mutated=(lengths, heads, width) == MUTATED,
        tolerances=KDA_STATE_RMS,
    )
    for lengths, heads, width in SHAPES
    for dtype in NAMES
]
