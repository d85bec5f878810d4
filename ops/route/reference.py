"""Routing in plain PyTorch, and its gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops.library import compute_dtype


def route(logits: Tensor, bias: Tensor, top_k: int, renormalize: bool, scaling_factor: float) -> tuple[Tensor, Tensor]:
    scores = torch.sigmoid(logits.to(compute_dtype(logits)))
    ids = largest(scores + bias.to(scores.dtype), top_k)
    weights = scores.gather(-1, ids)
    if renormalize:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return (weights * scaling_factor).to(logits.dtype), ids


def largest(values: Tensor, count: int) -> Tensor:
    """Indices of the `count` largest values of each row, falling: of equal ones the lowest index first, NaN on top."""
    if values.dtype == torch.float64:
        return values.sort(dim=-1, descending=True, stable=True).indices[:, :count].contiguous()
    # torch.topk leaves open which of several equal values it takes. A key that is never equal settles it, five times
    # faster than a stable sort: the float's bits as an ordered integer above, the index counted down below.
    bits = torch.where(values.isnan(), torch.inf, values).view(torch.int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    last = values.shape[-1] - 1
    keys = (ordered.long() << 32) + torch.arange(last, -1, -1, device=values.device)
    return last - (keys.topk(count, dim=-1).values & 0xFFFFFFFF)


def route_backward(
    grads: list[Tensor],
    needs: list[bool],
    logits: Tensor,
    bias: Tensor,
    top_k: int,
    renormalize: bool,
    scaling_factor: float,
) -> list[Tensor]:
    """The gradient of the weights with the choice of experts held fixed."""
    scores = torch.sigmoid(logits.to(compute_dtype(logits)))
    ids = largest(scores + bias.to(scores.dtype), top_k)
    chosen = scores.gather(-1, ids)
    grad = grads[0].to(scores.dtype) * scaling_factor
    if renormalize:
        total = chosen.sum(-1, keepdim=True) + 1e-20
        grad = (grad - (grad * chosen / total).sum(-1, keepdim=True)) / total
    grad_logits = torch.zeros_like(scores, memory_format=torch.contiguous_format)
    return [grad_logits.scatter_(-1, ids, grad * chosen * (1 - chosen)).to(logits.dtype)]
