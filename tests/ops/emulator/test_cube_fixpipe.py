"""Fixpipe out of L0C: layouts, types, quantization with ReLU, several matrices, atomic adds, L1, against numpy."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascend_k3.ops import emulator
from tests.ops.emulator.cube_oracle import (
    Array,
    factor_bits,
    from_bfloat16,
    from_fp8,
    hifloat8,
    nz,
    quantized,
    to_bfloat16,
    to_fp8,
)

KERNELS = Path(__file__).parent / "kernels"
SOCS = ("a3", "950pr")
FORMS = (*SOCS, "950pr FixpipeParamsV220")  # the pages have this struct for dav-3510 too, with the units of dav-2201
FLOAT, INT32, HALF, BFLOAT16, INT8, UINT8, FP8, HIF8 = range(8)
STORED: tuple[Any, ...] = (np.float32, np.int32, np.float16, np.uint16, np.int8, np.uint8, np.uint8, np.uint8)
ROWS, NZ, COLUMNS = range(3)
MODES = (
    "NoQuant F322F16 F322BF16 DEQF16 VDEQF16 QF322B8_PRE VQF322B8_PRE REQ8 VREQ8 QF322FP8_PRE VQF322FP8_PRE "
    "QF322HIF8_PRE VQF322HIF8_PRE QF322HIF8_PRE_HYBRID VQF322HIF8_PRE_HYBRID QS322BF16_PRE VQS322BF16_PRE QF322F16_PRE "
    "VQF322F16_PRE QF322BF16_PRE VQF322BF16_PRE QF322F32_PRE VQF322F32_PRE"
).split()
FIELDS = (
    "source to m n k columns layout quant relu vector split atomic stride number matrix_stride nd_stride "
    "through_l1 infinity"
).split()


@cache
def kernel(form: str) -> emulator.Kernel:
    soc, _, old = form.partition(" ")
    defines = {"OLD_STRUCT": True} if old else {}
    return emulator.build(KERNELS / "cube_fixpipe.cpp", entry="cube_fixpipe", soc=soc, defines=defines)


def launch(
    soc: str,
    a: Array,
    b: Array,
    out: Array,
    factors: Array | None = None,
    factor: int = 0,
    seed: int | None = None,
    **fields: int,
) -> Any:
    """L0C = a x b^T, then what the fields say."""
    m, k = a.shape
    n = b.shape[0]
    values: dict[str, int] = {
        "m": m,
        "n": n,
        "k": k,
        "columns": n,
        "number": 1,
        "source": int(a.dtype == np.int8),
        **fields,
    }
    values.setdefault("stride", n)
    args = struct.pack(f"<{len(FIELDS)}iQ", *(values.get(name, 0) for name in FIELDS), factor)
    outputs = [] if fields.get("atomic") or not out.flags.owndata else [3]
    return kernel(soc).launch(
        1, a, b, factors if factors is not None else np.zeros(4, np.uint64), out, args, outputs=outputs, seed=seed
    )


def matrix(m: int, n: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """a [m, n], identity [n, n] and their product, which is a itself: any numbers in L0C."""
    rng = np.random.default_rng(seed)
    a = (rng.standard_normal((m, n)) * np.exp2(rng.integers(-6, 7, (m, n)))).astype(np.float32)
    return a, np.eye(n, dtype=np.float32), a


def integers(m: int, n: int, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-128, 128, (m, 64)).astype(np.int8), rng.integers(-128, 128, (n, 64)).astype(np.int8)
    return a, b, a.astype(np.int32) @ b.astype(np.int32).T


@pytest.mark.parametrize("form", FORMS)
def test_row_major(form: str) -> None:
    """Page NZ2ND: row j, column k of a matrix at dst + j * dstStride + k; tails of both move alone."""
    for m, n, columns, stride in ((32, 64, 64, 64), (24, 48, 48, 80), (17, 32, 19, 32), (2, 16, 5, 40)):
        a, b, c = matrix(m, n)
        out = np.zeros((m, stride), np.float32)
        whole = columns == stride
        report = launch(form, a, b, out if whole else out[:], to=FLOAT, columns=columns, stride=stride)
        assert report.hazards == ()
        expected = np.zeros_like(out)
        expected[:, :columns] = c[:, :columns]
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("form", FORMS)
def test_several_matrices(form: str) -> None:
    """Page NZ2ND: srcNdStride in 16 * C0_Size in the struct of dav-2201, in C0_Size in that of dav-3510."""
    a, b, c = matrix(48, 32)
    out = np.zeros((3, 20, 40), np.float32)
    report = launch(
        form, a, b, out[:], to=FLOAT, stride=40, number=3, matrix_stride=1 if form != "950pr" else 16, nd_stride=800
    )
    assert report.hazards == ()
    expected = np.zeros_like(out)
    expected[:, :16, :32] = c.reshape(3, 16, 32)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("form", FORMS)
def test_nz(form: str) -> None:
    """Page NZ2NZ: column blocks of 16, dstStride apart: in 32 bytes in the struct of dav-2201, in elements in that of
    dav-3510; rows behind mSize are not moved."""
    for to, quant in ((FLOAT, "NoQuant"), (HALF, "F322F16"), (BFLOAT16, "F322BF16")):
        a, b, c = matrix(24, 48)
        stored = {FLOAT: c, HALF: c.astype(np.float16), BFLOAT16: to_bfloat16(c)}[to]
        out = np.zeros((3, 40, 16), STORED[to])
        stride = 40 * 16 * out.itemsize // 32 if form != "950pr" else 40 * 16
        report = launch(form, a, b, out[:], to=to, layout=NZ, quant=MODES.index(quant), stride=stride)
        assert report.hazards == ()
        expected = np.zeros_like(out)
        expected[:, :24] = stored.reshape(24, 3, 16).transpose(1, 0, 2)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("form", FORMS)
def test_channel_split(form: str) -> None:
    """Page F32 Channel Split: float NZ in fractals of 16 x 8; nSize a multiple of 8."""
    a, b, c = matrix(32, 32)
    out = np.zeros((3, 32, 8), np.float32)
    report = launch(form, a, b, out, to=FLOAT, layout=NZ, split=1, columns=24, stride=32 if form != "950pr" else 32 * 8)
    assert report.hazards == ()
    np.testing.assert_array_equal(out, nz(c[:, :24], 8).reshape(3, 32, 8))


@pytest.mark.parametrize("soc", SOCS)
def test_channel_merge(soc: str) -> None:
    """Page Int8 Channel Merge: bytes go out in fractals of 16 x 32."""
    a, b, c = integers(32, 64)
    bits = factor_bits(2.0**-12)
    out = np.zeros((2, 2, 16, 32), np.int8)
    report = launch(
        soc,
        a,
        b,
        out,
        to=INT8,
        layout=NZ,
        quant=MODES.index("REQ8"),
        factor=bits,
        stride=32 if soc == "a3" else 32 * 32,
    )
    assert report.hazards == ()
    np.testing.assert_array_equal(out, nz(quantized(c, np.uint64(bits), False, "int8", True, soc == "a3"), 32))


def test_column_major() -> None:
    """Page NZ2DN: element (row, column) at dst + column * dstStride + row."""
    a, b, c = matrix(40, 32)
    out = np.zeros((32, 48), np.float32)
    report = launch("950pr", a, b, out[:], to=FLOAT, layout=COLUMNS, stride=48)
    assert report.hazards == ()
    expected = np.zeros_like(out)
    expected[:, :40] = c.T
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("relu", (0, 1))
def test_casts(soc: str, relu: int) -> None:
    """Page on-the-fly quantization: float to half and bfloat16 in CAST_RINT; ReLU is max(0, x)."""
    a, b, c = matrix(32, 48)
    a[0, :4] = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8]  # ties
    c = np.maximum(a, 0) if relu else a
    for to, quant, expected in (
        (HALF, "F322F16", c.astype(np.float16)),
        (BFLOAT16, "F322BF16", to_bfloat16(c)),
        (FLOAT, "NoQuant", c),
    ):
        out = np.zeros((32, 48), STORED[to])
        report = launch(soc, a, b, out, to=to, quant=MODES.index(quant), relu=relu)
        assert report.hazards == ()
        np.testing.assert_array_equal(out, expected)
    a, b, whole = integers(32, 48)
    moved = np.zeros((32, 48), np.int32)
    assert launch(soc, a, b, moved, to=INT32, relu=relu).hazards == ()
    np.testing.assert_array_equal(moved, np.maximum(whole, 0) if relu else whole)


@pytest.mark.parametrize("soc, infinity", (("a3", 1), ("950pr", 0), ("950pr", 1)))
def test_overflow_of_a_cast(soc: str, infinity: int) -> None:
    """Page Fixpipe, CTRL[48]: 0, the default of Ascend 950, gives the largest number, 1 infinity."""
    a = np.full((16, 16), 1e6, np.float32)
    out = np.zeros((16, 16), np.float16)
    b = np.eye(16, dtype=np.float32)
    assert launch(soc, a, b, out, to=HALF, quant=MODES.index("F322F16"), infinity=infinity).hazards == ()
    assert (out == (np.inf if infinity else 65504)).all()


# Page "Combinations of on-the-fly quantization and ReLU": times M1, negative numbers times 0 with ReLU; 8 bits through
# a whole number of 9 bits plus the offset; M1 has 10 bits of mantissa. Page on-the-fly quantization, table 1: bit 36
# shifts int32 to the right by 1 to 16 first, on dav-2201.
@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("relu", (0, 1))
@pytest.mark.parametrize("vector", (0, 1))
def test_quantization_to_bytes_and_half(soc: str, relu: int, vector: int) -> None:
    rng = np.random.default_rng(4)
    for real, quant, to, name in (
        (True, "QF322B8_PRE", INT8, "int8"),
        (True, "QF322B8_PRE", UINT8, "uint8"),
        (False, "REQ8", INT8, "int8"),
        (False, "REQ8", UINT8, "uint8"),
        (False, "DEQF16", HALF, "half"),
    ):
        a, b, c = matrix(32, 48) if real else integers(32, 48)
        base = 1.7 if real else 3e-4 if to != HALF else 1.3e-1
        parameters = np.array(
            [
                factor_bits(
                    base * (1 + i / 64), int(rng.integers(-200, 200)), to == INT8, 3 if i % 2 and not real else None
                )
                for i in range(48)
            ],
            np.uint64,
        )
        if not vector:
            parameters[:] = parameters[5]
        out = np.zeros((32, 48), STORED[to])
        mode = MODES.index(quant) + vector
        report = launch(
            soc,
            a,
            b,
            out,
            parameters if vector else None,
            0 if vector else int(parameters[0]),
            to=to,
            quant=mode,
            relu=relu,
            vector=vector,
        )
        assert report.hazards == ()
        np.testing.assert_array_equal(out, quantized(c, parameters, bool(relu), name, not real, soc == "a3"))


@pytest.mark.parametrize("relu", (0, 1))
@pytest.mark.parametrize("vector", (0, 1))
def test_quantization_of_dav_3510(relu: int, vector: int) -> None:
    table = hifloat8()
    for real, quant, to in (
        (True, "QF322FP8_PRE", FP8),
        (True, "QF322HIF8_PRE", HIF8),
        (False, "QS322BF16_PRE", BFLOAT16),
        (True, "QF322F16_PRE", HALF),
        (True, "QF322BF16_PRE", BFLOAT16),
        (True, "QF322F32_PRE", FLOAT),
    ):
        a, b, c = matrix(32, 48) if real else integers(32, 48)
        parameters = np.array([factor_bits(0.3 * (1 + (i if vector else 0) / 64)) for i in range(48)], np.uint64)
        out = np.zeros((32, 48), STORED[to])
        mode = MODES.index(quant) + vector
        report = launch(
            "950pr",
            a,
            b,
            out,
            parameters if vector else None,
            0 if vector else int(parameters[0]),
            to=to,
            quant=mode,
            relu=relu,
            vector=vector,
        )
        assert report.hazards == ()
        scaled = quantized(c, parameters, bool(relu), "float", not real, False)
        if to == FP8:
            np.testing.assert_array_equal(from_fp8(out, "e4m3"), from_fp8(to_fp8(scaled, "e4m3"), "e4m3"))
        elif to == HIF8:  # to nearest, ties away from zero
            finite = np.sort(table[np.isfinite(table)].astype(np.float64))
            distance = np.abs(finite[None, None] - scaled[..., None])
            nearest = distance.min(axis=-1)
            found = table[out].astype(np.float64)
            np.testing.assert_array_equal(np.abs(found - scaled), nearest)
        else:
            expected = {BFLOAT16: to_bfloat16, HALF: lambda x: x.astype(np.float16), FLOAT: lambda x: x}[to](scaled)
            np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("to, quant, relu", ((HALF, "F322F16", 0), (BFLOAT16, "F322BF16", 1)))
def test_through_l1(form: str, to: int, quant: str, relu: int) -> None:
    """L0C -> L1 in NZ is what the next product loads: times the identity it comes out rounded and nothing else."""
    a, b, c = matrix(40, 48)
    c = np.maximum(c, 0) if relu else c
    identity = np.eye(48, dtype=np.float16) if to == HALF else to_bfloat16(np.eye(48, dtype=np.float32))
    out = np.zeros((40, 48), np.float32)
    report = launch(form, a, b, out, identity, to=to, quant=MODES.index(quant), relu=relu, through_l1=1)
    assert report.hazards == ()
    np.testing.assert_array_equal(
        out, c.astype(np.float16).astype(np.float32) if to == HALF else from_bfloat16(to_bfloat16(c))
    )


@pytest.mark.parametrize("soc", SOCS)
def test_atomic_add(soc: str) -> None:
    """Page SetAtomicAdd: copies out of L0C add to what is in global memory."""
    for to, quant in ((FLOAT, "NoQuant"), (HALF, "F322F16")):
        a, b, c = matrix(32, 48)
        out = np.full((32, 48), 2, STORED[to])
        report = launch(soc, a, b, out, to=to, quant=MODES.index(quant), atomic=1)
        assert report.hazards == ()
        np.testing.assert_array_equal(out, (np.float32(2) + c.astype(STORED[to]).astype(np.float32)).astype(STORED[to]))


@pytest.mark.parametrize("soc", SOCS)
def test_moving_what_no_product_wrote(soc: str) -> None:
    """Columns behind n are undefined: they may be moved, and then the output is not written."""
    a, b, _ = matrix(16, 24)
    out = np.zeros((16, 32), np.float32)
    report = launch(soc, a, b, out, to=FLOAT, columns=32, stride=32)
    assert [h.kind for h in report.hazards] == ["unwritten_output"]
    assert "128 bytes" not in report.hazards[0].message and str(16 * 8 * 4) in report.hazards[0].message


@pytest.mark.parametrize("soc", SOCS)
def test_refused_arguments(soc: str) -> None:
    a, b, _ = matrix(32, 48)
    whole = integers(32, 48)
    factors = np.full(48, factor_bits(1.0), np.uint64)
    other = "QF322FP8_PRE" if soc == "a3" else "QF322HIF8_PRE_HYBRID"
    cases: list[tuple[str, Array, Array, dict[str, int]]] = [
        ("multiple of 16", a, b, {"to": FLOAT, "layout": NZ, "columns": 40}),
        ("multiple of 32", whole[0], whole[1], {"to": INT8, "layout": NZ, "columns": 48, "quant": MODES.index("REQ8")}),
        ("dstStride is 0", a, b, {"to": FLOAT, "stride": 0}),
        ("quantPre 0 does not turn float", a, b, {"to": HALF}),
        ("does not turn", a, b, {"to": INT8, "quant": MODES.index(other)}),
        (
            "goes with the modes that have one a column",
            whole[0],
            whole[1],
            {"to": INT8, "quant": MODES.index("REQ8"), "vector": 1},
        ),
        ("takes a factor a column", whole[0], whole[1], {"to": INT8, "quant": MODES.index("VREQ8")}),
        ("isChannelSplit", a, b, {"to": FLOAT, "split": 1}),
        ("nSize is 5000", a, b, {"to": FLOAT, "columns": 5000}),
    ]
    for text, left, right, fields in cases:
        out = np.zeros((32, 48), STORED[fields["to"]])
        report = launch(soc, left, right, out[:], factors, **fields)
        assert any(h.kind == "argument" and text in h.message for h in report.hazards), (text, report.hazards)
        assert not out.any(), text


@pytest.mark.parametrize("soc", SOCS)
def test_beyond_the_tensor(soc: str) -> None:
    a, b, _ = matrix(32, 48)
    out = np.zeros((31, 48), np.float32)
    report = launch(soc, a, b, out[:], to=FLOAT)
    assert [h.kind for h in report.hazards] == ["out_of_bounds"]
