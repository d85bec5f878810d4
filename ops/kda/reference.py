"""Kimi Delta Attention in plain PyTorch: the chunked form over whole sequences, its gradient, and the decode step.

With normalized q, k, log decay g and strength b, the recurrence of one head is

    S_t = diag(exp(g_t)) S_{t-1} + k_t u_t^T,   u_t = b_t (v_t - (diag(exp(g_t)) S_{t-1})^T k_t),   o_t = S_t^T q_t.

Inside a chunk with the incoming state S and G = cumsum(g), the u are the solution of a triangular system:

    (I + L) u = b v - b (k exp(G)) S,           L[t, s] = b_t sum_d k_td k_sd exp(G_td - G_sd)  for s < t
    o = (q exp(G)) S + A u,                     A[t, s] =     sum_d q_td k_sd exp(G_td - G_sd)  for s <= t
    S' = diag(exp(G_end)) S + (k exp(G_end - G))^T u.

No positive exponent spans more than half a sub-chunk of 16 tokens: inside one, G is anchored in its middle; across two,
at the end of the earlier and the start of the later. The inverse of the system is built from blocks. States are
[.., V, K], as all engines and checkpoints have them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ascend_k3.ops.kda.chunks import SUB_CHUNK, Group, Piece, fitting_chunk_size, plan_chunks
from ascend_k3.ops.library import compute_dtype

NORM_EPS = 1e-6  # inside the square root, added to the sum of squares
_ELEMENTS_AT_ONCE = 2**18  # of one input in one piece: its intermediates then stay in the cache


def kda(
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
    stream = _Stream(q, k, v, g, beta, A_log, dt_bias, lower_bound, scale, cu_seqlens, chunk_size)
    out = torch.zeros(stream.v.shape, dtype=stream.dtype)
    states = _initial_states(stream, initial_state)
    for group in stream.groups():
        state = states[group.sequences]
        for piece in group.pieces:
            chunk = stream.prepare(piece)
            incoming, u, state = _scan(chunk, state, piece.active)
            _put(out, _added(chunk.q_decayed @ incoming.mT, chunk.scores, u, 1), piece)
        states[group.sequences] = state
    return out.view(*q.shape[:2], *v.shape[2:]).to(v.dtype), states


def kda_backward(
    grads: list[Tensor],
    needs: list[bool],
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
) -> list[Tensor]:
    """Gradients of q, k, v, g, beta, A_log, dt_bias and the initial state.

    A first pass keeps the state before each piece. The second goes through the pieces from the end: what does not
    depend on the state (`_prepare`) is differentiated by autograd, the recurrence between chunks by hand.
    """
    stream = _Stream(q, k, v, g, beta, A_log, dt_bias, lower_bound, scale, cu_seqlens, chunk_size)
    d_out = grads[0].flatten(0, 1).to(stream.dtype)
    d_states = grads[1].to(stream.dtype).clone()
    states = _initial_states(stream, initial_state)
    totals = [torch.zeros(x.shape, dtype=stream.dtype) for x in stream.inputs()]
    for group in stream.groups():
        state, before = states[group.sequences], []
        for piece in group.pieces:
            before.append(state)
            if piece is not group.pieces[-1]:
                _, _, state = _scan(stream.prepare(piece), state, piece.active)
        d_state = d_states[group.sequences]
        for piece, state in zip(reversed(group.pieces), reversed(before), strict=True):
            leaves = [x.detach().requires_grad_() for x in stream.take(piece)]
            with torch.enable_grad():
                chunk = _prepare(leaves, piece.filled, lower_bound, scale)
            d_chunk, d_state = _scan_backward(chunk, state, piece.active, _take(d_out, piece), d_state)
            found = torch.autograd.grad(chunk.tensors(), leaves, d_chunk)
            for total, grad in zip(totals[:5], found[:5], strict=True):
                _put(total, grad, piece)
            for total, grad in zip(totals[5:], found[5:], strict=True):
                total += grad
        d_states[group.sequences] = d_state
    inputs = (q, k, v, g, beta, A_log, dt_bias)
    result = [total.view(x.shape).to(x.dtype) for total, x in zip(totals, inputs, strict=True)]
    result.append(d_states if initial_state is None else d_states.to(initial_state.dtype))
    return [grad if needed else grad.new_empty(0) for grad, needed in zip(result, needs, strict=True)]


def kda_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    states: Tensor,
    state_indices: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float,
    scale: float,
    num_accepted: Tensor | None,
) -> Tensor:
    """The recurrence token by token on [N, T, H, *] inputs; rows with a negative index are padding and give zeros."""
    out = torch.zeros_like(v, memory_format=torch.contiguous_format)
    rows = (state_indices >= 0).nonzero().flatten()
    slots = state_indices[rows].long()
    dtype = compute_dtype(q, k, v)
    q, k, v, g, beta = (x[rows].to(dtype) for x in (q, k, v, g, beta))
    q, k = _normalize(q) * scale, _normalize(k)
    decay = _log_decay(g, A_log.to(dtype)[:, None], dt_bias.to(dtype).view(q.shape[2:]), lower_bound).exp()
    strength = torch.sigmoid(beta)[..., None]
    state = kept = states[slots].to(dtype)
    for t in range(q.shape[1]):
        state = state * decay[:, t, :, None, :]
        u = strength[:, t] * (v[:, t] - (state @ k[:, t, :, :, None]).squeeze(-1))
        state = state + u[..., :, None] * k[:, t, :, None, :]
        out[rows, t] = (state @ q[:, t, :, :, None]).squeeze(-1).to(out.dtype)
        kept = (
            state if num_accepted is None else torch.where((num_accepted[rows] > t)[:, None, None, None], state, kept)
        )
    states[slots] = kept.to(states.dtype)
    return out


class _Stream:
    """The inputs as one stream of tokens in the dtype of the calculation, and how it is cut."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        beta: Tensor,
        A_log: Tensor,
        dt_bias: Tensor,
        lower_bound: float,
        scale: float,
        cu_seqlens: Tensor | None,
        chunk_size: int,
    ) -> None:
        batch, length, heads, width = q.shape
        self.dtype = compute_dtype(q, k, v)
        self.q, self.k, self.v, self.g, self.beta = (x.flatten(0, 1) for x in (q, k, v, g, beta[..., None]))
        self.A_log = A_log.to(self.dtype)
        self.dt_bias = dt_bias.to(self.dtype).view(heads, width)
        self.lower_bound = lower_bound
        self.scale = scale
        self.offsets = [n * length for n in range(batch + 1)] if cu_seqlens is None else cu_seqlens.tolist()
        self.chunk_size = fitting_chunk_size(self.offsets, chunk_size)

    def inputs(self) -> tuple[Tensor, ...]:
        return self.q, self.k, self.v, self.g, self.beta, self.A_log, self.dt_bias

    def groups(self) -> list[Group]:
        heads, width = self.q.shape[1:]
        return list(
            plan_chunks(self.offsets, self.chunk_size, max(1, _ELEMENTS_AT_ONCE // (heads * width * self.chunk_size)))
        )

    def take(self, piece: Piece) -> list[Tensor]:
        """q, k, v, g, beta of a piece's chunks, each [chunks, H, C, *], and A_log and dt_bias."""
        tokens = [_take(x, piece).to(self.dtype) for x in (self.q, self.k, self.v, self.g, self.beta)]
        return [*tokens, self.A_log, self.dt_bias]

    def prepare(self, piece: Piece) -> _Chunks:
        return _prepare(self.take(piece), piece.filled, self.lower_bound, self.scale)


def _initial_states(stream: _Stream, initial_state: Tensor | None) -> Tensor:
    if initial_state is not None:
        return initial_state.to(stream.dtype).clone()
    return torch.zeros(
        len(stream.offsets) - 1, stream.v.shape[1], stream.v.shape[2], stream.q.shape[2], dtype=stream.dtype
    )


def _take(x: Tensor, piece: Piece) -> Tensor:
    """The rows [tokens, H, *] of a piece as [chunks, H, C, *], zero where there is no token."""
    heads = x.shape[1]
    rows = x.flatten(0, 1)[piece.tokens[:, None, :] * heads + torch.arange(heads)[:, None]]
    if piece.filled is not None:
        rows = rows.masked_fill(~piece.filled[:, None, :, None], 0)
    return rows


def _put(out: Tensor, rows: Tensor, piece: Piece) -> None:
    """The inverse of `_take`: write the rows of a piece into the stream."""
    rows = rows.transpose(1, 2)
    if piece.filled is None:
        out[piece.tokens] = rows
    else:
        out[piece.tokens[piece.filled]] = rows[piece.filled]


@dataclass(frozen=True, slots=True)
class _Chunks:
    """What the recurrence between chunks needs of each chunk, [chunks, H, ...]."""

    q_decayed: Tensor  # [C, K]  q exp(G): reads the incoming state
    scores: Tensor  # [C, C]  A, lower triangle
    u_free: Tensor  # [C, V]  u for a zero incoming state
    u_read: Tensor  # [C, K]  u = u_free - u_read S
    k_remaining: Tensor  # [C, K]  k exp(G_end - G): what each u adds to the outgoing state
    decay: Tensor  # [1, K]  exp(G_end)

    def tensors(self) -> tuple[Tensor, ...]:
        return self.q_decayed, self.scores, self.u_free, self.u_read, self.k_remaining, self.decay


def _normalize(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + NORM_EPS)


def _log_decay(g: Tensor, A_log: Tensor, dt_bias: Tensor, lower_bound: float) -> Tensor:
    return lower_bound * torch.sigmoid(A_log.exp() * (g + dt_bias))


def _prepare(inputs: list[Tensor], filled: Tensor | None, lower_bound: float, scale: float) -> _Chunks:
    """All of a chunk that does not depend on the incoming state.

    inputs: q, k [chunks, H, C, K], v [.., V], g [.., K], beta [.., 1], A_log [H], dt_bias [H, K].
    """
    q, k, v, g, beta, A_log, dt_bias = inputs
    chunks, heads, size, width = g.shape
    log_decay = _log_decay(g, A_log[:, None, None], dt_bias[:, None, :], lower_bound)
    strength = torch.sigmoid(beta)
    if filled is not None:  # a missing token neither decays nor writes
        missing = ~filled[:, None, :, None]
        log_decay, strength = log_decay.masked_fill(missing, 0), strength.masked_fill(missing, 0)

    blocks = (chunks, heads, size // SUB_CHUNK, SUB_CHUNK, width)
    local = log_decay.view(blocks).cumsum(-2)  # since the sub-chunk's start
    middle = local[..., SUB_CHUNK // 2 - 1 : SUB_CHUNK // 2, :]
    total = local[..., -1:, :]
    anchor = total.cumsum(2) - total  # G at each sub-chunk's start
    from_middle = (local - middle).exp()
    to_middle = from_middle.reciprocal()

    # q and k of a sub-chunk stand one above the other, [chunks, H, n, 2, SUB, K]: most is done to both.
    both = _normalize(torch.stack((q.view(blocks), k.view(blocks)), 3)) * g.new_tensor([scale, 1.0])[:, None, None]
    keys = both[..., 1, :, :]
    both_from_middle = both * from_middle.unsqueeze(3)
    both_from_start = both_from_middle * middle.exp().unsqueeze(3)
    keys_to_middle = keys * to_middle
    keys_to_end = keys_to_middle * (total - middle).exp()
    scores, key_scores = _scores(
        both_from_start.flatten(3, 4), both_from_middle.flatten(3, 4), keys_to_middle, keys_to_end, anchor
    )

    q_decayed, k_decayed = (both_from_start * anchor.exp().unsqueeze(3)).unbind(3)
    right = torch.cat((v * strength, k_decayed.reshape(g.shape) * strength), -1)
    u_free, u_read = (_inverse(key_scores * strength) @ right).split((v.shape[-1], width), -1)
    until_chunk_end = (anchor[:, :, -1:] + total[:, :, -1:] - anchor - total).exp()
    return _Chunks(
        q_decayed=q_decayed.reshape(g.shape),
        scores=scores,
        u_free=u_free,
        u_read=u_read,
        k_remaining=(keys_to_end * until_chunk_end).view(g.shape),
        decay=total.sum(2).exp(),
    )


def _scores(
    from_start: Tensor, from_middle: Tensor, keys_to_middle: Tensor, keys_to_end: Tensor, anchor: Tensor
) -> tuple[Tensor, Tensor]:
    """sum_d q_td k_sd exp(G_td - G_sd) for s <= t, and the same of k with k for s < t, each [chunks, H, C, C].

    `from_start` and `from_middle` [chunks, H, n, 2*SUB, K] are q, then k, decayed from the start and from the middle of
    their sub-chunk; keys [.., SUB, K] are decayed to the middle (back or on) and to the end. One sub-chunk meets itself
    in the middle; an earlier one, at the end of that, and from there to its own start lies a gap.
    """
    count = from_start.shape[2]
    within = from_middle @ keys_to_middle.mT
    blocks = {(i, i): block for i, block in enumerate(within.unbind(2))}
    for gap in range(1, count):
        later = from_start[:, :, gap:]
        if gap > 1:
            later = later * (anchor[:, :, gap:] - anchor[:, :, 1 : count - gap + 1]).exp()
        products = later @ keys_to_end[:, :, : count - gap].mT
        blocks.update(((i + gap, i), block) for i, block in enumerate(products.unbind(2)))
    empty = torch.zeros_like(within[:, :, 0])
    table = torch.stack(
        [torch.cat([blocks.get((i, j), empty) for j in range(count)], -1) for i in range(count)], 2
    )  # [chunks, H, n, 2*SUB, C]
    of_q, of_k = table.split(SUB_CHUNK, -2)
    return of_q.flatten(2, 3).tril(), of_k.flatten(2, 3).tril(-1)


def _inverse(lower: Tensor) -> Tensor:
    """(I + L)^-1 of strictly lower [.., C, C], C = 16 * 2^n.

    Blocks of 16 by forward substitution; two neighbours A, B with the block E below A merge into
    [[A, 0], [-B E A, B]]. No power of L is ever formed: a product of powers loses all digits on nearly equal keys.
    """
    leading, full = lower.shape[:-2], lower.shape[-1]
    size = SUB_CHUNK

    def diagonal(row: int, column: int) -> Tensor:
        """Of the diagonal blocks of 2 * size (of size for 0, 0) the part at (row, column): [.., n, size, size]."""
        step = size if row == 0 else 2 * size
        parts = lower.reshape(*leading, full // step, step // size, size, full // step, step // size, size)
        return parts[..., :, row, :, :, column, :].diagonal(dim1=-4, dim2=-2).movedim(-1, -3)

    unit = torch.eye(size, dtype=lower.dtype).expand(*leading, full // size, size, size)
    inverse = torch.linalg.solve_triangular(diagonal(0, 0), unit, upper=False, unitriangular=True)
    while size < full:
        first, second = inverse.unflatten(-3, (-1, 2)).unbind(-3)
        below = -(second @ (diagonal(1, 0) @ first))
        upper = torch.cat((first, torch.zeros_like(first)), -1)
        inverse = torch.cat((upper, torch.cat((below, second), -1)), -2)
        size *= 2
    return inverse.squeeze(-3)


def _added(x: Tensor, a: Tensor, b: Tensor, factor: int) -> Tensor:
    """x + factor * (a @ b), over [chunks, H, ...]."""
    return torch.baddbmm(x.flatten(0, 1), a.flatten(0, 1), b.flatten(0, 1), alpha=factor).view(x.shape)


def _scan(chunk: _Chunks, state: Tensor, active: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Run the recurrence over the steps of a piece: the state before each chunk, u of each chunk, the last state."""
    incoming, written, row = [], [], 0
    for count in active:
        step = slice(row, row := row + count)
        before = state[:count]
        u = _added(chunk.u_free[step], chunk.u_read[step], before.mT, -1)
        after = _added(before * chunk.decay[step], u.mT, chunk.k_remaining[step], 1)
        state = after if count == len(state) else torch.cat((after, state[count:]))
        incoming.append(before)
        written.append(u)
    return torch.cat(incoming), torch.cat(written), state


def _scan_backward(
    chunk: _Chunks, state: Tensor, active: list[int], d_out: Tensor, d_state: Tensor
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Gradients of a piece's `_Chunks` and of its incoming state, given those of its output and of its last state."""
    chunk = _Chunks(*(x.detach() for x in chunk.tensors()))
    incoming, u, _ = _scan(chunk, state, active)
    d_u_free = chunk.scores.mT @ d_out
    d_incoming = d_out.mT @ chunk.q_decayed
    d_outgoing, row = [], len(u)
    for count in reversed(active):
        step = slice(row - count, row)
        row -= count
        d_after = d_state[:count]
        d_u = d_u_free[step].add_(chunk.k_remaining[step] @ d_after.mT)
        d_before = d_incoming[step] + d_after * chunk.decay[step] - d_u.mT @ chunk.u_read[step]
        d_state = d_before if count == len(d_state) else torch.cat((d_before, d_state[count:]))
        d_outgoing.append(d_after)
    d_after = torch.cat(d_outgoing[::-1])
    gradients = (
        d_out @ incoming,
        d_out @ u.mT,
        d_u_free,
        -(d_u_free @ incoming),
        u @ d_after,
        (d_after * incoming).sum(-2, keepdim=True),
    )
    return gradients, d_state
