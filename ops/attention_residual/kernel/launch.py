"""Launches of the kernels of Attention Residuals."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ascend_k3.ops.kernels import TYPES, KernelLaunch, for_dtypes, one_dtype

HERE = Path(__file__).parent
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
VARIANTS = for_dtypes(*DTYPES)
MIX = KernelLaunch(folder=HERE, source="attention_residual.cpp", entry="attention_residual", variants=VARIANTS)
PREPARE = KernelLaunch(folder=HERE, source="prepare.cpp", entry="attention_residual_prepare", variants=VARIANTS)
UPDATE = KernelLaunch(folder=HERE, source="update.cpp", entry="attention_residual_update", variants=VARIANTS)


def attention_residual(
    blocks: Tensor,
    partial: Tensor | None,
    norm_weight: Tensor,
    query_weight: Tensor,
    eps: float,
    output_norm_weight: Tensor | None,
    output_eps: float | None,
) -> Tensor:
    given = _given(blocks=blocks, partial=partial, norm_weight=norm_weight, query_weight=query_weight)
    given |= _given(output_norm_weight=output_norm_weight)
    dtype = one_dtype("attention_residual", DTYPES, **given)
    tokens, count, width = blocks.shape
    y = blocks.new_empty(tokens, width)
    if tokens:
        MIX.run(
            inputs=[_ready(value, y) for value in (blocks, partial, norm_weight, query_weight, output_norm_weight)],
            outputs=(y,),
            sizes=(tokens, count, width, y.element_size(), partial is not None, output_norm_weight is not None),
            numbers=(eps, output_eps or 0.0),
            defines={"DTYPE": TYPES[dtype]},
        )
    return y


def attention_residual_prepare(
    blocks: Tensor, norm_weights: Tensor, query_weights: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dtype = one_dtype(
        "attention_residual_prepare", DTYPES, blocks=blocks, norm_weights=norm_weights, query_weights=query_weights
    )
    tokens, count, width = blocks.shape
    points = norm_weights.shape[0]
    maximum, normalizer = (blocks.new_empty(points, tokens, dtype=torch.float32) for _ in range(2))
    weighted = blocks.new_empty(points, tokens, width, dtype=torch.float32)
    if tokens:
        PREPARE.run(
            inputs=[value.contiguous() for value in (blocks, norm_weights, query_weights)],
            outputs=(maximum, normalizer, weighted),
            sizes=(tokens, count, width, blocks.element_size(), points),
            numbers=(eps,),
            defines={"DTYPE": TYPES[dtype]},
        )
    return maximum, normalizer, weighted


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
    op = "attention_residual_update"
    one_dtype(op, (torch.float32,), maximum=maximum, normalizer=normalizer, weighted=weighted)
    given = _given(partial=partial, norm_weight=norm_weight)
    given |= _given(query_weight=query_weight if partial is not None else None, output_norm_weight=output_norm_weight)
    dtype = one_dtype(op, DTYPES, **given)
    tokens, width = weighted.shape
    y = weighted.new_empty(tokens, width, dtype=dtype)
    if tokens:
        scored = (norm_weight, query_weight) if partial is not None else (None, None)
        UPDATE.run(
            inputs=[
                *(value.contiguous() for value in (maximum, normalizer, weighted)),
                *(_ready(value, y) for value in (partial, *scored, output_norm_weight)),
            ],
            outputs=(y,),
            sizes=(tokens, width, y.element_size(), partial is not None, output_norm_weight is not None),
            numbers=(eps, output_eps or 0.0),
            defines={"DTYPE": TYPES[dtype]},
        )
    return y


def _given(**tensors: Tensor | None) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def _ready(tensor: Tensor | None, like: Tensor) -> Tensor:
    """What a kernel's parameter is: a contiguous tensor, of no elements for one that is left out."""
    return like.new_empty(0) if tensor is None else tensor.contiguous()
