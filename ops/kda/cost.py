"""Least cost of Kimi Delta Attention: forward in chunks, its gradient, and decode.

Products are counted in the inputs' type, sums over the lower triangle of a chunk for that triangle only. Below, c is
the number of tokens in a chunk, and all figures are of one head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ascend_k3.ops.cost import Cost, nbytes

STATE_DTYPE = "fp32"


def kda(
    *,
    lengths: Sequence[int],
    heads: int,
    key: int,
    value: int,
    dtype: str,
    parameter_dtype: str = "fp32",
    chunk_size: int = 64,
    initial_state: bool = False,
    index_dtype: str | None = None,
) -> Cost:
    """q, k, v, g, beta of all tokens, A_log [H], dt_bias [H, K], states [N, H, V, K] -> o and the final states.

    By the chunked form (reference.py), a zero initial state counted like another:

        multiply-adds of a chunk    (k e^G) S, (q e^G) S and k^T u: 3 c K V; L and A: c^2 K; the triangular solution
                                    and A u: c^2 V
        vector elements of a token  norms of q and k, 6 K; gate, 4 K (bias, exp(A), sigmoid, bound); sum of the decays,
                                    K; e^G, e^-G and e^(Gend-G), 4 K; their products with q and k, 4 K; strength on k
                                    and v, K + V: 20 K + V
        vector elements of a chunk  decay of the state, K V

    Args:
        lengths: tokens of each of the N sequences.
        heads, key, value: H, K and V.
        dtype: of q, k, v, g, beta and o; parameter_dtype: of A_log and dt_bias. States are float32.
        chunk_size: the operator's; the last chunk of a sequence is as long as what is left.
        initial_state: whether one is given; index_dtype: of cu_seqlens, None without it.
    """
    work = _Work(lengths, heads, key, value, chunk_size)
    states = work.state_bytes()
    return Cost(
        bytes_in=work.input_bytes(dtype, parameter_dtype, index_dtype) + (states if initial_state else 0),
        bytes_out=nbytes(work.tokens * heads * value, dtype) + states,
        macs={
            dtype: heads * sum(c * 3 * key * value + c * c * (key + value) for c in work.chunks),
        },
        vector_elements=heads * (work.tokens * (20 * key + value) + len(work.chunks) * key * value),
    )


def kda_backward(
    *,
    lengths: Sequence[int],
    heads: int,
    key: int,
    value: int,
    dtype: str,
    parameter_dtype: str = "fp32",
    chunk_size: int = 64,
    initial_state: bool = False,
    index_dtype: str | None = None,
) -> Cost:
    """Inputs of `kda` and the gradients of o and of the final states -> gradients of all its floating inputs.

    What the forward pass calculated is calculated again. With w the solution of the transposed system for du:

        multiply-adds of a chunk    again (k e^G) S and k^T u, 2 c K V; L and A, c^2 K; the solution, c (c-1) / 2 V.
                                    k dS', do S, w S, u dS', (q e^G) do and (k e^G) w, 6 c K V; through A and L to q and
                                    k, 2 c^2 K; A^T do and do u^T, c (c+1) V; w and w u^T, c (c-1) V
        vector elements of a token  again 20 K + V. Products with the decays of dq and of the three parts of dk, 4 K,
                                    and their two sums, 2 K; gradient of G, 4 multiply-adds, and its sum from the end,
                                    5 K; gate and its bias, A_log and dt_bias, 7 K; norms of q and k, 8 K; dv and
                                    dbeta, 3 V: together 46 K + 4 V
        vector elements of a chunk  decay of S, of dS, and the product and sum for the gradient of the decay, 4 K V

    Args as in `kda`; without an initial state there is no gradient of it.
    """
    work = _Work(lengths, heads, key, value, chunk_size)
    states, outputs = work.state_bytes(), nbytes(work.tokens * heads * value, dtype)
    macs = sum(c * 8 * key * value + 3 * c * c * key + c * (5 * c - 1) // 2 * value for c in work.chunks)
    return Cost(
        bytes_in=work.input_bytes(dtype, parameter_dtype, index_dtype)
        + (states if initial_state else 0)
        + outputs
        + states,
        bytes_out=work.input_bytes(dtype, parameter_dtype, None) + (states if initial_state else 0),
        macs={dtype: heads * macs},
        vector_elements=heads * (work.tokens * (46 * key + 4 * value) + len(work.chunks) * 4 * key * value),
    )


def kda_decode(
    *,
    lengths: Sequence[int],
    heads: int,
    key: int,
    value: int,
    dtype: str,
    parameter_dtype: str = "fp32",
    index_dtype: str = "int64",
    packed: bool = False,
    num_accepted: bool = False,
) -> Cost:
    """q, k, v, g, beta of one to eight tokens a sequence, a state for each sequence, read and written -> o.

        multiply-adds of a token    S^T k, k u^T and S^T q: 3 K V
        vector elements of a token  norms of q and k, 6 K; gate, 4 K; exp, K; difference and strength on v, 2 V; decay
                                    of the state, K V

    Args:
        lengths: tokens of each sequence; padding rows are not among them.
        index_dtype: of state_indices, and of cu_seqlens and num_accepted where `packed` and `num_accepted` say that
            they are given.
        The others as in `kda`.
    """
    work = _Work(lengths, heads, key, value, chunk_size=1)
    indices = nbytes(len(lengths), index_dtype) * (2 if num_accepted else 1)
    return Cost(
        bytes_in=work.input_bytes(dtype, parameter_dtype, index_dtype if packed else None)
        + indices
        + work.state_bytes(),
        bytes_out=nbytes(work.tokens * heads * value, dtype) + work.state_bytes(),
        macs={dtype: work.tokens * heads * 3 * key * value},
        vector_elements=work.tokens * heads * (11 * key + 2 * value + key * value),
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """Sizes that the three costs share."""

    lengths: Sequence[int]
    heads: int
    key: int
    value: int
    chunk_size: int

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    @property
    def chunks(self) -> list[int]:
        """Tokens of each chunk of each sequence."""
        size = self.chunk_size
        return [min(size, length - start) for length in self.lengths for start in range(0, length, size)]

    def input_bytes(self, dtype: str, parameter_dtype: str, index_dtype: str | None) -> int:
        """q, k, g, v, beta, A_log, dt_bias and, of `index_dtype`, cu_seqlens."""
        rows = self.tokens * self.heads
        offsets = nbytes(len(self.lengths) + 1, index_dtype) if index_dtype else 0
        return (
            nbytes(rows * (3 * self.key + self.value + 1), dtype)
            + nbytes(self.heads * (1 + self.key), parameter_dtype)
            + offsets
        )

    def state_bytes(self) -> int:
        return nbytes(len(self.lengths) * self.heads * self.value * self.key, STATE_DTYPE)
