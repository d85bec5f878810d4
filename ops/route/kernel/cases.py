"""Calls on which the routing kernel is tried."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ascend_k3.ops.kernel_cases import Case
from ascend_k3.ops.route import cost, route

NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
# tokens, experts, top_k, renormalized, scaling factor, whether mutation tests take it
SHAPES = (
    (1, 1, 1, True, 1.0, False),
    (5, 8, 2, True, 2.5, False),
    (130, 100, 33, False, 1.0, False),
    (100, 300, 7, True, 1.0, False),
    (7, 700, 64, True, 1.0, False),
    (66, 1100, 30, True, 2.5, True),
)
APART = 1e-6


def separated(tokens: int, experts: int, top_k: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Logits and a bias such that the sums of score and bias that decide are `APART` from each other.

    Closer ones may change places: the exponentials of two machines differ in the last place.
    """
    source = torch.Generator().manual_seed(tokens * 10_000 + experts)
    bias = 0.1 * torch.randn(experts, generator=source)
    logits = torch.randn(tokens, experts, generator=source).to(dtype)
    while True:
        keys = (torch.sigmoid(logits.double()) + bias.double()).sort(dim=1, descending=True).values[:, : top_k + 1]
        near = (keys[:, :-1] - keys[:, 1:]).lt(APART).any(1)
        if not near.any():
            return logits, bias
        logits[near] = torch.randn(int(near.sum()), experts, generator=source).to(dtype)


def _route(
    tokens: int, experts: int, top_k: int, renormalize: bool, factor: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    logits, bias = separated(tokens, experts, top_k, dtype)
    return route(logits, bias, top_k=top_k, renormalize=renormalize, scaling_factor=factor)


def _case(
    tokens: int,
    experts: int,
    top_k: int,
    renormalize: bool,
    factor: float,
    mutated: bool,
    dtype: torch.dtype,
    judged: bool = False,
) -> Case:
    return Case(
        name=f"route {tokens} x {top_k} of {experts} {NAMES[dtype]}",
        call=partial(_route, tokens, experts, top_k, renormalize, factor, dtype),
        dtype=dtype,
        cost=cost.route(tokens=tokens, experts=experts, top_k=top_k, dtype=NAMES[dtype], renormalize=renormalize),
        judged=judged,
        mutated=mutated and dtype != torch.float16,
    )


CASES = [
    *(_case(*shape, dtype) for shape in SHAPES for dtype in NAMES),
    # Every core reads the bias, so few tokens move more than the least.
    *(_case(64, 896, 16, True, 1.0, False, dtype) for dtype in (torch.float32, torch.bfloat16)),
    *(_case(2048, 896, 16, True, 1.0, False, dtype, judged=True) for dtype in (torch.float32, torch.bfloat16)),
]
