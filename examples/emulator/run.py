"""Run the samples on the emulator and compare them with PyTorch.

    python examples/emulator/run.py                       all samples on both SoCs
    python examples/emulator/run.py matmul --soc a3       one of them, on one SoC
    python examples/emulator/run.py --large               matmul at 2048 x 2048 x 2048

A line a launch: the error against float64, hazards, bytes of global memory, the estimated time, the seconds that the
run took. Exit code 1 after a wrong result or a hazard.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ascend_k3.ops import emulator
from ascend_k3.ops.soc import soc as find_soc

FOLDER = Path(__file__).parent
SOCS = ("a3", "950pr")
SLOT = 128 * 128 * 4  # bytes of a tile in the workspace of matmul_silu, which has two a block


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a sample is launched with, and what it has to write to `out`, one of `arguments`."""

    arguments: tuple[Any, ...]
    out: Tensor
    expected: Tensor  # float64, or the very numbers when `tolerance` is 0
    tolerance: float = 0.0  # largest error over largest expected magnitude
    workspace: int = 0  # bytes a block


@dataclass(frozen=True, kw_only=True)
class Sample:
    """`case` makes one from sizes and a generator; `sizes` are those that `main` takes."""

    case: Callable[..., Case]
    sizes: tuple[int, ...]
    on_cubes: bool = False


@dataclass(frozen=True, kw_only=True)
class Run:
    """A launch: its report, its error, whether both are good, and the seconds it took."""

    report: emulator.Report
    error: float
    right: bool
    seconds: float
    out: Tensor = field(repr=False)

    @property
    def ok(self) -> bool:
        return self.right and not self.report.hazards


def vector_add(random: torch.Generator, length: int) -> Case:
    x, y = torch.randn(length, generator=random), torch.randn(length, generator=random)
    z = torch.empty(length)
    return Case(arguments=(x, y, z, length), out=z, expected=x + y)


def row_sum(random: torch.Generator, rows: int, cols: int) -> Case:
    x, y = torch.randn(rows, cols, generator=random), torch.empty(rows)
    return Case(arguments=(x, y, rows, cols), out=y, expected=x.double().sum(1), tolerance=1e-5)


def copy_ping_pong(random: torch.Generator, length: int) -> Case:
    source = torch.randint(-(2**31), 2**31 - 1, (length,), generator=random, dtype=torch.int32)
    target = torch.empty_like(source)
    return Case(arguments=(source, target, length), out=target, expected=source)


def matmul(random: torch.Generator, m: int, n: int, k: int) -> Case:
    a, b = torch.randn(m, k, generator=random).bfloat16(), torch.randn(k, n, generator=random).bfloat16()
    c = torch.empty(m, n)
    return Case(arguments=(a, b, c, m, n, k), out=c, expected=a.double() @ b.double(), tolerance=1e-5)


def matmul_silu(random: torch.Generator, m: int, n: int, k: int) -> Case:
    a, b = torch.randn(m, k, generator=random).half(), torch.randn(k, n, generator=random).half()
    y = torch.empty(m, n)
    expected = torch.nn.functional.silu(a.double() @ b.double())
    return Case(arguments=(a, b, y, m, n, k), out=y, expected=expected, tolerance=1e-5, workspace=2 * SLOT)


SAMPLES = {
    "vector_add": Sample(case=vector_add, sizes=(1_000_003,)),
    "row_sum": Sample(case=row_sum, sizes=(1003, 1501)),
    "copy_ping_pong": Sample(case=copy_ping_pong, sizes=(1_000_003,)),
    "matmul": Sample(case=matmul, sizes=(500, 600, 700), on_cubes=True),
    "matmul_silu": Sample(case=matmul_silu, sizes=(500, 600, 700), on_cubes=True),
}


def run(name: str, soc: str, sizes: tuple[int, ...], blocks: int | None = None, seed: int | None = None) -> Run:
    """Launch a sample on `blocks` blocks, all that the SoC has when None; `seed`: of the order of pipes and cores."""
    sample = SAMPLES[name]
    kernel = emulator.build(FOLDER / f"{name}.cpp", entry=name, soc=soc)
    case = sample.case(torch.Generator().manual_seed(0), *sizes)
    if blocks is None:
        blocks = find_soc(soc).cube_cores if sample.on_cubes else find_soc(soc).vector_cores
    output = next(number for number, argument in enumerate(case.arguments) if argument is case.out)
    begin = time.perf_counter()
    report = kernel.launch(blocks, *case.arguments, workspace=blocks * case.workspace, outputs=[output], seed=seed)
    seconds = time.perf_counter() - begin
    scale = float(case.expected.abs().max()) if case.tolerance else 1.0
    error = float((case.out.double() - case.expected.double()).abs().max()) / scale
    return Run(report=report, error=error, right=error <= case.tolerance, seconds=seconds, out=case.out)


def show(name: str, soc: str, sizes: tuple[int, ...], done: Run) -> None:
    report, estimate = done.report, done.report.estimate()
    print(
        f"{name:14} {soc:5} {' x '.join(map(str, sizes)):18} {'right' if done.right else 'WRONG'}, "
        f"error {done.error:.1e}; {len(report.hazards)} hazards; {report.counters.gm_bytes:,} bytes; "
        f"{estimate.seconds * 1e6:.2f} us, limited by {estimate.bound}; ran {done.seconds:.2f} s",
        flush=True,
    )
    for hazard in report.hazards:
        print(f"  {hazard}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the samples on the emulator and compare them with PyTorch.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(SAMPLES)}; all when left out")
    parser.add_argument("--soc", choices=SOCS, help="one SoC; both when left out")
    parser.add_argument("--large", action="store_true", help="matmul at 2048 x 2048 x 2048, with hazards on")
    options = parser.parse_args()
    unknown = set(options.names) - set(SAMPLES)
    if unknown:
        parser.error(f"there is no sample {', '.join(sorted(unknown))}; there are {', '.join(SAMPLES)}.")
    launches = [(name, SAMPLES[name].sizes) for name in options.names or SAMPLES]
    if options.large:
        launches = [("matmul", (2048, 2048, 2048))]
    good = True
    for name, sizes in launches:
        for soc in (options.soc,) if options.soc else SOCS:
            done = run(name, soc, sizes)
            show(name, soc, sizes, done)
            good &= done.ok
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
