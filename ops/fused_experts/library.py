"""`ascend_k3::fused_experts`, `ascend_k3::permute_tokens` and `ascend_k3::unpermute_tokens`."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops.fused_experts import reference, routing
from ascend_k3.ops.fused_experts.kernel import launch
from ascend_k3.ops.library import register


def _output(x: Tensor, *_: object) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _permuted(x: Tensor, ids: Tensor, experts: int) -> tuple[Tensor, Tensor, Tensor]:
    rows = x.new_empty(ids.shape[0] * ids.shape[1], x.shape[1])
    return rows, ids.new_empty(ids.shape, dtype=torch.int32), ids.new_empty(experts, dtype=torch.int32)


def _returned(rows: Tensor, weights: Tensor, places: Tensor, dtype: torch.dtype) -> Tensor:
    return rows.new_empty(places.shape[0], rows.shape[1], dtype=dtype)


register(
    "fused_experts",
    "(Tensor x, Tensor weights, Tensor ids, Tensor w13, Tensor? w13_scale, Tensor w2, Tensor? w2_scale, str format, "
    "float beta, float? linear_beta) -> Tensor",
    reference.fused_experts,
    _output,
    differentiable=("x", "weights", "w13", "w2"),
    backward=reference.fused_experts_backward,
)
register(
    "permute_tokens",
    "(Tensor x, Tensor ids, int experts) -> (Tensor, Tensor, Tensor)",
    routing.permute_tokens,
    _permuted,
    differentiable=("x",),
    backward=routing.permute_tokens_backward,
    kernel=launch.permute_tokens,
)
register(
    "unpermute_tokens",
    "(Tensor rows, Tensor weights, Tensor places, ScalarType dtype) -> Tensor",
    routing.unpermute_tokens,
    _returned,
    differentiable=("rows", "weights"),
    kernel=launch.unpermute_tokens,
)
