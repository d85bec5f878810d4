"""Independent definitions of MX quantization and of its matrix product, for the tests to compare with."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from torch import Tensor

from ascend_k3.ops.mx import MXTensor, mx_dequantize

FORMATS = ("mxfp4", "mxfp8_e4m3", "mxfp8_e5m2")
RULES = ("floor", "even")
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
EMAX = {"mxfp4": 2, "mxfp8_e4m3": 8, "mxfp8_e5m2": 15}
MANTISSA_BITS = {"mxfp4": 1, "mxfp8_e4m3": 3, "mxfp8_e5m2": 2}
# Code -> magnitude, for the codes of finite positive numbers in ascending order.
MAGNITUDES = {
    "mxfp4": np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6]),
    "mxfp8_e4m3": np.array(
        [m * 2.0**-9 if e == 0 else (8 + m) * 2.0 ** (e - 10) for e in range(16) for m in range(8)][:127]
    ),
    "mxfp8_e5m2": np.array(
        [m * 2.0**-16 if e == 0 else (4 + m) * 2.0 ** (e - 17) for e in range(31) for m in range(4)]
    ),
}
DATA = {"mxfp4": torch.uint8, "mxfp8_e4m3": torch.float8_e4m3fn, "mxfp8_e5m2": torch.float8_e5m2}


def codes_of(q: MXTensor) -> np.ndarray:
    """One code an element, [..., K]."""
    data = q.data.view(torch.uint8).numpy()
    if q.format != "mxfp4":
        return data
    return np.stack([data & 15, data >> 4], axis=-1).reshape(*q.shape)


def from_codes(codes: np.ndarray, scale: np.ndarray | list, format: str) -> MXTensor:
    codes = np.asarray(codes, dtype=np.uint8)
    data = codes[..., 0::2] | codes[..., 1::2] << 4 if format == "mxfp4" else codes
    return MXTensor(
        torch.from_numpy(data).view(DATA[format]), torch.tensor(np.asarray(scale), dtype=torch.uint8), format
    )


def quantized_by_definition(x: Tensor, format: str, rule: str) -> tuple[np.ndarray, np.ndarray]:
    """Codes and scale bytes, block by block with Python's exact frexp and comparisons with the grid's midpoints."""
    grid, mantissa_bits = MAGNITUDES[format], MANTISSA_BITS[format]
    middles = (grid[1:] + grid[:-1]) / 2
    sign = 8 if format == "mxfp4" else 128
    blocks = x.double().numpy().reshape(-1, 32)
    codes, scales = np.zeros(blocks.shape, dtype=np.uint8), np.zeros(len(blocks), dtype=np.uint8)
    for row, block in enumerate(blocks):
        amax = np.abs(block).max()
        if np.isnan(block).any():
            scales[row] = 255
            continue
        fraction, exponent = math.frexp(amax) if amax < math.inf else (0.5, 129)
        if rule == "even" and math.floor(fraction * 2 * 2**mantissa_bits + 0.5) == 2 * 2**mantissa_bits:
            exponent += 1
        scales[row] = 0 if amax == 0 else min(max(exponent - 1 - EMAX[format] + 127, 0), 254)
        value = np.abs(block) / 2.0 ** (int(scales[row]) - 127)
        below = np.searchsorted(middles, value, side="left")
        tie = (below < len(middles)) & (value == middles[np.minimum(below, len(middles) - 1)])
        codes[row] = below + (tie & (below % 2 == 1)) + sign * np.signbit(block)
    return codes.reshape(x.shape), scales.reshape(*x.shape[:-1], x.shape[-1] // 32)


def random_blocks(seed: int, shape: tuple[int, ...], low: int, high: int, dtype: torch.dtype) -> Tensor:
    """Normal numbers times powers of two from 2^low to 2^high: one for each block, one in half of the elements."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape[:-1], shape[-1] // 32, 32, dtype=torch.float64, generator=generator)
    exponent = torch.randint(low, high + 1, (*x.shape[:-1], 1), generator=generator)
    spread = torch.randint(-12, 1, x.shape, generator=generator) * torch.randint(0, 2, x.shape, generator=generator)
    x = torch.ldexp(x, (exponent + spread).double()).clamp(-3.4e38, 3.4e38)
    return x.reshape(shape).to(dtype)


def product_by_scalars(a: Tensor | MXTensor, b: MXTensor) -> np.ndarray:
    """The definition of mx_matmul, one scalar operation after another; [M, N] before the last rounding."""
    work = np.float64 if isinstance(a, Tensor) and a.dtype == torch.float64 else np.float32

    def parts(value: Tensor | MXTensor) -> tuple[np.ndarray, np.ndarray | None]:
        if isinstance(value, Tensor):
            return value.to(torch.float64).numpy().astype(work), None
        unit = MXTensor(value.data, torch.full_like(value.scale, 127), value.format)
        return mx_dequantize(unit, dtype=torch.float64).numpy().astype(work), value.scale.numpy().astype(int)

    (left, left_scale), (right, right_scale) = parts(a), parts(b)
    result = np.zeros((len(left), len(right)), dtype=work)
    with np.errstate(all="ignore"):
        for m, n in itertools.product(range(len(left)), range(len(right))):
            accumulator = work(0)
            for g in range(right.shape[1] // 32):
                partial = work(0)
                for k in range(32 * g, 32 * g + 32):
                    partial = partial + left[m, k] * right[n, k]
                scales = [right_scale[n, g]] + ([] if left_scale is None else [left_scale[m, g]])
                exponent = sum(scales) - 127 * len(scales)
                scaled = work(np.nan) if 255 in scales else work(np.ldexp(np.float64(partial), exponent))
                accumulator = accumulator + scaled
            result[m, n] = accumulator
    return result


def assert_same_bits(found: Tensor, expected: np.ndarray) -> None:
    """Equal bits, NaN against NaN."""
    expected = torch.from_numpy(expected)
    assert found.dtype == expected.dtype
    assert torch.equal(found.isnan(), expected.isnan())
    integer = torch.int64 if found.dtype == torch.float64 else torch.int32
    assert torch.equal(found.nan_to_num(1).view(integer), expected.nan_to_num(1).view(integer))
