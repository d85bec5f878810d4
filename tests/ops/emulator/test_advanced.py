"""Advanced calls with working memory: Sigmoid, SwiGLU, SoftMax, RmsNorm, Broadcast, CumSum.

Sentences are of the pages of these calls and of their host functions (GetSigmoidMaxMinTmpSize and the like). The sizes
that the host functions answer are not documented: what a call takes here is what it says when it gets less.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ascend_k3.ops import emulator
from tests.ops.emulator.vector_oracle import REGION, STORED, Array, Call, named, run
from tests.tolerances import RELATIVE_RMS, relative_rms

SOCS = ("a3", "950pr")
TYPES = ("half", "float")
SIGMOID, SWIGLU, SOFTMAX, RMS_NORM, BROADCAST, CUMSUM = range(6)
ROOM = 4096


def numbers(type: str, seed: int, scale: float = 2.0, count: int | None = None) -> Array:
    size = np.dtype(STORED[type]).itemsize
    return (np.random.default_rng(seed).normal(size=count or REGION // size) * scale).astype(STORED[type])


def close(found: Array, expected: Array) -> None:
    given, wanted = torch.from_numpy(found.copy()), torch.from_numpy(np.asarray(expected, np.float64).copy())
    assert relative_rms(given, wanted) < RELATIVE_RMS[given.dtype], relative_rms(given, wanted)


def launch(soc: str, call: Call, type: str, *sources: Array, dst: Array | None = None, **options: Any) -> Array:
    first = np.zeros(REGION // np.dtype(STORED[type]).itemsize, STORED[type]) if dst is None else dst
    found, report = run("advanced", soc, call, first, *sources, **options)
    assert report.hazards == (), named(report.hazards)
    return found


# Page Sigmoid: "whole tensor, or the first calCount elements", "working memory from the framework, or sharedTmpBuffer";
# "with more of it the call is faster".
@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize(("room", "mode"), [(512, 0), (ROOM, 1), (0, 0), (0, 1)])
def test_sigmoid(soc: str, type: str, room: int, mode: int) -> None:
    x = numbers(type, 1, 4.0)
    call = Call(operation=SIGMOID, type=TYPES.index(type), count=1000, mode=mode, offset=room)
    found = launch(soc, call, type, x)
    close(found[:1000], 1 / (1 + np.exp(-x[:1000].astype(np.float64))))
    assert not found[1000:].any()


def test_the_pages_example_of_sigmoid() -> None:
    x = np.array([-100, -50, -20, -10, -5, -1, -0.1, 0, 0.5, 1, 5, 20, 100], np.float32)
    page = [0, 0, 0, 0.0000454, 0.00669285, 0.26894142, 0.47502081, 0.5, 0.62245933, 0.73105858, 0.99330715, 1, 1]
    call = Call(operation=SIGMOID, type=1, count=x.size, offset=ROOM)
    found = launch("a3", call, "float", np.resize(x, REGION // 4))
    np.testing.assert_allclose(found[: x.size], page, rtol=1e-6, atol=5e-9)


# Page SwiGLU: src0 times Swish of src1, beta is scalarValue; its example.
@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize(("room", "mode"), [(768, 0), (ROOM, 1), (0, 0), (0, 1)])
def test_swiglu(soc: str, type: str, room: int, mode: int) -> None:
    x, gate = numbers(type, 2), numbers(type, 3)
    beta = struct.pack("<f", 1.5)
    call = Call(operation=SWIGLU, type=TYPES.index(type), count=777, mode=mode, offset=room, scalar=beta)
    a, b = x[:777].astype(np.float64), gate[:777].astype(np.float64)
    found = launch(soc, call, type, x, gate)
    close(found[:777], a * b / (1 + np.exp(-1.5 * b)))
    assert not found[777:].any()


def test_the_pages_example_of_swiglu() -> None:
    x, gate = np.linspace(-4, 4, 32, dtype=np.float32), np.full(REGION // 4, 0.5, np.float32)
    call = Call(operation=SWIGLU, type=1, count=32, offset=ROOM, scalar=struct.pack("<f", 1.0))
    found = launch("a3", call, "float", np.resize(x, REGION // 4), gate)
    np.testing.assert_allclose(
        found[[0, 1, 15, 16, 31]], [-1.2449187, -1.1646013, -0.04015867, 0.04015867, 1.2449187], 1e-6
    )


def softmax(x: Array) -> tuple[Array, Array, Array]:
    largest = x.max(-1, keepdims=True)
    exponential = np.exp(x - largest)
    total = exponential.sum(-1, keepdims=True)
    return exponential / total, total, largest


# Page SoftMax: its formula; sum and max: "the last axis is 32 bytes, all numbers of that block are the same"; "src and
# dst may be one tensor"; half with sums of float; without sum and max.
@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize(
    ("type", "mode", "room", "place"),
    [("float", 0, 0, 0), ("float", 1, 1024, 1), ("half", 0, ROOM, 0), ("half", 2, 0, 0), ("half", 1, 0, 1)],
)
@pytest.mark.parametrize(("rows", "columns"), [(5, 64), (3, 208), (2, 16)])
def test_softmax(soc: str, type: str, mode: int, room: int, place: int, rows: int, columns: int) -> None:
    x = numbers(type, 4)
    call = Call(
        operation=SOFTMAX,
        type=TYPES.index(type),
        repeats=rows,
        count=columns,
        mask=(columns, 0),
        mode=mode,
        offset=room,
        place=place,
    )
    found = launch(soc, call, type, x)
    want, total, largest = softmax(x[: rows * columns].reshape(rows, columns).astype(np.float64))
    close(found[: rows * columns].reshape(rows, columns), want)
    if mode == 1:
        return
    kind = np.float32 if mode == 2 else np.dtype(STORED[type])
    for begin, value in ((8192, total), (12288, largest)):
        blocks = found.view(np.uint8)[begin : begin + rows * 32].view(kind).reshape(rows, -1)
        close(blocks, np.broadcast_to(value, blocks.shape))
        assert not found.view(np.uint8)[begin + rows * 32 : begin + rows * 32 + 32].any()


def test_softmax_of_padded_rows() -> None:
    """oriSrcK: "the original length of the last axis"; "what was padded is overwritten in dst". Info and config."""
    x = numbers("float", 5)
    x[: 4 * 64].reshape(4, 64)[:, 40:] = 100  # part of neither max nor sum
    for mode in (0, 3):
        call = Call(operation=SOFTMAX, type=1, repeats=4, count=64, mask=(40, 0), mode=mode, offset=ROOM)
        found = launch("a3", call, "float", x)[:256].reshape(4, 64)
        close(found[:, :40], softmax(x[:256].reshape(4, 64)[:, :40].astype(np.float64))[0])
        assert (found[:, 40:] > 1).all()


# Page RmsNorm: x / sqrt(mean(x^2) + epsilon) * gamma; its example.
@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize(
    ("rows", "columns", "original", "room", "mode"), [(2, 208, 208, 0, 0), (4, 64, 56, 0, 0), (8, 128, 128, ROOM, 1)]
)
def test_rms_norm(soc: str, type: str, rows: int, columns: int, original: int, room: int, mode: int) -> None:
    x, gamma = numbers(type, 6), numbers(type, 7)
    x[: rows * columns].reshape(rows, columns)[:, original:] = 0
    epsilon = struct.pack("<f", 0.25)
    call = Call(
        operation=RMS_NORM,
        type=TYPES.index(type),
        repeats=rows,
        count=columns,
        mask=(original, 0),
        mode=mode,
        offset=room,
        scalar=epsilon,
    )
    found = launch(soc, call, type, x, gamma)[: rows * columns].reshape(rows, columns)
    wide = x[: rows * columns].reshape(rows, columns).astype(np.float64)
    mean = (wide**2).sum(-1, keepdims=True) / original
    close(found, wide / np.sqrt(mean + 0.25) * gamma[:columns].astype(np.float64))


def test_the_pages_example_of_rms_norm() -> None:
    x = np.resize(np.arange(16, dtype=np.float32), REGION // 4)
    call = Call(
        operation=RMS_NORM, type=1, repeats=2, count=16, mask=(16, 0), offset=ROOM, scalar=struct.pack("<f", 0.0)
    )
    found = launch("a3", call, "float", x, x)
    np.testing.assert_allclose(found[1:16], [0.11359233 * i * i for i in range(1, 16)], rtol=1e-6)


# Page Broadcast: "[m, 1] to [m, k], [1, k] to [m, k], 1 to n"; dav-3510: more types, up to nine axes.
@pytest.mark.parametrize(
    ("soc", "type", "kind"),
    [(s, t, i) for s in SOCS for i, t in enumerate(("half", "float", "int8_t", "uint8_t"))]
    + [("950pr", "uint16", 4), ("950pr", "int64_t", 5)],
)
def test_broadcast(soc: str, type: str, kind: int) -> None:
    x = (
        np.random.default_rng(8)
        .integers(0, 100, REGION // np.dtype(STORED.get(type, type)).itemsize)
        .astype(STORED.get(type, type))
    )
    for rows, columns, room in ((5, 32, 0), (3, 64, 256)):
        for mode, want in ((0, np.tile(x[:columns], (rows, 1))), (1, np.repeat(x[:rows, None], columns, 1))):
            call = Call(operation=BROADCAST, type=kind, repeats=rows, count=columns, mode=mode, offset=room)
            found, report = run("advanced", soc, call, np.zeros_like(x), x)
            assert report.hazards == (), named(report.hazards)
            assert np.array_equal(found[: rows * columns], want.ravel()) and not found[rows * columns :].any()
    call = Call(operation=BROADCAST, type=kind, repeats=1, count=19, mode=2, offset=32)
    found, report = run("advanced", soc, call, np.zeros_like(x), x)
    assert report.hazards == () and (found[:19] == x[0]).all() and not found[19:].any()
    if soc == "950pr":
        call = Call(operation=BROADCAST, type=kind, repeats=3, count=16, mode=3)
        found, report = run("advanced", soc, call, np.zeros_like(x), x)
        assert report.hazards == ()
        assert np.array_equal(
            found[: 3 * 3 * 16 * 2].reshape(3, 3, 16, 2), np.broadcast_to(x[:48].reshape(3, 1, 16, 1), (3, 3, 16, 2))
        )


# Page CumSum: along the last axis or down the rows, one after the other; "the implementation converts precision"
# (half); outputLastRow: the last row, or the last column; Sklansky's sums on dav-3510.
@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("mode", [0, 1, 2, 3, 4])
def test_cumsum(soc: str, type: str, mode: int) -> None:
    if soc == "a3" and mode > 2:
        return
    rows, columns = 7, 48
    x = numbers(type, 9)
    call = Call(
        operation=CUMSUM, type=TYPES.index(type), repeats=rows, count=columns, mode=mode, offset=ROOM if mode else 0
    )
    found = launch(soc, call, type, x)
    axis = 0 if mode in (0, 4) else 1
    want = x[: rows * columns].reshape(rows, columns).astype(np.float32)
    want = want.cumsum(axis, dtype=np.float32) if mode < 3 else sklansky(want, axis)
    assert np.array_equal(found[: rows * columns], want.astype(STORED[type]).ravel())
    last = found.view(np.uint8)[8192:].view(STORED[type])
    count = 0 if mode == 2 else rows if axis else columns
    assert (
        np.array_equal(last[:count], (want[:, -1] if axis else want[-1]).astype(STORED[type])[:count])
        and not last[count:].any()
    )


def sklansky(x: Array, axis: int) -> Array:
    """Figure 1 of the page: at step s each number whose bit s is set adds the one before its half."""
    out = np.moveaxis(x.copy(), axis, 0)
    step = 1
    while step < len(out):
        for i in range(len(out)):
            if i // step % 2:
                out[i] = out[i] + out[i // step * step - 1]
        step *= 2
    return np.moveaxis(out, 0, axis)


def test_any_schedule_gives_the_same() -> None:
    x = numbers("half", 10)
    for operation in (SIGMOID, SOFTMAX, RMS_NORM, CUMSUM):
        call = Call(
            operation=operation, type=0, repeats=2, count=64, mask=(64, 0), offset=ROOM, scalar=struct.pack("<f", 1.0)
        )
        first = launch("a3", call, "half", x, x)
        for seed in range(5):
            assert np.array_equal(launch("a3", call, "half", x, x, seed=seed), first)


# The sections on limits of the pages.
REFUSED = [
    (dict(operation=SIGMOID, count=64, offset=ROOM, place=1), "argument", "dstTensor and srcTensor overlap"),
    (dict(operation=SIGMOID, count=640, offset=256), "out_of_bounds", "has 256 bytes; it takes 512 at least"),
    (dict(operation=SWIGLU, count=64, offset=ROOM, place=2), "argument", "dstTensor and srcTensor1 overlap"),
    (dict(operation=SOFTMAX, repeats=2, count=36, mask=(36, 0), offset=ROOM), "alignment", "a row has 144 bytes"),
    (dict(operation=SOFTMAX, repeats=0, count=64, mask=(64, 0), offset=ROOM), "argument", "0 rows of 64"),
    (
        dict(operation=RMS_NORM, repeats=2, count=64, mask=(64, 0), offset=ROOM, place=2),
        "argument",
        "dstLocal and gammaLocal overlap",
    ),
    (
        dict(operation=RMS_NORM, repeats=2, count=64, mask=(64, 0), offset=ROOM, mode=1),
        "argument",
        "a multiple of 8 rows",
    ),
    (dict(operation=RMS_NORM, repeats=2, count=64, mask=(64, 0), offset=512), "out_of_bounds", "it takes 768 at least"),
    (dict(operation=BROADCAST, repeats=4, count=12, offset=64), "alignment", "a row has 48 bytes"),
    (dict(operation=BROADCAST, repeats=4, count=16, mode=1, place=1), "argument", "dst and src overlap"),
    (dict(operation=CUMSUM, repeats=4, count=12, offset=64), "alignment", "inner is 48 bytes"),
    (dict(operation=CUMSUM, repeats=0, count=16, offset=64), "argument", "outter is 0"),
    (dict(operation=CUMSUM, repeats=8, count=2048, offset=64), "out_of_bounds", "more than dstTensor's 12288"),
    (dict(operation=CUMSUM, repeats=4, count=16, offset=64, mask=(15, 0)), "out_of_bounds", "lastRowTensor has 15"),
]


@pytest.mark.parametrize(("fields", "kind", "said"), REFUSED)
def test_what_a_call_does_not_take(fields: dict[str, Any], kind: str, said: str) -> None:
    x, untouched = np.ones(REGION // 4, np.float32), numbers("float", 11)
    found, report = run("advanced", "a3", Call(type=1, **fields), untouched, x, x)
    assert [hazard.kind for hazard in report.hazards] == [kind], named(report.hazards)
    assert said in report.hazards[0].message
    if not fields.get("place"):
        assert np.array_equal(found, untouched)


def build(tmp_path: Path, body: str, soc: str = "a3") -> emulator.Kernel:
    path = tmp_path / "one.cpp"
    path.write_text(
        '#include "kernel_operator.h"\nusing namespace AscendC;\n'
        "constexpr SoftmaxConfig shaped = {true, 8, 64, SoftmaxMode::SOFTMAX_NORMAL};\n"
        "constexpr CumSumConfig halves = {true, false, false, CumSumAlgorithm::CUMSUM_ALGORITHM_SKLANSKY};\n"
        'extern "C" __global__ __aicore__ void one(GM_ADDR x) {\n'
        f"    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);\n{body}\n}}\n"
    )
    return emulator.build(path, entry="one", soc=soc)


def test_types_and_forms_that_a_soc_does_not_have(tmp_path: Path) -> None:
    body = """
    LocalTensor<bfloat16_t> b;  LocalTensor<int32_t> i;  LocalTensor<float> f;  LocalTensor<uint8_t> room;
    uint32_t shape[2] = {1, 1};
    """
    calls = [
        ("a3", "Sigmoid(b, b, room, 8);", "Sigmoid: types are half and float"),
        ("a3", "SwiGLU(b, b, b, 1.0f, room, 8);", "SwiGLU: types are half and float"),
        ("a3", "RmsNorm(b, b, b, room, bfloat16_t(1.0f), RmsNormTiling{});", "RmsNorm: types are half and float"),
        ("a3", "Broadcast<int32_t, 2, 1>(i, i, shape, shape, room);", "has int8_t, uint8_t, half and float"),
        ("a3", "Broadcast<float, 3, 1>(f, f, shape, shape, room);", "Broadcast: dim is 1 or 2"),
        ("a3", "CumSum<float, halves>(f, f, f, room, CumSumInfo{1, 8});", "exists on dav-3510 only"),
        ("a3", "SoftMax<float, false, false, true>(f, f, f, f, room, SoftMaxTiling{});", "NZ is not provided"),
    ]
    with pytest.raises(emulator.KernelBuildError) as error:
        build(tmp_path, body + "\n".join(call for soc, call, _ in calls if soc == "a3"))
    missing = [said for soc, _, said in calls if soc == "a3" and said not in str(error.value)]
    # The message has the first errors alone: the rest one by one.
    for said in missing:
        call = next(call for _, call, text in calls if text == said)
        with pytest.raises(emulator.KernelBuildError, match=re.escape(said)):
            build(tmp_path, body + call)
    with pytest.raises(emulator.KernelBuildError, match="dav-3510 takes the default config alone"):
        build(
            tmp_path, body + "SoftMax<float, false, false, false, shaped>(f, f, f, f, room, SoftMaxTiling{});", "950pr"
        )


def test_order_and_working_memory(tmp_path: Path) -> None:
    """A call orders what it is made of, not what comes before nor what comes behind it ("More samples": a barrier
    between two calls); what it leaves in its working memory is not defined; without a TPipe there is none to take."""
    body = """
    LocalTensor<float> a(TPosition::VECCALC, 0, 64), b(TPosition::VECCALC, 256, 64), c(TPosition::VECCALC, 8192, 64);
    LocalTensor<float> last;
    LocalTensor<uint8_t> room(TPosition::VECCALC, 4096, 512), other(TPosition::VECCALC, 6144, 512);
    Duplicate(a, 1.0f, 64);
    """
    first, second = "Sigmoid(b, a, room, 64);", "CumSum(c, last, b, other, CumSumInfo{1, 64});"
    uses = "Adds(c, c, 1.0f, 64);"
    line = body.count("\n") + 7  # of the first call

    def hazards(*statements: str) -> list[tuple[str, int]]:
        report = build(tmp_path, body + "\n".join(statements)).launch(1, np.zeros(8, np.float32))
        return [(hazard.kind, int(hazard.location.rsplit(":", 1)[1]) - line) for hazard in report.hazards]

    barrier = "PipeBarrier<PIPE_V>();"
    assert hazards(barrier, first, barrier, second, barrier, uses) == []
    assert hazards("", first, barrier, second, barrier, uses) == [("race", 1)]
    assert hazards(barrier, first, "", second, barrier, uses) == [("race", 3)]
    assert hazards(barrier, first, barrier, second, "", uses) == [("race", 5), ("race", 5)]  # src, dst
    room = "Adds(c, room.ReinterpretCast<float>(), 0.0f, 64);"
    assert hazards(barrier, second.replace("b,", "a,").replace("other", "room"), barrier, room) == [
        ("uninitialised", 3)
    ]
    assert hazards(barrier, "Sigmoid(b, a, 64);", "CumSum(c, last, a, CumSumInfo{1, 64});") == [
        ("queue", 1),
        ("queue", 2),
    ]


def test_cost_is_that_of_the_calls_it_is_made_of() -> None:
    x = numbers("float", 12)
    call = Call(operation=SIGMOID, type=1, count=1024, offset=8192)
    _, report = run("advanced", "a3", call, np.zeros_like(x), x)
    assert report.counters.vector == {
        "Duplicate": 1024,
        "Muls": 1024,
        "Exp": 1024,
        "Adds": 1024,
        "Div": 1024,
    }
    assert report.counters.repeats == 5 * 16
