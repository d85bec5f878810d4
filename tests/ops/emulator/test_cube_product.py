"""Mmad behind every way of loading: layouts, types, tails, bias, accumulation, GEMV, HF32, unit flags."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ascend_k3.ops import emulator
from tests.ops.emulator.cube_oracle import Array, from_bfloat16, from_fp8, hifloat8, nz, to_bfloat16, to_fp8
from tests.tolerances import RELATIVE_RMS, relative_rms

KERNELS = Path(__file__).parent / "kernels"
FIELDS = "type m n k parts turned_a turned_b loader start unit_flag barrier hf32 nz_input no_gemv store".split()
HALF, BF16, FLOAT, INT8, E4M3, E4M3_E5M2, E5M2_E4M3, E5M2, HIF8 = range(9)
SOCS = ("a3", "950pr")
BIAS, SOURCE, FROM_CO1 = 1, 2, 3


@cache
def kernel(soc: str) -> emulator.Kernel:
    return emulator.build(KERNELS / "cube_product.cpp", entry="cube_product", soc=soc)


def packed(fields: dict[str, int]) -> bytes:
    return struct.pack(f"<{len(FIELDS)}i", *(fields.get(name, 0) for name in FIELDS))


def numbers(rng: np.random.Generator, shape: tuple[int, int], type: int, right: bool) -> tuple[Array, Array]:
    """Numbers as they lie in memory and their values; small whole numbers, so that sums in float32 are exact."""
    whole: Array = rng.integers(-4, 5, shape).astype(np.float32)
    if type == INT8:
        whole = rng.integers(-128, 128, shape).astype(np.float32)
        return whole.astype(np.int8), whole
    if type in (HALF, FLOAT):
        return whole.astype(np.float16 if type == HALF else np.float32), whole
    if type == BF16:
        return to_bfloat16(whole), whole
    if type == HIF8:
        table = hifloat8()
        codes = rng.choice(np.flatnonzero(np.isfinite(table) & (np.abs(table) <= 4) & (np.abs(table) >= 0.25)), shape)
        return codes.astype(np.uint8), table[codes]
    format = "e4m3" if type in ((E4M3, E5M2_E4M3) if right else (E4M3, E4M3_E5M2)) else "e5m2"
    bits = to_fp8(whole, format)
    return bits, from_fp8(bits, format)


def product(
    soc: str, type: int, m: int, n: int, k: int, seed: int | None = None, **fields: int
) -> tuple[Array, Array, Any]:
    """What the kernel gives, what numpy gives, and the report."""
    rng = np.random.default_rng(m * 1000003 + n * 1009 + k + type)
    a, a_values = numbers(rng, (m, k), type, False)
    b, b_values = numbers(rng, (k, n), type, True)
    result = np.int32 if type == INT8 else np.float32
    bias = rng.integers(-1000, 1000, 512).astype(result)
    expected = (a_values.astype(np.float64) @ b_values.astype(np.float64)).astype(result)
    if fields.get("start", 0) in (BIAS, SOURCE):
        expected = expected + bias[:n]
    c = np.zeros((m, n), result)
    stored_a = np.ascontiguousarray(a.T) if fields.get("turned_a") else a
    stored_b = np.ascontiguousarray(b.T) if fields.get("turned_b") else b
    if fields.get("nz_input"):
        c0 = 32 // a.itemsize
        high = 32 if a.itemsize == 1 else 16
        stored_a = nz(
            np.pad(stored_a, ((0, -stored_a.shape[0] % (high if fields.get("turned_a") else 16)), (0, 0))), c0
        )
        stored_b = nz(
            np.pad(stored_b, ((0, -stored_b.shape[0] % (16 if fields.get("turned_b") else high)), (0, 0))), c0
        )
    if m == 1 and not fields.get("no_gemv"):
        stored_a = np.pad(stored_a, ((0, 0), (0, 512)))
    call = packed({"type": type, "m": m, "n": n, "k": k, "parts": 1, "store": 1, **fields})
    report = kernel(soc).launch(
        1, stored_a, stored_b, c, bias, call, outputs=[2] if fields.get("store", 1) else [], seed=seed
    )
    return c, expected, report


def check(soc: str, type: int, m: int, n: int, k: int, **fields: int) -> Any:
    c, expected, report = product(soc, type, m, n, k, **fields)
    assert report.hazards == ()
    np.testing.assert_array_equal(c, expected)
    return report


# Page "Key fractal formats": L1 Nz, L0A Zz on Atlas A2 and A3 and Nz on Ascend 950, L0B Zn. Page "Constraints of matrix
# loads", tables 5: which call loads A and B as they are and transposed.
@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("turned_a", (0, 1))
@pytest.mark.parametrize("turned_b", (0, 1))
@pytest.mark.parametrize("type", (HALF, BF16, FLOAT, INT8))
def test_product_of_every_type_in_every_orientation(soc: str, turned_a: int, turned_b: int, type: int) -> None:
    by_image = soc == "a3" and type == FLOAT and (turned_a or not turned_b)
    for m, n, k in ((64, 96, 128), (40, 50, 70), (17, 33, 15)):  # page Mmad: tails of a fractal are ignored
        check(soc, type, m, n, k, turned_a=turned_a, turned_b=turned_b, loader=int(by_image))


# Page LoadData (3D): with a 1 x 1 filter the expanded matrix is the Nz matrix; L0B is always transposed. On dav-3510
# 8-bit types are transposed as well, on dav-2201 b16 and b32.
@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", (HALF, BF16, FLOAT, INT8))
def test_load_3d_as_a_matrix_loader(soc: str, type: int) -> None:
    for turned_a in (0, 1):
        if soc == "a3" and type == INT8:
            continue
        for m, n, k in ((48, 64, 96), (40, 50, 70), (24, 17, 9)):
            check(soc, type, m, n, k, turned_a=turned_a, loader=1)


@pytest.mark.parametrize("type", (E4M3, E4M3_E5M2, E5M2_E4M3, E5M2, HIF8))
def test_eight_bit_floats(type: int) -> None:
    """Page Mmad, table 5: fp8 in all four pairs, hifloat8 with itself, to float."""
    for turned_a, turned_b in ((0, 0), (0, 1), (1, 0)):
        check("950pr", type, 40, 50, 70, turned_a=turned_a, turned_b=turned_b)


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", (HALF, FLOAT, INT8))
def test_nd2nz_is_the_nz_of_the_pages_formula(soc: str, type: int) -> None:
    """Nz made by numpy and copied as it is loads as ND2NZ's."""
    by_image = int(soc == "a3" and type == FLOAT)
    for turned in (0, 1):
        check(soc, type, 40, 50, 70, turned_a=turned, turned_b=1 - turned, nz_input=1, loader=by_image)


# Page Mmad: cmatrixInitVal, cmatrixSource, "with bias the source of C's initial value is where the bias lies".
@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", (HALF, FLOAT, INT8))
@pytest.mark.parametrize("start", (BIAS, SOURCE, FROM_CO1))
def test_initial_value_of_c(soc: str, type: int, start: int) -> None:
    check(soc, type, 40, 48, 64, turned_b=1, start=start, parts=2 if start == FROM_CO1 else 1, barrier=1)


@pytest.mark.parametrize("soc", SOCS)
def test_small_products_in_one_tile_need_a_barrier(soc: str) -> None:
    """Page Mmad, "synchronization": PipeBarrier(PIPE_M) when (m / 16) * (n / 16) < 10; not for larger products."""
    check(soc, HALF, 64, 64, 128, parts=4)
    check(soc, HALF, 160, 16, 64, parts=2)
    check(soc, HALF, 32, 64, 128, parts=4, barrier=1)
    _, _, report = product(soc, HALF, 32, 64, 128, parts=4)
    assert {h.kind for h in report.hazards} == {"race"}
    assert any("PipeBarrier<PIPE_M> between them is missing" in h.message for h in report.hazards)
    _, _, report = product(soc, HALF, 159, 31, 64, parts=2)  # 9 * 1 in whole numbers
    assert {h.kind for h in report.hazards} == {"race"}


# Page GEMV: with m = 1 A is k consecutive numbers; the vector C has its n numbers in the first row of each fractal.
@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("type", (HALF, BF16, FLOAT))
def test_gemv(soc: str, type: int) -> None:
    for n, k in ((32, 256), (50, 200), (128, 70)):
        check(soc, type, 1, n, k, turned_b=1)


def test_gemv_switched_off() -> None:
    """Page GEMV, Ascend 950: disableGemv; then A lies in fractals, as for every other m."""
    for n, k in ((32, 256), (50, 72)):
        check("950pr", HALF, 1, n, k, turned_b=1, no_gemv=1)


@pytest.mark.parametrize("soc, mantissa", (("a3", 11), ("950pr", 10)))
def test_hf32(soc: str, mantissa: int) -> None:
    """Page HF32: float operands are rounded to fewer bits of mantissa before the product (Ascend 950: 10)."""
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((16, 32), np.float32), np.eye(32, dtype=np.float32)
    a[0, :4] = np.array(
        [1 + 2.0 ** -(mantissa + 1), 1 + 3 * 2.0 ** -(mantissa + 1), -1 - 2.0 ** -(mantissa + 1), 1 + 2.0**-23]
    )
    for mode in (1, 2):
        c = np.zeros((16, 32), np.float32)
        call = packed({"type": FLOAT, "m": 16, "n": 32, "k": 32, "parts": 1, "store": 1, "turned_b": 1, "hf32": mode})
        report = kernel(soc).launch(1, a, b, c, np.zeros(512, np.float32), call, outputs=[2])
        assert report.hazards == ()
        unit = np.exp2(np.floor(np.log2(np.abs(a.astype(np.float64)))) - mantissa)
        scaled = a / unit
        expected = np.rint(scaled) if mode == 1 else np.copysign(np.ceil(np.abs(scaled) - 0.5), a)
        np.testing.assert_array_equal(c, (expected * unit).astype(np.float32))


@pytest.mark.parametrize("soc", SOCS)
def test_order_of_the_tiles_changes_no_number(soc: str) -> None:
    """Page SetMMColumnMajor, SetMMRowMajor: which direction is first, not what comes out."""
    check(soc, HALF, 48, 64, 32, hf32=3)
    check(soc, HALF, 48, 64, 64, hf32=3, parts=2, unit_flag=1)


@pytest.mark.parametrize("soc", SOCS)
def test_real_numbers(soc: str) -> None:
    """bfloat16 and float, k of 256 in pieces, to the tolerance of float32 sums."""
    for type in (BF16, FLOAT):
        rng = np.random.default_rng(11)
        values = [rng.standard_normal(shape).astype(np.float32) for shape in ((64, 256), (48, 256))]
        stored = [to_bfloat16(v) for v in values] if type == BF16 else values
        if type == BF16:
            values = [from_bfloat16(v) for v in stored]
        c = np.zeros((64, 48), np.float32)
        call = packed({"type": type, "m": 64, "n": 48, "k": 256, "parts": 4, "store": 1, "turned_b": 1})
        report = kernel(soc).launch(1, stored[0], stored[1], c, np.zeros(512, np.float32), call, outputs=[2])
        assert report.hazards == ()
        expected = values[0].astype(np.float64) @ values[1].astype(np.float64).T
        assert relative_rms(torch.from_numpy(c), torch.from_numpy(expected)) < RELATIVE_RMS[torch.float32]


@pytest.mark.parametrize("soc", SOCS)
def test_unit_flags_order_mmad_and_fixpipe(soc: str) -> None:
    """Page UnitFlag: 2 for all but the last Mmad along k, 3 for it and for the Fixpipe: no M_FIX event is needed."""
    report = check(soc, HALF, 64, 64, 128, parts=4, unit_flag=1)
    assert report.ok
    for seed in range(4):
        c, expected, report = product(soc, HALF, 64, 64, 128, parts=4, unit_flag=1, seed=seed)
        assert report.hazards == ()
        np.testing.assert_array_equal(c, expected)


def test_unit_flags_left_set() -> None:
    """Page UnitFlag: the flags that Mmad sets are cleared by a Fixpipe with 3; left set, the next Mmad would hang."""
    _, _, report = product("a3", HALF, 64, 64, 64, unit_flag=1, store=0)
    assert [h.kind for h in report.hazards] == ["leftover_flag"]


@pytest.mark.parametrize("soc", SOCS)
def test_any_schedule_gives_the_same_bits(soc: str) -> None:
    c, _, _ = product(soc, BF16, 40, 50, 72, parts=3, barrier=1)
    for seed in range(5):
        again, _, report = product(soc, BF16, 40, 50, 72, parts=3, barrier=1, seed=seed)
        assert report.hazards == ()
        np.testing.assert_array_equal(again, c)


@pytest.mark.parametrize("soc", SOCS)
def test_cost(soc: str) -> None:
    """Bytes of every path and multiply-adds by type, as ops/soc.py names them."""
    report = check(soc, HALF, 64, 96, 128, turned_b=1)
    counters = {name: entry for core in report.data["cores"] for name, entry in core["counters"].items()}
    assert counters["GM->L1"]["amount"] == (64 * 128 + 128 * 96) * 2
    assert counters["L1->L0A"]["amount"] == 64 * 128 * 2
    assert counters["L1->L0B"]["amount"] == 128 * 96 * 2
    assert counters["L0C->GM"]["amount"] == 64 * 96 * 4
    assert counters["fp16"]["amount"] == 64 * 96 * 128
    report = check(soc, INT8, 17, 33, 15, turned_b=1)
    counters = {name: entry for core in report.data["cores"] for name, entry in core["counters"].items()}
    assert (counters["int8"]["amount"], counters["int8"]["repeats"]) == (17 * 33 * 15, 32 * 48 * 32)
