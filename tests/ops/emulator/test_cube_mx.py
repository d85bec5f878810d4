"""MmadMx: products of MX numbers with their E8M0 scales, fp4 and fp8, against numpy. dav-3510."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from ascend_k3.ops import emulator
from tests.ops.emulator.cube_oracle import Array, from_fp4, from_fp8, packed_fp4, to_fp8

KERNELS = Path(__file__).parent / "kernels"
# Left and right format of each type of cube_mx.cpp; page MmadMx, table 3.
FORMATS = (("e2m1", "e2m1"), ("e1m2", "e2m1"), ("e2m1", "e1m2"), ("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"))


@cache
def kernel() -> emulator.Kernel:
    return emulator.build(KERNELS / "cube_mx.cpp", entry="cube_mx", soc="950pr")


def operand(rng: np.random.Generator, rows: int, k: int, format: str) -> tuple[Array, Array]:
    """Codes [rows, k] and their values."""
    if format in ("e2m1", "e1m2"):
        codes = rng.integers(0, 16, (rows, k)).astype(np.uint8)
        return codes, from_fp4(codes, format)
    codes = to_fp8(rng.integers(-4, 5, (rows, k)).astype(np.float32), format)
    return codes, from_fp8(codes, format)


def stored(codes: Array, format: str, turned: bool) -> Array:
    codes = np.ascontiguousarray(codes.T) if turned else codes
    return packed_fp4(codes) if format in ("e2m1", "e1m2") else codes


def stored_scales(scales: Array, turned: bool) -> Array:
    """[rows, k / 32], or [k / 64, rows, 2]: two scales along k are always neighbours."""
    pairs = scales.reshape(scales.shape[0], -1, 2)
    return np.ascontiguousarray(pairs.transpose(1, 0, 2)) if turned else scales


def check(
    type: int,
    m: int,
    n: int,
    k: int,
    turned_a: int = 0,
    turned_b: int = 1,
    bias: int = 0,
    again: int = 0,
    seed: int | None = None,
) -> None:
    rng = np.random.default_rng(m + n + k + type)
    left, right = FORMATS[type]
    a, a_values = operand(rng, m, k, left)
    b, b_values = operand(rng, n, k, right)
    a_scales, b_scales = (rng.integers(124, 131, (rows, k // 32)).astype(np.uint8) for rows in (m, n))
    added = rng.integers(-100, 100, 256).astype(np.float32)
    # C = (scaleA (x) A) (scaleB (x) B) + Bias: one scale 2^(code - 127) for each 32 numbers along k.
    wide_a = a_values.astype(np.float64) * np.exp2(np.repeat(a_scales.astype(np.float64) - 127, 32, axis=1))
    wide_b = b_values.astype(np.float64) * np.exp2(np.repeat(b_scales.astype(np.float64) - 127, 32, axis=1))
    expected = (wide_a @ wide_b.T) * (1 + again) + (added[:n] if bias else 0)
    c = np.zeros((m, n), np.float32)
    args = struct.pack("<8i", type, m, n, k, turned_a, turned_b, bias, again)
    report = kernel().launch(
        1,
        stored(a, left, bool(turned_a)),
        stored(b, right, not turned_b),
        stored_scales(a_scales, bool(turned_a)),
        stored_scales(b_scales, not turned_b),
        added,
        c,
        args,
        outputs=[5],
        seed=seed,
    )
    assert report.hazards == ()
    # Every product and sum here is a multiple of 2^-10 below 2^14: exact in float32.
    np.testing.assert_array_equal(c, expected.astype(np.float32))


@pytest.mark.parametrize("type", range(6))
def test_products_of_every_pair_of_formats(type: int) -> None:
    check(type, 32, 48, 64)
    check(type, 40, 50, 192)
    check(type, 17, 33, 128)


@pytest.mark.parametrize("type", range(6))
def test_transposed_operands(type: int) -> None:
    """Page LoadData (2D, V2): squares of 32 (8 bits) and 64 (4 bits) are transposed; scales come along unturned."""
    check(type, 64, 128, 128, turned_a=1)
    check(type, 48, 64, 64, turned_b=0)
    check(type, 128, 64, 192, turned_a=1, turned_b=0)


@pytest.mark.parametrize("type", (0, 3))
def test_bias_and_accumulation(type: int) -> None:
    check(type, 40, 48, 128, bias=1)
    check(type, 40, 48, 128, again=1)
    check(type, 40, 48, 128, bias=1, again=1, seed=3)


def test_nan_scale() -> None:
    """OCP Microscaling 1.0: the E8M0 code 255 is NaN, and so is every number of its block."""
    m = n = 16
    a, b = (to_fp8(np.ones((16, 64), np.float32), "e4m3") for _ in range(2))
    scales = np.full((16, 2), 127, np.uint8)
    bad = scales.copy()
    bad[3, 1] = 255
    c = np.zeros((m, n), np.float32)
    report = kernel().launch(
        1, a, b, bad, scales, np.zeros(256, np.float32), c, struct.pack("<8i", 3, m, n, 64, 0, 1, 0, 0), outputs=[5]
    )
    assert report.hazards == ()
    expected = np.full((m, n), 64, np.float32)
    expected[3] = np.nan
    np.testing.assert_array_equal(c, expected)


def test_cost() -> None:
    c = np.zeros((40, 50), np.float32)
    zeros = [np.zeros(shape, np.uint8) for shape in ((40, 96), (50, 96), (40, 6), (50, 6))]
    report = kernel().launch(
        1, *zeros, np.zeros(256, np.float32), c, struct.pack("<8i", 0, 40, 50, 192, 0, 1, 0, 0), outputs=[5]
    )
    counters = report.data["cores"][0]["counters"]
    assert (counters["mxfp4"]["amount"], counters["mxfp4"]["repeats"]) == (40 * 50 * 192, 48 * 64 * 192)
