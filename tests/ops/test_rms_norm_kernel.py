"""The norms' kernels on the emulator: their cases, hard inputs, schedules, tilings, gradients, refusals."""

from __future__ import annotations

import math
import struct

import pytest
import torch
from torch import Tensor

from ascend_k3 import ops
from ascend_k3.ops import kernel_cases
from ascend_k3.ops.errors import BackendError
from ascend_k3.ops.rms_norm import rms_norm, rms_norm_gated
from ascend_k3.ops.rms_norm.kernel.launch import DTYPES, RMS_NORM, RMS_NORM_GATED
from ascend_k3.ops.soc import NAMES, soc
from tests.ops.kernel_checks import SOCS, assert_case, assert_repeatable, mutated, on_emulator
from tests.tolerances import RELATIVE_RMS, assert_close_rms

EPS = 1e-5


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("case", kernel_cases.cases("rms_norm"), ids=lambda case: case.name)
def test_cases(case: kernel_cases.Case, chip: str) -> None:
    assert_case(case, chip)


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("case", mutated("rms_norm"), ids=lambda case: case.name)
def test_runs_and_schedules_give_the_same_bits(case: kernel_cases.Case, chip: str) -> None:
    assert_repeatable(case, chip)


def hard_rows(dtype: torch.dtype, width: int) -> Tensor:
    """Zeros, tiny and huge numbers, infinities and NaN, alone and among others, between ordinary rows."""
    huge = 6e4 if dtype == torch.float16 else 1e25  # its square is no float32
    rows = torch.randn(9, width, generator=torch.Generator().manual_seed(width))
    rows[0] = 0
    rows[1] *= 1e-7 if dtype == torch.float16 else 1e-30
    rows[3] = huge
    rows[4, width // 2] = huge
    rows[5, 0] = math.inf
    rows[6, width - 1] = math.nan
    rows[7] = -math.inf
    return rows.to(dtype)


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [100, 300])
def test_hard_inputs_are_those_of_the_reference(width: int, dtype: torch.dtype, chip: str) -> None:
    x, weight = hard_rows(dtype, width), torch.linspace(-1, 2, width).to(dtype)
    gate = torch.linspace(-120, 120, width).to(dtype).expand(9, -1).contiguous()
    gate[2, 3], gate[2, 4], gate[8, 5] = math.inf, -math.inf, math.nan
    close = {"rtol": 4 * torch.finfo(dtype).eps, "atol": torch.finfo(dtype).smallest_normal, "equal_nan": True}
    for call in (lambda: rms_norm(x, weight, eps=EPS), lambda: rms_norm_gated(x, gate, weight, eps=EPS)):
        expected, (found,) = call(), on_emulator(call, chip)
        torch.testing.assert_close(found, expected, **close)
        assert expected.isnan().any() and not expected[2, :3].isnan().any()


def test_the_plain_norm_rounds_twice_and_the_gated_one_once() -> None:
    source = torch.Generator().manual_seed(3)
    x, weight = torch.randn(40, 96, generator=source).bfloat16(), torch.randn(96, generator=source).bfloat16()
    normalized = x.float() / (x.float().square().mean(-1, keepdim=True) + EPS).sqrt()
    twice, once = (normalized.bfloat16() * weight, (normalized * weight.float()).bfloat16())
    (y,) = on_emulator(lambda: rms_norm(x, weight, eps=EPS))
    (gated,) = on_emulator(lambda: rms_norm_gated(x, torch.zeros_like(x), weight, eps=EPS))
    assert not torch.equal(once, twice)
    assert torch.equal(y, twice) and torch.equal(gated, once / 2)


def test_shapes_of_any_rank_strides_and_no_elements() -> None:
    source = torch.Generator().manual_seed(4)
    x, gate = torch.randn(2, 3, 7, 20, generator=source).transpose(1, 3)
    weight = torch.randn(6, generator=source)[::2]
    for call in (lambda: rms_norm(x, weight, eps=EPS), lambda: rms_norm_gated(x, gate, weight, eps=EPS)):
        (y,) = on_emulator(call)
        assert y.shape == x.shape and y.is_contiguous()
        assert_close_rms(y, call(), "y", RELATIVE_RMS[torch.float32])
    for shape in ((0, 5), (3, 0), (2, 0, 4)):
        empty, row = torch.zeros(shape), torch.zeros(shape[-1])
        assert on_emulator(lambda: rms_norm(empty, row, eps=EPS))[0].shape == shape  # noqa: B023
        assert on_emulator(lambda: rms_norm_gated(empty, empty, row, eps=EPS))[0].shape == shape  # noqa: B023


# ---- Tilings ----


def tiling(kernel, rows: int, width: int, element: int, chip: str) -> tuple[int, ...]:
    """rows_a_core, pitch, rows_a_tile and blocks, the fields of the C++ struct."""
    found = kernel.tile_for((rows, width, element, 2 if kernel is RMS_NORM else 3), (EPS,), soc(chip))
    total, rows_a_core, columns, pitch, rows_a_tile, eps = struct.unpack("qqIIIf", found.data)
    assert (total, columns) == (rows, width) and eps == pytest.approx(EPS)
    return rows_a_core, pitch, rows_a_tile, found.block_dim


def buffer_bytes(kernel, width: int, pitch: int, rows: int, element: int) -> int:
    """UB that the kernel's InitBuffer calls take."""
    sizes, tile = [], rows * pitch
    inputs = 1 if kernel is RMS_NORM else 2
    sizes += [inputs * tile * element] * 2 + [tile * element] * 2 + [pitch * element]
    if element == 2:
        sizes += [inputs * tile * 4, pitch * 4]
    short = width <= 256
    eights = -(-rows // 8) * 8
    sizes += [(rows * 64 if short else pitch) * 4, eights * 4, eights * 32]
    if not short:
        sizes.append(-(-pitch // 64) * 4)
    return sum(-(-size // 32) * 32 for size in sizes)


@pytest.mark.parametrize("chip", NAMES)
@pytest.mark.parametrize("kernel", [RMS_NORM, RMS_NORM_GATED], ids=lambda kernel: kernel.entry)
def test_tilings_cover_the_rows_and_fit(kernel, chip: str) -> None:
    cores, room = soc(chip).vector_cores, soc(chip).usable_ub
    for element in (2, 4):
        for width in (1, 7, 8, 16, 17, 128, 255, 256, 257, 512, 1000, 2048, 3584, 7168):
            if width == 7168 and kernel is RMS_NORM_GATED:  # it is for heads
                continue
            for rows in (1, 2, 47, 48, 49, 64, 65, 1000, 96 * 4096, 2**33):
                rows_a_core, pitch, rows_a_tile, blocks = tiling(kernel, rows, width, element, chip)
                assert pitch >= width and pitch * element % 32 == 0
                assert 1 <= rows_a_tile <= rows_a_core and rows_a_tile <= 4095
                assert 1 <= blocks <= cores and (blocks - 1) * rows_a_core < rows <= blocks * rows_a_core
                assert buffer_bytes(kernel, width, pitch, rows_a_tile, element) <= room


def widest(kernel, element: int, chip: str) -> int:
    low, high = 1, 10**6
    while high - low > 1:
        middle = (low + high) // 2
        try:
            tiling(kernel, 3, middle, element, chip)
            low = middle
        except ValueError:
            high = middle
    return low


@pytest.mark.parametrize("chip", NAMES)
@pytest.mark.parametrize("kernel", [RMS_NORM, RMS_NORM_GATED], ids=lambda kernel: kernel.entry)
@pytest.mark.parametrize("element", [2, 4])
def test_the_widest_row_fits_and_the_next_is_refused(kernel, element: int, chip: str) -> None:
    width = widest(kernel, element, chip)
    _, pitch, rows_a_tile, _ = tiling(kernel, 3, width, element, chip)
    assert width > (7168 if kernel is RMS_NORM else 3584)
    assert buffer_bytes(kernel, width, pitch, rows_a_tile, element) <= soc(chip).usable_ub
    with pytest.raises(
        ValueError, match=f"{kernel.entry} on {chip}: a row of {width + 1} elements does not fit into UB"
    ):
        tiling(kernel, 3, width + 1, element, chip)


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_the_widest_row_is_computed(dtype: torch.dtype, chip: str) -> None:
    source = torch.Generator().manual_seed(6)
    for kernel in (RMS_NORM, RMS_NORM_GATED):
        x, gate, weight = torch.randn(3, 3, widest(kernel, dtype.itemsize, chip), generator=source).to(dtype)

        def call() -> Tensor:
            if kernel is RMS_NORM:  # noqa: B023
                return rms_norm(x, weight[0], eps=EPS)  # noqa: B023
            return rms_norm_gated(x, gate, weight[0], eps=EPS)  # noqa: B023

        assert_close_rms(on_emulator(call, chip)[0], call(), "y", RELATIVE_RMS[dtype])


# ---- Gradients and refusals ----


def test_gradients_come_from_the_reference_where_that_is_allowed() -> None:
    source = torch.Generator().manual_seed(5)
    values = [torch.randn(shape, generator=source, requires_grad=True) for shape in ((5, 40), (5, 40), (40,))]
    x, gate, weight = values
    expected = torch.autograd.grad(rms_norm_gated(x, gate, weight, eps=EPS).square().sum(), values)
    with ops.backend("emulator", missing="reference") as run:
        found = torch.autograd.grad(rms_norm_gated(x, gate, weight, eps=EPS).square().sum(), values)
    assert [(call.name, call.backend) for call in run.calls] == [
        ("rms_norm_gated", "emulator"),
        ("rms_norm_gated_backward", "reference"),
    ]
    for value, right in zip(found, expected, strict=True):
        assert_close_rms(value, right, "gradient", RELATIVE_RMS[torch.float32])
    with (
        ops.backend("emulator"),
        pytest.raises(BackendError, match="rms_norm_backward has no Ascend C kernel, so the emulator cannot run it"),
    ):
        rms_norm(x, weight, eps=EPS).sum().backward()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, w: rms_norm(x.double(), w.double(), eps=EPS), "rms_norm: x is torch.float64; its kernel takes"),
        (lambda x, w: rms_norm(x, w.half(), eps=EPS), "rms_norm: weight is torch.float16 and x is torch.float32"),
        (
            lambda x, w: rms_norm_gated(x, x.bfloat16(), w, eps=EPS),
            "rms_norm_gated: gate is torch.bfloat16 and x is torch.float32; the kernel takes one dtype",
        ),
    ],
    ids=["float64", "dtype of weight", "dtype of gate"],
)
def test_refuses(call, message: str) -> None:
    with ops.backend("emulator"), pytest.raises(ValueError, match=message):
        call(torch.zeros(2, 8), torch.zeros(8))
