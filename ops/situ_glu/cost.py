"""Least cost of SiTU-GLU, alone and with its output in an MX format."""

from __future__ import annotations

from ascend_k3.ops.cost import Cost, nbytes
from ascend_k3.ops.mx.cost import QUANTIZE_ELEMENTS


def situ_glu(*, rows: int, width: int, dtype: str, linear_beta: bool = True) -> Cost:
    """gate_up [rows, 2 width] -> [rows, width].

    Vector elements of one output: g / beta, tanh, sigmoid, their product; u / linear_beta, tanh, the product with it;
    the product with beta * linear_beta: 8. Without linear_beta u is taken as it is: 6.
    """
    size = rows * width
    return Cost(
        bytes_in=nbytes(2 * size, dtype),
        bytes_out=nbytes(size, dtype),
        vector_elements=situ_elements(linear_beta) * size,
    )


def situ_glu_mx_quantize(*, rows: int, width: int, dtype: str, format: str, linear_beta: bool = True) -> Cost:
    """gate_up [rows, 2 width] -> codes and scales of [rows, width] in `format`: `situ_glu`, then `mx_quantize`."""
    size = rows * width
    return Cost(
        bytes_in=nbytes(2 * size, dtype),
        bytes_out=nbytes(size, format),
        vector_elements=(situ_elements(linear_beta) + QUANTIZE_ELEMENTS) * size,
    )


def situ_elements(linear_beta: bool) -> int:
    """Vector elements of one output of `situ_glu`."""
    return 8 if linear_beta else 6
