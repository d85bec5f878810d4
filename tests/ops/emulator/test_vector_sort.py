"""Sort32, MrgSort, Sort, Concat and Extract against numpy's stable sort, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ascend_k3.ops import emulator
from ascend_k3.ops.emulator.report import Report
from tests.ops.emulator.vector_oracle import REGION, STORED, Array, Call, check_written, kernel, named

SOCS = ("a3", "950pr")
TYPES = ("half", "float")
SORT32, MERGE, MERGE_AND_COUNT, ADVANCED_MERGE, FULL_SORT, RUN_SORT, BOTH, WORKING_MEMORY, OVERLAP, RACE = range(10)
SUSPEND = 1
Lengths = tuple[int, int, int, int]


def untouched() -> NDArray[np.uint8]:
    return np.random.default_rng(97).integers(0, 256, REGION, np.uint8)


def launch(soc: str, call: Call, *regions: Array, seed: int | None = None) -> tuple[Array, Report]:
    given = [np.ascontiguousarray(region).view(np.uint8) for region in regions]
    out = np.zeros(REGION, np.uint8)
    report = kernel("vector_sort", soc).launch(1, *given, out, call.packed(), outputs=(3,), seed=seed)
    return out, report


def run(soc: str, call: Call, lengths: Lengths, *regions: Array, seed: int | None = None) -> tuple[Array, Report]:
    out = np.zeros(REGION, np.uint8)
    packed = replace(call, repeat=lengths[:3]).packed()[:-4] + lengths[3].to_bytes(4, "little")
    given = [np.ascontiguousarray(region).view(np.uint8) for region in regions]
    report = kernel("vector_sort", soc).launch(1, *given, out, packed, outputs=(3,), seed=seed)
    return out, report


def scores(type: str, seed: int) -> Array:
    """Many of them equal, zeros of both signs, infinities: what fills the places that hold no score."""
    random = np.random.default_rng(seed)
    count = REGION // 2 // np.dtype(STORED[type]).itemsize
    x = (random.integers(-40, 40, count) / 8).astype(STORED[type])
    x[random.random(count) < 0.2] = -np.inf
    x[random.random(count) < 0.1] = -0.0
    return x


def pairs_of(score: Array, index: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Page Sort32: the score in the low bytes, 2 bytes reserved behind a half, the index in the high 4 bytes."""
    out = np.zeros((len(score), 8), np.uint8)
    out[:, : score.itemsize] = score.view(np.uint8).reshape(len(score), -1)
    out[:, 4:] = index.view(np.uint8).reshape(-1, 4)
    return out.ravel()


def falling(score: Array) -> NDArray[np.intp]:
    """In falling order; of equal scores the first stays first."""
    return np.argsort(-score.astype(np.float64), kind="stable")


def inputs(type: str, seed: int) -> tuple[Array, NDArray[np.uint32], NDArray[np.uint8]]:
    """Scores, indices, and region 1 with both."""
    x = scores(type, seed)
    index = np.random.default_rng(seed).integers(0, 2**32, REGION // 8, np.uint32)
    region = np.concatenate([x.view(np.uint8), index.view(np.uint8)])
    x = x[: REGION // 8]
    return x, index[: len(x)], region


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", TYPES)
def test_sort32(soc: str, type: str) -> None:
    # Page Sort32: every 32 scores in falling order with their indices; score[i] == score[j] and i > j: j comes first.
    x, index, region = inputs(type, 1)
    call = Call(operation=SORT32, type=TYPES.index(type), repeats=17)
    found, report = launch(soc, call, untouched(), region, untouched())
    assert report.hazards == (), report.hazards
    expected = untouched()
    for first in range(0, 17 * 32, 32):
        order = first + falling(x[first : first + 32])
        expected[first * 8 :][:256] = pairs_of(x[order], index[order])
    np.testing.assert_array_equal(found, expected)


def queues(type: str, lengths: Lengths, seed: int, repeats: int = 1) -> tuple[Array, NDArray[np.uint32]]:
    """Sorted queues one behind the other, `repeats` times; the index tells a pair's place."""
    x = scores(type, seed)[: sum(lengths) * repeats]
    out = []
    first = 0
    for length in lengths * repeats:
        out.append(x[first + falling(x[first : first + length])])
        first += length
    return np.concatenate(out), np.arange(len(x), dtype=np.uint32)


def taken_first(x: Array, lengths: Lengths) -> NDArray[np.int64]:
    """How many are taken of each queue until one of them is used up."""
    queue = np.repeat(np.arange(4), lengths)[falling(x)]
    taken = np.cumsum(queue[:, None] == np.arange(4), axis=0)
    return taken[np.flatnonzero((taken == lengths).any(1))[0]]


def with_pairs(x: Array, index: NDArray[np.uint32]) -> NDArray[np.uint8]:
    region = untouched()
    region[: 8 * len(x)] = pairs_of(x, index)
    return region


MERGES: list[tuple[int, Lengths]] = [
    (3, (40, 25, 0, 0)),
    (7, (1, 77, 30, 0)),
    (15, (32, 32, 32, 32)),
    (15, (128, 3, 0, 200)),
    (15, (5, 6, 7, 8)),
]


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize(("valid", "lengths"), MERGES)
@pytest.mark.parametrize("operation", [MERGE, ADVANCED_MERGE])
def test_mrgsort(soc: str, type: str, valid: int, lengths: Lengths, operation: int) -> None:
    # Page MrgSort: one queue in falling order of up to four; of equal scores the one that lies further in front.
    x, index = queues(type, lengths, 2)
    call = Call(operation=operation, type=TYPES.index(type), mode=valid, place=2)
    out, report = run(soc, call, lengths, with_pairs(x, index), untouched(), untouched())
    assert report.hazards == (), report.hazards
    order = falling(x)
    np.testing.assert_array_equal(out[: 8 * len(x)], pairs_of(x[order], index[order]))
    if operation == ADVANCED_MERGE:  # sortedNum is of the mode that stops early
        assert out.view(np.uint16)[-4:].tolist() == [9, 9, 9, 9]


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", TYPES)
def test_mrgsort_repeats(soc: str, type: str) -> None:
    # Page MrgSort, repeatTimes: four queues of one length one behind the other; source and result move on by all four.
    lengths = (16, 16, 16, 16)
    x, index = queues(type, lengths, 3, repeats=5)
    found, report = run(
        soc,
        Call(operation=MERGE, type=TYPES.index(type), mode=15, place=2, repeats=5),
        lengths,
        with_pairs(x, index),
        untouched(),
        untouched(),
    )
    assert report.hazards == (), report.hazards
    expected = untouched()
    for first in range(0, len(x), 64):
        order = first + falling(x[first : first + 64])
        expected[8 * first :][:512] = pairs_of(x[order], index[order])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("operation", [MERGE_AND_COUNT, ADVANCED_MERGE])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_mrgsort_that_stops_when_a_queue_is_used_up(soc: str, operation: int, seed: int | None) -> None:
    # Pages MrgSort and GetMrgSortResult: ifExhaustedSuspension; how many pairs were taken of each queue.
    lengths = (30, 12, 25, 40)
    x, index = queues("float", lengths, 4)
    order, taken = falling(x), taken_first(x, lengths)
    steps = int(taken.sum())
    call = Call(operation=operation, type=1, mode=15, form=SUSPEND, place=2)
    found, report = run(soc, call, lengths, with_pairs(x, index), untouched(), untouched(), seed=seed)
    assert report.hazards == (), report.hazards
    assert steps < len(x)
    expected = untouched()
    expected[: 8 * steps] = pairs_of(x[order[:steps]], index[order[:steps]])
    expected.view(np.uint16)[-4:] = taken
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("form", [0, SUSPEND])
def test_what_mrgsort_writes_is_what_it_is_said_to(form: int) -> None:
    # Into memory that nothing has written: what is behind the pairs that were merged is reported when it is read.
    lengths = (30, 12, 25, 40)
    x, index = queues("float", lengths, 4)
    count = int(taken_first(x, lengths).sum()) if form == SUSPEND else len(x)
    packed = Call(operation=MERGE, type=1, mode=15, form=form, block=(1, 1, 1), repeat=lengths[:3]).packed()
    packed = packed[:68] + (1).to_bytes(4, "little") + packed[72:-4] + lengths[3].to_bytes(4, "little")
    out = np.zeros(REGION, np.uint8)
    report = kernel("vector_sort", "a3").launch(1, with_pairs(x, index), untouched(), untouched(), out, packed)
    [(kind, message)] = named(report.hazards)
    assert kind == "uninitialised" and f"reads bytes [{4 * REGION + 8 * count}, {5 * REGION}) of UB" in message


def test_getmrgsortresult_needs_a_merge_that_stops() -> None:
    lengths = (4, 4, 4, 4)
    x, index = queues("float", lengths, 5)
    _, report = run(
        "a3",
        Call(operation=MERGE_AND_COUNT, type=1, mode=15, place=2),
        lengths,
        with_pairs(x, index),
        untouched(),
        untouched(),
    )
    [(kind, message)] = named(report.hazards)
    assert kind == "argument" and "GetMrgSortResult" in message and "set its ifExhaustedSuspension" in message


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("repeats", [1, 4, 17, 28])
def test_concat_sort_extract(soc: str, type: str, repeats: int) -> None:
    # Pages Concat, Sort, Extract: scores and indices, sorted as a whole or every 32; 28 * 32 are the 896 experts.
    x, index, region = inputs(type, 6)
    n = 32 * repeats
    for operation in (FULL_SORT, RUN_SORT):
        call = Call(operation=operation, type=TYPES.index(type), repeats=repeats, place=2)
        found, report = launch(soc, call, untouched(), region, untouched())
        assert report.hazards == (), report.hazards
        runs = [(0, n)] if operation == FULL_SORT else [(first, first + 32) for first in range(0, n, 32)]
        order = np.concatenate([first + falling(x[first:last]) for first, last in runs])
        np.testing.assert_array_equal(found[: n * x.itemsize], x[order].view(np.uint8))
        np.testing.assert_array_equal(found[REGION // 2 :][: 4 * n].view(np.uint32), index[order])


@pytest.mark.parametrize("type", TYPES)
def test_four_runs_of_sort32_merged(type: str) -> None:
    # Page MrgSort (advanced), example: GetSortOffset is the distance of two queues in elements.
    x, index, region = inputs(type, 7)
    found, report = launch(
        "a3", Call(operation=BOTH, type=TYPES.index(type), place=2), untouched(), region, untouched()
    )
    assert report.hazards == (), report.hazards
    order = falling(x[:128])
    np.testing.assert_array_equal(found[:1024], pairs_of(x[order], index[order]))


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", TYPES)
def test_what_sort32_writes_is_what_it_is_said_to(soc: str, type: str) -> None:
    _, _, region = inputs(type, 11)
    check_written("vector_sort", soc, Call(operation=SORT32, type=TYPES.index(type), repeats=3), region)


def test_the_working_memory_of_sort_is_undefined_afterwards() -> None:
    _, _, region = inputs("float", 8)
    _, report = launch("a3", Call(operation=WORKING_MEMORY, type=1), untouched(), region, untouched())
    [(kind, message)] = named(report.hazards)
    assert kind == "uninitialised" and "Adds (src)" in message and "Sort at" in message


def test_a_missing_barrier_between_sort32_and_mrgsort_is_a_race() -> None:
    _, _, region = inputs("float", 9)
    _, report = run(
        "a3", Call(operation=RACE, type=1, mode=15, place=2), (32, 32, 32, 32), untouched(), region, untouched()
    )
    kinds = {kind for kind, _ in named(report.hazards)}
    assert kinds == {"race"} and "PipeBarrier<PIPE_V> between them is missing" in report.hazards[0].message
    _, report = run(
        "950pr", Call(operation=RACE, type=1, mode=15, place=2), (32, 32, 32, 32), untouched(), region, untouched()
    )
    assert report.hazards == ()


@pytest.mark.parametrize(
    ("call", "lengths", "kind", "text"),
    [
        (Call(operation=SORT32, repeats=256), (1, 1, 1, 1), "argument", "Sort32: repeatTime is 256"),
        (Call(operation=SORT32, repeats=65, place=2), (1, 1, 1, 1), "out_of_bounds", "Sort32 (dst)"),
        (Call(operation=SORT32, repeats=1, offset=16), (1, 1, 1, 1), "alignment", "Sort32 (dst)"),
        (Call(operation=MERGE, mode=5, place=2), (1, 1, 1, 1), "argument", "validBit is 5; it has to be 3, 7 or 15"),
        (Call(operation=MERGE, mode=15, place=2), (1, 4096, 1, 1), "argument", "elementLengths[1] is 4096"),
        (Call(operation=MERGE, mode=3, place=2), (0, 0, 1, 1), "argument", "every queue is empty"),
        (
            Call(operation=MERGE, mode=15, place=2, form=SUSPEND),
            (1, 0, 1, 1),
            "argument",
            "elementLengths[1] is 0; a merge that stops",
        ),
        (
            Call(operation=MERGE, mode=15, place=2, repeats=2),
            (4, 4, 4, 5),
            "argument",
            "repeatTimes is 2; more than 1 needs",
        ),
        (
            Call(operation=MERGE, mode=15, place=2, repeats=2, form=SUSPEND),
            (4, 4, 4, 4),
            "argument",
            "repeatTimes is 2; more than 1 needs",
        ),
        (Call(operation=OVERLAP, mode=15), (4, 4, 4, 4), "argument", "src1 and dst overlap at byte 8"),
        (Call(operation=MERGE, mode=15, place=2, offset=8), (4, 4, 4, 4), "alignment", "MrgSort (dst)"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_done(call: Call, lengths: Lengths, kind: str, text: str) -> None:
    _, _, region = inputs("float", 10)
    found, report = run("a3", replace(call, type=1), lengths, untouched(), region, untouched())
    assert [hazard.kind for hazard in report.hazards] == [kind], report.hazards
    assert text in report.hazards[0].message
    np.testing.assert_array_equal(found, untouched())


def test_integers_do_not_compile() -> None:
    # Page Sort32: half and float.
    source = Path(__file__).parent / "kernels" / "vector_sort.cpp"
    with pytest.raises(emulator.KernelBuildError, match="Sort: dav-2201 does not have it for this element type"):
        emulator.build(source, entry="vector_sort", soc="a3", defines={"REFUSED": True})
