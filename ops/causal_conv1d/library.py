"""`ascend_k3::causal_conv1d` and `ascend_k3::causal_conv1d_update`."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops.causal_conv1d import reference
from ascend_k3.ops.causal_conv1d.kernel import launch
from ascend_k3.ops.library import register


def _output_and_window(
    x: Tensor, weight: Tensor, initial_window: Tensor | None, cu_seqlens: Tensor | None, activation: str | None
) -> tuple[Tensor, Tensor]:
    sequences = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    return x.new_empty(x.shape), x.new_empty((sequences, x.shape[2], weight.shape[2] - 1))


def _output(x: Tensor, *_: object) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


register(
    "causal_conv1d",
    "(Tensor x, Tensor weight, Tensor? initial_window, Tensor? cu_seqlens, str? activation) -> (Tensor, Tensor)",
    reference.causal_conv1d,
    _output_and_window,
    differentiable=("x", "weight", "initial_window"),
    backward=reference.causal_conv1d_backward,
    kernel=launch.causal_conv1d,
)
register(
    "causal_conv1d_update",
    "(Tensor x, Tensor weight, Tensor(a!) windows, Tensor window_indices, str? activation) -> Tensor",
    reference.causal_conv1d_update,
    _output,
    no_gradient=(
        "causal_conv1d_update: it has no gradient; use causal_conv1d to train, "
        "or call under torch.no_grad() to generate."
    ),
    kernel=launch.causal_conv1d_update,
)
