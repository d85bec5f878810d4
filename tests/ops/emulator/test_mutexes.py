"""Mutex::Lock and Unlock, AllocMutexID and ReleaseMutexID of dav-3510. Sentences are of their pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascend_k3.ops import emulator

N, TILES = 256, 6
# Programs: kinds of hazards without the locks.
RIGHT = {"pipeline": {"race"}, "with_queue": {"race"}, "scalar": {"race"}, "same_pipe": {"race"}}
# Case: kind, what is said.
MISTAKES = {
    "lock_twice": ("double_set", "Mutex::Lock<PIPE_V>(0) comes a second time before its Unlock"),
    "unlock_alone": ("double_set", "Mutex::Unlock<PIPE_V>(0) comes without a Lock of the same pipe"),
    "never_unlocked": ("leftover_flag", "mutex 5 is locked here for pipe V and never unlocked"),
    "reserved_id": ("event_id", "Mutex::Lock<PIPE_V>(28): ids of a program are 0 to 27"),
    "ids_out": ("event_id", "AllocMutexID: all 28 ids are taken"),
    "not_released": ("event_id", "mutex 0 is not released when the kernel ends"),
    "released_twice": ("event_id", "was not allocated, or is released twice"),
    "waits_forever": ("deadlock", "waits for mutex 2, which pipe MTE2 has locked"),
    "crossed": ("deadlock", "pipe MTE2 waits for mutex 1|pipe V waits for mutex 0"),
}


def run(source: Any, name: str, fixed: int = 1, **options: Any) -> tuple[Any, Any, emulator.Report]:
    mutexes = source("mutexes.cpp")
    x = np.random.default_rng(1).integers(-8, 8, N * TILES).astype(np.float32)
    y = np.zeros_like(x)
    report = mutexes.build("950pr").launch(1, x, y, mutexes.opcodes[name], fixed, **options)
    return x, y, report


def test_all_cases_are_run(source: Any) -> None:
    assert set(source("mutexes.cpp").opcodes) == RIGHT.keys() | MISTAKES.keys()


@pytest.mark.parametrize("name", RIGHT)
def test_locks_order_the_pipes(source: Any, name: str) -> None:
    """ "Lock waits until the mutex is unlocked; Unlock is behind the earlier work of the pipe"; "a second lock by
    the same pipe does not block: PipeBarrier orders it"."""
    for seed in (None, *range(20)):
        x, y, report = run(source, name, seed=seed)
        assert report.hazards == (), (seed, [str(hazard) for hazard in report.hazards])
        want = 2 * x if name in ("pipeline", "with_queue") else np.zeros_like(x)
        if name == "scalar":
            want[:N] = 2 * x[:N]
            want[0] += 2
        assert np.array_equal(y, want)
        broken = run(source, name, 0, seed=seed)[2].hazards
        kinds = {hazard.kind for hazard in broken}
        assert RIGHT[name] <= kinds <= RIGHT[name] | {"uninitialised"}, (seed, kinds)
        assert source("mutexes.cpp").lines[name] in {int(hazard.location.rsplit(":", 1)[1]) for hazard in broken}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(source: Any, name: str) -> None:
    """ "Lock and Unlock come in strict pairs, of one pipe"; "0 to 27, 28 to 31 are the system's"; "release the ids"."""
    kind, said = MISTAKES[name]
    for seed in (None, *range(5)):
        hazards = run(source, name, 0, seed=seed)[2].hazards
        assert {hazard.kind for hazard in hazards} == {kind}, [str(hazard) for hazard in hazards]
        assert all(part in hazards[0].message for part in said.split("|"))
        line = source("mutexes.cpp").lines.get(name)
        assert line is None or hazards[0].location.endswith(f":{line}")
        assert run(source, name, seed=seed)[2].hazards == ()


def test_a_dropped_lock_is_noticed(source: Any) -> None:
    """The mutation suite drops a lock with its unlock."""
    report = run(source, "pipeline", list_mutations=True)[2]
    points = [entry for entry in report.data["mutation_points"] if entry[0] == "wait"]
    assert len(points) == 6  # three places, two ids
    for point in points:
        kinds = {hazard.kind for hazard in run(source, "pipeline", mutation=tuple(point[:4]))[2].hazards}
        assert "race" in kinds, (point, kinds)


def test_it_exists_on_3510_alone(source: Any, tmp_path: Path) -> None:
    with pytest.raises(emulator.KernelBuildError, match="MutexID"):
        source("mutexes.cpp").build("a3")
    path = tmp_path / "all.cpp"
    path.write_text(
        '#include "kernel_operator.h"\nextern "C" __global__ __aicore__ void all(GM_ADDR x) {\n'
        "    AscendC::Mutex::Lock<PIPE_ALL>(0);\n}\n"
    )
    with pytest.raises(emulator.KernelBuildError, match="Mutex::Lock: name one pipe"):
        emulator.build(path, entry="all", soc="950pr")
