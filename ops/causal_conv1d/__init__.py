"""Short depthwise causal convolution before KDA: over whole sequences, and one token at a time on pooled windows."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops import checks
from ascend_k3.ops.causal_conv1d import library as _library  # noqa: F401  (registers the operators)


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    initial_window: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    activation: str | None = "silu",
) -> tuple[Tensor, Tensor]:
    """y_t = silu(sum_j weight[c, 0, j] x_{t-W+1+j}) for every channel c; the last tap multiplies the current token.

    Inputs before the start of a sequence are those of its initial window, or zero. Accumulated in float32 (float64 if
    x or weight is) and rounded once. Gradients: x, weight, initial_window.

    Args:
        x: [B, T, C] floating point, the raw projections.
        weight: [C, 1, W] floating point, W >= 2 (4 in the release).
        initial_window: [N, C, W-1] floating point, the last W-1 raw inputs before x, oldest first; converted to x's
            dtype.
        cu_seqlens: [N+1] int32 or int64, packs N sequences into B = 1; empty ones are allowed. Without it N = B.
        activation: "silu", or None for the plain convolution.
    Returns: y [B, T, C] and the next window [N, C, W-1], both of x's dtype. The window of a sequence shorter than W-1
        still holds the newer part of its initial window.
    Raises: ValueError for a wrong shape, dtype, device, offset or activation.
    Source: `{q,k,v}_conv1d` of the released model.
    """
    op = "causal_conv1d"
    checks.shape(op, "x", x, ("B", "T", "C"))
    _check(op, x, weight, activation)
    sequences = x.shape[0]
    if cu_seqlens is not None:
        if x.shape[0] != 1:
            raise ValueError(f"{op}: cu_seqlens packs sequences into one row, so x must have B = 1; got {x.shape[0]}.")
        checks.cu_seqlens(op, "cu_seqlens", cu_seqlens, x.shape[1])
        sequences = cu_seqlens.shape[0] - 1
    if initial_window is not None:
        checks.dtype(op, "initial_window", initial_window)
        checks.shape(op, "initial_window", initial_window, (sequences, x.shape[2], weight.shape[2] - 1))
    checks.same_device(op, x=x, weight=weight, initial_window=initial_window, cu_seqlens=cu_seqlens)
    if initial_window is not None:
        initial_window = initial_window.to(x.dtype)
    return torch.ops.ascend_k3.causal_conv1d(x, weight, initial_window, cu_seqlens, activation)


def causal_conv1d_update(
    x: Tensor, weight: Tensor, windows: Tensor, window_indices: Tensor, activation: str | None = "silu"
) -> Tensor:
    """The same convolution one token a sequence, on a pool of windows that is updated in place.

    Args:
        x: [N, C] floating point, the new token of each of N sequences.
        weight: [C, 1, W] floating point, W >= 2.
        windows: [slots, C, W-1] floating point; slot window_indices[n] is read, then moved on by x[n]. Of another dtype
            than x's it is converted when read and when written.
        window_indices: [N] int32 or int64, no slot twice; -1 marks a padding row, whose output is zero and
            which touches no slot.
        activation: "silu", or None.
    Returns: y [N, C] of x's dtype.
    Raises: ValueError for a wrong shape, dtype, device, slot or activation; RuntimeError in the backward pass, it has
        no gradient.
    Source: as `causal_conv1d`.
    """
    op = "causal_conv1d_update"
    checks.shape(op, "x", x, ("N", "C"))
    _check(op, x, weight, activation)
    checks.dtype(op, "windows", windows)
    checks.shape(op, "windows", windows, ("slots", x.shape[1], weight.shape[2] - 1))
    checks.same_device(op, x=x, weight=weight, windows=windows, window_indices=window_indices)
    checks.slots(op, "window_indices", window_indices, x.shape[0], windows.shape[0])
    return torch.ops.ascend_k3.causal_conv1d_update(x, weight, windows, window_indices, activation)


def _check(op: str, x: Tensor, weight: Tensor, activation: str | None) -> None:
    checks.dtype(op, "x", x)
    checks.at_least_one(op, "x", x, C=x.shape[-1])
    checks.dtype(op, "weight", weight)
    checks.shape(op, "weight", weight, (x.shape[-1], 1, "W"))
    if weight.shape[2] < 2:
        raise ValueError(f"{op}: weight must have W >= 2 taps, got {weight.shape[2]}.")
    if activation not in ("silu", None):
        raise ValueError(f'{op}: activation must be "silu" or None, got {activation!r}.')
