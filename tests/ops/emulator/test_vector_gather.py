"""Elements by bits (GatherMask) and by addresses (Gather, Gatherb, Scatter) against numpy, and what is refused."""

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
    NUMBER,
    REGION,
    STORED,
    Array,
    Call,
    check_written,
    kernel,
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
BUILT_IN, BY_BITS, GATHER, GATHER_BLOCKS, SCATTER, COUNTER_BEFORE, SCALAR_BEHIND = range(7)
CHECKERS = 0x5A5A_F00F_1234_8001
SOURCE = Path(__file__).parent / "kernels" / "vector_gather.cpp"


def bytes_of(seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, REGION, np.uint8)


def source(type: str, seed: int) -> Array:
    """All bit patterns, as these calls move them; of half and float too."""
    return bytes_of(seed).view(
        STORED[type] if np.dtype(STORED[type]).kind != "f" else f"u{np.dtype(STORED[type]).itemsize}"
    )


def launch(soc: str, call: Call, d: Array, s: Array, third: Array, seed: int | None = None) -> tuple[Array, Report]:
    given = [np.resize(np.ascontiguousarray(region).view(np.uint8), REGION) for region in (d, s, third)]
    out = np.zeros(REGION, np.uint8)
    report = kernel("vector_gather", soc).launch(1, *given, out, call.packed(), outputs=(3,), seed=seed)
    return out, report


def moved(soc: str) -> tuple[str, ...]:
    return TYPES[:7] if soc == "a3" else TYPES


# ---- By bits ----

# Page GatherMask, built-in patterns.
PATTERNS = {1: (2, 0), 2: (2, 1), 3: (4, 0), 4: (4, 1), 5: (4, 2), 6: (4, 3), 7: (1, 0)}


def places(call: Call, itemsize: int) -> list[Array]:
    """Of each repeat: 256 bytes, or `count` elements when counted; blocks and repeats by their strides."""
    lane = np.arange(call.count if call.form == COUNT else 256 // itemsize)
    a_block = 32 // itemsize
    return [
        (r * call.repeat[1] + lane // a_block * call.block[1]) * a_block + lane % a_block for r in range(call.repeats)
    ]


def shapes(itemsize: int) -> list[Call]:
    width = 256 // itemsize
    return [
        Call(form=NUMBER, repeats=4, repeat=(0, 8, 0)),
        Call(form=NUMBER, repeats=3, block=(0, 2, 0), repeat=(0, 17, 1)),
        Call(form=COUNT, count=width + 6, repeats=2, repeat=(0, 9, 0)),  # more than 256 bytes: as in its figure 1
        Call(form=COUNT, count=7, repeats=5, repeat=(0, 1, 2)),
        Call(form=COUNT, count=3 * width, repeats=1, repeat=(0, 8, 0)),
    ]


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("seed", [None, 4])
def test_gather_mask(soc: str, seed: int | None) -> None:
    # Page GatherMask: kept elements one behind the other, rsvdCnt how many; of a tensor each repeat's bits begin
    # src1RepeatStride blocks further on and are used up within it.
    for type in (type for type in moved(soc) if "64" not in type):
        s, bits = source(type, 1), bytes_of(2)
        for form in shapes(s.itemsize):
            if seed is not None and form.form == COUNT:
                continue
            for pattern in (*PATTERNS, 0):
                call = replace(form, operation=BUILT_IN if pattern else BY_BITS, type=TYPES.index(type), mode=pattern)
                kept = []
                for r, place in enumerate(places(call, s.itemsize)):
                    if pattern:
                        period, first = PATTERNS[pattern]
                        flags = np.arange(len(place)) % period == first
                    else:
                        flags = np.unpackbits(bits[r * call.repeat[2] * 32 :], bitorder="little")[: len(place)].astype(
                            bool
                        )
                    kept.append(s[place[flags]])
                expected = bytes_of(3)
                data = np.concatenate(kept)
                expected[: data.nbytes] = data.view(np.uint8)
                expected.view(np.uint64)[-1] = len(data)
                found, report = launch(soc, call, bytes_of(3), s, bits, seed)
                assert report.hazards == (), report.hazards
                np.testing.assert_array_equal(found, expected, err_msg=str(call))


@pytest.mark.parametrize("soc", SOCS)
def test_gather_mask_in_place(soc: str) -> None:
    # Page GatherMask, example: 1 to 256 in place by pattern 2 are the even numbers, rsvdCnt 128.
    s = np.arange(1, REGION // 4 + 1, dtype=np.uint32)
    call = Call(operation=BUILT_IN, type=6, mode=2, form=NUMBER, place=1, repeats=4, repeat=(0, 8, 0))
    found, report = launch(soc, call, bytes_of(3), s, bytes_of(2))
    assert report.hazards == ()
    np.testing.assert_array_equal(found.view(np.uint32)[:128], np.arange(2, 257, 2))
    assert found.view(np.uint64)[-1] == 128


def test_gather_mask_ends_in_norm_mode() -> None:
    # Page GatherMask, limits: after it norm mode is on. The mask register then holds the call's number.
    s = np.arange(REGION // 4, dtype=np.float32)
    found, report = launch("a3", Call(operation=COUNTER_BEFORE, type=1, count=0b1101), bytes_of(3), s, bytes_of(2))
    assert report.hazards == (), report.hazards
    before = bytes_of(3).view(np.float32)[1024:1088]
    expected = before.copy()
    expected[[0, 2, 3]] = s[[0, 2, 3]]
    np.testing.assert_array_equal(found.view(np.float32)[1024:1088], expected)


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_the_scalar_waits_for_the_count(seed: int | None) -> None:
    s = np.arange(REGION // 4, dtype=np.float32)
    found, report = launch("a3", Call(operation=SCALAR_BEHIND, type=1), bytes_of(3), s, bytes_of(2), seed)
    assert report.hazards == (), report.hazards
    assert found.view(np.float32)[1024] == 126


# ---- By addresses ----


def offsets(count: int, itemsize: int, seed: int, unique: bool = False) -> NDArray[np.uint32]:
    random = np.random.default_rng(seed)
    slots = 12288 // itemsize
    where = random.permutation(slots)[:count] if unique else random.integers(0, slots, count)
    return (where * itemsize).astype(np.uint32)


def addressed(itemsize: int) -> list[Call]:
    width = 256 // itemsize
    forms = [Call(form=COUNT, count=1), Call(form=COUNT, count=2 * width + 5)]
    if itemsize > 1:
        forms += [
            Call(form=NUMBER, mask=(width - 3, 0), repeats=3, repeat=(9, 11, 0)),
            Call(form=BITS, mask=(CHECKERS, CHECKERS >> 3 if width > 64 else 0), repeats=4, repeat=(8, 8, 0)),
        ]
    return forms


@pytest.mark.parametrize("soc", SOCS)
def test_gather(soc: str) -> None:
    # Page Gather: dst[i] = the element at byte srcBaseAddr + srcOffset[i]; offsets lie one behind the other.
    for type in moved(soc):
        s = source(type, 5)
        width = 256 // s.itemsize
        where = offsets(4 * width, s.itemsize, 6)
        for base in (0, 40 * s.itemsize):
            for form in addressed(s.itemsize):
                call = replace(form, operation=GATHER, type=TYPES.index(type), block=(base, 1, 1))
                expected = bytes_of(7).view(s.dtype).copy()
                plain = replace(call, block=(1, 1, 1))
                for r, place in enumerate(plain.places(0, s.itemsize, width)):
                    lanes = np.array(plain.lanes(width)[r], int) + (0 if call.form == COUNT else r * width)
                    expected[place] = s[(base + where[lanes]) // s.itemsize]
                found, report = launch(soc, call, bytes_of(7), s, where)
                assert report.hazards == (), report.hazards
                np.testing.assert_array_equal(found.view(s.dtype), expected, err_msg=str(call))


def test_scatter_on_950() -> None:
    # Page Scatter: the element at byte dstBaseAddr + dstOffset[i] = src[i].
    for type in TYPES:
        s = source(type, 8)
        width = 256 // s.itemsize
        where = offsets(4 * width, s.itemsize, 9, unique=True)
        for base in (0, 24 * s.itemsize):
            for form in addressed(s.itemsize):
                call = replace(form, operation=SCATTER, type=TYPES.index(type), block=(base, 1, 1))
                expected = bytes_of(10).view(s.dtype).copy()
                plain = replace(call, block=(1, 1, 1))
                for r, place in enumerate(plain.places(1, s.itemsize, width)):
                    lanes = np.array(plain.lanes(width)[r], int) + (0 if call.form == COUNT else r * width)
                    expected[(base + where[lanes]) // s.itemsize] = s[place]
                found, report = launch("950pr", call, bytes_of(10), s, where)
                assert report.hazards == (), report.hazards
                np.testing.assert_array_equal(found.view(s.dtype), expected, err_msg=str(call))


@pytest.mark.parametrize("soc", SOCS)
def test_gather_blocks(soc: str) -> None:
    # Page Gatherb: eight blocks of 32 bytes a repeat; a dstBlkStride of 0 counts as 1.
    where = (np.random.default_rng(11).integers(0, REGION // 32, 40) * 32).astype(np.uint32)
    for type in ("uint16_t", "uint32_t") if soc == "a3" else TYPES:
        s = source(type, 12)
        for block, repeat in ((1, 8), (0, 8), (3, 25), (2, 17)):
            call = Call(
                operation=GATHER_BLOCKS, type=TYPES.index(type), repeats=5, block=(1, block, 1), repeat=(repeat, 8, 8)
            )
            expected = bytes_of(13)
            for i, at in enumerate(where):
                to = (i // 8 * repeat + i % 8 * max(block, 1)) * 32
                expected[to : to + 32] = s.view(np.uint8)[at : at + 32]
            found, report = launch(soc, call, bytes_of(13), s, where)
            assert report.hazards == (), report.hazards
            np.testing.assert_array_equal(found, expected)


def test_the_page_s_example_of_gatherb() -> None:
    where = np.arange(224, -1, -32, dtype=np.uint32)
    s = np.arange(REGION // 2, dtype=np.uint16)
    found, _ = launch("a3", Call(operation=GATHER_BLOCKS, type=4, repeats=1), bytes_of(13), s, where)
    np.testing.assert_array_equal(found.view(np.uint16)[:128], np.arange(128).reshape(8, 16)[::-1].ravel())


@pytest.mark.parametrize("soc", SOCS)
def test_what_is_written_is_what_is_said_to_be(soc: str) -> None:
    s = values("float", 16)
    where = np.resize(offsets(256, 4, 17), REGION // 4)
    for form in addressed(4):
        check_written("vector_gather", soc, replace(form, operation=GATHER, type=1, block=(0, 1, 1)), s, where)
    call = Call(operation=GATHER_BLOCKS, type=6, repeats=3, block=(1, 2, 1), repeat=(17, 8, 8))
    check_written("vector_gather", soc, call, s, where // 32 * 32)
    check_written("vector_gather", soc, Call(operation=COUNTER_BEFORE, type=1, count=13), s, where)
    if soc == "950pr":
        places = np.resize(offsets(140, 4, 18, unique=True), REGION // 4)
        check_written("vector_gather", soc, Call(operation=SCATTER, type=1, count=133, block=(0, 1, 1)), s, places)


# ---- What is refused ----

THREE = np.array([0, 4, 8], np.uint32)


@pytest.mark.parametrize(
    ("soc", "call", "third", "kind", "text"),
    [
        (
            "a3",
            Call(operation=BUILT_IN, type=1, mode=8, form=NUMBER, repeats=1),
            THREE,
            "argument",
            "src1Pattern is 8; it has to be 1 to 7",
        ),
        ("a3", Call(operation=BUILT_IN, type=1, mode=1, form=NUMBER, repeats=0), THREE, "argument", "repeatTimes is 0"),
        ("a3", Call(operation=BUILT_IN, type=1, mode=1, form=COUNT, count=0), THREE, "argument", "mask is 0"),
        (
            "a3",
            Call(operation=BUILT_IN, type=1, mode=1, form=NUMBER, offset=16),
            THREE,
            "alignment",
            "GatherMask: dst starts at byte 16",
        ),
        (
            "a3",
            Call(operation=BUILT_IN, type=1, mode=7, form=NUMBER, repeats=300, repeat=(0, 0, 0)),
            THREE,
            "out_of_bounds",
            "GatherMask (dst)",
        ),
        ("a3", Call(operation=GATHER, type=1, count=3, block=(2, 1, 1)), THREE, "alignment", "srcBaseAddr is 2"),
        (
            "a3",
            Call(operation=GATHER, type=1, count=3, block=(0, 1, 1)),
            THREE + 2,
            "alignment",
            "offset 2 of element 0",
        ),
        (
            "a3",
            Call(operation=GATHER, type=1, count=3, block=(0, 1, 1)),
            THREE + 65536,
            "out_of_bounds",
            "Gather (src)",
        ),
        (
            "a3",
            Call(operation=GATHER, type=1, count=3, block=(0, 1, 1), place=1, offset=32),
            THREE + 32,
            "argument",
            "dst and src overlap",
        ),
        ("a3", Call(operation=GATHER_BLOCKS, type=6), THREE, "alignment", "offset 4 of block 1"),
        (
            "950pr",
            Call(operation=SCATTER, type=1, count=4, block=(0, 1, 1)),
            np.array([0, 4, 8, 4], np.uint32),
            "argument",
            "two elements go to byte 4",
        ),
        (
            "950pr",
            Call(operation=SCATTER, type=1, count=3, block=(0, 1, 1)),
            THREE + 65536,
            "out_of_bounds",
            "Scatter (dst)",
        ),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_done(
    soc: str, call: Call, third: Array, kind: str, text: str
) -> None:
    s = values("float", 14)
    third = np.concatenate([third, np.zeros(REGION // 4 - len(third), np.uint32)])
    found, report = launch(soc, call, bytes_of(15), s, third)
    assert [hazard.kind for hazard in report.hazards] == [kind], report.hazards
    assert text in report.hazards[0].message
    before = bytes_of(15) if call.place == 0 else s.view(np.uint8)
    np.testing.assert_array_equal(found[:-8], before[:-8])


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "Scatter: dav-2201 does not have it"),
        (2, "Gather: dav-2201 does not have it"),
        (3, "Gatherb: dav-2201 does not have it"),
        (4, "an element of src1Pattern has the size"),
        (5, "GatherMask: dav-2201 does not have it"),
    ],
)
def test_what_a_soc_does_not_have_does_not_compile(number: int, text: str) -> None:
    with pytest.raises(emulator.KernelBuildError, match=text):
        emulator.build(SOURCE, entry="vector_gather", soc="a3", defines={"REFUSED": number})
