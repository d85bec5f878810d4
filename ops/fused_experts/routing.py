"""Rows to their experts and back in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops.library import compute_dtype


def permute_tokens(x: Tensor, ids: Tensor, experts: int) -> tuple[Tensor, Tensor, Tensor]:
    groups, order, places = _sorted(ids, experts)
    dropped = groups[order] == experts
    rows = x.index_select(0, order // max(ids.shape[1], 1)).masked_fill(dropped.unsqueeze(1), 0)
    return rows, places, torch.bincount(groups, minlength=experts + 1)[:experts].to(torch.int32)


def permute_tokens_backward(
    grads: list[Tensor], needs: list[bool], x: Tensor, ids: Tensor, experts: int
) -> list[Tensor]:
    """The sum of the gradients at a token's places."""
    places = _sorted(ids, experts)[2]
    return [unpermute_tokens(grads[0], torch.ones_like(places, dtype=x.dtype), places, x.dtype)]


def _sorted(ids: Tensor, experts: int) -> tuple[Tensor, Tensor, Tensor]:
    """The expert of each pair, `experts` for dropped ones; the pairs in the order of the rows; their places."""
    flat = ids.flatten().long()
    groups = torch.where(flat < 0, experts, flat)
    order = groups.argsort(stable=True)
    places = torch.empty_like(order).index_copy_(0, order, torch.arange(order.numel(), device=order.device))
    return groups, order, torch.where(flat < 0, -1, places).view(ids.shape).to(torch.int32)


def unpermute_tokens(rows: Tensor, weights: Tensor, places: Tensor, dtype: torch.dtype) -> Tensor:
    inside = compute_dtype(rows, weights)
    # A row of zeros, with weight zero, stands for what was dropped.
    padded = torch.cat((rows, rows.new_zeros(1, rows.shape[1])))
    dropped = places < 0
    places = torch.where(dropped, rows.shape[0], places).long()
    factors = weights.to(inside).masked_fill(dropped, 0)
    y = padded.new_zeros(places.shape[0], rows.shape[1], dtype=inside)
    for slot in range(places.shape[1]):
        y = y.addcmul(padded.index_select(0, places[:, slot]).to(inside), factors[:, slot : slot + 1])
    return y.to(dtype)
