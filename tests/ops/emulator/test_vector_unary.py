"""Vector instructions of one tensor and of a tensor and a scalar: every form, type and documented border."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.ops.emulator.vector_oracle import (
    BITS,
    COUNT,
    NUMBER,
    Array,
    Call,
    check,
    forms,
    from_bfloat16,
    named,
    replace,
    run,
    stored,
    to_bfloat16,
    values,
)

SOCS = ("a3", "950pr")
TYPES = (
    "half",
    "float",
    "int16_t",
    "int32_t",
    "uint16_t",
    "bfloat16_t",
    "uint32_t",
    "int64_t",
    "uint64_t",
    "",
    "int8_t",
    "uint8_t",
)
ABS, RELU, EXP, LN, SQRT, RSQRT, RECIPROCAL, NOT, NEG, FAST_SQRT, FAST_RSQRT, EXP_KEEPING, SUBS, DIVS = range(14)
ADDS, MULS, MAXS, MINS, LEAKY_RELU, SHIFT_LEFT, SHIFT_RIGHT, AXPY, SHIFT_ROUNDING, MASKED_ADDS, RESTORED = range(20, 31)
FLOAT, WIDE = 1, 9


def quiet(f: Callable[..., Array]) -> Callable[..., Array]:
    def without_warnings(*operands: Array) -> Array:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return f(*operands)

    return without_warnings


def scalar(type: str, value: float) -> bytes:
    if type == "bfloat16_t":
        return bytes(to_bfloat16(np.array([value])).tobytes())
    return np.array([value]).astype(stored(type)).tobytes()


def nearest(f: Callable[[Array], Array]) -> Callable[..., Array]:
    """f in float64, rounded to float32 and, for half, from there."""

    def rounded(a: Array, d: Array) -> Array:
        return f(a.astype(np.float64)).astype(np.float32).astype(a.dtype)

    return quiet(rounded)


def inverted(a: Array, d: Array) -> Array:
    word = np.dtype(f"uint{8 * a.itemsize}")
    return (~a.view(word)).view(a.dtype)


UNARY: dict[int, Callable[..., Array]] = {
    ABS: lambda a, d: np.abs(a),
    RELU: lambda a, d: np.maximum(a, a.dtype.type(0)),
    EXP: nearest(np.exp),
    LN: nearest(np.log),
    SQRT: nearest(np.sqrt),
    RSQRT: nearest(lambda a: 1 / np.sqrt(a)),
    RECIPROCAL: nearest(lambda a: 1 / a),
    NOT: inverted,
    NEG: lambda a, d: np.negative(a),
}
BASIC = ("half", "float")
# The pages' sections on types; int8_t, int64_t and uint64_t with a count alone.
UNARY_2201: dict[int, tuple[str, ...]] = {ABS: BASIC, RELU: (*BASIC, "int32_t"), NOT: ("int16_t", "uint16_t")}
UNARY_2201 |= dict.fromkeys((EXP, LN, SQRT, RSQRT, RECIPROCAL), BASIC)
UNARY_3510 = UNARY_2201 | {
    ABS: (*BASIC, "int8_t", "int16_t", "int32_t", "int64_t"),
    RELU: (*BASIC, "int32_t", "int64_t"),
}
UNARY_3510[NOT] = (*BASIC, *(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)))
UNARY_3510[NEG] = (*BASIC, "int8_t", "int16_t", "int32_t", "int64_t")


def argument(type: str, operation: int) -> Array:
    a = values(type, 1)
    if operation == EXP:
        return np.clip(a, a.dtype.type(-9), a.dtype.type(9))  # no subnormal half: see test_subnormal_numbers
    return np.abs(a) + a.dtype.type(0.25) if operation in (LN, SQRT, RSQRT, RECIPROCAL) else a


@pytest.mark.parametrize("soc", SOCS)
def test_every_type_with_a_count(soc: str) -> None:
    for operation, types in (UNARY_2201 if soc == "a3" else UNARY_3510).items():
        for type in types:
            d, a = values(type, 0), argument(type, operation)
            for count in (3, 999):
                call = Call(operation=operation, type=TYPES.index(type), count=count)
                found, report = run("vector_unary", soc, call, d, a)
                assert report.hazards == ()
                wanted = UNARY[operation](a[:count], None)
                assert np.array_equal(found[:count].view(np.uint8), wanted.view(np.uint8)), (operation, type)
                assert np.array_equal(found[count:].view(np.uint8), d[count:].view(np.uint8))


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("operation", [ABS, RELU, EXP, LN, SQRT, RSQRT, RECIPROCAL])
def test_every_form(soc: str, operation: int) -> None:
    """Pages "Masks" and "High-dimensional slices"."""
    d, a = values("float", 0), argument("float", operation)
    for call in forms(64):
        check("vector_unary", soc, replace(call, operation=operation, type=FLOAT), d, (a,), UNARY[operation])
    if operation == ABS:
        d, a = values("int16_t", 0), values("int16_t", 1)
        for call in forms(128):
            check("vector_unary", soc, replace(call, operation=NOT, type=2), d, (a,), inverted)


@pytest.mark.parametrize("operation", [EXP, LN, RSQRT])
def test_elementary_functions_give_the_nearest_float(operation: int) -> None:
    """elementary.h: over the whole range the error is half a unit in the last place, at most one in a hundred thousand
    more. The pages allow dav-3510 one unit."""
    functions: dict[int, Callable[[Array], Array]] = {EXP: np.exp, LN: np.log, RSQRT: lambda x: 1 / np.sqrt(x)}
    f = functions[operation]
    wrong = total = 0
    for seed in range(25):
        random = np.random.default_rng(seed)
        a = random.uniform(-104, 89, 4096) if operation == EXP else np.exp2(random.uniform(-149, 128, 4096))
        a = a.astype(np.float32)
        with np.errstate(all="ignore"):
            wanted = f(a.astype(np.float64)).astype(np.float32)
        found, _ = run("vector_unary", "a3", Call(operation=operation, type=FLOAT, count=4096), a, a)
        far = found != wanted
        assert np.all(np.abs(found[far].view(np.int32) - wanted[far].view(np.int32)) <= 1)
        wrong, total = wrong + int(far.sum()), total + 4096
    assert wrong <= total // 100_000 + 1


INF, NAN = np.inf, np.nan


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", BASIC)
def test_borders(soc: str, type: str) -> None:
    """Appendix "boundary values", tables 2 to 8 and 19."""
    most = 65504.0 if type == "half" else 3.4028235e38
    rows: dict[int, list[tuple[float, float]]] = {
        EXP: [(-most, 0.0), (most, INF), (0.0, 1.0), (-0.0, 1.0), (NAN, NAN), (INF, INF), (-INF, 0.0)],
        LN: [(-most, NAN), (0.0, -INF), (-0.0, -INF), (NAN, NAN), (INF, INF), (-INF, NAN), (1.0, 0.0)],
        ABS: [(-most, most), (-0.0, 0.0), (NAN, NAN), (-INF, INF)],
        RECIPROCAL: [(0.0, INF), (-0.0, -INF), (NAN, NAN), (INF, 0.0), (-INF, -0.0)],
        SQRT: [(-most, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, NAN), (NAN, NAN), (4.0, 2.0)],
        RSQRT: [(-most, NAN), (0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, NAN), (NAN, NAN)],
        RELU: [(-most, 0.0), (most, most), (-0.0, 0.0), (NAN, NAN), (INF, INF), (-INF, 0.0)],
    }
    for operation, cases in rows.items():
        a = values(type, 1)
        a[: len(cases)] = [x for x, _ in cases]
        found, report = run(
            "vector_unary", soc, Call(operation=operation, type=TYPES.index(type), count=len(cases)), a, a
        )
        assert report.hazards == ()
        wanted = np.array([y for _, y in cases], found.dtype)
        np.testing.assert_array_equal(found[: len(cases)], wanted, err_msg=str(operation))
        number = ~np.isnan(wanted)
        np.testing.assert_array_equal(
            np.signbit(found[: len(cases)])[number], np.signbit(wanted)[number], err_msg=str(operation)
        )
    leaky = [
        (-most, most, -INF),
        (-most, -0.0, 0.0),
        (most, NAN, most),
        (-0.0, most, -0.0),
        (-0.0, -most, 0.0),
        (0.0, INF, 0.0),
        (-0.0, INF, NAN),
        (-INF, 0.0, NAN),
    ]
    for x, slope, wanted_value in leaky:
        a = values(type, 1)
        a[0] = x
        found, _ = run(
            "vector_unary", soc, Call(operation=LEAKY_RELU, type=TYPES.index(type), scalar=scalar(type, slope)), a, a
        )
        np.testing.assert_array_equal(found[0], a.dtype.type(wanted_value))
        assert np.isnan(wanted_value) or np.signbit(found[0]) == np.signbit(wanted_value)


def test_subnormal_numbers() -> None:
    """Pages Exp, Sqrt, Rsqrt: dav-3510 flushes by default, not with FTZ_FALSE or FAST_INVERSE, which end at 2^126;
    appendix, table 5: dav-2201 gives 1 / MAX as a subnormal number."""
    small = np.float32(1e-40)
    cases = [
        ("a3", EXP, -95.0, np.exp(np.float64(-95)).astype(np.float32)),
        ("950pr", EXP, -95.0, 0.0),
        ("950pr", EXP_KEEPING, -95.0, np.exp(np.float64(-95)).astype(np.float32)),
        ("a3", RECIPROCAL, 3.4028235e38, np.float32(2.938736e-39)),
        ("950pr", RECIPROCAL, 3.4028235e38, 0.0),
        ("a3", SQRT, small, np.sqrt(small)),
        ("950pr", SQRT, small, 0.0),
        ("950pr", FAST_SQRT, small, np.sqrt(small)),
        ("950pr", FAST_SQRT, 1e38, 0.0),
        ("950pr", FAST_RSQRT, 1e38, INF),
        ("950pr", FAST_RSQRT, 4.0, 0.5),
    ]
    for soc, operation, x, wanted in cases:
        a = np.full(4096, x, np.float32)
        found, report = run("vector_unary", soc, Call(operation=operation, type=FLOAT, count=9), a, a)
        assert report.hazards == ()
        assert found[0] == wanted, (soc, operation, x, found[0])


# ---- With a scalar ----


def plain(f: Callable[[Array, Array], Array], type: str, s: bytes) -> Callable[..., Array]:
    if type == "bfloat16_t":
        number = from_bfloat16(np.frombuffer(s, np.uint16))[0]
        return quiet(lambda a, d: to_bfloat16(f(from_bfloat16(a), number)))
    number = np.frombuffer(s, stored(type))[0]
    return quiet(lambda a, d: f(a, number))


SCALAR: dict[int, Callable[[Array, Array], Array]] = {
    ADDS: lambda a, s: a + s,
    MULS: lambda a, s: a * s,
    MAXS: lambda a, s: np.maximum(a, s),
    MINS: lambda a, s: np.minimum(a, s),
    LEAKY_RELU: lambda a, s: np.where(a >= 0, a, a * s),
}
WHOLE = (*BASIC, "int16_t", "int32_t")
SCALAR_2201: dict[int, tuple[str, ...]] = dict.fromkeys((ADDS, MULS, MAXS, MINS), WHOLE) | {LEAKY_RELU: BASIC}
SCALAR_3510: dict[int, tuple[str, ...]] = dict.fromkeys(
    (ADDS, MAXS, MINS), (*WHOLE, "bfloat16_t", "int8_t", "uint8_t", "int64_t", "uint64_t")
)
SCALAR_3510 |= {MULS: (*WHOLE, "bfloat16_t", "int64_t", "uint64_t"), LEAKY_RELU: BASIC}


@pytest.mark.parametrize("soc", SOCS)
def test_scalars_of_every_type(soc: str) -> None:
    for operation, types in (SCALAR_2201 if soc == "a3" else SCALAR_3510).items():
        for type in types:
            s = scalar(type, 3 if "int" in type else -0.75)
            call = Call(operation=operation, type=TYPES.index(type), count=501, scalar=s)
            check("vector_unary", soc, call, values(type, 0), (values(type, 1),), plain(SCALAR[operation], type, s))


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("operation", [ADDS, MULS, MAXS, MINS, LEAKY_RELU])
def test_scalars_in_every_form(soc: str, operation: int) -> None:
    s = scalar("float", 1.25)
    for call in forms(64):
        call = replace(call, operation=operation, type=FLOAT, scalar=s)
        check(
            "vector_unary", soc, call, values("float", 0), (values("float", 1),), plain(SCALAR[operation], "float", s)
        )


@pytest.mark.parametrize("soc", SOCS)
def test_axpy(soc: str) -> None:
    """Page Axpy: dst = scalar * src + dst; half -> float with 64 elements of a repeat from four blocks."""
    for type in ("half", "float") if soc == "a3" else ("half", "float", "int64_t", "uint64_t"):
        s = scalar(type, 3.0)
        number = np.frombuffer(s, stored(type))[0]
        call = Call(operation=AXPY, type=TYPES.index(type), count=300, scalar=s)
        check("vector_unary", soc, call, values(type, 0), (values(type, 1),), quiet(lambda a, d, n=number: a * n + d))
    d, a, s = values("float", 0), values("half", 1, scale=1e4), scalar("half", 1234.0)
    for call in [*forms(64), Call(form=NUMBER, mask=(64, 0), repeats=8, repeat=(8, 4, 0))]:
        call = replace(call, type=WIDE, operation=AXPY, scalar=s)
        check("vector_unary", soc, call, d, (a,), lambda a, d: a.astype(np.float32) * np.float32(1234.0) + d)


def test_axpy_of_bfloat16() -> None:
    d, a, s = values("bfloat16_t", 0), values("bfloat16_t", 1), scalar("bfloat16_t", 1.5)
    check(
        *("vector_unary", "950pr", Call(operation=AXPY, type=5, count=200, scalar=s), d, (a,)),
        lambda a, d: to_bfloat16(from_bfloat16(to_bfloat16(from_bfloat16(a) * np.float32(1.5))) + from_bfloat16(d)),
    )


def test_a_scalar_on_either_side() -> None:
    """Pages Subs and Divs (dav-3510): src - scalar and scalar - src."""
    for operation, f in ((SUBS, np.subtract), (DIVS, np.divide)):
        for type in BASIC:
            s = scalar(type, 2.5)
            number = np.frombuffer(s, stored(type))[0]
            for mode in (0, 1):
                call = Call(operation=operation, type=TYPES.index(type), count=77, mode=mode, scalar=s)
                d, a = values(type, 0), values(type, 1)
                check(
                    "vector_unary",
                    "950pr",
                    call,
                    d,
                    (a,),
                    lambda a, d, f=f, n=number, m=mode: f(n, a) if m else f(a, n),
                )


# ---- Shifts ----


def left(a: Array, amount: int) -> Array:
    """The sign stays, the bits below it move: page ShiftLeft."""
    width = 8 * a.itemsize
    moved = np.array([int(x) << amount for x in a], object)
    if a.dtype.kind == "u":
        return np.array([int(x) % (1 << width) for x in moved], a.dtype)
    sign = 1 << (width - 1)
    bits = [int(x) % sign + (sign if int(y) < 0 else 0) for x, y in zip(moved, a, strict=True)]
    return np.array([x - (1 << width) if x >= sign else x for x in bits], a.dtype)


@pytest.mark.parametrize("soc", SOCS)
def test_shifts(soc: str) -> None:
    types = ("int16_t", "uint16_t", "int32_t", "uint32_t")
    for type in types if soc == "a3" else (*types, "int8_t", "uint8_t", "int64_t", "uint64_t"):
        d, a = values(type, 0), values(type, 1)
        for amount in (0, 1, 3, 8 * a.itemsize - 1):
            call = Call(type=TYPES.index(type), count=200, scalar=scalar(type, amount))
            check("vector_unary", soc, replace(call, operation=SHIFT_LEFT), d, (a,), lambda a, d, n=amount: left(a, n))
            check(
                "vector_unary",
                soc,
                replace(call, operation=SHIFT_RIGHT),
                d,
                (a,),
                lambda a, d, n=amount: a >> a.dtype.type(n),
            )
    d, a = values("int16_t", 0), values("int16_t", 1)
    for call in forms(128):
        call = replace(call, operation=SHIFT_RIGHT, type=2, scalar=scalar("int16_t", 5))
        check("vector_unary", soc, call, d, (a,), lambda a, d: a >> 5)


def test_the_examples_of_the_shift_pages() -> None:
    """int16_t 1010101010101010 to the left by 1 and 3, to the right by 1 and 3; 17 >> 5 rounds to 1."""
    a = np.full(8192, 0b1010101010101010, np.uint16).view(np.int16)
    cases = [
        (SHIFT_LEFT, 1, 0b1101010101010100),
        (SHIFT_LEFT, 3, 0b1101010101010000),
        (SHIFT_RIGHT, 1, 0b1101010101010101),
        (SHIFT_RIGHT, 3, 0b1111010101010101),
    ]
    for operation, amount, wanted in cases:
        found, _ = run("vector_unary", "a3", Call(operation=operation, type=2, scalar=scalar("int16_t", amount)), a, a)
        assert found.view(np.uint16)[0] == wanted
    seventeen = np.full(8192, 17, np.int16)
    call = Call(operation=SHIFT_ROUNDING, type=2, mask=(8, 0), scalar=scalar("int16_t", 5), form=BITS)
    found, report = run("vector_unary", "a3", call, seventeen, seventeen)
    assert found[0] == 1 and report.hazards == ()
    _, report = run("vector_unary", "950pr", call, seventeen, seventeen)
    assert named(report.hazards) == [("argument", "ShiftRight: roundEn is true; dav-3510 does not round, pass false.")]
    _, report = run(
        "vector_unary",
        "a3",
        Call(operation=SHIFT_ROUNDING, type=4, scalar=scalar("uint16_t", 5), form=BITS),
        seventeen,
        seventeen,
    )
    assert "it rounds int16_t and int32_t alone" in report.hazards[0].message


@pytest.mark.parametrize("soc", SOCS)
def test_a_negative_shift_is_refused(soc: str) -> None:
    a = values("int32_t", 1)
    for operation in (SHIFT_LEFT, SHIFT_RIGHT):
        found, report = run(
            "vector_unary", soc, Call(operation=operation, type=3, count=8, scalar=scalar("int32_t", -1)), a, a
        )
        assert [hazard.kind for hazard in report.hazards] == ["argument"]
        assert "scalarValue is -1" in report.hazards[0].message
        np.testing.assert_array_equal(found, a)


# ---- The mask register ----


def test_a_count_without_its_mask() -> None:
    """Page "Masks" and page Adds: with isSetMask false the register's mask holds, count not; on dav-3510 isSetMask has
    no effect in this form."""
    d, a, s = values("float", 0), values("float", 1), scalar("float", 1.0)
    call = Call(operation=MASKED_ADDS, type=FLOAT, count=1, mask=(0b1011, 0), scalar=s)
    found, report = run("vector_unary", "a3", call, d, a)
    assert report.hazards == ()
    np.testing.assert_array_equal(np.flatnonzero(found != d), [0, 1, 3])
    found, _ = run("vector_unary", "950pr", call, d, a)
    np.testing.assert_array_equal(np.flatnonzero(found != d), [0])


@pytest.mark.parametrize("soc", SOCS)
def test_a_count_puts_the_whole_mask_back(soc: str) -> None:
    """Page "Masks": behind a form with a count the mask register has every bit set, whatever it had before."""
    d, a = values("float", 0), values("float", 1)
    found, report = run("vector_unary", soc, Call(operation=RESTORED, type=FLOAT, scalar=scalar("float", 2.0)), d, a)
    assert report.hazards == ()
    np.testing.assert_array_equal(found[:64], a[:64] + 2)


@pytest.mark.parametrize("soc", SOCS)
def test_exp_in_place_and_in_any_schedule(soc: str) -> None:
    a = values("float", 1)
    wanted = torch.from_numpy(a[:1000].copy()).double().exp().float().numpy()
    for seed in (None, 1, 2):
        found, report = run("vector_unary", soc, Call(operation=EXP, type=FLOAT, count=1000, place=1), a, a, seed=seed)
        assert report.hazards == ()
        np.testing.assert_array_equal(found[:1000], wanted)
        np.testing.assert_array_equal(found[1000:], a[1000:])
    assert Call(form=COUNT).lanes(64) == [[0]]
