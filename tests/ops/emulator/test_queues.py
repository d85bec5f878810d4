"""TPipe, TQue, TQueBind, TBuf and LocalMemAllocator.

Sentences are of the pages of TQue (introduction, AllocTensor, EnQue, DeQue, FreeTensor, FreeAllEvent), TPipe
(InitBuffer, Reset, Destroy) and LocalMemAllocator. What queues do wrong is in test_hazards.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascend_k3.ops import emulator

CORES, PART = 3, 64 * 6
SOCS = ("a3", "950pr")
# "n EnQue one behind the other need a depth of n" (preload), "in place: depth 0", TQueBind "binds VECIN and VECOUT".
QUEUES = ("queue_pipeline", "queue_preload", "queue_in_place", "queue_through", "static_tensors")


def run(source: Any, soc: str, name: str, fixed: int = 1, **options: Any) -> tuple[Any, Any, emulator.Report]:
    sync = source("sync.cpp")
    x = np.random.default_rng(1).standard_normal(CORES * PART).astype(np.float32)
    y = np.zeros_like(x)
    flags = np.zeros(CORES * 16, np.int32)
    report = sync.build(soc).launch(CORES, x, y, flags, sync.opcodes[name], fixed, outputs=[1], workspace=64, **options)
    return x, y, report


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("name", QUEUES)
def test_queue_orders_the_pipes(source: Any, soc: str, name: str) -> None:
    for seed in (None, *range(20)):
        x, y, report = run(source, soc, name, seed=seed)
        assert report.hazards == (), (seed, [str(hazard) for hazard in report.hazards])
        assert np.array_equal(y, 2 * x)


def test_tensor_used_without_deque_is_not_ordered(source: Any) -> None:
    """ "xLocal is not taken with DeQue, so MTE2_V is not inserted and the sample fails" (second counter example)."""
    _, _, report = run(source, "a3", "queue_pipeline", fixed=0)
    assert {hazard.kind for hazard in report.hazards} == {"race", "use_after_free"}
    assert any("HardEvent::MTE2_V" in hazard.message for hazard in report.hazards)
    assert {hazard.location.rsplit(":")[-1] for hazard in report.hazards} == {
        str(source("sync.cpp").lines["queue_pipeline"])
    }


def test_free_all_event_makes_room_for_more_queues(source: Any) -> None:
    """ "FreeAllEvent releases the events of the queue, and further queues can be made": nine buffers, eight ids."""
    x, y, report = run(source, "a3", "queue_free_all")
    assert report.hazards == () and np.array_equal(y, 2 * x)
    _, _, report = run(source, "a3", "queue_free_all", fixed=0)
    assert [hazard.kind for hazard in report.hazards] == ["event_id"]
    assert "the 8 event ids of HardEvent::V_MTE2 are all taken" in report.hazards[0].message


@pytest.mark.parametrize("name", ["buffers_reset", "two_pipes"])
def test_reset_and_destroy_give_the_memory_again(source: Any, name: str) -> None:
    """Reset does not wait for the pipes; Destroy does, DestroyWithoutPipeAll "has no PIPE_ALL in it"."""
    for seed in (None, *range(10)):
        x, y, report = run(source, "a3", name, seed=seed)
        assert report.hazards == () and np.array_equal(y, 2 * x)
        assert {hazard.kind for hazard in run(source, "a3", name, fixed=0, seed=seed)[2].hazards} == {"race"}


def compile_error(tmp_path: Path, body: str) -> str:
    kernel = tmp_path / "refused.cpp"
    kernel.write_text(
        '#include "kernel_operator.h"\nusing namespace AscendC;\n'
        'extern "C" __global__ __aicore__ void refused(GM_ADDR x) {\n'
        "    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);\n    TPipe pipe;\n"
        f"{body}\n}}\n"
    )
    with pytest.raises(emulator.KernelBuildError) as error:
        emulator.build(kernel, entry="refused")
    return str(error.value)


def test_in_place_calls_need_depth_0(tmp_path: Path) -> None:
    """ "The in-place interface needs a depth of 0, the other one a depth that is not 0." """
    text = compile_error(
        tmp_path,
        "    TQue<TPosition::VECIN, 1> one; TQue<TPosition::VECIN, 0> none; LocalTensor<float> a;\n"
        "    one.AllocTensor(a); one.DeQue(a); none.AllocTensor<float>(); none.DeQue<float>();",
    )
    assert "AllocTensor(tensor): only a queue of depth 0 works in place" in text
    assert "DeQue(tensor): only a queue of depth 0 works in place" in text
    assert "take AllocTensor(tensor)" in text and "take DeQue(tensor)" in text


def test_questions_and_sizes(tmp_path: Path) -> None:
    """VacantInQue, HasTensorInQue, GetTensorCountInQue, HasIdleBuffer as their examples; "len is rounded up to 32"."""
    kernel = tmp_path / "questions.cpp"
    kernel.write_text(
        """
#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void questions(GM_ADDR out) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GlobalTensor<int32_t> y;
    y.SetGlobalBuffer((__gm__ int32_t*)out);
    TPipe pipe;
    TQue<TPosition::VECOUT, 2> queue;
    TBuf<TPosition::VECCALC> buffer;
    pipe.InitBuffer(queue, 2, 100);
    pipe.InitBuffer(buffer, 1024);
    int n = 0;
    const auto say = [&](int64_t value) { y.SetValue(n++, value); };
    say(queue.VacantInQue()), say(queue.HasTensorInQue()), say(queue.GetTensorCountInQue()), say(queue.HasIdleBuffer());
    LocalTensor<float> a = queue.AllocTensor<float>(), b = queue.AllocTensor<float>();
    say(queue.HasIdleBuffer());
    queue.EnQue(a);
    say(queue.VacantInQue()), say(queue.HasTensorInQue());
    queue.EnQue(b);
    say(queue.VacantInQue()), say(queue.GetTensorCountInQue());
    a = queue.DeQue<float>(), b = queue.DeQue<float>();
    say(a.GetSize()), say(a.GetLength());
    say((int64_t)b.GetPhyAddr() - (int64_t)a.GetPhyAddr());
    queue.FreeTensor(a), queue.FreeTensor(b);
    LocalTensor<int32_t> whole = buffer.Get<int32_t>(), some = buffer.Get<int32_t>(128);
    LocalTensor<int32_t> later = buffer.GetWithOffset<int32_t>(128, 64);
    say(whole.GetSize()), say(some.GetSize()), say((int64_t)later.GetPhyAddr() - (int64_t)whole.GetPhyAddr());
    LocalMemAllocator<Hardware::UB> memory;
    say(memory.GetCurAddr());
    memory.Alloc<float, 1024>();
    say(memory.GetCurAddr());
    say(GetTPipePtr() == &pipe);
    DataCacheCleanAndInvalid<int32_t, CacheLine::ENTIRE_DATA_CACHE>(y);
}
"""
    )
    y = np.zeros(32, np.int32)
    report = emulator.build(kernel, entry="questions").launch(1, y)
    assert report.hazards == ()
    assert y[:19].tolist() == [1, 0, 0, 1, 0, 1, 1, 0, 2, 32, 128, 128, 256, 128, 64, 0, 4096, 1, 0]
