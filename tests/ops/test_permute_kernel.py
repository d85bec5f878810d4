"""Kernels that move rows to their experts and back, on the emulator: cases, edges, tilings, refusals."""

from __future__ import annotations

import math
import struct

import pytest
import torch
from torch import Tensor

from ascend_k3 import ops
from ascend_k3.ops import kernel_cases
from ascend_k3.ops.errors import BackendError
from ascend_k3.ops.fused_experts import permute_tokens, unpermute_tokens
from ascend_k3.ops.fused_experts.kernel.cases import pairs
from ascend_k3.ops.fused_experts.kernel.launch import PERMUTE, UNPERMUTE
from ascend_k3.ops.soc import NAMES, soc
from tests.tolerances import RELATIVE_RMS, assert_close_rms

SOCS = ("a3", "950pr")
CASES = kernel_cases.cases("fused_experts")


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases(case: kernel_cases.Case, chip: str) -> None:
    outcome = kernel_cases.run(case, chip)
    assert [str(hazard) for report in outcome.reports for hazard in report.hazards] == []
    assert outcome.error <= (0.0 if case.exact else RELATIVE_RMS[case.dtype])
    assert not case.judged or outcome.bytes_ratio <= kernel_cases.MOST_BYTES
    assert outcome.reports


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def bits(value: Tensor) -> Tensor:
    return value.contiguous().view(torch.uint8)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize("chip", SOCS)
def test_rows_are_moved_bit_for_bit(chip: str, kind: torch.dtype) -> None:
    x, ids = random(0, 50, 33).bfloat16(), pairs(50, 4, 9, 5).to(kind)
    x[3], x[7, 0], x[9] = math.nan, math.inf, -0.0
    expected = permute_tokens(x, ids, 9)
    with ops.backend("emulator", soc=chip):
        found = permute_tokens(x, ids, 9)
    for value, right in zip(found, expected, strict=True):
        assert value.dtype == right.dtype and torch.equal(bits(value), bits(right))


@pytest.mark.parametrize("chip", SOCS)
def test_uneven_experts(chip: str) -> None:
    x = random(0, 70, 8)
    for ids in (
        torch.zeros(70, 3, dtype=torch.int64),  # all to one
        torch.full((70, 3), -1),  # all dropped
        torch.full((70, 3), 199),  # all to the last
        torch.arange(210).view(70, 3) % 200,
    ):
        expected = permute_tokens(x, ids, 200)
        with ops.backend("emulator", soc=chip):
            found = permute_tokens(x, ids, 200)
        assert all(torch.equal(value, right) for value, right in zip(found, expected, strict=True))


@pytest.mark.parametrize("chip", SOCS)
def test_hard_numbers_come_back_as_by_the_reference(chip: str) -> None:
    rows, weights = random(0, 60, 40), random(1, 20, 3)
    rows[5, 3], rows[6, 4], rows[7, 5] = math.inf, -math.inf, math.nan
    rows[:, 9], rows[:, 11], rows[:, 13] = 0.0, 1e30 * rows[:, 11], 1e-30 * rows[:, 13]
    weights[0], weights[1, 1], weights[2, 2] = 0.0, math.nan, math.inf
    places = torch.randperm(60, generator=torch.Generator().manual_seed(2)).view(20, 3).to(torch.int32)
    places[3], places[4, 0], places[1, 1] = -1, -1, -1  # with it goes the weight that is NaN
    expected = unpermute_tokens(rows, weights, places)
    with ops.backend("emulator", soc=chip):
        y = unpermute_tokens(rows, weights, places)
    assert torch.equal(y.isnan(), expected.isnan()) and torch.equal(y.isinf(), expected.isinf())
    assert torch.equal(y[3], torch.zeros(40)) and not y[1, [0, 1, 2]].isnan().any()
    for column in range(40):
        finite = expected[:, column].isfinite()
        assert_close_rms(y[finite, column], expected[finite, column], f"column {column}", RELATIVE_RMS[torch.float32])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_there_and_back_is_the_identity(dtype: torch.dtype) -> None:
    x, ids = random(0, 130, 70).to(dtype), pairs(130, 1, 40, 0)
    with ops.backend("emulator"):
        rows, places, _ = permute_tokens(x, ids, 40)
        assert torch.equal(unpermute_tokens(rows, torch.ones(130, 1), places), x)


def test_weights_in_half_precision_and_inputs_that_are_not_contiguous() -> None:
    x, ids = random(0, 6, 40).t(), pairs(40, 2, 5, 3).t().contiguous().t()
    expected = permute_tokens(x, ids, 5)
    weights = random(1, 40, 2).bfloat16()
    y = unpermute_tokens(expected[0], weights, expected[1])
    with ops.backend("emulator"):
        found = permute_tokens(x, ids, 5)
        assert all(torch.equal(value, right) for value, right in zip(found, expected, strict=True))
        back = unpermute_tokens(found[0].t().contiguous().t(), weights, found[1].t().contiguous().t())
    assert_close_rms(back, y, "y", RELATIVE_RMS[torch.float32])


@pytest.mark.parametrize("chip", SOCS)
def test_results_are_the_same_in_every_order_of_the_pipes_and_cores(chip: str) -> None:
    x, ids, weights = random(0, 112, 40), pairs(112, 3, 20, 7), random(1, 112, 3)

    def outputs(**options: int) -> list[Tensor]:
        with ops.backend("emulator", soc=chip, **options):
            rows, places, counts = permute_tokens(x, ids, 20)
            return [rows, places, counts, unpermute_tokens(rows, weights, places)]

    first = outputs()
    for options in ({}, *({"seed": seed} for seed in range(10))):
        assert all(torch.equal(a, b) for a, b in zip(outputs(**options), first, strict=True)), options


def test_few_tokens_are_cut_into_columns() -> None:
    """Three tokens of 3584 columns keep more than three cores busy."""
    tiling = UNPERMUTE.tile_for((3, 16, 3584, 2, 2), chip=soc("a3"))
    assert tiling.block_dim > 30
    rows, weights = random(0, 6, 3584), random(1, 3, 2)
    places = torch.arange(6, dtype=torch.int32).view(3, 2)
    expected = unpermute_tokens(rows, weights, places)
    with ops.backend("emulator"):
        assert_close_rms(unpermute_tokens(rows, weights, places), expected, "y", RELATIVE_RMS[torch.float32])


def test_nothing_to_do_launches_nothing() -> None:
    none = torch.empty(0, 2, dtype=torch.int64)
    with ops.backend("emulator") as run:
        rows, places, counts = permute_tokens(torch.empty(0, 8), none, 3)
        assert rows.shape == (0, 8) and places.shape == (0, 2) and counts.tolist() == [0, 0, 0]
        rows, places, counts = permute_tokens(torch.zeros(4, 8), torch.empty(4, 0, dtype=torch.int64), 3)
        assert rows.shape == (0, 8) and places.shape == (4, 0) and counts.tolist() == [0, 0, 0]
        assert torch.equal(unpermute_tokens(rows, torch.empty(4, 0), places), torch.zeros(4, 8))
        dropped = torch.full((4, 2), -1, dtype=torch.int32)
        assert torch.equal(unpermute_tokens(torch.empty(0, 8), torch.ones(4, 2), dropped), torch.zeros(4, 8))
        assert unpermute_tokens(torch.empty(3, 0), torch.ones(4, 2), dropped).shape == (4, 0)
    assert not run.calls


THERE, BACK = struct.Struct("<3q6I"), struct.Struct("<2q4I")


@pytest.mark.parametrize("chip", NAMES)
def test_tilings_fit_and_cover_everything(chip: str) -> None:
    device = soc(chip)
    for tokens in (1, 2, 47, 49, 512, 131072):
        for top_k in (1, 8, 16):
            for width in (1, 100, 3584, 7168, 12288):
                for element in (2, 4):
                    for experts in (1, 8, 896, 1500):
                        tiling = PERMUTE.tile_for((tokens, top_k, experts, width * element), chip=device)
                        _, a_core, _, pitch, _, _, buckets, part, rows = THERE.unpack(tiling.data)
                        cores = tiling.block_dim
                        assert cores <= device.vector_cores and a_core * cores >= tokens > a_core * (cores - 1)
                        assert part * cores >= buckets > experts and part % 8 == 0 and pitch >= width * element
                        assert tiling.workspace == cores * buckets * 4
                        places = -(-rows * top_k // 8) * 8
                        used = 2 * rows * pitch + 2 * places * 4 + 3 * buckets * 4 + cores * part * 4 + pitch
                        assert used <= device.usable_ub
                    for out in {element, 2}:
                        tiling = UNPERMUTE.tile_for((tokens, top_k, width, element, out), chip=device)
                        jobs, a_core, _, _, block, blocks = BACK.unpack(tiling.data)
                        assert jobs == tokens * blocks and block * blocks >= width > block * (blocks - 1)
                        assert tiling.block_dim <= device.vector_cores and a_core * tiling.block_dim >= jobs
                        floats = (4 if element != 4 else 0) + (4 if out != 4 else 0)
                        assert block * (2 * (element + out) + floats) + 256 <= device.usable_ub


def test_what_the_kernels_do_not_take_is_refused() -> None:
    x, ids, places = torch.zeros(2, 8), torch.zeros(2, 1, dtype=torch.int64), torch.zeros(2, 1, dtype=torch.int32)
    with ops.backend("emulator") as run:
        with pytest.raises(ValueError, match="permute_tokens: x is torch.float64; its kernel takes float32"):
            permute_tokens(x.double(), ids, 3)
        with pytest.raises(ValueError, match="rows of 400000 bytes and counts of 3 experts do not fit into UB"):
            permute_tokens(torch.zeros(2, 100_000), ids, 3)
        with pytest.raises(ValueError, match="unpermute_tokens: weights is torch.float64; its kernel takes float32"):
            unpermute_tokens(x, torch.zeros(2, 1).double(), places)
        with pytest.raises(
            ValueError, match="rows are torch.bfloat16 and the result is to be torch.float32; the kernel gives"
        ):
            unpermute_tokens(x.bfloat16(), torch.zeros(2, 1), places, dtype=torch.float32)
    assert not run.calls
    for sizes in ((0, 1, 1, 4), (1, 0, 1, 4), (1, 1, 0, 4), (1, 1, 1, 0)):
        with pytest.raises(ValueError, match="all have to be at least 1"):
            PERMUTE.tile_for(sizes, chip=soc("a3"))
    with pytest.raises(ValueError, match="200000000 tokens with 16 experts each are more pairs than an int32 counts"):
        PERMUTE.tile_for((200_000_000, 16, 896, 4), chip=soc("a3"))
    with pytest.raises(ValueError, match="0 tokens of 8 columns; both have to be at least 1"):
        UNPERMUTE.tile_for((0, 1, 8, 4, 4), chip=soc("a3"))


def test_gradients_come_from_the_reference_where_that_is_allowed() -> None:
    def gradients() -> list[Tensor]:
        x, weights = random(0, 6, 8).requires_grad_(), random(1, 6, 2).requires_grad_()
        rows, places, _ = permute_tokens(x, pairs(6, 2, 5, 0), 5)
        return list(torch.autograd.grad(unpermute_tokens(rows, weights, places).square().sum(), (x, weights)))

    expected = gradients()
    with ops.backend("emulator", missing="reference"):
        for found, right in zip(gradients(), expected, strict=True):
            torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)
    with ops.backend("emulator"), pytest.raises(BackendError, match="unpermute_tokens_backward has no Ascend C kernel"):
        gradients()
