"""Launches of the kernels that move rows to their experts and back."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ascend_k3.ops.kernels import TYPES, KernelLaunch, one_dtype

HERE = Path(__file__).parent
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
PERMUTE = KernelLaunch(folder=HERE, source="permute_tokens.cpp", entry="permute_tokens")
UNPERMUTE = KernelLaunch(
    folder=HERE,
    source="unpermute_tokens.cpp",
    entry="unpermute_tokens",
    variants=tuple(
        {"DTYPE": TYPES[dtype], "OUT": TYPES[out]}
        for dtype in DTYPES
        for out in (DTYPES if dtype == torch.float32 else (dtype,))
    ),
)


def permute_tokens(x: Tensor, ids: Tensor, experts: int) -> tuple[Tensor, Tensor, Tensor]:
    one_dtype("permute_tokens", DTYPES, x=x)
    tokens, top_k = ids.shape
    rows = x.new_empty(tokens * top_k, x.shape[1])
    places = ids.new_empty(ids.shape, dtype=torch.int32)
    if not ids.numel() or not experts:
        return rows.zero_(), places.fill_(-1), ids.new_zeros(experts, dtype=torch.int32)
    counts = ids.new_empty(experts, dtype=torch.int32)
    PERMUTE.run(
        inputs=(x.contiguous(), ids.long().contiguous()),
        outputs=(rows, places, counts),
        sizes=(tokens, top_k, experts, x.shape[1] * x.element_size()),
    )
    return rows, places, counts


def unpermute_tokens(rows: Tensor, weights: Tensor, places: Tensor, dtype: torch.dtype) -> Tensor:
    one_dtype("unpermute_tokens", DTYPES, rows=rows)
    one_dtype("unpermute_tokens", DTYPES, weights=weights)
    if dtype not in DTYPES or rows.dtype not in (torch.float32, dtype):
        raise ValueError(
            f"unpermute_tokens: rows are {rows.dtype} and the result is to be {dtype}; "
            "the kernel gives the dtype of the rows, and of float32 ones also bfloat16 and float16."
        )
    tokens, top_k = places.shape
    y = rows.new_empty(tokens, rows.shape[1], dtype=dtype)
    if not y.numel():
        return y
    if not rows.numel() or not top_k:
        return y.zero_()
    UNPERMUTE.run(
        inputs=(rows.contiguous(), weights.float().contiguous(), places.contiguous()),
        outputs=(y,),
        sizes=(tokens, top_k, rows.shape[1], rows.element_size(), y.element_size()),
        defines={"DTYPE": TYPES[rows.dtype], "OUT": TYPES[dtype]},
    )
    return y
