"""Calls on which the kernels of Attention Residuals are tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from ascend_k3.ops.attention_residual import (
    AttentionResidualStats,
    attention_residual,
    attention_residual_prepare,
    attention_residual_update,
    cost,
)
from ascend_k3.ops.kernel_cases import Case

NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
EPS = 1e-5
WIDTH = 7168  # hidden size of K3

# Tokens, blocks, width, whether there is a partial sum, an output norm, whether it is a shape of K3: up to 8 blocks, in
# bfloat16. Every core reads the weights once, which counts where tokens are few: 8 of them are printed only.
SHAPES = (
    (1, 1, 1, False, False, False),
    (3, 2, 17, True, True, False),
    (5, 3, 100, False, False, False),
    (5, 8, 2000, True, True, False),
    (9, 0, 64, True, True, False),
    (2, 20, 1000, False, True, False),
    (8, 8, WIDTH, True, True, False),
    (256, 8, WIDTH, True, True, True),
    (256, 8, WIDTH, False, False, True),
    (1024, 1, WIDTH, True, True, True),
)
# Tokens, blocks, width, mixing points, whether it is a shape of K3. A layer has 2 points and a block of layers 24; UB
# holds the queries and mixtures of 2 or 3 at a time, so that 24 read the bank 12 or 8 times and are printed only.
PREPARED = (
    (1, 1, 1, 1, False),
    (3, 2, 17, 3, False),
    (3, 8, 2000, 13, False),
    (2, 20, 1000, 2, False),
    (2, 8, WIDTH, 24, False),
    (256, 8, WIDTH, 2, True),
)
# Tokens, width, partial sum, output norm, shape of K3.
UPDATED = (
    (1, 1, False, False, False),
    (3, 17, True, True, False),
    (20, 100, False, False, False),
    (20, 2000, True, True, False),
    (9, 1000, False, True, False),
    (8, WIDTH, True, True, False),
    (1024, WIDTH, True, True, True),
    (1024, WIDTH, False, False, True),
)
MUTATED = ((5, 3, 100), (5, 8, 2000), (3, 8, 2000), (20, 100), (20, 2000))
EQUIVALENT: dict[str, str] = {}


def _numbers(dtype: torch.dtype, *sizes: int, scale: float = 1.0, offset: float = 0.0) -> Tensor:
    source = torch.Generator().manual_seed(sum(size * 1000**place for place, size in enumerate(sizes)))
    return (offset + scale * torch.randn(sizes, generator=source)).to(dtype)


def _weights(dtype: torch.dtype, points: int, width: int) -> tuple[Tensor, Tensor]:
    """Of norms and of queries: scores are about as far from each other as those of a trained model."""
    return _numbers(dtype, points, width, scale=0.2, offset=1.0), _numbers(
        dtype, width, points, scale=2 * width**-0.5
    ).t().contiguous()


def _output_norm(dtype: torch.dtype, width: int, given: bool) -> dict[str, Tensor | float]:
    if not given:
        return {}
    return {"output_norm_weight": _numbers(dtype, width, scale=0.2, offset=1.0), "output_eps": EPS}


def _mix(tokens: int, blocks: int, width: int, last: bool, norm: bool, dtype: torch.dtype) -> Tensor:
    norm_weights, query_weights = _weights(dtype, 1, width)
    return attention_residual(
        _numbers(dtype, tokens, blocks, width, scale=2.0),
        _numbers(dtype, tokens, width) if last else None,
        norm_weights[0],
        query_weights[0],
        eps=EPS,
        **_output_norm(dtype, width, norm),  # type: ignore[arg-type]
    )


def _prepare(tokens: int, blocks: int, width: int, points: int, dtype: torch.dtype) -> Sequence[Tensor]:
    bank = _numbers(dtype, tokens, blocks, width, scale=2.0)
    return attention_residual_prepare(bank, *_weights(dtype, points, width), eps=EPS)


def _update(tokens: int, width: int, last: bool, norm: bool, dtype: torch.dtype) -> Tensor:
    norm_weights, query_weights = _weights(dtype, 1, width)
    stats = AttentionResidualStats(
        maximum=_numbers(torch.float32, 1, tokens, scale=2.0),
        normalizer=1 + _numbers(torch.float32, tokens, 1).abs().t(),
        weighted=_numbers(torch.float32, 1, tokens, width, scale=2.0),
    )
    return attention_residual_update(
        stats,
        _numbers(dtype, tokens, width) if last else None,
        norm_weights[0],
        query_weights[0],
        eps=EPS,
        **_output_norm(dtype, width, norm),  # type: ignore[arg-type]
    )


def _shown(last: bool, norm: bool) -> str:
    return (" + partial" if last else "") + (" + norm" if norm else "")


def _cases() -> Iterator[Case]:
    for dtype, name in NAMES.items():
        released = dtype == torch.bfloat16
        for tokens, blocks, width, last, norm, judged in SHAPES:
            if judged and not released:
                continue
            yield Case(
                name=f"attention_residual {tokens} x {blocks} x {width}{_shown(last, norm)} {name}",
                call=partial(_mix, tokens, blocks, width, last, norm, dtype),
                dtype=dtype,
                cost=cost.attention_residual(
                    tokens=tokens, blocks=blocks, width=width, dtype=name, partial=last, output_norm=norm
                ),
                judged=judged,
                mutated=(tokens, blocks, width) in MUTATED and dtype != torch.float16,
            )
        for tokens, blocks, width, points, judged in PREPARED:
            if judged and not released:
                continue
            yield Case(
                name=f"attention_residual_prepare {tokens} x {blocks} x {width}, {points} points {name}",
                call=partial(_prepare, tokens, blocks, width, points, dtype),
                dtype=torch.float32,  # of the statistics
                cost=cost.attention_residual_prepare(
                    tokens=tokens, blocks=blocks, width=width, points=points, dtype=name
                ),
                judged=judged,
                mutated=(tokens, blocks, width) in MUTATED and dtype != torch.float16,
            )
        for tokens, width, last, norm, judged in UPDATED:
            if judged and not released:
                continue
            yield Case(
                name=f"attention_residual_update {tokens} x {width}{_shown(last, norm)} {name}",
                call=partial(_update, tokens, width, last, norm, dtype),
                dtype=dtype,
                cost=cost.attention_residual_update(
                    tokens=tokens, width=width, dtype=name, partial=last, output_norm=norm
                ),
                judged=judged,
                mutated=(tokens, width) in MUTATED and dtype != torch.float16,
            )


CASES = list(_cases())
