"""Launches of the causal convolution's kernels."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ascend_k3.ops.kernels import TYPES, KernelLaunch, one_dtype

HERE = Path(__file__).parent
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
VARIANTS = tuple(
    {"DTYPE": TYPES[dtype], "WEIGHT": TYPES[weight]}
    for dtype in DTYPES
    for weight in {torch.float32: None, dtype: None}
)
CAUSAL_CONV1D = KernelLaunch(folder=HERE, source="causal_conv1d.cpp", entry="causal_conv1d", variants=VARIANTS)
UPDATE = KernelLaunch(folder=HERE, source="causal_conv1d_update.cpp", entry="causal_conv1d_update", variants=VARIANTS)


def _defines(op: str, weight: Tensor, **tensors: Tensor) -> dict[str, object]:
    """The variant for these tensors: the weight is float32, or of the dtype that the others have."""
    dtype = one_dtype(op, DTYPES, **tensors)
    if weight.dtype not in (torch.float32, dtype):
        raise ValueError(f"{op}: weight is {weight.dtype}; the kernel takes float32, or {dtype} as x is.")
    return {"DTYPE": TYPES[dtype], "WEIGHT": TYPES[weight.dtype]}


def causal_conv1d(
    x: Tensor, weight: Tensor, initial_window: Tensor | None, cu_seqlens: Tensor | None, activation: str | None
) -> tuple[Tensor, Tensor]:
    defines = _defines("causal_conv1d", weight, x=x)
    batch, length, channels = x.shape
    taps = weight.shape[2]
    sequences = batch if cu_seqlens is None else cu_seqlens.shape[0] - 1
    x = x.contiguous()
    y = torch.empty_like(x)
    if not x.numel():
        shape = (sequences, channels, taps - 1)
        return y, x.new_zeros(shape) if initial_window is None else initial_window.contiguous().clone()
    window = x.new_empty(sequences, channels, taps - 1)
    CAUSAL_CONV1D.run(
        # What is absent is not read: x stands in its place.
        inputs=(
            x,
            weight.contiguous(),
            x if initial_window is None else initial_window.contiguous(),
            x if cu_seqlens is None else cu_seqlens.long().contiguous(),
        ),
        outputs=(y, window),
        sizes=(
            batch * length,
            channels,
            taps,
            sequences,
            length if cu_seqlens is None else 0,
            x.element_size(),
            weight.element_size(),
            initial_window is not None,
            activation == "silu",
        ),
        defines=defines,
    )
    return y, window


def causal_conv1d_update(
    x: Tensor, weight: Tensor, windows: Tensor, window_indices: Tensor, activation: str | None
) -> Tensor:
    defines = _defines("causal_conv1d_update", weight, x=x, windows=windows)
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        pool = windows.contiguous()
        UPDATE.run(
            inputs=(x, weight.contiguous(), window_indices.long().contiguous()),
            updated=(pool,),
            outputs=(y,),
            sizes=(
                x.shape[0],
                x.shape[1],
                weight.shape[2],
                x.element_size(),
                weight.element_size(),
                activation == "silu",
            ),
            defines=defines,
        )
        if pool is not windows:
            windows.copy_(pool)
    return y
