"""Latent attention in plain PyTorch: prefill over packed sequences, decode over a paged pool, and the pool's writer.

Prefill never holds the scores of a whole sequence. It walks over sequences, groups of heads and blocks of queries; the
gradient walks the same way and computes each block's probabilities again.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ascend_k3.ops.library import compute_dtype

# The scores that exist at once: at most 2^22 elements, 16 MiB in float32. Larger blocks leave the processor's caches.
MAX_SCORES = 1 << 22
# Heads are taken in groups rather than letting a block fall below this many queries (a matrix product needs rows), and
# a block above the larger number would spend its time on keys that causality hides.
MIN_QUERIES, MAX_QUERIES = 64, 256
# Keys that decode reads at once for every sequence.
DECODE_TILE = 1024


def mla_prefill(
    q: Tensor,
    kv_latent: Tensor,
    k_pe: Tensor,
    w_uk: Tensor,
    w_uv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_kv: Tensor,
    scale: float,
    gate: Tensor | None,
) -> Tensor:
    dtype = _dtype(q, kv_latent, k_pe, w_uk, w_uv, gate)
    output = q.new_zeros(q.shape[0], q.shape[1], w_uv.shape[1])
    w_uk, w_uv = w_uk.to(dtype), w_uv.to(dtype)
    for queries, keys in _sequences(cu_seqlens_q, cu_seqlens_kv):
        latent, shared_key = kv_latent[keys].to(dtype), k_pe[keys].to(dtype)
        for heads, blocks in _tiles(q.shape[1], queries, keys):
            key, value = _expand(latent, shared_key, w_uk[heads], w_uv[heads])
            for rows, visible in blocks:
                query = q[rows, heads].to(dtype).transpose(0, 1) * scale
                mixed = _probabilities(query, key[:, :visible]) @ value[:, :visible]
                mixed = mixed.transpose(0, 1)
                if gate is not None:
                    mixed = mixed * torch.sigmoid(gate[rows, heads].to(dtype))
                output[rows, heads] = mixed.to(q.dtype)
    return output


def mla_prefill_backward(
    grads: list[Tensor],
    needs: list[bool],
    q: Tensor,
    kv_latent: Tensor,
    k_pe: Tensor,
    w_uk: Tensor,
    w_uv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_kv: Tensor,
    scale: float,
    gate: Tensor | None,
) -> list[Tensor]:
    """Gradients of q, kv_latent, k_pe, w_uk, w_uv, gate.

    With P the probabilities, O = P V and S the scaled scores: dV = P' dO, dS = P * (dO V' - rowsum(dO * O)),
    dQ = scale dS K, dK = dS' (scale Q); dK and dV of a sequence are summed over its blocks of queries.
    """
    dtype = _dtype(q, kv_latent, k_pe, w_uk, w_uv, gate)
    (d_output,) = grads
    inputs = (q, kv_latent, k_pe, w_uk, w_uv, gate)
    sums = [q.new_zeros(item.shape if item is not None else 0, dtype=dtype) for item in inputs]
    d_q, d_latent, d_shared_key, d_w_uk, d_w_uv, d_gate = sums
    nope = w_uk.shape[1]
    w_uk, w_uv = w_uk.to(dtype), w_uv.to(dtype)
    for queries, keys in _sequences(cu_seqlens_q, cu_seqlens_kv):
        latent, shared_key = kv_latent[keys].to(dtype), k_pe[keys].to(dtype)
        for heads, blocks in _tiles(q.shape[1], queries, keys):
            key, value = _expand(latent, shared_key, w_uk[heads], w_uv[heads])
            d_key, d_value = torch.zeros_like(key), torch.zeros_like(value)
            for rows, visible in blocks:
                query = q[rows, heads].to(dtype).transpose(0, 1) * scale
                probabilities = _probabilities(query, key[:, :visible])
                mixed = probabilities @ value[:, :visible]
                d_mixed = d_output[rows, heads].to(dtype).transpose(0, 1)
                if gate is not None:
                    opened = torch.sigmoid(gate[rows, heads].to(dtype)).transpose(0, 1)
                    d_gate[rows, heads] = (d_mixed * mixed * opened * (1 - opened)).transpose(0, 1)
                    d_mixed = d_mixed * opened
                d_value[:, :visible] += probabilities.transpose(1, 2) @ d_mixed
                d_scores = d_mixed @ value[:, :visible].transpose(1, 2)
                d_scores.sub_((d_mixed * mixed).sum(-1, keepdim=True)).mul_(probabilities)
                d_q[rows, heads] = (d_scores @ key[:, :visible]).transpose(0, 1) * scale
                d_key[:, :visible] += d_scores.transpose(1, 2) @ query
            d_nope = d_key[..., :nope]
            d_latent[keys] += torch.einsum("hln,hnr->lr", d_nope, w_uk[heads])
            d_latent[keys] += torch.einsum("hlv,hvr->lr", d_value, w_uv[heads])
            d_shared_key[keys] += d_key[..., nope:].sum(0)
            d_w_uk[heads] += d_nope.transpose(1, 2) @ latent
            d_w_uv[heads] += d_value.transpose(1, 2) @ latent
    return [
        found.to(item.dtype) if needed and item is not None else q.new_empty(0)
        for found, item, needed in zip(sums, inputs, needs, strict=True)
    ]


def mla_decode(
    q_absorbed: Tensor, pool: Tensor, block_table: Tensor, seq_lens: Tensor, scale: float, rank: int
) -> Tensor:
    """Softmax with a running maximum over tiles of pages; a tile takes part for the sequences that reach into it."""
    dtype = compute_dtype(q_absorbed, pool)
    count, heads, _ = q_absorbed.shape
    block_size = pool.shape[1]
    query = q_absorbed.to(dtype) * scale
    maximum = query.new_full((count, heads, 1), -torch.inf)
    normalizer = query.new_zeros(count, heads, 1)
    weighted = query.new_zeros(count, heads, rank)

    pages = max(1, DECODE_TILE // block_size)
    longest = int(seq_lens.max()) if count else 0
    for start in range(0, longest, pages * block_size):
        active = (seq_lens > start).nonzero().flatten()
        table = block_table[active, start // block_size : start // block_size + pages]
        positions = start + torch.arange(table.shape[1] * block_size, device=pool.device)
        beyond = positions >= seq_lens[active].unsqueeze(1)
        # Entries behind the last used block may hold anything: they are replaced before they are used as an index.
        table = table.masked_fill(beyond[:, ::block_size], 0)
        rows = pool[table].flatten(1, 2).to(dtype).masked_fill(beyond.unsqueeze(-1), 0)

        scores = (query[active] @ rows.transpose(1, 2)).masked_fill(beyond.unsqueeze(1), -torch.inf)
        risen = torch.maximum(maximum[active], scores.amax(-1, keepdim=True))
        shrink = torch.exp(maximum[active] - risen)
        mass = torch.exp(scores - risen)
        maximum[active] = risen
        normalizer[active] = normalizer[active] * shrink + mass.sum(-1, keepdim=True)
        weighted[active] = weighted[active] * shrink + mass @ rows[..., :rank]

    output = (weighted / normalizer).masked_fill((seq_lens == 0).view(-1, 1, 1), 0)
    return output.to(q_absorbed.dtype)


def latent_write(pool: Tensor, rows: Tensor, slot_mapping: Tensor) -> None:
    kept = (slot_mapping >= 0).nonzero().flatten()
    slots = slot_mapping[kept].long()
    block_size = pool.shape[1]
    pool[slots // block_size, slots % block_size] = rows[kept].to(pool.dtype)


def _dtype(*tensors: Tensor | None) -> torch.dtype:
    return compute_dtype(*[tensor for tensor in tensors if tensor is not None])


def _sequences(cu_seqlens_q: Tensor, cu_seqlens_kv: Tensor) -> Iterator[tuple[slice, slice]]:
    """The token ranges of each sequence that has queries."""
    offsets_q, offsets_kv = cu_seqlens_q.tolist(), cu_seqlens_kv.tolist()
    for index in range(len(offsets_q) - 1):
        if offsets_q[index + 1] > offsets_q[index]:
            yield (
                slice(offsets_q[index], offsets_q[index + 1]),
                slice(offsets_kv[index], offsets_kv[index + 1]),
            )


def _tiles(heads: int, queries: slice, keys: slice) -> Iterator[tuple[slice, list[tuple[slice, int]]]]:
    """Groups of heads; in each, the blocks of queries with the number of keys that the block's last query sees."""
    num_queries, num_keys = queries.stop - queries.start, keys.stop - keys.start
    group = min(heads, max(1, MAX_SCORES // (min(num_queries, MIN_QUERIES) * num_keys)))
    block = min(num_queries, MAX_QUERIES, max(1, MAX_SCORES // (group * num_keys)))
    blocks = []
    for first in range(0, num_queries, block):
        last = min(first + block, num_queries)
        blocks.append((slice(queries.start + first, queries.start + last), num_keys - num_queries + last))
    for head in range(0, heads, group):
        yield slice(head, min(head + group, heads)), blocks


def _expand(latent: Tensor, shared_key: Tensor, w_uk: Tensor, w_uv: Tensor) -> tuple[Tensor, Tensor]:
    """Keys [H, L, nope+P] and values [H, L, V] of latent rows [L, R]."""
    nope = latent @ w_uk.transpose(1, 2)
    return torch.cat([nope, shared_key.expand(nope.shape[0], -1, -1)], -1), latent @ w_uv.transpose(1, 2)


def _probabilities(query: Tensor, key: Tensor) -> Tensor:
    """Causal softmax of a block: the last query sees all keys given, the one before it one fewer, and so on."""
    block = query.shape[1]
    scores = query @ key.transpose(1, 2)
    ahead = torch.ones(block, block, dtype=torch.bool, device=query.device).triu_(1)
    scores[..., -block:].masked_fill_(ahead, -torch.inf)
    return torch.softmax(scores, -1)
