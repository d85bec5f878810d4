"""Vector functions of dav-3510: the order of their loads and stores, missing values, refusals, cost; a whole kernel."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

from ascend_k3.ops import emulator
from ascend_k3.ops.emulator.report import Report
from tests.ops.emulator.conftest import FOLDER, Source
from tests.ops.emulator.test_registers import Array, region, run
from tests.tolerances import RELATIVE_RMS, relative_rms


@pytest.fixture(scope="module")
def kernel(source: type[Source]) -> Source:
    return source("register/register_hazards.cpp")


def launched(kernel: Source, op: str, count: int = 64, times: int = 0, seed: int | None = None) -> tuple[Array, Report]:
    d, a, b = (region("float", number) for number in (1, 2, 3))
    return run(kernel, op, d, a, b, count=count, times=times, seed=seed)


# Page LocalMemBar: a barrier is needed between a store and a load, or another store, of the same bytes, and between a
# load and a store, unless both name one register (here: while it holds one value, since the compiler picks registers).
# "Reg vector computation programming", pipeline synchronization: nor where what is stored derives from what was loaded.
RIGHT = [
    "READ_BEHIND_BARRIER",
    "READ_BEHIND_ALL",
    "READ_SAME_REGISTER",
    "READ_ELSEWHERE",
    "LOOP_OF_THE_PAGE",
    "WRITE_BEHIND_BARRIER",
    "WRITE_DERIVED",
    "WRITE_MASK_DERIVED",
    "SUM_OVER_ITS_OWN",
    "WRITE_TWICE_BEHIND_BARRIER",
    "WRITE_TWICE_SAME_REGISTER",
    "WRITE_TWICE_BEHIND_LOAD",
    "TWO_FUNCTIONS",
    "UNWRITTEN_MASKED",
]


@pytest.mark.parametrize("op", RIGHT)
def test_nothing_to_report(kernel: Source, op: str) -> None:
    count = 32 if op == "UNWRITTEN_MASKED" else 64
    found, report = launched(kernel, op, count)
    assert report.hazards == ()
    for seed in range(3):
        again, report = launched(kernel, op, count, seed=seed)
        assert report.hazards == ()
        np.testing.assert_array_equal(again.view(np.uint8), found.view(np.uint8))


# The op, the line where it is reported, the kind, parts of the message.
WRONG = [
    (
        "READ_AFTER_WRITE",
        "load",
        "race",
        ("read after write in a vector function", "LocalMemBar<MemType::VEC_STORE, MemType::VEC_LOAD>"),
    ),
    ("READ_BEHIND_WRONG_BARRIER", "load", "race", ("Reg::StoreAlign at", "@stored")),
    ("LOOP_WITHOUT_BARRIER", "", "race", ("read after write in a vector function",)),
    ("GATHER_WITHOUT_BARRIER", "gather", "race", ("Reg::Gather reads bytes",)),
    (
        "WRITE_AFTER_READ",
        "overwrite",
        "race",
        ("write after read", "LocalMemBar<MemType::VEC_LOAD, MemType::VEC_STORE>"),
    ),
    ("WRITE_DERIVED_FROM_OTHER", "other", "race", ("write after read",)),
    ("SUM_OVER_THE_OTHER", "sum", "race", ("write after read", "bytes [4608, 4864) of UB")),
    ("WRITE_OTHER_VALUE", "other_value", "race", ("write after read",)),
    ("WRITE_TWICE_OTHER_VALUE", "again", "race", ("write after write",)),
    (
        "WRITE_AFTER_WRITE",
        "second",
        "race",
        ("bytes [32, 256) of UB", "@first", "MemType::VEC_STORE, MemType::VEC_STORE"),
    ),
    ("WRITE_TWICE_BEHIND_OTHERS", "second", "race", ("write after write",)),
    ("NO_FLAG_BEFORE", "copied_from", "race", ("Reg::LoadAlign (pipe V, src) reads", "@copy_in", "HardEvent::MTE2_V")),
    ("NO_FLAG_BEHIND", "copy_out", "race", ("that Reg::StoreAlign at", "@copied_to", "HardEvent::V_MTE3")),
    (
        "UNWRITTEN_MEMORY",
        "unwritten_use",
        "uninitialised",
        ("Reg::Exp (src) uses elements 0 to 63", "@unwritten_load", "bytes that nothing has written"),
    ),
    ("HALF_WRITTEN", "half_written", "uninitialised", ("Reg::Exp (src) uses elements 1 to 1",)),
    (
        "UNWRITTEN_REGISTER",
        "unwritten_register",
        "uninitialised",
        ("Reg::Add (src1) uses elements 0 to 63", "nothing has written them"),
    ),
    ("UNWRITTEN_ACCUMULATOR", "unwritten_accumulator", "uninitialised", ("Reg::MulAddDst (src2)",)),
    ("UNWRITTEN_MASK", "unwritten_mask", "uninitialised", ("its mask register holds no value",)),
    ("UNWRITTEN_ADDRESS", "unwritten_address", "uninitialised", ("its address register holds no value",)),
    ("FREED_TENSOR", "freed", "use_after_free", ("asc_vf_call (argument)",)),
    ("GLOBAL_ARGUMENT", "global", "argument", ("argument 1 is no address of UB",)),
    ("CALL_IN_FUNCTION", "call_in_function", "argument", ("Duplicate is called in a vector function",)),
    ("SCALAR_IN_FUNCTION", "scalar_in_function", "argument", ("SetValue is called in a vector function",)),
    ("OUTSIDE_OF_FUNCTION", "outside", "argument", ("Reg::Duplicate is called outside of a vector function",)),
    ("FIVE_UNALIGNED", "fifth", "capacity", ("more than 4 are alive",)),
    ("POST_MISSING", "post_missing", "argument", ("the last 20 bytes stay", "StoreUnAlignPost is missing")),
    ("NOT_ADJACENT", "not_adjacent", "argument", ("for address 52 of UB, and this store begins at 64",)),
    ("NOT_ADJACENT", "post_elsewhere", "argument", ("the bytes that wait end at 52",)),
    ("PRE_MISSING", "pre_missing", "argument", ("LoadUnAlignPre for this address is missing",)),
    ("PLAIN_POINTER", "", "raw_pointer", ("byte 0 of UB",)),
    ("STEP_UNALIGNED", "step", "alignment", ("postUpdateStride is 48 bytes",)),
    ("SAME_DESTINATIONS", "same", "argument", ("dstReg0 and dstReg1 are one register",)),
]


@pytest.mark.parametrize(("op", "mark", "kind", "texts"), WRONG, ids=[f"{row[0]}-{row[1]}" for row in WRONG])
def test_what_is_reported(kernel: Source, op: str, mark: str, kind: str, texts: tuple[str, ...]) -> None:
    for seed in (None, 1):
        _, report = launched(kernel, op, seed=seed)
        place = f"register_hazards.cpp:{kernel.lines[mark]}" if mark else ""
        parts = [f"register_hazards.cpp:{kernel.lines[text[1:]]}" if text.startswith("@") else text for text in texts]
        found = [str(hazard) for hazard in report.hazards if hazard.kind == kind and hazard.location.endswith(place)]
        if seed is not None and op == "NO_FLAG_BEHIND":  # the copy may come first
            continue
        assert any(all(part in text for part in parts) for text in found), [str(hazard) for hazard in report.hazards]


def test_every_case_is_tried(kernel: Source) -> None:
    assert sorted(kernel.opcodes) == sorted({*RIGHT, *(row[0] for row in WRONG), "COUNTED", "COUNTED_STORES"})


def test_without_checks_nothing_is_reported(kernel: Source) -> None:
    """`hazards=False` runs the same instructions."""
    d, a, b = (region("float", number) for number in (1, 2, 3))
    expected, _ = launched(kernel, "LOOP_WITHOUT_BARRIER")
    call = struct.pack("<iiiifi", kernel.opcodes["LOOP_WITHOUT_BARRIER"], 64, 0, 0, 0.0, 0)
    report = kernel.build("950pr").launch(1, d.view(np.uint8), a.view(np.uint8), b.view(np.uint8), call, hazards=False)
    assert report.hazards == ()
    np.testing.assert_array_equal(d, expected)


# ---- What does not compile ----

# By GROUP of the source.
REFUSED = [
    (
        "Reg::Exp: dav-3510 does not have it for this element type; it has half, float.",
        "Reg::Mul: dav-3510 does not have it for this element type",
        "RegTensor: the emulator has elements of 8, 16 and 32 bits.",
    ),
    (
        "this call has MaskMergeMode::ZEROING alone",
        "LoadAlign: this LoadDist is of elements of another size.",
        "LoadAlign: the address and the register have to be of one element type.",
        "LocalMemBar: dav-3510 does not have this pair of MemType",
        "Reg::Squeeze: the emulator does not have the AR register",
    ),
    (
        "Reg::Cast: dav-3510 does not convert between these types",
        "Reg::Cast: layoutMode names which of the narrow elements",
        "Reg::Cast: satMode has to be NO_SAT or SAT where a result may not fit",
        "Reg::Cast: this pair of types does not have this roundMode",
    ),
    (
        "no matching function for call to ‘UpdateMask<float>(uint16_t&)’",
        "‘Histograms’ is not a member of",
    ),
    ("asc_vf_call: arguments have to be addresses of UB or plain numbers",),
]


@pytest.mark.parametrize("group", range(len(REFUSED)))
def test_what_dav_3510_does_not_have(group: int) -> None:
    source = FOLDER / "register/register_refused.cpp"
    with pytest.raises(emulator.KernelBuildError) as refused:
        emulator.build(source, entry="register_refused", soc="950pr", defines={"GROUP": group})
    for text in REFUSED[group]:
        assert text in str(refused.value)


def test_dav_2201_has_no_registers() -> None:
    with pytest.raises(emulator.KernelBuildError) as refused:
        emulator.build(FOLDER / "register/register_refused.cpp", entry="register_refused", soc="a3")
    assert "RegTensor: dav-2201 has no vector registers" in str(refused.value)
    assert "asc_vf_call: dav-2201 has no vector functions" in str(refused.value)


# ---- Cost ----


def test_cycles_and_counters(kernel: Source) -> None:
    """Two instructions start in a cycle, one of them a store at most ("single and dual issue").

    An iteration has a mask, two loads and a product of a cycle each, Exp with 16 elements a cycle, a sum of integers
    with 32, and a store ("theoretical performance of the Reg interfaces").
    """
    _, report = launched(kernel, "COUNTED", count=300, times=5)
    assert report.hazards == ()
    cycles = -(-5 * (1 + 1 + 1 + 1 + 4 + 2 + 1) // 2)
    clock = report.soc.clock_hz
    assert report.estimate().pipes["V"] * clock == pytest.approx(cycles, rel=1e-6)
    counters = report.counters
    assert counters.vector["Reg::Exp"] == 300 and counters.vector["Reg::LoadAlign"] == 2 * 5 * 64
    assert counters.repeats == 5 * 7 and counters.instructions["V"] == 1
    assert set(counters.vector) == {
        f"Reg::{name}" for name in ("UpdateMask", "LoadAlign", "Mul", "Exp", "Add", "StoreAlign")
    }
    call = next(event for event in report.timeline if event.name == "asc_vf_call")
    assert (call.end - call.begin) * clock == pytest.approx(cycles, rel=1e-5)
    _, report = launched(kernel, "COUNTED_STORES", times=8)
    assert report.estimate().pipes["V"] * clock == pytest.approx(8, rel=1e-6)


# ---- A whole kernel ----


@pytest.fixture(scope="module")
def row_norm(source: type[Source]) -> Source:
    return source("register/row_norm.cpp")


def normalized(
    row_norm: Source, rows: int, columns: int, **launch: object
) -> tuple[torch.Tensor, torch.Tensor, Report]:
    """(result, reference in float64, report)."""
    generator = torch.Generator().manual_seed(rows * 1000 + columns)
    x = torch.randn(rows, columns, generator=generator).bfloat16()
    weight = torch.randn(columns, generator=generator)
    y = torch.empty_like(x)
    report = row_norm.build("950pr").launch(2, x, weight, y, rows, columns, 1e-5, outputs=[2], **launch)  # type: ignore[arg-type]
    wide = x.double()
    return y, wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double(), report


@pytest.mark.parametrize("columns", [1, 16, 63, 64, 65, 200, 513])
def test_rows_with_tails(row_norm: Source, columns: int) -> None:
    y, expected, report = normalized(row_norm, 5, columns)
    assert report.hazards == ()
    assert relative_rms(y, expected) < RELATIVE_RMS[torch.bfloat16]


def test_rows_in_other_orders(row_norm: Source) -> None:
    """A kernel without hazards gives the same bits in every order of pipes and cores that it allows."""
    y, _, _ = normalized(row_norm, 7, 200)
    for seed in range(10):
        again, _, report = normalized(row_norm, 7, 200, seed=seed)
        assert report.hazards == ()
        assert torch.equal(again.view(torch.int16), y.view(torch.int16))


def test_mutations_of_the_kernel(row_norm: Source) -> None:
    """Without its LocalMemBar, or with a buffer one block shorter, the kernel has a hazard."""
    _, _, report = normalized(row_norm, 3, 200, list_mutations=True)
    points = [tuple(point[:4]) for point in report.data["mutation_points"]]
    chosen = [point for point in points if point[0] in ("local_barrier", "buffer")]
    assert [point[0] for point in chosen].count("local_barrier") == 1
    assert [point[0] for point in chosen].count("buffer") == 4
    for point in chosen:
        _, _, report = normalized(row_norm, 3, 200, mutation=point)
        assert report.hazards, point
