"""What the tests of vector kernels share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ascend_k3 import ops
from ascend_k3.ops import kernel_cases
from ascend_k3.ops.emulator import mutants
from ascend_k3.ops.kernel_cases import Case

SOCS = ("a3", "950pr")
SEEDS = 10


def assert_case(case: Case, chip: str) -> None:
    """Require what `ascend-k3 kernels test` does: no hazard, the reference's result, the cost's bytes."""
    outcome = kernel_cases.run(case, chip)
    assert [str(hazard) for report in outcome.reports for hazard in report.hazards] == []
    assert outcome.error <= (0.0 if case.exact else case.tolerances[case.dtype])
    assert not case.judged or outcome.bytes_ratio <= kernel_cases.MOST_BYTES
    assert outcome.reports


def assert_repeatable(case: Case, chip: str) -> None:
    """Require the same bits of two runs and of perturbed schedules, on two cores with several tiles each."""
    small = mutants.small(chip)
    first = on_emulator(case.call, small)
    for options in ({}, *({"seed": seed} for seed in range(SEEDS))):
        again = on_emulator(case.call, small, **options)
        assert all(torch.equal(bits(a), bits(b)) for a, b in zip(first, again, strict=True)), options


def on_emulator(call: Callable[[], Tensor | Sequence[Tensor]], chip: Any = "a3", **options: Any) -> list[Tensor]:
    """The outputs of a call whose operators all ran as kernels without a hazard."""
    with ops.backend("emulator", soc=chip, **options) as run:
        outputs = kernel_cases.tensors(call())
    assert all(launched.backend == "emulator" for launched in run.calls)
    return outputs


def bits(value: Tensor) -> Tensor:
    return value.contiguous().view(torch.uint8)


def mutated(operator: str) -> list[Case]:
    """The cases that have several tiles on each of two cores."""
    found = [case for case in kernel_cases.cases(operator) if case.mutated]
    assert found
    return found
