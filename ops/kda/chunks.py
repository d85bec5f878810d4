"""How packed sequences are cut into chunks, and in which order the chunks are computed.

Chunk j of a sequence needs the state that chunk j-1 left; chunks of different sequences are independent. So chunks are
computed step by step, step j holding chunk j of every sequence that is long enough. Sequences stand in order of falling
length: those that are active at a step are then a prefix, and each step is one contiguous range of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

SUB_CHUNK = 16  # tokens whose decays may share an anchor: exp of half of them, 8 * 5 = 40, is far inside float32


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Consecutive steps of a group, computed together: rows are chunks, step by step."""

    tokens: Tensor  # [chunks, C] int64: which token of the stream stands where; 0 beyond a sequence's end
    filled: Tensor | None  # [chunks, C] bool: whether there is a token at all; None when there is one everywhere
    active: list[int]  # for each step, how many sequences (the first ones of the group) have a chunk


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Sequences that go through the recurrence side by side, longest first, and their pieces in order."""

    sequences: list[int]
    pieces: list[Piece]


def fitting_chunk_size(offsets: list[int], chunk_size: int) -> int:
    """`chunk_size`, or half of it as often as no sequence fills more; both are SUB_CHUNK times a power of two."""
    longest = max((b - a for a, b in zip(offsets, offsets[1:], strict=False)), default=0)
    while chunk_size > SUB_CHUNK and longest <= chunk_size // 2:
        chunk_size //= 2
    return chunk_size


def plan_chunks(offsets: list[int], chunk_size: int, chunks_at_once: int) -> Iterator[Group]:
    """Cut the sequences between `offsets`, the empty ones left out, into pieces of about `chunks_at_once` chunks."""
    counts = {n: -(-(offsets[n + 1] - offsets[n]) // chunk_size) for n in range(len(offsets) - 1)}
    order = sorted((n for n in counts if counts[n]), key=lambda n: -counts[n])
    for begin in range(0, len(order), chunks_at_once):
        sequences = order[begin : begin + chunks_at_once]
        steps_at_once = max(1, chunks_at_once // len(sequences))
        steps = counts[sequences[0]]
        pieces = [
            _piece(offsets, counts, sequences, range(step, min(step + steps_at_once, steps)), chunk_size)
            for step in range(0, steps, steps_at_once)
        ]
        yield Group(sequences=sequences, pieces=pieces)


def _piece(offsets: list[int], counts: dict[int, int], sequences: list[int], steps: range, chunk_size: int) -> Piece:
    rows = [(offsets[n] + j * chunk_size, offsets[n + 1]) for j in steps for n in sequences if counts[n] > j]
    starts, ends = torch.tensor(rows).unbind(1)
    tokens = starts[:, None] + torch.arange(chunk_size)
    filled = tokens < ends[:, None]
    active = [sum(counts[n] > j for n in sequences) for j in steps]
    if bool(filled.all()):
        return Piece(tokens=tokens, filled=None, active=active)
    return Piece(tokens=tokens * filled, filled=filled, active=active)
