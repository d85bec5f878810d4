"""OCP Microscaling (MX): numbers of 4 or 8 bits in blocks of 32 that share a power-of-two scale.

`MXTensor` exists at this Python face only; the registered operators take its data, scale and format as arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ascend_k3.ops import checks
from ascend_k3.ops.mx import library as _library  # noqa: F401  (registers the operators)
from ascend_k3.ops.mx.formats import BLOCK, FORMATS, RULES

MATMUL_DTYPES = (torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True, eq=False)
class MXTensor:
    """Elements and scales of a tensor [..., K] in an MX format.

    Args:
        data: the element codes. mxfp4: [..., K/2] uint8, two a byte, the earlier element in the low nibble.
            mxfp8_e4m3: [..., K] float8_e4m3fn. mxfp8_e5m2: [..., K] float8_e5m2.
        scale: [..., K/32] uint8, E8M0: 2^(s - 127); s = 255 makes its block NaN.
        format: "mxfp4", "mxfp8_e4m3" or "mxfp8_e5m2".
    Raises: ValueError for an unknown format, or data and scale that do not fit it or each other.
    Source: OCP Microscaling Formats (MX) Specification v1.0.
    """

    data: Tensor
    scale: Tensor
    format: str

    def __post_init__(self) -> None:
        _check_format("MXTensor", self.format)
        checks.dtype("MXTensor", "data", self.data, (FORMATS[self.format].dtype,))
        checks.dtype("MXTensor", "scale", self.scale, (torch.uint8,))
        _check_blocks("MXTensor", "data", self.shape)
        checks.shape("MXTensor", "scale", self.scale, (*self.shape[:-1], self.shape[-1] // BLOCK))

    @property
    def shape(self) -> torch.Size:
        """[..., K], the shape of the tensor that the codes stand for."""
        if self.data.dim() == 0:
            return self.data.shape
        return torch.Size((*self.data.shape[:-1], self.data.shape[-1] * FORMATS[self.format].per_byte))


def mx_quantize(x: Tensor, *, format: str, rule: str = "floor") -> MXTensor:
    """Round each block of 32 numbers along the last axis to a shared power-of-two scale and small floats.

    The scale of a block is 2^(e - emax), with emax the exponent of the largest number of the element format
    (mxfp4 2, e4m3 8, e5m2 15), within 2^-127 to 2^127. With amax = max |x|:

        rule "floor"   e = floor(log2(amax)): the conversion of the specification
        rule "even"    e = floor(log2(amax rounded half up to the element's mantissa bits)): the release's packer

    Elements are x / scale, rounded half to even to the element format and saturated at its largest finite number;
    numbers below its smallest step become zero with their sign kept.

        all-zero block           scale byte 0, elements zero
        NaN anywhere in a block  scale byte 255, so the whole block is NaN; element codes 0
        infinity                 counts as 2^128 for the scale and saturates, the other elements are rounded as usual;
                                 in float32 and bf16 the infinite elements dequantize to infinity again
        amax below 2^(emax-127)  scale byte 0; subnormal inputs are read exactly, not flushed
        amax of 2^(emax+128) or more, in float64 only   scale byte 254, saturated
    With rule "even" a block whose amax is rounded up to 2^128 dequantizes there to infinity in float32 and bf16.

    Args:
        x: [..., K] floating point, K a multiple of 32. float64 is rounded directly, not through float32.
    Returns: MXTensor of x's shape. It carries no gradient.
    Raises: ValueError for a wrong shape, dtype, format or rule; BackendError for a device without an implementation.
    Source: OCP MX v1.0 section 6 (conversion); compressed-tensors 0.20 for the rule "even".
    """
    check_target("mx_quantize", format, rule)
    checks.dtype("mx_quantize", "x", x)
    _check_blocks("mx_quantize", "x", x.shape)
    checks.same_device("mx_quantize", x=x)
    data, scale = torch.ops.ascend_k3.mx_quantize(x.detach(), format, rule)
    return MXTensor(data, scale, format)


def mx_dequantize(q: MXTensor, *, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """x = element * 2^(s - 127), rounded once to `dtype`.

    The product is exact in float64, in float32 below its overflow, and in bf16 also above its subnormals (2^-126).
    What overflows is infinite.
    Scale byte 0 is 2^-127, and 255 makes all 32 numbers NaN. NaN and infinity codes of mxfp8 stay what they are.

    Args:
        dtype: bfloat16, float32, float16 or float64.
    Returns: [..., K] of `dtype`.
    Raises: ValueError for a wrong dtype; BackendError for a device without an implementation.
    Source: OCP MX v1.0 section 5.
    """
    _check_quantized("mx_dequantize", "q", q)
    _check_float("mx_dequantize", "dtype", dtype)
    checks.same_device("mx_dequantize", data=q.data, scale=q.scale)
    return torch.ops.ascend_k3.mx_dequantize(q.data, q.scale, q.format, dtype)


def mx_matmul(a: Tensor | MXTensor, b: MXTensor, out_dtype: torch.dtype | None = None) -> Tensor:
    """y = a @ b.T, with blocks of 32 along K summed in float32 and then scaled.

    For each output, in float32 with one rounding at each operation:

        accumulator = 0
        for each block g of 32 along K, ascending:
            partial = 0
            for k in the block, ascending:
                partial = partial + a_k * b_k          # elements without scales
            accumulator = accumulator + partial * 2^(sa_g + sb_g - 254)
        y = accumulator rounded to out_dtype

    Products are exact where `a` is quantized or bf16 (below overflow). The scaling is by the exact power of two and
    rounds once, which shows below 2^-126 and at overflow; a scale byte 255 gives NaN. With a plain `a` the factor is
    2^(sb_g - 127); a float64 `a` is calculated in float64.

    Args:
        a: [..., K]: MXTensor, or a plain tensor of bfloat16, float32 or float64.
        b: [N, K] MXTensor. Pairs: mxfp8 x mxfp8 (e4m3 and e5m2 in any mixture), mxfp8 x mxfp4, mxfp4 x mxfp4,
            plain x mxfp8, plain x mxfp4.
        out_dtype: bfloat16, float32, float16 or float64; by default that of a plain `a`, else bfloat16.
    Returns: [..., N] of out_dtype. A plain `a` has the gradient dy @ dequantize(b).
    Raises: ValueError for a wrong shape, dtype or pair; BackendError for a device without an implementation.
    Source: OCP MX v1.0 section 6 (dot product of blocks), which leaves the order open; it is fixed here.
    """
    op = "mx_matmul"
    _check_quantized(op, "b", b)
    if len(b.shape) != 2:
        raise ValueError(f"{op}: b must have the shape [N, K], got {list(b.shape)}.")
    if isinstance(a, MXTensor):
        if a.format == "mxfp4" and b.format != "mxfp4":
            raise ValueError(f"{op}: a in mxfp4 goes with b in mxfp4 only, got b in {b.format}; exchange a and b.")
        data, scale, format = a.data, a.scale, a.format
        default = torch.bfloat16
    else:
        checks.dtype(op, "a", a, MATMUL_DTYPES)
        data, scale, format = a, None, None
        default = a.dtype
    if len(a.shape) < 1 or a.shape[-1] != b.shape[1]:
        raise ValueError(f"{op}: a must have the shape [..., {b.shape[1]}] for b {list(b.shape)}, got {list(a.shape)}.")
    _check_float(op, "out_dtype", default if out_dtype is None else out_dtype)
    checks.same_device(op, a=data, a_scale=scale, b=b.data, b_scale=b.scale)
    return torch.ops.ascend_k3.mx_matmul(data, scale, format, b.data, b.scale, b.format, out_dtype or default)


def check_target(op: str, format: str, rule: str) -> None:
    """Require a format and a rule of quantization that exist.

    Raises: ValueError.
    """
    _check_format(op, format)
    if rule not in RULES:
        raise ValueError(f"{op}: rule must be one of {', '.join(RULES)}, got {rule!r}.")


def _check_format(op: str, format: str) -> None:
    if format not in FORMATS:
        raise ValueError(f"{op}: format must be one of {', '.join(FORMATS)}, got {format!r}.")


def _check_blocks(op: str, name: str, shape: torch.Size) -> None:
    if len(shape) < 1 or shape[-1] % BLOCK:
        raise ValueError(
            f"{op}: the last axis of {name} must be a multiple of {BLOCK}, the numbers of a block, "
            f"got the shape {list(shape)}."
        )


def _check_quantized(op: str, name: str, value: object) -> None:
    if not isinstance(value, MXTensor):
        raise ValueError(f"{op}: {name} must be an MXTensor, got {type(value).__name__}; mx_quantize makes one.")


def _check_float(op: str, name: str, dtype: torch.dtype) -> None:
    if dtype not in checks.FLOATS:
        names = ", ".join(str(item).removeprefix("torch.") for item in checks.FLOATS)
        raise ValueError(f"{op}: {name} must be {names}, got {str(dtype).removeprefix('torch.')}.")
