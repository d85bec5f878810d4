"""Paths and forms that dav-2201 has and dav-3510 has not, and calls of one SoC that the other refuses to compile.

Sentences are of the sections "supported products" of the pages DataCopy (L1 to GM), LoadData, SetLoadDataBoundary,
Mmad, PipeBarrier, SyncAll.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascend_k3.ops import emulator

CORES, N = 4, 64


def run(source: Any, soc: str, name: str) -> tuple[Any, Any, emulator.Report]:
    forms = source("soc_forms.cpp")
    x, y = np.arange(1024).astype(np.float16), np.zeros(1024, np.float16)
    return x, y, forms.build(soc).launch(1, x, y, forms.opcodes[name])


def test_l1_to_global_memory(source: Any) -> None:
    """Atlas A2 and A3: "continuously", and in blocks of 32 bytes with gaps; "the address is of 1 byte"."""
    x, y, report = run(source, "a3", "l1_out_odd")
    assert report.hazards == () and np.array_equal(y.view(np.uint8)[3:1027], x[:512].view(np.uint8))
    x, y, report = run(source, "a3", "l1_out")
    assert report.hazards == () and np.array_equal(y[:512], x[:512]) and not y[512:].any()
    assert report.counters.paths["L1->GM"] == 1024
    x, y, report = run(source, "a3", "l1_out_blocks")
    want = np.zeros(1024, np.float16)
    for row in range(3):
        want[row * 96 :][:32] = x[row * 48 :][:32]
    assert report.hazards == () and np.array_equal(y, want)


REMOVED = {
    "l1_out": ("wrong_core", "dav-3510 has no path from L1"),
    "l1_out_blocks": ("wrong_core", "dav-3510 has no path from L1"),
    "to_l0": ("wrong_core", "from global memory dst has to be at A1 or B1"),
    "boundary": ("argument", "dav-3510 has no boundary"),
}


@pytest.mark.parametrize("name", REMOVED)
def test_what_dav_3510_has_no_more(source: Any, name: str) -> None:
    kind, said = REMOVED[name]
    hazards = run(source, "950pr", name)[2].hazards
    assert [hazard.kind for hazard in hazards] == [kind] and said in hazards[0].message, [str(h) for h in hazards]
    assert hazards[0].location.endswith(f":{source('soc_forms.cpp').lines[name]}")
    assert all(h.kind != kind for h in run(source, "a3", name)[2].hazards)


def test_padded_rows_come_from_ub_alone(source: Any) -> None:
    for soc in ("a3", "950pr"):
        hazards = run(source, soc, "l1_out_padded")[2].hazards
        assert [hazard.kind for hazard in hazards] == ["wrong_core"]


# Statement, SoCs that refuse it, what is said.
REFUSED = (
    ("PipeBarrier<PIPE_S>();", ("a3", "950pr"), "the scalar pipe is in order by itself"),
    ("CrossCoreSetFlag<3, PIPE_MTE2>(0);", ("a3", "950pr"), "modes are 0, 1 and 2, and 4 on dav-3510"),
    ("CrossCoreSetFlag<0, PIPE_ALL>(0);", ("a3", "950pr"), "name the pipe whose work has to be complete"),
    ("SyncAll<true, tell>();", ("a3",), "SyncAll"),
    ("SyncAll<true, vector>();", ("950pr",), "its config takes PIPE_MTE2, PIPE_MTE3 and PIPE_ALL"),
    ("Mmad(c, a, b, MmadParams(16, 16, 64, 0, false, true));", ("950pr",), "Mmad: this combination of element types"),
    ("Interleave(u, u, u, u, 8);", ("a3",), "Interleave"),
    ("Scatter(u, u, o, 0, 8);", ("a3",), "Scatter"),
)


def test_what_does_not_compile(tmp_path: Path) -> None:
    path = tmp_path / "one.cpp"
    for statement, socs, said in REFUSED:
        path.write_text(
            '#include "kernel_operator.h"\nusing namespace AscendC;\n'
            "constexpr SyncAllConfig tell = {PIPE_MTE3, PIPE_MTE2}, vector = {PIPE_V, PIPE_ALL};\n"
            'extern "C" __global__ __aicore__ void one(GM_ADDR x) {\n'
            "    LocalTensor<int4b_t> a(TPosition::A2, 0, 1024), b(TPosition::B2, 0, 1024);\n"
            "    LocalTensor<int32_t> c(TPosition::CO1, 0, 256);\n"
            "    LocalTensor<float> u;\n    LocalTensor<uint32_t> o;\n"
            f"    {statement}\n}}\n"
        )
        for soc in socs:
            with pytest.raises(emulator.KernelBuildError, match=said):
                emulator.build(path, entry="one", soc=soc)


def test_sync_all_between_two_pipes(tmp_path: Path) -> None:
    """ "triggerPipe sends, waitPipe waits": the copies out of all cores before the copies in, and nothing else."""
    path = tmp_path / "ring.cpp"
    path.write_text(
        """
#include "kernel_operator.h"
using namespace AscendC;
constexpr SyncAllConfig tell = {PIPE_MTE3, PIPE_MTE2}, all = {PIPE_MTE3, PIPE_ALL};
constexpr SyncAllConfig other = {PIPE_MTE2, PIPE_MTE2}, late = {PIPE_ALL, PIPE_MTE3};
extern "C" __global__ __aicore__ void ring(GM_ADDR x_address, GM_ADDR y_address, GM_ADDR w_address, int32_t which) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
    GlobalTensor<float> x, y, w;
    x.SetGlobalBuffer((__gm__ float*)x_address);
    y.SetGlobalBuffer((__gm__ float*)y_address);
    w.SetGlobalBuffer((__gm__ float*)w_address);
    const int64_t me = GetBlockIdx(), next = (me + 1) % GetBlockNum();
    LocalTensor<float> a(TPosition::VECIN, 0, 64), b(TPosition::VECIN, 1024, 64);
    DataCopy(a, x[me * 64], 64);
    SetFlag<HardEvent::MTE2_MTE3>(0);
    WaitFlag<HardEvent::MTE2_MTE3>(0);
    DataCopy(w[me * 64], a, 64);
    if (which == 0) SyncAll<true, tell>();
    if (which == 1) SyncAll<true, all>();
    if (which == 2) SyncAll<true, other>();
    if (which == 3) SyncAll<true, late>();
    DataCopy(b, w[next * 64], 64);
    SetFlag<HardEvent::MTE2_MTE3>(0);
    WaitFlag<HardEvent::MTE2_MTE3>(0);
    DataCopy(y[me * 64], b, 64);
}
"""
    )
    kernel = emulator.build(path, entry="ring", soc="950pr")
    x = np.random.default_rng(5).standard_normal((CORES, N)).astype(np.float32)
    for seed in (None, *range(10)):
        for which in range(4):
            y, w = np.zeros_like(x), np.zeros_like(x)
            hazards = kernel.launch(CORES, x, y, w, which, seed=seed).hazards
            if which < 2:
                assert hazards == () and np.array_equal(y, np.roll(x, -1, 0)), (which, seed)
            else:
                assert {hazard.kind for hazard in hazards} == {"race"}, (which, seed)
