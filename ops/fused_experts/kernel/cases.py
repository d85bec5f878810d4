"""Calls on which the kernels that move rows to their experts and back are tried."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ascend_k3.ops.fused_experts import cost, permute_tokens, unpermute_tokens
from ascend_k3.ops.kernel_cases import Case

NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
# tokens, top_k, experts, width, every how many pairs one is dropped (0: none)
SHAPES = (
    (1, 1, 1, 1, 0),
    (5, 3, 7, 17, 4),
    (64, 4, 5, 100, 1),
    (50, 2, 300, 260, 3),
)
MUTATED = (112, 3, 20, 17, 4)
SMALL_STEP, K3 = (8, 16, 896, 3584, 0), (256, 16, 896, 3584, 0)


def pairs(tokens: int, top_k: int, experts: int, drop: int) -> Tensor:
    """Ids of `top_k` different experts a token where there are so many."""
    source = torch.Generator().manual_seed(tokens)
    ids = torch.rand(tokens, max(experts, top_k), generator=source).argsort(1)[:, :top_k] % experts
    if drop:
        ids.flatten()[::drop] = -1
    return ids


def _permute(
    tokens: int, top_k: int, experts: int, width: int, drop: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.randn(tokens, width, generator=torch.Generator().manual_seed(width)).to(dtype)
    return permute_tokens(x, pairs(tokens, top_k, experts, drop), experts)


def _unpermute(
    tokens: int, top_k: int, experts: int, width: int, drop: int, dtype: torch.dtype, out: torch.dtype
) -> Tensor:
    source = torch.Generator().manual_seed(width)
    rows = torch.randn(tokens * top_k, width, generator=source).to(dtype)
    weights = torch.rand(tokens, top_k, generator=source)
    places = torch.randperm(tokens * top_k, generator=source).view(tokens, top_k).to(torch.int32)
    places[pairs(tokens, top_k, experts, drop) < 0] = -1
    return unpermute_tokens(rows, weights, places, dtype=out)


def _permute_case(
    tokens: int,
    top_k: int,
    experts: int,
    width: int,
    drop: int,
    dtype: torch.dtype,
    judged: bool = False,
    mutated: bool = False,
) -> Case:
    return Case(
        name=f"permute_tokens {tokens} x {top_k} of {experts}, {width} {NAMES[dtype]}",
        call=partial(_permute, tokens, top_k, experts, width, drop, dtype),
        dtype=dtype,
        cost=cost.permute(tokens=tokens, top_k=top_k, experts=experts, width=width, dtype=NAMES[dtype]),
        judged=judged,
        mutated=mutated,
        exact=True,
    )


def _unpermute_case(
    tokens: int,
    top_k: int,
    experts: int,
    width: int,
    drop: int,
    dtype: torch.dtype,
    out: torch.dtype,
    judged: bool = False,
    mutated: bool = False,
) -> Case:
    return Case(
        name=f"unpermute_tokens {tokens} x {top_k}, {width} {NAMES[dtype]} to {NAMES[out]}",
        call=partial(_unpermute, tokens, top_k, experts, width, drop, dtype, out),
        dtype=out,
        cost=cost.unpermute(tokens=tokens, top_k=top_k, width=width, dtype=NAMES[dtype], out_dtype=NAMES[out]),
        judged=judged,
        mutated=mutated,
    )


FLOAT, BF16 = torch.float32, torch.bfloat16
RETURNED = (*((dtype, dtype) for dtype in NAMES), (FLOAT, BF16), (FLOAT, torch.float16))
CASES = [
    *(_permute_case(*shape, dtype) for shape in SHAPES for dtype in NAMES),
    _permute_case(*MUTATED, FLOAT, mutated=True),
    _permute_case(*SMALL_STEP, BF16),  # the sums over the cores count beside so few rows
    *(_permute_case(*K3, dtype, judged=True) for dtype in (FLOAT, BF16)),
    *(_unpermute_case(*shape, *dtypes) for shape in SHAPES for dtypes in RETURNED),
    *(_unpermute_case(*MUTATED, *dtypes, mutated=True) for dtypes in ((FLOAT, FLOAT), (BF16, BF16), (FLOAT, BF16))),
    *(
        _unpermute_case(*shape, *dtypes, judged=True)
        for shape in (SMALL_STEP, K3)
        for dtypes in ((BF16, BF16), (FLOAT, BF16))
    ),
]
