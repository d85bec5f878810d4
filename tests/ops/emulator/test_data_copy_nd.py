"""DataCopy with NdDmaParams (dav-3510) against loops over its definition.

Sentences and examples are of the pages "DataCopy (GM to UB, NDDMA)" and NdDmaDci.
"""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ascend_k3.ops import emulator

ROOM = 8192
DTYPES = {1: np.int8, 2: np.float16, 4: np.float32, 8: np.int64}
Loops = dict[str, list[int]]


def run(
    source: Any, size: int, loops: Loops, mode: int = 0, value: int = 7, **options: Any
) -> tuple[Any, emulator.Report]:
    dims, dtype = len(loops["size"]), DTYPES[size]

    def five(name: str) -> list[int]:
        return (loops.get(name) or [0] * dims) + [0] * (5 - dims)

    skip_dci, fresh = options.pop("skip_dci", 0), options.pop("fresh", 0)
    packed = struct.pack(
        "<5Q20I5i4x",
        *(n for name in ("from", "to", "size", "left", "right") for n in five(name)),
        dims,
        mode,
        value,
        skip_dci,
        fresh,
    )
    x = np.arange(4096 // size * 4).astype(np.int64) % 100
    y, base = np.zeros(ROOM, np.uint8), np.full(ROOM, 33, np.uint8)
    kernel: emulator.Kernel = source("copies_nd.cpp").build("950pr")
    report = kernel.launch(1, x.astype(dtype), y, base, size, packed, **options)
    return y.view(dtype), report


def definition(size: int, loops: Loops, mode: int = 0, value: int = 7, fill: int = 33) -> NDArray[Any]:
    """ "Elements of a dimension are a stride apart; paddings are the constant, or the dimension's nearest value"."""
    dims, dtype = len(loops["size"]), DTYPES[size]
    x = (np.arange(4096 // size * 4).astype(np.int64) % 100).astype(dtype)
    out = np.full(ROOM, fill, np.uint8).view(dtype).copy()
    left, right = (
        ([2] * dims, [1] * dims) if mode == 2 else (loops.get("left", [0] * dims), loops.get("right", [0] * dims))
    )
    for place in itertools.product(*(range(left[d] + loops["size"][d] + right[d]) for d in range(dims))):
        inner = [place[d] - left[d] for d in range(dims)]
        nearest = [min(max(i, 0), loops["size"][d] - 1) for d, i in enumerate(inner)]
        to = sum(place[d] * loops["to"][d] for d in range(dims))
        inside = inner == nearest or mode == 1
        out[to] = x[sum(nearest[d] * loops["from"][d] for d in range(dims))] if inside else value
    return out


# The page's five uses in two dimensions, and more dimensions.
CASES: dict[str, Loops] = {
    "one": {"from": [3], "to": [1], "size": [20], "left": [5], "right": [3]},
    "padding": {"from": [1, 32], "to": [1, 64], "size": [8, 2], "left": [15, 9], "right": [17, 3]},
    "transpose": {"from": [1, 64], "to": [16, 1], "size": [8, 4]},
    "broadcast": {"from": [1, 0], "to": [1, 16], "size": [16, 3]},
    "slice": {"from": [1, 64], "to": [1, 16], "size": [7, 5]},
    "three": {"from": [1, 10, 50], "to": [1, 8, 40], "size": [6, 3, 4], "left": [1, 0, 0], "right": [1, 1, 0]},
    "five": {
        "from": [1, 4, 12, 24, 72],
        "to": [1, 5, 20, 60, 180],
        "size": [3, 3, 2, 2, 2],
        "left": [1, 0, 1, 0, 0],
        "right": [0, 0, 0, 0, 1],
    },
}


@pytest.mark.parametrize("size", DTYPES)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", [0, 1])
def test_every_dimension_and_padding(source: Any, size: int, name: str, mode: int) -> None:
    if size == 8 and mode == 1:
        return  # "of 64 bits isNearestValueMode has to be false"
    value = 0 if size == 8 else 7
    y, report = run(source, size, CASES[name], mode, value, seed=3)
    assert report.hazards == (), [str(hazard) for hazard in report.hazards]
    assert np.array_equal(y, definition(size, CASES[name], mode, value))


def test_paddings_of_the_config_hold_for_all_dimensions(source: Any) -> None:
    """ "loopLpSize 0 to 255: all dimensions use it, and NdDmaLoopInfo's has no effect"."""
    loops = {"from": [1, 8, 24], "to": [1, 16, 128], "size": [8, 3, 2], "left": [9, 9, 9], "right": [0, 0, 0]}
    y, report = run(source, 4, loops, 2)
    assert report.hazards == () and np.array_equal(y, definition(4, loops, 2))


def test_the_pages_example(source: Any) -> None:
    """NdDmaDci's page: [2, 8] into [4, 16], 3 on the left, 1 above, 5 on the right, 1 below."""
    loops = {"from": [1, 8], "to": [1, 16], "size": [8, 2], "left": [3, 1], "right": [5, 1]}
    y, report = run(source, 4, loops, value=0)
    want = np.zeros((4, 16))
    want[1:3, 3:11] = np.arange(16).reshape(2, 8)
    assert report.hazards == () and np.array_equal(y[:64].reshape(4, 16), want)
    assert report.counters.paths["GM->UB"] == ROOM + 64  # base, and 16 elements


def test_what_is_written_is_what_is_said_to_be(source: Any) -> None:
    """Into memory that nothing has written: what the copy does not write is reported when it is read, run by run."""
    loops = CASES["five"]
    _, report = run(source, 4, loops, fresh=1)
    written = definition(4, loops) == definition(4, loops, fill=44)
    gaps = np.count_nonzero(np.diff(np.concatenate([[True], written]).astype(np.int8)) == -1)
    assert [(hazard.kind, hazard.count) for hazard in report.hazards] == [("uninitialised", gaps)]


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"size": [0, 2]}, "argument", "loopSize[0] is 0; it has to be 1 to 1048575"),
    ({"size": [8, 1 << 20]}, "argument", "loopSize[1] is 1048576"),
    ({"to": [1, 1 << 20]}, "argument", "loopDstStride[1] is 1048576"),
    ({"from": [1 << 40, 1]}, "argument", "loopSrcStride[0] is 1099511627776"),
    ({"to": [1, 7]}, "argument", "a loopDstStride is 7 elements and the loops within it cover 8"),
    ({"from": [1, 4096]}, "out_of_bounds", "of argument 0"),
    ({"to": [1, 2048]}, "out_of_bounds", "of UB"),
]


@pytest.mark.parametrize(("fields", "kind", "said"), REFUSED)
def test_what_a_copy_does_not_take(source: Any, fields: dict[str, Any], kind: str, said: str) -> None:
    loops = {"from": [1, 8], "to": [1, 16], "size": [8, 2]} | fields
    if "to" in fields and kind == "out_of_bounds":
        loops["size"] = [8, 40]
    y, report = run(source, 4, loops)
    assert [hazard.kind for hazard in report.hazards] == [kind], [str(hazard) for hazard in report.hazards]
    assert said in report.hazards[0].message and (y.view(np.uint8) == 33).all()
    assert report.hazards[0].location.endswith(f":{source('copies_nd.cpp').lines['copy']}")


def test_64_bits_have_zeros_for_paddings_alone(source: Any) -> None:
    """ "Of 64 bits constantValue has to be 0"."""
    _, report = run(source, 8, CASES["one"], value=1)
    assert [hazard.kind for hazard in report.hazards] == ["argument"]


def test_the_cache_is_refreshed_first(source: Any) -> None:
    """ "NdDmaDci has to be called before; otherwise cores may read old data"."""
    _, report = run(source, 4, CASES["slice"], skip_dci=1)
    assert [(hazard.kind, "NdDmaDci is missing" in hazard.message) for hazard in report.hazards] == [
        ("cache_line", True)
    ]


def test_it_exists_on_3510_alone(source: Any, tmp_path: Path) -> None:
    with pytest.raises(emulator.KernelBuildError, match="NdDmaConfig"):
        source("copies_nd.cpp").build("a3")
    path = tmp_path / "six.cpp"
    path.write_text(
        '#include "kernel_operator.h"\nusing namespace AscendC;\nconstexpr NdDmaConfig nearest = {true};\n'
        'extern "C" __global__ __aicore__ void six(GM_ADDR x) {\n'
        "    LocalTensor<int64_t> a;\n    GlobalTensor<int64_t> b;\n"
        "    DataCopy<int64_t, 6>(a, b, NdDmaParams<int64_t, 6>{});\n"
        "    DataCopy<int64_t, 1, nearest>(a, b, NdDmaParams<int64_t, 1>{});\n}\n"
    )
    with pytest.raises(emulator.KernelBuildError) as error:
        emulator.build(path, entry="six", soc="950pr")
    assert "dim is 1 to 5" in str(error.value) and "has no nearest value mode" in str(error.value)
