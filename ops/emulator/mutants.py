"""Mutation of kernels at run time: does the emulator notice when one wait, barrier, buffer or offset is wrong?

A run lists every place that can be changed; each is then changed alone, without recompiling:

    event         all sets and waits of one flag are dropped, as if the pair had been forgotten
    set, wait     one call is dropped          swap      one SetFlag sets another id
    barrier       PipeBarrier is dropped       sync_all, cross_set, cross_wait, clean     likewise
    enque, free   the flag that the queue operation sets is dropped, with its wait
    buffer        a buffer is one block (32 bytes) shorter       buffer_alias    the buffers of a queue are one
    offset        tensor[i] is tensor[i + 32 bytes]

Kernels run on few cores here, so that each has several tiles and uses its buffers again.

A mutant is found when the emulator reports a hazard or the result differs. One that survives is redundant
synchronization, a hole in the test, or equivalent: those are named with a reason in EQUIVALENT of the operator's cases.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ascend_k3.ops import backends, kernel_cases
from ascend_k3.ops.kernel_cases import Case
from ascend_k3.ops.soc import SoC, soc

VECTOR_PIPE = 1  # in the runtime's numbering of pipes
Point = tuple[str, str, int, int]  # kind, file, line, detail


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """One change and what came of it. verdict: a hazard's kind, "wrong result", or "survived"."""

    case: str
    soc: str
    point: Point
    verdict: str

    @property
    def found(self) -> bool:
        return self.verdict != "survived"

    @property
    def place(self) -> str:
        """kind file:line, as EQUIVALENT names it; an event has its number instead of a line."""
        kind, file, line, detail = self.point
        return f"{kind} {detail}" if kind == "event" else f"{kind} {Path(file).name}:{line}"


def small(name: str) -> SoC:
    """A SoC with one cube core and two vector cores."""
    return soc(name).with_(cube_cores=1, vector_cores=2)


def points(case: Case, chip: SoC) -> list[Point]:
    """Every place of the case's kernels that can be mutated, in a fixed order."""
    outcome = kernel_cases.run(case, chip, list_mutations=True)
    found = {tuple(entry[:4]) for report in outcome.reports for entry in report.data["mutation_points"]}
    return sorted(point for point in found if not _does_nothing(point, chip))


def _does_nothing(point: Point, chip: SoC) -> bool:
    # The vector pipe of dav-3510 keeps its instructions in order by itself: its barrier is there for dav-2201.
    return point[0] == "barrier" and point[3] == VECTOR_PIPE and chip.arch == 3510


def run(case: Case, chip: SoC, chosen: Sequence[Point] | None = None) -> Iterator[Mutant]:
    """Run the case once for each point (all of them when left out)."""
    expected = _outputs(case, chip)
    for point in points(case, chip) if chosen is None else chosen:
        with backends.backend("emulator", soc=chip, refuse_hazards=False, mutation=point, time_limit=20.0) as used:
            given = kernel_cases.tensors(case.call())
        hazards = sorted({hazard.kind for call in used.calls for hazard in call.report.hazards})
        same = all(torch.equal(_bits(a), _bits(b)) for a, b in zip(given, expected, strict=True))
        verdict = hazards[0] if hazards else "survived" if same else "wrong result"
        yield Mutant(case=case.name, soc=chip.name, point=point, verdict=verdict)


def sample(everything: Sequence[tuple[Case, str, Point]], count: int, seed: int) -> list[tuple[Case, str, Point]]:
    """A fixed choice of `count` of them."""
    return random.Random(seed).sample(list(everything), min(count, len(everything)))


def _outputs(case: Case, chip: SoC) -> list[torch.Tensor]:
    with backends.backend("emulator", soc=chip):
        return kernel_cases.tensors(case.call())


def _bits(value: torch.Tensor) -> torch.Tensor:
    return value.contiguous().view(torch.uint8)
