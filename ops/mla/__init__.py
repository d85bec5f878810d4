"""Multi-head latent attention without rotary positions: prefill, absorbed decode over a paged pool, and the pool."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops import checks
from ascend_k3.ops.mla import library as _library  # noqa: F401  (registers the operators)

# A latent row of the release: `kv_lora_rank` 512 and `qk_rope_head_dim` 64 of its config.
RELEASED_RANK, RELEASED_SHARED_KEY = 512, 64


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
    """Causal attention over keys and values that are expanded from a latent, for packed sequences.

        k_h = [w_uk_h c | k_pe],  v_h = w_uv_h c,  o_h = softmax(scale q_h k_h') v_h * sigmoid(gate_h)

    The last query of a sequence stands at its last key, so keys may outnumber queries: the cached prefix. Memory is
    linear in the number of tokens, in the gradient too. float32 inside (float64 if any input is), rounded once.

    Args:
        q: [Tq, H, nope+P] floating point.
        kv_latent: [Tkv, R] floating point, c, already normalized.
        k_pe: [Tkv, P] floating point, the part of the keys that all heads share.
        w_uk, w_uv: [H, nope, R] and [H, V, R] floating point.
        cu_seqlens_q, cu_seqlens_kv: [N+1] int32 or int64, where each sequence starts; empty sequences are allowed.
        scale: factor of the scores; (nope+P)^-0.5 in the release.
        gate: [Tq, H, V] raw logits of the output gate, or None for no gate.
    Returns: [Tq, H, V] of q's dtype.
    Raises: ValueError for a wrong shape, dtype or device, and for a sequence with fewer keys than queries.
    Source: Gated MLA of the release; the latent attention of DeepSeek-V2 (arXiv:2405.04434, section 2.1).
    """
    op = "mla_prefill"
    tensors = {"q": q, "kv_latent": kv_latent, "k_pe": k_pe, "w_uk": w_uk, "w_uv": w_uv, "gate": gate}
    for name, tensor in tensors.items():
        if tensor is not None:
            checks.dtype(op, name, tensor)
    checks.shape(op, "kv_latent", kv_latent, ("Tkv", "R"))
    keys, rank = kv_latent.shape
    checks.at_least_one(op, "kv_latent", kv_latent, R=rank)
    checks.shape(op, "k_pe", k_pe, (keys, "P"))
    checks.shape(op, "w_uk", w_uk, ("H", "nope", rank))
    heads, nope = w_uk.shape[:2]
    checks.at_least_one(op, "w_uk", w_uk, H=heads)
    checks.shape(op, "w_uv", w_uv, (heads, "V", rank))
    checks.at_least_one(op, "w_uv", w_uv, V=w_uv.shape[1])
    checks.shape(op, "q", q, ("Tq", heads, nope + k_pe.shape[1]))
    if gate is not None:
        checks.shape(op, "gate", gate, (q.shape[0], heads, w_uv.shape[1]))
    checks.number(op, "scale", scale)
    checks.same_device(op, **tensors, cu_seqlens_q=cu_seqlens_q, cu_seqlens_kv=cu_seqlens_kv)
    checks.cu_seqlens(op, "cu_seqlens_q", cu_seqlens_q, q.shape[0])
    checks.cu_seqlens(op, "cu_seqlens_kv", cu_seqlens_kv, keys)
    checks.shape(op, "cu_seqlens_kv", cu_seqlens_kv, tuple(cu_seqlens_q.shape))
    if checks.values_known(cu_seqlens_q):
        lengths_q, lengths_kv = cu_seqlens_q.diff(), cu_seqlens_kv.diff()
        short = lengths_kv < lengths_q
        if bool(short.any()):
            index = int(short.nonzero()[0])
            raise ValueError(
                f"{op}: sequence {index} has {int(lengths_q[index])} queries but only {int(lengths_kv[index])} keys; "
                "cu_seqlens_kv must count its cached prefix and its new tokens."
            )
    return torch.ops.ascend_k3.mla_prefill(q, kv_latent, k_pe, w_uk, w_uv, cu_seqlens_q, cu_seqlens_kv, scale, gate)


def mla_decode(
    q_absorbed: Tensor,
    pool: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    *,
    scale: float,
    rank: int | None = None,
) -> Tensor:
    """Attention of one query a sequence over its rows of a paged latent pool, without expanding keys or values.

        o = softmax(scale q_absorbed row') row[:R],  with q_absorbed = [q_nope w_uk | q_pe] and row = [c | k_pe]

    A head's output is `w_uv_h o_h`. float32 inside (float64 if any input is), rounded once. Rows behind `seq_lens`,
    blocks that no sequence uses and entries of `block_table` behind the used ones may hold anything. Inference only:
    asking for a gradient is a RuntimeError.

    Args:
        q_absorbed: [N, H, R+P] floating point.
        pool: [blocks, block_size, R+P] floating point.
        block_table: [N, max_blocks] int32 or int64, the blocks of each sequence in order.
        seq_lens: [N] int32 or int64, keys of each sequence; the result of a sequence of length 0 is zero.
        scale: factor of the scores; (nope+P)^-0.5 in the release.
        rank: R, how much of a row is latent. Left out, the row must be the release's, 512 + 64.
    Returns: [N, H, R] of q_absorbed's dtype.
    Raises: ValueError for a wrong shape, dtype, device, length or block, and for a row that cannot be split.
    Source: DeepSeek-V2 (arXiv:2405.04434), section 2.1.3; the absorbed form of the engines.
    """
    op = "mla_decode"
    checks.dtype(op, "q_absorbed", q_absorbed)
    checks.dtype(op, "pool", pool)
    checks.dtype(op, "block_table", block_table, checks.INTEGERS)
    checks.dtype(op, "seq_lens", seq_lens, checks.INTEGERS)
    _check_pool(op, pool)
    width = pool.shape[2]
    checks.shape(op, "q_absorbed", q_absorbed, ("N", "H", width))
    checks.at_least_one(op, "q_absorbed", q_absorbed, H=q_absorbed.shape[1])
    checks.number(op, "scale", scale)
    sequences = q_absorbed.shape[0]
    checks.shape(op, "block_table", block_table, (sequences, "max_blocks"))
    checks.shape(op, "seq_lens", seq_lens, (sequences,))
    checks.same_device(op, q_absorbed=q_absorbed, pool=pool, block_table=block_table, seq_lens=seq_lens)
    if rank is None:
        if width != RELEASED_RANK + RELEASED_SHARED_KEY:
            raise ValueError(
                f"{op}: rank must be given for rows of width {width}; only the release's rows of "
                f"{RELEASED_RANK} + {RELEASED_SHARED_KEY} are split without it."
            )
        rank = RELEASED_RANK
    checks.integer(op, "rank", rank)
    if not 0 < rank <= width:
        raise ValueError(f"{op}: rank must be from 1 to the row width, {width}, got {rank}.")
    if checks.values_known(seq_lens):
        _check_pages(op, pool, block_table, seq_lens)
    return torch.ops.ascend_k3.mla_decode(q_absorbed, pool, block_table, seq_lens, scale, rank)


def latent_write(pool: Tensor, rows: Tensor, slot_mapping: Tensor) -> None:
    """Write latent rows into a paged pool in place: row t goes to block slot // block_size, place slot % block_size.

    No gradient passes through the pool.

    Args:
        pool: [blocks, block_size, R+P] floating point, any strides.
        rows: [T, R+P] floating point, rounded to the pool's dtype.
        slot_mapping: [T] int32 or int64; -1 marks a padding row, which is not read.
    Raises: ValueError for a wrong shape, dtype or device, a slot outside of the pool, and a slot that comes twice.
    """
    op = "latent_write"
    checks.dtype(op, "pool", pool)
    checks.dtype(op, "rows", rows)
    checks.dtype(op, "slot_mapping", slot_mapping, checks.INTEGERS)
    _check_pool(op, pool)
    checks.shape(op, "rows", rows, ("T", pool.shape[2]))
    checks.shape(op, "slot_mapping", slot_mapping, (rows.shape[0],))
    checks.same_device(op, pool=pool, rows=rows, slot_mapping=slot_mapping)
    if checks.values_known(slot_mapping):
        slots = pool.shape[0] * pool.shape[1]
        outside = (slot_mapping < -1) | (slot_mapping >= slots)
        if bool(outside.any()):
            index = int(outside.nonzero()[0])
            raise ValueError(
                f"{op}: slot_mapping[{index}] is {int(slot_mapping[index])}; slots of this pool go from 0 to "
                f"{slots - 1}, and -1 marks a padding row."
            )
        used = slot_mapping[slot_mapping >= 0].sort().values
        twice = used[1:][used[1:] == used[:-1]]
        if twice.numel():
            raise ValueError(
                f"{op}: slot {int(twice[0])} comes more than once in slot_mapping; which row stays would be "
                "undefined, so give each row its own slot."
            )
    torch.ops.ascend_k3.latent_write(pool, rows, slot_mapping)


def _check_pool(op: str, pool: Tensor) -> None:
    checks.shape(op, "pool", pool, ("blocks", "block_size", "R+P"))
    if pool.shape[1] < 1:
        raise ValueError(f"{op}: pool must have a block_size of at least 1, got {list(pool.shape)}.")


def _check_pages(op: str, pool: Tensor, block_table: Tensor, seq_lens: Tensor) -> None:
    blocks, block_size = pool.shape[:2]
    limit = block_table.shape[1] * block_size
    wrong = (seq_lens < 0) | (seq_lens > limit)
    if bool(wrong.any()):
        index = int(wrong.nonzero()[0])
        raise ValueError(
            f"{op}: seq_lens[{index}] is {int(seq_lens[index])}; with {block_table.shape[1]} blocks of {block_size} it "
            f"must be from 0 to {limit}."
        )
    starts = torch.arange(block_table.shape[1], device=seq_lens.device) * block_size
    stray = (starts < seq_lens.unsqueeze(1)) & ((block_table < 0) | (block_table >= blocks))
    if bool(stray.any()):
        row, column = stray.nonzero()[0].tolist()
        raise ValueError(
            f"{op}: block_table[{row}, {column}] is {int(block_table[row, column])} and sequence {row} reads it; "
            f"blocks of this pool go from 0 to {blocks - 1}."
        )
