"""`ascend_k3::kda` with its gradient, and `ascend_k3::kda_decode`."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops.kda import reference
from ascend_k3.ops.kda.kernel import launch
from ascend_k3.ops.library import compute_dtype, register


def _fake_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float,
    scale: float,
    initial_state: Tensor | None,
    cu_seqlens: Tensor | None,
    chunk_size: int,
) -> tuple[Tensor, Tensor]:
    sequences = q.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    state = q.new_empty((sequences, v.shape[2], v.shape[3], q.shape[3]), dtype=compute_dtype(q, k, v))
    return torch.empty_like(v, memory_format=torch.contiguous_format), state


def _fake_kda_decode(q: Tensor, k: Tensor, v: Tensor, *_: object) -> Tensor:
    return torch.empty_like(v, memory_format=torch.contiguous_format)


register(
    "kda",
    "(Tensor q, Tensor k, Tensor v, Tensor g, Tensor beta, Tensor A_log, Tensor dt_bias, float lower_bound,"
    " float scale, Tensor? initial_state, Tensor? cu_seqlens, int chunk_size) -> (Tensor, Tensor)",
    reference.kda,
    _fake_kda,
    differentiable=("q", "k", "v", "g", "beta", "A_log", "dt_bias", "initial_state"),
    backward=reference.kda_backward,
    kernel=launch.kda,
    backward_kernel=launch.kda_backward,
)
register(
    "kda_decode",
    "(Tensor q, Tensor k, Tensor v, Tensor g, Tensor beta, Tensor(a!) states, Tensor state_indices, Tensor A_log,"
    " Tensor dt_bias, float lower_bound, float scale, Tensor? num_accepted) -> Tensor",
    reference.kda_decode,
    _fake_kda_decode,
    kernel=launch.kda_decode,
    no_gradient="kda_decode: it has no gradient; use kda to train, or call under torch.no_grad() to generate.",
)
