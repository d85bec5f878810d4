"""Kernel types, what cores are called, and the flags and barriers between cube and vector cores.

Sentences are of the pages "CrossCoreSetFlag (ISASI)", "CrossCoreWaitFlag (ISASI)", their key features, "SyncAll",
"setting the kernel type", GetBlockIdx, GetSubBlockIdx, GetSubBlockNum, GetTaskRatio, GetBlockNum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ascend_k3.ops import emulator

BLOCKS, N = 3, 64
SEEDS = (None, *range(20))
AIC, AIV = 1, 2
TYPES = {
    "AIV_ONLY": (0, 1),
    "AIC_ONLY": (1, 0),
    "MIX_AIC_1_1": (1, 1),
    "MIX_AIC_1_2": (1, 2),
    "MIX_AIV_1_0": (0, 1),
    "MIX_AIC_1_0": (1, 0),
}
QUALIFIERS = {"__vector__": "AIV_ONLY", "__mix__(1,2)": "MIX_AIC_1_2"}


def identities(kernel: emulator.Kernel) -> dict[tuple[int, int], list[int]]:
    y = np.zeros((32, 16), np.int32)
    assert kernel.launch(BLOCKS, y, 0).hazards == ()
    return {(int(row[0]), int(row[1])): row[2:6].tolist() for row in y if row[0]}


def expected(cubes: int, vectors: int) -> dict[tuple[int, int], list[int]]:
    """Sub-block, blocks, sub-blocks, ratio: "on AIC [0, numBlocks), on AIV [0, 2 * numBlocks) for 1:2"; GetSubBlockNum
    and GetTaskRatio are 1 on AIC and the vector cores of a block on AIV; GetBlockNum is numBlocks everywhere."""
    out = {(AIC, block): [0, BLOCKS, 1, 1] for block in range(BLOCKS) if cubes}
    out |= {
        (AIV, block * vectors + sub): [sub, BLOCKS, vectors, vectors]
        for block in range(BLOCKS)
        for sub in range(vectors)
    }
    return out


@pytest.mark.parametrize("name", TYPES)
def test_cores_of_a_kernel_type(source: Any, name: str) -> None:
    kernel = source("cores.cpp").build(TYPE=f"KERNEL_TYPE_{name}")
    assert identities(kernel) == expected(*TYPES[name])


@pytest.mark.parametrize("qualifier", QUALIFIERS)
def test_qualifier_names_the_type_too(source: Any, qualifier: str) -> None:
    kernel = source("cores.cpp").build(QUALIFIER=qualifier)
    assert identities(kernel) == expected(*TYPES[QUALIFIERS[qualifier]])


def test_type_is_inferred_from_the_instructions(source: Any) -> None:
    """A kernel that declares none and has vector work only is one of vector cores."""
    assert identities(source("cores.cpp").build()) == expected(0, 1)


def test_two_types_in_a_file_are_refused(tmp_path: Any) -> None:
    path = tmp_path / "two.cpp"
    kernel = 'extern "C" __global__ __aicore__ void {0}(GM_ADDR x) {{ KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_{1}); }}\n'
    path.write_text(
        '#include "kernel_operator.h"\n' + kernel.format("one", "AIV_ONLY") + kernel.format("two", "MIX_AIV_1_0")
    )
    with pytest.raises(emulator.KernelBuildError, match=r"two\.cpp: its kernels declare different kernel types"):
        emulator.build(path, entry="two")


# "As KERNEL_TYPE_AIC_ONLY and KERNEL_TYPE_AIV_ONLY do not start the scheduling unit ...", and table 3: modes and types.
REFUSED = [
    ("AIV_ONLY", "sync_all", "KERNEL_TYPE_AIV_ONLY kernel starts without the unit"),
    ("AIV_ONLY", "set_mode_0", "KERNEL_TYPE_AIV_ONLY kernel starts without the unit"),
    ("AIC_ONLY", "set_mode_0", "KERNEL_TYPE_AIC_ONLY kernel starts without the unit"),
    ("MIX_AIV_1_0", "sync_all_mixed", "this kernel type has only one of the two; take SyncAll<true>"),
    ("MIX_AIV_1_0", "set_mode_1", "mode 1 is between the vector cores of a block; declare KERNEL_TYPE_MIX_AIC_1_2"),
    ("MIX_AIV_1_0", "set_mode_2", "mode 2 is between a cube core and its vector cores"),
]
ACCEPTED = [
    ("MIX_AIV_1_0", "sync_all"),
    ("MIX_AIV_1_0", "set_mode_0"),
    ("MIX_AIC_1_0", "set_mode_0"),
    ("MIX_AIC_1_1", "sync_all"),
    ("MIX_AIC_1_1", "sync_all_mixed"),
    ("MIX_AIC_1_1", "set_mode_2"),
    ("MIX_AIC_1_2", "set_mode_0"),
    ("MIX_AIC_1_2", "set_mode_1"),
    ("MIX_AIC_1_2", "set_mode_2"),
    ("MIX_AIC_1_2", "sync_all_mixed"),
]


@pytest.mark.parametrize(("type_", "op", "said"), REFUSED)
def test_type_that_a_flag_does_not_work_in(source: Any, type_: str, op: str, said: str) -> None:
    cores = source("cores.cpp")
    report = cores.build(TYPE=f"KERNEL_TYPE_{type_}").launch(BLOCKS, np.zeros((32, 16), np.int32), cores.opcodes[op])
    # A wait for what was refused comes to nothing.
    assert {hazard.kind for hazard in report.hazards} - {"deadlock"} == {"cross_core"}
    assert said in report.hazards[0].message
    assert report.hazards[0].location.endswith(f":{cores.lines[op]}")


@pytest.mark.parametrize(("type_", "op"), ACCEPTED)
def test_type_that_a_flag_works_in(source: Any, type_: str, op: str) -> None:
    cores = source("cores.cpp")
    for seed in (None, *range(5)):
        report = cores.build(TYPE=f"KERNEL_TYPE_{type_}").launch(
            BLOCKS, np.zeros((32, 16), np.int32), cores.opcodes[op], seed=seed
        )
        assert report.hazards == (), (seed, [str(hazard) for hazard in report.hazards])


@pytest.mark.parametrize(
    ("op", "said"), [("foreign_flag", "pipe V, which a cube core"), ("foreign_barrier", "pipe M, which a vector core")]
)
def test_pipe_that_a_core_does_not_have(source: Any, op: str, said: str) -> None:
    cores = source("cores.cpp")
    report = cores.build(TYPE="KERNEL_TYPE_MIX_AIC_1_2").launch(BLOCKS, np.zeros((32, 16), np.int32), cores.opcodes[op])
    assert {hazard.kind for hazard in report.hazards} == {"wrong_core"} and said in report.hazards[0].message
    assert report.hazards[0].location.endswith(f":{cores.lines[op]}")


def run(
    source: Any, soc: str, name: str, fixed: int = 1, **options: Any
) -> tuple[NDArray[Any], NDArray[Any], emulator.Report]:
    cross = source("cross.cpp")
    x = np.random.default_rng(2).standard_normal(BLOCKS * N).astype(np.float32)
    y = np.zeros_like(x)
    report = cross.build(soc).launch(BLOCKS, x, y, cross.opcodes[name], fixed, workspace=8 * BLOCKS * N, **options)
    return x, y, report


SOCS = ("a3", "950pr")
PROGRAMS = (
    "ring ring_no_forward cube_to_vector halves all_cores one_vector_core later_set count one_half circle "
    "scheduled_sets poll_behind_wait"
).split()


def test_all_programs_are_run(source: Any) -> None:
    assert list(source("cross.cpp").opcodes) == PROGRAMS


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_right_program_is_clean_and_exact_in_every_order(source: Any, soc: str, name: str) -> None:
    for seed in SEEDS:
        x, y, report = run(source, soc, name, seed=seed)
        assert report.hazards == (), (seed, [str(hazard) for hazard in report.hazards])
        if name == "cube_to_vector":
            assert np.array_equal(y.reshape(BLOCKS, N), 100 * np.arange(BLOCKS)[:, None] + np.arange(N))
        if name == "halves":
            assert np.array_equal(y.reshape(BLOCKS, 2, N // 2), x.reshape(BLOCKS, 2, N // 2)[:, ::-1])
        if name == "all_cores":
            assert np.array_equal(y, x)


# Mode 2: "AIC's set reaches both AIVs; after both AIVs have set, AIC goes on"; mode 1: the vector cores of a block;
# mode 4 (Ascend 950): one vector core, "AIC's flags 16 to 26 are AIV1's 0 to 10". Counters "count 0 to 15". On A2 and
# A3 a wait "blocks the instructions behind it of all pipes", on 950 "of the pipe it names".
BROKEN = [
    (
        "a3",
        "ring",
        {"race"},
        "read after write: DataCopy (pipe MTE2, src)|CrossCoreSetFlag after the first and CrossCoreWaitFlag before",
    ),
    ("a3", "ring_no_forward", {"race", "uninitialised"}, "of the workspace, which nothing has written"),
    ("a3", "cube_to_vector", {"race"}, "SetValue at|(pipe S of AIC 0) wrote"),
    ("a3", "halves", {"race", "uninitialised"}, "(pipe MTE3 of AIV 0) wrote"),
    ("a3", "all_cores", {"race"}, "nothing orders the two cores"),
    ("950pr", "one_vector_core", {"race"}, "write after write: DataCopy (pipe MTE3, dst)|AIV 0) wrote"),
    ("a3", "later_set", {"deadlock"}, "AIC 0 waits for cross-core flag 9|AIV 0 waits for cross-core flag 8"),
    ("a3", "count", {"flag_overflow"}, "flag 10 has more than 15 sets that nothing waited for; the counter holds 15"),
    ("a3", "one_half", {"deadlock"}, "flag 5 of AIC 0 was set by vector core 0 of its block and not by vector core 1"),
    ("a3", "circle", {"deadlock"}, "AIC 0 waits for cross-core flag 0|AIV 0 waits for cross-core flag 1"),
    ("a3", "scheduled_sets", {"race"}, "read after write: DataCopy (pipe MTE2, src)"),
]


@pytest.mark.parametrize(("soc", "name", "kinds", "said"), BROKEN)
def test_broken_program_is_reported_in_every_order(
    source: Any, soc: str, name: str, kinds: set[str], said: str
) -> None:
    for seed in (None, *range(8)):
        _, _, report = run(source, soc, name, fixed=0, seed=seed)
        found = {hazard.kind for hazard in report.hazards}
        assert found <= kinds | {"uninitialised"} and kinds - {"uninitialised"} <= found, (seed, found)
        if seed is None:
            assert found == kinds
            text = " ".join(hazard.message for hazard in report.hazards)
            for part in said.split("|"):
                assert part in text
            assert any(hazard.location.endswith(f":{source('cross.cpp').lines[name]}") for hazard in report.hazards)


def test_wait_stops_the_core_on_2201_and_a_pipe_on_3510(source: Any) -> None:
    _, _, report = run(source, "a3", "later_set", fixed=0)
    assert [hazard.kind for hazard in report.hazards] == ["deadlock"]
    for seed in SEEDS:
        assert run(source, "950pr", "later_set", fixed=0, seed=seed)[2].hazards == ()


def test_mode_4_does_not_compile_for_2201(tmp_path: Any) -> None:
    kernel = tmp_path / "mode.cpp"
    kernel.write_text(
        '#include "kernel_operator.h"\nextern "C" __global__ __aicore__ void mode(GM_ADDR x) {\n'
        "    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);\n    AscendC::CrossCoreSetFlag<4, PIPE_MTE3>(0);\n}\n"
    )
    with pytest.raises(emulator.KernelBuildError, match="modes are 0, 1 and 2, and 4 on dav-3510"):
        emulator.build(kernel, entry="mode", soc="a3")
