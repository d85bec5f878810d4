"""What `ascend-k3 kernels test` and `ascend-k3 kernels report` print."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ascend_k3.ops import kernel_cases
from ascend_k3.ops.kernel_cases import Outcome

MOST_HAZARDS = 5  # of a case, that are printed


def test(operators: Sequence[str], socs: Sequence[str], as_json: bool) -> bool:
    """Run all cases of the operators on the SoCs and print a line each; whether all are fine."""
    fine, rows = True, []
    if not as_json:
        print(
            "Ascend C kernels on the emulator against their references; not run on an NPU. "
            f"(judged): a shape of Kimi K3, at most {kernel_cases.MOST_BYTES} x the least bytes."
        )
    width = max(len(case.name) for operator in operators for case in kernel_cases.cases(operator))
    for operator in operators:
        for chip in socs:
            for case in kernel_cases.cases(operator):
                if chip not in case.socs:
                    continue
                outcome = kernel_cases.run(case, chip)
                fine &= outcome.ok
                if as_json:
                    rows.append(as_row(outcome))
                else:
                    print(line(outcome, width), flush=True)
                    _print_faults(outcome)
    if as_json:
        print(json.dumps({"ok": fine, "cases": rows}))
    else:
        print("all fine" if fine else "NOT fine")
    return fine


def line(outcome: Outcome, width: int = 0) -> str:
    """One line: what (in `width` columns), where, error, bytes over the least, hazards."""
    state = "ok  " if outcome.ok else "FAIL"
    return (
        f"{state} {outcome.soc:6} {outcome.case.name:{width}}  error {outcome.error:.1e}  hazards {outcome.hazards}  "
        f"bytes {outcome.bytes_ratio:.2f} x least{' (judged)' if outcome.case.judged else ''}"
    )


def _print_faults(outcome: Outcome) -> None:
    """What is wrong with an outcome, a line each; nothing for a good one."""
    if outcome.ok:
        return
    allowed = outcome.case.allowed_error
    if not outcome.error <= allowed:
        print(f"  error {outcome.error:.1e}; at most {allowed:.1e} is allowed")
    if outcome.case.judged and outcome.bytes_ratio > kernel_cases.MOST_BYTES:
        print(f"  bytes {outcome.bytes_ratio:.2f} x least; at most {kernel_cases.MOST_BYTES} x is allowed")
    hazards = [str(hazard) for report in outcome.reports for hazard in report.hazards]
    for hazard in hazards[:MOST_HAZARDS]:
        print(f"  {hazard}")
    if len(hazards) > MOST_HAZARDS:
        print(f"  and {len(hazards) - MOST_HAZARDS} more hazards; --json has all")


def as_row(outcome: Outcome) -> dict[str, object]:
    return {
        "case": outcome.case.name,
        "soc": outcome.soc,
        "ok": outcome.ok,
        "error": outcome.error,
        "hazards": [str(hazard) for report in outcome.reports for hazard in report.hazards],
        "bytes": sum(report.counters.gm_bytes for report in outcome.reports),
        "least_bytes": outcome.case.cost.bytes,
        "estimated_seconds": outcome.estimated_seconds,
        "bound_seconds": outcome.bound.time,
        "bound": outcome.bound.name,
    }


def report(
    operators: Sequence[str], socs: Sequence[str], as_json: bool, trace: Path | None = None, plot: Path | None = None
) -> bool:
    """Print counters and estimate of each judged or reported case beside its cost's bound; whether all are fine."""
    from ascend_k3.ops.emulator import timeline

    for target in (trace, plot):
        if target:
            timeline.require_folder(target)
    fine, rows = True, []
    outcome: Outcome | None = None
    chosen = [
        (case, chip)
        for operator in operators
        for chip in socs
        for case in kernel_cases.cases(operator)
        if (case.judged or case.reported) and chip in case.socs
    ]
    for case, chip in chosen:
        outcome = kernel_cases.run(case, chip, timeline=100_000 if trace or plot else 0)
        fine &= outcome.ok
        rows.append({**as_row(outcome), "launches": [_launch(one) for one in outcome.reports]})
        if not as_json:
            print(f"{outcome.case.name} on {outcome.soc}: {'fine' if outcome.ok else 'NOT fine'}")
            _print_faults(outcome)
            print(
                f"  bound {outcome.bound.time * 1e6:.2f} us ({outcome.bound.name}), estimate "
                f"{outcome.estimated_seconds * 1e6:.2f} us at the rates of ops/soc.py, not measured on an NPU"
            )
            for number, one in enumerate(outcome.reports):
                _print_launch(number, _launch(one))
    extrapolated = [
        text for operator in operators for chip in socs for text in kernel_cases.extrapolation(operator, chip)
    ]
    if as_json:
        print(json.dumps({"ok": fine, "cases": rows, "extrapolated": extrapolated}))
    else:
        for text in extrapolated:
            print(text)
    if outcome:
        for target, write in ((trace, timeline.write_trace), (plot, timeline.plot)):
            if target:
                write(outcome.reports[-1], target)
                if not as_json:
                    print(f"{target}: the last launch, {outcome.case.name} on {outcome.soc}")
    return fine


def _launch(one: kernel_cases.Report) -> dict[str, object]:
    counters, estimate = one.counters, one.estimate()
    return {
        "paths": dict(counters.paths),
        "read": dict(counters.read),
        "written": dict(counters.written),
        "macs": dict(counters.macs),
        "vector": dict(counters.vector),
        "repeats": counters.repeats,
        "scalar_operations": counters.scalar_operations,
        "pipe_seconds": dict(estimate.pipes),
        "critical_path_seconds": estimate.critical_path,
        "memory_seconds": estimate.memory,
        "bound": estimate.bound,
    }


def _print_launch(number: int, one: dict[str, object]) -> None:
    def table(name: str) -> str:
        entries = one[name]
        assert isinstance(entries, dict)
        return ", ".join(f"{key} {value:,}" for key, value in entries.items() if value) or "none"

    pipes = one["pipe_seconds"]
    assert isinstance(pipes, dict)
    times = ", ".join(f"{pipe} {seconds * 1e6:.2f}" for pipe, seconds in pipes.items() if seconds)
    print(f"  launch {number}: bytes by path: {table('paths')}")
    print(f"    global memory read: {table('read')}; written: {table('written')}; cube: {table('macs')}")
    print(f"    vector elements: {table('vector')}; {one['repeats']:,} repeats; scalar {one['scalar_operations']:,}")
    print(f"    busiest core, us by pipe: {times or 'none'}; limited by {one['bound']}")
