"""Cast: pairs of types, rounding modes, masks of the wider type, packed types, saturation; against numpy and torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.ops.emulator.vector_oracle import (
    BITS,
    COUNTER,
    NUMBER,
    REGION,
    Array,
    Call,
    check,
    from_bfloat16,
    named,
    replace,
    run,
    stored,
    to_bfloat16,
    values,
)

SOCS = ("a3", "950pr")
NAMES: tuple[str, ...] = (
    "half",
    "float",
    "int16_t",
    "int32_t",
    "uint16_t",
    "bfloat16_t",
    "uint32_t",
    "int64_t",
    "int8_t",
    "uint8_t",
    "int4b_t",
)
NAMES += ("fp4x2_e2m1_t", "fp4x2_e1m2_t", "fp8_e4m3fn_t", "fp8_e5m2_t", "hifloat8_t", "double")
NONE, RINT, FLOOR, CEIL, ROUND, TRUNC, ODD, HYBRID = range(8)
FIVE = (RINT, FLOOR, CEIL, ROUND, TRUNC)
SHORT = {"half": "float16", "float": "float32", "int16_t": "int16", "double": "float64"}


def number(type: str) -> int:
    return NAMES.index(type)


def call_of(to: str, source: str, mode: int, **more: object) -> Call:
    return replace(Call(operation=number(to), type=number(source), mode=mode), **more)  # type: ignore[arg-type]


def integral(x: Array, mode: int) -> Array:
    """The integer that each number rounds to, in float64."""
    x = x.astype(np.float64)
    if mode == ROUND:
        return np.asarray(np.copysign(np.floor(np.abs(x) + 0.5), x))
    return np.asarray({NONE: np.rint, RINT: np.rint, FLOOR: np.floor, CEIL: np.ceil, TRUNC: np.trunc}[mode](x))


def to_integers(x: Array, mode: int, type: str) -> Array:
    info = np.iinfo(stored(type))
    whole = integral(x, mode)
    return np.array([min(max(int(v), int(info.min)), int(info.max)) for v in whole], stored(type))


def to_format(x: Array, mode: int, bits: int, least: int) -> Array:
    """float64 values on the grid of a format with `bits` of significand and smallest normal exponent `least`."""
    x = x.astype(np.float64)
    exponent = np.maximum(np.frexp(np.where(x == 0, 1.0, x))[1] - 1, least)
    unit = np.exp2(exponent - (bits - 1.0))
    scaled = x / unit
    if mode == ODD:
        down = np.trunc(scaled)
        odd = np.where(down % 2 == 0, down + np.sign(scaled), down)
        return np.asarray(np.where(scaled == down, down, odd) * unit)
    return np.asarray(integral(scaled, mode) * unit)


# ---- Pairs ----

# Page Cast, the tables of dav-2201 (the same for both products) and dav-3510: source, destination, modes. Types fit in
# numpy alone; the packed ones and those of 8 bits follow below.
PAIRS_2201 = [
    ("int8_t", "half", (NONE,)),
    ("uint8_t", "half", (NONE,)),
    ("int16_t", "float", (NONE,)),
    ("half", "float", (NONE,)),
    ("bfloat16_t", "float", (NONE,)),
    ("int16_t", "half", (NONE, *FIVE)),
    ("half", "int8_t", (NONE, *FIVE)),
    ("half", "uint8_t", (NONE, *FIVE)),
    ("half", "int16_t", FIVE),
    ("half", "int32_t", FIVE),
    ("bfloat16_t", "int32_t", FIVE),
    ("int32_t", "int16_t", (NONE,)),
    ("int32_t", "float", (NONE, *FIVE)),
    ("int32_t", "int64_t", (NONE,)),
    ("float", "int16_t", FIVE),
    ("float", "half", (NONE, *FIVE, ODD)),
    ("float", "bfloat16_t", FIVE),
    ("float", "int32_t", FIVE),
    ("float", "float", FIVE),
    ("float", "int64_t", FIVE),
    ("int64_t", "int32_t", (NONE,)),
    ("int64_t", "float", FIVE),
]
PAIRS_3510 = [
    ("int8_t", "int16_t", (NONE,)),
    ("int8_t", "int32_t", (NONE,)),
    ("uint8_t", "uint16_t", (NONE,)),
    ("uint8_t", "uint32_t", (NONE,)),
    ("int16_t", "uint8_t", (NONE,)),
    ("int16_t", "int32_t", (NONE,)),
    ("int16_t", "uint32_t", (NONE,)),
    ("uint16_t", "uint8_t", (NONE,)),
    ("uint16_t", "uint32_t", (NONE,)),
    ("half", "bfloat16_t", FIVE),
    ("bfloat16_t", "half", FIVE),
    ("int32_t", "uint8_t", (NONE,)),
    ("int32_t", "uint16_t", (NONE,)),
    ("uint32_t", "uint8_t", (NONE,)),
    ("uint32_t", "int16_t", (NONE,)),
    ("uint32_t", "uint16_t", (NONE,)),
    ("float", "half", (NONE, *FIVE, ODD)),
    ("half", "float", (NONE,)),
    ("float", "bfloat16_t", FIVE),
    ("int64_t", "double", FIVE),
    ("double", "float", FIVE),
    ("double", "int32_t", (TRUNC,)),
    ("double", "int64_t", (TRUNC,)),
]


def numbers_of(type: str) -> Array:
    if type == "double":
        return np.random.default_rng(1).normal(size=REGION // 8) * 1e3
    a = values(type, 1, scale=40.0)
    if type == "float":
        a[::3] *= np.float32(1e-6)  # subnormal halves too
    if type == "half":
        a[:8] = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.25, -0.75]
    return a


def converted(a: Array, source: str, to: str, mode: int) -> Array:
    """Stored numbers of the type `to`."""
    x = from_bfloat16(a) if source == "bfloat16_t" else a
    if to in SHORT and SHORT[to] == "int16" or to.endswith("_t") and to[:3] in ("int", "uin"):
        if a.dtype.kind in "iu" and source != "bfloat16_t":
            info = np.iinfo(stored(to))
            return np.array([min(max(int(v), int(info.min)), int(info.max)) for v in x], stored(to))
        return to_integers(x, mode, to)
    if to == "float" and source == "float":
        return (integral(x, mode) + 0.0).astype(np.float32)
    if to == "double":
        return np.array([float(int(v)) if abs(int(v)) < 2**53 else exact_double(int(v), mode) for v in x])
    wide = (
        np.array([exact_double(int(v), ODD) for v in x])
        if a.dtype.itemsize == 8 and a.dtype.kind in "iu"
        else x.astype(np.float64)
    )
    grid = {"half": (11, -14), "bfloat16_t": (8, -126), "float": (24, -126)}[to]
    value = to_format(wide, mode, *grid).astype(np.float32)
    return to_bfloat16(value) if to == "bfloat16_t" else value.astype(stored(to))


def exact_double(value: int, mode: int) -> float:
    """The neighbour of 53 bits that the mode picks."""
    if value == 0:
        return 0.0
    unit = 1 << max(abs(value).bit_length() - 53, 0)
    low, rest = divmod(value, unit)
    carry = {
        NONE: 2 * rest + low % 2 > unit,
        RINT: 2 * rest + low % 2 > unit,
        FLOOR: False,
        CEIL: rest > 0,
        TRUNC: rest > 0 and value < 0,
    }.get(mode)
    if mode == ROUND:
        carry = 2 * rest > unit or (2 * rest == unit and value > 0)
    if mode == ODD:
        carry = rest > 0 and low % 2 == 0
    return float((low + bool(carry)) * unit)


@pytest.mark.parametrize(("soc", "pairs"), [("a3", PAIRS_2201), ("950pr", PAIRS_3510)])
def test_pairs_and_modes(soc: str, pairs: list[tuple[str, str, tuple[int, ...]]]) -> None:
    for source, to, modes in pairs:
        a = numbers_of(source)
        itemsize = max(a.itemsize, np.dtype(SHORT.get(to, stored(to))).itemsize)
        count = REGION // itemsize - 3
        d = np.zeros(REGION // np.dtype(SHORT.get(to, stored(to))).itemsize, SHORT.get(to, stored(to)))
        for mode in modes:
            found, report = run("vector_cast", soc, call_of(to, source, mode, count=count), d, a)
            assert report.hazards == (), (source, to, mode)
            wanted = converted(a[:count], source, to, mode)
            np.testing.assert_array_equal(
                found[:count], wanted.view(found.dtype), err_msg=f"{source} -> {to}, mode {mode}"
            )
            assert not found[count:].any()


# ---- Modes, refused ----


@pytest.mark.parametrize("soc", SOCS)
def test_a_mode_that_the_pair_does_not_have(soc: str) -> None:
    a, d = values("float", 1), values("bfloat16_t", 0)
    found, report = run("vector_cast", soc, call_of("bfloat16_t", "float", NONE, count=8), d, a)
    allowed = "CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_ROUND, CAST_TRUNC"
    name = "dav-2201" if soc == "a3" else "dav-3510"
    assert named(report.hazards) == [
        ("argument", f"Cast: float -> bfloat16 has no CAST_NONE on {name}; it has {allowed}.")
    ]
    np.testing.assert_array_equal(found, d)


def test_hybrid_is_refused() -> None:
    a = values("half", 1)
    _, report = run("vector_cast", "950pr", call_of("hifloat8_t", "half", HYBRID, count=8), a.view(np.uint8), a)
    assert [hazard.kind for hazard in report.hazards] == ["argument"]
    assert "CAST_HYBRID" in report.hazards[0].message and "CAST_ROUND" in report.hazards[0].message


# ---- Masks, strides, places ----

CHECKERS = 0x1234_F00F_8001_A5A5


@pytest.mark.parametrize("soc", SOCS)
def test_the_mask_counts_the_wider_type(soc: str) -> None:
    """Page Cast: with half and a type of 32 bits a repeat has 64 elements, strides 8 and 4 make it dense."""
    wide, small = values("float", 0, scale=3.0), values("half", 1)
    calls = [
        Call(form=NUMBER, mask=(64, 0), repeats=8, repeat=(8, 4, 0)),
        Call(form=NUMBER, mask=(128, 0), repeats=3, repeat=(9, 4, 0)),  # more than the wider type has: 64
        Call(form=BITS, mask=(CHECKERS, 0), repeats=5, repeat=(8, 4, 0), block=(1, 3, 1)),
        Call(form=COUNTER, mask=(200, 0), repeat=(8, 4, 0)),
        Call(form=BITS, mask=(CHECKERS, 0), repeats=4, repeat=(24, 0, 0), block=(3, 1, 1)),
    ]
    for call in calls:
        up = replace(call, operation=number("float"), type=number("half"), mode=NONE)
        check("vector_cast", soc, up, wide, (small,), lambda a, d: a.astype(np.float32))
        down = replace(
            call, operation=number("half"), type=number("float"), mode=RINT, repeat=(call.repeat[1], call.repeat[0], 0)
        )
        down = replace(down, block=(call.block[1], call.block[0], 1))
        check("vector_cast", soc, down, small, (wide,), lambda a, d: a.astype(np.float16))


@pytest.mark.parametrize("soc", SOCS)
def test_in_place(soc: str) -> None:
    """Pages "General notes" and Cast: narrowing in place is whole overlap; widening in place may give wrong results."""
    a = values("float", 1)
    call = call_of("half", "float", RINT, count=3000, place=1)
    given = a.copy()
    found, report = run("vector_cast", soc, call, a, given)
    assert report.hazards == ()
    np.testing.assert_array_equal(found.view(np.float16)[:3000], a[:3000].astype(np.float16))
    np.testing.assert_array_equal(found[1500:], a[1500:])
    _, report = run("vector_cast", soc, call_of("float", "half", NONE, count=100, place=1), a, a)
    assert [hazard.kind for hazard in report.hazards] == ["argument"]
    assert "the source having the smaller elements" in report.hazards[0].message
    _, report = run("vector_cast", soc, call_of("half", "float", RINT, count=100, place=1, offset=32), a, a)
    assert "overlap in part" in report.hazards[0].message


# ---- int4 ----


def nibbles(packed: Array) -> Array:
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(-1).astype(np.int64)
    return np.where(codes > 7, codes - 16, codes)


@pytest.mark.parametrize("soc", SOCS)
def test_four_bit_integers(soc: str) -> None:
    """Page Cast: two elements in a byte, the first in the low bits; half of the space; counts are even."""
    packed, a = values("uint8_t", 1), np.arange(-11, 11.05, 0.25).astype(np.float16)
    call = call_of("half", "int4b_t", NONE, count=500)
    found, report = run("vector_cast", soc, call, values("half", 0), packed)
    assert report.hazards == ()
    np.testing.assert_array_equal(found[:500], nibbles(packed)[:500])
    a = np.resize(a, REGION // 2)
    for mode in FIVE:
        found, report = run("vector_cast", soc, call_of("int4b_t", "half", mode, count=500), packed, a)
        assert report.hazards == ()
        np.testing.assert_array_equal(nibbles(found)[:500], np.clip(integral(a[:500], mode), -8, 7))
        np.testing.assert_array_equal(found[250:], packed[250:])
    pairs = 0x0FF0_33CC_C0C0_FFFC
    masked = call_of("int4b_t", "half", RINT, form=BITS, mask=(pairs, pairs), repeats=2, repeat=(2, 8, 0))
    found, report = run("vector_cast", soc, masked, packed, a)
    assert report.hazards == ()
    wanted = nibbles(packed).copy()
    for repeat in range(2):
        for lane in range(128):
            if pairs >> lane % 64 & 1:
                wanted[repeat * 128 + lane] = np.clip(np.rint(float(a[repeat * 128 + lane])), -8, 7)
    np.testing.assert_array_equal(nibbles(found), wanted)


@pytest.mark.parametrize("soc", SOCS)
def test_a_cut_pair_is_refused(soc: str) -> None:
    """Page Cast: with int4b_t a count and a mask are even, mask bits of one byte are equal."""
    a, d = values("half", 1), values("uint8_t", 0)
    for call in (
        Call(count=7),
        Call(form=NUMBER, mask=(5, 0), repeats=2),
        Call(form=BITS, mask=(0b0110, 0)),
        Call(form=COUNTER, mask=(131, 0)),
    ):
        call = replace(call, operation=number("int4b_t"), type=number("half"), mode=RINT)
        found, report = run("vector_cast", soc, call, d, a)
        assert [hazard.kind for hazard in report.hazards] == ["argument"]
        assert "cuts a pair of 4-bit numbers" in report.hazards[0].message
        np.testing.assert_array_equal(found, d)


# ---- SetDeqScale ----


@pytest.mark.parametrize("soc", SOCS)
def test_int32_to_half_with_its_scale(soc: str) -> None:
    """Pages Cast and SetDeqScale: the mode has no effect; the result is the number times the scale."""
    a, d = values("int32_t", 1) % 100_000, values("half", 0)
    scale = np.float16(0.0123)
    call = call_of("half", "int32_t", TRUNC, count=400, scalar=scale.tobytes())
    found, report = run("vector_cast", soc, call, d, a)
    assert report.hazards == ()
    np.testing.assert_array_equal(found[:400], (a[:400].astype(np.float64) * float(scale)).astype(np.float16))
    _, report = run("vector_cast", soc, replace(call, scalar=b""), d, a)
    assert [hazard.kind for hazard in report.hazards] == ["uninitialised"]
    assert "SetDeqScale" in report.hazards[0].message


# ---- Small floating-point types of dav-3510 ----


def as_float(codes: Array, type: str) -> Array:
    if type.startswith("fp8"):
        dtype = torch.float8_e4m3fn if type == "fp8_e4m3fn_t" else torch.float8_e5m2
        return torch.from_numpy(codes.copy()).view(dtype).float().numpy()
    table = {"fp4x2_e2m1_t": (0, 0.5, 1, 1.5, 2, 3, 4, 6), "fp4x2_e1m2_t": tuple(i * 0.25 for i in range(8))}[type]
    split = np.stack([codes & 15, codes >> 4], -1).reshape(-1)
    return np.array([-table[c & 7] if c & 8 else table[c] for c in split], np.float32)


@pytest.mark.parametrize("type", ["fp8_e4m3fn_t", "fp8_e5m2_t"])
def test_eight_bit_floats(type: str) -> None:
    """Page Cast (dav-3510): fp8 -> float is exact, float -> fp8 rounds to nearest even."""
    codes = np.resize(np.arange(256, dtype=np.uint8), REGION)
    found, report = run(
        "vector_cast", "950pr", call_of("float", type, NONE, count=256), np.zeros(4096, np.float32), codes
    )
    assert report.hazards == ()
    np.testing.assert_array_equal(found[:256], as_float(codes[:256], type))
    most = 448.0 if type == "fp8_e4m3fn_t" else 57344.0
    a = np.concatenate([values("float", 1, 4000, scale=30.0), np.linspace(-most, most, 96, dtype=np.float32)])
    found, report = run("vector_cast", "950pr", call_of(type, "float", RINT, count=4096), codes, a)
    assert report.hazards == ()
    dtype = torch.float8_e4m3fn if type == "fp8_e4m3fn_t" else torch.float8_e5m2
    wanted = torch.from_numpy(a).to(dtype).view(torch.uint8).numpy()
    np.testing.assert_array_equal(found[:4096], wanted)


@pytest.mark.parametrize("type", ["fp4x2_e2m1_t", "fp4x2_e1m2_t"])
def test_four_bit_floats(type: str) -> None:
    """Page Cast (dav-3510): fp4 -> bfloat16 is exact, bfloat16 -> fp4 has five modes; it saturates."""
    codes = np.resize(np.arange(256, dtype=np.uint8), REGION)
    found, report = run(
        "vector_cast", "950pr", call_of("bfloat16_t", type, NONE, count=512), values("bfloat16_t", 0), codes
    )
    assert report.hazards == ()
    np.testing.assert_array_equal(from_bfloat16(found[:512]), as_float(codes[:256], type))
    grid = np.unique(as_float(codes[:256], type)).astype(np.float64)
    a = to_bfloat16(np.linspace(-7.5, 7.5, REGION // 2))
    for mode in FIVE:
        found, report = run("vector_cast", "950pr", call_of(type, "bfloat16_t", mode, count=4096), codes, a)
        assert report.hazards == ()
        x = from_bfloat16(a[:4096]).astype(np.float64)
        np.testing.assert_array_equal(
            as_float(found[:2048], type), [on_grid(v, grid, mode) for v in x], err_msg=str(mode)
        )
    masked = call_of(type, "bfloat16_t", RINT, form=NUMBER, mask=(64, 0), repeats=3, repeat=(1, 5, 0))
    found, report = run("vector_cast", "950pr", masked, codes, a)
    assert report.hazards == ()
    if type == "fp4x2_e2m1_t":
        for repeat in range(3):
            x = from_bfloat16(a[repeat * 80 : repeat * 80 + 64]).astype(np.float64)
            np.testing.assert_array_equal(
                as_float(found[repeat * 32 : repeat * 32 + 32], type), [on_grid(v, grid, RINT) for v in x]
            )
        np.testing.assert_array_equal(found[96:], codes[96:])


def on_grid(x: float, grid: Array, mode: int) -> float:
    """The number of the grid that the mode picks; ties of RINT go to the even code, every second one of a side."""
    if x <= grid[0] or x >= grid[-1]:
        return float(np.clip(x, grid[0], grid[-1]))
    above = float(grid[grid >= x][0])
    below = float(grid[grid <= x][-1])
    if above == below or mode in (FLOOR, CEIL, TRUNC):
        return {FLOOR: below, CEIL: above}.get(mode, below if x > 0 else above)
    if x - below != above - x:
        return below if x - below < above - x else above
    if mode == ROUND:
        return above if x > 0 else below
    place = int(np.flatnonzero(np.unique(np.abs(grid)) == abs(below))[0])
    return below if place % 2 == 0 else above


def test_hifloat8() -> None:
    """Page Cast (dav-3510): hifloat8 -> float is exact; to hifloat8 with CAST_ROUND; back and forth it is the same."""
    codes = np.resize(np.arange(256, dtype=np.uint8), REGION)
    found, report = run(
        "vector_cast", "950pr", call_of("float", "hifloat8_t", NONE, count=256), values("float", 0), codes
    )
    assert report.hazards == ()
    assert found[0x08] == 1.0 and found[0x0C] == 1.5 and math.isnan(found[0x80])
    finite = np.flatnonzero(np.isfinite(found[:256]))
    a = np.resize(found[finite], 4096)
    again, report = run("vector_cast", "950pr", call_of("hifloat8_t", "float", ROUND, count=len(finite)), codes, a)
    assert report.hazards == ()
    np.testing.assert_array_equal(again[: len(finite)], codes[finite])


# ---- Saturation ----

INF, NAN = np.inf, np.nan
BORDER = np.array([3.4028235e38, -3.4028235e38, INF, -INF, NAN, 70000.0, -0.0, 1.5], np.float32)


def bordered() -> Array:
    return np.resize(BORDER, 4096)


def test_floats_that_do_not_fit_on_2201() -> None:
    """Appendix "boundary values", table 32: without saturation (default) infinity, NaN; integers always saturate."""
    found, _ = run("vector_cast", "a3", call_of("half", "float", RINT, count=8), values("half", 0), bordered())
    np.testing.assert_array_equal(found[:8], np.array([INF, -INF, INF, -INF, NAN, INF, -0.0, 1.5], np.float16))
    assert np.signbit(found[6])
    found, _ = run(
        "vector_cast", "a3", call_of("bfloat16_t", "float", RINT, count=8), values("bfloat16_t", 0), bordered()
    )
    np.testing.assert_array_equal(from_bfloat16(found[:5]), np.array([INF, -INF, INF, -INF, NAN], np.float32))
    found, _ = run("vector_cast", "a3", call_of("int32_t", "float", RINT, count=8), values("int32_t", 0), bordered())
    assert list(found[:8]) == [2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 0, 70000, 0, 2]
    found, _ = run("vector_cast", "a3", call_of("int16_t", "float", RINT, count=8), values("int16_t", 0), bordered())
    assert list(found[:8]) == [32767, -32768, 32767, -32768, 0, 32767, 0, 2]
    found, _ = run("vector_cast", "a3", call_of("float", "float", TRUNC, count=8), values("float", 0), bordered())
    assert not np.signbit(found[6])  # -0 becomes +0


def test_floats_that_do_not_fit_on_3510() -> None:
    """Page SetCtrlSpr: bit 48 clear, its default, saturates and NaN gives 0, set: infinity, NaN kept; bit 59 so for
    integers, which then lose their high bits; ResetCtrlSpr restores the default."""
    cases: list[tuple[int, list[float]]] = [
        (0, [65504, -65504, 65504, -65504, 0, 65504]),
        (1, [INF, -INF, INF, -INF, NAN, INF]),
        (17, [65504, -65504, 65504, -65504, 0, 65504]),
    ]
    for bits, wanted in cases:
        call = call_of("half", "float", RINT, count=8, repeat=(8, 8, bits))
        found, report = run("vector_cast", "950pr", call, values("half", 0), bordered())
        assert report.hazards == ()
        np.testing.assert_array_equal(found[:6], np.array(wanted, np.float16))
    for bits, low in ((0, 32767), (2, 70000 - 65536)):
        found, _ = run(
            "vector_cast",
            "950pr",
            call_of("int16_t", "float", RINT, count=8, repeat=(8, 8, bits)),
            values("int16_t", 0),
            bordered(),
        )
        assert found[5] == low
    nan = np.full(4096, NAN, np.float32)
    for bits, code in ((0, 0x00), (4, 0x7F), (1, 0x7F)):
        call = call_of("fp8_e4m3fn_t", "float", RINT, count=8, repeat=(8, 8, bits))
        found, _ = run("vector_cast", "950pr", call, values("uint8_t", 0), nan)
        assert found[0] == code, bits
