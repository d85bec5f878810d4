"""Depthwise causal convolution in plain PyTorch, its gradient, and the one-token step on pooled windows.

Each sequence is laid out as its window (W-1 inputs) followed by its tokens, and the sequences one after another, in one
stream. The convolution is then W shifted multiply-adds over the whole stream, whatever the lengths; the W-1 outputs
that straddle two sequences are not read.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ascend_k3.ops.library import compute_dtype


def causal_conv1d(
    x: Tensor, weight: Tensor, initial_window: Tensor | None, cu_seqlens: Tensor | None, activation: str | None
) -> tuple[Tensor, Tensor]:
    layout = _Layout(x, weight, cu_seqlens)
    stream = layout.fill(x, initial_window)
    y = _convolve(stream, _taps(weight, stream.dtype)).index_select(0, layout.tokens)
    y = F.silu(y) if activation == "silu" else y
    window = stream[layout.next_window].transpose(1, 2)
    return y.to(x.dtype).view(x.shape), window.to(x.dtype).contiguous()


def causal_conv1d_backward(
    grads: list[Tensor],
    needs: list[bool],
    x: Tensor,
    weight: Tensor,
    initial_window: Tensor | None,
    cu_seqlens: Tensor | None,
    activation: str | None,
) -> list[Tensor]:
    """The gradient from the inputs alone: the stream is laid out again."""
    layout = _Layout(x, weight, cu_seqlens)
    stream = layout.fill(x, initial_window)
    taps = _taps(weight, stream.dtype)
    grad = grads[0].reshape(-1, x.shape[-1]).to(stream.dtype)
    if activation == "silu":
        grad = torch.ops.aten.silu_backward(grad, _convolve(stream, taps).index_select(0, layout.tokens))
    outputs = max(stream.shape[0] - len(taps) + 1, 0)
    grad_outputs = stream.new_zeros(outputs, x.shape[-1]).index_copy_(0, layout.tokens, grad)
    grad_x, grad_weight, grad_window = (x.new_empty(0) for _ in range(3))
    if needs[1]:
        per_tap = [(grad_outputs * stream[j : j + outputs]).sum(0) for j in range(len(taps))]
        grad_weight = torch.stack(per_tap, dim=-1).unsqueeze(1).to(weight.dtype)
    if needs[0] or needs[2]:
        grad_stream = torch.zeros_like(stream)
        for j, tap in enumerate(taps):
            grad_stream[j : j + outputs].addcmul_(grad_outputs, tap)
        grad_stream.index_add_(0, layout.next_window.flatten(), grads[1].transpose(1, 2).flatten(0, 1).to(stream.dtype))
        if needs[0]:
            grad_x = grad_stream.index_select(0, layout.tokens + layout.history).to(x.dtype).view(x.shape)
        if needs[2]:
            grad_window = grad_stream[layout.window].transpose(1, 2).to(x.dtype).contiguous()
    return [grad_x, grad_weight, grad_window]


def causal_conv1d_update(
    x: Tensor, weight: Tensor, windows: Tensor, window_indices: Tensor, activation: str | None
) -> Tensor:
    live = (window_indices >= 0).nonzero().flatten()
    slots = window_indices[live].long()
    inputs = torch.cat((windows[slots].to(x.dtype), x[live].unsqueeze(-1)), dim=-1)
    windows[slots] = inputs[..., 1:].to(windows.dtype)
    columns = inputs.to(compute_dtype(x, weight)).unbind(-1)
    value = _weighted_sum(columns, _taps(weight, columns[0].dtype))
    value = F.silu(value) if activation == "silu" else value
    return torch.zeros_like(x, memory_format=torch.contiguous_format).index_copy_(0, live, value.to(x.dtype))


class _Layout:
    """Rows of the stream: where each token's output, each sequence's window and its next window stand."""

    def __init__(self, x: Tensor, weight: Tensor, cu_seqlens: Tensor | None) -> None:
        batch, length, self.channels = x.shape
        self.history = weight.shape[-1] - 1
        self.dtype = compute_dtype(x, weight)
        device = x.device
        if cu_seqlens is None:
            starts = torch.arange(batch + 1, device=device) * length
        else:
            starts = cu_seqlens.long()
        sequences = starts.numel() - 1
        self.rows = batch * length + sequences * self.history
        number = torch.arange(sequences, device=device)
        owner = torch.repeat_interleave(number, starts.diff(), output_size=batch * length)
        # Row of a token's output; the token itself stands `history` rows later, as the last of the W inputs.
        self.tokens = torch.arange(batch * length, device=device) + owner * self.history
        offsets = torch.arange(self.history, device=device)
        self.window = (starts[:-1] + number * self.history).unsqueeze(1) + offsets
        self.next_window = (starts[1:] + number * self.history).unsqueeze(1) + offsets

    def fill(self, x: Tensor, initial_window: Tensor | None) -> Tensor:
        stream = torch.zeros(self.rows, self.channels, dtype=self.dtype, device=x.device)
        stream.index_copy_(0, self.tokens + self.history, x.reshape(-1, self.channels).to(self.dtype))
        if initial_window is not None:
            stream[self.window] = initial_window.transpose(1, 2).to(self.dtype)
        return stream


def _taps(weight: Tensor, dtype: torch.dtype) -> list[Tensor]:
    return [tap.contiguous() for tap in weight[:, 0].to(dtype).unbind(-1)]


def _convolve(stream: Tensor, taps: list[Tensor]) -> Tensor:
    outputs = max(stream.shape[0] - len(taps) + 1, 0)
    return _weighted_sum([stream[j : j + outputs] for j in range(len(taps))], taps)


def _weighted_sum(inputs: list[Tensor] | tuple[Tensor, ...], taps: list[Tensor]) -> Tensor:
    """sum_j inputs[j] * taps[j], in the order of j: the step and the whole sequence round alike."""
    total = inputs[0] * taps[0]
    for value, tap in zip(inputs[1:], taps[1:], strict=True):
        total = total.addcmul_(value, tap)
    return total
