"""Routed experts in plain PyTorch, and their gradient.

The (token, slot) pairs are sorted by expert and each used expert runs once, on all of its tokens; its weights are
expanded for that moment only. A token's sum is taken by rising expert, so it does not depend on where the other tokens
of the batch go.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ascend_k3.ops.library import compute_dtype
from ascend_k3.ops.mx.reference import dequantize
from ascend_k3.ops.situ_glu.reference import situ_glu, situ_glu_backward

DENSE = "dense"


def fused_experts(
    x: Tensor,
    weights: Tensor,
    ids: Tensor,
    w13: Tensor,
    w13_scale: Tensor | None,
    w2: Tensor,
    w2_scale: Tensor | None,
    format: str,
    beta: float,
    linear_beta: float | None,
) -> Tensor:
    dtype = compute_dtype(x, weights, w13, w2)
    value, pair_weights = x.to(dtype), weights.to(dtype).flatten()
    y = torch.zeros_like(value, memory_format=torch.contiguous_format)
    for expert, pairs in used_experts(ids, w13.shape[0]):
        tokens = pairs // ids.shape[1]
        hidden = value.index_select(0, tokens) @ _expand(w13, w13_scale, format, expert, dtype).T
        out = situ_glu(hidden, beta, linear_beta) @ _expand(w2, w2_scale, format, expert, dtype).T
        y.index_add_(0, tokens, out * pair_weights[pairs].unsqueeze(1))
    return y.to(x.dtype)


def fused_experts_backward(
    grads: list[Tensor],
    needs: list[bool],
    x: Tensor,
    weights: Tensor,
    ids: Tensor,
    w13: Tensor,
    w13_scale: Tensor | None,
    w2: Tensor,
    w2_scale: Tensor | None,
    format: str,
    beta: float,
    linear_beta: float | None,
) -> list[Tensor]:
    """Gradients of x, weights, w13 and w2; each expert's hidden values are computed again, one expert at a time."""
    dtype = compute_dtype(x, weights, w13, w2)
    value, pair_weights, grad_y = x.to(dtype), weights.to(dtype).flatten(), grads[0].to(dtype)
    grad_x = torch.zeros_like(value, memory_format=torch.contiguous_format) if needs[0] else x.new_empty(0)
    grad_weights = torch.zeros_like(pair_weights) if needs[1] else x.new_empty(0)
    grad_w13, grad_w2 = (
        torch.zeros_like(stack, memory_format=torch.contiguous_format) if needed else x.new_empty(0)
        for stack, needed in ((w13, needs[2]), (w2, needs[3]))
    )
    for expert, pairs in used_experts(ids, w13.shape[0]):
        tokens = pairs // ids.shape[1]
        inputs, grad_out = value.index_select(0, tokens), grad_y.index_select(0, tokens)
        pair_weight = pair_weights[pairs].unsqueeze(1)
        gate_up = _expand(w13, w13_scale, format, expert, dtype)
        hidden = inputs @ gate_up.T
        active = situ_glu(hidden, beta, linear_beta)
        if needs[3]:
            grad_w2[expert] = (grad_out * pair_weight).T @ active
        if not any(needs[:3]):
            continue
        grad_active = grad_out @ _expand(w2, w2_scale, format, expert, dtype)
        if needs[1]:
            grad_weights[pairs] = (grad_active * active).sum(-1)
        (grad_hidden,) = situ_glu_backward([grad_active * pair_weight], [True], hidden, beta, linear_beta)
        if needs[2]:
            grad_w13[expert] = grad_hidden.T @ inputs
        if needs[0]:
            grad_x.index_add_(0, tokens, grad_hidden @ gate_up)
    return [grad_x.to(x.dtype), grad_weights.to(weights.dtype).view(ids.shape if needs[1] else 0), grad_w13, grad_w2]


def used_experts(ids: Tensor, experts: int) -> Iterator[tuple[int, Tensor]]:
    """Each expert that some id names, rising, with the flat indices (token * top_k + slot) that name it, rising.

    Ids of -1 are dropped.
    """
    flat = ids.flatten().long()
    order = flat.argsort(stable=True)
    counts = torch.bincount(flat + 1, minlength=experts + 1).tolist()
    for expert, pairs in enumerate(torch.split(order, counts), start=-1):
        if expert >= 0 and pairs.numel():
            yield expert, pairs


def _expand(stack: Tensor, scale: Tensor | None, format: str, expert: int, dtype: torch.dtype) -> Tensor:
    """One expert's matrix in `dtype`."""
    if format == DENSE or scale is None:
        return stack[expert].to(dtype)
    return dequantize(stack[expert], scale[expert], format, dtype)
