"""`ascend_k3::attention_residual` and its two-phase form."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops.attention_residual import reference
from ascend_k3.ops.attention_residual.kernel import launch
from ascend_k3.ops.library import compute_dtype, register


def _mix(blocks: Tensor, *_: object) -> Tensor:
    return blocks.new_empty(blocks.shape[0], blocks.shape[2])


def _prepare(blocks: Tensor, norm_weights: Tensor, query_weights: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    points, tokens, width = norm_weights.shape[0], blocks.shape[0], blocks.shape[2]
    empty = torch.empty(0, dtype=compute_dtype(blocks, norm_weights, query_weights), device=blocks.device)
    return empty.new_empty(points, tokens), empty.new_empty(points, tokens), empty.new_empty(points, tokens, width)


def _update(
    maximum: Tensor, normalizer: Tensor, weighted: Tensor, partial: Tensor | None, norm_weight: Tensor, *_: object
) -> Tensor:
    source = norm_weight if partial is None else partial
    return weighted.new_empty(weighted.shape, dtype=source.dtype)


register(
    "attention_residual",
    "(Tensor blocks, Tensor? partial, Tensor norm_weight, Tensor query_weight, float eps, Tensor? output_norm_weight, "
    "float? output_eps) -> Tensor",
    reference.attention_residual,
    _mix,
    differentiable=("blocks", "partial", "norm_weight", "query_weight", "output_norm_weight"),
    kernel=launch.attention_residual,
)
register(
    "attention_residual_prepare",
    "(Tensor blocks, Tensor norm_weights, Tensor query_weights, float eps) -> (Tensor, Tensor, Tensor)",
    reference.attention_residual_prepare,
    _prepare,
    differentiable=("blocks", "norm_weights", "query_weights"),
    kernel=launch.attention_residual_prepare,
)
register(
    "attention_residual_update",
    "(Tensor maximum, Tensor normalizer, Tensor weighted, Tensor? partial, Tensor norm_weight, Tensor query_weight, "
    "float eps, Tensor? output_norm_weight, float? output_eps) -> Tensor",
    reference.attention_residual_update,
    _update,
    differentiable=(
        "maximum",
        "normalizer",
        "weighted",
        "partial",
        "norm_weight",
        "query_weight",
        "output_norm_weight",
    ),
    kernel=launch.attention_residual_update,
)
