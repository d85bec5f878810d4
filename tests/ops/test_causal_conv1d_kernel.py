"""Kernels of the causal convolution on the emulator: their cases, hard numbers, windows, tilings, refusals."""

from __future__ import annotations

import math
import struct

import pytest
import torch
from torch import Tensor

from ascend_k3 import ops
from ascend_k3.ops import kernel_cases
from ascend_k3.ops.causal_conv1d import causal_conv1d, causal_conv1d_update
from ascend_k3.ops.causal_conv1d.kernel.cases import prefill, step
from ascend_k3.ops.causal_conv1d.kernel.launch import CAUSAL_CONV1D, UPDATE
from ascend_k3.ops.errors import BackendError
from ascend_k3.ops.soc import NAMES, soc
from tests.tolerances import RELATIVE_RMS, assert_close_rms

SOCS = ("a3", "950pr")
CASES = kernel_cases.cases("causal_conv1d")


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases(case: kernel_cases.Case, chip: str) -> None:
    outcome = kernel_cases.run(case, chip)
    assert [str(hazard) for report in outcome.reports for hazard in report.hazards] == []
    assert outcome.error <= RELATIVE_RMS[case.dtype]
    assert not case.judged or outcome.bytes_ratio <= kernel_cases.MOST_BYTES
    assert outcome.reports


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def same(value: Tensor, expected: Tensor) -> None:
    """As far as an operator may be off, element by element, NaN and infinities in the same places."""
    torch.testing.assert_close(value, expected, rtol=2e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("activation", ["silu", None])
@pytest.mark.parametrize("chip", SOCS)
def test_hard_numbers_stay_where_they_are(chip: str, activation: str | None) -> None:
    x = random(0, 1, 40, 20)
    x[0, 10, 3], x[0, 20, 5], x[0, 30, 7] = math.inf, -math.inf, math.nan
    x[0, :, 9] = 0.0
    x[0, :, 11] *= 1e30
    x[0, :, 13] *= 1e-30
    x[0, 39, 15] = -1e4  # the sigmoid is 0 there
    window = random(1, 1, 20, 3)
    window[0, 17, 1] = math.nan
    weight = random(2, 20, 1, 4)
    expected = causal_conv1d(x, weight, window, activation=activation)
    with ops.backend("emulator", soc=chip):
        y, next_window = causal_conv1d(x, weight, window, activation=activation)
    assert torch.equal(y.isnan(), expected[0].isnan())
    infinite = expected[0].isinf()
    assert torch.equal(y.isinf(), infinite) and torch.equal(y[infinite], expected[0][infinite])
    for channel in range(20):  # each of its own magnitude
        finite = expected[0][0, :, channel].isfinite()
        values = y[0, finite, channel], expected[0][0, finite, channel]
        assert_close_rms(*values, f"channel {channel}", RELATIVE_RMS[torch.float32])
    torch.testing.assert_close(next_window, expected[1], rtol=0, atol=0, equal_nan=True)
    assert int(y.isnan().any(1).sum()) >= 2 and torch.equal(y[0, 3:, 9], torch.zeros(37))


@pytest.mark.parametrize("lengths", [[0, 1, 0, 2, 3, 4, 100, 0], [64, 0, 64, 0], [63, 65], [65, 63]], ids=str)
@pytest.mark.parametrize("chip", SOCS)
def test_next_windows_are_the_last_inputs_bit_for_bit(chip: str, lengths: list[int]) -> None:
    """Also where a core's part of the tokens, 64 of them, ends with a sequence or beside its end."""
    expected = prefill(lengths, 33, 4, True, torch.bfloat16)
    with ops.backend("emulator", soc=chip) as run:
        found = prefill(lengths, 33, 4, True, torch.bfloat16)
    assert torch.equal(found[1], expected[1]) and len(run.calls[0].report.data["cores"]) == 2
    assert_close_rms(found[0], expected[0], "y", RELATIVE_RMS[torch.bfloat16])


@pytest.mark.parametrize("offsets", [torch.int32, torch.int64])
def test_a_batch_equals_the_same_sequences_packed_and_windows_default_to_zero(offsets: torch.dtype) -> None:
    x, weight = random(0, 3, 21, 40), random(1, 40, 1, 4)
    cu_seqlens = torch.tensor([0, 21, 42, 63], dtype=offsets)
    with ops.backend("emulator"):
        y, window = causal_conv1d(x, weight)
        packed_y, packed_window = causal_conv1d(x.view(1, 63, 40), weight, torch.zeros(3, 40, 3), cu_seqlens)
    assert torch.equal(y.view(1, 63, 40), packed_y) and torch.equal(window, packed_window)
    same(y, causal_conv1d(x, weight)[0])


def test_split_equals_one_shot_and_token_by_token() -> None:
    x, weight, window = random(0, 1, 30, 40).bfloat16(), random(1, 40, 1, 4), random(2, 1, 40, 3).bfloat16()
    with ops.backend("emulator"):
        y, last = causal_conv1d(x, weight, window)
        first, carried = causal_conv1d(x[:, :11], weight, window)
        second, split_last = causal_conv1d(x[:, 11:], weight, carried)
        pool = torch.cat((window, window))
        steps = [causal_conv1d_update(x[0, t : t + 1], weight, pool, torch.tensor([1])) for t in range(30)]
    assert torch.equal(torch.cat((first, second), 1), y) and torch.equal(split_last, last)
    assert torch.equal(torch.cat(steps), y[0]) and torch.equal(pool[1:], last)
    assert torch.equal(pool[:1], window)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("chip", SOCS)
def test_padding_rows_give_zeros_and_touch_no_slot(chip: str, dtype: torch.dtype) -> None:
    x, weight, pool = random(0, 6, 40).to(dtype), random(1, 40, 1, 4), random(2, 5, 40, 3).to(dtype)
    x[1] = math.nan
    slots = torch.tensor([4, -1, 0, -1, 2, 1], dtype=torch.int32)
    expected_pool = pool.clone()
    expected = causal_conv1d_update(x, weight, expected_pool, slots)
    address = pool.data_ptr()
    with ops.backend("emulator", soc=chip):
        y = causal_conv1d_update(x, weight, pool, slots)
    assert torch.equal(y[[1, 3]], torch.zeros(2, 40, dtype=dtype)) and pool.data_ptr() == address
    assert torch.equal(pool, expected_pool)
    assert_close_rms(y, expected, "y", RELATIVE_RMS[dtype])


def test_inputs_that_are_not_contiguous() -> None:
    x, weight, pool = random(0, 40, 9).t(), random(1, 4, 1, 40).permute(2, 1, 0), random(2, 3, 40, 9).permute(2, 1, 0)
    assert not x.is_contiguous() and not weight.is_contiguous() and not pool.is_contiguous()
    expected_pool, slots = pool.clone(), torch.arange(18)[::2] // 2
    expected = causal_conv1d_update(x, weight, expected_pool, slots)
    whole = causal_conv1d(x[None], weight, pool[:1])
    with ops.backend("emulator"):
        same(causal_conv1d(x[None], weight, pool[:1])[0], whole[0])
        y = causal_conv1d_update(x, weight, pool, slots)
    same(y, expected)
    assert torch.equal(pool, expected_pool)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_weight_of_the_dtype_of_x(dtype: torch.dtype) -> None:
    x, weight, pool = random(0, 1, 9, 40).to(dtype), random(1, 40, 1, 4).to(dtype), random(2, 9, 40, 3).to(dtype)
    expected = causal_conv1d(x, weight)[0], causal_conv1d_update(x[0], weight, pool.clone(), torch.arange(9))
    with ops.backend("emulator"):
        assert_close_rms(causal_conv1d(x, weight)[0], expected[0], "y", RELATIVE_RMS[dtype])
        y = causal_conv1d_update(x[0], weight, pool, torch.arange(9))
    assert_close_rms(y, expected[1], "y of the step", RELATIVE_RMS[dtype])


@pytest.mark.parametrize("chip", SOCS)
def test_results_are_the_same_in_every_order_of_the_pipes(chip: str) -> None:
    def outputs(**options: int) -> list[Tensor]:
        with ops.backend("emulator", soc=chip, **options):
            return [
                *prefill((150, 0, 7), 100, 4, True, torch.bfloat16),
                *step(70, 100, 4, (3,), torch.bfloat16),
            ]

    first = outputs()
    for options in ({}, *({"seed": seed} for seed in range(10))):
        assert all(torch.equal(a, b) for a, b in zip(outputs(**options), first, strict=True)), options


def test_nothing_to_do_launches_nothing() -> None:
    weight, window = random(1, 40, 1, 4), random(2, 2, 40, 3)
    with ops.backend("emulator") as run:
        y, last = causal_conv1d(torch.empty(1, 0, 40), weight, window, torch.tensor([0, 0, 0]))
        assert y.shape == (1, 0, 40) and torch.equal(last, window) and last.data_ptr() != window.data_ptr()
        assert torch.equal(causal_conv1d(torch.empty(3, 0, 40), weight)[1], torch.zeros(3, 40, 3))
        assert causal_conv1d_update(torch.empty(0, 40), weight, window, torch.empty(0, dtype=torch.int64)).shape == (
            0,
            40,
        )
    assert not run.calls


FIELDS = struct.Struct("<5q8I")


def prefill_bytes(data: bytes, element: int, weight: int) -> int:
    """UB that the kernel's InitBuffer calls take."""
    _, _, channels, _, _, taps, block, _, _, rows, *_ = FIELDS.unpack(data)
    lanes = 32 // element
    pitch = -(-min(block, channels) // lanes) * lanes
    shared = [pitch * taps * weight, pitch * taps * 4, *[pitch * 4] * 3, *[pitch * (taps - 1) * 4] * 2]
    shared += [pitch * taps * weight] if weight != 4 else []
    own = [(rows + 2 * (taps - 1)) * pitch * element] * 2 + [(rows + taps - 1) * pitch * element] * 2
    own += [(rows + taps - 1) * pitch * 4, rows * pitch * 4] if element != 4 else []
    return sum(-(-size // 32) * 32 for size in shared + own)


def step_bytes(data: bytes, element: int, weight: int) -> int:
    _, _, channels, _, _, taps, block, _, _, rows, *_ = FIELDS.unpack(data)
    lanes = 32 // element
    pitch = -(-min(block, channels) // lanes) * lanes
    shared = [pitch * taps * weight, pitch * taps * 4, *[pitch * 4] * 3, *[pitch * (taps - 1) * 4] * 2]
    shared += [pitch * taps * weight] if weight != 4 else []
    own = [(2 * taps - 1) * rows * pitch * element] * 2 + [taps * rows * pitch * element] * 2
    own += [taps * rows * pitch * 4, rows * pitch * 4] if element != 4 else []
    return sum(-(-size // 32) * 32 for size in shared + own)


@pytest.mark.parametrize("chip", NAMES)
def test_tilings_fit_and_cover_everything(chip: str) -> None:
    device = soc(chip)
    for rows in (1, 2, 63, 64, 65, 1000, 131072):
        for channels in (1, 15, 16, 17, 64, 255, 256, 257, 768, 2304, 12288, 36864, 100_001):
            for taps in (2, 3, 4, 7, 16):
                for element, weight in ((4, 4), (2, 4), (2, 2)):
                    for entry, sizes, used in (
                        (CAUSAL_CONV1D, (rows, channels, taps, 1, 0, element, weight, 1, 1), prefill_bytes),
                        (UPDATE, (rows, channels, taps, element, weight, 1), step_bytes),
                    ):
                        tiling = entry.tile_for(sizes, chip=device)
                        total, part, width, _, _, _, block, parts, jobs, tile, *_ = FIELDS.unpack(tiling.data)
                        assert (total, width) == (rows, channels) and 1 <= tiling.block_dim <= device.vector_cores
                        assert part * parts >= rows > part * (parts - 1) and block * (jobs // parts) >= channels
                        assert jobs % parts == 0 and 1 <= tile <= 240 and tiling.block_dim <= jobs
                        assert used(tiling.data, element, weight) <= device.usable_ub


def test_most_taps_that_fit_run_and_more_are_refused() -> None:
    device = soc("a3")

    def accepted(taps: int) -> bool:
        try:
            return bool(CAUSAL_CONV1D.tile_for((3, 300, taps, 1, 3, 4, 4, 0, 0), chip=device))
        except ValueError:
            return False

    most = max(taps for taps in range(2, 80) if accepted(taps))
    x, weight = random(0, 1, 3, 300), random(1, 300, 1, most)
    expected = causal_conv1d(x, weight, activation=None)
    with ops.backend("emulator"):
        found = causal_conv1d(x, weight, activation=None)
    same(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    with (
        ops.backend("emulator"),
        pytest.raises(ValueError, match=rf"{most + 1} taps on \d+ channels at a time do not fit"),
    ):
        causal_conv1d(x, random(1, 300, 1, most + 1))
    with ops.backend("emulator"), pytest.raises(ValueError, match="90 taps on 256 channels at a time do not fit"):
        causal_conv1d_update(random(0, 3, 36864), random(1, 36864, 1, 90), random(2, 3, 36864, 89), torch.arange(3))
    with pytest.raises(ValueError, match="x has 0 tokens of 3 channels in 1 sequences; all have to be at least 1"):
        CAUSAL_CONV1D.tile_for((0, 3, 4, 1, 0, 4, 4, 0, 0), chip=device)
    with pytest.raises(ValueError, match="x has 3 rows of 0 channels; both have to be at least 1"):
        UPDATE.tile_for((3, 0, 4, 4, 4, 0), chip=device)


def test_what_the_kernels_are_not_built_for_is_refused() -> None:
    x, weight, pool = random(0, 1, 5, 8), random(1, 8, 1, 4), random(2, 5, 8, 3)
    with ops.backend("emulator") as run:
        with pytest.raises(ValueError, match="causal_conv1d: x is torch.float64; its kernel takes float32"):
            causal_conv1d(x.double(), weight)
        with pytest.raises(
            ValueError, match="weight is torch.bfloat16; the kernel takes float32, or torch.float32 as x is"
        ):
            causal_conv1d(x, weight.bfloat16())
        with pytest.raises(ValueError, match="causal_conv1d_update: windows is torch.bfloat16 and x is torch.float32"):
            causal_conv1d_update(x[0], weight, pool.bfloat16(), torch.arange(5))
    assert not run.calls


def test_gradients_come_from_the_reference_where_that_is_allowed() -> None:
    def gradients(**options: str) -> list[Tensor]:
        x, weight = random(0, 1, 9, 8).requires_grad_(), random(1, 8, 1, 4).requires_grad_()
        with ops.backend("emulator", **options):
            y = causal_conv1d(x, weight)[0]
        return list(torch.autograd.grad(y.square().sum(), (x, weight)))

    x, weight = random(0, 1, 9, 8).requires_grad_(), random(1, 8, 1, 4).requires_grad_()
    expected = torch.autograd.grad(causal_conv1d(x, weight)[0].square().sum(), (x, weight))
    for found, right in zip(gradients(missing="reference"), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)
    with pytest.raises(BackendError, match="causal_conv1d_backward has no Ascend C kernel"):
        gradients()
