"""Less common loads of the cube core, img2col, fixpipe buffer and the unit flags' end, against numpy."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascend_k3.ops import emulator
from tests.ops.emulator.cube_oracle import Array

KERNELS = Path(__file__).parent / "kernels"
SOCS = ("a3", "950pr")
FIELDS = "which m k start stride gap height width channels filter step dilation pad k_start".split()
START_INDEX, GM_TO_L1, GM_TO_L0, IMAGE, SQUARES, SQUARES_V2, FILL, CLEAR_UNITS, NO_UNITS, FIXPIPE_BUFFER, REPEATS = (
    range(11)
)


@cache
def kernel(soc: str) -> emulator.Kernel:
    return emulator.build(KERNELS / "cube_loads.cpp", entry="cube_loads", soc=soc)


def launch(
    soc: str, which: int, m: int, k: int, source: Array, padding: float = 0, outputs: bool = True, **fields: int
) -> tuple[Array, Any]:
    values = {"which": which, "m": m, "k": k, "stride": 1, **fields}
    args = struct.pack(f"<{len(FIELDS)}if", *(values.get(name, 0) for name in FIELDS), padding)
    given = np.zeros(32 * 1024, np.float16)
    given[: source.size] = source.ravel()
    side = m if which in (SQUARES, SQUARES_V2) else k
    out = np.zeros((m, k), np.float32)
    report = kernel(soc).launch(1, given, np.eye(side, dtype=np.float16), out, args, outputs=[2] if outputs else [])
    return out, report


def fractals(count: int) -> Array:
    return (np.arange(count * 256) % 2039).astype(np.float16).reshape(count, 16, 16)


def from_l0a(soc: str, taken: Array, m: int) -> Array:
    """The matrix that these fractals are in L0A: Zz on dav-2201, Nz on dav-3510."""
    blocks, groups = m // 16, len(taken) // (m // 16)
    order = (
        taken.reshape(blocks, groups, 16, 16) if soc == "a3" else taken.reshape(groups, blocks, 16, 16).swapaxes(0, 1)
    )
    return order.transpose(0, 2, 1, 3).reshape(m, groups * 16).astype(np.float32)


@pytest.mark.parametrize("soc", SOCS)
def test_load_2d_start_and_stride(soc: str) -> None:
    """Page LoadData (2D): fractal startIndex + i * srcStride of the source; srcStride 0 takes the same one again."""
    source = fractals(24)
    for start, stride in ((0, 1), (1, 2), (3, 0)):
        out, report = launch(soc, START_INDEX, 32, 64, source, start=start, stride=stride)
        assert report.hazards == ()
        taken = source[[start + i * stride for i in range(8)]]
        np.testing.assert_array_equal(out, from_l0a(soc, taken, 32))


@pytest.mark.parametrize("soc", SOCS)
def test_load_2d_from_global_memory_backwards(soc: str) -> None:
    """Page LoadData (GM to L1, 2D): addrMode 1 takes startIndex - i * srcStride."""
    source = fractals(24)
    out, report = launch(soc, GM_TO_L1, 32, 64, source, start=20, stride=2)
    assert report.hazards == ()
    np.testing.assert_array_equal(out, from_l0a(soc, source[[20 - 2 * i for i in range(8)]], 32))


def test_load_2d_from_global_memory_to_l0() -> None:
    """Page LoadData (2D): GM to L0A on pipe MTE2, dav-2201 only."""
    source = fractals(24)
    out, report = launch("a3", GM_TO_L0, 32, 64, source, start=2, stride=2)
    assert report.hazards == ()
    np.testing.assert_array_equal(out, from_l0a("a3", source[[2 + 2 * i for i in range(8)]], 32))


def img2col(image: Array, filter: int, step: int, dilation: int, pad: int, padding: float) -> Array:
    """[C1, H, W, C0] -> rows: output positions, columns: (c1, filter row, filter column, c0). Page LoadData (3D)."""
    padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=padding)
    reach = (filter - 1) * dilation + 1
    high, wide = (padded.shape[1] - reach) // step + 1, (padded.shape[2] - reach) // step + 1
    rows = []
    for h in range(high):
        for w in range(wide):
            window = padded[:, h * step : h * step + reach : dilation, w * step : w * step + reach : dilation]
            rows.append(window.reshape(-1))
    return np.array(rows)


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("filter, step, dilation, pad", ((1, 1, 1, 0), (3, 1, 1, 1), (3, 2, 1, 1), (2, 1, 2, 0)))
def test_img2col(soc: str, filter: int, step: int, dilation: int, pad: int) -> None:
    """Pages LoadData (3D), SetFmatrix, SetLoadDataPaddingValue."""
    image = np.random.default_rng(7).integers(-50, 50, (2, 5, 6, 16)).astype(np.float16)
    expected = img2col(image, filter, step, dilation, pad, 2.5)
    rows = len(expected) // 16 * 16 or len(expected)
    for k_start in range(0, expected.shape[1] - 31, 32):
        fields = {
            "height": 5,
            "width": 6,
            "channels": 32,
            "filter": filter,
            "step": step,
            "dilation": dilation,
            "pad": pad,
        }
        out, report = launch(soc, IMAGE, rows, 32, image, 2.5, k_start=k_start, **fields)
        assert report.hazards == ()
        np.testing.assert_array_equal(out, expected[:rows, k_start : k_start + 32].astype(np.float32))


@pytest.mark.parametrize("soc", SOCS)
def test_repeats_of_img2col_are_refused(soc: str) -> None:
    fields = {"height": 4, "width": 4, "channels": 16, "filter": 1, "step": 1, "dilation": 1}
    _, report = launch(soc, REPEATS, 16, 16, np.zeros(256, np.float16), outputs=False, **fields)
    assert any(h.kind == "argument" and "only one repeat is modelled" in h.message for h in report.hazards)


@pytest.mark.parametrize("soc, which", (("a3", SQUARES), ("950pr", SQUARES), ("950pr", SQUARES_V2)))
def test_transposed_fractals(soc: str, which: int) -> None:
    """Page LoadDataWithTranspose: a 16-bit square is one fractal, from startIndex on srcStride squares apart."""
    source = fractals(16)
    out, report = launch(soc, which, 16, 64, source, start=2, stride=3)
    assert report.hazards == ()
    # Column j of a fractal in L0B is its row j; the transposed fractal has the source's column there.
    expected = np.concatenate([source[2 + 3 * i] for i in range(4)], axis=1)
    np.testing.assert_array_equal(out, expected.astype(np.float32))


def test_fill_of_l0a() -> None:
    """Page Fill: in L0A a block is a fractal of 512 bytes. dav-2201."""
    out, report = launch("a3", FILL, 16, 64, np.zeros(1, np.float16))
    assert report.hazards == ()
    np.testing.assert_array_equal(out, np.repeat(np.array([1, 3, 1, 3], np.float32), 16)[None].repeat(16, 0))


@pytest.mark.parametrize("soc", SOCS)
def test_clearing_the_unit_flags(soc: str) -> None:
    """Page SetFixPipeConfig: isUnitFlag sets the flags of all blocks of L0C to 0."""
    source = fractals(4)
    out, report = launch(soc, CLEAR_UNITS, 16, 64, source)
    assert report.hazards == ()
    np.testing.assert_array_equal(out, from_l0a(soc, source, 16))


@pytest.mark.parametrize("soc", SOCS)
def test_fixpipe_that_waits_for_a_plain_mmad(soc: str) -> None:
    """Page UnitFlag: both have to switch it on; a Fixpipe alone waits for ever."""
    _, report = launch(soc, NO_UNITS, 16, 64, fractals(4), outputs=False)
    assert [h.kind for h in report.hazards] == ["deadlock"]
    assert "unit flags of L0C that no Mmad sets" in report.hazards[0].message


@pytest.mark.parametrize("soc", SOCS)
def test_fixpipe_buffer(soc: str) -> None:
    """Page DataCopy (L1 to Fixpipe Buffer): lengths in 128 bytes, on dav-3510 in 64."""
    _, report = launch(soc, FIXPIPE_BUFFER, 16, 64, fractals(4))
    assert report.hazards == ()
    counter = report.data["cores"][0]["counters"]["L1->FB"]
    assert (counter["amount"], counter["pipe"]) == (512, "FIX")
