"""TBufPool. Sentences are of the pages TBufPool (introduction, constructor, InitBufPool, InitBuffer, Reset)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascend_k3.ops import emulator

N = 512
SOCS = ("a3", "950pr")
STAGES = {"stages": 2, "nested": 2, "many_times": 8}
MISTAKES = {
    "by_hand": ("race", "HardEvent::MTE3_MTE2"),
    "overflow": ("capacity", "the pool overflows, its buffers so far need 4128 bytes and it has 4096"),
    "too_many": ("capacity", "the pool has 5 buffers now; its bufIDSize is 4"),
    "share_larger": ("capacity", "the pool takes 2080 bytes and the one that it shares has 2048"),
    "not_begun": ("queue", "the pool has no memory; TPipe::InitBufPool"),
    "other_pipe": ("queue", "the pool has no memory; TPipe::InitBufPool"),
    "not_freed": ("queue", "FreeTensor is missing"),
}


def run(source: Any, soc: str, name: str, fixed: int = 1, **options: Any) -> tuple[Any, Any, emulator.Report]:
    pools = source("pools.cpp")
    x = np.random.default_rng(3).standard_normal(8 * N).astype(np.float32)
    y = np.zeros_like(x)
    return x, y, pools.build(soc).launch(1, x, y, pools.opcodes[name], fixed, **options)


def test_all_cases_are_run(source: Any) -> None:
    assert set(source("pools.cpp").opcodes) == STAGES.keys() | MISTAKES.keys()


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("name", STAGES)
def test_stages_use_the_same_memory(source: Any, soc: str, name: str) -> None:
    """ "A pool that shares has the same start"; "Reset ends what the pool has under way; its buffers are still there";
    without it the stages meet in the memory that they share."""
    for seed in (None, *range(10)):
        x, y, report = run(source, soc, name, seed=seed)
        assert report.hazards == (), (seed, [str(hazard) for hazard in report.hazards])
        count = STAGES[name] * N
        assert np.array_equal(y[:count], 2 * x[:count])
        broken = run(source, soc, name, 0, seed=seed)[2].hazards
        assert {hazard.kind for hazard in broken} == {"race"}, (seed, [str(hazard) for hazard in broken])


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(source: Any, name: str) -> None:
    """ "len is at most that of the pool that is shared"; "4 buffers by default"; "pools come from TPipe::InitBufPool or
    TBufPool::InitBufPool"; "synchronization by hand is not looked after when pools change"."""
    kind, said = MISTAKES[name]
    hazards = run(source, "a3", name, 0)[2].hazards
    assert [hazard.kind for hazard in hazards] == [kind], [str(hazard) for hazard in hazards]
    assert said in hazards[0].message and hazards[0].location.endswith(f":{source('pools.cpp').lines[name]}")
    assert run(source, "a3", name)[2].hazards == ()


def test_what_does_not_compile(tmp_path: Path) -> None:
    """ "bufIDSize is at most 16"; "pos is VECIN, VECOUT, VECCALC, A1, B1, C1"; "the memory of both is the same"; a pool
    that shares asks for no more buffers than the other one has."""
    path = tmp_path / "pool.cpp"
    cases = {
        "TBufPool<TPosition::VECIN, 17> b; pipe.InitBufPool(b, 32);": "bufIDSize is at most 16",
        "TBufPool<TPosition::CO1> b; pipe.InitBufPool(b, 32);": "pos is VECIN, VECOUT, VECCALC, A1, B1 or C1",
        "TBufPool<TPosition::A1> b; a.InitBufPool(b, 32);": "both pools are of one memory",
        "TBufPool<TPosition::VECIN, 5> b; a.InitBufPool(b, 32, a);": "no more buffers than the other",
        "TBuf<TPosition::A1> b; a.InitBuffer(b, 32);": "the buffer is not in the memory of the pool",
    }
    for body, said in cases.items():
        path.write_text(
            '#include "kernel_operator.h"\nusing namespace AscendC;\n'
            'extern "C" __global__ __aicore__ void pool(GM_ADDR x) {\n'
            f"    TPipe pipe;\n    TBufPool<TPosition::VECIN> a;\n    {body}\n}}\n"
        )
        with pytest.raises(emulator.KernelBuildError, match=said):
            emulator.build(path, entry="pool")
