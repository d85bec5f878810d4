"""Counters and estimates of a kernel whose work can be counted by hand, and its timeline as trace and picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ascend_k3.ops.emulator.report import Report
from ascend_k3.ops.emulator.timeline import plot, write_trace
from ascend_k3.ops.soc import soc

BLOCKS, TILE_BYTES = 2, 4096


def launch(source: Any, op: str, chip: str = "a3", **options: Any) -> Report:
    kernel = source("report.cpp")
    x = torch.arange(BLOCKS * 2048, dtype=torch.float32)
    y = torch.zeros_like(x)
    report = (
        kernel.build(chip)
        .on(options.pop("on", soc(chip)))
        .launch(BLOCKS, x, y, kernel.opcodes[op], workspace=BLOCKS * 2 * TILE_BYTES, **options)
    )
    assert report.ok and torch.equal(y, x + 1)
    return report


@pytest.mark.parametrize("chip", ["a3", "950pr"])
def test_counters_are_what_the_kernel_does(source: Any, chip: str) -> None:
    found = launch(source, "overlapped", chip).counters
    tiles = 2 * BLOCKS
    assert {path: count for path, count in found.paths.items() if count} == {
        "GM->UB": tiles * TILE_BYTES,
        "UB->GM": (tiles + 2) * TILE_BYTES,
    }
    assert found.read == {"tensors": tiles * TILE_BYTES, "workspace": 0}
    assert found.written == {"tensors": tiles * TILE_BYTES, "workspace": 2 * TILE_BYTES}
    assert found.gm_bytes == (2 * tiles + 2) * TILE_BYTES
    assert dict(found.vector) == {"Adds": tiles * 1024}
    assert found.repeats == tiles * TILE_BYTES // 256
    assert found.macs == {}
    assert (found.instructions["MTE2"], found.instructions["V"], found.instructions["MTE3"]) == (
        tiles,
        tiles,
        tiles + 2,
    )


@pytest.mark.parametrize("chip", ["a3", "950pr"])
def test_the_estimate_has_the_overlap_of_the_events(source: Any, chip: str) -> None:
    facts = soc(chip)
    load, store = TILE_BYTES / facts.path_rate("GM->UB"), TILE_BYTES / facts.path_rate("UB->GM")
    add = TILE_BYTES / 256 / facts.clock_hz
    found = launch(source, "overlapped", chip).estimate()
    assert found.pipes["MTE2"] == pytest.approx(2 * load)
    assert found.pipes["V"] == pytest.approx(2 * add)
    assert found.pipes["MTE3"] == pytest.approx(4 * store)  # of block 0, which writes the workspace too
    # the second load runs while the first tile is added and stored; the scalar issues the first in one cycle
    issued, first_stored = 1 / facts.clock_hz, load + add + 2 * store
    assert found.critical_path == pytest.approx(issued + max(first_stored, 2 * load + add) + 2 * store)
    assert found.memory == pytest.approx(4 * BLOCKS * TILE_BYTES / facts.gm_bytes_per_second)
    assert (found.seconds, found.bound, found.waves) == (found.critical_path, "MTE3", 1)
    # a barrier over all pipes takes the overlap away
    one_after_the_other = launch(source, "serial", chip).estimate()
    assert one_after_the_other.critical_path == pytest.approx(2 * (load + add + 2 * store), abs=4 * issued)
    assert one_after_the_other.pipes == pytest.approx(found.pipes)


def test_more_blocks_than_cores_come_in_waves_and_slow_memory_bounds(source: Any) -> None:
    few = launch(source, "overlapped", on=soc("a3").with_(vector_cores=1)).estimate()
    assert few.waves == 2 and few.seconds == pytest.approx(2 * few.critical_path)
    slow = launch(source, "overlapped", on=soc("a3").with_(gm_bytes_per_second=1e9)).estimate()
    assert slow.bound == "memory" and slow.seconds == pytest.approx(4 * BLOCKS * TILE_BYTES / 1e9)


def test_a_workspace_costs_the_shared_cache_or_memory_where_it_does_not_fit(source: Any) -> None:
    everything = (4 * BLOCKS + 2) * TILE_BYTES
    cached = launch(source, "overlapped", on=soc("a3").with_(l2_bytes_per_second=1e9)).estimate()
    assert cached.memory == pytest.approx(everything / 1e9)
    small = soc("a3").with_(l2_bytes=BLOCKS * 2 * TILE_BYTES - 1, l2_bytes_per_second=1e9)
    assert launch(source, "overlapped", on=small).estimate().memory == pytest.approx(everything / 1.6e12)


def test_the_timeline_is_the_instructions_in_order(source: Any) -> None:
    report = launch(source, "overlapped", timeline=1000)
    adds = [event for event in report.timeline if event.name == "Adds"]
    assert [event.core for event in adds] == ["AIV 0.0", "AIV 0.0", "AIV 1.0", "AIV 1.0"]
    assert all(event.pipe == "V" and event.end > event.begin for event in adds)
    assert adds[0].location.endswith(f"report.cpp:{source('report.cpp').lines['adds']}")
    assert max(event.end for event in report.timeline) == pytest.approx(report.estimate().critical_path)
    assert len(launch(source, "overlapped", timeline=3).timeline) == 3


def test_the_trace_is_what_trace_viewers_read(source: Any, tmp_path: Path) -> None:
    report = launch(source, "overlapped", timeline=1000)
    write_trace(report, tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert len(trace) == len(report.timeline)
    for entry, event in zip(trace, report.timeline, strict=True):
        assert (entry["ph"], entry["name"], entry["pid"], entry["tid"]) == ("X", event.name, event.core, event.pipe)
        assert entry["ts"] == pytest.approx(event.begin * 1e6)
        assert entry["dur"] == pytest.approx((event.end - event.begin) * 1e6)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".pdf", b"%PDF")])
def test_the_picture(source: Any, tmp_path: Path, suffix: str, magic: bytes) -> None:
    plot(launch(source, "overlapped", timeline=1000), tmp_path / f"timeline{suffix}")
    assert [path.name for path in tmp_path.iterdir()] == [f"timeline{suffix}"]
    assert (tmp_path / f"timeline{suffix}").read_bytes().startswith(magic)


def test_the_picture_names_each_core_and_pipe(source: Any, tmp_path: Path) -> None:
    plot(launch(source, "overlapped", timeline=1000), tmp_path / "timeline.svg", cores=1)
    text = (tmp_path / "timeline.svg").read_text()
    for row in ("AIV 0.0  V", "AIV 0.0  MTE2", "AIV 0.0  MTE3"):
        assert f"<!-- {row} -->" in text
    assert "AIV 1.0" not in text


@pytest.mark.parametrize("write", [write_trace, plot])
def test_a_report_without_a_timeline_is_refused(source: Any, tmp_path: Path, write: Any) -> None:
    with pytest.raises(ValueError, match=r"the report has no instructions; launch the kernel with timeline=10000"):
        write(launch(source, "overlapped"), tmp_path / "none.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [write_trace, plot])
def test_a_folder_that_does_not_exist_is_named(source: Any, tmp_path: Path, write: Any) -> None:
    with pytest.raises(FileNotFoundError, match=r"none.png: there is no folder .*absent; make it first"):
        write(launch(source, "overlapped", timeline=1000), tmp_path / "absent" / "none.png")


def test_a_report_prints_its_hazards_alone(source: Any) -> None:
    assert repr(launch(source, "overlapped")) == "Report(hazards=())"
