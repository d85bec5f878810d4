"""Vector instructions of two tensors: every form, type and documented border, against numpy."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.ops.emulator.vector_oracle import (
    BITS,
    COUNT,
    COUNTER,
    NUMBER,
    Array,
    Call,
    check,
    expected,
    forms,
    from_bfloat16,
    named,
    replace,
    run,
    to_bfloat16,
    values,
)

SOCS = ("a3", "950pr")
TYPES = ("half", "float", "int16_t", "int32_t", "uint16_t", "bfloat16_t", "uint32_t", "int64_t", "uint64_t")
ADD, SUB, MUL, DIV, MAX, MIN, ADD_RELU, SUB_RELU, FUSED, FUSED_RELU, MUL_ADD_DST, AND, OR, DIV_EXACT = range(14)
FLOAT, WIDE = 1, 9


def quiet(f: Callable[..., Array]) -> Callable[..., Array]:
    def without_warnings(*operands: Array) -> Array:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return f(*operands)

    return without_warnings


def relu(x: Array) -> Array:
    return np.asarray(np.maximum(x, x.dtype.type(0)))


def integer_quotient(a: Array, b: Array) -> Array:
    """Towards zero, as C divides."""
    whole = np.abs(a.astype(object)) // np.abs(b.astype(object))
    return np.asarray(np.where((a < 0) != (b < 0), -whole, whole).astype(a.dtype))


# Pages Add, Sub, Mul, Div, Max, Min, AddRelu, SubRelu, FusedMulAdd, MulAddRelu, MulAddDst, And, Or: their formulas.
DEFINITION: dict[int, Callable[..., Array]] = {
    ADD: lambda a, b, d: a + b,
    SUB: lambda a, b, d: a - b,
    MUL: lambda a, b, d: a * b,
    DIV: lambda a, b, d: a / b if a.dtype.kind == "f" else integer_quotient(a, b),
    MAX: lambda a, b, d: np.maximum(a, b),
    MIN: lambda a, b, d: np.minimum(a, b),
    ADD_RELU: lambda a, b, d: relu(a + b),
    SUB_RELU: lambda a, b, d: relu(a - b),
    FUSED: lambda a, b, d: a * d + b,
    FUSED_RELU: lambda a, b, d: relu(a * d + b),
    MUL_ADD_DST: lambda a, b, d: a * b + d,
    AND: lambda a, b, d: a & b,
    OR: lambda a, b, d: a | b,
}
DEFINITION[DIV_EXACT] = DEFINITION[DIV]


def rounding(f: Callable[..., Array], type: str) -> Callable[..., Array]:
    """bfloat16 steps of a float32 formula: every operation here is one, but a product and a sum, which round twice."""
    if type != "bfloat16_t":
        return quiet(f)

    def rounded(a: Array, b: Array, d: Array) -> Array:
        a, b, d = from_bfloat16(a), from_bfloat16(b), from_bfloat16(d)
        if f is DEFINITION[FUSED]:
            return to_bfloat16(from_bfloat16(to_bfloat16(a * d)) + b)
        return to_bfloat16(f(a, b, d))

    return rounded


ALL_2201 = ("half", "float", "int16_t", "int32_t")
ALL_3510 = (*ALL_2201, "bfloat16_t", "uint16_t", "uint32_t", "int64_t", "uint64_t")
LONG = ("int64_t", "uint64_t")
# What each page's section on types says.
Types = dict[tuple[int, ...], tuple[str, ...]]
TYPES_2201: Types = {
    (ADD, SUB, MUL, MAX, MIN): ALL_2201,
    (DIV, FUSED, FUSED_RELU, MUL_ADD_DST): ("half", "float"),
    (ADD_RELU, SUB_RELU): ("half", "float", "int16_t"),
    (AND, OR): ("int16_t", "uint16_t"),
}
TYPES_3510: Types = {
    (ADD, SUB, MUL, MAX, MIN): ALL_3510,
    (FUSED_RELU, MUL_ADD_DST): ("half", "float", *LONG),
    (ADD_RELU, SUB_RELU): ("half", "float", "int16_t", *LONG),
    (FUSED,): ("half", "float", "bfloat16_t", *LONG),
    (DIV,): ("half", "float", "int16_t", "uint16_t", "int32_t", "uint32_t", *LONG),
    (DIV_EXACT,): ("half", "float"),
    (AND, OR): ("int16_t", "uint16_t", "int32_t", "uint32_t", *LONG),
}


@pytest.mark.parametrize("soc", SOCS)
def test_every_type_and_operation_with_a_count(soc: str) -> None:
    for operations, types in (TYPES_2201 if soc == "a3" else TYPES_3510).items():
        for operation, type in itertools.product(operations, types):
            d, a, b = (values(type, seed) for seed in range(3))
            if operation == DIV and d.dtype.kind in "iu" and type != "bfloat16_t":
                b[b == 0] = 1
                b[b == -1 if b.dtype.kind == "i" else b == 0] = 3
                b >>= np.array(b.dtype.itemsize * 4, b.dtype)  # quotients that are not all 0
                b[b == 0] = 7
                b[b == -1 if b.dtype.kind == "i" else b == 0] = 5
            for count in (1, 77, 1000):
                call = Call(operation=operation, type=TYPES.index(type), count=count)
                check("vector_binary", soc, call, d, (a, b), rounding(DEFINITION[operation], type))


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("operation", [ADD, SUB, MUL, MAX, MIN, ADD_RELU, SUB_RELU, FUSED, FUSED_RELU])
def test_every_form(soc: str, operation: int) -> None:
    """Pages "Masks" and "High-dimensional slices": lanes, block and repeat strides; what is not let through stays."""
    d, a, b = (values("float", seed) for seed in range(3))
    for call in forms(64):
        check(
            "vector_binary",
            soc,
            replace(call, operation=operation, type=FLOAT),
            d,
            (a, b),
            quiet(DEFINITION[operation]),
        )


@pytest.mark.parametrize("soc", SOCS)
def test_sixteen_bits_have_both_words_of_the_mask(soc: str) -> None:
    """Page "Masks": 128 lanes of 16 bits, the second number of mask[] is of lanes 64 to 127."""
    d, a, b = (values("uint16_t", seed) for seed in range(3))
    for call in forms(128):
        check("vector_binary", soc, replace(call, operation=AND, type=4), d, (a, b), DEFINITION[AND])


@pytest.mark.parametrize("soc", SOCS)
def test_half_times_half_into_float(soc: str) -> None:
    """Page MulAddDst: half, half -> float has 64 elements a repeat; [Borders], table 21: MAX * MAX is finite there."""
    d, a, b = values("float", 0), values("half", 1, scale=1e4), values("half", 2, scale=1e4)

    def exact(a: Array, b: Array, d: Array) -> Array:
        return (a.astype(np.float32) * b.astype(np.float32) + d).astype(np.float32)

    for call in forms(64):
        if call.form != COUNT and call.repeats > 1 and call.repeat == (8, 8, 8):
            call = replace(call, repeat=(8, 4, 4))
        check("vector_binary", soc, replace(call, type=WIDE, operation=MUL_ADD_DST), d, (a, b), exact)


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("place", [1, 2])
def test_in_place(soc: str, place: int) -> None:
    """Page "General notes": a source may be dst when they overlap wholly."""
    d, a, b = (values("float", seed) for seed in range(3))
    for call in (Call(count=1000), Call(form=BITS, repeats=5, mask=(0xF0F0_F0F0_F0F0_F0F0, 0))):
        check(
            "vector_binary",
            soc,
            replace(call, operation=SUB, type=FLOAT, place=place),
            d,
            (a, b),
            quiet(DEFINITION[SUB]),
        )


@pytest.mark.parametrize("soc", SOCS)
def test_repeats_accumulate_in_the_second_source(soc: str) -> None:
    """Page "General notes": dst may be src1 of the next repeat where both repeat strides are 0."""
    d, a, b = (values("float", seed) for seed in range(3))
    call = Call(operation=ADD, type=FLOAT, form=NUMBER, mask=(64, 0), repeats=20, repeat=(0, 8, 0), place=2)
    check("vector_binary", soc, call, d, (a, b), DEFINITION[ADD])


INF, NAN, MOST = np.inf, np.nan, {"half": 65504.0, "float": 3.4028235e38}


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", ["half", "float"])
def test_borders(soc: str, type: str) -> None:
    """Appendix "boundary values", tables 9 to 14, 24: infinity, NaN and the signs of zero."""
    most = MOST[type]
    rows: dict[int, list[tuple[float, float, float]]] = {
        ADD: [
            (-most, -most, -INF),
            (-most, most, 0.0),
            (-0.0, -0.0, -0.0),
            (0.0, -0.0, 0.0),
            (INF, -INF, NAN),
            (NAN, 1.0, NAN),
        ],
        SUB: [(-most, most, -INF), (-0.0, 0.0, -0.0), (-0.0, -0.0, 0.0), (INF, INF, NAN), (-INF, INF, -INF)],
        MUL: [(most, most, INF), (most, -0.0, -0.0), (0.0, INF, NAN), (-INF, -INF, INF)],
        DIV: [
            (-most, 0.0, -INF),
            (-most, -0.0, INF),
            (-most, INF, -0.0),
            (0.0, 0.0, NAN),
            (INF, INF, NAN),
            (0.0, -INF, -0.0),
        ],
        MAX: [
            (0.0, -0.0, 0.0),
            (-0.0, 0.0, 0.0),
            (-0.0, -0.0, -0.0),
            (-most, -0.0, -0.0),
            (NAN, INF, NAN),
            (-INF, NAN, NAN),
        ],
        MIN: [
            (0.0, -0.0, -0.0),
            (-0.0, 0.0, -0.0),
            (0.0, INF, 0.0),
            (most, -0.0, -0.0),
            (NAN, INF, NAN),
            (1.0, NAN, NAN),
        ],
        ADD_RELU: [
            (-0.0, -0.0, 0.0),
            (MOST[type], MOST[type], INF),
            (-INF, 1.0, 0.0),
            (NAN, 1.0, NAN),
            (INF, -INF, NAN),
        ],
    }
    for operation, cases in rows.items():
        d, a, b = (values(type, seed) for seed in range(3))
        for i, (x, y, _) in enumerate(cases):
            a[i], b[i] = x, y
        found, report = run(
            "vector_binary", soc, Call(operation=operation, type=TYPES.index(type), count=len(cases)), d, a, b
        )
        assert report.hazards == ()
        wanted = np.array([z for *_, z in cases], found.dtype)
        np.testing.assert_array_equal(found[: len(cases)], wanted)
        number = ~np.isnan(wanted)
        np.testing.assert_array_equal(
            np.signbit(found[: len(cases)])[number], np.signbit(wanted)[number], err_msg=str(operation)
        )


@pytest.mark.parametrize("soc", SOCS)
def test_integers_wrap(soc: str) -> None:
    """Appendix "boundary values", tables 9 to 11: without saturation, the default, the low bits stay."""
    for type in ("int16_t", "int32_t"):
        d, a, b = (values(type, seed) for seed in range(3))
        info = np.iinfo(a.dtype)
        a[:2] = b[:2] = (info.min, info.max)
        for operation, wanted in ((ADD, (0, -2)), (MUL, (0, 1)), (SUB, (0, 0))):
            found, _ = run("vector_binary", soc, Call(operation=operation, type=TYPES.index(type), count=2), d, a, b)
            assert tuple(found[:2]) == wanted


def test_division_flushes_subnormal_numbers_on_3510_alone() -> None:
    """Page Div: the algorithms with FTZ_FALSE handle subnormal numbers, the default does not; dav-2201 keeps them."""
    d, a, b = values("float", 0), np.ones(4096, np.float32), np.full(4096, 3.4028235e38, np.float32)
    kept: NDArray[np.float32] = a / b
    for soc, operation, wanted in (("a3", DIV, kept[0]), ("950pr", DIV, 0.0), ("950pr", DIV_EXACT, kept[0])):
        found, _ = run("vector_binary", soc, Call(operation=operation, type=FLOAT, count=4), d, a, b)
        assert found[0] == wanted


@pytest.mark.parametrize("soc", SOCS)
def test_no_form_leaves_the_control_register_changed(soc: str) -> None:
    """Page "Masks": a form with a count restores norm mode; a mask that stays in its register is no mistake."""
    d, a, b = (values("float", seed) for seed in range(3))
    for call in (Call(count=7), Call(form=COUNTER, mask=(7, 0)), Call(form=NUMBER, mask=(7, 0))):
        _, report = run("vector_binary", soc, replace(call, type=FLOAT), d, a, b)
        assert report.hazards == ()


def test_nothing_to_do() -> None:
    """Every page: a count or repeatTime of 0 does nothing on dav-2201 and is unsure on dav-3510; page "Masks": a mask
    of 0 does nothing."""
    d, a, b = (values("float", seed) for seed in range(3))
    empty = [Call(count=0), Call(form=NUMBER, mask=(64, 0), repeats=0)]
    for call in empty:
        found, report = run("vector_binary", "a3", replace(call, type=FLOAT), d, a, b)
        assert report.hazards == ()
        np.testing.assert_array_equal(found, d)
        _, report = run("vector_binary", "950pr", replace(call, type=FLOAT), d, a, b)
        assert [kind for kind, _ in named(report.hazards)] == ["argument"]
        assert "is 0; it has to be positive on dav-3510." in report.hazards[0].message
    for soc in SOCS:
        found, report = run("vector_binary", soc, Call(type=FLOAT, form=NUMBER, mask=(0, 0), repeats=2), d, a, b)
        assert report.hazards == ()
        np.testing.assert_array_equal(found, d)


@pytest.mark.parametrize("soc", SOCS)
def test_refused_arguments(soc: str) -> None:
    """What is wrong is named and not done."""
    d, a, b = (values("float", seed) for seed in range(3))
    cases = [
        (Call(count=-1), "argument", "Add: count is -1; it has to be positive."),
        (Call(count=100, place=1, offset=32), "argument", "overlap in part"),
        (Call(form=NUMBER, mask=(64, 0), repeats=2, block=(0, 1, 1)), "argument", "the block stride of dst is 0"),
        (Call(count=100, offset=4), "alignment", ""),
        (Call(form=NUMBER, mask=(64, 0), repeats=2, offset=12), "alignment", ""),
    ]
    for call, kind, text in cases:
        found, report = run("vector_binary", soc, replace(call, type=FLOAT), d, a, b)
        assert [hazard.kind for hazard in report.hazards] == [kind], named(report.hazards)
        assert text in report.hazards[0].message
        np.testing.assert_array_equal(found, (d, a)[call.place])


@pytest.mark.parametrize("soc", SOCS)
def test_the_end_of_ub_is_respected(soc: str) -> None:
    """Lanes beyond the buffer: src1 leaves its 48 KB, which its last repeats would read."""
    d, a, b = (values("float", seed) for seed in range(3))
    call = Call(type=FLOAT, form=NUMBER, mask=(64, 0), repeats=200, repeat=(0, 0, 8))
    _, report = run("vector_binary", soc, call, d, a, b)
    assert "out_of_bounds" in [hazard.kind for hazard in report.hazards]


@pytest.mark.parametrize("soc", SOCS)
def test_any_schedule_gives_the_same(soc: str) -> None:
    d, a, b = (values("float", seed) for seed in range(3))
    call = Call(type=FLOAT, operation=MUL, form=BITS, repeats=7, mask=(0x1357_9BDF_0246_8ACE, 0))
    for seed in range(3):
        found, report = run("vector_binary", soc, call, d, a, b, seed=seed)
        assert report.hazards == ()
        np.testing.assert_array_equal(found, expected(call, d, (a, b), DEFINITION[call.operation]))
