"""Each kind of hazard: a minimal kernel that makes it alone, at the line and with the words that help; its repair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ascend_k3.ops import emulator
from ascend_k3.ops.emulator.report import KINDS

TILE = 256  # floats, as in the kernel
SOCS = ("a3", "950pr")

# opcode of hazards.cpp: (kind, what the message has to say).
CASES = {
    "raw_mte2_v": (
        "race",
        "read after write: Add (pipe V, src0) reads bytes [0, 1024) of UB|DataCopy at|(pipe MTE2)|HardEvent::MTE2_V",
    ),
    "war_v_mte2": ("race", "write after read: DataCopy (pipe MTE2, dst)|that Add at|(pipe V) reads|HardEvent::V_MTE2"),
    "waw_mte2_v": ("race", "write after write: Add (pipe V, dst)|[2048, 3072) of UB|HardEvent::MTE2_V"),
    "raw_v_mte3": ("race", "read after write: DataCopy (pipe MTE3, src)|HardEvent::V_MTE3"),
    "war_mte3_v": ("race", "write after read: Add (pipe V, dst)|HardEvent::MTE3_V"),
    "raw_v_v": ("race", "read after write: Add|PipeBarrier<PIPE_V>"),
    "waw_v_v": ("race", "write after write: Add|PipeBarrier<PIPE_V>"),
    "waw_mte2_mte2": ("race", "write after write: DataCopy|of UB|PipeBarrier<PIPE_MTE2>"),
    "waw_mte3_mte3": ("race", "write after write: DataCopy|of argument 2|PipeBarrier<PIPE_MTE3>"),
    "raw_mte3_mte2": ("race", "read after write: DataCopy (pipe MTE2, src)|of argument 2|HardEvent::MTE3_MTE2"),
    "raw_v_s": ("race", "read after write: GetValue (pipe S, src) reads bytes [2060, 2064) of UB|HardEvent::V_S"),
    "raw_s_v": ("race", "read after write: Add|SetValue at|HardEvent::S_V"),
    "raw_mte2_s": ("race", "read after write: GetValue|HardEvent::MTE2_S"),
    "raw_s_mte3": ("race", "read after write: DataCopy|SetValue at|HardEvent::S_MTE3"),
    "war_s_mte2": ("race", "write after read: DataCopy|GetValue at|HardEvent::S_MTE2"),
    "uninitialised_ub": ("uninitialised", "Add (src1) reads bytes [1024, 2048) of UB, which nothing has written"),
    "uninitialised_part": ("uninitialised", "Add (src0) reads bytes [992, 1024) of UB"),
    "uninitialised_workspace": ("uninitialised", "DataCopy (src) reads bytes [0, 1024) of the workspace"),
    "uninitialised_atomic": ("uninitialised", "DataCopy (dst) reads bytes [0, 1024) of the workspace"),
    "uninitialised_padding": (
        "uninitialised",
        "reads bytes [20, 32) of UB, which holds no defined value; DataCopyPad at",
    ),
    "uninitialised_after_reset": ("uninitialised", "which holds no defined value; DataCopy at"),
    "beyond_ub": ("out_of_bounds", "Add (dst) touches bytes|of UB, which has"),
    "beyond_buffer": ("out_of_bounds", "beyond its buffer [8192, 9184)"),
    "beyond_tensor": ("out_of_bounds", "touches bytes [1056, 2080) of argument 0, which has bytes [0, 2048)"),
    "beyond_window": ("out_of_bounds", "bytes [1024, 2048) of argument 0|as SetGlobalBuffer gave it"),
    "beyond_workspace": ("out_of_bounds", "touches bytes [1024, 2048) of the workspace"),
    "beyond_into_next": ("out_of_bounds", "of argument 0, which has bytes [0, 2048)"),
    "beyond_scalar": ("out_of_bounds", "GetValue (src) touches bytes [2048, 2052) of argument 0"),
    "beyond_scalar_window": ("out_of_bounds", "bytes [1024, 1028) of argument 0|as SetGlobalBuffer gave it"),
    "misaligned_address": ("alignment", "Add (dst) starts at byte 2064 of UB|multiple of 32"),
    "misaligned_length": ("alignment", "9 elements are 36 bytes|DataCopyPad"),
    "misaligned_block": ("alignment", "blockLen is 6 bytes|element's 4"),
    "misaligned_global": ("alignment", "starts at byte 2 of argument 0|multiple of 4"),
    "capacity": ("capacity", "UB overflows, the buffers so far need"),
    "capacity_buffers": ("capacity", "65 buffers now; it may have 64"),
    "double_free": ("double_free", "FreeTensor: the tensor was freed before"),
    "double_free_stale": ("double_free", "FreeTensor: the tensor was freed before"),
    "use_after_free": ("use_after_free", "Add (src0) is a tensor that FreeTensor or EnQue gave away"),
    "use_after_enque": ("use_after_free", "DataCopy (dst) is a tensor that FreeTensor or EnQue gave away"),
    "queue_depth": ("queue", "EnQue: the queue holds 1 tensors, its depth is 1"),
    "queue_no_buffer": ("queue", "AllocTensor: all 1 buffers of the queue are in use"),
    "queue_empty": ("queue", "DeQue: the queue is empty"),
    "queue_not_freed": ("queue", "FreeTensor is missing"),
    "queue_uninitialised": ("queue", "call TPipe::InitBuffer first"),
    "deadlock_scalar": ("deadlock", "AIV 0 waits for flag V_S 2, which nothing sets"),
    "deadlock_vector": ("deadlock", "pipe V waits for flag MTE2_V 3, which nothing sets"),
    "deadlock_circle": (
        "deadlock",
        "pipe V waits for flag MTE2_V 0, which pipe MTE2 would set later|"
        "pipe MTE2 waits for flag V_MTE2 0, which pipe V would set later",
    ),
    "leftover_flag": ("leftover_flag", "flag MTE2_V 4 is set here and nothing waits for it"),
    "event_ids_out": ("event_id", "the 8 event ids of HardEvent::V_S are all taken"),
    "event_id_range": ("event_id", "event id 8 does not exist; ids are 0 to 7"),
    "event_not_released": ("event_id", "ReleaseEventID is missing"),
    "event_alloc_nine": ("event_id", "more than 8 tensors of queues at one position"),
    "double_set": ("double_set", "flag MTE2_V 0 is set a second time before anything waits for it; it was set at"),
    "nested_pipe": ("nested_pipe", "another TPipe of this core is alive"),
    "raw_pointer_ub": ("raw_pointer", "a plain pointer is dereferenced (byte 4 of UB)"),
    "raw_pointer_gm": ("raw_pointer", "a plain pointer is dereferenced (byte 8 of argument 1)"),
    "raw_pointer_null": ("raw_pointer", "address 0x0, where there is no memory"),
    "stack_overflow": ("capacity", "needs more stack than 1048576 bytes"),
    "divide_by_zero": ("argument", "divides an integer by zero"),
    "endless_poll": ("deadlock", "reads again and again, and nothing changes"),
    "endless_poll_clean": ("deadlock", "reads again and again, and nothing changes"),
    "endless_poll_ub": ("deadlock", "reads again and again, and nothing changes"),
    "atomic_left_on": ("control", "ends with atomic writes switched on: call SetAtomicNone"),
    "atomic_type": ("argument", "atomic writes are on for another type"),
    "counter_mode_left_on": ("control", "counter mode: call SetMaskNorm"),
    "unwritten_output": ("unwritten_output", "64 bytes of argument 2, from byte 960 on, were never written"),
    "argument_blocks": ("argument", "blockCount is 4096; it may be at most 4095"),
    "wrong_space": ("wrong_core", "DataCopy (dst) is in L1, which this core does not have"),
    "stale_cache": ("cache_line", "an old value is read; DataCacheCleanAndInvalid before it is missing"),
    "store_not_cleaned": ("cache_line", "stays in the scalar's data cache: call DataCacheCleanAndInvalid"),
    "store_read_by_copy": ("cache_line", "of which SetValue at|is still in the scalar's data cache"),
}
# Kinds whose kernels need several cores or files: where they are tested.
ELSEWHERE = {"flag_overflow": "test_cross_core.py", "cross_core": "test_cross_core.py"}
# PIPE_V of dav-3510 orders its own instructions: "PIPE_V and PIPE_V ... guaranteed by hardware" (key features of
# synchronization within a core, Ascend 950PR).
ONLY_2201 = {"raw_v_v", "waw_v_v"}
# Page on automatic synchronization within a core, table 3: what --cce-auto-sync=on inserts on vector cores.
AUTO_SYNC = {"raw_v_v", "waw_v_v", "raw_v_s", "raw_s_v", "raw_mte2_s", "raw_s_mte3", "war_s_mte2"}
UNMARKED = {"unwritten_output"}  # the end of the kernel has no line


def launch(source: Any, soc: str, name: str, fixed: int, **options: Any) -> emulator.Report:
    hazards = source("hazards.cpp")
    x, y, z = np.zeros(2 * TILE, np.float32), np.ones(TILE, np.float32), np.zeros(TILE, np.float32)
    outputs = [2] if name == "unwritten_output" else []
    kernel: emulator.Kernel = hazards.build(soc)
    return kernel.launch(1, x, y, z, hazards.opcodes[name], fixed, workspace=4 * TILE, outputs=outputs, **options)


def test_every_kind_and_every_opcode_has_a_case(source: Any) -> None:
    assert list(source("hazards.cpp").opcodes) == list(CASES)
    assert {kind for kind, _ in CASES.values()} | set(ELSEWHERE) == set(KINDS)


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("name", CASES)
def test_mistake_is_reported_alone_and_at_its_line(source: Any, soc: str, name: str) -> None:
    report = launch(source, soc, name, 0)
    kind, said = CASES[name]
    if soc == "950pr" and name in ONLY_2201:
        assert report.hazards == ()
        return
    assert {hazard.kind for hazard in report.hazards} == {kind}, [str(hazard) for hazard in report.hazards]
    text = " ".join(hazard.message for hazard in report.hazards)
    for part in said.split("|"):
        assert part in text
    lines = {hazard.location.rsplit(":", 1)[-1] for hazard in report.hazards}
    assert lines == ({""} if name in UNMARKED else {str(source("hazards.cpp").lines[name])})


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("name", CASES)
def test_repaired_kernel_is_clean_in_every_order(source: Any, soc: str, name: str) -> None:
    for seed in (None, *range(5)):
        report = launch(source, soc, name, 1, seed=seed)
        assert report.hazards == (), (seed, [str(hazard) for hazard in report.hazards])


@pytest.mark.parametrize(
    "name", [name for name, (kind, _) in CASES.items() if kind in ("race", "deadlock", "leftover_flag")]
)
def test_order_of_the_schedule_does_not_hide_it(source: Any, name: str) -> None:
    kind, _ = CASES[name]
    if name.startswith("endless"):
        return
    for seed in range(8):
        assert kind in {hazard.kind for hazard in launch(source, "a3", name, 0, seed=seed).hazards}, seed


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("name", [name for name, (kind, _) in CASES.items() if kind == "race"])
def test_automatic_synchronization(source: Any, soc: str, name: str) -> None:
    """What the compiler inserts is missed no longer, in any order; everything else still is."""
    for seed in (None, *range(5)):
        report = launch(source, soc, name, 0, seed=seed, auto_sync=True)
        if name in AUTO_SYNC:
            assert report.hazards == (), (seed, [str(hazard) for hazard in report.hazards])
        else:
            assert "race" in {hazard.kind for hazard in report.hazards}, seed


def test_race_says_what_the_compiler_would_insert(source: Any) -> None:
    said = {
        name
        for name, (kind, _) in CASES.items()
        if kind == "race" and "launch with auto_sync" in launch(source, "a3", name, 0).hazards[0].message
    }
    assert said == AUTO_SYNC


def test_a_perturbed_order_delays_copies_that_nothing_waits_for(source: Any) -> None:
    kinds = [{hazard.kind for hazard in launch(source, "a3", "raw_mte2_v", 0, seed=seed).hazards} for seed in range(20)]
    assert {"race"} in kinds and {"race", "uninitialised"} in kinds


@pytest.mark.parametrize("name", ["war_v_mte2", "war_mte3_v"])
def test_missing_flag_is_named_once(source: Any, name: str) -> None:
    """What would order a write behind the read orders it behind what was read as well: one flag is missing, not two."""
    assert len(launch(source, "a3", name, 0).hazards) == 1


def test_two_runs_say_the_same(source: Any) -> None:
    for name in ("raw_mte2_v", "war_mte3_v", "deadlock_circle"):
        for seed in (None, 3):
            first, second = (launch(source, "a3", name, 0, seed=seed) for _ in range(2))
            assert first.data == second.data


def test_without_checks_nothing_is_said_of_order(source: Any) -> None:
    assert launch(source, "a3", "raw_mte2_v", 0, hazards=False).hazards == ()
    assert {h.kind for h in launch(source, "a3", "beyond_tensor", 0, hazards=False).hazards} == {"out_of_bounds"}


def test_process_survives_and_works_on(source: Any) -> None:
    """A fault ends the launch alone: what the kernel did before stays, and the next launch is as good as the first."""
    for name in (
        "raw_pointer_ub",
        "raw_pointer_gm",
        "raw_pointer_null",
        "stack_overflow",
        "divide_by_zero",
        "deadlock_circle",
    ) * 5:
        assert {hazard.kind for hazard in launch(source, "a3", name, 0).hazards} == {CASES[name][0]}
        assert launch(source, "a3", name, 1).hazards == ()
