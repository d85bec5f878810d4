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
    "capacity": "local buffers, or the scalar's stack, that need more than there is",
    "argument": "a number that the call does not take",
    "queue": "a queue used against its rules: no free buffer, nothing to dequeue, too deep, not freed",
    "double_free": "a tensor freed twice",
    "use_after_free": "a tensor used after FreeTensor or EnQue gave it away",
    "event_id": "an event id that does not exist, none left, or one not released",
    "double_set": "a flag set again before anything waited for it",
    "leftover_flag": "a flag that is set and never waited for",
    "flag_overflow": "more sets of a cross-core flag than its counter holds",
    "deadlock": "a wait that nothing ends",
    "cross_core": "a cross-core flag or barrier that this kernel type or SoC does not have",
    "wrong_core": "an instruction or a memory that this kind of core does not have",
    "cache_line": "the scalar's data cache: stores left in it, old values read from it, a line of several cores",
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
class Counters:
    """What all cores together did.

    paths: bytes by path, "GM->UB". read, written: bytes of global memory by what they belong to: "tensors" (inputs and
    outputs), "workspace". macs: cube multiply-adds by type. vector: elements by instruction. repeats: vector repeats of
    256 bytes, and register instructions ("Reg::Add") of vector functions. instructions: by pipe; a vector function is
    one of V. scalar_operations: loads, stores and other counted work of the scalar.
    """

    paths: Mapping[str, int]
    read: Mapping[str, int]
    written: Mapping[str, int]
    macs: Mapping[str, int]
    vector: Mapping[str, int]
    repeats: int
    instructions: Mapping[str, int]
    scalar_operations: int

    @property
    def gm_bytes(self) -> int:
        """Bytes of global memory, both ways, workspace included."""
        return sum(self.read.values()) + sum(self.written.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """Times of a launch, in seconds, at the SoC's rates in ops/soc.py: an estimate, not a measurement.

    pipes: work of each pipe on the core where it has most. critical_path: the end of the last core, with the overlap
    that the kernel's own events allow and no wait for a shared memory. A vector function of dav-3510 takes the cycles
    of its register instructions at the rate at which they start, see runtime/function.cpp; its latencies and its start
    are not published and not in it. memory: bytes of global memory over its rate;
    those of a workspace that fits into the shared cache, over the rate of that.
    waves: how often the cores have to be filled for all blocks. seconds: the larger of critical path (times waves) and
    memory; bound: what that is, the busiest pipe of the longest core or "memory".
    """

    pipes: Mapping[str, float]
    critical_path: float
    memory: float
    waves: int
    seconds: float
    bound: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One instruction of the timeline. begin, end: seconds from the launch."""

    core: str
    pipe: str
    name: str
    begin: float
    end: float
    location: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a launch did. `data` is all of it; the properties are its parts."""

    data: Mapping[str, Any] = field(repr=False)
    soc: Any = field(default=None, repr=False)
    hazards: Sequence[Hazard] = field(default_factory=tuple)

    @classmethod
    def from_data(cls, data: Mapping[str, Any], soc: Any = None) -> Report:
        hazards = tuple(
            Hazard(
                kind=entry["kind"],
                message=entry["message"].replace(f"{os.getcwd()}{os.sep}", ""),
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

    @property
    def counters(self) -> Counters:
        sums: dict[str, dict[str, int]] = {"move": {}, "vector": {}, "cube": {}, "scalar": {}}
        repeats, scalar = 0, 0
        instructions: dict[str, int] = {}
        for core in self.data["cores"]:
            scalar += core["scalar_operations"]
            for name, counter in core["counters"].items():
                table = sums[counter["unit"]]
                table[name] = table.get(name, 0) + counter["amount"]
                repeats += counter["repeats"] if counter["unit"] == "vector" else 0
            for pipe, state in core["pipes"].items():
                instructions[pipe] = instructions.get(pipe, 0) + state["instructions"]
        read, written = {"tensors": 0, "workspace": 0}, {"tensors": 0, "workspace": 0}
        for buffer in self.data["buffers"]:
            if USES[buffer["use"]] in read:
                read[USES[buffer["use"]]] += buffer["read"]
                written[USES[buffer["use"]]] += buffer["written"]
        return Counters(
            paths=sums["move"],
            read=read,
            written=written,
            macs=sums["cube"],
            vector=sums["vector"],
            repeats=repeats,
            instructions=instructions,
            scalar_operations=scalar,
        )

    def estimate(self) -> Estimate:
        """Times at the rates of the SoC that the kernel was built for."""
        cores = self.data["cores"]
        pipes: dict[str, float] = {}
        for core in cores:
            for pipe, state in core["pipes"].items():
                pipes[pipe] = max(pipes.get(pipe, 0.0), state["busy"])
        longest = max(cores, key=_end)
        critical = _end(longest)
        available = {"AIC": self.soc.cube_cores, "AIV": self.soc.vector_cores}
        waves = max(-(-sum(core["role"] == role for core in cores) // count) for role, count in available.items())
        counters = self.counters
        cached = counters.read["workspace"] + counters.written["workspace"] if self._workspace_fits() else 0
        memory = max(
            (counters.gm_bytes - cached) / self.soc.gm_bytes_per_second,
            counters.gm_bytes / self.soc.l2_bytes_per_second if cached else 0.0,
        )
        seconds = max(critical * waves, memory)
        busiest = max(longest["pipes"], key=lambda pipe: float(longest["pipes"][pipe]["busy"]))
        return Estimate(
            pipes=pipes,
            critical_path=critical,
            memory=memory,
            waves=waves,
            seconds=seconds,
            bound="memory" if memory >= critical * waves else busiest,
        )

    def _workspace_fits(self) -> bool:
        size = sum(buffer["bytes"] for buffer in self.data["buffers"] if USES[buffer["use"]] == "workspace")
        return bool(size <= self.soc.l2_bytes)

    @property
    def timeline(self) -> list[Event]:
        """The instructions that `launch(timeline=n)` kept, in the order in which they ran."""
        names = [core_name(core) for core in self.data["cores"]]
        return [
            Event(core=names[core], pipe=pipe, name=name, begin=begin, end=end, location=f"{shown_path(file)}:{line}")
            for core, pipe, begin, end, name, file, line in self.data["timeline"]
        ]


USES = ("tensors", "tensors", "workspace", "tiling")  # by GlobalBuffer::Use of the runtime


def core_name(core: Mapping[str, Any]) -> str:
    """ "AIC 3", or "AIV 3.1" for the second vector core of block 3."""
    return f"AIC {core['block']}" if core["role"] == "AIC" else f"AIV {core['block']}.{core['sub']}"


def _end(core: Mapping[str, Any]) -> float:
    return max(float(state["end"]) for state in core["pipes"].values())
