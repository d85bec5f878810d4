"""DataCopy and DataCopyPad between global memory and UB, and within UB, against loops over bytes.

The sentences that the tests come from are of the documentation's pages "DataCopy (GM and UB)", "DataCopyPad (GM to
UB)", "DataCopyPad (UB to GM)", "DataCopy (UB to UB)" and "SetAtomicAdd / Max / Min".
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ascend_k3.ops import emulator

Bytes = NDArray[np.uint8]
ROOM = 4096
SOCS = ("a3", "950pr")
SIZES = (1, 2, 4, 8)
GENERATOR = np.random.default_rng(7)
X: Bytes = GENERATOR.integers(0, 120, 1 << 16).astype(np.uint8)  # no NaN in any type
BASE: Bytes = GENERATOR.integers(0, 120, 2 * ROOM).astype(np.uint8)
FIELDS = (
    "op count block_count block_len source_gap destination_gap is_pad left right value ub_offset gm_offset atomic "
    "is_bfloat16"
).split()


def run(source: Any, soc: str, size: int, op: str, y: Any = None, **fields: int) -> tuple[Bytes, emulator.Report]:
    copies = source("copies.cpp")
    values = dict.fromkeys(FIELDS, 0) | {"op": copies.opcodes[op]} | fields
    params = struct.pack("<4i2q8i", *(values[name] for name in FIELDS))
    y = np.full(ROOM, 99, np.uint8) if y is None else y
    report = copies.build(soc).launch(1, X.copy(), y, BASE.copy(), size, params)
    return y, report


def rows(count: int, length: int, source_pitch: int, pitch: int) -> list[tuple[int, int]]:
    return [(i * source_pitch, i * pitch) for i in range(count)]


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("size", SIZES)
def test_count_moves_consecutive_elements(source: Any, soc: str, size: int) -> None:
    """ "Continuous copies ... the format and contents of the data are kept"; the address in GM is of any element."""
    y, report = run(source, soc, size, "in_count", count=96 // size, gm_offset=3 * size, ub_offset=64)
    want = BASE[:ROOM].copy()
    want[64:160] = X[3 * size : 3 * size + 96]
    assert report.hazards == () and np.array_equal(y, want)
    y, report = run(source, soc, size, "out_count", count=96 // size, gm_offset=3 * size, ub_offset=64)
    want = np.full(ROOM, 99, np.uint8)
    want[3 * size : 3 * size + 96] = BASE[64:160]
    assert report.hazards == () and np.array_equal(y, want)


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize(
    ("count", "length", "source_gap", "gap"), [(1, 8, 0, 0), (2, 3, 1, 2), (5, 1, 0, 3), (4, 2, 7, 0)]
)
def test_blocks_lie_a_gap_apart(source: Any, soc: str, count: int, length: int, source_gap: int, gap: int) -> None:
    """ "srcGap, dstGap: from the end of a block to the start of the next", in blocks of 32 bytes, as is blockLen."""
    fields = dict(block_count=count, block_len=length, source_gap=source_gap, destination_gap=gap)
    places = rows(count, length, 32 * (length + source_gap), 32 * (length + gap))
    for op, of, want in (
        ("in_blocks", X, BASE[:ROOM].copy()),
        ("out_blocks", BASE, np.full(ROOM, 99, np.uint8)),
        ("within_blocks", BASE[ROOM:], BASE[:ROOM].copy()),
    ):
        for a, b in places:
            want[b : b + 32 * length] = of[a : a + 32 * length]
        y, report = run(source, soc, 4, op, **fields)
        assert report.hazards == () and np.array_equal(y, want), op


def test_within_ub_moves_consecutive_elements(source: Any) -> None:
    y, report = run(source, "a3", 4, "within_count", count=80)
    assert report.hazards == () and np.array_equal(y, np.concatenate([BASE[ROOM : ROOM + 320], BASE[320:ROOM]]))


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("elements", [1, 3, 4, 5, 8, 13, 32])
@pytest.mark.parametrize("is_pad", [0, 1])
def test_rest_of_a_block_is_the_first_element(source: Any, soc: str, size: int, elements: int, is_pad: int) -> None:
    """ "leftPadding, rightPadding both 0: dummy is filled with the first element of the block that is moved." """
    length = elements * size
    y, report = run(
        source,
        soc,
        size,
        "in_pad",
        block_count=3,
        block_len=length,
        source_gap=5,
        destination_gap=2,
        is_pad=is_pad,
        gm_offset=1,
    )
    whole, want = (length + 31) // 32 * 32, BASE[:ROOM].copy()
    for row in range(3):
        taken = X[1 + row * (length + 5) :][:length]
        filled = np.concatenate([taken, np.tile(taken[:size], 32)])[:whole]
        want[row * (whole + 64) :][:whole] = filled
    assert report.hazards == () and np.array_equal(y, want)


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize(("left", "right", "elements"), [(0, 3, 5), (2, 0, 6), (1, 2, 1), (4, 4, 16), (3, 1, 4)])
@pytest.mark.parametrize("is_pad", [1, 2])
def test_paddings_and_rest_are_the_padding_value(
    source: Any, soc: str, size: int, left: int, right: int, elements: int, is_pad: int
) -> None:
    """ "leftPadding/rightPadding not 0: ... otherwise paddingValue", counted in elements; of 64 bits it is 0.

    is_pad 2: "SetPadValue sets the data outside of the call; isPad has to be false then".
    """
    value, length = (0 if size == 8 else 3), elements * size
    y, report = run(
        source, soc, size, "in_pad", block_count=2, block_len=length, is_pad=is_pad, left=left, right=right, value=value
    )
    dtype = {1: np.int8, 2: np.float16, 4: np.float32, 8: np.int64}[size]
    filler = np.frombuffer(np.full(1, value, dtype).tobytes(), np.uint8)
    whole, want = (length + (left + right) * size + 31) // 32 * 32, BASE[:ROOM].copy()
    for row in range(2):
        line = np.concatenate([np.tile(filler, left), X[row * length :][:length], np.tile(filler, 32)])
        want[row * whole :][:whole] = line[:whole]
    assert report.hazards == () and np.array_equal(y, want)


@pytest.mark.parametrize("soc", SOCS)
def test_without_paddings_the_rest_is_the_first_element_all_the_same(source: Any, soc: str) -> None:
    """ "leftPadding and rightPadding both 0: dummy is the first element of the block", whatever SetPadValue got."""
    y, report = run(source, soc, 4, "in_pad", block_count=1, block_len=20, is_pad=2, value=3)
    assert report.hazards == () and np.array_equal(y[20:32], np.tile(X[:4], 3))


@pytest.mark.parametrize("soc", SOCS)
def test_paddings_without_a_value_are_random(source: Any, soc: str) -> None:
    """ "isPad is false: the values filled in on both sides and dummy are random": to read them is a hazard."""
    y, report = run(source, soc, 4, "in_pad", block_count=2, block_len=20, left=1, right=1)
    assert {hazard.kind for hazard in report.hazards} == {"uninitialised"}
    text = " ".join(hazard.message for hazard in report.hazards)
    assert "bytes [0, 4) of UB" in text  # the padding before the first row
    for row in range(2):
        assert np.array_equal(y[row * 32 + 4 :][:20], X[row * 20 :][:20])


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("elements", [1, 3, 4, 7, 24])
def test_copy_out_writes_exactly_its_bytes(source: Any, soc: str, size: int, elements: int) -> None:
    """ "dummy is dropped when it comes to global memory"; rows in UB begin at blocks of 32 bytes, as gaps there are."""
    length = elements * size
    y, report = run(
        source, soc, size, "out_pad", block_count=3, block_len=length, source_gap=1, destination_gap=7, gm_offset=5
    )
    whole, want = (length + 31) // 32 * 32, np.full(ROOM, 99, np.uint8)
    for row in range(3):
        want[5 + row * (length + 7) :][:length] = BASE[row * (whole + 32) :][:length]
    assert report.hazards == () and np.array_equal(y, want)


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("op", ["in_blocks", "in_pad", "out_blocks", "out_pad"])
@pytest.mark.parametrize(("count", "length"), [(0, 1), (1, 0)])
def test_nothing_to_copy_is_nothing(source: Any, soc: str, op: str, count: int, length: int) -> None:
    """ "When blockCount or blockLen is 0 the call is a NOP." """
    y, report = run(source, soc, 1, op, block_count=count, block_len=length)
    want = BASE[:ROOM] if op.startswith("in") else np.full(ROOM, 99, np.uint8)
    assert report.hazards == () and np.array_equal(y, want)


def test_negative_gap_repeats_a_row(source: Any) -> None:
    """Ascend 950: "srcStride of -blockLen: every block that is moved is the same one"."""
    y, report = run(source, "950pr", 2, "in_pad", block_count=3, block_len=48, source_gap=-48, destination_gap=1)
    want = BASE[:ROOM].copy()
    for row in range(3):
        want[row * 96 :][:64] = np.concatenate([X[:48], np.tile(X[:2], 8)])
    assert report.hazards == () and np.array_equal(y, want)
    _, report = run(source, "950pr", 2, "in_pad", block_count=3, block_len=48, source_gap=-50)
    assert [h.kind for h in report.hazards] == ["argument"] and "has to be -48 to 2^40 - 1" in report.hazards[0].message


def test_compact_rows_touch(source: Any) -> None:
    """Ascend 950: "Compact: single rows need not be aligned, the end of the whole is filled up to 32 bytes"."""
    y, report = run(source, "950pr", 2, "in_pad_compact", block_count=2, block_len=48, source_gap=4)
    want = BASE[:ROOM].copy()
    want[:96] = np.concatenate([X[:48], X[52:100]])
    assert report.hazards == () and np.array_equal(y, want)
    y, report = run(source, "950pr", 1, "in_pad_compact", block_count=3, block_len=5)
    assert np.array_equal(y[:15], X[:15]) and [h.kind for h in report.hazards] == ["uninitialised"]
    assert "bytes [15, 32) of UB" in report.hazards[0].message
    y, report = run(source, "950pr", 1, "out_pad_compact", block_count=3, block_len=5, destination_gap=2)
    want = np.full(ROOM, 99, np.uint8)
    for row in range(3):
        want[row * 7 :][:5] = BASE[row * 5 :][:5]
    assert report.hazards == () and np.array_equal(y, want)


def test_compact_is_refused_on_2201(tmp_path: Any) -> None:
    kernel = tmp_path / "compact.cpp"
    kernel.write_text(
        '#include "kernel_operator.h"\nusing namespace AscendC;\n'
        'extern "C" __global__ __aicore__ void compact(GM_ADDR x) {\n'
        "    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);\n"
        "    GlobalTensor<float> a;\n    LocalTensor<float> b(TPosition::VECIN, 0, 8);\n"
        "    DataCopyPad<float, PaddingMode::Compact>(b, a, DataCopyExtParams(1, 4, 0, 0, 0),\n"
        "        DataCopyPadExtParams<float>());\n}\n"
    )
    with pytest.raises(emulator.KernelBuildError, match="DataCopyPad: the compact mode exists on dav-3510 only"):
        emulator.build(kernel, entry="compact", soc="a3")


@pytest.mark.parametrize(
    ("op", "fields", "kind", "said"),
    [
        ("in_count", dict(count=7), "alignment", "7 elements are 28 bytes"),
        (
            "in_count",
            dict(count=8, ub_offset=16),
            "alignment",
            "starts at byte 16 of UB; its address has to be a multiple of 32",
        ),
        (
            "in_count",
            dict(count=8, gm_offset=2),
            "alignment",
            "starts at byte 2 of argument 0; its address has to be a multiple of 4",
        ),
        (
            "out_count",
            dict(count=8, gm_offset=2),
            "alignment",
            "starts at byte 2 of argument 1; its address has to be a multiple of 4",
        ),
        ("in_count", dict(count=8, gm_offset=(1 << 16) - 16), "out_of_bounds", "bytes [65520, 65552) of argument 0"),
        ("in_blocks", dict(block_count=4096, block_len=1), "argument", "blockCount is 4096; it may be at most 4095"),
        ("in_blocks", dict(block_count=2, block_len=1, destination_gap=6000), "out_of_bounds", "of UB"),
        (
            "out_blocks",
            dict(block_count=2, block_len=1, destination_gap=200),
            "out_of_bounds",
            "of argument 1, which has bytes [0, 4096)",
        ),
        ("in_pad", dict(block_count=1, block_len=6), "alignment", "blockLen is 6 bytes"),
        ("in_pad", dict(block_count=1, block_len=1 << 21), "argument", "may be at most 2097151"),
        ("in_pad", dict(block_count=1, block_len=8, is_pad=1, left=9), "argument", "leftPadding 9 and rightPadding 0"),
        ("out_pad", dict(block_count=1, block_len=8, ub_offset=4), "alignment", "starts at byte 4 of UB"),
    ],
)
def test_what_a_copy_does_not_take(source: Any, op: str, fields: dict[str, int], kind: str, said: str) -> None:
    y, report = run(source, "a3", 4, op, **fields)
    assert [h.kind for h in report.hazards] == [kind] and said in report.hazards[0].message
    assert report.hazards[0].location.endswith(f":{source('copies.cpp').lines[op]}")
    assert np.array_equal(y, BASE[:ROOM] if op.startswith("in") else np.full(ROOM, 99, np.uint8))  # nothing was copied


def test_padding_of_64_bits_can_only_be_zero(source: Any) -> None:
    """ "When the type has 64 bits this parameter can only be 0." """
    _, report = run(source, "950pr", 8, "in_pad", block_count=1, block_len=8, is_pad=2, right=1, value=3)
    assert [hazard.kind for hazard in report.hazards if "SetPadValue" in hazard.message] == ["argument"]
    _, report = run(source, "a3", 8, "in_pad", block_count=1, block_len=8, is_pad=1, right=1, value=5)
    assert [h.kind for h in report.hazards] == ["argument"] and "can only be 0" in report.hazards[0].message


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("atomic", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["int8", "int16", "float16", "bfloat16", "int32", "float32"])
def test_atomic_copies_combine(source: Any, soc: str, atomic: int, dtype: str) -> None:
    """ "What is copied and what is in GM are added (SetAtomicMax, Min: compared), the result is written to GM." """
    size = {"int8": 1, "int16": 12, "float16": 2, "bfloat16": 2, "int32": 16, "float32": 4}[dtype]
    type_ = getattr(torch, dtype)
    bytes_ = torch.empty(0, dtype=type_).element_size()
    y = GENERATOR.integers(0, 60, ROOM).astype(np.uint8)
    old = torch.frombuffer(bytearray(y.tobytes()), dtype=type_).clone()
    new = torch.frombuffer(bytearray(BASE[: 8 * bytes_ * 3].tobytes()), dtype=type_)
    y, report = run(
        source,
        soc,
        size,
        "atomic_out",
        y=y,
        block_count=1,
        block_len=5 * bytes_,
        atomic=atomic,
        is_bfloat16=int(dtype == "bfloat16"),
        gm_offset=2 * bytes_,
    )
    want = old.clone()
    want[2:7] = (torch.add, torch.maximum, torch.minimum)[atomic](old[2:7], new[:5])
    got = torch.frombuffer(bytearray(y.tobytes()), dtype=type_)
    assert report.hazards == ()
    assert torch.equal(got.view(torch.uint8), want.view(torch.uint8))


def test_atomic_of_another_type_does_not_compile(tmp_path: Any) -> None:
    kernel = tmp_path / "atomic.cpp"
    kernel.write_text(
        '#include "kernel_operator.h"\nusing namespace AscendC;\n'
        'extern "C" __global__ __aicore__ void atomic_type(GM_ADDR x) {\n'
        "    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);\n"
        "    SetAtomicAdd<uint32_t>();\n}\n"
    )
    with pytest.raises(emulator.KernelBuildError, match="types are int8, int16, half, bfloat16, int32 and float"):
        emulator.build(kernel, entry="atomic_type", soc="a3")


@pytest.mark.parametrize("soc", SOCS)
def test_bytes_are_counted_by_path(source: Any, soc: str) -> None:
    _, report = run(source, soc, 4, "in_pad", block_count=3, block_len=20)
    counters = report.data["cores"][0]["counters"]
    assert counters["GM->UB"]["amount"] == 2 * ROOM + 60 and counters["UB->GM"]["amount"] == ROOM
    read = {buffer["name"]: (buffer["read"], buffer["written"]) for buffer in report.data["buffers"]}
    assert read["argument 0"] == (60, 0) and read["argument 1"] == (0, ROOM) and read["argument 2"] == (2 * ROOM, 0)
