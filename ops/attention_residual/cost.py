"""Least cost of Attention Residuals: in one phase, and in two with statistics of the bank between them."""

from __future__ import annotations

from ascend_k3.ops.cost import Cost, nbytes
from ascend_k3.ops.rms_norm.cost import PER_ELEMENT as NORM_ELEMENTS

SQUARE_SUM = 2  # of a source for the norm of its score: square, sum
SCORE = 2  # product with norm_weight * query_weight, sum
WEIGH = 1  # multiply-add of exp(score) * source into the mixture


def attention_residual(
    *,
    tokens: int,
    blocks: int,
    width: int,
    dtype: str,
    partial: bool = True,
    weight_dtype: str | None = None,
    output_norm: bool = False,
) -> Cost:
    """blocks [tokens, blocks, width], partial [tokens, width], the two weights [width] -> [tokens, width].

    Vector elements: 5 for each number of the sources, which are the blocks and the partial sum: square, sum, product
    with the query, sum, multiply-add into the mixture. The output norm, with a weight of its own, adds 4 an output.
    """
    size = tokens * width
    sources = blocks + int(partial)
    return Cost(
        bytes_in=nbytes(sources * size, dtype) + nbytes((2 + int(output_norm)) * width, weight_dtype or dtype),
        bytes_out=nbytes(size, dtype),
        vector_elements=(SQUARE_SUM + SCORE + WEIGH) * sources * size + _norm_elements(output_norm, size),
    )


def attention_residual_prepare(
    *, tokens: int, blocks: int, width: int, points: int, dtype: str, weight_dtype: str | None = None
) -> Cost:
    """blocks [tokens, blocks, width] -> float32 statistics of `points` mixing points, each [tokens, width + 2].

    Vector elements of each number of the bank: square and sum once, product, sum and multiply-add for each point.
    """
    size = tokens * width
    return Cost(
        bytes_in=nbytes(blocks * size, dtype) + nbytes(2 * points * width, weight_dtype or dtype),
        bytes_out=nbytes(points * tokens * (width + 2), "fp32"),
        vector_elements=(SQUARE_SUM + (SCORE + WEIGH) * points) * blocks * size,
    )


def attention_residual_update(
    *,
    tokens: int,
    width: int,
    dtype: str,
    partial: bool = True,
    weight_dtype: str | None = None,
    output_norm: bool = False,
) -> Cost:
    """Statistics [tokens, width + 2] float32 of one mixing point, partial [tokens, width] -> [tokens, width].

    `dtype` is that of the partial sum and of the output. Vector elements of each output: the score of the partial sum
    as above, 4; the two terms of the mixture with the normalizer in their factors, 2. Without a partial sum the
    division by the normalizer alone, 1, and no weights of a score. The output norm adds 4.
    """
    size = tokens * width
    weights = (2 if partial else 0) + int(output_norm)
    return Cost(
        bytes_in=nbytes(tokens * (width + 2), "fp32")
        + (nbytes(size, dtype) if partial else 0)
        + nbytes(weights * width, weight_dtype or dtype),
        bytes_out=nbytes(size, dtype),
        vector_elements=(SQUARE_SUM + SCORE + 2 * WEIGH if partial else 1) * size + _norm_elements(output_norm, size),
    )


def _norm_elements(output_norm: bool, size: int) -> int:
    return NORM_ELEMENTS * size if output_norm else 0
