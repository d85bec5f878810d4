"""The timeline of a launch: as a Chrome trace, and as a picture."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ascend_k3.ops.emulator.report import Event, Report

COLORS = {
    "V": "#2b7bba",
    "M": "#c0392b",
    "MTE1": "#e59866",
    "MTE2": "#27ae60",
    "MTE3": "#8e44ad",
    "FIX": "#b7950b",
    "S": "#555555",
}


def _events(report: Report) -> list[Event]:
    events = report.timeline
    if not events:
        raise ValueError(
            "timeline: the report has no instructions; launch the kernel with timeline=10000 to keep that many."
        )
    return events


def require_folder(path: str | Path) -> Path:
    """The path of a file to write, once the folder that it goes to is known to exist.

    Raises: FileNotFoundError.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target}: there is no folder {target.parent}; make it first.")
    return target


def write_trace(report: Report, path: str | Path) -> None:
    """Write the timeline for chrome://tracing or Perfetto: a process a core, a thread a pipe, microseconds.

    Raises: ValueError for a report without a timeline; FileNotFoundError for a folder that does not exist.
    """
    trace = [
        {
            "name": event.name,
            "ph": "X",
            "ts": event.begin * 1e6,
            "dur": (event.end - event.begin) * 1e6,
            "pid": event.core,
            "tid": event.pipe,
            "args": {"at": event.location},
        }
        for event in _events(report)
    ]
    target = require_folder(path)
    scratch = target.with_name(f".{target.name}.tmp")
    scratch.write_text(json.dumps({"traceEvents": trace, "displayTimeUnit": "ns"}), encoding="utf-8")
    os.replace(scratch, target)


def plot(report: Report, path: str | Path, cores: int = 3) -> None:
    """Draw the pipes of the first cores over time into a PNG, PDF or SVG file.

    Raises: ValueError for a report without a timeline; FileNotFoundError for a folder that does not exist;
    BackendError without matplotlib.
    """
    from ascend_k3.ops.errors import BackendError

    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BackendError("the timeline picture needs matplotlib: pip install matplotlib.") from None
    events = _events(report)
    shown = list(dict.fromkeys(event.core for event in events))[:cores]
    rows = [(core, pipe) for core in shown for pipe in COLORS if any(e.core == core and e.pipe == pipe for e in events)]
    figure = Figure(figsize=(12, 0.8 + 0.35 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for number, (core, pipe) in enumerate(rows):
        bars = [(e.begin * 1e6, (e.end - e.begin) * 1e6) for e in events if e.core == core and e.pipe == pipe]
        axes.broken_barh(bars, (number - 0.4, 0.8), facecolors=COLORS[pipe], edgecolor="white", linewidth=0.2)
    axes.set_yticks(range(len(rows)), [f"{core}  {pipe}" for core, pipe in rows])
    axes.invert_yaxis()
    axes.set_xlabel("microseconds, estimated at the rates of ops/soc.py")
    target = require_folder(path)
    scratch = target.with_name(f".{target.name}.tmp{target.suffix}")
    figure.savefig(scratch)
    os.replace(scratch, target)
