"""Reductions: order of the sums bit by bit, masks, strides, indices, working memory, registers, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ascend_k3.ops import emulator
from ascend_k3.ops.emulator.report import Report
from tests.ops.emulator.vector_oracle import (
    ALL,
    BITS,
    COUNT,
    COUNTER,
    NUMBER,
    OUTSIDE,
    REGION,
    STORED,
    Array,
    Call,
    check_written,
    kernel,
    named,
    values,
)

SOCS = ("a3", "950pr")
TYPES = ("half", "float", "int16_t", "int32_t", "uint16_t", "bfloat16_t", "uint32_t", "int64_t", "uint64_t")
(SUM, MAX, MIN, BLOCK_SUM, BLOCK_MAX, BLOCK_MIN, PAIR_SUM, REPEAT_SUM, TENSOR_SUM, TENSOR_MAX, TENSOR_MIN) = range(11)
(
    NEW_SUM,
    NEW_MAX,
    NEW_MIN,
    NEW_BLOCK_SUM,
    NEW_BLOCK_MAX,
    NEW_BLOCK_MIN,
    NEW_PAIR_SUM,
    SUM_REGISTER,
    EXTREME_REGISTER,
) = range(11, 20)
RACE, AFTERWARDS = 20, 21
VALUE_INDEX, INDEX_VALUE, ONLY_VALUE, ONLY_INDEX = range(4)
CHECKERS = 0x5A5A_F00F_1234_8001
SOURCE = Path(__file__).parent / "kernels" / "vector_reduce.cpp"


def launch(soc: str, call: Call, d: Array, s: Array, seed: int | None = None) -> tuple[Array, Report]:
    regions = [np.ascontiguousarray(region).view(np.uint8) for region in (d, s)]
    room = np.zeros(REGION, np.uint8)
    out = np.zeros(REGION, np.uint8)
    arguments = (*regions, room, out, call.packed())
    report = kernel("vector_reduce", soc).launch(1, *arguments, outputs=(3,), seed=seed)
    return out, report


def untouched(count: int = REGION) -> NDArray[np.uint8]:
    return np.random.default_rng(99).integers(0, 256, count, np.uint8)


def spread(type: str, seed: int) -> Array:
    """Numbers whose sum depends on the order: of magnitudes from 2^-8 to 2^6, either sign; integers of any size."""
    if type not in ("half", "float"):
        return values(type, seed)
    random = np.random.default_rng(seed)
    count = REGION // np.dtype(STORED[type]).itemsize
    return (random.normal(size=count) * 2.0 ** random.integers(-8, 6, count)).astype(STORED[type])


def tree(x: Array) -> Array:
    """Page ReduceDataBlock, key features: neighbours are added, then the sums of neighbours, and so on."""
    with np.errstate(all="ignore"):
        while len(x) > 1:
            x = x[0::2] + x[1::2]
    return x[0]


def source(call: Call, s: Array, width: int) -> list[tuple[Array, list[int]]]:
    """Of each repeat: the lanes' elements, 0 where the mask is 0, and the lanes that take part."""
    out = []
    for lanes, places in zip(call.lanes(width), call.places(1, s.itemsize, width), strict=True):
        full = np.zeros(width, s.dtype)
        full[lanes] = s[places]
        out.append((full, lanes))
    return out


def parts(width: int) -> list[Call]:
    """The forms with a mask; strides of dst in results, of src in blocks."""
    return [
        Call(form=NUMBER, mask=(width, 0), repeats=7, repeat=(1, 8, 0)),
        Call(form=NUMBER, mask=(width - 5, 0), repeats=3, repeat=(3, 9, 0)),
        Call(form=NUMBER, mask=(1, 0), repeats=2, repeat=(1, 8, 0)),
        Call(form=NUMBER, mask=(width, 0), repeats=4, block=(1, 3, 0), repeat=(2, 25, 0)),
        Call(form=BITS, mask=(CHECKERS, CHECKERS >> 3 if width > 64 else 0), repeats=5, repeat=(1, 8, 0)),
        Call(form=BITS, mask=(ALL, ALL if width > 64 else 0), repeats=2, block=(1, 0, 0), repeat=(1, 4, 0)),
        Call(form=COUNTER, mask=(3 * width + 11, 0), repeat=(1, 8, 0)),
        Call(form=OUTSIDE, mask=(CHECKERS, 0xFF if width > 64 else 0), repeats=3, repeat=(2, 0, 0)),
    ]


def write(out: NDArray[np.uint8], at: int, *elements: Any) -> None:
    data = np.concatenate([np.atleast_1d(element).view(np.uint8) for element in elements])
    out[at : at + len(data)] = data


def same(found: NDArray[np.uint8], expected: NDArray[np.uint8], dtype: Any) -> None:
    """Equal in every bit; a NaN equals every NaN."""
    a, b = found.view(dtype), expected.view(dtype)
    if np.dtype(dtype).kind == "f":
        unequal = (a.view(f"u{a.itemsize}") != b.view(f"u{b.itemsize}")) & ~(np.isnan(a) & np.isnan(b))
        assert not unequal.any(), (np.flatnonzero(unequal)[:8], a[unequal][:8], b[unequal][:8])
    else:
        np.testing.assert_array_equal(a, b)


# ---- A repeat to one result ----


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", ["half", "float"])
@pytest.mark.parametrize("operation", [SUM, NEW_SUM, REPEAT_SUM])
def test_a_repeat_s_sum_is_a_tree_of_neighbours(soc: str, type: str, operation: int) -> None:
    # Page ReduceRepeat: a sum of each repeat by a binary tree; "dstRepStride": for sums the unit is an element of dst.
    s = spread(type, 1)
    width = 256 // s.itemsize
    for form in parts(width):
        if operation == REPEAT_SUM and form.form != NUMBER:
            continue
        call = replace(form, operation=operation, type=TYPES.index(type))
        expected = untouched()
        for r, (full, _) in enumerate(source(call, s, width)):
            write(expected, r * call.repeat[0] * s.itemsize, tree(full))
        found, report = launch(soc, call, untouched(), s)
        assert report.hazards == (), report.hazards
        np.testing.assert_array_equal(found, expected)
    told_apart = [np.add.accumulate(row)[-1] != tree(row) for row in s[: 7 * width].reshape(7, width)]
    assert any(told_apart), "the numbers do not tell the orders apart"


@pytest.mark.parametrize(("type", "wide"), [("int16_t", "int32_t"), ("uint16_t", "uint32_t")])
def test_sums_of_16_bits_are_of_32_on_950(type: str, wide: str) -> None:
    # Page ReduceRepeat, data types: int16_t to int32_t, uint16_t to uint32_t.
    s = values(type, 2)
    call = Call(
        operation=SUM, type=20 if type == "int16_t" else 21, mask=(100, 0), form=NUMBER, repeats=3, repeat=(2, 8, 0)
    )
    found, report = launch("950pr", call, untouched(), s)
    expected = untouched()
    for r, (full, _) in enumerate(source(call, s, 128)):
        write(expected, r * 8, full.astype(STORED[wide]).sum(dtype=STORED[wide]))
    assert report.hazards == (), report.hazards
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("type", ["int32_t", "uint32_t"])
def test_integer_sums_wrap_on_950(type: str) -> None:
    s = values(type, 3)
    call = Call(operation=NEW_SUM, type=TYPES.index(type), mask=(64, 0), form=NUMBER, repeats=4, repeat=(1, 8, 0))
    found, report = launch("950pr", call, untouched(), s)
    assert report.hazards == (), report.hazards
    np.testing.assert_array_equal(found.view(s.dtype)[:4], s[:256].reshape(4, 64).sum(1, dtype=s.dtype))


def best(full: Array, lanes: list[int], largest: bool) -> tuple[Any, int]:
    """The value and the least lane with it; the first NaN, +0 above -0 (pages ReduceRepeat, Reg Reduce, Borders)."""
    x = full[lanes]
    if x.dtype.kind == "f" and np.isnan(x).any():
        at = int(np.flatnonzero(np.isnan(x))[0])
        return x[at], lanes[at]
    order = sorted(range(len(x)), key=lambda i: (x[i], not np.signbit(x[i]) if x.dtype.kind == "f" else 0))
    extreme = x[order[-1 if largest else 0]]
    at = int(np.flatnonzero(x.view(f"u{x.itemsize}") == np.atleast_1d(extreme).view(f"u{x.itemsize}")[0])[0])
    return x[at], lanes[at]


def few(type: str, seed: int) -> Array:
    """Few different numbers, so that many are equal, with zeros of both signs, infinities and a NaN."""
    dtype = np.dtype(STORED[type])
    random = np.random.default_rng(seed)
    count = REGION // dtype.itemsize
    if dtype.kind != "f":
        return random.integers(0, 4, count).astype(dtype) + np.iinfo(dtype).min
    x = random.integers(-3, 4, count).astype(dtype)
    x[random.random(count) < 0.3] *= dtype.type(0)
    x[300::1500], x[700::1500], x[777] = np.inf, -np.inf, np.nan
    return x


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", ["half", "float"])
@pytest.mark.parametrize(("operation", "largest"), [(MAX, True), (MIN, False), (NEW_MAX, True), (NEW_MIN, False)])
@pytest.mark.parametrize("order", [VALUE_INDEX, INDEX_VALUE, ONLY_VALUE, ONLY_INDEX])
def test_a_repeat_s_extreme_and_its_index(soc: str, type: str, operation: int, largest: bool, order: int) -> None:
    # Page ReduceRepeat: "the least index of several"; order and units of dstRepStride as in its table 3; an index alone
    # is uint32_t, one beside the value has the value's size.
    for s in (few(type, 4), np.full_like(few(type, 4), -0.0)):
        width = 256 // s.itemsize
        for form in parts(width):
            call = replace(form, operation=operation, type=TYPES.index(type), mode=order)
            expected = untouched()
            unit = {ONLY_VALUE: s.itemsize, ONLY_INDEX: 4}.get(order, 2 * s.itemsize)
            for r, (full, lanes) in enumerate(source(call, s, width)):
                value, index = best(full, lanes, largest)
                both = [value, np.array(index, f"u{s.itemsize}")]
                what = {
                    VALUE_INDEX: both,
                    INDEX_VALUE: both[::-1],
                    ONLY_VALUE: both[:1],
                    ONLY_INDEX: [np.uint32(index)],
                }[order]
                write(expected, r * call.repeat[0] * unit, *what)
            found, report = launch(soc, call, untouched(), s)
            assert report.hazards == (), report.hazards
            same(found, expected, s.dtype)


@pytest.mark.parametrize("type", ["int16_t", "uint16_t", "int32_t", "uint32_t"])
@pytest.mark.parametrize(("operation", "largest"), [(NEW_MAX, True), (NEW_MIN, False)])
def test_integers_have_extremes_on_950(type: str, operation: int, largest: bool) -> None:
    for s in (values(type, 5), few(type, 6)):
        width = 256 // s.itemsize
        call = Call(
            operation=operation, type=TYPES.index(type), form=NUMBER, mask=(width - 3, 0), repeats=5, repeat=(1, 8, 0)
        )
        expected = untouched()
        for r, (full, lanes) in enumerate(source(call, s, width)):
            value, index = best(full, lanes, largest)
            write(expected, r * 2 * s.itemsize, value, np.array(index, f"u{s.itemsize}"))
        found, report = launch("950pr", call, untouched(), s)
        assert report.hazards == (), report.hazards
        np.testing.assert_array_equal(found, expected)


def test_the_page_s_example_of_indices() -> None:
    # Page ReduceRepeat, example: 11 at 52, 12 at 100, 13 at 19; half with the bits 0x0034 is 3.09944e-06.
    s = np.ones(REGION // 2, np.float16)
    s[52], s[128 + 100], s[256 + 19] = 11, 12, 13
    call = Call(operation=NEW_MAX, form=NUMBER, mask=(128, 0), repeats=3, repeat=(1, 8, 0))
    found, _ = launch("a3", call, untouched(), s)
    np.testing.assert_allclose(
        found.view(np.float16)[:6].astype(float), [11, 3.09944e-06, 12, 5.96046e-06, 13, 1.13249e-06], rtol=1e-5
    )


# ---- A block, a pair to one result ----


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", ["half", "float"])
@pytest.mark.parametrize(
    "operation", [BLOCK_SUM, BLOCK_MAX, BLOCK_MIN, NEW_BLOCK_SUM, NEW_BLOCK_MAX, NEW_BLOCK_MIN, PAIR_SUM, NEW_PAIR_SUM]
)
def test_blocks_and_pairs(soc: str, type: str, operation: int) -> None:
    # Pages ReduceDataBlock and ReducePairElem: results follow one another; dstRepStride counts those of a repeat.
    # Without any element of a block or pair A2 and A3 leave dst as it was, 950 writes 0, -inf or inf.
    pair = operation in (PAIR_SUM, NEW_PAIR_SUM)
    total = operation in (BLOCK_SUM, NEW_BLOCK_SUM) or pair
    s = spread(type, 7) if total else few(type, 8)
    width = 256 // s.itemsize
    group = 2 if pair else 32 // s.itemsize
    for form in parts(width):
        call = replace(form, operation=operation, type=TYPES.index(type))
        expected = untouched()
        for r, (full, lanes) in enumerate(source(call, s, width)):
            for g in range(width // group):
                here = [lane for lane in lanes if lane // group == g]
                largest = operation in (BLOCK_MAX, NEW_BLOCK_MAX)
                if not here and soc == "a3":
                    continue
                nothing = 0 if total else -np.inf if largest else np.inf
                value = (
                    s.dtype.type(nothing)
                    if not here
                    else tree(full[g * group :][:group])
                    if total
                    else best(full, here, largest)[0]
                )
                write(expected, (r * call.repeat[0] * (width // group) + g) * s.itemsize, value)
        found, report = launch(soc, call, untouched(), s)
        assert report.hazards == (), report.hazards
        same(found, expected, s.dtype)


def test_a_block_s_sum_of_the_page_overflows_to_infinity() -> None:
    # Page ReduceDataBlock: not saturating by default; Borders, table 35: 16 times 65504 is inf.
    s = np.full(REGION // 2, 65504, np.float16)
    found, _ = launch("a3", Call(operation=NEW_BLOCK_SUM, form=NUMBER, mask=(128, 0), repeat=(1, 8, 0)), untouched(), s)
    assert np.isinf(found.view(np.float16)[:8]).all()


# ---- A tensor to one result ----


def tensor_sum(soc: str, call: Call, s: Array, width: int) -> Any:
    """Page ReduceSum: the three ways."""
    repeats = (
        [full for full, _ in source(call, s, width)]
        if call.form != COUNT
        else [
            np.concatenate(
                [s[first : min(first + width, call.count)], np.zeros(max(0, first + width - call.count), s.dtype)]
            )
            for first in range(0, call.count, width)
        ]
    )
    if soc == "a3" and call.form == COUNT:  # the first way: repeats in order
        out = tree(repeats[0])
        for full in repeats[1:]:
            out = out + tree(full)
        return out
    count = call.count if call.form == COUNT else call.mask[0] if call.form == COUNTER else 0
    if soc == "950pr" and (s.itemsize == 8 or 256 <= count * s.itemsize <= 1024):  # the third: merged into one repeat
        merged = repeats[0]
        for full in repeats[1:]:
            merged = merged + full
        return tree(merged)
    sums = np.array([tree(full) for full in repeats])
    while len(sums) > 1:  # the second: a tree of their sums
        sums = np.concatenate([sums, np.zeros(-len(sums) % width, s.dtype)])
        sums = np.array([tree(row) for row in sums.reshape(-1, width)])
    return sums[0]


def working(elements: int) -> bytes:
    return elements.to_bytes(8, "little")


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", ["half", "float"])
def test_a_tensor_s_sum(soc: str, type: str) -> None:
    s = spread(type, 9)
    width = 256 // s.itemsize
    calls = [
        Call(form=COUNT, count=count)
        for count in (1, width - 1, width, width + 1, 4 * width, 4 * width + 1, 17 * width + 3, 31 * width)
    ]
    calls += [
        Call(form=NUMBER, mask=(width, 0), repeats=31, repeat=(0, 8, 0)),
        Call(form=NUMBER, mask=(width - 7, 0), repeats=5, repeat=(0, 11, 0)),
        Call(form=BITS, mask=(CHECKERS, CHECKERS >> 3 if width > 64 else 0), repeats=9, repeat=(0, 8, 0)),
        Call(form=NUMBER, mask=(width, 0), repeats=300, repeat=(0, 1, 0)),  # repeatTime has no limit of 255 here
        Call(form=COUNTER, mask=(2 * width + 5, 0), repeat=(0, 8, 0)),
        Call(form=COUNTER, mask=(9 * width + 5, 0), repeat=(0, 8, 0)),
    ]
    for form in calls:
        call = replace(form, operation=TENSOR_SUM, type=TYPES.index(type), scalar=working(512))
        found, report = launch(soc, call, untouched(), s)
        assert report.hazards == (), (call, report.hazards)
        expected = untouched()
        write(expected, 0, tensor_sum(soc, call, s, width))
        np.testing.assert_array_equal(found, expected, err_msg=str(call))


@pytest.mark.parametrize("type", ["int32_t", "uint32_t", "int64_t", "uint64_t"])
def test_a_tensor_s_sum_of_integers_on_950(type: str) -> None:
    s = values(type, 10)
    for count in (1, 31, 500, 1500):
        call = Call(operation=TENSOR_SUM, type=TYPES.index(type), form=COUNT, count=count, scalar=working(64))
        found, report = launch("950pr", call, untouched(), s)
        assert report.hazards == (), report.hazards
        assert found.view(s.dtype)[0] == s[:count].sum(dtype=s.dtype)


@pytest.mark.parametrize(
    ("soc", "types"),
    [
        ("a3", ("half", "float")),
        ("950pr", ("half", "float", "int16_t", "uint16_t", "int32_t", "uint32_t", "int64_t", "uint64_t")),
    ],
)
@pytest.mark.parametrize(("operation", "largest"), [(TENSOR_MAX, True), (TENSOR_MIN, False)])
def test_a_tensor_s_extreme_and_its_index(soc: str, types: tuple[str, ...], operation: int, largest: bool) -> None:
    # Pages ReduceMax and ReduceMin: value, then the least index, as bits of an integer of the same size.
    for type in types:
        for s in (few(type, 11), values(type, 12)):
            width = 256 // s.itemsize
            calls = [Call(form=COUNT, count=count) for count in (1, width, 5 * width + 3, 20 * width)]
            if s.itemsize < 8:
                calls += [
                    Call(form=NUMBER, mask=(width - 1, 0), repeats=6, repeat=(0, 9, 0)),
                    Call(form=BITS, mask=(CHECKERS, CHECKERS >> 3 if width > 64 else 0), repeats=7, repeat=(0, 8, 0)),
                    Call(form=COUNTER, mask=(3 * width + 2, 0), repeat=(0, 8, 0)),
                ]
            for index in (True, False):
                for form in calls:
                    call = replace(
                        form, operation=operation, type=TYPES.index(type), mode=int(index), scalar=working(512)
                    )
                    rows = (
                        [(s[: call.count], list(range(call.count)))] if call.form == COUNT else source(call, s, width)
                    )
                    flat = np.concatenate([full for full, _ in rows])
                    lanes = [r * width + lane for r, (_, lanes) in enumerate(rows) for lane in lanes]
                    value, place = best(flat, lanes, largest)
                    expected = untouched()
                    write(expected, 0, value, *([np.array(place, f"u{s.itemsize}")] if index else []))
                    found, report = launch(soc, call, untouched(), s)
                    assert report.hazards == (), (call, report.hazards)
                    same(found, expected, s.dtype)


# Page ReduceMax, examples of the working memory: elements for (type, repeats, index).
@pytest.mark.parametrize(
    ("type", "repeats", "index", "elements"),
    [
        ("half", 65, True, 176),
        ("half", 255, True, 544),
        ("half", 4, True, 32),
        ("half", 511, False, 1024),
        ("float", 130, True, 288),
    ],
)
def test_the_working_memory_of_the_page_s_examples_is_what_it_takes(
    type: str, repeats: int, index: bool, elements: int
) -> None:
    s = values(type, 13)
    call = Call(
        operation=TENSOR_MAX,
        type=TYPES.index(type),
        mode=int(index),
        form=NUMBER,
        mask=(16, 0),
        repeats=repeats,
        repeat=(0, 1, 0),
    )
    _, report = launch("a3", replace(call, scalar=working(elements)), untouched(), s)
    assert report.hazards == (), report.hazards
    _, report = launch("a3", replace(call, scalar=working(elements - 32 // s.itemsize)), untouched(), s)
    assert [kind for kind, _ in named(report.hazards)] == ["out_of_bounds"]
    assert "ReduceMax (sharedTmpBuffer)" in report.hazards[0].message


@pytest.mark.parametrize("soc", SOCS)
def test_the_working_memory_of_a_sum(soc: str) -> None:
    # Page ReduceSum: with a mask the sums of the repeats, rounded up to 32 bytes; A2 and A3 with a count: none.
    s = spread("float", 14)
    masked = Call(operation=TENSOR_SUM, type=1, form=NUMBER, mask=(64, 0), repeats=17, repeat=(0, 8, 0))
    for elements, fits in ((24, True), (16, False)):
        _, report = launch(soc, replace(masked, scalar=working(elements)), untouched(), s)
        assert [kind for kind, _ in named(report.hazards)] == ([] if fits else ["out_of_bounds"])
    _, report = launch(
        soc, Call(operation=TENSOR_SUM, type=1, form=COUNT, count=17 * 64, scalar=working(0)), untouched(), s
    )
    assert [kind for kind, _ in named(report.hazards)] == ([] if soc == "a3" else ["out_of_bounds"])


def test_extremes_need_no_working_memory_on_950() -> None:
    # Page ReduceMax: "950: sharedTmpBuffer is not used".
    call = Call(operation=TENSOR_MAX, type=1, mode=1, form=COUNT, count=4000, scalar=working(0))
    _, report = launch("950pr", call, untouched(), values("float", 15))
    assert report.hazards == ()


def test_reading_working_memory_afterwards_is_reported() -> None:
    _, report = launch("a3", Call(operation=AFTERWARDS, type=1, count=640), untouched(), values("float", 16))
    [(kind, message)] = named(report.hazards)
    assert kind == "uninitialised" and "Adds (src)" in message
    assert "ReduceMax at " in message and "was the last to write it" in message


# ---- Results in registers, order ----


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_the_sum_s_register(soc: str, seed: int | None) -> None:
    # Pages GetReduceRepeatSumSpr and ReduceSum.
    s = spread("float", 17)
    found, report = launch(soc, Call(operation=SUM_REGISTER, type=1, form=COUNT, count=100), untouched(), s, seed)
    assert report.hazards == (), report.hazards
    out = found.view(np.float32)
    assert out[0] == out[8] == out[9] == tensor_sum(soc, Call(form=COUNT, count=100), s, 64)


@pytest.mark.parametrize("type", ["half", "float"])
@pytest.mark.parametrize("seed", [None, 1])
def test_the_extreme_s_register(type: str, seed: int | None) -> None:
    # Page asc_get_reduce_max_cnt: of 1 to 256 in two repeats the largest is 256, its index 255.
    s = np.arange(1, REGION // np.dtype(STORED[type]).itemsize + 1).astype(STORED[type])
    width = 256 // s.itemsize
    call = Call(operation=EXTREME_REGISTER, type=TYPES.index(type), mask=(width, 0), repeats=2)
    found, report = launch("a3", call, untouched(), s, seed)
    assert report.hazards == (), report.hazards
    assert found.view(s.dtype)[32] == 2 * width
    assert found.view(f"u{s.itemsize}")[33] == 2 * width - 1


def test_a_missing_barrier_before_a_reduction_is_a_race() -> None:
    _, report = launch("a3", Call(operation=RACE, type=1), untouched(), values("float", 18))
    [(kind, message)] = named(report.hazards)
    assert kind == "race" and "WholeReduceSum" in message and "PipeBarrier<PIPE_V> between them is missing" in message


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", ["half", "float"])
def test_what_is_written_is_what_is_said_to_be(soc: str, type: str) -> None:
    s = values(type, 30)
    width = 256 // s.itemsize
    for form in parts(width):
        if form.repeat[0] == 0:
            continue
        for operation in (SUM, NEW_MAX, BLOCK_SUM, NEW_BLOCK_MIN, PAIR_SUM):
            for order in (VALUE_INDEX, ONLY_VALUE, ONLY_INDEX) if operation == NEW_MAX else (0,):
                call = replace(form, operation=operation, type=TYPES.index(type), mode=order)
                check_written("vector_reduce", soc, call, s)
    for operation, index in ((TENSOR_SUM, 0), (TENSOR_MAX, 0), (TENSOR_MIN, 1)):
        call = Call(operation=operation, type=TYPES.index(type), mode=index, count=700, scalar=working(512))
        check_written("vector_reduce", soc, call, s)


# ---- What is refused ----


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (Call(operation=SUM, form=NUMBER, mask=(64, 0), repeat=(-1, 8, 0)), "argument", "dstRepStride is -1"),
        (
            Call(operation=SUM, form=NUMBER, mask=(64, 0), repeats=256, repeat=(1, 0, 0)),
            "argument",
            "repeatTime is 256",
        ),
        (Call(operation=SUM, form=NUMBER, mask=(64, 0), repeat=(1, 65536, 0)), "argument", "srcRepStride is 65536"),
        (Call(operation=MAX, form=NUMBER, mask=(64, 0), offset=4), "alignment", "has to be a multiple of 8"),
        (Call(operation=MAX, form=NUMBER, mask=(64, 0), mode=ONLY_VALUE, offset=4), "", ""),
        (Call(operation=BLOCK_MAX, form=NUMBER, mask=(64, 0), offset=16), "alignment", "has to be a multiple of 32"),
        (Call(operation=PAIR_SUM, form=NUMBER, mask=(64, 0), offset=16), "alignment", "has to be a multiple of 32"),
        (
            Call(operation=TENSOR_MAX, form=COUNT, count=64, mode=1, offset=4, scalar=working(64)),
            "alignment",
            "multiple of 8",
        ),
        (Call(operation=TENSOR_SUM, form=COUNT, count=-1, scalar=working(64)), "argument", "ReduceSum: count is -1"),
        (
            Call(operation=SUM, form=NUMBER, mask=(64, 0), repeats=200, repeat=(1, 24, 0)),
            "out_of_bounds",
            "WholeReduceSum (src)",
        ),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_done(call: Call, kind: str, text: str) -> None:
    found, report = launch("a3", replace(call, type=1), untouched(), values("float", 19))
    if not kind:
        assert report.hazards == ()
        return
    assert [hazard.kind for hazard in report.hazards] == [kind], report.hazards
    assert text in report.hazards[0].message
    np.testing.assert_array_equal(found, untouched())


@pytest.mark.parametrize(
    "call",
    [
        Call(operation=SUM, repeats=0, form=NUMBER, mask=(64, 0)),
        Call(operation=TENSOR_SUM, form=COUNT, count=0, scalar=working(64)),
    ],
)
def test_nothing_to_do(call: Call) -> None:
    # Pages ReduceRepeat and ReduceSum: on A2 and A3 a mask, count or repeatTime of 0 is no operation; not so on 950.
    for soc, kinds in (("a3", []), ("950pr", ["argument"])):
        found, report = launch(soc, replace(call, type=1), untouched(), values("float", 19))
        assert [hazard.kind for hazard in report.hazards] == kinds
        np.testing.assert_array_equal(found, untouched())


def test_an_index_of_16_bits_that_is_too_small() -> None:
    # Page ReduceMax: half reaches index 65535.
    call = Call(
        operation=TENSOR_MAX,
        type=0,
        mode=1,
        form=NUMBER,
        mask=(16, 0),
        repeats=513,
        repeat=(0, 1, 0),
        scalar=working(2048),
    )
    _, report = launch("a3", call, untouched(), values("half", 20))
    [(kind, message)] = named(report.hazards)
    assert kind == "argument" and "an index of 16 bits reaches element 65535" in message


@pytest.mark.parametrize(
    ("soc", "define", "text"),
    [
        ("a3", {"REFUSED": "int32_t"}, "WholeReduce: dav-2201 does not have it for this element type"),
        ("950pr", {"REFUSED": "bfloat16_t"}, "WholeReduce: dav-3510 does not have it for this element type"),
        ("950pr", {"REFUSED_REGISTER": True}, "GetReduceRepeatMaxMinSpr: dav-3510 does not have it"),
    ],
)
def test_types_that_a_soc_does_not_have_do_not_compile(soc: str, define: dict[str, object], text: str) -> None:
    with pytest.raises(emulator.KernelBuildError, match=text):
        emulator.build(SOURCE, entry="vector_reduce", soc=soc, defines=define)
