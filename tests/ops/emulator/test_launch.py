"""build and launch: what they take and refuse, memory that is given twice, and that launches leave nothing behind."""

from __future__ import annotations

import resource
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ascend_k3.ops import emulator
from ascend_k3.ops.emulator import compiler as builder
from tests.paths import ROOT

NUMBERS = struct.pack("<ifq", 3, 0.25, -7)
TILING = struct.pack("<ifq", 11, 0.5, 1 << 20)


def launch(
    source: Any,
    op: str,
    x: Any,
    y: Any,
    *,
    blocks: int = 1,
    small: int = 0,
    numbers: bytes = NUMBERS,
    flag: bool = True,
    **options: Any,
) -> Any:
    launched = source("launched.cpp")
    options = {"workspace": 64, "tiling": TILING, **options}
    return launched.build().launch(blocks, x, y, launched.opcodes[op], 1.5, flag, small, numbers, **options)


def test_parameters_of_every_kind(source: Any) -> None:
    kernel = source("launched.cpp").build()
    assert kernel.parameters == (
        "pointer",
        "pointer",
        "int32",
        "float32",
        "bool",
        "uint16",
        "struct16",
        "pointer",
        "pointer",
    )
    for make in (np.zeros, torch.zeros):
        x, y = make(64), make(16) if make is torch.zeros else np.zeros(16, np.float32)
        report = launch(source, "arguments", x, y, small=65535)
        assert report.hazards == ()
        assert np.asarray(y)[:10].tolist() == [1.5, 1.0, 65535.0, 3.0, 0.25, -7.0, 11.0, 0.5, float(1 << 20), 1.0]


def test_what_a_launch_refuses(source: Any) -> None:
    kernel = source("launched.cpp").build()
    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    good = [x, y, 0, 1.5, True, 7, NUMBERS]

    def refused(message: str, position: int, value: Any, blocks: int = 1, **options: Any) -> None:
        arguments = list(good)
        if position >= 0:
            arguments[position] = value
        with pytest.raises(ValueError, match=message):
            kernel.launch(blocks, *arguments, **{"workspace": 64, "tiling": TILING, **options})

    refused("block_dim is 0; it has to be at least 1", -1, None, blocks=0)
    refused("argument 0: the parameter is global memory", 0, 3.0)
    refused("argument 1: the tensor has to be contiguous", 1, torch.zeros(4, 4).T)
    refused("argument 1: the array has to be contiguous", 1, np.zeros((4, 4), np.float32).T)
    refused("argument 2: 'a' is not|argument 2: the parameter is a number", 2, "a")
    refused("argument 5: 65536 is not a uint16", 5, 65536)
    refused("struct of 16 bytes", 6, b"123")
    with pytest.raises(ValueError, match="it has 9 parameters"):
        kernel.launch(1, *good[:-1], workspace=64, tiling=TILING)


def test_memory_given_twice_is_one_tensor(source: Any) -> None:
    """In place: the race between the copy out and the next copy in is seen, and the right order is clean."""
    for make in (lambda: np.ones(64, np.float32), lambda: torch.ones(64)):
        x = make()
        report = launch(source, "in_place", x, x)
        assert report.hazards == ()
        assert np.asarray(x).tolist() == [4.0] * 64
    whole = np.ones(256, np.float32)
    report = launch(source, "in_place", whole, whole[64:128])
    assert report.hazards == () and whole[64:128].tolist() == [2.0] * 64 and whole[:64].tolist() == [1.0] * 64
    assert len(report.data["buffers"]) == 3  # with the workspace and the tiling data


def test_memory_shared_in_part_is_refused(source: Any) -> None:
    whole = np.ones(256, np.float32)
    with pytest.raises(ValueError, match="arguments 0 and 1 share memory in part"):
        launch(source, "in_place", whole[:128], whole[64:192])
    with pytest.raises(ValueError, match="arguments 0 and 1 share memory, and one of them is in outputs"):
        launch(source, "in_place", whole, whole, outputs=[1])


@pytest.mark.parametrize("position", [-1, 2, 7])
def test_outputs_are_positions_of_tensors(source: Any, position: int) -> None:
    with pytest.raises(ValueError, match=f"outputs has {position}, which is not the position of a tensor"):
        launch(source, "arguments", np.zeros(64, np.float32), np.zeros(64, np.float32), outputs=[position])


def test_workspace_and_outputs_are_undefined_at_the_start(source: Any) -> None:
    """ "The contents of the workspace are not zeroed": what nothing wrote is not a number."""
    y = np.zeros(64, np.float32)
    report = launch(source, "arguments", np.zeros(64, np.float32), y, outputs=[1])
    assert [hazard.kind for hazard in report.hazards] == ["unwritten_output"]
    assert "216 bytes of argument 1, from byte 40 on" in report.hazards[0].message
    assert np.isnan(y[10:]).all() and not np.isnan(y[:10]).any()


def test_a_thousand_launches_leave_nothing_behind(source: Any) -> None:
    x = np.ones(64, np.float32)
    hazards = source("hazards.cpp")
    kernel = hazards.build()
    broken = [hazards.opcodes[name] for name in ("deadlock_circle", "queue_not_freed", "raw_mte2_v")]
    tiles = [np.zeros(512, np.float32), np.zeros(256, np.float32), np.zeros(256, np.float32)]

    def run(times: int) -> None:
        for number in range(times):
            assert (
                launch(source, "in_place", x, x, blocks=8, seed=number if number % 2 else None).hazards != ()
            )  # 8 cores race
            assert kernel.launch(1, *tiles, broken[number % 3], 0, workspace=1024).hazards != ()
            x[:] = 1

    run(100)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run(1000)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 4096  # KiB


def test_checks_keep_up_with_the_copies(source: Any) -> None:
    """16,384 tiles of 28 KiB in and out, every access checked: 0.2 s of processor time; ten times that is a defect."""
    tile = 7168
    x, y = np.ones(1024 * tile, np.float32), np.zeros(1024 * tile, np.float32)
    numbers = struct.pack("<ifq", tile, 0.0, x.size)
    begin = time.process_time()
    report = launch(source, "many_copies", x, y, small=16384, numbers=numbers)
    assert time.process_time() - begin < 2
    assert report.hazards == () and np.array_equal(x, y)


@pytest.mark.parametrize("seed", [None, 1])
def test_strided_copies_are_checked_row_by_row(source: Any, seed: int | None) -> None:
    x = np.random.default_rng(0).standard_normal(512 * 8 * 20).astype(np.float32)
    y = np.zeros_like(x)
    report = launch(source, "strided_copies", x, y, small=20, outputs=[1], seed=seed)
    assert report.hazards == () and np.array_equal(x, y)


def test_time_limit(source: Any) -> None:
    hazards = source("hazards.cpp")
    tiles = [np.zeros(512, np.float32), np.zeros(256, np.float32), np.zeros(256, np.float32)]
    report = hazards.build().launch(1, *tiles, hazards.opcodes["endless_poll_ub"], 0, workspace=1024, time_limit=0.05)
    assert [hazard.kind for hazard in report.hazards] == ["deadlock"]
    assert "did not end within 0.05" in report.hazards[0].message


def test_kernels_are_built_once(source: Any) -> None:
    begin = time.perf_counter()
    again = emulator.build(source("launched.cpp").path, entry="launched")
    assert time.perf_counter() - begin < 1
    assert again.kernel_type == 0


def test_a_changed_source_is_built_again(tmp_path: Path) -> None:
    """Also within one process, which has the former object loaded."""
    path, header = tmp_path / "answer.cpp", tmp_path / "number.h"
    path.write_text(
        '#include "kernel_operator.h"\n#include "number.h"\n'
        'extern "C" __global__ __aicore__ void answer(GM_ADDR y) {\n'
        "    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);\n    AscendC::GlobalTensor<int32_t> out;\n"
        "    out.SetGlobalBuffer((__gm__ int32_t*)y);\n    out.SetValue(0, NUMBER);\n"
        "    AscendC::DataCacheCleanAndInvalid<int32_t, AscendC::CacheLine::SINGLE_CACHE_LINE>(out);\n}\n"
    )
    for number in (41, 42, 41):
        header.write_text(f"#define NUMBER {number}\n")
        y = np.zeros(16, np.int32)
        assert emulator.build(path, entry="answer").launch(1, y).hazards == () and y[0] == number


# Names that the headers use for themselves, in classes, functions and namespaces.
TYPES = "Lanes Stride Index Row Rows Place Operand QueueState EventPipes ToNz Saturation Loop Loops Room RowShape Whole"
FUNCTIONS = (
    "sum product difference quotient larger smaller flushed binary unary cast copy duplicate legal apart then refused"
)
NAMESPACES = "types cube atomic copying detail impl internal"


def test_a_kernel_has_its_own_names(tmp_path: Path) -> None:
    kernel = "using namespace AscendC;\n"
    kernel += "".join(f"struct {name} {{ int32_t value = 1; }};\n" for name in TYPES.split())
    kernel += "".join(f"template <class T> T {name}(T a, T b) {{ return a + b; }}\n" for name in FUNCTIONS.split())
    kernel += "".join(f"namespace {name} {{ constexpr int32_t value = 1; }}\n" for name in NAMESPACES.split())
    used = [f"{name}().value" for name in TYPES.split()] + [f"{name}::value" for name in NAMESPACES.split()]
    used += [f"{name}(0, 1)" for name in FUNCTIONS.split()]
    path = tmp_path / "names.cpp"
    path.write_text(
        f'#include "kernel_operator.h"\n{kernel}'
        'extern "C" __global__ __aicore__ void names(GM_ADDR y) {\n'
        "    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);\n    GlobalTensor<int32_t> out;\n"
        f"    out.SetGlobalBuffer((__gm__ int32_t*)y);\n    out.SetValue(0, {' + '.join(used)});\n"
        "    DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE>(out);\n}\n"
    )
    for soc in ("a3", "950pr"):
        y = np.zeros(16, np.int32)
        assert emulator.build(path, entry="names", soc=soc).launch(1, y).hazards == () and y[0] == len(used)


def test_an_error_within_the_headers_names_the_kernels_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.cpp"
    path.write_text(
        '#include "kernel_operator.h"\nusing namespace AscendC;\n'
        'extern "C" __global__ __aicore__ void wrong(GM_ADDR x) {\n    LocalTensor<double> a;\n    Add(a, a, a, 8);\n'
        "    LocalTensor<float> b;\n    Add(b, b);\n    Exp(a, a, 8);\n}\n"
    )
    with pytest.raises(emulator.KernelBuildError) as error:
        emulator.build(path, entry="wrong")
    lines = [line.strip() for line in str(error.value).splitlines()[1:]]
    ours = [number for number, line in enumerate(lines) if str(builder.INCLUDE) in line]
    assert lines[0].startswith(f"{path}:7:") and "no matching function" in lines[0]
    assert lines[1].startswith("there is: ") and "AscendC::Add(const LocalTensor<" in lines[1]
    assert lines[ours[0] - 1].startswith(f"{path}:5:") and "Add: dav-2201 does not have it" in lines[ours[0]]
    assert lines[ours[2] - 1].startswith(f"{path}:8:") and "Exp: dav-2201 does not have it" in lines[ours[2]]


def test_what_does_not_build(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a file"):
        emulator.build(tmp_path / "none.cpp", entry="none")
    path = tmp_path / "broken.cpp"
    path.write_text(
        '#include "kernel_operator.h"\n'
        'extern "C" __global__ __aicore__ void broken(GM_ADDR x) { AscendC::NoSuchCall(x); }\n'
    )
    with pytest.raises(emulator.KernelBuildError, match="NoSuchCall"):
        emulator.build(path, entry="broken")
    path.write_text('#include "kernel_operator.h"\nextern "C" __global__ __aicore__ void other(GM_ADDR x) {}\n')
    with pytest.raises(emulator.KernelBuildError, match="broken.cpp has no kernel broken: entry is the name of"):
        emulator.build(path, entry="broken")


def test_faults_outside_of_kernels_go_where_they_went(tmp_path: Path) -> None:
    """The handler of a launch is gone after it: a fault of the process itself still ends it, by its own handler."""
    script = (
        "import ctypes, faulthandler, sys, numpy as np\n"
        "from ascend_k3.ops import emulator\n"
        f"k = emulator.build({str(ROOT / 'tests/ops/emulator/kernels/hazards.cpp')!r}, entry='hazards')\n"
        "faulthandler.enable()\n"
        "tiles = [np.zeros(512, np.float32), np.zeros(256, np.float32), np.zeros(256, np.float32)]\n"
        "print(k.launch(1, *tiles, int(sys.argv[1]), 0, workspace=1024).hazards[0].kind, flush=True)\n"
        "ctypes.string_at(0)\n"
    )
    names = (
        (ROOT / "tests/ops/emulator/kernels/hazards.cpp").read_text().split("enum Op")[1].split("}")[0].split("{")[1]
    )
    number = [name.strip() for name in names.split(",")].index("raw_pointer_null")
    done = subprocess.run([sys.executable, "-c", script, str(number)], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "raw_pointer\n"
    assert done.returncode == -11 and "Segmentation fault" in done.stderr
