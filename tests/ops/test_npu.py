"""The side of the kernels that needs an NPU, as far as a CPU can check it. Not run on hardware.

The library that CANN builds is replaced by one that this test compiles: it has the same symbols and writes down the
arguments of a launch.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ascend_k3.ops import npu
from ascend_k3.ops.emulator.compiler import compiler
from ascend_k3.ops.errors import BackendError
from ascend_k3.ops.kernels import KernelLaunch
from ascend_k3.ops.npu.sources import launches, write_sources
from ascend_k3.ops.rms_norm.kernel.launch import RMS_NORM
from ascend_k3.ops.soc import NAMES

STREAM = 0x1234
RECORDER = """
#include <cstdint>
extern "C" {
uint64_t seen[8];
uint32_t aclrtlaunch_rms_norm_float(uint32_t blocks, void* stream, void* x, void* w, void* y, void* work, void* tile) {
    void* all[] = {stream, x, w, y, work, tile};
    seen[0] = blocks;
    for (int i = 0; i < 6; ++i) seen[i + 1] = reinterpret_cast<uint64_t>(all[i]);
    seen[7] = *reinterpret_cast<int64_t*>(tile);  // the first field, while the tensor is alive
    return 0;
}
uint32_t aclrtlaunch_rms_norm_half(uint32_t, void*, void*, void*, void*, void*, void*) { return 507; }
}
"""


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "recorder.cpp").write_text(RECORDER)
    built = tmp_path / "librecorder.so"
    subprocess.run([compiler()[0], "-shared", "-fPIC", "-o", built, tmp_path / "recorder.cpp"], check=True)
    monkeypatch.setenv("ASCEND_K3_NPU_LIBRARY", str(built))
    monkeypatch.setenv("ASCEND_K3_SOC", "a3")
    stream = SimpleNamespace(npu_stream=STREAM)
    monkeypatch.setattr(torch, "npu", SimpleNamespace(current_stream=lambda device: stream), raising=False)
    npu.library.cache_clear()
    yield built
    npu.library.cache_clear()


def launch(dtype: str = "float") -> list[torch.Tensor]:
    tensors = [torch.ones(100, 8), torch.ones(8), torch.empty(100, 8)]
    npu.launch_on_device(RMS_NORM, tensors, sizes=(100, 8, 4, 2), numbers=(1e-5,), defines={"DTYPE": dtype})
    return tensors


def test_a_launch_passes_stream_tensors_workspace_and_tiling_in_the_order_of_the_kernel(recorder: Path) -> None:
    tensors = launch()
    blocks, stream, *addresses, rows = (ctypes.c_uint64 * 8).in_dll(npu.library(), "seen")
    assert (blocks, stream, rows) == (34, STREAM, 100)  # 100 rows on 48 vector cores: 3 a core
    assert addresses[:3] == [tensor.data_ptr() for tensor in tensors]
    assert all(addresses)


def test_a_launch_that_the_runtime_refuses(recorder: Path) -> None:
    with pytest.raises(BackendError, match=r"rms_norm: the launch on cpu was refused with status 507"):
        launch("half")


def test_a_library_without_the_kernel(recorder: Path) -> None:
    with pytest.raises(BackendError, match=r"librecorder.so has no kernel rms_norm_bfloat16_t; build it again"):
        launch("bfloat16_t")


def test_the_soc_has_to_be_named(recorder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASCEND_K3_SOC")
    with pytest.raises(BackendError, match=r"ASCEND_K3_SOC is not set; kernels on npu tensors need it: a2, a3, 950pr"):
        launch()
    for name in NAMES:
        monkeypatch.setenv("ASCEND_K3_SOC", name)
        assert npu.device_soc().name == name


def test_without_a_library_the_refusal_says_how_to_build_it(recorder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_K3_NPU_LIBRARY", str(recorder.with_name("missing.so")))
    with pytest.raises(BackendError, match=r"no kernels for npu tensors at .*missing.so: build them .*cmake -S "):
        npu.library()
    broken = recorder.with_name("broken.so")
    broken.write_bytes(b"not a library")
    monkeypatch.setenv("ASCEND_K3_NPU_LIBRARY", str(broken))
    with pytest.raises(BackendError, match=r"broken.so cannot be loaded: "):
        npu.library()


def entries() -> list[tuple[KernelLaunch, str]]:
    return [(one, npu.symbol(one.entry, defines)) for one in launches() for defines in one.variants]


def test_every_variant_of_every_entry_point_is_built_once(tmp_path: Path) -> None:
    written = write_sources(tmp_path / "sources")
    assert sorted(path.stem for path in written) == sorted({name for _, name in entries()})
    assert len(written) == len(entries())
    text = (tmp_path / "sources" / "rms_norm_bfloat16_t.cpp").read_text().splitlines()
    assert text == [
        "#define DTYPE bfloat16_t",
        "#define rms_norm rms_norm_bfloat16_t",
        f'#include "{RMS_NORM.folder / RMS_NORM.source}"',
    ]


@pytest.mark.parametrize(("one", "name"), entries(), ids=[name for _, name in entries()])
def test_a_file_for_the_device_defines_its_entry_point(one: KernelLaunch, name: str, tmp_path: Path) -> None:
    """Preprocessed with the emulator's headers left out: the renaming macro must reach the definition."""
    (tmp_path / "kernel_operator.h").write_text("")
    path = next(file for file in write_sources(tmp_path / "sources") if file.stem == name)
    include = Path(npu.__file__).parent.parent / "include"
    command = [compiler()[0], "-E", "-P", "-D__NPU_ARCH__=2201", f"-I{tmp_path}", f"-I{include}", path]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"void {name}(" in " ".join(text.split())


def test_the_list_of_files_is_what_cmake_reads(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "ascend_k3.ops.npu.sources"]
    listed = subprocess.run([*command, tmp_path / "out"], capture_output=True, text=True, check=True).stdout.split()
    assert listed and all(Path(file).is_file() for file in listed)
    usage = subprocess.run(command, capture_output=True, text=True)
    assert usage.returncode == 1 and "usage: python -m ascend_k3.ops.npu.sources FOLDER" in usage.stderr


def test_cmake_refuses_without_the_name_of_the_npu() -> None:
    """cmake itself is no requirement of this project: its file is read."""
    text = (Path(npu.__file__).parent / "CMakeLists.txt").read_text()
    assert "ascend_k3.ops.npu.sources" in text and "-DSOC_VERSION=" in text
