"""MX formats in plain PyTorch: quantization, dequantization, and the block-scaled matrix product.

All of it is exact arithmetic on bit patterns and powers of two; the only roundings are those that the formats ask for.
Work goes through tiles that fit a core's cache, because every step is one pass over memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops.mx.formats import BLOCK, ELEMENTS, FORMATS, SCALE_BIAS, SCALE_NAN, SCALES, ElementFormat

QUANTIZE_TILE = 1 << 11  # blocks of 32: 256 KiB in float32
DEQUANTIZE_TILE = 1 << 12  # blocks of 32: 512 KiB in float32
MATMUL_TILE = 1 << 16  # sums in flight: 256 KiB in float32

# Mantissa bits, exponent bias and the integer of the same width.
_BITS = {torch.float32: (23, 127, torch.int32), torch.float64: (52, 1023, torch.int64)}
# Code of the E2M1 number i / 2; the gaps are not on its grid.
_E2M1_CODES = torch.tensor([0, 1, 2, 3, 4, 0, 5, 0, 6, 0, 0, 0, 7], dtype=torch.uint8, device="cpu")
# One table entry of two elements, moved as one word.
_PAIR = {torch.float32: torch.int64, torch.float64: torch.complex128, torch.bfloat16: torch.int32}


def quantize(x: Tensor, format: str, rule: str) -> tuple[Tensor, Tensor]:
    """Data and scale of `x` [..., K]; see `ascend_k3.ops.mx_quantize`."""
    element = FORMATS[format]
    work = torch.float64 if x.dtype == torch.float64 else torch.float32
    blocks = x.reshape(-1, BLOCK)
    scale = x.new_empty((blocks.shape[0],), dtype=torch.uint8)
    data = x.new_empty((blocks.shape[0], BLOCK // element.per_byte), dtype=element.dtype)
    for start in range(0, blocks.shape[0], QUANTIZE_TILE):
        tile = slice(start, start + QUANTIZE_TILE)
        values = blocks[tile].to(work).contiguous()  # the steps below see its numbers as a flat row
        scale[tile] = _scale_bytes(values.abs().amax(-1), element, rule)
        rounded = _round_to_element(values, scale[tile], element)
        data[tile] = _pack(rounded) if format == "mxfp4" else rounded.to(element.dtype)
    return (
        data.view(*x.shape[:-1], x.shape[-1] // element.per_byte),
        scale.view(*x.shape[:-1], x.shape[-1] // BLOCK),
    )


def _scale_bytes(amax: Tensor, element: ElementFormat, rule: str) -> Tensor:
    """E8M0 byte of blocks with the largest magnitude `amax`: floor(log2(amax)) - emax + 127, within 0 to 254."""
    mantissa, bias, integer = _BITS[amax.dtype]
    bits = amax.view(integer)
    if rule == "even":  # round half up to the element's mantissa: the carry moves into the exponent
        bits = bits + (1 << (mantissa - element.mantissa_bits - 1))
    # A float32 infinity has the exponent 128 by its bits; float64 follows.
    exponent = ((bits >> mantissa) - bias).masked_fill_(amax.isinf(), 128)
    byte = (exponent - element.emax + SCALE_BIAS).clamp_(0, SCALE_NAN - 1)
    return byte.masked_fill_(amax.isnan(), SCALE_NAN).to(torch.uint8)


def _round_to_element(values: Tensor, scale: Tensor, element: ElementFormat) -> Tensor:
    """values [n, 32] over their scale, rounded half to even to the grid and saturated; 0 where the scale is NaN."""
    mantissa, _, integer = _BITS[values.dtype]
    nan = scale == SCALE_NAN
    # 1 / 2^(s - 127) is the scale of byte 254 - s.
    inverse = SCALES.to(values.device, values.dtype).index_select(0, (SCALE_NAN - 1 - scale).int())
    scaled = values * inverse.unsqueeze(1)
    if nan.any():
        scaled.masked_fill_(nan.unsqueeze(1), 0.0)
    size = scaled.abs().clamp_(max=element.largest)
    # 2^floor(log2(size)) by its exponent bits. Adding 2^(mantissa - mantissa_bits) times that makes one unit of the
    # sum's last place equal to one step of the grid, so the addition itself rounds half to even.
    power = (size.view(integer) & ~((1 << mantissa) - 1)).view(values.dtype).clamp_(min=2.0**element.emin)
    anchor = power.mul_(2.0 ** (mantissa - element.mantissa_bits))
    return size.add_(anchor).sub_(anchor).copysign_(scaled)


def _pack(elements: Tensor) -> Tensor:
    """E2M1 codes of numbers on its grid, two a byte, the earlier element in the low nibble."""
    codes = _E2M1_CODES.to(elements.device).index_select(0, (elements.abs() * 2).view(-1).int()).view(elements.shape)
    codes |= elements.signbit().view(torch.uint8) << 3
    return codes[:, 0::2] | (codes[:, 1::2] << 4)


def dequantize(data: Tensor, scale: Tensor, format: str, dtype: torch.dtype) -> Tensor:
    """element * 2^(s - 127) rounded once to `dtype`, [..., K]; NaN where s = 255."""
    if dtype == torch.float16:  # its range holds few of the scales
        return dequantize(data, scale, format, torch.float32).to(dtype)
    element = FORMATS[format]
    words = data.reshape(-1).view(torch.uint8)
    table = ELEMENTS[format].to(data.device, dtype)
    table = (table.view(_PAIR[dtype]) if element.per_byte == 2 else table).view(-1)
    out = data.new_empty((scale.numel(), BLOCK), dtype=dtype)
    target = out.view(table.dtype).view(-1)
    scales = SCALES.to(scale.device, dtype)
    width = BLOCK // element.per_byte
    flat_scale = scale.reshape(-1)
    for start in range(0, scale.numel(), DEQUANTIZE_TILE):
        end = min(start + DEQUANTIZE_TILE, scale.numel())
        index = words[start * width : end * width].int()
        torch.index_select(table, 0, index, out=target[start * width : end * width])
        out[start:end].mul_(scales.index_select(0, flat_scale[start:end].int()).unsqueeze(1))
    return out.view(*data.shape[:-1], data.shape[-1] * element.per_byte)


def matmul(
    a: Tensor,
    a_scale: Tensor | None,
    a_format: str | None,
    b: Tensor,
    b_scale: Tensor,
    b_format: str,
    out_dtype: torch.dtype,
) -> Tensor:
    """a @ b.T in the order of additions that `ascend_k3.ops.mx_matmul` defines; `a_scale` None means a plain `a`."""
    work = torch.float64 if a.dtype == torch.float64 else torch.float32
    groups = b_scale.shape[-1]
    # [32, groups, M] and [32, groups, N]: one step of the loop below adds the k-th product of every group.
    left = _by_position(a, groups).to(work) if a_format is None else _elements_by_position(a, a_format, groups, work)
    right = _elements_by_position(b, b_format, groups, work)
    left_scale = torch.ones((), dtype=torch.float64, device=a.device).expand(groups, left.shape[2])
    if a_scale is not None:
        left_scale = _scales_by_group(a_scale)
    right_scale = _scales_by_group(b_scale)
    total = torch.zeros(left.shape[2], right.shape[2], dtype=work, device=a.device)
    for (m, n), chunks in _tiles(total.shape, groups):
        for g in chunks:
            partial = _group_sums(left[:, g, m], right[:, g, n])
            # In float64 both the product of two scales and its product with a float32 sum are exact.
            factor = left_scale[g, m].unsqueeze(2) * right_scale[g, n].unsqueeze(1)
            for scaled in (partial * factor).to(work):
                total[m, n] += scaled
    return total.to(out_dtype).view(*a.shape[:-1], right.shape[2])


def _group_sums(left: Tensor, right: Tensor) -> Tensor:
    """left [32, g, m], right [32, g, n] -> [g, m, n]: products added one after another, each rounded."""
    partial = left.new_zeros(left.shape[1], left.shape[2], right.shape[2])
    product = torch.empty_like(partial)
    for column, row in zip(left.unsqueeze(3), right.unsqueeze(2), strict=True):
        # Not addcmul: with a fused multiply-add, what a plain `a` gives would depend on the machine.
        torch.mul(column, row, out=product)
        partial += product
    return partial


def _by_position(data: Tensor, groups: int) -> Tensor:
    """[..., groups * width] -> [width, groups, rows]."""
    rows = data.shape[:-1].numel()
    return data.reshape(rows, groups, data.shape[-1] // max(groups, 1)).permute(2, 1, 0).contiguous()


def _elements_by_position(data: Tensor, format: str, groups: int, dtype: torch.dtype) -> Tensor:
    """The elements without their scales, [32, groups, rows]."""
    words = _by_position(data.view(torch.uint8), groups)  # moved before they are decoded: a quarter to an eighth
    index = words.view(-1).int()
    columns = ELEMENTS[format].to(data.device, dtype).t().contiguous()
    return torch.stack([column.index_select(0, index).view(words.shape) for column in columns], dim=1).flatten(0, 1)


def _scales_by_group(scale: Tensor) -> Tensor:
    """[..., groups] bytes -> [groups, rows] float64."""
    values = SCALES.to(scale.device).index_select(0, scale.reshape(-1).int())
    return values.view(scale.shape[:-1].numel(), scale.shape[-1]).t().contiguous()


def _tiles(shape: torch.Size, groups: int) -> list[tuple[tuple[slice, slice], list[slice]]]:
    """Tiles of the output [M, N], each with its chunks of groups in ascending order, `MATMUL_TILE` sums at a time."""
    rows, columns = min(shape[0], 32), min(shape[1], 256)
    depth = max(1, MATMUL_TILE // max(1, rows * columns))
    chunks = [slice(g, g + depth) for g in range(0, groups, depth)]
    return [
        ((slice(m, m + rows), slice(n, n + columns)), chunks)
        for m in range(0, shape[0], rows or 1)
        for n in range(0, shape[1], columns or 1)
    ]


def matmul_backward(
    grads: list[Tensor],
    needs: list[bool],
    a: Tensor,
    a_scale: Tensor | None,
    a_format: str | None,
    b: Tensor,
    b_scale: Tensor,
    b_format: str,
    out_dtype: torch.dtype,
) -> list[Tensor]:
    """The gradient of a plain `a`: da = dy @ dequantize(b), rounded once."""
    (dy,) = grads
    if not needs[0]:
        return [dy.new_empty(0)]
    work = torch.float64 if a.dtype == torch.float64 else torch.float32
    return [(dy.to(work) @ dequantize(b, b_scale, b_format, work)).to(a.dtype)]
