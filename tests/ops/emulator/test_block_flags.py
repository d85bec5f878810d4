"""IBSet and IBWait between vector cores. Sentences are of their pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ascend_k3.ops import emulator

CORES, N = 4, 64
MISTAKES = {
    "set_twice": ("double_set", "IBSet: the flag is set a second time"),
    "never_waited": ("leftover_flag", "the flag that this IBSet sets is never waited for"),
    "never_set": ("deadlock", "waits in IBWait for block 0, event 0"),
    "block_beyond": ("argument", "blockIdx is 4; it has to be 0 to 3"),
    "event_negative": ("argument", "eventID is -1"),
    "workspace_small": ("out_of_bounds", "the workspace has 160 bytes; the flag of block 1 and event 1 is at byte 160"),
    "scratch_small": ("out_of_bounds", "ubWorkspace has 28 bytes; it takes 32 of UB"),
    "not_zero": ("argument", "the workspace is not zero"),
}


def run(
    source: Any, soc: str, name: str, fixed: int = 1, mixed: bool = False, **options: Any
) -> tuple[Any, Any, emulator.Report]:
    kernel = source("block_flags.cpp")
    cores = 2 * CORES if mixed else CORES
    x = np.random.default_rng(2).integers(-8, 8, cores * N).astype(np.float32)
    y, flags = np.zeros_like(x), np.zeros(1024, np.int32)
    if name == "not_zero" and not fixed:
        flags[0] = 1
    room = 160 if name == "workspace_small" else 4096
    built = kernel.build(soc, **({"MIXED": "1"} if mixed else {"ROUNDS": "1"} if name == "again" else {}))
    return x, y, built.launch(CORES, x, y, flags, kernel.opcodes[name], fixed, room, **options)


@pytest.mark.parametrize(
    ("soc", "name", "mixed"),
    [("a3", "chain", False), ("950pr", "chain", False), ("a3", "again", False), ("950pr", "mixed", True)],
)
def test_a_core_waits_for_the_one_before_it(source: Any, soc: str, name: str, mixed: bool) -> None:
    """ "IBSet tells the core that waits; IBWait waits until it is told"; in a mixed kernel "for vector cores alone", of
    which there are GetBlockNum() * 2."""
    for seed in (None, *range(10)):
        x, y, report = run(source, soc, name, mixed=mixed, seed=seed)
        assert report.hazards == (), (seed, [str(hazard) for hazard in report.hazards])
        assert np.array_equal(y.reshape(-1, N), x.reshape(-1, N).cumsum(0))
        broken = run(source, soc, name, 0, mixed, seed=seed)[2].hazards
        assert {hazard.kind for hazard in broken} == {"race"}
        assert any("nothing orders the two cores" in hazard.message for hazard in broken)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(source: Any, name: str) -> None:
    """ "A wait hangs unless all arguments but ubWorkspace are those of the set"; "gmWorkspace has at least cores * 32
    bytes * eventID + blockIdx * 32 bytes + 32 bytes", "initialised with 0"; "ubWorkspace has at least 32 bytes"."""
    kind, said = MISTAKES[name]
    for seed in (None, *range(5)):
        hazards = run(source, "a3", name, 0, seed=seed)[2].hazards
        assert {hazard.kind for hazard in hazards} <= {kind, "leftover_flag"} and hazards[0].kind == kind, [
            str(h) for h in hazards
        ]
        assert said in hazards[0].message
        assert f":{source('block_flags.cpp').lines[name]}" in " ".join(hazard.location for hazard in hazards)
        assert run(source, "a3", name, seed=seed)[2].hazards == ()


def test_a_dropped_wait_is_noticed(source: Any) -> None:
    report = run(source, "a3", "chain", list_mutations=True)[2]
    points = [tuple(entry[:4]) for entry in report.data["mutation_points"] if entry[0] in ("cross_set", "cross_wait")]
    assert len(points) == 2
    for point in points:
        kinds = {hazard.kind for hazard in run(source, "a3", "chain", mutation=point)[2].hazards}
        assert kinds & {"race", "deadlock"}, (point, kinds)
