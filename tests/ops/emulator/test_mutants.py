"""A fixed sample of the mutation suite: `make mutants` runs all of it and writes docs/mutants.md."""

from __future__ import annotations

import random

import pytest

from ascend_k3.ops import kernel_cases
from ascend_k3.ops.emulator import mutants

PART = 0.1


@pytest.mark.parametrize("chip", ["a3", "950pr"])
@pytest.mark.parametrize("operator", kernel_cases.OPERATORS)
def test_changes_are_found_or_argued(operator: str, chip: str) -> None:
    found = mutants.survey(operator, mutants.small(chip), random.Random(f"{operator} {chip}"), PART)
    assert found, f"{operator} has no mutated case"
    silent = [mutants.place(mutant.point) for mutant in found if not mutant.found and not mutant.equivalent]
    assert silent == []


def test_every_argued_change_exists() -> None:
    for operator in kernel_cases.OPERATORS:
        places = {
            mutants.place(point)
            for case in kernel_cases.cases(operator)
            if case.mutated
            for chip in case.socs
            if chip in ("a3", "950pr")
            for point in mutants.points(case, mutants.small(chip))
        }
        assert set(kernel_cases.equivalent_mutants(operator)) <= places
