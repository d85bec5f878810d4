"""What a launch on the emulator found out: hazards, counters, times."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The kinds of hazards, and what each of them is.
KINDS = {
    "race": "two accesses to the same bytes, at least one a write, that no flag, barrier or queue orders",
    "uninitialised": "a read of memory that nothing has written",
    "out_of_bounds": "an access beyond a buffer, a tensor, the workspace or the memory itself",
    "alignment": "an address, a stride or a length that the instruction does not take",
    "capacity": "local buffers that need more than the memory has",
    "argument": "a number that the instruction does not take",
    "queue": "a queue used against its rules: no free buffer, nothing to dequeue, too deep, not freed",
    "double_free": "a tensor freed twice",
    "use_after_free": "a tensor used after FreeTensor or EnQue gave it away",
    "event_id": "an event id that does not exist, or none left",
    "double_set": "a flag set again before anything waited for it",
    "leftover_flag": "a flag that is set and never waited for",
    "flag_overflow": "more sets of a cross-core flag than its counter holds",
    "deadlock": "a wait that nothing ends",
    "cross_core": "a cross-core flag or barrier that this kernel type or SoC does not have",
    "wrong_core": "an instruction or a memory that this kind of core does not have",
    "cache_line": "scalar stores to global memory that stay in a data cache or share a line with another core's",
    "nested_pipe": "a second TPipe while one is alive",
    "control": "a control register left changed at the end",
    "raw_pointer": "device memory read or written through a plain pointer",
    "unwritten_output": "bytes of an output that the kernel never wrote",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Hazard:
    """One mistake in a kernel. `location` is file:line of the call; `count` how often it happened there."""

    kind: str
    message: str
    location: str
    count: int

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.location or 'kernel'}: {self.kind}: {self.message}{times}"


def shown_path(file: str) -> str:
    """`file` relative to the working folder where it lies in it."""
    try:
        return str(Path(file).relative_to(os.getcwd()))
    except ValueError:
        return file


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a launch did. `data` is all of it; the properties are its parts."""

    data: Mapping[str, Any]
    soc: Any = None
    hazards: Sequence[Hazard] = field(default_factory=tuple)

    @classmethod
    def from_data(cls, data: Mapping[str, Any], soc: Any = None) -> Report:
        hazards = tuple(
            Hazard(
                kind=entry["kind"],
                message=entry["message"],
                location=f"{shown_path(entry['file'])}:{entry['line']}" if entry["file"] else "",
                count=entry["count"],
            )
            for entry in data["hazards"]
        )
        return cls(data=data, soc=soc, hazards=hazards)

    @property
    def ok(self) -> bool:
        """No hazard."""
        return not self.hazards
