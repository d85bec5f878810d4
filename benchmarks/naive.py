"""What the benchmarks compare with: the formulas as one writes them down, vectorized over batch and heads."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def kda_recurrence(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    A_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float,
    initial_state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`ops.kda`, token by token: one decay, two products with the state and one outer product a token."""
    if cu_seqlens is not None:
        lengths = cu_seqlens.diff().tolist()
        parts = [x.split(lengths, 1) for x in (q, k, v, g, beta)]
        results = [
            kda_recurrence(
                *inputs,
                A_log=A_log,
                dt_bias=dt_bias,
                lower_bound=lower_bound,
                initial_state=None if initial_state is None else initial_state[n : n + 1],
            )
            for n, inputs in enumerate(zip(*parts, strict=True))
        ]
        return torch.cat([o for o, _ in results], 1), torch.cat([state for _, state in results])
    batch, length, heads, width = q.shape
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6) * width**-0.5
    k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
    decay = (lower_bound * torch.sigmoid(A_log.exp()[:, None] * (g + dt_bias.view(heads, width)))).exp()
    strength = torch.sigmoid(beta)[..., None]
    state = q.new_zeros(batch, heads, v.shape[-1], width) if initial_state is None else initial_state
    outputs = []
    for t in range(length):
        state = state * decay[:, t, :, None, :]
        u = strength[:, t] * (v[:, t] - (state @ k[:, t, :, :, None]).squeeze(-1))
        state = state + u[..., None] * k[:, t, :, None, :]
        outputs.append((state @ q[:, t, :, :, None]).squeeze(-1))
    return (torch.stack(outputs, 1) if outputs else v.clone()), state


@torch.no_grad()
def kda_recurrence_in_place(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, *, A_log: Tensor, dt_bias: Tensor, lower_bound: float
) -> tuple[Tensor, Tensor]:
    """`kda_recurrence` of one sequence without a gradient, as fast as torch has it: the state is updated in place."""
    heads, width = q.shape[2:]
    q = q[0] * torch.rsqrt(q[0].square().sum(-1, keepdim=True) + 1e-6) * width**-0.5
    k = k[0] * torch.rsqrt(k[0].square().sum(-1, keepdim=True) + 1e-6)
    decay = (lower_bound * torch.sigmoid(A_log.exp()[:, None] * (g[0] + dt_bias.view(heads, width)))).exp()
    out = torch.empty_like(v[0])
    state = q.new_zeros(heads, width, v.shape[-1])
    steps = (decay[..., None], torch.sigmoid(beta[0])[..., None, None], q[:, :, None], k[:, :, None], v[0][:, :, None])
    for decay_t, strength, q_t, k_t, v_t, out_t in zip(*(x.unbind() for x in (*steps, out[:, :, None])), strict=True):
        state.mul_(decay_t)
        state.baddbmm_(k_t.mT, torch.baddbmm(v_t, k_t, state, alpha=-1).mul_(strength))
        torch.bmm(q_t, state, out=out_t)
    return out[None], state.mT[None]


def fused_experts(
    x: Tensor, weights: Tensor, ids: Tensor, w13: Tensor, w2: Tensor, *, beta: float, linear_beta: float
) -> Tensor:
    """`ops.fused_experts`, expert by expert over all of them: each looks for its tokens in the whole table of ids."""
    out = torch.zeros_like(x)
    for expert in range(w13.shape[0]):
        tokens, slots = (ids == expert).nonzero(as_tuple=True)
        gate, up = (x[tokens] @ w13[expert].T).chunk(2, -1)
        hidden = beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * linear_beta * torch.tanh(up / linear_beta)
        out.index_add_(0, tokens, weights[tokens, slots, None] * (hidden @ w2[expert].T))
    return out


def attention_residual(
    blocks: Tensor, partial: Tensor | None, norm_weight: Tensor, query_weight: Tensor, *, eps: float
) -> Tensor:
    """`ops.attention_residual` on the stacked sources."""
    sources = blocks if partial is None else torch.cat((blocks, partial[:, None]), 1)
    normed = sources * torch.rsqrt(sources.square().mean(-1, keepdim=True) + eps)
    scores = (normed * norm_weight * query_weight.view(-1)).sum(-1)
    return (scores.softmax(1)[..., None] * sources).sum(1)


def mla_prefill(
    q: Tensor,
    kv_latent: Tensor,
    k_pe: Tensor,
    w_uk: Tensor,
    w_uv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_kv: Tensor,
    *,
    scale: float,
    gate: Tensor | None = None,
) -> Tensor:
    """`ops.mla_prefill` with the whole score matrix of each sequence."""
    outputs = []
    queries, keys = cu_seqlens_q.tolist(), cu_seqlens_kv.tolist()
    for a, b, c, d in zip(queries, queries[1:], keys, keys[1:], strict=False):
        k = torch.cat(
            (
                torch.einsum("tr,hnr->htn", kv_latent[c:d], w_uk),
                k_pe[None, c:d].expand(w_uk.shape[0], -1, -1),
            ),
            -1,
        )
        v = torch.einsum("tr,hvr->htv", kv_latent[c:d], w_uv)
        scores = torch.einsum("thn,hsn->hts", q[a:b], k) * scale
        mask = torch.ones(b - a, d - c, dtype=torch.bool).tril(d - c - (b - a))
        outputs.append(torch.einsum("hts,hsv->thv", scores.masked_fill(~mask, -torch.inf).softmax(-1), v))
    out = torch.cat(outputs)
    return out if gate is None else out * torch.sigmoid(gate)


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    initial_window: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    activation: str | None = "silu",
) -> tuple[Tensor, Tensor]:
    """`ops.causal_conv1d` by torch's convolution, sequence by sequence."""
    lengths = [x.shape[1]] * x.shape[0] if cu_seqlens is None else cu_seqlens.diff().tolist()
    kernel, outputs, windows = weight.shape[-1], [], []
    for n, sequence in enumerate(x.flatten(0, 1).split(lengths)):
        before = x.new_zeros(x.shape[-1], kernel - 1) if initial_window is None else initial_window[n]
        padded = torch.cat((before, sequence.T), 1)
        outputs.append(functional.silu(functional.conv1d(padded[None], weight, groups=x.shape[-1])[0]).T)
        windows.append(padded[:, -(kernel - 1) :])
    return torch.cat(outputs).view(x.shape), torch.stack(windows)
