"""The matrix product of MX tensors: bit for bit against a scalar loop."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from ascend_k3.ops.mx import MXTensor, mx_dequantize, mx_matmul, mx_quantize
from tests.ops.mx_oracle import FLOATS, FORMATS, assert_same_bits, from_codes, product_by_scalars, random_blocks
from tests.tolerances import RELATIVE_RMS, assert_close_rms

PAIRS = [
    ("mxfp8_e4m3", "mxfp4"),
    ("mxfp8_e5m2", "mxfp4"),
    ("mxfp8_e4m3", "mxfp8_e4m3"),
    ("mxfp8_e5m2", "mxfp8_e4m3"),
    ("mxfp4", "mxfp4"),
    *itertools.product((torch.bfloat16, torch.float32, torch.float64), FORMATS),
]


def operand(kind: str | torch.dtype, seed: int, shape: tuple[int, int], low: int, high: int) -> Tensor | MXTensor:
    x = random_blocks(seed, shape, low, high, torch.float32 if isinstance(kind, str) else kind)
    return mx_quantize(x, format=kind) if isinstance(kind, str) else x


@pytest.mark.parametrize(("left", "right"), PAIRS, ids=str)
@pytest.mark.parametrize("magnitudes", [(-3, 3), (-140, -50), (40, 126), (-90, 90)], ids=str)
def test_product_equals_the_scalar_loop_bit_for_bit(left: str | torch.dtype, right: str, magnitudes: tuple) -> None:
    a, b = operand(left, 3, (3, 96), *magnitudes), operand(right, 4, (4, 96), *magnitudes)
    out_dtype = torch.float64 if left == torch.float64 else torch.float32
    assert_same_bits(mx_matmul(a, b, out_dtype), product_by_scalars(a, b))


@pytest.mark.parametrize(("left", "right"), PAIRS[:5], ids=str)
def test_product_of_any_codes_and_scales_equals_the_scalar_loop(left: str, right: str) -> None:
    generator = np.random.default_rng(5)

    def anything(format: str, rows: int) -> MXTensor:  # NaN and infinity codes included
        codes = generator.integers(0, 16 if format == "mxfp4" else 256, (rows, 96))
        scale = generator.choice([0, 1, 60, 126, 127, 128, 200, 254, 255], (rows, 3), p=[0.12] * 8 + [0.04])
        return from_codes(codes, scale, format)

    a, b = anything(left, 6), anything(right, 6)
    assert_same_bits(mx_matmul(a, b, torch.float32), product_by_scalars(a, b))


def test_intermediate_overflow_of_a_plain_product_is_not_fused_away() -> None:
    # 3e38 * 6 is beyond float32 by itself; a fused multiply-add would subtract first and stay finite.
    a = torch.full((1, 32), 3e38, dtype=torch.bfloat16)
    b = from_codes([[10, 7] + [0] * 30], [[127]], "mxfp4")  # -1, 6
    assert mx_matmul(a, b, torch.float32).item() == torch.inf
    assert_same_bits(mx_matmul(a, b, torch.float32), product_by_scalars(a, b))


def test_scales_beyond_float32_multiply_exactly() -> None:
    a, b = from_codes([[1] * 32], [[254]], "mxfp4"), from_codes([[1] * 32], [[0]], "mxfp4")
    assert mx_matmul(a, b, torch.float32).item() == 32 * 0.25  # 2^127 * 2^-127
    assert mx_matmul(b, b, torch.float32).item() == 0.0  # 2^-254
    assert mx_matmul(a, a, torch.float32).item() == torch.inf
    nan = from_codes([[0] * 32], [[255]], "mxfp4")
    assert mx_matmul(a, nan, torch.float32).isnan().all() and mx_matmul(nan, a, torch.float32).isnan().all()


def test_tiles_do_not_change_a_bit() -> None:
    a, b = operand("mxfp8_e4m3", 6, (37, 1184), -3, 3), operand("mxfp4", 7, (290, 1184), -3, 3)
    whole = mx_matmul(a, b, torch.float32)
    for rows, columns in ((slice(0, 1), slice(0, 290)), (slice(30, 37), slice(250, 290)), (slice(0, 37), slice(3, 4))):
        part = mx_matmul(
            MXTensor(a.data[rows], a.scale[rows], a.format),
            MXTensor(b.data[columns], b.scale[columns], b.format),
            torch.float32,
        )
        assert torch.equal(part, whole[rows, columns])
    assert_same_bits(
        whole[35:, 288:],
        product_by_scalars(
            MXTensor(a.data[35:], a.scale[35:], a.format), MXTensor(b.data[288:], b.scale[288:], b.format)
        ),
    )


def test_product_is_close_to_the_product_of_dequantized_numbers() -> None:
    a, b = operand("mxfp8_e4m3", 8, (9, 256), -2, 2), operand("mxfp4", 9, (11, 256), -2, 2)
    expected = mx_dequantize(a, dtype=torch.float64) @ mx_dequantize(b, dtype=torch.float64).t()
    assert_close_rms(mx_matmul(a, b, torch.float32), expected, "y", RELATIVE_RMS[torch.float32])


def test_output_dtype_is_that_of_a_plain_input_or_bf16_and_rounds_once() -> None:
    b = operand("mxfp4", 10, (4, 64), -2, 2)
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        assert mx_matmul(torch.ones(2, 64, dtype=dtype), b).dtype == dtype
    a = operand("mxfp8_e4m3", 11, (2, 64), -2, 2)
    assert mx_matmul(a, b).dtype == torch.bfloat16
    exact = mx_matmul(a, b, torch.float32)
    for dtype in FLOATS:
        assert torch.equal(mx_matmul(a, b, dtype), exact.to(dtype))


@pytest.mark.parametrize("kind", ["mxfp8_e4m3", torch.bfloat16], ids=str)
def test_leading_axes_and_sizes_of_zero(kind: str | torch.dtype) -> None:
    b = operand("mxfp4", 12, (5, 64), -2, 2)
    x = random_blocks(13, (2, 3, 64), -2, 2, torch.bfloat16)

    def left(value: Tensor) -> Tensor | MXTensor:
        return mx_quantize(value, format=kind) if isinstance(kind, str) else value

    assert torch.equal(mx_matmul(left(x), b), mx_matmul(left(x.view(6, 64)), b).view(2, 3, 5))
    assert torch.equal(mx_matmul(left(x[0, 0]), b), mx_matmul(left(x), b)[0, 0])
    assert torch.equal(mx_matmul(left(x.transpose(0, 1)), b), mx_matmul(left(x), b).transpose(0, 1))
    assert mx_matmul(left(x[:0]), b).shape == (0, 3, 5)
    assert mx_matmul(left(x), from_codes(np.zeros((0, 64)), np.zeros((0, 2)), "mxfp4")).shape == (2, 3, 0)
    empty = mx_matmul(left(x[..., :0]), from_codes(np.zeros((5, 0)), np.zeros((5, 0)), "mxfp4"))
    assert torch.equal(empty, torch.zeros(2, 3, 5, dtype=torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("format", FORMATS)
def test_gradient_of_a_plain_input_is_that_of_the_dequantized_product(format: str, dtype: torch.dtype) -> None:
    b = operand(format, 14, (6, 64), -2, 2)
    a = random_blocks(15, (2, 3, 64), -2, 2, dtype).requires_grad_()
    dy = random_blocks(16, (2, 3, 32), -2, 2, dtype)[..., :6]
    (found,) = torch.autograd.grad(mx_matmul(a, b), a, dy)
    assert found.dtype == dtype
    assert_close_rms(found, dy.double() @ mx_dequantize(b, dtype=torch.float64), "da", RELATIVE_RMS[dtype])


def test_gradient_agrees_with_finite_differences() -> None:
    b = operand("mxfp4", 17, (3, 32), -1, 1)
    a = torch.randn(2, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(18)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: mx_matmul(x, b), (a,))
