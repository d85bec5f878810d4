"""Mutation of kernels at run time: does the emulator notice when one wait, barrier, buffer or offset is wrong?

A run lists every place that can be changed; each is then changed alone, without recompiling:

    event         all sets and waits of one flag are dropped, as if the pair had been forgotten
    set, wait     one call is dropped, a Mutex's Lock with its Unlock          swap      one SetFlag sets another id
    barrier       PipeBarrier is dropped       local_barrier (LocalMemBar), sync_all, cross_set, cross_wait, clean: too
    enque, free   the flag that the queue operation sets is dropped, with its wait
    buffer        a buffer is one block (32 bytes) shorter       buffer_alias    the buffers of a queue are one
    offset        tensor[i] is tensor[i + 32 bytes]

Kernels run on few cores here, so that each has several tiles and uses its buffers again.

A mutant is found when the emulator reports a hazard or the result differs. One that survives is redundant
synchronization, a hole in the test, or equivalent: those are named with a reason in EQUIVALENT of the operator's cases.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ascend_k3.ops import backends, kernel_cases
from ascend_k3.ops.kernel_cases import Case
from ascend_k3.ops.soc import SoC, soc

VECTOR_PIPE = 1  # in the runtime's numbering of pipes
SURVIVED = "survived"
Point = tuple[str, str, int, int]  # kind, file, line, detail


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """One change and what came of it. verdict: a hazard's kind, "wrong result", or "survived".

    equivalent: why a survivor means the same as the kernel itself, empty where nobody said so.
    """

    operator: str
    soc: str
    point: Point
    verdict: str
    equivalent: str

    @property
    def found(self) -> bool:
        return self.verdict != SURVIVED


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


def run(case: Case, chip: SoC, point: Point, expected: Sequence[torch.Tensor]) -> str:
    """What comes of one change in one case: a hazard's kind, "wrong result" (not `expected`), or "survived"."""
    with backends.backend("emulator", soc=chip, refuse_hazards=False, mutation=point, time_limit=20.0) as used:
        given = kernel_cases.tensors(case.call())
    hazards = sorted({hazard.kind for call in used.calls if call.report for hazard in call.report.hazards})
    if hazards:
        return hazards[0]
    same = all(torch.equal(_bits(a), _bits(b)) for a, b in zip(given, expected, strict=True))
    return SURVIVED if same else "wrong result"


def survey(operator: str, chip: SoC, sample: random.Random | None = None, part: float = 1.0) -> list[Mutant]:
    """Every change of an operator's kernels (or a random part of them), each tried on its mutated cases until found."""
    cases = [case for case in kernel_cases.cases(operator) if case.mutated and chip.name in case.socs]
    where: dict[Point, list[Case]] = {}
    expected: dict[str, list[torch.Tensor]] = {}
    for case in cases:
        with backends.backend("emulator", soc=chip):
            expected[case.name] = kernel_cases.tensors(case.call())
        for point in points(case, chip):
            where.setdefault(point, []).append(case)
    chosen = sorted(where)
    if sample is not None:
        chosen = sorted(sample.sample(chosen, max(1, round(part * len(chosen)))))
    equivalent = kernel_cases.equivalent_mutants(operator)
    mutants = []
    for point in chosen:
        verdicts = (run(case, chip, point, expected[case.name]) for case in where[point])
        verdict = next((verdict for verdict in verdicts if verdict != SURVIVED), SURVIVED)
        reason = equivalent.get(place(point), "") if verdict == SURVIVED else ""
        mutants.append(Mutant(operator=operator, soc=chip.name, point=point, verdict=verdict, equivalent=reason))
    return mutants


def place(point: Point) -> str:
    """kind file:line, as EQUIVALENT names it; an event has its number instead of a line."""
    kind, file, line, detail = point
    return f"{kind} {detail}" if kind == "event" else f"{kind} {Path(file).name}:{line}"


def _bits(value: torch.Tensor) -> torch.Tensor:
    return value.contiguous().view(torch.uint8)
