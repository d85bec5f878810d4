"""Vector instructions by their definition: which elements take part, one by one, and the kernels that do the same."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ascend_k3.ops import emulator
from ascend_k3.ops.emulator.launch import Kernel
from ascend_k3.ops.emulator.report import Report

KERNELS = Path(__file__).parent / "kernels"
REGION = 16384  # bytes of each operand's part of UB, as in kernels/vector_frame.h
COUNT, NUMBER, BITS, COUNTER, OUTSIDE, OUTSIDE_COUNTER = FORMS = range(6)
ALL = (1 << 64) - 1
# bfloat16 is kept as bits.
STORED = {"half": "float16", "float": "float32", "bfloat16_t": "uint16"}
STORED |= {f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}

Array = NDArray[Any]


@functools.cache
def kernel(name: str, soc: str) -> Kernel:
    return emulator.build(KERNELS / f"{name}.cpp", entry=name, soc=soc)


def stored(type: str) -> np.dtype[Any]:
    return np.dtype(STORED.get(type, type))


def to_bfloat16(x: Array) -> Array:
    """Bits of the nearest bfloat16 of float32 numbers."""
    return torch.from_numpy(np.array(x, np.float32)).bfloat16().view(torch.uint16).numpy()


def from_bfloat16(bits: Array) -> Array:
    return np.left_shift(bits.astype(np.uint32), 16).view(np.float32)


def values(type: str, seed: int, count: int | None = None, scale: float = 4.0) -> Array:
    """Numbers that fill a region: normal ones, or integers over the whole range of the type."""
    random = np.random.default_rng(seed)
    dtype = stored(type)
    count = count or REGION // dtype.itemsize
    if type == "bfloat16_t":
        return to_bfloat16(random.normal(size=count) * scale)
    if dtype.kind == "f":
        return (random.normal(size=count) * scale).astype(dtype)
    info = np.iinfo(dtype)
    return random.integers(info.min, info.max, count, dtype, endpoint=True)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call; `block` and `repeat` are the strides of dst, src0, src1."""

    operation: int = 0
    type: int = 0
    form: int = COUNT
    place: int = 0
    count: int = 1
    repeats: int = 1
    mode: int = 0
    offset: int = 0
    mask: tuple[int, int] = (ALL, ALL)
    scalar: bytes = b""
    block: tuple[int, int, int] = (1, 1, 1)
    repeat: tuple[int, int, int] = (8, 8, 8)

    def packed(self) -> bytes:
        head = struct.pack(
            "<8i2Q",
            *(self.operation, self.type, self.form, self.place, self.count, self.repeats, self.mode, self.offset),
            *self.mask,
        )
        return head + self.scalar.ljust(8, b"\0") + struct.pack("<8i", *self.block, 0, *self.repeat, 0)

    def lanes(self, width: int) -> list[list[int]]:
        """The lanes that take part, of each repeat; all of them in one for the form with a count."""
        if self.form == COUNT:
            return [list(range(self.count))]
        if self.form in (COUNTER, OUTSIDE_COUNTER):
            return [list(range(min(width, self.mask[0] - first))) for first in range(0, self.mask[0], width)]
        if self.form == NUMBER:
            return [list(range(min(self.mask[0], width)))] * self.repeats
        bits = self.mask[0] | self.mask[1] << 64
        return [[lane for lane in range(width) if bits >> lane & 1]] * self.repeats

    def places(self, operand: int, itemsize: int, width: int) -> list[Array]:
        """Indices of an operand's elements, of each repeat."""
        a_block = 32 // itemsize
        block, repeat = (
            (1, width * itemsize // 32) if self.form == COUNT else (self.block[operand], self.repeat[operand])
        )
        return [
            np.array(
                [(r * repeat + lane // a_block * block) * a_block + lane % a_block for lane in lanes], dtype=np.int64
            )
            for r, lanes in enumerate(self.lanes(width))
        ]


def expected(
    call: Call, d: Array, sources: Sequence[Array], f: Callable[..., Array], itemsize: int | None = None
) -> Array:
    """dst's region when dst = f(sources..., dst) is done repeat after repeat."""
    widest = itemsize or max(array.itemsize for array in (d, *sources))
    width = 256 // widest
    operands = [d, *sources]
    out: Array = operands[call.place].copy()
    operands[call.place] = out
    shift = call.offset // out.itemsize
    where = [call.places(i, array.itemsize, width) for i, array in enumerate(operands)]
    for r in range(len(where[0])):
        to = where[0][r] + shift
        out[to] = f(*(operands[i][where[i][r]] for i in range(1, len(operands))), out[to])
    return out


def run(name: str, soc: str, call: Call, *regions: Array, seed: int | None = None) -> tuple[Array, Report]:
    """dst's region and the report; `regions` are those of dst and of the sources."""
    given = [np.ascontiguousarray(region).view(np.uint8) for region in regions]
    given += [np.zeros(REGION, np.uint8)] * (3 - len(given))
    out = np.zeros(REGION, np.uint8)
    report = kernel(name, soc).launch(1, *given, out, call.packed(), outputs=(3,), seed=seed)
    return out.view(regions[call.place].dtype), report


def check(name: str, soc: str, call: Call, d: Array, sources: Sequence[Array], f: Callable[..., Array]) -> None:
    """The call's result equals the definition in every bit, NaN apart, and nothing is reported."""
    found, report = run(name, soc, call, d, *sources)
    assert report.hazards == (), report.hazards
    np.testing.assert_array_equal(found, expected(call, d, sources, f))


# One call for each form, with strides and tails; `width` lanes a repeat.
def forms(width: int) -> list[Call]:
    checkers = 0x5A5A_F00F_1234_8001
    return [
        Call(form=COUNT, count=3 * width + 5),
        Call(form=NUMBER, mask=(width - 3, 0), repeats=4),
        Call(form=NUMBER, mask=(width, 0), repeats=3, block=(2, 1, 3), repeat=(17, 9, 25)),
        Call(form=NUMBER, mask=(200, 0), repeats=2),  # more than a repeat has: all of it
        Call(form=BITS, mask=(checkers, checkers >> 3), repeats=5, repeat=(8, 0, 4)),
        Call(form=BITS, mask=(checkers, ALL), repeats=2, block=(3, 0, 1), repeat=(24, 8, 8)),
        Call(form=COUNTER, mask=(2 * width + 7, 0), repeat=(8, 9, 8)),
        Call(form=OUTSIDE, mask=(checkers, 0xFF), repeats=3),
        Call(form=OUTSIDE_COUNTER, mask=(width + 1, 0), block=(1, 2, 1), repeat=(8, 16, 8)),
    ]


def stretches(flags: Array) -> int:
    """Runs of True."""
    return int(np.count_nonzero(np.diff(np.concatenate([[False], flags]).astype(np.int8)) == 1))


def check_written(name: str, soc: str, call: Call, *sources: Array) -> None:
    """What the call says that it writes is what it changes, to the byte.

    It runs over two different contents of dst, of which it leaves what it does not write, and over memory that nothing
    has written, of which the rest is reported when it is read.
    """
    given = [np.ascontiguousarray(source).view(np.uint8) for source in sources]
    given += [np.zeros(REGION, np.uint8)] * (2 - len(given))
    outs = [np.zeros(REGION, np.uint8) for _ in range(3)]
    packed = call.packed()
    fresh = packed[:68] + (1).to_bytes(4, "little") + packed[72:]
    for out, filling, how in zip(outs, (0, 255, 0), (packed, packed, fresh), strict=True):
        report = kernel(name, soc).launch(1, np.full(REGION, filling, np.uint8), *given, out, how)
    left = stretches(outs[0] != outs[1])
    found = [hazard for hazard in report.hazards if "DataCopy (src)" in hazard.message]
    assert left > 0 and len(report.hazards) == 1, report.hazards
    assert found[0].kind == "uninitialised" and found[0].count == left, (call, found, left)


def named(hazards: Sequence[Any]) -> list[tuple[str, str]]:
    return [(hazard.kind, hazard.message) for hazard in hazards]


__all__ = ["Call", "check", "check_written", "expected", "forms", "kernel", "named", "replace", "run", "values"]
