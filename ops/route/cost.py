"""Least cost of routing."""

from __future__ import annotations

from ascend_k3.ops.cost import Cost, nbytes


def route(
    *, tokens: int, experts: int, top_k: int, dtype: str, renormalize: bool = True, id_dtype: str = "int64"
) -> Cost:
    """logits [tokens, experts], bias [experts] fp32 -> weights [tokens, top_k] and ids [tokens, top_k].

    Vector elements: sigmoid, bias and one comparison of each score, 3 tokens * experts; of each chosen one the sum and
    the product with scaling_factor / sum, 2 tokens * top_k (without renormalization the product alone). A selection
    compares more often than once, this is the least.
    """
    scores, chosen = tokens * experts, tokens * top_k
    return Cost(
        bytes_in=nbytes(scores, dtype) + nbytes(experts, "fp32"),
        bytes_out=nbytes(chosen, dtype) + nbytes(chosen, id_dtype),
        vector_elements=3 * scores + (2 if renormalize else 1) * chosen,
    )
