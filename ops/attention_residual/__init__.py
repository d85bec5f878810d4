"""Block Attention Residuals: a token's mixture of the states of earlier blocks and of the running partial sum."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ascend_k3.ops import checks
from ascend_k3.ops.attention_residual import library as _library  # noqa: F401  (registers the operators)


class AttentionResidualStats(NamedTuple):
    """What M mixing points need of a bank of blocks, float32 (float64 if any of them or of the weights was).

    maximum: [M, T], the largest score.
    normalizer: [M, T], sum of exp(score - maximum).
    weighted: [M, T, D], sum of exp(score - maximum) * block.
    """

    maximum: Tensor
    normalizer: Tensor
    weighted: Tensor


def attention_residual(
    blocks: Tensor,
    partial: Tensor | None,
    norm_weight: Tensor,
    query_weight: Tensor,
    *,
    eps: float,
    output_norm_weight: Tensor | None = None,
    output_eps: float | None = None,
) -> Tensor:
    """Softmax attention of each token over its block states and its partial sum.

        s_j = sum_d(v_j / sqrt(mean(v_j^2) + eps) * norm_weight * query_weight),  y = sum_j softmax(s)_j v_j

    over the sources v_j = blocks[:, j] and, last, partial. With `output_norm_weight` the RMSNorm that follows is
    applied to the mixture before it is rounded. float32 inside (float64 if blocks or a weight
    of the scores is), rounded once.

    Args:
        blocks: [T, NB, D] floating point, any strides; NB may be 0 when there is a partial sum.
        partial: [T, D] of blocks' dtype, or None at a block's start.
        norm_weight: [D] floating point.
        query_weight: [D] or [1, D] floating point, the row of the released `res_proj`.
        eps: of the norm inside the scores.
        output_norm_weight, output_eps: [D] and the eps of the norm that follows; both or neither.
    Returns: [T, D] of blocks' dtype, never a view of an input.
    Raises: ValueError for a wrong shape, dtype, device or eps, and when there is no source at all.
    Source: Attention Residuals of the release (`*_res_norm`, `*_res_proj`).
    """
    op = "attention_residual"
    checks.dtype(op, "blocks", blocks)
    checks.shape(op, "blocks", blocks, ("T", "NB", "D"))
    tokens, count, width = blocks.shape
    checks.at_least_one(op, "blocks", blocks, D=width)
    query_weight = _check_query(op, norm_weight, query_weight, width)
    checks.eps(op, "eps", eps)
    _check_output_norm(op, output_norm_weight, output_eps, width)
    if partial is None and count == 0:
        raise ValueError(f"{op}: there is nothing to mix; give at least one block or a partial sum.")
    if partial is not None:
        checks.shape(op, "partial", partial, (tokens, width))
        checks.dtype(op, "partial", partial, (blocks.dtype,))
    checks.same_device(
        op,
        blocks=blocks,
        partial=partial,
        norm_weight=norm_weight,
        query_weight=query_weight,
        output_norm_weight=output_norm_weight,
    )
    return torch.ops.ascend_k3.attention_residual(
        blocks, partial, norm_weight, query_weight, eps, output_norm_weight, output_eps
    )


def attention_residual_prepare(
    blocks: Tensor, norm_weights: Tensor, query_weights: Tensor, *, eps: float
) -> AttentionResidualStats:
    """First phase of `attention_residual`: statistics of a bank of blocks for M mixing points at once.

    Args:
        blocks: [T, NB, D] floating point, any strides, NB at least 1.
        norm_weights: [M, D] floating point, one row for each mixing point.
        query_weights: [M, D] or [M, 1, D] floating point.
        eps: of the norm inside the scores.
    Returns: AttentionResidualStats, for `attention_residual_update`.
    Raises: ValueError for a wrong shape, dtype, device or eps, and for an empty bank.
    """
    op = "attention_residual_prepare"
    checks.dtype(op, "blocks", blocks)
    checks.dtype(op, "norm_weights", norm_weights)
    checks.dtype(op, "query_weights", query_weights)
    checks.shape(op, "blocks", blocks, ("T", "NB", "D"))
    width = blocks.shape[2]
    checks.at_least_one(op, "blocks", blocks, D=width)
    checks.shape(op, "norm_weights", norm_weights, ("M", width))
    if query_weights.dim() == 3:
        checks.shape(op, "query_weights", query_weights, (norm_weights.shape[0], 1, width))
        query_weights = query_weights.squeeze(1)
    checks.shape(op, "query_weights", query_weights, tuple(norm_weights.shape))
    checks.eps(op, "eps", eps)
    if norm_weights.shape[0] == 0:
        raise ValueError(f"{op}: norm_weights must have at least one row, got {list(norm_weights.shape)}.")
    if blocks.shape[1] == 0:
        raise ValueError(
            f"{op}: blocks must hold at least one block, got {list(blocks.shape)}; without one, "
            "attention_residual gives the partial sum back."
        )
    checks.same_device(op, blocks=blocks, norm_weights=norm_weights, query_weights=query_weights)
    return AttentionResidualStats(
        *torch.ops.ascend_k3.attention_residual_prepare(blocks, norm_weights, query_weights, eps)
    )


def attention_residual_update(
    stats: AttentionResidualStats,
    partial: Tensor | None,
    norm_weight: Tensor,
    query_weight: Tensor,
    *,
    eps: float,
    index: int | None = None,
    output_norm_weight: Tensor | None = None,
    output_eps: float | None = None,
) -> Tensor:
    """Second phase of `attention_residual`: merge the partial sum into the statistics of mixing point `index`.

    Equal to the one-phase form up to rounding.

    Args:
        stats: of `attention_residual_prepare`.
        partial: [T, D] floating point, or None to mix the bank alone.
        norm_weight: [D], the row of `norm_weights` at `index`; it scores the partial sum.
        query_weight: [D] or [1, D], the row of `query_weights` at `index`.
        eps: as given to `attention_residual_prepare`.
        index: the mixing point, from 0 to M-1; it may be left out when M is 1.
        output_norm_weight, output_eps: as in `attention_residual`.
    Returns: [T, D] of partial's dtype; of norm_weight's dtype when partial is None.
    Raises: ValueError for a wrong shape, dtype, device, eps or index.
    """
    op = "attention_residual_update"
    if not isinstance(stats, AttentionResidualStats):
        raise ValueError(
            f"{op}: stats must be AttentionResidualStats, got {type(stats).__name__}; "
            "attention_residual_prepare makes them."
        )
    checks.shape(op, "stats.weighted", stats.weighted, ("M", "T", "D"))
    points, tokens, width = stats.weighted.shape
    checks.at_least_one(op, "stats.weighted", stats.weighted, D=width)
    for name, tensor in stats._asdict().items():
        checks.dtype(op, f"stats.{name}", tensor, (torch.float32, torch.float64))
    checks.shape(op, "stats.maximum", stats.maximum, (points, tokens))
    checks.shape(op, "stats.normalizer", stats.normalizer, (points, tokens))
    if index is None:
        if points != 1:
            raise ValueError(
                f"{op}: index must name one of the {points} mixing points of stats, from 0 to {points - 1}; "
                "it was left out, which only a single point allows."
            )
        index = 0
    checks.integer(op, "index", index)
    if not 0 <= index < points:
        raise ValueError(f"{op}: index must be from 0 to {points - 1}, the last mixing point of stats, got {index}.")
    query_weight = _check_query(op, norm_weight, query_weight, width)
    checks.eps(op, "eps", eps)
    _check_output_norm(op, output_norm_weight, output_eps, width)
    if partial is not None:
        checks.dtype(op, "partial", partial)
        checks.shape(op, "partial", partial, (tokens, width))
    checks.same_device(
        op,
        weighted=stats.weighted,
        partial=partial,
        norm_weight=norm_weight,
        query_weight=query_weight,
        output_norm_weight=output_norm_weight,
    )
    if partial is None:  # nothing is scored, so the weights only name a dtype
        norm_weight, query_weight = norm_weight.detach(), query_weight.detach()
    return torch.ops.ascend_k3.attention_residual_update(
        stats.maximum[index],
        stats.normalizer[index],
        stats.weighted[index],
        partial,
        norm_weight,
        query_weight,
        eps,
        output_norm_weight,
        output_eps,
    )


def _check_query(op: str, norm_weight: Tensor, query_weight: Tensor, width: int) -> Tensor:
    """Check both weights of a mixing point; gives query_weight as [D]."""
    checks.dtype(op, "norm_weight", norm_weight)
    checks.dtype(op, "query_weight", query_weight)
    checks.shape(op, "norm_weight", norm_weight, (width,))
    if query_weight.dim() == 2:
        checks.shape(op, "query_weight", query_weight, (1, width))
        query_weight = query_weight.squeeze(0)
    checks.shape(op, "query_weight", query_weight, (width,))
    return query_weight


def _check_output_norm(op: str, weight: Tensor | None, eps: float | None, width: int) -> None:
    if (weight is None) != (eps is None):
        given = "output_eps" if weight is None else "output_norm_weight"
        raise ValueError(f"{op}: output_norm_weight and output_eps belong together; only {given} was given.")
    if weight is not None and eps is not None:
        checks.dtype(op, "output_norm_weight", weight)
        checks.shape(op, "output_norm_weight", weight, (width,))
        checks.eps(op, "output_eps", eps)
