"""Least cost of latent attention: prefill, absorbed decode over the pool, and the pool's writer."""

from __future__ import annotations

from collections.abc import Sequence

from ascend_k3.ops.cost import Cost, nbytes

SOFTMAX = 4  # of one score: maximum, difference, exp, sum


def mla_prefill(
    *,
    sequences: Sequence[tuple[int, int]],
    heads: int,
    nope: int,
    shared_key: int,
    rank: int,
    value: int,
    dtype: str,
    gate: bool = False,
    index_dtype: str = "int64",
) -> Cost:
    """q [Tq, H, nope+P], c [Tkv, R], k_pe [Tkv, P], w_uk [H, nope, R], w_uv [H, V, R], gate [Tq, H, V] -> [Tq, H, V].

    With S visible pairs, for n queries on m keys n (m - n) + n (n + 1) / 2, summed over the sequences:

        multiply-adds    H R (nope + V) Tkv to expand the latent, H (nope + P + V) S for scores and values
        vector elements  the scale, H (nope + P) Tq; softmax, 4 H S; its division, H V Tq; sigmoid and product of the
                         gate, 2 H V Tq

    Args:
        sequences: queries and keys of each sequence; the keys of one without queries are not read.
        heads, nope, shared_key, rank, value: H, nope, P, R and V.
        dtype: of all tensors; index_dtype: of both cu_seqlens.
    Raises: ValueError for a sequence with fewer keys than queries.
    """
    for queries, keys in sequences:
        if keys < queries:
            raise ValueError(f"cost: a sequence needs as many keys as queries at least, got {queries} and {keys}.")
    q_tokens = sum(queries for queries, _ in sequences)
    kv_tokens = sum(keys for queries, keys in sequences if queries)
    pairs = sum(queries * (keys - queries) + queries * (queries + 1) // 2 for queries, keys in sequences)
    key = nope + shared_key
    outputs = q_tokens * heads * value
    return Cost(
        bytes_in=nbytes(q_tokens * heads * key, dtype)
        + nbytes(kv_tokens * (rank + shared_key), dtype)
        + nbytes(heads * (nope + value) * rank, dtype)
        + (nbytes(outputs, dtype) if gate else 0)
        + 2 * nbytes(len(sequences) + 1, index_dtype),
        bytes_out=nbytes(outputs, dtype),
        macs={dtype: heads * (rank * (nope + value) * kv_tokens + (key + value) * pairs)},
        vector_elements=q_tokens * heads * key + SOFTMAX * heads * pairs + (3 if gate else 1) * outputs,
    )


def mla_decode(
    *,
    seq_lens: Sequence[int],
    heads: int,
    rank: int,
    shared_key: int,
    block_size: int,
    dtype: str,
    pool_dtype: str | None = None,
    index_dtype: str = "int32",
) -> Cost:
    """q_absorbed [N, H, R+P], L rows [R+P] of the pool, sum of seq_lens, -> [N, H, R].

        multiply-adds    H (2 R + P) L
        vector elements  the scale, N H (R + P); softmax, 4 H L; its division, N H R

    Of the pool the rows of each sequence are read, once for all heads, and of the block table the entries that name
    them. Sequences are taken to share no rows.

    Args:
        seq_lens: keys of each sequence.
        heads, rank, shared_key: H, R and P.
        dtype: of q_absorbed and of the output, pool_dtype: of the pool; index_dtype: of block_table and seq_lens.
    """
    count, rows, width = len(seq_lens), sum(seq_lens), rank + shared_key
    table = sum(-(-length // block_size) for length in seq_lens)
    return Cost(
        bytes_in=nbytes(count * heads * width, dtype)
        + nbytes(rows * width, pool_dtype or dtype)
        + nbytes(table + count, index_dtype),
        bytes_out=nbytes(count * heads * rank, dtype),
        macs={dtype: heads * (width + rank) * rows},
        vector_elements=count * heads * width + SOFTMAX * heads * rows + count * heads * rank,
    )


def latent_write(
    *, tokens: int, width: int, dtype: str, pool_dtype: str | None = None, index_dtype: str = "int64"
) -> Cost:
    """rows [tokens, width] -> as many rows of the pool; nothing is calculated. Padding rows are not among `tokens`."""
    return Cost(
        bytes_in=nbytes(tokens * width, dtype) + nbytes(tokens, index_dtype),
        bytes_out=nbytes(tokens * width, pool_dtype or dtype),
    )
