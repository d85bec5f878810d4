"""Defects of public kernels rebuilt in few lines: each is reported by the hazard that would have found it, and its
repair is clean in every order.

What is not about the emulator, and so not here:
    * backward gate NaN from an exp that overflows (flash-linear-attention-npu issue 448): a range of numbers, tested at
      the operator against its reference;
    * a tiling or workspace tensor freed while the kernel still runs (pull 222): a launch here ends before it returns
      and holds its tensors until then; the rule is the npu binding's;
    * a simulator whose sums are in another order than the chip's (pto-isa issue 259, simpler issue 2215): the order is
      the documented one where there is one, and sums are compared with tolerances;
    * which flags of PIPE_FIX dav-3510 lacks (PTOAS issue 1149, simpler pull 296): no page of the documentation says it;
    * K3's support in serving (vllm-ascend issue 16773, pull 12950): not a kernel's defect.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ascend_k3.ops import emulator

# Opcode of public_cases.cpp: kind, what is said, and where it was found.
CASES = {
    # Defects that were found by running public kernels.
    "uninitialised_event": (
        "event_id",
        "event id -1 does not exist",
        "catlass BlockMmadTla: l0CEventList is not filled with unit flags on",
    ),
    "second_pipe": (
        "nested_pipe",
        "another TPipe of this core is alive",
        "chunk_kda_fwd: RunGateCumsum makes a second TPipe",
    ),
    "silent_return": (
        "unwritten_output",
        "bytes of argument 1, from byte 0 on, were never written",
        "recurrent_kda with more than 8 tokens",
    ),
    "missing_barrier": ("race", "read after write: Mul|PipeBarrier<PIPE_V>", "recurrent_kda: ReduceSum, Cast"),
    "overlapping_fills": (
        "race",
        "write after write: Add|[1280, 1536) of UB|PipeBarrier<PIPE_V>",
        "chunk_kda_fwd: two Duplicates",
    ),
    "scalar_scratch": (
        "race",
        "write after read: DataCopy (pipe MTE2, dst)|GetValue at|HardEvent::S_MTE2",
        "flash-linear-attention-npu issue 575",
    ),
    # What kernel developers trip over.
    "scratch_reused": ("race", "write after read: DataCopy (pipe MTE2, dst)|HardEvent::V_MTE2", "issue 575, pull 700"),
    "one_flag_for_two": ("deadlock", "was set by vector core 1 of its block and not by vector core 0", "pull 300"),
    "l1_flag_twice": ("double_set", "flag MTE2_MTE1 0 is set a second time", "pull 300"),
    "written_back_over": ("race", "write after read: Mul (pipe V, dst)|HardEvent::MTE3_V", "pull 300"),
    "producer_consumer": (
        "deadlock",
        "AIC 0 waits for cross-core flag 3|AIV 0 waits for cross-core flag 2",
        "issue 325, pull 306",
    ),
    "redundant_set": ("leftover_flag", "flag M_MTE1 0 is set here and nothing waits for it", "issue 360"),
    "unwritten_state": (
        "uninitialised",
        "Add (src1) reads bytes [512, 1024) of UB, which nothing has written",
        "issue 236",
    ),
    "tail_rows": ("uninitialised", "Add (src0) reads bytes [320, 512) of UB", "issue 367"),
    "workspace_counter": ("uninitialised", "GetValue (src) reads bytes [0, 4) of the workspace", "pull 34"),
    "width_not_128": ("out_of_bounds", "bytes [0, 1024) of UB, beyond its buffer [0, 512)", "issues 602, 603, 626"),
    "too_much_ub": (
        "capacity",
        "UB overflows, the buffers so far need 384000 bytes and it has 196608",
        "triton-ascend issue 302",
    ),
    "wait_without_set": ("deadlock", "pipe V waits for flag MTE2_V 1, which nothing sets", "PTOAS issues 428, 112"),
    "barrier_in_branch": (
        "deadlock",
        "SyncAll has been reached by AIC 0, AIV 1 and not by AIV 0 (has ended)",
        "triton-ascend issue 1738",
    ),
}
UNMARKED = {"silent_return"}


def launch(source: Any, name: str, fixed: int, **options: Any) -> emulator.Report:
    public = source("public_cases.cpp")
    x, y = np.ones(512, np.float32), np.ones(256, np.float32)
    width = 9 if name == "silent_return" else 256
    outputs = [1] if name == "silent_return" else []
    kernel: emulator.Kernel = public.build()
    return kernel.launch(1, x, y, public.opcodes[name], fixed, width, workspace=1024, outputs=outputs, **options)


def test_all_cases_are_run(source: Any) -> None:
    assert list(source("public_cases.cpp").opcodes) == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_defect_is_reported(source: Any, name: str) -> None:
    kind, said, _ = CASES[name]
    report = launch(source, name, 0)
    assert {hazard.kind for hazard in report.hazards} == {kind}, [str(hazard) for hazard in report.hazards]
    text = " ".join(hazard.message for hazard in report.hazards)
    for part in said.split("|"):
        assert part in text
    lines = {hazard.location.rsplit(":", 1)[-1] for hazard in report.hazards}
    marked = source("public_cases.cpp").lines.get(name, 0)
    assert lines == {""} if name in UNMARKED else str(marked) in lines and lines <= {str(marked), str(marked + 1)}


@pytest.mark.parametrize("name", CASES)
def test_repaired_kernel_is_clean_in_every_order(source: Any, name: str) -> None:
    for seed in (None, *range(20)):
        report = launch(source, name, 1, seed=seed)
        assert report.hazards == (), (seed, [str(hazard) for hazard in report.hazards])
