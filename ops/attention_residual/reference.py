"""Attention over the depth of the network in plain PyTorch: each token mixes the states of earlier blocks.

Every step is elementwise or a sum along one token's row, so that a token's result depends on no other, bit for bit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops.library import compute_dtype

# Tokens are taken in slabs of at most this many values, so that copies in float32 stay small beside the bank.
SLAB = 1 << 22


def attention_residual(
    blocks: Tensor,
    partial: Tensor | None,
    norm_weight: Tensor,
    query_weight: Tensor,
    eps: float,
    output_norm_weight: Tensor | None,
    output_eps: float | None,
) -> Tensor:
    tokens, count, width = blocks.shape
    dtype = compute_dtype(blocks, norm_weight, query_weight)
    query = norm_weight.to(dtype) * query_weight.to(dtype)
    step = max(1, SLAB // ((count + 1) * width))
    slabs = []
    for start in range(0, max(tokens, 1), step):
        values = blocks[start : start + step].to(dtype)
        scores = _scores(values, query, eps)
        if partial is None:
            mixture = _weighted_sum(torch.softmax(scores, 1), values)
        else:
            last = partial[start : start + step].to(dtype)
            scores = torch.cat([scores, _scores(last, query, eps).unsqueeze(1)], 1)
            probabilities = torch.softmax(scores, 1)
            mixture = _weighted_sum(probabilities[:, :count], values) + probabilities[:, count:] * last
        slabs.append(_finish(mixture, output_norm_weight, output_eps).to(blocks.dtype))
    return torch.cat(slabs)


def attention_residual_prepare(
    blocks: Tensor, norm_weights: Tensor, query_weights: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dtype = compute_dtype(blocks, norm_weights, query_weights)
    queries = norm_weights.to(dtype) * query_weights.to(dtype)
    values = blocks.to(dtype)
    scores = torch.stack([_scores(values, query, eps) for query in queries])
    maximum = scores.amax(2)
    mass = torch.exp(scores - maximum.unsqueeze(2))
    weighted = torch.stack([_weighted_sum(share, values) for share in mass])
    return maximum, mass.sum(2), weighted


def attention_residual_update(
    maximum: Tensor,
    normalizer: Tensor,
    weighted: Tensor,
    partial: Tensor | None,
    norm_weight: Tensor,
    query_weight: Tensor,
    eps: float,
    output_norm_weight: Tensor | None,
    output_eps: float | None,
) -> Tensor:
    if partial is None:
        mixture = weighted / normalizer.unsqueeze(1)
        return _finish(mixture, output_norm_weight, output_eps).to(norm_weight.dtype)
    dtype = compute_dtype(weighted, partial, norm_weight, query_weight)
    last = partial.to(dtype)
    score = _scores(last, norm_weight.to(dtype) * query_weight.to(dtype), eps)
    risen = torch.maximum(maximum, score)
    bank, own = torch.exp(maximum - risen).unsqueeze(1), torch.exp(score - risen).unsqueeze(1)
    mixture = (weighted * bank + last * own) / (normalizer.unsqueeze(1) * bank + own)
    return _finish(mixture, output_norm_weight, output_eps).to(partial.dtype)


def _scores(values: Tensor, query: Tensor, eps: float) -> Tensor:
    """sum(values / sqrt(mean(values^2) + eps) * query) over the last axis."""
    return (values * query).sum(-1) * torch.rsqrt(values.square().mean(-1) + eps)


def _weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Sum of values [T, NB, D] over the blocks, with weights [T, NB]."""
    return (weights.unsqueeze(2) * values).sum(1)


def _finish(mixture: Tensor, weight: Tensor | None, eps: float | None) -> Tensor:
    """The RMSNorm that follows, if it is asked for: on the mixture as it is, before any rounding."""
    if weight is None or eps is None:
        return mixture
    return mixture * torch.rsqrt(mixture.square().mean(-1, keepdim=True) + eps) * weight.to(mixture.dtype)
