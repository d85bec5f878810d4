"""Run the mutation suite of the kernels and write its table: `make mutants`.

Exit code 1 when fewer than 95 % of the changes that mean something are found, when more than 10 % are called
equivalent, or when a survivor has no reason.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from pathlib import Path

from ascend_k3.ops import kernel_cases
from ascend_k3.ops.emulator import mutants
from ascend_k3.ops.emulator.mutants import Mutant

TABLE = Path(__file__).resolve().parent.parent / "docs" / "mutants.md"
LEAST_FOUND, MOST_EQUIVALENT = 0.95, 0.10
SOCS = ("a3", "950pr")


def judged(everything: list[Mutant]) -> tuple[float, float]:
    """The part found of those that mean something, and the part called equivalent."""
    equivalent = sum(bool(mutant.equivalent) for mutant in everything)
    found = sum(mutant.found for mutant in everything)
    return found / max(len(everything) - equivalent, 1), equivalent / max(len(everything), 1)


def rows(everything: list[Mutant]) -> list[str]:
    lines = ["| operator | SoC | changes | found | equivalent | survived |", "| --- | --- | --- | --- | --- | --- |"]
    for operator, chip in sorted({(mutant.operator, mutant.soc) for mutant in everything}):
        own = [mutant for mutant in everything if (mutant.operator, mutant.soc) == (operator, chip)]
        found, equivalent = sum(m.found for m in own), sum(bool(m.equivalent) for m in own)
        lines.append(f"| {operator} | {chip} | {len(own)} | {found} | {equivalent} | {len(own) - found - equivalent} |")
    return lines


def main() -> int:
    begin, everything = time.perf_counter(), []
    for operator in sys.argv[1:] or kernel_cases.OPERATORS:
        for name in SOCS:
            found_here = mutants.survey(operator, mutants.small(name))
            everything += found_here
            print(*rows(found_here)[2:], flush=True)
    found, equivalent = judged(everything)
    kinds = Counter(mutant.point[0] for mutant in everything)
    verdicts = Counter(mutant.verdict for mutant in everything)
    survivors = [mutant for mutant in everything if not mutant.found]
    text = [
        "# Mutation suite of the kernels",
        "",
        "Written by `make mutants`: every wait, set, barrier, queue operation, buffer and offset of the kernels is "
        "changed alone, on a SoC of two vector cores and one cube core "
        "([how](../ops/emulator/mutants.py)).",
        "",
        f"{len(everything)} changes; {found:.1%} of those that change meaning are found (asked for: 95 %), "
        f"{equivalent:.1%} are argued to be equivalent (at most 10 %).",
        "",
        *rows(everything),
        "",
        "Changes by kind: " + ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())) + ".",
        "",
        "Verdicts: " + ", ".join(f"{kind} {count}" for kind, count in sorted(verdicts.items())) + ".",
        "",
        "## Survivors",
        "",
        *(
            f"- {m.operator} on {m.soc}, `{mutants.place(m.point)}`: {m.equivalent or 'NO REASON GIVEN'}"
            for m in survivors
        ),
        *([] if survivors else ["None."]),
        "",
    ]
    if not sys.argv[1:]:
        scratch = TABLE.with_suffix(".tmp")
        scratch.write_text("\n".join(text), encoding="utf-8")
        os.replace(scratch, TABLE)
    print(*text[4:5], *text[-1 - len(survivors) :], sep="\n")
    print(f"{time.perf_counter() - begin:.0f} s")
    fine = found >= LEAST_FOUND and equivalent <= MOST_EQUIVALENT and all(m.equivalent for m in survivors)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
