"""What copies leave in L1, byte by byte, and the ways between L1, L0C and UB of dav-3510, against numpy."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascend_k3.ops import emulator
from tests.ops.emulator.cube_oracle import Array, nz

KERNELS = Path(__file__).parent / "kernels"
FIELDS = (
    "what size bytes number rows columns matrix_stride line c0_stride n_stride nz_matrix_stride repeats blocks gap sub "
    "dual layout stride transpose"
).split()
ND2NZ, DN2NZ, SMALL_ND2NZ, SMALL_DN2NZ, FILL, CIRCLE, TO_UB, FRACTALS, MISSING_FLAG = range(9)
ROWS, NZ, COLUMNS = range(3)
TYPES: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32}
BACKGROUND = 0x5A


@cache
def kernel() -> emulator.Kernel:
    return emulator.build(KERNELS / "cube_paths.cpp", entry="cube_paths", soc="950pr")


def launch(source: Array, out: Array, seed: int | None = None, outputs: tuple[int, ...] = (2,), **fields: int) -> Any:
    packed = struct.pack(f"<{len(FIELDS)}i", *(fields.get(name, 0) for name in FIELDS))
    return kernel().launch(1, source, np.eye(32, dtype=np.float32), out, packed, outputs=outputs, seed=seed)


def expected_nz(source: Array, total: int, transposed: bool, c0_bytes: int = 32, **f: int) -> Array:
    """The pages' sentences: row n, group g of C0 columns at (g * C0Stride + n * NStride) * 32 bytes, the rest of the
    last group is 0, matrix i starts NzMatrixStride elements later; nothing else is written."""
    size = f["size"]
    out = np.full(total, BACKGROUND, np.uint8)
    data = source.ravel()
    c0 = c0_bytes // size
    for matrix in range(f["number"]):
        for n in range(f["rows"]):
            for g in range(-(-f["columns"] // c0)):
                block = np.zeros(c0, TYPES[size])
                for i in range(min(c0, f["columns"] - g * c0)):
                    d = g * c0 + i
                    place = d * f["line"] + n if transposed else n * f["line"] + d
                    block[i] = data[matrix * f["matrix_stride"] + place]
                at = matrix * f["nz_matrix_stride"] * size + (g * f["c0_stride"] + n * f["n_stride"]) * 32
                if c0_bytes != 32:
                    at = n * c0_bytes
                out[at : at + c0_bytes] = block.view(np.uint8)
        if c0_bytes != 32:
            end = f["rows"] * c0_bytes
            out[end : -(-end // 32) * 32] = 0
    return out


def check(what: int, **f: int) -> None:
    rng = np.random.default_rng(f["rows"] * 100 + f["columns"])
    lines = f["columns"] if what in (DN2NZ, SMALL_DN2NZ) else f["rows"]
    count = (f["number"] - 1) * f["matrix_stride"] + lines * f["line"]
    source = rng.integers(0, 256, count * f["size"], dtype=np.uint8).view(TYPES[f["size"]])
    out = np.zeros(8192, np.uint8)
    report = launch(source, out, what=what, bytes=out.size, **f)
    assert report.hazards == ()
    small = 4 * f["size"] if what in (SMALL_ND2NZ, SMALL_DN2NZ) else 32
    np.testing.assert_array_equal(out, expected_nz(source, out.size, what in (DN2NZ, SMALL_DN2NZ), small, **f))


# Page DataCopy (GM to L1, ND2NZ): the two figures' parameters, and their like in other sizes. The same for DN2NZ.
@pytest.mark.parametrize("what", (ND2NZ, DN2NZ))
@pytest.mark.parametrize("size", (1, 2, 4))
def test_to_nz(what: int, size: int) -> None:
    wide = what == DN2NZ
    check(
        what,
        size=size,
        number=1,
        rows=16,
        columns=23,
        matrix_stride=0,
        line=16 if wide else 32,
        c0_stride=16,
        n_stride=1,
        nz_matrix_stride=0,
    )
    check(
        what,
        size=size,
        number=2,
        rows=8,
        columns=23,
        matrix_stride=400,
        line=16 if wide else 32,
        c0_stride=37,
        n_stride=2,
        nz_matrix_stride=320 * 2 // size,
    )
    check(
        what,
        size=size,
        number=1,
        rows=5,
        columns=7,
        matrix_stride=0,
        line=40,
        c0_stride=7,
        n_stride=1,
        nz_matrix_stride=0,
    )
    check(
        what,
        size=size,
        number=3,
        rows=16,
        columns=16,
        matrix_stride=256,
        line=16,
        c0_stride=16,
        n_stride=1,
        nz_matrix_stride=512,
    )


def test_nd2nz_is_nz() -> None:
    """(M, N) -> (N1, M1, M0, N0), page "Key fractal formats"."""
    source = np.arange(40 * 56, dtype=np.uint16).reshape(40, 56)
    out = np.zeros(48 * 64 * 2, np.uint8)
    report = launch(
        source,
        out,
        what=ND2NZ,
        size=2,
        bytes=out.size,
        number=1,
        rows=40,
        columns=56,
        line=56,
        c0_stride=48,
        n_stride=1,
    )
    assert report.hazards == ()
    found, expected = out.view(np.uint16).reshape(4, 3, 16, 16), nz(source, 16)
    rows = np.arange(48).reshape(3, 16) < 40
    np.testing.assert_array_equal(found[:, rows], expected[:, rows])
    assert (found[:, ~rows] == 0x5A5A).all()  # rows behind the last one stay as they were


@pytest.mark.parametrize("what", (SMALL_ND2NZ, SMALL_DN2NZ))
@pytest.mark.parametrize("size", (1, 2, 4))
def test_small_c0(what: int, size: int) -> None:
    """SmallC0: up to 4 columns, padded to 4 with zeros, rows one after another, the end padded to 32 bytes."""
    for rows, columns in ((10, 3), (16, 4), (7, 1)):
        check(
            what,
            size=size,
            number=1,
            rows=rows,
            columns=columns,
            matrix_stride=0,
            line=20,
            c0_stride=0,
            n_stride=0,
            nz_matrix_stride=0,
        )


def test_fill() -> None:
    """Page Fill: in L1 a block is 32 bytes; dstGap is from the end of one repeat to the start of the next."""
    out = np.zeros(2048, np.uint8)
    report = launch(np.zeros(1, np.uint8), out, what=FILL, bytes=2048, repeats=5, blocks=3, gap=5)
    assert report.hazards == ()
    expected = np.full(2048, BACKGROUND, np.uint8)
    for repeat in range(5):
        expected[repeat * 8 * 32 : repeat * 8 * 32 + 96] = np.full(24, 1.5, np.float32).view(np.uint8)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("seed", (None, 1, 2, 3))
def test_ub_to_l1_and_back_to_the_other_core(seed: int | None) -> None:
    """Pages DataCopy (UB to L1) and DataCopyL1ToUB: each vector core has its own UB, the cube core's L1 is one."""
    source = np.arange(2 * 4096, dtype=np.uint32).view(np.uint8)[: 2 * 8192].copy()
    out = np.zeros_like(source)
    report = launch(source, out, seed, what=CIRCLE, bytes=8192)
    assert report.hazards == ()
    np.testing.assert_array_equal(out, np.concatenate([source[8192:], source[:8192]]))
    cost = {name: entry["amount"] for core in report.data["cores"] for name, entry in core["counters"].items()}
    assert (cost["UB->L1"], cost["L1->UB"]) == (8192, 16384)


# Page Fixpipe (L0C to UB) and "L0C to UB dual-destination mode".
@pytest.mark.parametrize("sub", (0, 1))
@pytest.mark.parametrize("layout", (ROWS, NZ, COLUMNS))
def test_l0c_to_one_ub(layout: int, sub: int) -> None:
    source = np.arange(32 * 64, dtype=np.float32).reshape(32, 64)
    out = np.zeros(32 * 64, np.float32)
    stride = {ROWS: 64, NZ: 32 * 16, COLUMNS: 32}[layout]
    report = launch(
        source, out, what=TO_UB, bytes=out.nbytes, rows=32, columns=64, layout=layout, stride=stride, sub=sub
    )
    assert report.hazards == ()
    expected = {ROWS: source, NZ: nz(source, 16), COLUMNS: source.T}[layout]
    np.testing.assert_array_equal(out, expected.ravel())


@pytest.mark.parametrize("layout", (ROWS, NZ))
def test_l0c_to_both_ubs(layout: int) -> None:
    source = np.arange(32 * 64, dtype=np.float32).reshape(32, 64)
    for dual, halves in ((1, (source[:16], source[16:])), (2, (source[:, :32], source[:, 32:]))):
        out = np.zeros(32 * 64, np.float32)
        stride = halves[0].shape[1] if layout == ROWS else halves[0].shape[0] * 16
        report = launch(
            source, out, what=TO_UB, bytes=out.nbytes // 2, rows=32, columns=64, layout=layout, stride=stride, dual=dual
        )
        assert report.hazards == ()
        expected = [half if layout == ROWS else nz(half, 16) for half in halves]
        np.testing.assert_array_equal(out, np.concatenate([half.ravel() for half in expected]))


def test_reading_ub_before_the_cube_core_says_so() -> None:
    out = np.zeros(32 * 64, np.float32)
    report = launch(
        np.zeros((32, 64), np.float32),
        out,
        seed=3,
        what=MISSING_FLAG,
        bytes=out.nbytes,
        rows=32,
        columns=64,
        layout=ROWS,
        stride=64,
    )
    assert report.hazards
    assert {h.kind for h in report.hazards} <= {"race", "uninitialised", "unwritten_output"}


def test_dual_mode_refusals() -> None:
    """Page: N must be a multiple of 32 to be split, M of 2; not with NZ2DN."""
    source, out = np.zeros((32, 64), np.float32), np.zeros(32 * 64, np.float32)
    for text, fields in (
        ("multiple of 32", {"columns": 48, "dual": 2, "layout": ROWS}),
        ("even", {"rows": 31, "dual": 1, "layout": ROWS}),
        ("CFG_COLUMN_MAJOR", {"dual": 1, "layout": COLUMNS}),
    ):
        report = launch(
            source, out, outputs=(), what=TO_UB, bytes=4096, **{"rows": 32, "columns": 64, "stride": 64, **fields}
        )
        assert any(h.kind == "argument" and text in h.message for h in report.hazards), text
