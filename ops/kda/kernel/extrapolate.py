"""Long sequences of all heads on a whole SoC, from what the emulator counts on one block.

A block takes its heads one after the other, so its time is a straight line in chunks and in sequences: two runs give
the slope of a chunk, a third what another sequence costs. Bytes of global memory likewise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

from ascend_k3.ops import backends
from ascend_k3.ops.emulator.report import Report
from ascend_k3.ops.kda import cost
from ascend_k3.ops.kda.kernel.cases import kda_call
from ascend_k3.ops.soc import SoC

CHUNK, WIDTH = 64, 128
SHORT, LONG = 16, 32  # chunks of the runs
ROOM_SLOTS = 4  # of tiling.h
INVERSE = ("Invert", "MakeBlocks", "Identity")  # functions of vector.h; all else there is preparation
SHAPES = tuple((heads, lengths) for heads in (96, 64) for lengths in ((8192,), (1024,) * 8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation:
    """One shape on one SoC; times in seconds. stages: of a chunk, on their own cores or pipes, all at the same time."""

    heads: int
    lengths: Sequence[int]
    soc: str
    modelled: float
    bound: float
    limited_by: str
    stages: dict[str, float]
    bytes_a_token: float

    @property
    def ratio(self) -> float:
        return self.modelled / self.bound


def extrapolate(chip: SoC) -> list[Extrapolation]:
    """Bfloat16, heads of 128, no initial states: the shapes of `SHAPES` on `chip`."""
    short, long, two = (_run(lengths, chip) for lengths in ((SHORT,), (LONG,), (SHORT, SHORT)))
    chunks = LONG - SHORT

    def slope(figure: str) -> float:
        return (_figure(long, figure) - _figure(short, figure)) / chunks

    def sequence(figure: str) -> float:
        """What a further sequence takes beyond its chunks."""
        return _figure(two, figure) - _figure(long, figure)

    found = []
    for heads, lengths in SHAPES:
        of_sequence = lengths[0] // CHUNK
        units = len(lengths) * heads
        chunks_own, heads_own, heads_all = share(units, of_sequence, chip.cube_cores)
        start = _figure(short, "time") - SHORT * slope("time")
        path = start + chunks_own * slope("time") + (heads_own - 1) * sequence("time")
        tensors, workspace = (
            units * of_sequence * slope(use) + heads_all * sequence(use) for use in ("tensors", "workspace")
        )
        memory = max(tensors / chip.gm_bytes_per_second, (tensors + workspace) / chip.l2_bytes_per_second)
        least = cost.kda(lengths=lengths, heads=heads, key=WIDTH, value=WIDTH, dtype="bf16", index_dtype="int64").bound(
            chip
        )
        found.append(
            Extrapolation(
                heads=heads,
                lengths=lengths,
                soc=chip.name,
                modelled=max(path, memory),
                bound=least.time,
                limited_by="memory" if memory > path else "the cube core's products",
                stages={"a chunk": slope("time"), **{stage: slope(stage) for stage in _stages(long)}},
                bytes_a_token=(slope("tensors") + slope("workspace")) / CHUNK,
            )
        )
    return found


def share(units: int, chunks: int, blocks: int) -> tuple[int, int, int]:
    """Chunks and heads, parts of heads included, of the block that has most, and heads of all, as share.h deals them.

    Args: units: heads of all sequences; chunks: of each.
    """
    blocks = min(blocks, units)
    if units * chunks // blocks < 2 * chunks + ROOM_SLOTS:
        most = -(-units // blocks)
        return most * chunks, most, units
    cuts = [units * chunks * block // blocks for block in range(blocks + 1)]
    parted = sum(cut % chunks > 0 for cut in cuts)
    heads = max(-(-end // chunks) - begin // chunks for begin, end in pairwise(cuts))
    return max(end - begin for begin, end in pairwise(cuts)), heads, units + parted


def lines(chip: SoC) -> list[str]:
    """What `ascend-k3 kernels report kda` prints of it."""
    everything = extrapolate(chip)
    first = everything[0]
    stages = ", ".join(f"{name} {seconds * 1e6:.2f}" for name, seconds in first.stages.items())
    out = [
        f"kda on {chip.name}, extrapolated from {SHORT} and {LONG} chunks of a head on a block; modelled, not measured",
        f"  us of a chunk of a head, stages at the same time: {stages}",
        f"  bytes of global memory a token and head, workspace included: {first.bytes_a_token:,.0f}",
    ]
    for one in everything:
        what = f"{len(one.lengths)} x {one.lengths[0]}" if len(one.lengths) > 1 else f"{one.lengths[0]}"
        out.append(
            f"  {what} tokens x {one.heads} heads: modelled {one.modelled * 1e6:.0f} us, "
            f"bound {one.bound * 1e6:.0f} us, ratio {one.ratio:.2f}, limited by {one.limited_by}"
        )
    return out


def _run(chunks: Sequence[int], chip: SoC) -> Report:
    small = chip.with_(cube_cores=1, vector_cores=2)
    with backends.backend("emulator", soc=small, timeline=1_000_000) as used:
        kda_call([count * CHUNK for count in chunks], heads=1, width=WIDTH, dtype=torch.bfloat16, initial=False)
    return used.calls[0].report


def _figure(report: Report, name: str) -> float:
    if name == "time":
        return report.estimate().critical_path
    if name in ("tensors", "workspace"):
        return report.counters.read[name] + report.counters.written[name]
    return _stages(report)[name]


def _stages(report: Report) -> dict[str, float]:
    """Busy time of the first block's stages: the first vector core's by function, the cube core's by pipe."""
    stages = {"preparation (V)": 0.0, "diagonal blocks (V)": 0.0}
    source = Path(__file__).parent / "vector.h"
    names = _functions(source)
    for event in report.timeline:
        if event.core == "AIV 0.0" and event.pipe == "V":
            file, line = event.location.rsplit(":", 1)
            own = Path(file).name == source.name
            inverted = own and next(name for at, name in reversed(names) if at <= int(line)) in INVERSE
            stages["diagonal blocks (V)" if inverted else "preparation (V)"] += event.end - event.begin
        elif event.core == "AIC 0":
            stage = {"M": "products (M)", "MTE1": "L1 to L0 (MTE1)", "FIX": "fixpipe (FIX)", "MTE2": "to L1 (MTE2)"}
            if event.pipe in stage:
                stages[stage[event.pipe]] = stages.get(stage[event.pipe], 0.0) + event.end - event.begin
    return stages


def _functions(source: Path) -> list[tuple[int, str]]:
    """Where each function of a header begins."""
    text = source.read_text(encoding="utf-8").split("\n")
    found = [(number, re.search(r"__aicore__ inline .*?(\w+)\(", line)) for number, line in enumerate(text, 1)]
    return [(number, match.group(1)) for number, match in found if match]
