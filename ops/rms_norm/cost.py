"""Least cost of the norms."""

from __future__ import annotations

from ascend_k3.ops.cost import Cost, nbytes

PER_ELEMENT = 4  # square, sum, product with 1 / sqrt(mean + eps), product with the weight


def rms_norm(*, rows: int, width: int, dtype: str, weight_dtype: str | None = None) -> Cost:
    """x [rows, width], weight [width] -> [rows, width]; 4 vector elements each: square, sum, scale, weight."""
    size = rows * width
    return Cost(
        bytes_in=nbytes(size, dtype) + nbytes(width, weight_dtype or dtype),
        bytes_out=nbytes(size, dtype),
        vector_elements=PER_ELEMENT * size,
    )


def rms_norm_gated(
    *, rows: int, width: int, dtype: str, gate_dtype: str | None = None, weight_dtype: str | None = None
) -> Cost:
    """x, gate [rows, width], weight [width] -> [rows, width]; the 4 of `rms_norm`, and sigmoid, product: 6 each."""
    size = rows * width
    return Cost(
        bytes_in=nbytes(size, dtype) + nbytes(size, gate_dtype or dtype) + nbytes(width, weight_dtype or dtype),
        bytes_out=nbytes(size, dtype),
        vector_elements=(PER_ELEMENT + 2) * size,
    )
