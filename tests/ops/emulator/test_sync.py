"""Flags, barriers and atomic writes of vector cores: right programs are clean and the same in every order, broken ones
are reported in every order.

Sentences are of the pages "SetFlag/WaitFlag (ISASI)", "PipeBarrier (ISASI)", "SyncAll", "CrossCoreSetFlag (ISASI)",
"SetAtomicAdd" and "TPipe".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ascend_k3.ops import emulator

CORES, N, TILES = 4, 64, 6
SEEDS = (None, *range(20))
SOCS = ("a3", "950pr")
Floats = NDArray[np.float32]


def inputs() -> Floats:
    return np.random.default_rng(0).integers(-8, 8, CORES * N * TILES).astype(np.float32)


def run(source: Any, soc: str, name: str, fixed: int = 1, **options: Any) -> tuple[Floats, emulator.Report]:
    sync = source("sync.cpp")
    y, flags = np.zeros(CORES * N * TILES, np.float32), np.zeros(CORES * 16, np.int32)
    report = sync.build(soc).launch(
        CORES, inputs(), y, flags, sync.opcodes[name], fixed, workspace=4 * CORES * N, **options
    )
    return y, report


def doubled() -> Floats:
    return 2 * inputs()


def passed_round() -> Floats:
    """Three times doubled and taken from the next core."""
    tiles = inputs()[: CORES * N].reshape(CORES, N)
    for _ in range(3):
        tiles = np.roll(2 * tiles, -1, axis=0)
    return padded(tiles)


def chained() -> Floats:
    return padded(np.stack([inputs()[:N] * 2.0 ** (CORES - core) for core in range(CORES)]))


def combined(how: Any) -> Floats:
    tiles = inputs()[: CORES * N].reshape(CORES, N)
    return padded(np.tile(how(tiles, axis=0), CORES))


def padded(values: NDArray[Any]) -> Floats:
    out = np.zeros(CORES * N * TILES, np.float32)
    out[: values.size] = values.astype(np.float32).ravel()
    return out


def scalar_results() -> Floats:
    sums = inputs()[: CORES * N].reshape(CORES, N).sum(1)
    out = np.zeros((CORES, 16), np.float32)
    out[:, 0], out[:, 1] = sums, sums.sum()
    return padded(out)


# A program of sync.cpp: what it calculates, and the hazards of its broken form (None: it has none).
PROGRAMS: dict[str, tuple[Any, set[str] | None]] = {
    "credit_flags": (doubled, {"race"}),
    "same_flags": (doubled, {"race"}),
    "buffers_reset": (doubled, {"race"}),
    "two_pipes": (doubled, {"race"}),
    "static_tensors": (doubled, None),
    "sync_all_phases": (passed_round, {"race"}),
    "barrier_mode_0": (passed_round, {"race"}),
    "soft_sync": (passed_round, {"race"}),
    "flag_chain": (chained, {"race"}),
    "atomic_add": (lambda: combined(np.sum), {"race"}),
    "atomic_max": (lambda: combined(np.max), {"race"}),
    "scalar_results": (scalar_results, None),
    "own_workspace": (lambda: padded(inputs()[: CORES * N]), {"race"}),
    "write_write": (lambda: padded(inputs()[: CORES * N]), {"race"}),
}


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_right_program_is_clean_and_exact_in_every_order(source: Any, soc: str, name: str) -> None:
    want = PROGRAMS[name][0]()
    for seed in SEEDS:
        y, report = run(source, soc, name, seed=seed)
        assert report.hazards == (), (seed, [str(hazard) for hazard in report.hazards])
        assert y.tobytes() == want.tobytes(), seed


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("name", [name for name, (_, broken) in PROGRAMS.items() if broken])
def test_broken_program_is_reported_in_every_order(source: Any, soc: str, name: str) -> None:
    expected = PROGRAMS[name][1]
    assert expected
    for seed in (None, *range(8)):
        _, report = run(source, soc, name, fixed=0, seed=seed)
        kinds = {hazard.kind for hazard in report.hazards}
        # What is read too early in a perturbed order may not have been written at all.
        assert expected <= kinds <= expected | {"uninitialised"}, (seed, kinds)


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("credit_flags", "race", "write after read: DataCopy (pipe MTE2, dst)|HardEvent::V_MTE2"),
        (
            "sync_all_phases",
            "race",
            "read after write: DataCopy (pipe MTE2, src)|of the workspace|SyncAll (or a cross-core flag) between them",
        ),
        ("flag_chain", "race", "argument 1|nothing orders the two cores"),
        ("atomic_add", "race", "added to|nothing orders the two cores"),
        ("write_write", "race", "AIV 1: write after write: DataCopy|(pipe MTE3 of AIV 0) wrote"),
        ("reset_race", "race", "write after read: Add (pipe V, dst)|HardEvent::MTE3_V"),
        (
            "one_branch",
            "deadlock",
            "AIV 1 waits in SyncAll|SyncAll has been reached by AIV 1, AIV 2, AIV 3 and not by AIV 0 (has ended)",
        ),
        ("overflow", "flag_overflow", "flag 3 has more than 15 sets that nothing waited for"),
        ("leftover", "leftover_flag", "cross-core flag 4 is set here and nothing waits for it"),
        ("shared_line", "cache_line", "another core's scalar stores are in the same cache line of 64 bytes"),
        ("soft_not_zero", "argument", "the workspace is not zero"),
        ("soft_small", "out_of_bounds", "the UB scratch has 96 bytes; 4 cores need 32 each"),
    ],
)
def test_mistakes_between_cores_say_what_is_missing(source: Any, name: str, kind: str, said: str) -> None:
    _, report = run(source, "a3", name, fixed=0)
    assert {hazard.kind for hazard in report.hazards} == {kind}
    text = " ".join(hazard.message for hazard in report.hazards)
    for part in said.split("|"):
        assert part in text
    if name in source("sync.cpp").lines:
        line = source("sync.cpp").lines[name]
        assert f":{line}" in {hazard.location[hazard.location.rfind(":") :] for hazard in report.hazards}
    for seed in (None, *range(5)):
        assert run(source, "a3", name, seed=seed)[1].hazards == ()


def test_fault_of_a_core_ends_the_launch(source: Any) -> None:
    """The others' waits for it are not reported: the launch is over, as on the device."""
    for seed in (None, *range(8)):
        _, report = run(source, "a3", "fault_of_one", fixed=0, seed=seed)
        assert [hazard.kind for hazard in report.hazards] == ["raw_pointer"]
        assert run(source, "a3", "fault_of_one", seed=seed)[1].hazards == ()


def test_cores_that_take_turns_may_share_a_line(source: Any) -> None:
    for seed in SEEDS:
        y, report = run(source, "a3", "line_in_turns", seed=seed)
        assert report.hazards == () and y[: CORES + 1].tolist() == [10.0, 11.0, 12.0, 13.0, 0.0]


def test_reset_leaves_alone_what_pipes_still_work_on(source: Any) -> None:
    for seed in SEEDS:
        y, report = run(source, "a3", "reset_while_waiting", seed=seed)
        assert report.hazards == () and np.array_equal(y[: CORES * N], 2 * inputs()[: CORES * N])


def test_poll_without_clean_never_sees_the_flag(source: Any) -> None:
    """A poll that never drops its line of the data cache never sees the flag, though it is set."""
    _, report = run(source, "a3", "poll_without_clean", fixed=0)
    assert {hazard.kind for hazard in report.hazards} == {"deadlock", "cache_line", "race"}
    assert "reads again and again, and nothing changes" in report.hazards[-1].message
    assert run(source, "a3", "poll_without_clean")[1].hazards == ()


def test_soft_barrier_of_some_cores(source: Any) -> None:
    """ "usedCores: how many cores are synchronized": the others need not come."""
    for seed in SEEDS:
        assert run(source, "a3", "soft_sync_some", seed=seed)[1].hazards == ()


def test_perturbed_orders_give_a_racy_kernel_other_numbers(source: Any) -> None:
    for name in ("credit_flags", "sync_all_phases", "atomic_add", "own_workspace"):
        seen = {run(source, "a3", name, fixed=0, seed=seed)[0].tobytes() for seed in range(20)}
        assert len(seen) > 1, name


def test_perturbed_orders_change_between_cores_at_any_instruction(source: Any) -> None:
    """All cores write all tiles: those of one run come from several cores, in another mixture for another seed."""
    tiles = [
        run(source, "a3", "write_write", fixed=0, seed=seed)[0][: N * TILES].reshape(TILES, N) for seed in range(20)
    ]
    assert any(len({tile.tobytes() for tile in of_a_run}) > 1 for of_a_run in tiles)


@pytest.mark.parametrize("seed", [None, 5])
def test_the_same_run_twice(source: Any, seed: int | None) -> None:
    for name in ("sync_all_phases", "flag_chain", "queue_pipeline"):
        for fixed in (0, 1):
            (first, one), (second, two) = (
                run(source, "a3", name, fixed=fixed, seed=seed, timeline=1000) for _ in range(2)
            )
            assert first.tobytes() == second.tobytes() and one.data == two.data


def test_another_seed_is_another_order(source: Any) -> None:
    lines = {str(run(source, "a3", "credit_flags", seed=seed, timeline=1000)[1].data["timeline"]) for seed in range(10)}
    assert len(lines) > 5
