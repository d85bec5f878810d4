"""The definition of KDA, token by token in float64, as the tests' oracle."""

from __future__ import annotations

import torch
from torch import Tensor


def recurrence(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    A_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The same arguments as `ops.kda`; everything in float64."""
    batch, length, heads, width = q.shape
    offsets = [n * length for n in range(batch + 1)] if cu_seqlens is None else cu_seqlens.tolist()
    q, k, v, g, beta = (x.double().flatten(0, 1) for x in (q, k, v, g, beta))
    A_log, dt_bias = A_log.double(), dt_bias.double().view(heads, width)
    q = q / (q.square().sum(-1, keepdim=True) + 1e-6).sqrt() * (width**-0.5 if scale is None else scale)
    k = k / (k.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    decay = (lower_bound * torch.sigmoid(A_log.exp()[:, None] * (g + dt_bias))).exp()
    strength = torch.sigmoid(beta)
    outputs, states = [], []
    for n, (begin, end) in enumerate(zip(offsets, offsets[1:], strict=False)):
        state = torch.zeros(heads, width, v.shape[-1], dtype=torch.float64)  # [H, K, V], as the papers have it
        if initial_state is not None:
            state = initial_state[n].double().mT
        for t in range(begin, end):
            state = decay[t][:, :, None] * state
            u = strength[t][:, None] * (v[t] - torch.einsum("hkv,hk->hv", state, k[t]))
            state = state + torch.einsum("hk,hv->hkv", k[t], u)
            outputs.append(torch.einsum("hkv,hk->hv", state, q[t]))
        states.append(state.mT)
    out = torch.stack(outputs) if outputs else v.new_zeros(0, heads, v.shape[-1])
    return out.view(batch, length, *v.shape[1:]), torch.stack(states)
