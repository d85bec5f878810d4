"""GetValue and SetValue, and the data cache between the scalar and global memory.

Sentences are of the pages "DataCacheCleanAndInvalid" and GetValue, SetValue of GlobalTensor and LocalTensor. Polls,
flags in memory and results of several cores are in test_sync.py, stale reads and stores that stay in the cache in
test_hazards.py.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ascend_k3.ops import emulator

Ints = NDArray[np.int32]
X: Ints = np.random.default_rng(3).integers(-(1 << 30), 1 << 30, 64).astype(np.int32)


def run(source: Any, name: str, fixed: int = 1, soc: str = "a3") -> tuple[Ints, emulator.Report]:
    scalar = source("scalar.cpp")
    y = np.full(64, -1, np.int32)
    report = scalar.build(soc).launch(1, X.copy(), y, scalar.opcodes[name], fixed, tiling=struct.pack("<2i", 30, 12))
    return y, report


def changed(**values: int) -> Ints:
    y = np.full(64, -1, np.int32)
    for place, value in values.items():
        y[int(place[1:])] = value
    return y


@pytest.mark.parametrize("soc", ["a3", "950pr"])
def test_store_reaches_memory_when_its_line_is_cleaned(source: Any, soc: str) -> None:
    """ "SetValue changes the data cache of the core first, and is not written to global memory at once." """
    y, report = run(source, "own_store", soc=soc)
    assert report.hazards == () and np.array_equal(y, changed(_3=42))
    y, report = run(source, "own_store", 0, soc=soc)
    assert [hazard.kind for hazard in report.hazards] == ["cache_line"] and np.array_equal(y, changed())


def test_one_line_is_cleaned(source: Any) -> None:
    """ "SINGLE_CACHE_LINE: refreshes only the cache line of the address"."""
    y, report = run(source, "clean_line", 0)
    assert [hazard.kind for hazard in report.hazards] == ["cache_line"] and np.array_equal(y, changed(_0=1))
    assert report.hazards[0].location.endswith(f":{source('scalar.cpp').lines['clean_line']}")
    y, report = run(source, "clean_line")
    assert report.hazards == () and np.array_equal(y, changed(_0=1, _16=2))


def test_part_of_a_line_is_cleaned(source: Any) -> None:
    """ "If the address is not aligned to 64 bytes, only what lies from it to the next 64 bytes is worked on"."""
    y, report = run(source, "clean_part", 0)
    assert [hazard.kind for hazard in report.hazards] == ["cache_line"]
    assert np.array_equal(y, np.where((np.arange(64) >= 8) & (np.arange(64) < 16), 100 + np.arange(64), -1))
    y, report = run(source, "clean_part")
    assert report.hazards == () and np.array_equal(y, np.where(np.arange(64) < 16, 100 + np.arange(64), -1))


def test_two_lines_need_two_calls(source: Any) -> None:
    """The page's second example: 64 bytes from the middle of a line on take two calls."""
    y, report = run(source, "two_lines")
    assert (
        report.hazards == () and np.array_equal(y[8:24], np.arange(16)) and (y[:8] == -1).all() and (y[24:] == -1).all()
    )


def test_whole_cache_is_cleaned(source: Any) -> None:
    y, report = run(source, "clean_all")
    assert report.hazards == () and np.array_equal(y, np.arange(64))


def test_line_is_written_back_whole(source: Any) -> None:
    """ "What is written out later has the unit of a cache line (64 bytes)": what a copy wrote meanwhile is lost."""
    y, report = run(source, "line_overwritten", 0)
    assert [hazard.kind for hazard in report.hazards] == ["cache_line"]
    assert "the rest of its cache line of 64 bytes has changed in global memory" in report.hazards[0].message
    assert report.hazards[0].location.endswith(f":{source('scalar.cpp').lines['line_overwritten']}")
    y, report = run(source, "line_overwritten")
    assert report.hazards == () and y[0] == 7 and np.array_equal(y[8:16], X[:8])


@pytest.mark.parametrize("soc", ["a3", "950pr"])
def test_values_of_every_size(source: Any, soc: str) -> None:
    y, report = run(source, "sizes", soc=soc)
    assert report.hazards == () and np.array_equal(y.view(np.uint8)[:32], X.view(np.uint8)[:32])


def test_values_of_local_tensors(source: Any) -> None:
    y, report = run(source, "local_values")
    want = np.arange(64, dtype=np.int32)
    want[:8] = X[:8] + X[15:7:-1]
    assert report.hazards == () and np.array_equal(y[:16], want[:16])
    assert report.data["cores"][0]["scalar_operations"] >= 8 * 3 + 8


def test_tiling_data_is_plain_memory(source: Any) -> None:
    y, report = run(source, "tiling_pointer")
    assert report.hazards == () and y[0] == 42
