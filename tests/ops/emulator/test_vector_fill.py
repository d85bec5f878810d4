"""Duplicate, Brcb, Copy, CreateVecIndex, Transpose, TransDataTo5HD, Interleave, DeInterleave: against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.emulator.vector_oracle import (
    BITS,
    COUNTER,
    NUMBER,
    OUTSIDE,
    OUTSIDE_COUNTER,
    REGION,
    Array,
    Call,
    check,
    expected,
    forms,
    named,
    replace,
    run,
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
(
    DUPLICATE,
    BRCB,
    COPY,
    CREATE_VEC_INDEX,
    TRANSPOSE,
    TRANS_DATA,
    INTERLEAVE,
    DEINTERLEAVE,
    DEINTERLEAVE_ONE,
    DUPLICATE_FIRST,
    COPY_COUNT,
) = range(11)
BYTES = 12
ALL_2201 = ("half", "float", "int16_t", "int32_t", "uint16_t", "bfloat16_t", "uint32_t")
ALL_3510 = (*ALL_2201, "int8_t", "uint8_t", "int64_t", "uint64_t")


def types(soc: str) -> tuple[str, ...]:
    return ALL_2201 if soc == "a3" else ALL_3510


def typed(type: str, operation: int, **more: object) -> Call:
    return replace(Call(operation=operation, type=TYPES.index(type)), **more)  # type: ignore[arg-type]


# ---- Duplicate ----


@pytest.mark.parametrize("soc", SOCS)
def test_duplicate(soc: str) -> None:
    """Page Duplicate: the scalar in the elements that take part, in every form."""
    for type in types(soc):
        d = values(type, 0)
        value = values(type, 5, 1)
        found, report = run("vector_fill", soc, typed(type, DUPLICATE, count=300, scalar=value.tobytes()), d)
        assert report.hazards == ()
        np.testing.assert_array_equal(found[:300], np.resize(value, 300))
        np.testing.assert_array_equal(found[300:], d[300:])
    for type, width in (("float", 64), ("uint16_t", 128)):
        d, value = values(type, 0), values(type, 5, 1)
        for call in forms(width):
            call = replace(call, operation=DUPLICATE, type=TYPES.index(type), scalar=value.tobytes())
            check("vector_fill", soc, call, d, (), lambda d, v=value: np.resize(v, d.shape))


def test_duplicate_of_the_first_element() -> None:
    """Page Duplicate (dav-3510): a tensor's first element may be the source."""
    d, a = values("half", 0), values("half", 1)
    found, report = run("vector_fill", "950pr", typed("half", DUPLICATE_FIRST, count=99), d, a)
    assert report.hazards == ()
    np.testing.assert_array_equal(found[:99], np.resize(a[0], 99))
    np.testing.assert_array_equal(found[99:], d[99:])


# ---- Brcb ----


@pytest.mark.parametrize("soc", SOCS)
def test_brcb(soc: str) -> None:
    """Page Brcb: each of 8 elements of a repeat fills one block; strides of dst alone; it does not look at the mask."""
    for type in types(soc):
        d, a = values(type, 0), values(type, 1)
        a_block = 32 // d.itemsize
        for repeats, block, repeat in ((1, 1, 8), (2, 1, 8), (3, 2, 16), (2, 3, 1), (5, 1, 9)):
            call = typed(type, BRCB, repeats=repeats, block=(block, 1, 1), repeat=(repeat, 8, 8))
            if repeats == 2:
                call = replace(call, form=OUTSIDE, mask=(5, 0))
            found, report = run("vector_fill", soc, call, d, a)
            assert report.hazards == (), (type, call)
            wanted = d.copy()
            for i in range(repeats):
                for j in range(8):
                    start = (i * repeat + j * block) * a_block
                    wanted[start : start + a_block] = a[i * 8 + j]
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("soc", SOCS)
def test_brcb_refuses(soc: str) -> None:
    """Page Brcb: no block stride of 0, source and destination apart; repeatTime 0 does nothing on dav-2201."""
    d, a = values("float", 0), values("float", 1)
    for call, text in (
        (typed("float", BRCB, repeats=2, block=(0, 1, 1)), "dstBlkStride is 0"),
        (typed("float", BRCB, repeats=2, place=1), "overlap"),
    ):
        _, report = run("vector_fill", soc, call, d, a)
        assert [hazard.kind for hazard in report.hazards] == ["argument"]
        assert text in report.hazards[0].message
    found, report = run("vector_fill", soc, typed("float", BRCB, repeats=0), d, a)
    np.testing.assert_array_equal(found, d)
    assert [hazard.kind for hazard in report.hazards] == ([] if soc == "a3" else ["argument"])


# ---- Copy ----


@pytest.mark.parametrize("soc", SOCS)
def test_copy(soc: str) -> None:
    """Page Copy (mask): types and strides; the second example takes 18 rows of 8 out of 18 rows of 64."""
    for type in types(soc):
        d, a = values(type, 0), values(type, 1)
        width = 256 // d.itemsize
        for call in (
            Call(form=NUMBER, mask=(width, 0), repeats=8),
            Call(form=NUMBER, mask=(32 // d.itemsize, 0), repeats=18, repeat=(1, 8, 0)),
            Call(form=BITS, mask=(0x5AF0, 0), repeats=3, block=(2, 1, 1), repeat=(16, 8, 0)),
        ):
            if d.itemsize == 1 and call.mask[0] > 128:
                continue  # 256 lanes of 8 bits are more than a mask has
            check("vector_fill", soc, replace(call, operation=COPY, type=TYPES.index(type)), d, (a,), lambda a, d: a)


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("form", [COUNTER, OUTSIDE_COUNTER])
def test_copy_in_counter_mode_is_the_exception(soc: str, form: int) -> None:
    """Page Copy: in counter mode the mask is each repeat's and repeatTime counts; the third example has 144 elements of
    18 blocks in one repeat."""
    d, a = values("int32_t", 0), values("int32_t", 1)
    for elements, repeats, block, repeat in (
        (144, 1, (1, 8), (8, 8)),
        (20, 3, (1, 1), (3, 5)),
        (70, 2, (1, 2), (9, 20)),
    ):
        call = typed(
            "int32_t", COPY, form=form, mask=(elements, 0), repeats=repeats, block=(*block, 1), repeat=(*repeat, 0)
        )
        found, report = run("vector_fill", soc, call, d, a)
        assert report.hazards == ()
        wanted = d.copy()
        for r in range(repeats):
            for i in range(elements):
                wanted[(r * repeat[0] + i // 8 * block[0]) * 8 + i % 8] = a[
                    (r * repeat[1] + i // 8 * block[1]) * 8 + i % 8
                ]
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("soc", SOCS)
def test_copy_refuses_wide_strides(soc: str) -> None:
    """Page Copy, table 4: repeat strides are at most 4095."""
    d, a = values("int32_t", 0), values("int32_t", 1)
    call = typed("int32_t", COPY, form=NUMBER, mask=(8, 0), repeats=1, repeat=(4096, 8, 0))
    _, report = run("vector_fill", soc, call, d, a)
    assert named(report.hazards) == [
        ("argument", "Copy: dstRepeatSize is 4096 and srcRepeatSize 8; they have to be 0 to 4095.")
    ]


def test_copy_with_a_count() -> None:
    """Page Copy (count; dav-3510)."""
    d, a = values("int8_t", 0), values("int8_t", 1)
    check("vector_fill", "950pr", typed("int8_t", COPY_COUNT, count=777), d, (a,), lambda a, d: a)


# ---- CreateVecIndex ----


@pytest.mark.parametrize("soc", SOCS)
def test_create_vec_index(soc: str) -> None:
    """Page CreateVecIndex: firstValue, firstValue + 1, ..."""
    for type in ("half", "float", "int16_t", "int32_t", *(() if soc == "a3" else ("int8_t", "int64_t"))):
        d = values(type, 0)
        count = 100 if type == "int8_t" else 500
        call = typed(type, CREATE_VEC_INDEX, count=count, scalar=np.array([7], d.dtype).tobytes())
        found, report = run("vector_fill", soc, call, d)
        assert report.hazards == ()
        np.testing.assert_array_equal(found[:count], np.arange(7, 7 + count, dtype=d.dtype))
        np.testing.assert_array_equal(found[count:], d[count:])


# ---- Transpose, TransDataTo5HD ----


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("place", [0, 1])
def test_transpose(soc: str, place: int) -> None:
    """Page Transpose: 16 x 16 of 16 bits; src and dst may be the same."""
    for type in ("half", "int16_t", "uint16_t"):
        d, a = values(type, 0), values(type, 1)
        found, report = run("vector_fill", soc, typed(type, TRANSPOSE, place=place), d, a)
        assert report.hazards == ()
        np.testing.assert_array_equal(found[:256].reshape(16, 16), a[:256].reshape(16, 16).T)
        np.testing.assert_array_equal(found[256:], (d, a)[place][256:])


@pytest.mark.parametrize("soc", SOCS)
def test_trans_data_to_5hd_of_planes(soc: str) -> None:
    """Page TransDataTo5HD, "NCHW to NC1HWC0": planes of H * W become pixels of 16 channels."""
    for type in ("half", "int16_t", "uint16_t"):
        a, d = values(type, 1), values(type, 0)
        pixels = 64  # of each plane: four blocks of 16
        call = typed(type, TRANS_DATA, repeats=4, block=(1, 4, 1), repeat=(16, 1, 0))
        found, report = run("vector_fill", soc, call, d, a)
        assert report.hazards == ()
        np.testing.assert_array_equal(found[: pixels * 16].reshape(pixels, 16), a[: pixels * 16].reshape(16, pixels).T)


@pytest.mark.parametrize("soc", SOCS)
def test_trans_data_to_5hd_of_one_repeat(soc: str) -> None:
    """Page TransDataTo5HD, figures 1 to 3: 16, 32 and 8 bits; a single repeat begins behind its repeat strides."""
    for type in ("half", "float", "int32_t"):
        a, d = values(type, 1), values(type, 0)
        a_block = 32 // a.itemsize
        for to_stride, from_stride in ((0, 0), (3, 2)):
            call = typed(type, TRANS_DATA, repeats=1, repeat=(to_stride, from_stride, 0))
            found, report = run("vector_fill", soc, call, d, a)
            assert report.hazards == ()
            size = 16 * a_block
            wanted, start = d.copy(), to_stride * a_block
            wanted[start : start + size] = a[from_stride * a_block :][:size].reshape(16, a_block).T.reshape(-1)
            np.testing.assert_array_equal(found, wanted)
    a, d = values("int8_t", 1), values("int8_t", 0)
    for halves in range(4):
        to_half, from_half = 16 * (halves & 1), 16 * (halves >> 1)
        found, report = run(
            "vector_fill", soc, Call(operation=TRANS_DATA, type=BYTES, mode=halves, repeats=1, repeat=(0, 0, 0)), d, a
        )
        assert report.hazards == ()
        wanted = d.copy().reshape(-1, 32)
        wanted[:16, to_half : to_half + 16] = a.reshape(-1, 32)[:16, from_half : from_half + 16].T
        np.testing.assert_array_equal(found.reshape(-1, 32), wanted)


@pytest.mark.parametrize("soc", SOCS)
def test_trans_data_to_5hd_without_repeats(soc: str) -> None:
    """Page TransDataTo5HD: repeatTimes 0 does nothing."""
    a, d = values("half", 1), values("half", 0)
    found, report = run("vector_fill", soc, typed("half", TRANS_DATA, repeats=0), d, a)
    assert report.hazards == ()
    np.testing.assert_array_equal(found, d)


# ---- Interleave, DeInterleave (dav-3510) ----


def test_interleave_and_back() -> None:
    """Pages Interleave and DeInterleave: pairs of both sources in turn over dst0 and dst1, and the way back."""
    for type in ("half", "float", "int8_t", "int64_t"):
        d, a, b = (values(type, seed) for seed in range(3))
        count = 256
        found, report = run("vector_fill", "950pr", typed(type, INTERLEAVE, count=count), d, a, b)
        assert report.hazards == ()
        mixed: Array = np.stack([a[:count], b[:count]], -1).reshape(-1)
        np.testing.assert_array_equal(found[: 2 * count], mixed)
        found, report = run("vector_fill", "950pr", typed(type, DEINTERLEAVE, count=count), d, a, b)
        assert report.hazards == ()
        both = np.concatenate([a[:count], b[:count]])
        np.testing.assert_array_equal(found[: 2 * count], np.concatenate([both[::2], both[1::2]]))
        found, report = run("vector_fill", "950pr", typed(type, DEINTERLEAVE_ONE, count=count), d, a)
        assert report.hazards == ()
        np.testing.assert_array_equal(found[: count // 2], a[:count:2])
        np.testing.assert_array_equal(found[count : count + count // 2], a[1:count:2])


def test_interleave_refuses() -> None:
    """Pages Interleave and DeInterleave: an even count, sources and destinations apart."""
    d, a, b = (values("float", seed) for seed in range(3))
    for operation in (INTERLEAVE, DEINTERLEAVE, DEINTERLEAVE_ONE):
        for call, text in (
            (typed("float", operation, count=7), "the count is 7"),
            (typed("float", operation, count=64, place=1), "overlap"),
        ):
            found, report = run("vector_fill", "950pr", call, d, a, b)
            assert [hazard.kind for hazard in report.hazards] == ["argument"]
            assert text in report.hazards[0].message
            np.testing.assert_array_equal(found, (d, a)[call.place])
    assert d.nbytes == REGION and expected(Call(count=1), d, (a,), lambda a, d: a)[0] == a[0]
