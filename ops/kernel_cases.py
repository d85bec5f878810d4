"""What the kernels are tried on: named calls of the public operators, run on the emulator and by the reference.

Each operator with kernels lists its cases in `kernel/cases.py` as CASES. `ascend-k3 kernels test` and the tests run
them.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ascend_k3.ops import backends
from ascend_k3.ops.cost import Bound, Cost
from ascend_k3.ops.emulator.report import Report
from ascend_k3.ops.soc import NAMES, SoC, soc
from ascend_k3.ops.tolerances import RELATIVE_RMS, relative_rms

# Folders of ops/ that have kernel/cases.py.
OPERATORS = ("kda", "rms_norm", "attention_residual", "causal_conv1d", "route", "fused_experts", "situ_glu", "mx")
MOST_BYTES = 1.1  # of cost.py's, at the judged shapes


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One call of a public operator.

    name: the operator, its shape and dtype. call: makes its inputs from a seed and returns the outputs, all floating
    point ones of `dtype`. cost: of ops/<operator>/cost.py. judged: a shape of Kimi K3, at which the bytes of global
    memory may be `MOST_BYTES` times those of the cost; small and tail shapes are printed only.
    reported: in `ascend-k3 kernels report` without being judged.
    mutated: tried in the mutation suite: small, with several tiles on each of two cores.
    exact: the outputs have to be those of the reference bit for bit (codes, ids). socs: where the kernel exists.
    tolerances: of the outputs' relative RMS error, by dtype (ops/tolerances.py).
    """

    name: str
    call: Callable[[], Tensor | Sequence[Tensor]]
    dtype: torch.dtype
    cost: Cost
    judged: bool = False
    reported: bool = False
    exact: bool = False
    mutated: bool = False
    socs: tuple[str, ...] = NAMES
    tolerances: Mapping[torch.dtype, float] = field(default_factory=lambda: RELATIVE_RMS)

    @property
    def allowed_error(self) -> float:
        return 0.0 if self.exact else self.tolerances[self.dtype]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a case did on a SoC. error: largest relative RMS error of its outputs; bytes_ratio: over the cost's."""

    case: Case
    soc: str
    error: float
    bytes_ratio: float
    hazards: int
    bound: Bound
    estimated_seconds: float
    seconds: float
    reports: Sequence[Report]

    @property
    def ok(self) -> bool:
        right = self.error <= self.case.allowed_error
        return right and self.hazards == 0 and (not self.case.judged or self.bytes_ratio <= MOST_BYTES)


def cases(operator: str) -> Sequence[Case]:
    """The cases of an operator.

    Raises: ValueError for an operator without kernels.
    """
    if operator not in OPERATORS:
        raise ValueError(f"kernels: {operator!r} has no kernels; those that have are {', '.join(OPERATORS)}.")
    found: Sequence[Case] = importlib.import_module(f"ascend_k3.ops.{operator}.kernel.cases").CASES
    return found


def equivalent_mutants(operator: str) -> Mapping[str, str]:
    """Changes of the operator's kernels that change no meaning, each with its reason: EQUIVALENT of its cases."""
    module = importlib.import_module(f"ascend_k3.ops.{operator}.kernel.cases")
    found: Mapping[str, str] = getattr(module, "EQUIVALENT", {})
    return found


def extrapolation(operator: str, chip: str) -> Sequence[str]:
    """Lines on shapes too large for the emulator; none but for kda."""
    if operator != "kda":
        return []
    from ascend_k3.ops.kda.kernel import extrapolate

    return extrapolate.lines(soc(chip))


def run(case: Case, chip: str | SoC, **launch: Any) -> Outcome:
    """Compute a case by the reference and by the kernels on the emulator, hazards counted and not raised.

    Args: `launch` are options of the emulator's launches, see backends.py.
    """
    chip = soc(chip) if isinstance(chip, str) else chip
    expected = tensors(case.call())
    begin = time.perf_counter()
    with backends.backend("emulator", soc=chip, refuse_hazards=False, **launch) as used:
        given = tensors(case.call())
    seconds = time.perf_counter() - begin
    reports = [call.report for call in used.calls]
    errors = [_error(case, value, right) for value, right in zip(given, expected, strict=True)]
    return Outcome(
        case=case,
        soc=chip.name,
        error=max(errors, key=lambda error: (math.isnan(error), error)),
        bytes_ratio=sum(report.counters.gm_bytes for report in reports) / case.cost.bytes,
        hazards=sum(len(report.hazards) for report in reports),
        bound=case.cost.bound(chip),
        estimated_seconds=sum(report.estimate().seconds for report in reports),
        seconds=seconds,
        reports=reports,
    )


def _error(case: Case, value: Tensor, right: Tensor) -> float:
    """Relative RMS error, NaN where anything is; of codes and ids 0 or infinity."""
    if value.is_floating_point() and not case.exact:
        return relative_rms(value, right)
    return 0.0 if torch.equal(value.view(torch.uint8), right.view(torch.uint8)) else math.inf


def tensors(outputs: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [outputs] if isinstance(outputs, Tensor) else list(outputs)
