"""KernelLaunch: tilings from C++, their refusals, hazards as errors; what `ascend-k3 kernels` prints."""

from __future__ import annotations

import dataclasses
import importlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from ascend_k3 import ops
from ascend_k3.cli import main
from ascend_k3.ops import kernel_cases, kernel_report
from ascend_k3.ops.emulator import Hazard, Report
from ascend_k3.ops.errors import BackendError
from ascend_k3.ops.kernels import TYPES, KernelLaunch, for_dtypes, one_dtype
from ascend_k3.ops.soc import soc

TILING = """
#pragma once
#include "ascend_k3/platform.h"
struct ScaleTiling { int64_t count; float factor; uint32_t ub; };
#ifndef __NPU_ARCH__
inline bool tile_scale(const ascend_k3::Platform& platform, const int64_t* sizes, const double* numbers,
                       ScaleTiling& out, ascend_k3::Launch& launch) {
    if (sizes[0] % 8) return ascend_k3::refuse(launch, "x has %lld elements; it takes eights", (long long)sizes[0]);
    out = {sizes[0], static_cast<float>(numbers[0]), platform.ub};
    launch.block_dim = 1;
    launch.workspace = 64;
    return true;
}
#endif
ASCEND_K3_TILING(scale, ScaleTiling, tile_scale)
"""
KERNEL = """
#include "kernel_operator.h"
#include "tiling.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void scale(GM_ADDR x, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling_data) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GET_TILING_DATA_WITH_STRUCT(ScaleTiling, tiling, tiling_data);
    GlobalTensor<float> in, out;
    in.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), tiling.count);
    out.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y), tiling.count);
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    pipe.InitBuffer(buffer, tiling.count * sizeof(float));
    LocalTensor<float> tile = buffer.Get<float>();
    DataCopy(tile, in, tiling.count);
    SetFlag<HardEvent::MTE2_V>(0);
    WaitFlag<HardEvent::MTE2_V>(0);
    Muls(tile, tile, tiling.factor, tiling.count);
#ifndef FORGET
    SetFlag<HardEvent::V_MTE3>(0);
    WaitFlag<HardEvent::V_MTE3>(0);
#endif
    DataCopy(out, tile, tiling.count);
}
"""


@pytest.fixture(scope="module")
def scale(tmp_path_factory: pytest.TempPathFactory) -> KernelLaunch:
    folder = tmp_path_factory.mktemp("scale") / "kernel"
    folder.mkdir()
    (folder / "tiling.h").write_text(TILING)
    (folder / "scale.cpp").write_text(KERNEL)
    return KernelLaunch(folder=folder, source="scale.cpp", entry="scale", variants=({}, {"FORGET": 1}))


def run(scale: KernelLaunch, count: int = 16, **options: Any) -> torch.Tensor:
    x, y = torch.arange(count, dtype=torch.float32), torch.empty(count)
    scale.run(inputs=(x,), outputs=(y,), sizes=(count,), numbers=(3.0,), **options)
    return y


def test_a_launch_runs_with_the_tiling_of_its_header(scale: KernelLaunch) -> None:
    with ops.backend("emulator", soc="950pr") as used:
        assert run(scale).tolist() == [3.0 * i for i in range(16)]
    assert [call.name for call in used.calls] == ["scale"]
    tiling = scale.tile_for((16,), (3.0,), soc("a3"))
    assert (tiling.block_dim, tiling.workspace) == (1, 64)
    assert struct.unpack("<qfI", tiling.data) == (16, 3.0, soc("a3").usable_ub)


def test_a_tiling_that_refuses_is_a_sentence(scale: KernelLaunch) -> None:
    with ops.backend("emulator"), pytest.raises(ValueError, match="scale on a3: x has 12 elements; it takes eights"):
        run(scale, 12)


def test_a_hazard_is_an_error_unless_asked_otherwise(scale: KernelLaunch) -> None:
    with (
        ops.backend("emulator"),
        pytest.raises(BackendError, match=r"scale: the emulator found 1 hazard:\n  .*scale.cpp:23: race"),
    ):
        run(scale, defines={"FORGET": 1})
    with ops.backend("emulator", refuse_hazards=False) as used:
        run(scale, defines={"FORGET": 1})
    assert {hazard.kind for hazard in used.calls[0].report.hazards} == {"race"}


def test_only_declared_variants_run(scale: KernelLaunch) -> None:
    with ops.backend("emulator"), pytest.raises(BackendError, match=r"scale is not built with {'FORGET': 2}"):
        run(scale, defines={"FORGET": 2})


def test_dtypes_of_kernels() -> None:
    x, half = torch.ones(2), torch.ones(2, dtype=torch.float16)
    assert for_dtypes(torch.bfloat16) == ({"DTYPE": "bfloat16_t"},)
    assert set(TYPES.values()) >= {"float", "half", "bfloat16_t", "fp8_e4m3fn_t"}
    assert one_dtype("f", (torch.float32,), x=x, y=x) == torch.float32
    with pytest.raises(ValueError, match="f: x is torch.float16; its kernel takes float32. Convert it, or use"):
        one_dtype("f", (torch.float32,), x=half)
    with pytest.raises(ValueError, match="f: y is torch.float16 and x is torch.float32; the kernel takes one dtype"):
        one_dtype("f", (torch.float32,), x=x, y=half)


# --- ascend-k3 kernels ----------------------------------------

SMALL = [case for case in kernel_cases.cases("rms_norm") if case.mutated][:2]


@pytest.fixture
def few_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first small cases of rms_norm, one of them judged: the command is the same, and quick."""
    few = [dataclasses.replace(SMALL[0], judged=True), *SMALL[1:]]
    monkeypatch.setattr(importlib.import_module("ascend_k3.ops.rms_norm.kernel.cases"), "CASES", few)
    monkeypatch.setattr(kernel_cases, "MOST_BYTES", 100.0)


def cli(capsys: pytest.CaptureFixture, *arguments: object) -> tuple[int, str, str]:
    code = main(["kernels", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.usefixtures("few_cases")
def test_kernels_test_prints_a_line_a_case(capsys: pytest.CaptureFixture) -> None:
    code, out, _ = cli(capsys, "test", "rms_norm")
    first, *lines, last = out.splitlines()
    assert code == 0 and last == "all fine" and "not run on an NPU" in first
    assert len(lines) == 2 * len(SMALL) and all(line.startswith("ok   ") for line in lines)
    assert [line.split()[1] for line in lines] == ["a3"] * len(SMALL) + ["950pr"] * len(SMALL)
    assert lines[0].endswith("x least (judged)")


@pytest.mark.usefixtures("few_cases")
def test_kernels_test_as_json_has_the_figures(capsys: pytest.CaptureFixture) -> None:
    code, out, _ = cli(capsys, "test", "rms_norm", "--soc", "a2", "--json")
    data = json.loads(out)
    assert code == 0 and data["ok"] and [row["soc"] for row in data["cases"]] == ["a2"] * len(SMALL)
    row = data["cases"][0]
    assert row["case"] == SMALL[0].name and row["hazards"] == [] and row["least_bytes"] == SMALL[0].cost.bytes
    assert row["bytes"] >= row["least_bytes"] and row["estimated_seconds"] >= row["bound_seconds"] > 0


@pytest.mark.usefixtures("few_cases")
def test_a_wrong_case_fails_the_command(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cases, "MOST_BYTES", 0.5)
    code, out, _ = cli(capsys, "test", "rms_norm", "--soc", "a3")
    assert code == 1 and out.splitlines()[1].startswith("FAIL a3") and out.endswith("NOT fine\n")
    code, out, _ = cli(capsys, "report", "rms_norm", "--soc", "a3")
    assert code == 1 and out.startswith(f"{SMALL[0].name} on a3: NOT fine\n  bytes ")


@pytest.mark.usefixtures("few_cases")
def test_a_wrong_case_says_what_is_wrong(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    hazard = Hazard(kind="race", message="two copies.", location="a.cpp:3", count=2)
    report = Report(data={"cores": [], "buffers": []}, hazards=(hazard,) * 7)
    right = kernel_cases.run(SMALL[0], "a3")
    wrong = dataclasses.replace(right, error=0.5, bytes_ratio=101.0, hazards=7, reports=(report,))
    monkeypatch.setattr(kernel_cases, "run", lambda case, chip: dataclasses.replace(wrong, case=case))
    code, out, _ = cli(capsys, "test", "rms_norm", "--soc", "a3")
    _, first, *faults = out.splitlines()
    allowed = f"{SMALL[0].allowed_error:.1e}"
    assert code == 1 and first.startswith("FAIL a3")
    assert faults[:3] == [
        f"  error 5.0e-01; at most {allowed} is allowed",
        "  bytes 101.00 x least; at most 100.0 x is allowed",
        "  a.cpp:3: race: two copies. (2 times)",
    ]
    assert faults[3:7] == [faults[2]] * 4 and faults[7] == "  and 2 more hazards; --json has all"


def test_an_outcome_is_judged_by_result_hazards_and_bytes() -> None:
    right = kernel_cases.run(SMALL[0], "a3")
    assert right.ok
    assert not dataclasses.replace(right, error=float("nan")).ok
    assert not dataclasses.replace(right, error=1.0).ok
    assert not dataclasses.replace(right, hazards=1).ok
    judged = dataclasses.replace(right.case, judged=True)
    assert not dataclasses.replace(right, case=judged, bytes_ratio=1.2).ok
    exact = dataclasses.replace(right.case, exact=True)
    assert not dataclasses.replace(right, case=exact, error=1e-9).ok
    assert "FAIL" in kernel_report.line(dataclasses.replace(right, hazards=1))


@pytest.mark.usefixtures("few_cases")
def test_kernels_report_prints_counters_beside_the_bound(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    trace, picture = tmp_path / "trace.json", tmp_path / "timeline.png"
    code, out, _ = cli(capsys, "report", "rms_norm", "--soc", "a3", "--trace", trace, "--plot", picture)
    assert code == 0 and out.startswith(f"{SMALL[0].name} on a3: fine\n  bound ")
    for words in ("GM->UB", "not measured on an NPU", "busiest core, us by pipe", "cube: none", "tensors"):
        assert words in out
    assert f"{picture}: the last launch, {SMALL[0].name} on a3" in out
    assert json.loads(trace.read_text())["traceEvents"] and picture.read_bytes().startswith(b"\x89PNG")
    code, out, _ = cli(capsys, "report", "rms_norm", "--soc", "a3", "--json")
    (row,) = json.loads(out)["cases"]
    (launch,) = row["launches"]
    assert sum(launch["read"].values()) + sum(launch["written"].values()) == row["bytes"]


def test_what_the_command_refuses(capsys: pytest.CaptureFixture) -> None:
    for arguments, message in (
        (("test", "softmax"), "'softmax' has no kernels; those that have are kda, rms_norm,"),
        (("test", "--soc", "h100"), "'h100' is no SoC"),
        (("test", "--plot", "x.png"), "--trace and --plot go with `kernels report`"),
    ):
        code, out, err = cli(capsys, *arguments)
        assert code == 2 and out == "" and message in err


def test_every_kernel_has_a_cost_and_cases() -> None:
    for operator in kernel_cases.OPERATORS:
        cases = kernel_cases.cases(operator)
        assert any(case.mutated for case in cases), operator
        assert len({case.name for case in cases}) == len(cases)
