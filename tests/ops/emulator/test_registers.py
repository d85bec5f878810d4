"""Registers of dav-3510: copies with every distribution, arithmetic, casts, reductions; against numpy definitions.

Pages: "Reg vector computation" of the Ascend C API reference, by the names of its calls; where the tests say so, the
page on RegLayout or MaskReg. What the documentation leaves open is named in the headers.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ascend_k3.ops.emulator.report import Report
from tests.ops.emulator.conftest import Source
from tests.ops.emulator.test_vector_cast import CEIL, FLOOR, NONE, ODD, RINT, ROUND, TRUNC, integral, to_format
from tests.ops.emulator.vector_oracle import from_bfloat16, to_bfloat16

Array = NDArray[Any]
REGION = 2048  # bytes, as in kernels/register/register_frame.h
VL = 256  # bytes of a register
NUMPY = {"half": "float16", "float": "float32", "bfloat16_t": "uint16", "fp8_e4m3fn_t": "uint8", "fp8_e5m2_t": "uint8"}
NUMPY |= {"fp8_e8m0_t": "uint8", "fp4x2_e2m1_t": "uint8", "fp4x2_e1m2_t": "uint8"}
NUMPY |= {f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32)}


def dtype_of(type: str) -> np.dtype[Any]:
    return np.dtype(NUMPY[type])


def region(type: str, seed: int, scale: float = 4.0) -> Array:
    """Numbers that fill a region; bfloat16 as bits."""
    random, dtype = np.random.default_rng(seed), dtype_of(type)
    count = REGION // dtype.itemsize
    if type == "bfloat16_t":
        return to_bfloat16(random.normal(size=count) * scale)
    if dtype.kind == "f":
        return (random.normal(size=count) * scale).astype(dtype)
    return random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, count, dtype, endpoint=True)


def run(
    kernel: Source,
    op: str,
    d: Array,
    a: Array,
    b: Array | None = None,
    *,
    count: int = 1 << 20,
    at: tuple[int, int] = (0, 0),
    scalar: float = 0.0,
    times: int = 0,
    seed: int | None = None,
) -> tuple[Array, Report]:
    """dst's region after one vector function; `at`: elements into the source and into dst."""
    out = d.copy()
    other = a.copy() if b is None else b.copy()
    call = struct.pack("<iiiifi", kernel.opcodes[op], count, *at, scalar, times)
    regions = [x.view(np.uint8) for x in (out, a, other)]
    report = kernel.build("950pr").launch(1, *regions, call, seed=seed, timeline=16)
    return out, report


def check(kernel: Source, op: str, expected: Array, d: Array, a: Array, b: Array | None = None, **call: Any) -> None:
    """Bit equality with `expected`, dst's region from the start; behind it dst is as it was."""
    found, report = run(kernel, op, d, a, b, **call)
    assert report.hazards == (), op
    expected = np.ascontiguousarray(expected).view(np.uint8)
    np.testing.assert_array_equal(found.view(np.uint8)[: expected.size], expected, err_msg=f"{op} {call}")
    np.testing.assert_array_equal(found.view(np.uint8)[expected.size :], d.view(np.uint8)[expected.size :], err_msg=op)


# ---- Loads ----


@pytest.fixture(scope="module")
def copies(source: type[Source]) -> Source:
    return source("register/register_copies.cpp")


def behind(x: Array, zeros: int) -> Array:
    """Every element with so many zeros behind it."""
    out = np.zeros((x.size, zeros + 1), x.dtype)
    out[:, 0] = x
    return out.ravel()


# Page LoadAlign, table 3: what a register holds of the elements x from the address on, and the alignment in bytes.
LOADS: dict[str, tuple[str, int, Callable[[Array], Array]]] = {
    "LOAD_NORM": ("float", 32, lambda x: x[:64]),
    "LOAD_BRC_B8": ("int8_t", 1, lambda x: np.repeat(x[:1], 256)),
    "LOAD_BRC_B16": ("half", 2, lambda x: np.repeat(x[:1], 128)),
    "LOAD_BRC_B32": ("float", 4, lambda x: np.repeat(x[:1], 64)),
    "LOAD_US_B8": ("uint8_t", 32, lambda x: np.repeat(x[:128], 2)),
    "LOAD_US_B16": ("int16_t", 32, lambda x: np.repeat(x[:64], 2)),
    "LOAD_DS_B8": ("uint8_t", 32, lambda x: x[:512:2]),
    "LOAD_DS_B16": ("bfloat16_t", 32, lambda x: x[:256:2]),
    "LOAD_UNPACK_B8": ("int8_t", 32, lambda x: behind(x[:128], 1)),
    "LOAD_UNPACK_B16": ("bfloat16_t", 32, lambda x: behind(x[:64], 1)),
    "LOAD_UNPACK_B32": ("uint32_t", 32, lambda x: behind(x[:32], 1)),
    "LOAD_UNPACK4_B8": ("fp8_e4m3fn_t", 32, lambda x: behind(x[:64], 3)),
    "LOAD_BLK": ("int32_t", 32, lambda x: np.tile(x[:8], 8)),
    "LOAD_E2B_B16": ("half", 16, lambda x: np.repeat(x[:8], 16)),
    "LOAD_E2B_B32": ("float", 32, lambda x: np.repeat(x[:8], 8)),
    # Table 6: the even elements, then the odd ones, in two registers.
    "LOAD_DINTLV_B8": ("uint8_t", 32, lambda x: np.concatenate([x[:512:2], x[1:512:2]])),
    "LOAD_DINTLV_B16": ("half", 32, lambda x: np.concatenate([x[:256:2], x[1:256:2]])),
    "LOAD_DINTLV_B32": ("float", 32, lambda x: np.concatenate([x[:128:2], x[1:128:2]])),
}


@pytest.mark.parametrize("op", LOADS)
def test_load_distributions(copies: Source, op: str) -> None:
    type, align, definition = LOADS[op]
    a, d = region(type, 1), region(type, 2)
    for elements in (0, align // a.itemsize or 1, 3 * 32 // a.itemsize):
        check(copies, op, definition(a[elements:]), d, a, at=(elements, 0))


@pytest.mark.parametrize("op", LOADS)
def test_a_load_that_is_not_aligned(copies: Source, op: str) -> None:
    """Table 3, column "alignment": it is reported, and what it should have loaded has no value."""
    type, align, _ = LOADS[op]
    size = dtype_of(type).itemsize
    if align == size:
        return  # any element will do
    _, report = run(copies, op, region(type, 2), region(type, 1), at=(align // size + 1, 0))
    assert [hazard.kind for hazard in report.hazards][0] == "alignment"
    assert f"has to be a multiple of {align}." in report.hazards[0].message


def test_a_load_beyond_the_end(copies: Source) -> None:
    """Elements behind the tensor's end are loaded, as the last part of a row is, and reported where they are used."""
    a, d = region("float", 1), region("float", 2)
    _, report = run(copies, "LOAD_NORM", d, a, at=(REGION // 4 - 32, 0))
    assert [hazard.kind for hazard in report.hazards] == ["out_of_bounds"]
    assert "uses elements 32 to 63 of a register that Reg::LoadAlign at" in report.hazards[0].message
    assert report.hazards[0].location.endswith(f"register_copies.cpp:{line_of(copies, 'Reg::StoreAlign(dst, x, all)')}")
    a, d = region("half", 1), region("half", 2)
    _, report = run(copies, "POST_UPDATE", d, a, times=9)  # nothing of the ninth is in the tensor
    assert [hazard.kind for hazard in report.hazards] == ["out_of_bounds", "out_of_bounds"]
    assert "touches bytes [4096, 4352) of UB, beyond its buffer [2048, 4096)" in report.hazards[0].message


def line_of(kernel: Source, text: str) -> int:
    """The first line of the kernel that holds the text."""
    return next(number for number, line in enumerate(kernel.path.read_text().splitlines(), 1) if text in line)


# ---- Stores ----


def first(x: Array, d: Array, count: int) -> Array:
    return np.concatenate([x[:count], d[count : x.size]])


# Page StoreAlign, table 3: (type, elements that the mask counts, what of x is written). d is dst from its start.
STORES: dict[str, tuple[str, int, Callable[[Array, int], Array]]] = {
    "STORE_NORM": ("half", 128, lambda x, n: x[:n]),
    "STORE_NORM_B8": ("uint8_t", 256, lambda x, n: x[:n]),
    "STORE_NORM_B16": ("int16_t", 128, lambda x, n: x[:n]),
    "STORE_NORM_B32": ("float", 64, lambda x, n: x[:n]),
    "STORE_FIRST_B8": ("int8_t", 256, lambda x, n: x[:1]),
    "STORE_FIRST_B16": ("half", 128, lambda x, n: x[:1]),
    "STORE_FIRST_B32": ("float", 64, lambda x, n: x[:1]),
    "STORE_PACK_B16": ("int8_t", 128, lambda x, n: x[: 2 * n : 2]),
    "STORE_PACK_B32": ("half", 64, lambda x, n: x[: 2 * n : 2]),
    "STORE_PACK4_B32": ("uint8_t", 64, lambda x, n: x[: 4 * n : 4]),
}


@pytest.mark.parametrize("op", STORES)
def test_store_distributions(copies: Source, op: str) -> None:
    type, lanes, definition = STORES[op]
    a, d = region(type, 1)[: VL // dtype_of(type).itemsize], region(type, 2)
    source = np.concatenate([a, region(type, 3)[a.size :]])
    for count in (0, 1, 2, lanes - 1, lanes, lanes + 5, 33):
        check(copies, op, definition(a, min(count, lanes)), d, source, count=count)


def test_a_store_that_is_not_aligned(copies: Source) -> None:
    a, d = region("half", 1), region("half", 2)
    found, report = run(copies, "STORE_NORM", d, a, at=(0, 8))
    assert [hazard.kind for hazard in report.hazards] == ["alignment"]
    assert "starts at byte 16 of UB" in report.hazards[0].message
    np.testing.assert_array_equal(found, d)


def test_a_store_beyond_the_end(copies: Source) -> None:
    a, d = region("half", 1), region("half", 2)
    place = REGION // 2 - 16
    found, report = run(copies, "STORE_NORM", d, a, at=(0, place), count=16)
    assert report.hazards == ()
    np.testing.assert_array_equal(found[place:], a[:16])
    _, report = run(copies, "STORE_NORM", d, a, at=(0, place), count=17)
    assert [hazard.kind for hazard in report.hazards] == ["out_of_bounds"]
    assert "touches bytes [2016, 2050) of UB, beyond its buffer [0, 2048)" in report.hazards[0].message


@pytest.mark.parametrize(("op", "type", "size"), [("B8", "uint8_t", 1), ("B16", "half", 2), ("B32", "float", 4)])
def test_interleaving_stores(copies: Source, op: str, type: str, size: int) -> None:
    """Page StoreAlign, table 6: the mask, here of no element, is ignored."""
    a, b, d = (region(type, seed) for seed in (1, 2, 3))
    check(copies, f"STORE_INTLV_{op}", np.stack([a[: VL // size], b[: VL // size]], 1).ravel(), d, a, b)


def test_addresses_that_move(copies: Source) -> None:
    """Pages LoadAlign (post update) and AddrReg."""
    a, d = region("half", 1), region("half", 2)
    for count in (1, 127, 128, 129, 400, 512):
        check(copies, "POST_UPDATE", a[:count], d, a, count=count, times=-(-count // 128))
    a, d = region("float", 1), region("float", 2)
    check(copies, "ADDRESS_REGISTER", a[:384].reshape(2, 3, 64).swapaxes(0, 1).ravel(), d, a)
    check(copies, "DUAL_UPDATE", a[:384].reshape(-1, 2)[:, ::-1].ravel(), d, a, times=3)


@pytest.mark.parametrize("source_at", [0, 1, 4, 7])
@pytest.mark.parametrize("target_at", [0, 3, 4])
def test_unaligned(copies: Source, source_at: int, target_at: int) -> None:
    """Pages LoadUnAlign and StoreUnAlign, key features 2; a store takes `step` of the 64 elements that were loaded."""
    a, d = region("uint32_t", 1), region("uint32_t", 2)
    for step in (64, 61, 5, 1):
        for times in (1, 2, 6):
            found, report = run(copies, "UNALIGNED", d, a, at=(source_at, target_at), count=step, times=times)
            assert report.hazards == ()
            expected = d.copy()
            for i in range(times):
                part = a[source_at + 64 * i :][:step]
                expected[target_at + step * i :][:step] = part
            np.testing.assert_array_equal(found, expected)


def test_load_and_store_anywhere(copies: Source) -> None:
    """Pages Load and Store: 256 bytes from any address; `count` elements to any."""
    a, d = region("int8_t", 1), region("int8_t", 2)
    for count, source_at, target_at in ((37, 5, 0), (256, 1, 31), (1, 0, 7), (100, 33, 64)):
        found, report = run(copies, "LOAD_STORE", d, a, at=(source_at, target_at), count=count, times=3)
        assert report.hazards == ()
        expected = d.copy()
        expected[target_at : target_at + 3 * count] = a[source_at : source_at + 3 * count]
        np.testing.assert_array_equal(found, expected)


def test_gather(copies: Source) -> None:
    """Page Gather (from UB): places count elements from the base; bytes become 16 bits with 0 above."""
    random = np.random.default_rng(0)
    for op, type, index, lanes in (("HALF", "half", "uint16_t", 128), ("FLOAT", "float", "uint32_t", 64)):
        a, d = region(type, 1), region(type, 2)
        places = random.integers(0, a.size, REGION // dtype_of(index).itemsize).astype(dtype_of(index))
        for count in (lanes, 19):
            expected = np.where(np.arange(lanes) < count, a[places[:lanes]], 0).astype(a.dtype)
            check(copies, f"GATHER_{op}", expected, d, a, places, count=count)
    a, d = region("int8_t", 1), region("int16_t", 2)
    places = random.integers(0, a.size, REGION // 2).astype(np.uint16)
    check(copies, "GATHER_BYTES", a.view(np.uint8)[places[:128]].astype(np.int16), d, a, places)
    places[5] = a.size + 1
    _, report = run(copies, "GATHER_BYTES", d, a, places)
    assert [hazard.kind for hazard in report.hazards][0] == "out_of_bounds"


# ---- Masks ----


def bits_of(lanes: NDArray[np.bool_], size: int) -> Array:
    """The 32 bytes of a mask with the lowest bit of those elements of `size` bytes."""
    bits = np.zeros((lanes.size, size), bool)
    bits[:, 0] = lanes
    return np.packbits(bits.ravel(), bitorder="little")


def test_masks_in_memory(copies: Source) -> None:
    """Pages MaskReg and MaskReg LoadAlign: of four bits of a 32-bit element the lowest counts."""
    bits = np.random.default_rng(5).integers(0, 256, REGION).astype(np.uint8)
    a, d = region("float", 1), region("float", 2)
    on = np.unpackbits(bits[:32], bitorder="little")[::4].astype(bool)
    expected = np.concatenate([np.where(on, a[:64], d[:64]).view(np.uint8), bits[:32]])
    check(copies, "MASK_FROM_MEMORY", expected, d, a, bits)


def test_a_mask_with_gaps(copies: Source) -> None:
    a, d = region("half", 1), region("half", 2)
    on = (np.arange(128) % 3 == 0) & (np.arange(128) < 64)
    check(copies, "MASK_GAPS", np.where(on, a[:128], d[:128]), d, a)


def test_patterns(copies: Source) -> None:
    """Page MaskReg, table 1, for elements of 16 bits; VL128 is all of them."""
    lane = np.arange(128)
    patterns = [lane >= 0, *(lane < n for n in (1, 2, 3, 4, 8, 16, 32, 64, 128)), lane % 3 == 0, lane % 4 == 0]
    patterns += [lane < 64, lane < 32]
    d = region("uint8_t", 2)
    expected = np.concatenate([d[: 32 * 14], d[32 * 14 : 32 * 15], np.zeros(32, np.uint8)])
    expected[: 32 * 14] = np.concatenate([bits_of(on, 2) for on in patterns])
    check(copies, "PATTERNS", expected, d, region("uint8_t", 1))


# ---- Arithmetic ----


@pytest.fixture(scope="module")
def arithmetic(source: type[Source]) -> Source:
    return source("register/register_arithmetic.cpp")


def rounded(x: Array, type: str) -> Array:
    """float64 or integers as the type has them: floats to nearest even, integers wrap around."""
    if type == "bfloat16_t":
        return to_bfloat16(x.astype(np.float32))
    dtype = dtype_of(type)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return x.astype(dtype)
    return x.astype(np.int64).astype(dtype)


def wide(x: Array, type: str) -> Array:
    """Numbers in which sums, products and quotients of two are exact enough to round once: float64 or int64."""
    if type == "bfloat16_t":
        return from_bfloat16(x).astype(np.float64)
    return x.astype(np.float64 if x.dtype.kind == "f" else np.int64)


def quotient(a: Array, b: Array) -> Array:
    """Integers towards zero; 0 for a divisor of 0."""
    if a.dtype.kind == "f":
        return a / b
    safe = np.where(b == 0, 1, b)
    return np.where(b == 0, 0, np.sign(a) * np.sign(safe) * (np.abs(a) // np.abs(safe)))


OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": quotient,
    "Max": np.maximum,
    "Min": np.minimum,
    "And": np.bitwise_and,
    "Or": np.bitwise_or,
    "Xor": np.bitwise_xor,
}
UNARY: dict[str, Callable[[Array], Array]] = {
    "Abs": np.abs,
    "Neg": np.negative,
    "Exp": np.exp,
    "Ln": np.log,
    "Sqrt": np.sqrt,
}


def named(kernel: Source, names: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(op, operation, type) of the opcodes Operation_type."""
    found = [re.fullmatch(r"([A-Z][A-Za-z]+)_(\w+)", op) for op in kernel.opcodes]
    return [(m[0], m[1], m[2]) for m in found if m and m[1] in names and m[2] in NUMPY]


def masked(x: Array, count: int, else_: Array | float = 0) -> Array:
    """MaskMergeMode: ZEROING, or MERGING with what was there."""
    return np.where(np.arange(x.size) < count, x, np.asarray(else_).astype(x.dtype))


def counts(lanes: int) -> tuple[int, ...]:
    return (lanes, lanes - 1, 1, 0, lanes // 2 + 3)


def test_between_registers(arithmetic: Source) -> None:
    cases = named(arithmetic, OPERATIONS)
    assert len(cases) == 28
    for op, operation, type in cases:
        a, b, d = (region(type, seed) for seed in (1, 2, 3))
        if operation == "Div" and a.dtype.kind != "f":
            b[:3] = [0, 1, 3]
        lanes = VL // a.itemsize
        with np.errstate(divide="ignore", invalid="ignore"):
            result = rounded(OPERATIONS[operation](wide(a[:lanes], type), wide(b[:lanes], type)), type)
        for count in counts(lanes):
            check(arithmetic, op, masked(result, count), d, a, b, count=count)


def test_with_a_scalar(arithmetic: Source) -> None:
    cases = named(arithmetic, {f"{name}s": f for name, f in OPERATIONS.items()})
    assert len(cases) == 10
    for op, operation, type in cases:
        a, d = region(type, 1), region(type, 3)
        lanes, scalar = VL // a.itemsize, 3.0
        other = wide(rounded(np.array([scalar]), type), type)
        result = rounded(OPERATIONS[operation[:-1]](wide(a[:lanes], type), other), type)
        for count in counts(lanes):
            check(arithmetic, op, masked(result, count), d, a, count=count, scalar=scalar)


def ulps(found: Array, expected: Array, type: str) -> float:
    """The largest error in units of the last place, where both are finite."""
    exact = expected.astype(np.float64)
    finite = np.isfinite(exact) & np.isfinite(found.astype(np.float64))
    unit = np.spacing(np.abs(exact[finite]).astype(dtype_of(type))).astype(np.float64)
    return float(np.max(np.abs(found[finite].astype(np.float64) - exact[finite]) / unit, initial=0.0))


def test_of_one_register(arithmetic: Source) -> None:
    """Exp, Ln and Sqrt: at most one unit in the last place ([page] of each)."""
    cases = named(arithmetic, UNARY)
    assert len(cases) == 12
    for op, operation, type in cases:
        a, d = region(type, 1), region(type, 3)
        if type == "int8_t":
            a[0] = -128  # page Abs: 128 is cut to -128
        if operation in ("Ln", "Sqrt"):
            a = np.abs(a)
        lanes = VL // a.itemsize
        exact = UNARY[operation](wide(a[:lanes], type))
        for count in counts(lanes):
            found, report = run(arithmetic, op, d, a, count=count)
            assert report.hazards == ()
            if operation in ("Exp", "Ln", "Sqrt"):
                flushed = np.where(np.abs(exact) < np.finfo(a.dtype).tiny, 0, exact)
                assert ulps(found[:count], flushed[:count], type) <= 1.0, op
                assert not found[count:lanes].any()
            else:
                np.testing.assert_array_equal(found[:lanes], masked(rounded(exact, type), count), err_msg=op)


def test_bits_of_one_register(arithmetic: Source) -> None:
    for type, word in (("uint16_t", np.uint16), ("float", np.uint32)):
        a, d = region(type, 1), region(type, 3)
        lanes = VL // a.itemsize
        check(arithmetic, f"Not_{type}", masked(~a.view(word)[:lanes], lanes - 7), d, a, count=lanes - 7)


def test_special_numbers(arithmetic: Source) -> None:
    """Boundary values of the Reg calls, tables 1, 2, 6 to 8; pages Max and Min: +0 above -0."""
    a, d = region("float", 1), region("float", 3)
    a[:7] = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4028235e38, -3.4028235e38]
    found, _ = run(arithmetic, "Exp_float", d, a)
    np.testing.assert_array_equal(found[:7], np.array([1, 1, np.inf, 0, np.nan, np.inf, 0], np.float32))
    found, _ = run(arithmetic, "Ln_float", d, a)
    np.testing.assert_array_equal(found[:5], np.array([-np.inf, -np.inf, np.inf, np.nan, np.nan], np.float32))
    found, _ = run(arithmetic, "Sqrt_float", d, a)
    np.testing.assert_array_equal(found[:5], np.array([0, -0.0, np.inf, np.nan, np.nan], np.float32))
    assert np.signbit(found[1])
    b = a.copy()
    b[:2] = [-0.0, 0.0]
    assert not np.signbit(run(arithmetic, "Max_float", d, a, b)[0][:2]).any()
    assert np.signbit(run(arithmetic, "Min_float", d, a, b)[0][:2]).all()


def test_subnormal_numbers(arithmetic: Source) -> None:
    """Pages Exp, Div, Sqrt: flushed unless the algorithm keeps them; the examples of their tables.

    That of e^-87.3365478515625 has 0x7fffff, 25 units above the exact result, which is taken here.
    """
    a, b, d = region("float", 1), region("float", 2), region("float", 3)
    a[:2] = [-87.3365478515625, -103.2789306640625]
    kept, flushed = run(arithmetic, "EXP_SUBNORMAL", d, a)[0], run(arithmetic, "Exp_float", d, a)[0]
    np.testing.assert_array_equal(kept[:2], np.array([0x007FFFE6, 1], np.uint32).view(np.float32))
    np.testing.assert_array_equal(flushed[:2], 0)
    a[:2] = np.array([0x3F800000, 0x0014440B], np.uint32).view(np.float32)
    b[:2] = np.array([0x8036A794, 0x0053E3CF], np.uint32).view(np.float32)
    kept, flushed = run(arithmetic, "DIV_SUBNORMAL", d, a, b)[0], run(arithmetic, "Div_float", d, a, b)[0]
    np.testing.assert_array_equal(kept[:2].view(np.uint32), [0xFF15E301, 0x3E775FBC])
    assert flushed[0] == -np.inf and np.isnan(flushed[1])
    a[:1] = np.array([0x00776672], np.uint32).view(np.float32)
    assert run(arithmetic, "SQRT_SUBNORMAL", d, np.abs(a))[0].view(np.uint32)[0] == 0x1FF7402B
    assert run(arithmetic, "Sqrt_float", d, np.abs(a))[0][0] == 0


def test_into_dst(arithmetic: Source) -> None:
    """Page MulAddDst: one instruction, rounded once."""
    for type in ("int16_t", "half", "bfloat16_t", "float"):
        a, b, d = (region(type, seed, 1.0) for seed in (1, 2, 3))
        lanes = VL // a.itemsize
        x, y, z = (wide(v[:lanes], type) for v in (a, b, d))
        if type == "float":
            result = torch.addcmul(*(torch.from_numpy(v) for v in (z, x, y))).numpy().astype(np.float32)
        else:
            result = rounded(x * y + z, type)
        for count in counts(lanes):
            check(arithmetic, f"MulAddDst_{type}", masked(result, count), d, a, b, count=count)
    for type in ("half", "float"):
        a, d = region(type, 1), region(type, 3)
        lanes = VL // a.itemsize
        product = rounded(wide(a[:lanes], type) * 1.5, type)
        result = rounded(wide(product, type) + wide(d[:lanes], type), type)
        check(arithmetic, f"Axpy_{type}", masked(result, lanes - 9), d, a, count=lanes - 9, scalar=1.5)


def test_merging(arithmetic: Source) -> None:
    """Page MaskMergeMode: elements that the mask holds back keep what dst had."""
    a, b, d = (region("float", seed) for seed in (1, 2, 3))
    for op, f in (("ADD_MERGING", np.add), ("MAX_MERGING", np.maximum)):
        for count in counts(64):
            check(arithmetic, op, masked(f(a[:64], b[:64]), count, d[:64]), d, a, b, count=count)


def test_exp_of_a_difference(arithmetic: Source) -> None:
    """Page ExpSub: of half the even or the odd elements, by the mask of the sources, as float."""
    for op, type, part in (
        ("float", "float", slice(0, 64)),
        ("half", "half", slice(0, 128, 2)),
        ("odd", "half", slice(1, 128, 2)),
    ):
        a, b, d = region(type, 1), region(type, 2), region("float", 3)
        exact = np.exp((a[part].astype(np.float32) - b[part].astype(np.float32)).astype(np.float64))
        for count in (VL // a.itemsize, 21):
            on = np.arange(VL // a.itemsize)[part] < count
            found, report = run(arithmetic, f"ExpSub_{op}", d, a, b, count=count)
            assert report.hazards == ()
            assert ulps(found[:64][on], exact[on], "float") <= 1.0
            assert not found[:64][~on].any()


def shifted_left(x: Array, by: Array, type: str) -> Array:
    """A signed number keeps its sign bit, the others move below it; by the width and more it is 0."""
    bits, signed = 8 * x.itemsize, type.startswith("i")
    below = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    moved = (x.astype(np.int64) << np.minimum(by, bits)) & below
    moved -= np.where(x.astype(np.int64) < 0, 2 ** (bits - 1), 0)
    return np.where(by >= bits, 0, moved).astype(x.dtype)


def test_shifts(arithmetic: Source) -> None:
    """Pages ShiftLeft and ShiftRight, distances of the width and more as well."""
    for op in ("ShiftLeft_int16_t", "ShiftLeft_uint32_t", "ShiftRight_int32_t", "ShiftRight_uint8_t"):
        type = op.partition("_")[2]
        a, d = region(type, 1), region(type, 3)
        b = np.random.default_rng(4).integers(0, 8 * a.itemsize + 3, a.size).astype(f"int{8 * a.itemsize}")
        lanes = VL // a.itemsize
        x, by = a[:lanes], b[:lanes].astype(np.int64)
        result = shifted_left(x, by, type) if "Left" in op else (x.astype(np.int64) >> by).astype(a.dtype)
        for count in (lanes, lanes - 5):
            check(arithmetic, op, masked(result, count), d, a, b, count=count)


def test_the_pages_own_shifts(arithmetic: Source) -> None:
    """Page ShiftLeft: 1010101010101010 as int16_t, one and three places to the left."""
    a, b = np.full(REGION // 2, 0xAAAA, np.uint16).view(np.int16), np.tile(np.array([1, 3], np.int16), REGION // 4)
    found, _ = run(arithmetic, "ShiftLeft_int16_t", region("int16_t", 3), a, b)
    assert list(found.view(np.uint16)[:2]) == [0b1101010101010100, 0b1101010101010000]


def test_shifts_by_a_scalar(arithmetic: Source) -> None:
    a, d = region("int32_t", 1), region("int32_t", 3)
    check(arithmetic, "ShiftRights", a[:64] >> 23, d, a, at=(23, 0))
    check(arithmetic, "ShiftLefts", shifted_left(a[:64], np.full(64, 3), "int32_t"), d, a, at=(3, 0))
    _, report = run(arithmetic, "ShiftLefts", d, a, at=(-1, 0))
    found = [str(hazard) for hazard in report.hazards if hazard.kind == "argument"]
    assert len(found) == 1 and "Reg::ShiftLefts: scalarValue is -1" in found[0]


@pytest.mark.parametrize(
    ("mode", "holds"),
    [
        ("LT", np.less),
        ("GT", np.greater),
        ("EQ", np.equal),
        ("LE", np.less_equal),
        ("GE", np.greater_equal),
        ("NE", np.not_equal),
    ],
)
def test_comparisons(arithmetic: Source, mode: str, holds: Callable[[Array, Array], NDArray[np.bool_]]) -> None:
    """Pages Compare and Select: bits that the mask holds back are 0, so that src1 is chosen there."""
    a, b, d = (np.rint(region("float", seed)) for seed in (1, 2, 3))
    a[:2], b[1:3] = np.nan, np.nan
    for count in (64, 37):
        on = holds(a[:64], b[:64]) & (np.arange(64) < count)
        expected = np.concatenate(
            [bits_of(on, 4), d.view(np.uint8)[32:256], np.where(on, a[:64], b[:64]).view(np.uint8)]
        )
        check(arithmetic, f"COMPARE_{mode}", expected, d, a, b, count=count)


def test_comparison_with_a_scalar_and_selection(arithmetic: Source) -> None:
    a, d = region("int8_t", 1), region("int8_t", 3)
    check(
        arithmetic, "COMPARES_INT8", bits_of((a[:256] >= -7) & (np.arange(256) < 200), 1), d, a, count=200, scalar=-7.0
    )
    a, b, d = (region("half", seed) for seed in (1, 2, 3))
    check(arithmetic, "SELECT", masked(a[:128], 50, b[:128]), d, a, b, count=50)


def test_logic_of_masks(arithmetic: Source) -> None:
    a, b, d = (region("uint8_t", seed) for seed in (1, 2, 3))
    x, y = (np.unpackbits(v[:32], bitorder="little").astype(bool) for v in (a, b))
    m = np.arange(256) % 3 == 0
    zero, none = np.zeros(128, bool), np.zeros(256, bool)
    spread = [none.copy(), none.copy()]
    spread[0][::2], spread[1][::2] = x[:128], x[128:]
    results = [x & y & m, (x | y) & m, (x ^ y) & m, ~x & m, x & m, np.where(m, x, y)]
    results += [np.concatenate([x[::2], zero]), np.concatenate([zero, x[::2]]), *spread]
    check(arithmetic, "MASK_LOGIC", np.packbits(np.concatenate(results), bitorder="little"), d, a, b)


# ---- Casts ----


@pytest.fixture(scope="module")
def casts(source: type[Source]) -> Source:
    return source("register/register_casts.cpp")


MODES = {
    "UNKNOWN": NONE,
    "CAST_RINT": RINT,
    "CAST_FLOOR": FLOOR,
    "CAST_CEIL": CEIL,
    "CAST_ROUND": ROUND,
    "CAST_TRUNC": TRUNC,
    "CAST_ODD": ODD,
}
LAYOUTS = {"UNKNOWN": 0, "ZERO": 0, "ONE": 1, "TWO": 2, "THREE": 3}
# Significand bits, exponent of the smallest normal number, largest number, what overflow gives without saturation.
FORMATS = {
    "half": (11, -14, 65504.0, np.inf),
    "bfloat16_t": (8, -126, 3.3895313892515355e38, np.inf),
    "float": (24, -126, 3.4028234663852886e38, np.inf),
    "fp8_e4m3fn_t": (4, -6, 448.0, np.nan),
    "fp8_e5m2_t": (3, -14, 57344.0, np.inf),
    "fp4x2_e2m1_t": (2, 0, 6.0, None),
    "fp4x2_e1m2_t": (3, 0, 1.75, None),
}
PACKED = ("fp4x2_e2m1_t", "fp4x2_e1m2_t")


def decoded(x: Array, type: str) -> Array:
    """Stored numbers as float64, of packed ones 512, the low half of a byte first."""
    if type == "bfloat16_t":
        return from_bfloat16(x).astype(np.float64)
    if type.startswith("fp8_e8m0"):
        return np.exp2(x.astype(np.float64) - 127)
    if type.startswith("fp8"):
        kind = torch.float8_e4m3fn if "e4m3" in type else torch.float8_e5m2
        return torch.from_numpy(x.copy()).view(kind).double().numpy()
    if type in PACKED:
        table = [0, 0.5, 1, 1.5, 2, 3, 4, 6] if "e2m1" in type else [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75]
        signed = np.array([*table, *(-v for v in table)])
        return signed[np.stack([x & 15, x >> 4], 1).ravel()]
    return x.astype(np.float64)


def to_type(x: Array, type: str, mode: int, saturate: bool) -> Array:
    """float64 numbers as the type has them, as float64 again. Page Cast, table 4."""
    if type == "fp8_e8m0_t":
        return np.exp2(np.maximum(np.frexp(x)[1] - 1, -127.0))  # the exponent field
    if type not in FORMATS:
        info = np.iinfo(dtype_of(type))
        whole = integral(x, mode)
        if saturate:
            return np.clip(whole, info.min, info.max)
        return whole.astype(np.int64).astype(dtype_of(type)).astype(np.float64)
    bits, least, largest, beyond = FORMATS[type]
    value = to_format(x, mode, bits, least)
    over = np.abs(value) > largest
    limit = (
        np.copysign(largest, x)
        if saturate or beyond is None
        else np.where(np.isnan(beyond), np.nan, np.copysign(np.inf, x))
    )
    inward = np.full(x.shape, mode in (TRUNC, ODD)) | ((mode == FLOOR) & (x > 0)) | ((mode == CEIL) & (x < 0))
    return np.where(over, np.where(inward, np.copysign(largest, x), limit), value)


def placed(x: Array, to: str, source: str, layout: int, count: int, convert: Callable[[Array], Array]) -> Array:
    """Page RegLayout, its pseudo code: which elements are converted where; mask bits are those of the source."""
    size = {t: dtype_of(t).itemsize for t in (to, source)}
    if to in PACKED:
        out, pairs = np.zeros(512), np.arange(64)
        on = np.repeat(2 * pairs < count, 2)
        out[(8 * pairs[:, None] + 2 * layout + np.arange(2)).ravel()] = np.where(on, convert(x[:128]), 0)
        return out
    if source in PACKED:
        pairs = np.arange(64)
        chosen = x[(8 * pairs[:, None] + 2 * layout + np.arange(2)).ravel()]
        return np.where(np.repeat(4 * pairs + layout < count, 2), convert(chosen), 0)
    lanes = VL // max(size.values())
    if size[to] < size[source]:
        out = np.zeros(VL // size[to])
        out[layout :: size[source] // size[to]] = np.where(np.arange(lanes) < count, convert(x[:lanes]), 0)
        return out
    step = size[to] // size[source]
    return np.where(np.arange(lanes) * step + layout < count, convert(x[layout : lanes * step : step]), 0)


def table(kernel: Source) -> list[tuple[str, str, str, str, str, str]]:
    """(op, result, source, layout, saturation, rounding) of the kernel's CASTS."""
    return [tuple(m) for m in re.findall(r"X\((\w+), (\w+), (\w+), (\w+), (\w+), (\w+)\)", kernel.path.read_text())]


def test_casts(casts: Source) -> None:
    rows = table(casts)
    assert [row[0] for row in rows] == list(casts.opcodes)
    for op, to, source, layout, saturation, rounding in rows:
        a = region(source, 1, scale=300.0 if saturation != "UNKNOWN" else 4.0)
        if dtype_of(source).itemsize == 1 and source not in PACKED:
            a[(a & 0x7F) > 0x78] = 0x41  # no infinity, no NaN here
        if source == "float":
            a[::3] *= np.float32(1e-3)
            a[1::7] *= np.float32(1e5)
        if to == "fp8_e8m0_t":
            a &= 0x7FFF
        x = decoded(a[: VL // a.itemsize], source)
        d = region(to, 2)
        saturate = saturation != "NO_SAT"

        def convert(v: Array, to: str = to, mode: int = MODES[rounding], saturate: bool = saturate) -> Array:
            return to_type(v, to, mode, saturate)

        for count in (VL // a.itemsize, VL // a.itemsize - 3, 18, 0):
            found, report = run(casts, op, d, a, count=count, at=(1, 0))
            assert report.hazards == (), op
            expected = placed(x, to, source, LAYOUTS[layout], count, convert)
            if to == "fp8_e8m0_t":  # 0 stands for 2^-127, and for what is not written
                expected = np.where(expected == 0, 2.0**-127, expected)
            np.testing.assert_array_equal(decoded(found[: VL // found.itemsize], to), expected, err_msg=f"{op} {count}")


def test_the_control_register_saturates(casts: Source) -> None:
    """Page Cast, table 5: with CTRL[60] set, as it is by default, CTRL[48] and CTRL[59] decide, and not the trait."""
    a = np.full(REGION // 4, 1e6, np.float32)
    a[:3] = [np.inf, -np.inf, np.nan]
    d = region("half", 2)
    for op, trait in (
        ("float_half_ZERO_NO_SAT_RINT", np.array([np.inf, -np.inf, np.nan, np.inf])),
        ("float_half_ONE_SAT_ODD", np.array([65504, -65504, 0, 65504])),
    ):
        lane = 1 if "ONE" in op else 0
        by_trait, by_register = (
            run(casts, op, d, a, at=(local, 0))[0][lane:128:2][:4].astype(np.float64) for local in (1, 0)
        )
        np.testing.assert_array_equal(by_trait, trait)
        np.testing.assert_array_equal(by_register, [65504, -65504, 0, 65504])
    integer = run(casts, "float_int16_ZERO_NO_SAT_RINT", region("int16_t", 2), a, at=(1, 0))[0]
    np.testing.assert_array_equal(integer[:8:2], [32767, -32768, 0, 1000000 % 65536])
    d = region("uint8_t", 2)
    for keep, expected in ((0, 0.0), (1, np.nan)):
        found = run(casts, "float_fp8_e4m3fn_ZERO_SAT_RINT", d, a, at=(0, keep))[0]
        np.testing.assert_array_equal(decoded(found[8:9], "fp8_e4m3fn_t"), [expected])


# ---- Within a register ----


@pytest.fixture(scope="module")
def layouts(source: type[Source]) -> Source:
    return source("register/register_layouts.cpp")


def tree(x: Array) -> Any:
    """Page Reduce, order of a sum: neighbours, each sum rounded to the type."""
    while x.size > 1:
        x = x[::2] + x[1::2]
    return x[0]


REDUCTIONS = {
    "SUM_FLOAT": ("float", "float"),
    "SUM_HALF": ("half", "half"),
    "SUM_INT16": ("int32_t", "int16_t"),
    "SUM_UINT32": ("uint32_t", "uint32_t"),
    "MAX_FLOAT": ("float", "float"),
    "MAX_HALF": ("half", "half"),
    "MAX_UINT16": ("uint16_t", "uint16_t"),
    "MIN_FLOAT": ("float", "float"),
    "MIN_HALF": ("half", "half"),
    "MIN_INT32": ("int32_t", "int32_t"),
}


def extreme(x: Array, kind: str) -> int:
    """The first NaN, else the first of the largest or smallest."""
    if np.isnan(x.astype(np.float64)).any():
        return int(np.flatnonzero(np.isnan(x.astype(np.float64)))[0])
    return int(x.argmax() if kind == "MAX" else x.argmin())


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions(layouts: Source, op: str) -> None:
    to, source = REDUCTIONS[op]
    a, d = region(source, 1), region(to, 3)
    a[7], a[3] = a[5], a[5]  # equals: the first counts
    lanes = VL // a.itemsize
    for count in (lanes, lanes - 1, 6, 1):
        expected = np.zeros(VL // d.itemsize, d.dtype)
        if op.startswith("SUM"):
            expected[0] = tree(masked(a[:lanes], count).astype(d.dtype))
        else:
            place = extreme(a[:count], op[:3])
            expected[0] = a[place]
            expected.view(np.uint32 if d.itemsize == 4 else np.uint16)[1] = place
        check(layouts, op, expected, d, a, count=count)


def test_reductions_of_special_numbers(layouts: Source) -> None:
    """Page Reduce: the first NaN; max(-0, +0) is +0, min -0; of no elements the ends of the type."""
    a, d = np.full(REGION // 4, -0.0, np.float32), region("float", 3)
    a[9] = 0.0
    found, _ = run(layouts, "MAX_FLOAT", d, a)
    assert not np.signbit(found[0]) and found.view(np.uint32)[1] == 9
    found, _ = run(layouts, "MIN_FLOAT", d, -a)
    assert np.signbit(found[0]) and found.view(np.uint32)[1] == 9
    a[20], a[30] = np.nan, np.nan
    found, _ = run(layouts, "MIN_FLOAT", d, a)
    assert np.isnan(found[0]) and found.view(np.uint32)[1] == 20
    assert run(layouts, "MAX_UINT16", region("uint16_t", 3), region("uint16_t", 1), count=0)[0][0] == 0
    assert run(layouts, "MIN_INT32", region("int32_t", 3), region("int32_t", 1), count=0)[0][0] == 2**31 - 1
    assert run(layouts, "SUM_FLOAT", d, a, count=0)[0][0] == 0


def test_reductions_of_blocks_and_pairs(layouts: Source) -> None:
    """Pages ReduceDataBlock and PairReduceElem; behind the results 0."""
    for op, type in (
        ("BLOCK_SUM_FLOAT", "float"),
        ("BLOCK_SUM_HALF", "half"),
        ("BLOCK_MAX_HALF", "half"),
        ("BLOCK_MIN_INT16", "int16_t"),
    ):
        a, d = region(type, 1), region(type, 3)
        lanes = VL // a.itemsize
        for count in (lanes, lanes - 2):
            expected = np.zeros(lanes, a.dtype)
            hidden = {"SUM": 0, "MAX": -np.inf, "MIN": np.iinfo(np.int16).max}[op[6:9]]
            blocks = masked(a[:lanes], count, np.float64(hidden) if type != "int16_t" else hidden).reshape(8, -1)
            expected[:8] = [tree(x) if "SUM" in op else x[extreme(x, op[6:9])] for x in blocks]
            check(layouts, op, expected, d, a, count=count)
    for type in ("float", "half"):
        a, d = region(type, 1), region(type, 3)
        lanes = VL // a.itemsize
        pairs = masked(a[:lanes], lanes - 3).reshape(-1, 2)
        expected = np.concatenate([pairs[:, 0] + pairs[:, 1], np.zeros(lanes // 2, a.dtype)])
        check(layouts, f"PAIR_{type.upper()}", expected, d, a, count=lanes - 3)


def test_order_of_elements(layouts: Source) -> None:
    """Pages Interleave and DeInterleave, here in place, Gather (of a register), Squeeze, Move."""
    for op, type, apart in (
        ("INTERLEAVE_HALF", "half", False),
        ("INTERLEAVE_FLOAT", "float", False),
        ("DEINTERLEAVE_INT8", "int8_t", True),
        ("DEINTERLEAVE_FLOAT", "float", True),
    ):
        a, b, d = (region(type, seed) for seed in (1, 2, 3))
        lanes = VL // a.itemsize
        both = np.concatenate([a[:lanes], b[:lanes]])
        expected = both.reshape(-1, 2).T.ravel() if apart else both.reshape(2, -1).T.ravel()
        check(layouts, op, expected, d, a, b)
    a, d = region("half", 1), region("half", 3)
    places = region("uint16_t", 2)
    check(layouts, "GATHER_REGISTER", a[places[:128] % 128], d, a, places)
    a, d = region("float", 1), region("float", 3)
    check(layouts, "SQUEEZE", np.concatenate([a[:64:3], np.zeros(64 - 22, np.float32)]), d, a)
    check(layouts, "MOVE", masked(a[:64], 13, d[:64]), d, a, count=13)


def test_filling(layouts: Source) -> None:
    """Pages Duplicate and Arange: down, the scalar comes last; integers wrap around."""
    a, d = region("half", 1), region("half", 3)
    value = np.full(128, 2.5, np.float16)
    check(layouts, "DUPLICATE", value, d, a, scalar=2.5)
    check(layouts, "DUPLICATE_MERGING", masked(value, 77, d[:128]), d, a, scalar=2.5, count=77)
    check(layouts, "DUPLICATE_FIRST", masked(np.full(128, a[0]), 77), d, a, count=77)
    check(layouts, "ARANGE_DOWN", (5 + np.arange(128)[::-1]).astype(np.float16), d, a, at=(5, 0))
    check(
        layouts, "ARANGE_UP", np.arange(64, dtype=np.int32) - 9, region("int32_t", 3), region("int32_t", 1), at=(-9, 0)
    )
    wrapped = (100 + np.arange(256)).astype(np.int8)
    check(layouts, "ARANGE_BYTES", wrapped, region("int8_t", 3), region("int8_t", 1), at=(100, 0))
