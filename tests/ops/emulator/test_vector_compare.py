"""Comparisons to bits, selections by bits: modes, forms, documented borders, the last 8 KB of UB, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ascend_k3.ops import emulator
from ascend_k3.ops.emulator.report import Report
from tests.ops.emulator.vector_oracle import (
    BITS,
    COUNT,
    COUNTER,
    NUMBER,
    REGION,
    STORED,
    Array,
    Call,
    check_written,
    from_bfloat16,
    kernel,
    named,
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
    "int8_t",
    "uint8_t",
)
COMPARE, COMPARES, COMPARE_SCALAR, COMPARE_INT8, TO_REGISTER = range(5)
BY_TENSOR, BY_SCALAR, REGISTER_BITS, REGISTER_SCALAR, REGISTER_ADDRESS, COMPARED, TOP_OF_UB, OPERAND_AT_TOP = range(
    10, 18
)
LT, GT, EQ, LE, GE, NE = MODES = range(6)
SHARED, SCALAR, TENSOR = range(3)
CHECKERS = 0x5A5A_F00F_1234_8001
SOURCE = Path(__file__).parent / "kernels" / "vector_compare.cpp"


def untouched() -> NDArray[np.uint8]:
    return np.random.default_rng(98).integers(0, 256, REGION, np.uint8)


def launch(soc: str, call: Call, *regions: Array, seed: int | None = None) -> tuple[Array, Report]:
    given = [np.ascontiguousarray(region).view(np.uint8) for region in regions]
    out = np.zeros(REGION, np.uint8)
    report = kernel("vector_compare", soc).launch(1, *given, out, call.packed(), outputs=(3,), seed=seed)
    return out, report


def few(type: str, seed: int) -> Array:
    """Few different numbers, so that many are equal, and the special ones."""
    random = np.random.default_rng(seed)
    dtype = np.dtype(STORED[type])
    x = random.integers(0, 5, REGION // dtype.itemsize)
    if type == "bfloat16_t":
        return np.array([0x0000, 0x8000, 0x3F80, 0x7FC0, 0xFF80], np.uint16)[x]
    if dtype.kind == "f":
        return np.array([0.0, -0.0, 1.0, np.nan, -np.inf], dtype)[x]
    return (x.astype(dtype) + dtype.type(np.iinfo(dtype).max - 2)).astype(dtype)


def holds(soc: str, mode: int, a: Array, b: Array, type: str) -> Array:
    """Page Compare; Borders, tables 30 and 31: with a NaN nothing holds, on A2 and A3 not even NE; on 950 NE does."""
    if type == "bfloat16_t":
        a, b = from_bfloat16(a), from_bfloat16(b)
    ufuncs = {LT: np.less, GT: np.greater, EQ: np.equal, LE: np.less_equal, GE: np.greater_equal, NE: np.not_equal}
    out: Array = ufuncs[mode](a, b)
    if mode == NE and soc == "a3" and a.dtype.kind == "f":
        out &= ~(np.isnan(a) | np.isnan(b))
    return out


def modes(soc: str, type: str) -> tuple[int, ...]:
    return (EQ,) if soc == "a3" and type == "int32_t" else MODES


def compared(soc: str) -> tuple[str, ...]:
    return ("half", "float", "int32_t") if soc == "a3" else TYPES


@pytest.mark.parametrize("soc", SOCS)
def test_compare_with_a_count(soc: str) -> None:
    # Page Compare: bit i is 1 where it holds, from the lowest bit of the first byte on.
    for type in compared(soc):
        for a, b in ((few(type, 1), few(type, 2)), (values(type, 3) if type in STORED else few(type, 3), few(type, 4))):
            for mode in modes(soc, type):
                for operation, count in (
                    (COMPARE, 3 * 256),
                    (COMPARE_INT8, 256),
                    (COMPARES, 5 * 256),
                    (COMPARE_SCALAR, 256),
                ):
                    n = count // a.itemsize
                    scalar = operation in (COMPARES, COMPARE_SCALAR)
                    call = Call(operation=operation, type=TYPES.index(type), mode=mode, count=n, scalar=b[:1].tobytes())
                    found, report = launch(soc, call, untouched(), a, b)
                    assert report.hazards == (), report.hazards
                    expected = untouched()
                    bits = holds(soc, mode, a[:n], b[:1] if scalar else b[:n], type)
                    expected[: n // 8] = np.packbits(bits, bitorder="little")
                    np.testing.assert_array_equal(found, expected, err_msg=str(call))


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", ["half", "float", "int32_t"])
def test_compare_with_a_mask(soc: str, type: str) -> None:
    # Page Compare, mask: no effect on A2 and A3; on 950 bits of other elements are 0, as in its examples.
    a, b = few(type, 5), few(type, 6)
    width = 256 // a.itemsize
    forms = [
        Call(form=NUMBER, mask=(28, 0), repeats=3, repeat=(1, 8, 8)),
        Call(form=NUMBER, mask=(width, 0), repeats=4, block=(1, 2, 1), repeat=(8, 17, 3)),
        Call(form=BITS, mask=(CHECKERS, CHECKERS >> 3 if width > 64 else 0), repeats=5, repeat=(1, 8, 8)),
        Call(form=BITS, mask=(0x33333333, 0), repeats=2, block=(1, 0, 1), repeat=(1, 1, 9)),
    ]
    for form in forms:
        operations = [COMPARE, COMPARES if form.form == NUMBER else COMPARE_SCALAR]
        for operation in operations:
            for mode in modes(soc, type):
                call = replace(form, operation=operation, type=TYPES.index(type), mode=mode, scalar=b[:1].tobytes())
                everything = replace(call, form=NUMBER, mask=(width, 0)) if soc == "a3" else call
                expected = untouched()
                for r, (at_a, at_b) in enumerate(
                    zip(everything.places(1, a.itemsize, width), everything.places(2, b.itemsize, width), strict=True)
                ):
                    bits = np.zeros(width, bool)
                    lanes = everything.lanes(width)[r]
                    bits[lanes] = holds(soc, mode, a[at_a], b[at_b] if operation == COMPARE else b[:1], type)
                    expected[r * width // 8 :][: width // 8] = np.packbits(bits, bitorder="little")
                found, report = launch(soc, call, untouched(), a, b)
                assert report.hazards == (), report.hazards
                np.testing.assert_array_equal(found, expected, err_msg=str(call))


def test_the_page_s_examples() -> None:
    # Page Compare, examples: GT 240, GE 241, LE 15, EQ 1, NE 254; LE under the mask 0x33333333 on 950: 51 four times.
    a, b = np.zeros(REGION // 4, np.float32), np.ones(REGION // 4, np.float32)
    a[:8], b[:8] = (2, 3, 5, 7, 11, 13, 17, 19), (2, 4, 6, 8, 10, 12, 14, 16)
    for mode, byte in ((GT, 240), (GE, 241), (LE, 15), (EQ, 1), (NE, 254)):
        found, _ = launch("a3", Call(operation=COMPARE, type=1, mode=mode, count=64), untouched(), a, b)
        assert found[0] == byte
    a, b = np.repeat(a[:8], 8), np.repeat(b[:8], 8)
    a, b = np.resize(a, REGION // 4), np.resize(b, REGION // 4)
    call = Call(operation=COMPARE, type=1, mode=LE, form=BITS, mask=(858993459, 0), repeat=(1, 8, 8))
    found, _ = launch("950pr", call, untouched(), a, b)
    assert found[:8].tolist() == [51, 51, 51, 51, 0, 0, 0, 0]


def test_compare_in_counter_mode_on_950() -> None:
    a, b = few("float", 7), few("float", 8)
    found, report = launch(
        "950pr", Call(operation=COMPARE, type=1, mode=LT, form=COUNTER, mask=(100, 0)), untouched(), a, b
    )
    assert report.hazards == ()
    bits = np.zeros(128, bool)
    bits[:100] = holds("950pr", LT, a[:100], b[:100], "float")
    np.testing.assert_array_equal(found[:16], np.packbits(bits, bitorder="little"))


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", ["half", "float"])
@pytest.mark.parametrize("mask", [(28, 0), (CHECKERS, CHECKERS >> 5)])
def test_compare_into_the_register(soc: str, type: str, mask: tuple[int, int]) -> None:
    # Pages "Compare (result in a register)" and GetCmpMask; asc_eq: bits of elements that the mask holds back stay.
    a, b = few(type, 9), few(type, 10)
    width = 256 // a.itemsize
    call = Call(operation=TO_REGISTER, type=TYPES.index(type), mode=LE, mask=mask)
    found, report = launch(soc, call, untouched(), a, b)
    assert report.hazards == (), report.hazards
    bits = np.zeros(128, bool)
    bits[:width] = holds(soc, LE, a[:width], b[:width], type)
    chosen = np.array([mask[0] | mask[1] << 64 >> 0], object)[0]
    lanes = [lane for lane in range(width) if chosen >> lane & 1]
    bits[lanes] = holds(soc, LE, a[width : 2 * width], b[width : 2 * width], type)[lanes]
    np.testing.assert_array_equal(found[:16], np.packbits(bits, bitorder="little"))
    np.testing.assert_array_equal(found[16:], untouched()[16:])


# ---- Select ----


def chosen(call: Call, bits: NDArray[np.uint8], width: int, shared: bool) -> list[Array]:
    """Page Select: the flags of the lanes that take part; repeats share the first bits, or use them up."""
    flags = np.unpackbits(bits, bitorder="little").astype(bool)
    if call.form == COUNT:
        place = np.arange(call.count)
        return [flags[place % width if shared else place]]
    return [flags[np.array(lanes, int) + (0 if shared else r * width)] for r, lanes in enumerate(call.lanes(width))]


def selected(call: Call, d: Array, a: Array, b: Array, bits: NDArray[np.uint8], shared: bool, scalar: bool) -> Array:
    out = d.copy()
    width = 256 // a.itemsize
    where = [call.places(i, a.itemsize, width) for i in range(3)]
    for r, flags in enumerate(chosen(call, bits, width, shared)):
        out[where[0][r]] = np.where(flags, a[where[1][r]], b[:1] if scalar else b[where[2][r]])
    return out


def selections(width: int) -> list[Call]:
    return [
        Call(form=COUNT, count=2 * width + 9),
        Call(form=COUNT, count=3),
        Call(form=NUMBER, mask=(width, 0), repeats=4),
        Call(form=NUMBER, mask=(width - 5, 0), repeats=3, block=(2, 1, 3), repeat=(17, 9, 3)),
        Call(form=BITS, mask=(CHECKERS, CHECKERS >> 3 if width > 64 else 0), repeats=5, repeat=(8, 0, 8)),
        Call(form=COUNTER, mask=(2 * width + 7, 0)),
    ]


def operands(type: str) -> tuple[Array, Array, Array, NDArray[np.uint8]]:
    """dst, src0, src1 with the bits in its second half, and the bits."""
    if type in ("int8_t", "uint8_t"):
        random = np.random.default_rng(11)
        d, a, b = (random.integers(0, 100, REGION).astype(STORED[type]) for _ in range(3))
    else:
        d, a, b = values(type, 11), values(type, 12), values(type, 13)
    bits = np.random.default_rng(14).integers(0, 256, REGION // 2, np.uint8)
    b.view(np.uint8)[REGION // 2 :] = bits
    return d, a, b, bits


@pytest.mark.parametrize("soc", SOCS)
def test_select(soc: str) -> None:
    for type in ("half", "float") if soc == "a3" else TYPES:
        d, a, b, bits = operands(type)
        for form in selections(256 // a.itemsize):
            if form.form != COUNT and a.itemsize not in (2, 4):
                continue
            for operation, mode in ((BY_TENSOR, SHARED), (BY_TENSOR, TENSOR), (BY_SCALAR, SCALAR)):
                call = replace(form, operation=operation, type=TYPES.index(type), mode=mode, scalar=b[:1].tobytes())
                found, report = launch(soc, call, d, a, b)
                assert report.hazards == (), (call, report.hazards)
                expected = selected(call, d, a, b, bits, mode == SHARED, mode == SCALAR)
                np.testing.assert_array_equal(found.view(d.dtype), expected, err_msg=str(call))


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", ["half", "float"])
@pytest.mark.parametrize("operation", [REGISTER_BITS, REGISTER_SCALAR, REGISTER_ADDRESS, COMPARED])
@pytest.mark.parametrize("seed", [None, 5])
def test_select_by_the_register(soc: str, type: str, operation: int, seed: int | None) -> None:
    # Pages Select (forms without a mask), SetCmpMask: the register holds bits, a scalar, or the address of the bits.
    d, a, b, bits = operands(type)
    width = 256 // a.itemsize
    call = Call(
        operation=operation,
        type=TYPES.index(type),
        form=BITS,
        mask=(CHECKERS, 0xFF if width > 64 else 0),
        repeats=3,
        count=64,
        scalar=b[:1].tobytes(),
    )
    if operation == REGISTER_ADDRESS:
        bits = bits[64:]
    if operation == COMPARED:
        bits = np.packbits(a[:width] < b[:width], bitorder="little")
    found, report = launch(soc, call, d, a, b, seed=seed)
    assert report.hazards == (), report.hazards
    shared = operation in (REGISTER_BITS, COMPARED)
    expected = selected(call, d, a, b, np.resize(bits, 256) if shared else bits, shared, operation == REGISTER_SCALAR)
    half = REGION // d.itemsize // 2
    np.testing.assert_array_equal(found.view(d.dtype)[:half], expected[:half])


def test_a_wrong_address_in_the_register() -> None:
    d, a, b, _ = operands("float")
    call = Call(operation=REGISTER_ADDRESS, type=1, mask=(64, 0), repeats=1, count=-1 & 0xFFFFF)
    found, report = launch("a3", replace(call, count=300000 // 32 * 32), d, a, b)
    assert [kind for kind, _ in named(report.hazards)] == ["out_of_bounds"] and "Select (selMask)" in report.hazards[
        0
    ].message
    np.testing.assert_array_equal(found.view(np.float32)[: REGION // 8], d[: REGION // 8])


def test_the_last_8_kb_of_ub_are_select_s() -> None:
    # Page Select, limits: A2 and A3 take 8 KB of UB in modes 1 and 2; 950 does not.
    d, a, b, _ = operands("float")
    _, report = launch("a3", Call(operation=TOP_OF_UB, type=1, scalar=b"\0\0\0\0"), d, a, b)
    [(kind, message)] = named(report.hazards)
    assert (
        kind == "uninitialised"
        and "Adds (src) reads bytes [188416, 188672) of UB" in message
        and "Select at" in message
    )
    _, report = launch("950pr", Call(operation=TOP_OF_UB, type=1, scalar=b"\0\0\0\0"), d, a, b)
    assert report.hazards == ()


@pytest.mark.parametrize(("mode", "kinds"), [(TENSOR, ["capacity"]), (SHARED, [])])
def test_an_operand_in_the_last_8_kb_of_ub(mode: int, kinds: list[str]) -> None:
    d, a, b, _ = operands("float")
    _, report = launch("a3", Call(operation=OPERAND_AT_TOP, type=1, mode=mode), d, a, b)
    assert [kind for kind, _ in named(report.hazards)] == kinds
    if kinds:
        assert (
            "dst reaches byte 188672 of UB; this form works in the 8192 bytes from 188416 on"
            in report.hazards[0].message
        )


@pytest.mark.parametrize("soc", SOCS)
def test_what_is_written_is_what_is_said_to_be(soc: str) -> None:
    for type in ("half", "float"):
        _, a, b, _ = operands(type)
        b[:] = a + 1  # so that a selection shows
        width = 256 // a.itemsize
        for form in selections(width):
            for operation, mode in ((BY_TENSOR, SHARED), (BY_TENSOR, TENSOR), (BY_SCALAR, SCALAR)):
                call = replace(form, operation=operation, type=TYPES.index(type), mode=mode, scalar=b[:1].tobytes())
                check_written("vector_compare", soc, call, a, b)
        for call in (
            Call(operation=COMPARE, count=3 * width),
            Call(operation=COMPARE, form=NUMBER, mask=(9, 0), repeats=3),
        ):
            check_written("vector_compare", soc, replace(call, type=TYPES.index(type)), a, b)
        check_written("vector_compare", soc, Call(operation=TO_REGISTER, type=TYPES.index(type), mask=(7, 0)), a, b)


# ---- What is refused ----


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (
            Call(operation=COMPARE, type=1, count=100),
            "alignment",
            "100 elements are 400 bytes; it compares a positive multiple of 256",
        ),
        (Call(operation=COMPARES, type=0, count=0), "alignment", "Compares: 0 elements"),
        (Call(operation=COMPARE, type=1, count=64, mode=6), "argument", "cmpMode 6 does not exist"),
        (Call(operation=COMPARE, type=3, count=64, mode=LT), "argument", "int32_t for CMPMODE::EQ alone"),
        (Call(operation=COMPARE, type=1, count=64, offset=16), "alignment", "Compare (dst)"),
        (Call(operation=BY_TENSOR, type=1, count=64, mode=SCALAR), "argument", "selMode 1 with two tensors"),
        (Call(operation=BY_SCALAR, type=1, count=64, mode=TENSOR), "argument", "selMode 2 with a scalar"),
        (Call(operation=BY_SCALAR, type=1, count=64, mode=SCALAR, offset=4), "alignment", "Select (dst)"),
        (
            Call(operation=TO_REGISTER, type=1, place=2, offset=REGION - 64, mask=(64, 0)),
            "out_of_bounds",
            "GetCmpMask: dst has 64 bytes",
        ),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_done(call: Call, kind: str, text: str) -> None:
    d, a, b, _ = operands("float")
    found, report = launch("a3", call, d, a, b)
    assert [hazard.kind for hazard in report.hazards] == [kind], report.hazards
    assert text in report.hazards[0].message
    np.testing.assert_array_equal(found.view(np.float32), (d, a, b)[call.place])


@pytest.mark.parametrize(
    ("soc", "number", "text"),
    [
        ("a3", 1, "Compare: dav-2201 does not have it"),
        ("a3", 2, "Select: dav-2201 does not have it"),
        ("950pr", 3, "Compares: dst is uint8_t"),
        ("950pr", 4, "Select: dav-3510 does not have it"),
    ],
)
def test_types_that_a_soc_does_not_have_do_not_compile(soc: str, number: int, text: str) -> None:
    with pytest.raises(emulator.KernelBuildError, match=text):
        emulator.build(SOURCE, entry="vector_compare", soc=soc, defines={"REFUSED": number})
