"""numbers.h: formats and conversions against torch, and against their definition in float64; the documented borders."""

from __future__ import annotations

import ctypes
import itertools
import math
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.paths import ROOT

Array = NDArray[Any]
Floats = NDArray[np.float64]

NONE, RINT, FLOOR, CEIL, ROUND, TRUNC, ODD, HYBRID = MODES = range(8)
FIVE = (RINT, FLOOR, CEIL, ROUND, TRUNC)
REGISTERS, A2, A5 = 0, 2201, 3510
STORED = {
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float": "float32",
    "double": "float64",
    "half": "uint16",
    "bfloat16": "uint16",
    **dict.fromkeys(("fp8_e4m3fn", "fp8_e5m2", "fp8_e8m0", "hifloat8", "fp4_e2m1", "fp4_e1m2", "int4"), "uint8"),
}
PACKED = ("fp4_e2m1", "fp4_e1m2", "int4")


class Probe:
    """numbers.h in a shared object."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.name.restype = ctypes.c_char_p
        self.library.kernels.restype = ctypes.c_float
        self.number = {self.library.name(i).decode(): i for i in range(20)}

    def cast(self, x: Array, source: str, to: str, mode: int, saturate: bool = True, keep_nan: bool = False) -> Array:
        """Packed types hold two elements in a byte, on both sides."""
        x = np.ascontiguousarray(x, dtype=STORED[source])
        count = 2 * x.size if source in PACKED else x.size
        out = np.full(count // 2 if to in PACKED else count, 77, dtype=STORED[to])
        state = self.library.cast(
            *(self.number[source], self.number[to], mode, saturate, keep_nan),
            *(x.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(count)),
        )
        if state:
            raise ValueError(["", "no such conversion", "refused", "convert and convert_range differ"][state])
        return out

    def calculate(self, type: str, operation: str, a: Array, b: Array) -> NDArray[np.uint16]:
        out = np.full(a.shape, 77, dtype=np.uint16)
        pointers = [
            np.ascontiguousarray(v, dtype=np.uint16).ctypes.data_as(ctypes.c_void_p) for v in np.broadcast_arrays(a, b)
        ]
        function = self.library.calculate_half if type == "half" else self.library.calculate_bfloat16
        function(ctypes.c_char(operation.encode()), *pointers, out.ctypes.data_as(ctypes.c_void_p), a.size)
        return out

    def allowed(self, arch: int, source: str, to: str, mode: int) -> bool:
        return bool(self.library.allowed(arch, self.number[source], self.number[to], mode))


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    path = tmp_path_factory.mktemp("numbers") / "probe.so"
    source, include = Path(__file__).with_name("numbers_probe.cpp"), ROOT / "ops" / "emulator" / "include"
    flags = "-std=c++17 -O1 -shared -fPIC -ffp-contract=off -Wall -Wextra -Werror".split()
    subprocess.run(["g++", *flags, "-I", str(include), str(source), "-o", str(path)], check=True)
    return Probe(path)


# Definitions


class Grid:
    """A format by the values of its codes, and rounding as the choice between the two neighbours."""

    def __init__(self, bits: int, mantissa: int, bias: int, largest: int, infinity: int, nan: int) -> None:
        self.bits, self.largest, self.infinity, self.nan = bits, largest, infinity, nan
        codes = np.arange(largest + 2)  # one beyond: where the next binade would begin
        exponent, fraction = codes >> mantissa, (codes & ((1 << mantissa) - 1)) / 2.0**mantissa
        self.values = np.where(
            exponent == 0, np.ldexp(fraction, 1 - bias), np.ldexp(1 + fraction, exponent.astype(int) - bias)
        )

    def round(self, x: Floats, mode: int, saturate: bool, keep_nan: bool = False) -> NDArray[np.uint32]:
        size, negative = np.abs(x), np.signbit(x)
        lower = np.minimum(np.searchsorted(self.values, size, side="right") - 1, self.largest + 1)
        upper = np.minimum(lower + 1, self.largest + 1)
        exact = (self.values[lower] == size) | (lower > self.largest)
        above = size - self.values[lower], self.values[upper] - size
        with np.errstate(invalid="ignore"):
            nearest = (above[0] > above[1]) | ((above[0] == above[1]) & (lower % 2 == 1))
            away = above[0] >= above[1]
        carry = {
            NONE: nearest,
            RINT: nearest,
            FLOOR: negative,
            CEIL: ~negative,
            ROUND: away,
            TRUNC: np.zeros_like(negative),
            ODD: lower % 2 == 0,
        }[mode]
        code = np.where(~exact & carry, upper, lower)
        inwards = {FLOOR: ~negative, CEIL: negative, TRUNC: True, ODD: True}.get(mode, False) & np.isfinite(x)
        code = np.where(code > self.largest, np.where(saturate | inwards, self.largest, self.infinity), code)
        sign = negative.astype(int) << (self.bits - 1)
        nan = 0 if self.nan == 0 or (saturate and not keep_nan) else self.nan | sign
        return np.where(np.isnan(x), nan, code | sign).astype(np.uint32)


GRIDS = {
    "half": Grid(16, 10, 15, 0x7BFF, 0x7C00, 0x7E00),
    "bfloat16": Grid(16, 7, 127, 0x7F7F, 0x7F80, 0x7FC0),
    "fp8_e4m3fn": Grid(8, 3, 7, 0x7E, 0x7F, 0x7F),
    "fp8_e5m2": Grid(8, 2, 15, 0x7B, 0x7C, 0x7F),
    "fp4_e2m1": Grid(4, 1, 1, 7, 7, 0),
    "fp4_e1m2": Grid(4, 2, 1, 7, 7, 0),
}
TORCH = {
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "fp8_e4m3fn": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "fp8_e8m0": torch.float8_e8m0fnu,
}
EVERY_16 = np.arange(1 << 16, dtype=np.uint16)
EVERY_8 = np.arange(1 << 8, dtype=np.uint8)
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3.4028235e38, -3.4028235e38, 1e-45, -1e-45], dtype=np.float32)


def wide(x: NDArray[np.float32]) -> Floats:
    with np.errstate(invalid="ignore"):  # signalling NaN
        return x.astype(np.float64)


def values_of(codes: Array, type: str) -> Any:
    """Every code of a type that torch has, as float64."""
    return torch.from_numpy(codes.copy()).view(TORCH[type]).double().numpy()


def around(type: str) -> NDArray[np.float32]:
    """Every value of a format, every middle of two, the floats beside both, what is far beyond, and random floats."""
    values = GRIDS[type].values
    with np.errstate(over="ignore"):
        points = np.concatenate([values, (values[1:] + values[:-1]) / 2]).astype(np.float32)
        points = np.concatenate([points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(0))])
        random = np.random.default_rng(3).integers(0, 1 << 32, 20000, dtype=np.uint32).view(np.float32)
        beyond = np.ldexp(np.float32(1.37), np.arange(-149, 128)).astype(np.float32)
        return np.concatenate([points, -points, random, beyond, -beyond, SPECIAL])


def whole(x: Floats, mode: int) -> Floats:
    lower = np.floor(np.abs(x))
    with np.errstate(invalid="ignore"):
        away = np.copysign(lower + (np.abs(x) - lower >= 0.5), x)
    table: dict[int, Floats] = {
        RINT: np.rint(x),
        FLOOR: np.floor(x),
        CEIL: np.ceil(x),
        ROUND: away,
        TRUNC: np.trunc(x),
    }
    return table[mode]


def as_integer(x: float, bits: int, signed: bool, saturate: bool) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if math.isnan(x):
        return 0
    if math.isinf(x) or saturate:
        return int(min(max(x, low), high)) if low <= x <= high else low if x < 0 else high
    return (int(x) - low) % (1 << bits) + low


def nibbles(packed: Array) -> Array:
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1)


# Formats


@pytest.mark.parametrize("type", TORCH)
def test_every_code_has_the_value_that_torch_gives_it(probe: Probe, type: str) -> None:
    codes = EVERY_16 if GRIDS.get(type, GRIDS["fp8_e5m2"]).bits == 16 else EVERY_8
    np.testing.assert_array_equal(probe.cast(codes, type, "float", NONE), values_of(codes, type))
    with_sign = np.signbit(probe.cast(codes, type, "float", NONE))
    if type != "fp8_e8m0":
        np.testing.assert_array_equal(with_sign, codes >> (8 * codes.itemsize - 1) == 1)


def test_packed_pairs_hold_the_first_element_in_the_low_bits(probe: Probe) -> None:
    e2m1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    e1m2 = [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75]
    signed = [*range(8), *range(-8, 0)]
    tables = {"fp4_e2m1": e2m1 + [-v for v in e2m1], "fp4_e1m2": e1m2 + [-v for v in e1m2], "int4": signed}
    for type, table in tables.items():
        expected = np.array(table)[nibbles(EVERY_8)]
        for to in ("bfloat16", "half" if type == "int4" else "float"):
            out = probe.cast(EVERY_8, type, to, NONE)
            np.testing.assert_array_equal(out if to == "float" else values_of(out, to), expected)
    np.testing.assert_array_equal(probe.cast(EVERY_8, "int4", "int16", NONE), np.array(signed)[nibbles(EVERY_8)])


def hifloat8_values() -> list[float]:
    """Table 6 of "Built-in data types", code by code, for the codes without sign."""
    values = [0.0] + [2.0 ** (m - 23) for m in range(1, 8)] + [1 + m / 8 for m in range(8)]
    for width, mantissa_bits in ((1, 3), (2, 3), (3, 2), (4, 1)):  # of the exponent, whose first bit is its sign
        for sign, low, fraction in itertools.product((1, -1), range(1 << width - 1), range(1 << mantissa_bits)):
            values.append(2.0 ** (sign * (low + (1 << width - 1))) * (1 + fraction / (1 << mantissa_bits)))
    values[0x6F] = math.inf
    return values


def test_hifloat8(probe: Probe) -> None:
    values = np.array(hifloat8_values())
    assert len(values) == 128
    expected = np.concatenate([values, -values])
    expected[0x80] = math.nan
    np.testing.assert_array_equal(probe.cast(EVERY_8, "hifloat8", "float", NONE), expected)
    np.testing.assert_array_equal(values_of(probe.cast(EVERY_8, "hifloat8", "half", NONE), "half"), expected)

    # To nearest, ties away from zero; 1.5 * 2^15 would be the next number after 2^15, and is infinity.
    order = np.argsort(values)
    ascending = np.where(np.isinf(values[order]), 1.5 * 2.0**15, values[order])
    middles = ((ascending[1:] + ascending[:-1]) / 2).astype(np.float32)
    beside = [np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(9e9))]
    x = np.concatenate([ascending, middles, *beside, [1e6, 3e38, 2.0**-24, 1e-40]]).astype(np.float32)
    code = order[np.searchsorted(middles, x, side="right")]
    tiny = x < 2.0**-23
    code[tiny] = 0
    negative = np.where(code == 0, 0, code | 0x80)
    both, codes = np.concatenate([x, -x]), np.concatenate([code, negative])
    np.testing.assert_array_equal(probe.cast(both, "float", "hifloat8", ROUND, saturate=False), codes)
    ends = np.where(codes & 0x7F == 0x6F, codes - 1, codes)
    np.testing.assert_array_equal(probe.cast(both, "float", "hifloat8", ROUND), ends)
    halves = values_of(EVERY_16, "half").astype(np.float32)
    np.testing.assert_array_equal(
        probe.cast(EVERY_16, "half", "hifloat8", ROUND), probe.cast(halves, "float", "hifloat8", ROUND)
    )
    assert list(probe.cast(SPECIAL[2:5], "float", "hifloat8", ROUND, saturate=False)) == [0x6F, 0xEF, 0x80]
    assert list(probe.cast(SPECIAL[2:5], "float", "hifloat8", ROUND)) == [0x6E, 0xEE, 0]
    assert values[probe.cast(np.array([14.0]), "float", "hifloat8", ROUND)] == 14
    for mode in set(MODES) - {ROUND}:
        with pytest.raises(ValueError, match="refused"):
            probe.cast(x, "float", "hifloat8", mode)


def test_scales(probe: Probe) -> None:
    scales = probe.cast(EVERY_8, "fp8_e8m0", "float", NONE)
    np.testing.assert_array_equal(scales[:255], np.ldexp(1.0, np.arange(-127, 128)))
    np.testing.assert_array_equal(probe.cast(scales, "float", "fp8_e8m0", NONE), EVERY_8)
    np.testing.assert_array_equal(probe.cast(EVERY_8, "fp8_e8m0", "bfloat16", NONE)[1:255], EVERY_16[1:255] << 7)
    # Sign and mantissa are dropped; infinity is the largest when saturating.
    field = EVERY_16 >> 7 & 255
    np.testing.assert_array_equal(probe.cast(EVERY_16, "bfloat16", "fp8_e8m0", NONE, saturate=False), field)
    infinite = EVERY_16 & 0x7FFF == 0x7F80
    np.testing.assert_array_equal(probe.cast(EVERY_16, "bfloat16", "fp8_e8m0", NONE), np.where(infinite, 0xFE, field))


# From float


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("to", [type for type in GRIDS if not type.startswith("fp4")])
def test_float_to_a_smaller_format(probe: Probe, to: str, saturate: bool) -> None:
    x = around(to)
    for mode in (NONE, *FIVE, ODD):
        expected = GRIDS[to].round(wide(x), mode, saturate)
        np.testing.assert_array_equal(probe.cast(x, "float", to, mode, saturate), expected, err_msg=f"mode {mode}")
    with pytest.raises(ValueError, match="refused"):
        probe.cast(x, "float", to, HYBRID)


@pytest.mark.parametrize("to", [type for type in TORCH if type != "fp8_e8m0"])
def test_nearest_even_is_what_torch_does(probe: Probe, to: str) -> None:
    x = around(to)
    if to == "fp8_e4m3fn":
        x = x[~(np.abs(x) > 464)]  # releases of torch differ: beyond it NaN, or the largest number
    expected = torch.from_numpy(x).to(TORCH[to]).double().numpy()
    found = values_of(probe.cast(x, "float", to, RINT, saturate=False), to)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(x))


@pytest.mark.parametrize("to", ["fp8_e4m3fn", "fp8_e5m2"])
def test_bit_50_keeps_nan(probe: Probe, to: str) -> None:
    x = around(to)
    expected = GRIDS[to].round(wide(x), RINT, saturate=True, keep_nan=True)
    np.testing.assert_array_equal(probe.cast(x, "float", to, RINT, keep_nan=True), expected)
    assert np.isnan(values_of(probe.cast(SPECIAL[4:5], "float", to, RINT, keep_nan=True), to))


@pytest.mark.parametrize("mode", FIVE)
def test_float_to_whole_float(probe: Probe, mode: int) -> None:
    halves = np.arange(-4000, 4000) / 4.0
    large = np.ldexp(np.float32(1.7), np.arange(-140, 127)).astype(np.float32)
    x = np.concatenate([halves, np.nextafter(halves, 1e9), large, -large, SPECIAL]).astype(np.float32)
    x = np.concatenate([x, np.array([8388607.5, 8388608, 4194303.5, 0.49999997, -0.49999997], np.float32)])
    found = probe.cast(x, "float", "float", mode)
    np.testing.assert_array_equal(found, whole(x.astype(np.float64), mode))
    assert not np.signbit(found[found == 0]).any()  # documented for -0


# Between the formats


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize(
    ("source", "to"),
    [("half", "bfloat16"), ("bfloat16", "half"), ("half", "fp8_e4m3fn"), ("bfloat16", "fp8_e5m2")],
)
def test_every_code_to_another_format(probe: Probe, source: str, to: str, saturate: bool) -> None:
    x = values_of(EVERY_16, source)
    for mode in FIVE:
        # half -> bfloat16 has no saturation mode: infinity and NaN stay.
        expected = GRIDS[to].round(x, mode, saturate and (source, to) != ("half", "bfloat16"))
        np.testing.assert_array_equal(probe.cast(EVERY_16, source, to, mode, saturate), expected)


@pytest.mark.parametrize(("source", "to"), [*itertools.product(["bfloat16", "half"], ["fp4_e2m1", "fp4_e1m2"])])
def test_every_code_to_fp4(probe: Probe, source: str, to: str) -> None:
    if (source, to) == ("half", "fp4_e1m2"):
        with pytest.raises(ValueError, match="no such conversion"):
            probe.cast(EVERY_16, source, to, RINT)
        return
    for mode, saturate in itertools.product(FIVE, (True, False)):
        expected = GRIDS[to].round(values_of(EVERY_16, source), mode, saturate=True)
        np.testing.assert_array_equal(nibbles(probe.cast(EVERY_16, source, to, mode, saturate)), expected)


def test_double_rounds_once(probe: Probe) -> None:
    rng = np.random.default_rng(5)
    x = wide(around("bfloat16")[::7])
    x = np.concatenate([x, x * (1 + 2.0**-40), x * (1 - 2.0**-40), 2.0**35 + 2.0**28 + 2.0**27 + rng.random(9)])
    for mode, saturate in itertools.product(FIVE, (True, False)):
        expected = GRIDS["bfloat16"].round(x, mode, saturate)
        np.testing.assert_array_equal(probe.cast(x, "double", "bfloat16", mode, saturate), expected)
    with np.errstate(over="ignore", invalid="ignore"):
        y = np.concatenate([x, rng.integers(0, 1 << 63, 20000).view(np.float64)])
        np.testing.assert_array_equal(probe.cast(y, "double", "float", RINT), y.astype(np.float32))


# Integers


def integer_of(type: str) -> tuple[int, bool]:
    return int(type.removeprefix("u").removeprefix("int")), not type.startswith("u")


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize(
    ("source", "to"),
    [
        *(("half", type) for type in ("int4", "int8", "uint8", "int16", "int32")),
        *(("float", type) for type in ("int16", "int32", "int64")),
        *(("bfloat16", "int32"), ("double", "int32"), ("double", "int64")),
    ],
)
def test_to_an_integer(probe: Probe, source: str, to: str, saturate: bool) -> None:
    bits, signed = integer_of(to)
    if source in ("half", "bfloat16"):
        codes = EVERY_16
        x = values_of(codes, source)
    else:
        ends = np.ldexp(1.0, np.arange(-3, 70))[:, None] + np.array([0, -1, 1, 0.5, -0.5, 1.5, -1.5, 0.25])
        x = np.concatenate([ends.reshape(-1), np.arange(-40, 40) / 8, [1e30, 3e38, 1e300, np.inf, np.nan]])
        with np.errstate(over="ignore"):
            codes = np.concatenate([x, -x]).astype(STORED[source])
        x = codes.astype(np.float64)
    for mode in FIVE:
        found = probe.cast(codes, source, to, mode, saturate)
        if to == "int4":
            found = (nibbles(found).astype(np.int8) ^ 8) - 8
        expected = [as_integer(v, bits, signed, saturate) for v in whole(x, mode).tolist()]
        assert found.tolist() == expected, mode


INTEGERS = [
    *(("int16", type) for type in ("int4", "uint8", "int32", "uint32")),
    *(("uint16", type) for type in ("uint8", "uint32")),
    *(("int32", type) for type in ("uint8", "uint16", "int16", "int64")),
    *(("uint32", type) for type in ("uint8", "uint16", "int16")),
    *(("int8", "int16"), ("int8", "int32"), ("uint8", "uint16"), ("uint8", "uint32"), ("int64", "int32")),
]


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize(("source", "to"), INTEGERS)
def test_integer_to_integer(probe: Probe, source: str, to: str, saturate: bool) -> None:
    (from_bits, from_signed), (bits, signed) = integer_of(source), integer_of(to)
    low = -(1 << from_bits - 1) if from_signed else 0
    edges = {e + d for k in range(from_bits) for e in (1 << k, -(1 << k)) for d in (-1, 0, 1)} | {0, low}
    x = sorted(v for v in edges if low <= v < low + (1 << from_bits))
    x += x[-1:] * (len(x) % 2)
    found = probe.cast(np.array(x, dtype=source), source, to, NONE, saturate)
    if to == "int4":
        found = (nibbles(found).astype(np.int8) ^ 8) - 8
    wider = bits > from_bits
    assert found.tolist() == [int(as_integer(v, bits, signed, saturate or wider)) for v in x]


def rounded_fraction(value: int, mantissa: int, mode: int) -> Fraction:
    """Integer rounded to `mantissa` + 1 significant bits."""
    unit = 1 << max(abs(value).bit_length() - mantissa - 1, 0)
    exact = Fraction(value, unit)
    lower, upper = math.floor(exact), math.ceil(exact)
    away = math.floor(abs(exact) + Fraction(1, 2)) * (1 if value >= 0 else -1)
    chosen = {FLOOR: lower, CEIL: upper, TRUNC: math.trunc(exact), ROUND: away, RINT: round(exact)}
    return Fraction(chosen[mode]) * unit


@pytest.mark.parametrize(
    ("source", "to", "mantissa"),
    [("int32", "float", 23), ("int64", "float", 23), ("int64", "double", 52), ("int16", "half", 10)],
)
def test_integer_to_float(probe: Probe, source: str, to: str, mantissa: int) -> None:
    bits, _ = integer_of(source)
    rng = np.random.default_rng(11)
    random = (int(v) >> int(rng.integers(0, 63)) for v in rng.integers(-(1 << 63), 1 << 63, 1000))
    edges = (s * ((1 << k) + d) for k in range(63) for s in (1, -1) for d in (-2, -1, 0, 1, 2, 3, 1 << max(k - 24, 0)))
    middles = (((1 << mantissa + 1) + i << k) + (1 << k >> 1) for i in (0, 1) for k in (1, 5, 9))
    ties = (middle + d for middle in middles for d in (-1, 0, 1))
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    x = [v for v in [*random, *edges, *ties, low, high] if low <= v <= high]
    for mode in FIVE:
        found = probe.cast(np.array(x, dtype=source), source, to, mode)
        numbers = values_of(found, "half") if to == "half" else found
        assert [Fraction(float(v)) for v in numbers] == [rounded_fraction(v, mantissa, mode) for v in x], mode


def test_small_integers_are_exact(probe: Probe) -> None:
    signed = EVERY_8.view(np.int8)
    np.testing.assert_array_equal(values_of(probe.cast(signed, "int8", "half", NONE), "half"), signed)
    np.testing.assert_array_equal(values_of(probe.cast(EVERY_8, "uint8", "half", NONE), "half"), EVERY_8)
    np.testing.assert_array_equal(probe.cast(EVERY_16.view(np.int16), "int16", "float", NONE), EVERY_16.view(np.int16))


def test_int32_to_half_with_a_scale(probe: Probe) -> None:
    x = np.array([0, 1, -3, 2047, 2049, 2051, 65519, 65520, 2**31 - 1, -(2**31)], dtype=np.int32)
    for scale, saturate in itertools.product((1.0, 0.0009765625, -0.333, 6e-8), (True, False)):
        code = np.float16(scale)
        out = np.zeros(x.size, dtype=np.uint16)
        pointers = (x.ctypes.data_as(ctypes.c_void_p), int(code.view(np.uint16)), out.ctypes.data_as(ctypes.c_void_p))
        probe.library.scaled(*pointers, ctypes.c_int64(x.size), saturate)
        expected = GRIDS["half"].round(x.astype(np.float64) * np.float64(code), RINT, saturate)
        np.testing.assert_array_equal(out, expected)


# What the documentation says of single numbers (appendix on boundary values; precision conversion)

INF, NAN = math.inf, math.nan
DOCUMENTED: list[tuple[str, str, int, float, float, float]] = [  # source, to, mode, number, not saturating, saturating
    ("float", "half", RINT, 3.4028235e38, INF, 65504),
    ("float", "half", RINT, -INF, -INF, -65504),
    ("float", "half", RINT, NAN, NAN, 0),
    ("float", "half", ODD, 0.5 + 2**-12, 0.5 + 2**-11, 0.5 + 2**-11),
    ("float", "half", TRUNC, 0.5 + 2**-12, 0.5, 0.5),
    ("float", "bfloat16", RINT, -3.4028235e38, -INF, 2.0**120 - 2.0**128),
    ("float", "bfloat16", RINT, 0.5 + 2**-9 + 2**-11, 0.5 + 2**-8, 0.5 + 2**-8),
    ("float", "fp8_e4m3fn", RINT, INF, NAN, 448),
    ("float", "fp8_e4m3fn", RINT, -3.4028235e38, NAN, -448),
    ("float", "fp8_e5m2", RINT, 3.4028235e38, INF, 57344),
    ("float", "fp8_e5m2", RINT, NAN, NAN, 0),
    ("float", "int16", FLOOR, 2**22 + 0.5, 0, 32767),
    ("float", "int32", CEIL, 2**22 + 0.5, 2**22 + 1, 2**22 + 1),
    ("float", "int32", RINT, 3.4028235e38, 0, 2147483647),
    ("float", "int32", RINT, INF, 2147483647, 2147483647),
    ("float", "int32", RINT, NAN, 0, 0),
    ("half", "int8", RINT, 65504, -32, 127),
    ("half", "int8", RINT, -65504, 32, -128),
    ("half", "uint8", RINT, 257, 1, 255),
    ("half", "uint8", RINT, -65504, 32, 0),
    ("half", "uint8", RINT, 65504, 224, 255),
    ("half", "int8", ROUND, 127.5, -128, 127),
    ("half", "int32", RINT, -1.5, -2, -2),
    ("half", "bfloat16", RINT, INF, INF, INF),
    ("bfloat16", "half", RINT, 3.3895314e38, INF, 65504),
    ("bfloat16", "half", FLOOR, 2.90573e-06, 48 * 2.0**-24, 48 * 2.0**-24),
    ("bfloat16", "half", CEIL, 2.90573e-06, 49 * 2.0**-24, 49 * 2.0**-24),
    ("bfloat16", "int32", ROUND, 64.5, 65, 65),
    ("int16", "uint32", NONE, -32768, 0, 0),
    ("int32", "int16", NONE, 2147483647, -1, 32767),
    ("int32", "uint8", NONE, 256, 0, 255),
    ("int64", "int32", NONE, -(2**63), 0, -2147483648),
    ("int32", "float", RINT, 2**25 + 3, 2**25 + 4, 2**25 + 4),
    ("int32", "float", FLOOR, 2**25 + 3, 2**25, 2**25),
    ("int64", "float", TRUNC, 2**35 + 2**12 + 2**11, 2**35 + 2**12, 2**35 + 2**12),
    ("int64", "double", ROUND, 2**61 + 2**9 + 2**8, 2**61 + 2**10, 2**61 + 2**10),
    ("int16", "half", CEIL, 2**12 + 2, 2**12 + 4, 2**12 + 4),
    ("double", "int32", TRUNC, -1.5, -1, -1),
]


@pytest.mark.parametrize(("source", "to", "mode", "number", "open_ended", "saturated"), DOCUMENTED)
def test_documented_numbers(
    probe: Probe, source: str, to: str, mode: int, number: float, open_ended: float, saturated: float
) -> None:
    if source in ("half", "bfloat16"):
        x = torch.tensor([number]).to(TORCH[source]).view(torch.uint16).numpy()
    else:
        x = np.array([number], dtype=STORED[source])
    for saturate, expected in ((False, open_ended), (True, saturated)):
        found = probe.cast(x, source, to, mode, saturate)
        value = values_of(found, to) if to in TORCH else found.astype(np.float64)
        np.testing.assert_array_equal(value, [expected])


# Which conversions there are


def test_legal_casts(probe: Probe) -> None:
    types = [type for type in probe.number if type not in ("bool", "uint64")]
    legal = {
        arch: {(a, b): [m for m in MODES if probe.allowed(arch, a, b, m)] for a in types for b in types}
        for arch in (REGISTERS, A2, A5)
    }
    count = {arch: sum(bool(modes) for modes in table.values()) for arch, table in legal.items()}
    assert count == {A2: 25, A5: 61, REGISTERS: 61 - 5 - 1 - 1 + 2}
    assert legal[A2]["float", "half"] == [NONE, *FIVE, ODD] and legal[REGISTERS]["float", "half"] == [*FIVE, ODD]
    assert legal[A2]["float", "bfloat16"] == legal[A5]["float", "bfloat16"] == list(FIVE)
    assert legal[A2]["int32", "float"] == [NONE, *FIVE] and legal[A5]["int32", "float"] == list(FIVE)
    assert legal[A2]["half", "int4"] == [NONE, *FIVE] and legal[A5]["half", "int4"] == list(FIVE)
    assert legal[A5]["float", "fp8_e4m3fn"] == [RINT] and legal[A5]["float", "hifloat8"] == [ROUND, HYBRID]
    assert legal[A5]["bfloat16", "fp4_e2m1"] == list(FIVE) and legal[A5]["fp4_e1m2", "bfloat16"] == [NONE]
    assert legal[A5]["double", "int64"] == [TRUNC] and legal[REGISTERS]["bfloat16", "fp8_e8m0"] == [NONE]
    for pair in (("float", "int8"), ("half", "bfloat16"), ("float", "fp8_e5m2"), ("int8", "int32")):
        assert not legal[A2][pair]
    for pair in (("float", "int8"), ("bfloat16", "fp8_e4m3fn"), ("half", "fp4_e2m1"), ("bfloat16", "fp8_e8m0")):
        assert not legal[A5][pair]
    for table in legal.values():  # what a device has is here, but for Hybrid
        for (source, to), modes in table.items():
            for mode in set(modes) - {HYBRID}:
                probe.cast(np.zeros(2, dtype=STORED[source]), source, to, mode)


# Arithmetic


def test_kernels_can_write_it(probe: Probe) -> None:
    assert probe.library.kernels() == 11.0


OPERATIONS: dict[str, Any] = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}
SIGNIFICANDS = np.arange(1024, dtype=np.uint16)


def half_pairs(exponent_a: int, exponent_b: int) -> tuple[Array, Array]:
    """Every pair of normal significands with these exponent fields."""
    a, b = np.meshgrid(SIGNIFICANDS | exponent_a << 10, SIGNIFICANDS | exponent_b << 10, indexing="ij")
    return a.astype(np.uint16), b.astype(np.uint16)


def assert_half(probe: Probe, operation: str, a: Array, b: Array) -> None:
    """The float64 result is exact, or for a quotient too close to it to pass a middle of two halves: those are at least
    2^-23 of their size away. numpy rounds float64 to float16 once."""
    x, y = a.view(np.float16).astype(np.float64), b.view(np.float16).astype(np.float64)
    with np.errstate(all="ignore"):
        result = OPERATIONS[operation](x, y)
        expected = result.astype(np.float16)
    found = probe.calculate("half", operation, a, b).view(np.float16)
    differ = (found.view(np.uint16) != expected.view(np.uint16)) & ~(np.isnan(found) & np.isnan(expected))
    assert not differ.any(), (operation, a[differ][:3], b[differ][:3], found[differ][:3], expected[differ][:3])


def test_half_product_and_quotient_of_every_pair_of_significands(probe: Probe) -> None:
    assert_half(probe, "*", *half_pairs(15, 15))
    assert_half(probe, "/", *half_pairs(15, 15))
    for exponent in (1, 4, 8, 11, 13):  # results among the subnormal numbers
        assert_half(probe, "*", *half_pairs(exponent, 1))
    for exponent in (16, 18, 24, 30):
        assert_half(probe, "/", *half_pairs(1, exponent))


def test_half_sum_of_every_pair_of_significands(probe: Probe) -> None:
    for apart in range(14):  # farther apart the smaller one decides no rounding
        a, b = half_pairs(16, 16 - apart)
        assert_half(probe, "+", a, b)
        assert_half(probe, "-", a, b)


def test_half_with_every_code(probe: Probe) -> None:
    rng = np.random.default_rng(7)
    others = [0, 0x8000, 1, 0x3FF, 0x400, 0x3C00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00]
    for operation in "+-*/":
        for code in others:
            assert_half(probe, operation, EVERY_16, np.full_like(EVERY_16, code))
            assert_half(probe, operation, np.full_like(EVERY_16, code), EVERY_16)
        assert_half(probe, operation, rng.permutation(EVERY_16), EVERY_16)


def test_bfloat16_arithmetic(probe: Probe) -> None:
    """Every pair of significands: products and quotients over normal and subnormal results, sums of all distances."""
    a, b = (v.astype(np.uint16) for v in np.meshgrid(np.arange(128), np.arange(128), indexing="ij"))
    exponents = {
        "*": [(127, 127), (254, 127), (254, 128), *((64, e) for e in range(54, 66)), (1, 1)],
        "/": [(127, 127), (254, 126), *((64, e) for e in range(188, 200)), (1, 254)],
        "+": [(140, 140 - d) for d in range(11)] + [(3, 1), (254, 254)],
        "-": [(140, 140 - d) for d in range(11)] + [(3, 1), (254, 250)],
    }
    for operation, pairs in exponents.items():
        for high, low in pairs:
            x, y = a | high << 7, b | low << 7
            with np.errstate(all="ignore"):
                exact = OPERATIONS[operation](values_of(x, "bfloat16"), values_of(y, "bfloat16"))
            expected = GRIDS["bfloat16"].round(exact, RINT, saturate=False)
            np.testing.assert_array_equal(probe.calculate("bfloat16", operation, x, y), expected, err_msg=operation)
