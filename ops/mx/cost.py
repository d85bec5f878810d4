"""Least cost of quantization to MX formats, of its inverse, and of the product of quantized matrices."""

from __future__ import annotations

from ascend_k3.ops.cost import Cost, is_mx, mac_type, nbytes

QUANTIZE_ELEMENTS = 3  # magnitude, maximum of the block, product with the inverse scale
DEQUANTIZE_ELEMENTS = 1  # product with the scale


def mx_quantize(*, elements: int, dtype: str, format: str) -> Cost:
    """x of `elements` numbers -> codes and scales; 3 vector elements each: magnitude, block maximum, scale."""
    return Cost(
        bytes_in=nbytes(elements, dtype),
        bytes_out=nbytes(elements, format),
        vector_elements=QUANTIZE_ELEMENTS * elements,
    )


def mx_dequantize(*, elements: int, format: str, dtype: str) -> Cost:
    """Codes and scales of `elements` numbers -> x; 1 vector element each: the product with the scale."""
    return Cost(
        bytes_in=nbytes(elements, format),
        bytes_out=nbytes(elements, dtype),
        vector_elements=DEQUANTIZE_ELEMENTS * elements,
    )


def mx_matmul(
    *, rows: int, columns: int, depth: int, a: str, b: str, out_dtype: str, multiplied_as: str | None = None
) -> Cost:
    """a [rows, depth], b [columns, depth] -> a @ b.T [rows, columns]: rows * columns * depth multiply-adds.

    Args:
        a, b: type or MX format of each operand.
        multiplied_as: type that the cube cores multiply. By default that of the wider operand: a plain type goes before
            mxfp8, and that before mxfp4. An operand of another type is converted once, `conversion_elements` each.
    """
    multiplied = multiplied_as or max((mac_type(a), mac_type(b)), key=_width)
    return Cost(
        bytes_in=nbytes(rows * depth, a) + nbytes(columns * depth, b),
        bytes_out=nbytes(rows * columns, out_dtype),
        macs={multiplied: rows * columns * depth},
        vector_elements=rows * depth * conversion_elements(a, multiplied)
        + columns * depth * conversion_elements(b, multiplied),
    )


def conversion_elements(dtype: str, multiplied: str) -> int:
    """Vector elements by which one number in `dtype` becomes an operand of a product in `multiplied`.

    As for `mx_dequantize` from an MX format to a plain type, as for `mx_quantize` from a plain type to an MX format;
    nothing where a cast is enough, as from mxfp4 to mxfp8: every element is one of mxfp8 too, and the scales stay.

    Raises: ValueError for a product in mxfp4 of operands in mxfp8.
    """
    given = mac_type(dtype)
    if given == multiplied:
        return 0
    if is_mx(given) and is_mx(multiplied):
        if multiplied == "mxfp4":
            raise ValueError(f"cost: operands in {dtype} do not fit a product in mxfp4; ask for mxfp8 or a plain type.")
        return 0
    if is_mx(given):
        return DEQUANTIZE_ELEMENTS
    return QUANTIZE_ELEMENTS if is_mx(multiplied) else 0


def _width(type: str) -> int:
    return {"mxfp4": 4, "mxfp8": 8, "fp32": 32}.get(type, 16)
