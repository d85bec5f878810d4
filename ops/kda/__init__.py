"""Kimi Delta Attention: over whole sequences, and one to eight tokens at a time on a pool of states."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops import checks
from ascend_k3.ops.kda import library as _library  # noqa: F401  (registers the operators)
from ascend_k3.ops.kda.chunks import SUB_CHUNK

LOWEST_BOUND = -5.0  # SUB_CHUNK tokens at it keep exp inside float32; it is the released bound
MAX_DECODE_TOKENS = 8


def kda(
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
    chunk_size: int = 64,
) -> tuple[Tensor, Tensor]:
    """Gated delta rule with a decay for each key channel, over whole sequences, in chunks.

    For each head, with q, k divided by sqrt(sum x^2 + 1e-6), q times `scale`, b = sigmoid(beta) and
    g' = lower_bound * sigmoid(exp(A_log) (g + dt_bias)):

        S <- diag(exp(g'_t)) S;   u = b_t (v_t - S^T k_t);   S <- S + k_t u^T;   o_t = S^T q_t

    Calculated in float32, or in float64 if q, k or v is; o is rounded once. H, K and V are at least 1.

    Args:
        q, k: [B, T, H, K] raw, after the convolution.  v: [B, T, H, V].
        g: [B, T, H, K] raw gate.  beta: [B, T, H] raw logits.
        A_log: [H].  dt_bias: [H * K] or [H, K].
        lower_bound: of the log decay of one token, in [-5, 0).
        scale: of q; K ** -0.5 when None.
        initial_state: [N, H, V, K], zeros when None.
        cu_seqlens: [N + 1] int32 or int64 packs N sequences into the T tokens of B = 1; empty ones are allowed.
        chunk_size: tokens a chunk, a power of two from 16 on; it changes speed, not the result beyond rounding.
    Returns: o [B, T, H, V] of v's dtype; the final states [N, H, V, K], float32 (float64 if q, k or v is).
    Raises: ValueError for a wrong shape, dtype, device or value.
    Source: Kimi Delta Attention of the Kimi Linear report; `linear_attn_config` of the release.
    """
    op = "kda"
    sequences = _check_inputs(op, q, k, v, g, beta, A_log, dt_bias, lower_bound, scale, cu_seqlens)
    heads, width = q.shape[2:]
    if initial_state is not None:
        checks.dtype(op, "initial_state", initial_state)
        checks.shape(op, "initial_state", initial_state, (sequences, heads, v.shape[3], width))
    checks.integer(op, "chunk_size", chunk_size)
    if chunk_size < SUB_CHUNK or chunk_size % SUB_CHUNK or (chunk_size & (chunk_size - 1)):
        raise ValueError(f"{op}: chunk_size must be a power of two from {SUB_CHUNK} on, got {chunk_size}.")
    checks.same_device(op, q=q, initial_state=initial_state)
    scale = width**-0.5 if scale is None else scale
    return torch.ops.ascend_k3.kda(
        q, k, v, g, beta, A_log, dt_bias, lower_bound, scale, initial_state, cu_seqlens, chunk_size
    )


def kda_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    states: Tensor,
    state_indices: Tensor,
    *,
    A_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float,
    scale: float | None = None,
    cu_seqlens: Tensor | None = None,
    num_accepted: Tensor | None = None,
) -> Tensor:
    """The recurrence of `kda`, one to eight tokens a sequence, on a pool of states that is updated in place.

    Args:
        q, k, v, g, beta, A_log, dt_bias, lower_bound, scale: as for `kda`; B is the number of sequences, T <= 8.
        states: [slots, H, V, K] float32 (or float64), updated in place.
        state_indices: [N] int32 or int64, the slot of each sequence, all different; -1 marks a padding row, whose
            output is zero and which touches no state.
        cu_seqlens: [N + 1] packs sequences of different lengths up to 8 into B = 1.
        num_accepted: [N] int32 or int64; only that many first tokens stay in the state (0: it stays as it was), while
            outputs are given for all tokens. At most the length of the sequence; of a padding row it is not read.
    Returns: o, of v's shape and dtype.
    Raises: ValueError for a wrong shape, dtype, device or value; RuntimeError in the backward pass, it has no gradient.
    Source: as `kda`.
    """
    op = "kda_decode"
    sequences = _check_inputs(op, q, k, v, g, beta, A_log, dt_bias, lower_bound, scale, cu_seqlens)
    checks.dtype(op, "states", states, (torch.float32, torch.float64))
    checks.shape(op, "states", states, ("slots", q.shape[2], v.shape[3], q.shape[3]))
    checks.same_device(op, q=q, states=states, state_indices=state_indices, num_accepted=num_accepted)
    checks.slots(op, "state_indices", state_indices, sequences, states.shape[0])
    if num_accepted is not None:
        checks.dtype(op, "num_accepted", num_accepted, checks.INTEGERS)
        checks.shape(op, "num_accepted", num_accepted, (sequences,))
        _check_accepted(op, num_accepted, state_indices, q.shape[1] if cu_seqlens is None else cu_seqlens.diff())
    scale = q.shape[3] ** -0.5 if scale is None else scale
    weights = (A_log, dt_bias, lower_bound, scale)
    if cu_seqlens is None:
        _check_decode_length(q.shape[1])
        return torch.ops.ascend_k3.kda_decode(q, k, v, g, beta, states, state_indices, *weights, num_accepted)

    starts, lengths = cu_seqlens[:-1].long(), cu_seqlens.diff().long()
    if not checks.values_known(cu_seqlens):
        longest = min(MAX_DECODE_TOKENS, q.shape[1])
    else:
        longest = int(lengths.max()) if sequences else 0
        _check_decode_length(longest)
    # Sequences side by side, padded at the end; a padded token is never accepted into a state.
    place = torch.arange(longest, device=q.device)
    tokens = torch.where(place < lengths[:, None], starts[:, None] + place, 0)
    accepted = lengths if num_accepted is None else torch.minimum(lengths, num_accepted.long())
    rows = [x[0][tokens] for x in (q, k, v, g, beta)]
    out = torch.ops.ascend_k3.kda_decode(*rows, states, state_indices, *weights, accepted)
    # Back into the pack: a token's sequence is the last one that starts at it or before it.
    token = torch.arange(q.shape[1], device=q.device)
    owner = torch.searchsorted(cu_seqlens.long(), token, right=True) - 1
    return out[owner, token - cu_seqlens.long()[owner]][None]


def _check_inputs(
    op: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    bound: float,
    scale: float | None,
    cu_seqlens: Tensor | None,
) -> int:
    """Check what `kda` and `kda_decode` share; gives the number of sequences."""
    for name, x in (("q", q), ("k", k), ("v", v), ("g", g), ("beta", beta), ("A_log", A_log), ("dt_bias", dt_bias)):
        checks.dtype(op, name, x)
    checks.shape(op, "q", q, ("B", "T", "H", "K"))
    batch, length, heads, width = q.shape
    checks.at_least_one(op, "q", q, H=heads, K=width)
    checks.shape(op, "k", k, (batch, length, heads, width))
    checks.shape(op, "v", v, (batch, length, heads, "V"))
    checks.at_least_one(op, "v", v, V=v.shape[3])
    checks.shape(op, "g", g, (batch, length, heads, width))
    checks.shape(op, "beta", beta, (batch, length, heads))
    checks.shape(op, "A_log", A_log, (heads,))
    checks.shape(op, "dt_bias", dt_bias, (heads, width) if dt_bias.dim() == 2 else (heads * width,))
    checks.same_device(op, q=q, k=k, v=v, g=g, beta=beta, A_log=A_log, dt_bias=dt_bias, cu_seqlens=cu_seqlens)
    checks.number(op, "lower_bound", bound)
    if not LOWEST_BOUND <= bound < 0:
        raise ValueError(f"{op}: lower_bound must lie in [{LOWEST_BOUND:g}, 0), got {bound}.")
    if scale is not None:
        checks.number(op, "scale", scale)
    if cu_seqlens is None:
        return batch
    if batch != 1:
        raise ValueError(f"{op}: with cu_seqlens the batch size of q must be 1, got {batch}; pack the sequences.")
    checks.cu_seqlens(op, "cu_seqlens", cu_seqlens, length)
    return cu_seqlens.shape[0] - 1


def _check_accepted(op: str, counts: Tensor, state_indices: Tensor, lengths: Tensor | int) -> None:
    if not checks.values_known(counts):
        return
    wrong = ((counts < 0) | (counts > lengths)) & (state_indices >= 0)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        length = int(lengths[row]) if isinstance(lengths, Tensor) else lengths
        raise ValueError(
            f"{op}: num_accepted must be 0 to the length of each sequence; "
            f"sequence {row} of {length} tokens has {int(counts[row])}."
        )


def _check_decode_length(longest: int) -> None:
    if longest > MAX_DECODE_TOKENS:
        raise ValueError(f"kda_decode: at most {MAX_DECODE_TOKENS} tokens a sequence, got {longest}; use kda for more.")
