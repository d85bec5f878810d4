"""The routing kernel on the emulator: its cases, ties, NaN, tilings, refusals."""

from __future__ import annotations

import math
import struct

import pytest
import torch
from torch import Tensor

from ascend_k3 import ops
from ascend_k3.ops import kernel_cases
from ascend_k3.ops.errors import BackendError
from ascend_k3.ops.route import route
from ascend_k3.ops.route.kernel.cases import APART, separated
from ascend_k3.ops.route.kernel.launch import ROUTE
from ascend_k3.ops.soc import NAMES, soc
from tests.tolerances import RELATIVE_RMS, assert_close_rms

SOCS = ("a3", "950pr")
CASES = kernel_cases.cases("route")


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases(case: kernel_cases.Case, chip: str) -> None:
    outcome = kernel_cases.run(case, chip)  # an id that is not the reference's is an infinite error
    assert [str(hazard) for report in outcome.reports for hazard in report.hazards] == []
    assert outcome.error <= RELATIVE_RMS[case.dtype]
    assert not case.judged or outcome.bytes_ratio <= kernel_cases.MOST_BYTES
    assert outcome.reports


def check(logits: Tensor, bias: Tensor, chip: str = "a3", **options: float) -> tuple[Tensor, Tensor]:
    """The kernel's answer, whose ids are the reference's and whose weights are near them."""
    weights, ids = route(logits, bias, **options)  # type: ignore[arg-type]
    with ops.backend("emulator", soc=chip):
        found_weights, found_ids = route(logits, bias, **options)  # type: ignore[arg-type]
    assert torch.equal(found_ids, ids)
    torch.testing.assert_close(found_weights, weights, rtol=2e-6, atol=1e-9, equal_nan=True)
    return found_weights, found_ids


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize(("experts", "top_k"), [(5, 5), (40, 17), (129, 30), (500, 64), (896, 16)])
def test_ties_go_to_the_lowest_index(experts: int, top_k: int, chip: str) -> None:
    source = torch.Generator().manual_seed(experts)
    values = torch.tensor([-2.0, -0.5, 0.0, 1.0, 3.0])
    logits = values[torch.randint(5, (6, experts), generator=source)]
    bias = torch.tensor([-2.0, 0.0, 0.25])[torch.randint(3, (experts,), generator=source)]
    logits[0] = 1.0  # all the same
    ids = check(logits, bias, chip, top_k=top_k)[1]
    sums = torch.sigmoid(logits) + bias
    for row, chosen in zip(sums.tolist(), ids.tolist(), strict=True):
        assert chosen == sorted(range(experts), key=lambda expert, row=row: -row[expert])[:top_k]  # type: ignore[misc]
    _, ids = check(torch.ones(2, experts), torch.zeros(experts), chip, top_k=top_k)
    assert ids.tolist() == [list(range(top_k))] * 2


@pytest.mark.parametrize("chip", SOCS)
def test_nan_is_the_largest_and_shows_in_its_row_alone(chip: str) -> None:
    logits, bias = separated(6, 200, 4, torch.float32)
    logits, bias = logits.clone(), bias.clone()
    logits[1, [70, 150]] = math.nan
    logits[3] = math.nan
    logits[4, 9] = -math.nan
    bias[20], bias[190] = math.inf, -math.inf  # a NaN ties with a bias of infinity
    weights, ids = check(logits, bias, chip, top_k=4)
    assert ids[1, :3].tolist() == [20, 70, 150] and ids[3].tolist() == [0, 1, 2, 3] and ids[4, :2].tolist() == [9, 20]
    assert weights[[1, 3, 4]].isnan().all() and not weights[[0, 2, 5]].isnan().any()


@pytest.mark.parametrize("chip", SOCS)
def test_huge_logits_and_closed_experts(chip: str) -> None:
    logits = torch.tensor([[1e30, -1e30, 200.0, -200.0, 0.0, math.inf], [-math.inf] * 6])
    bias = torch.tensor([0.0, 0.0, 0.0, 0.0, -math.inf, -10.0])
    weights, ids = check(logits, bias, chip, top_k=4)
    assert ids.tolist() == [[0, 2, 1, 3], [0, 1, 2, 3]]
    assert torch.equal(weights, torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.0] * 4]))


@pytest.mark.parametrize("chip", SOCS)
def test_scores_below_the_normal_numbers_keep_their_order(chip: str) -> None:
    logits = torch.tensor([[-88.0, -87.6, -88.5, -87.9]])  # sigmoids from 3.7e-39 to 9.1e-39
    _, ids = check(logits, torch.zeros(4), chip, top_k=3, renormalize=False)
    assert ids.tolist() == [[1, 3, 0]]


@pytest.mark.parametrize("top_k", [1, 2, 15, 16, 17, 31, 32, 33, 63, 64])
def test_every_number_of_chosen_experts(top_k: int) -> None:
    for experts in (64, 128, 129, 257, 1152):
        check(*separated(3, experts, top_k, torch.float32), top_k=top_k)


def test_whatever_comes_close_the_chosen_are_among_the_largest() -> None:
    """Random logits: ids may differ from the reference's where sums are nearer to each other than `APART` only."""
    source = torch.Generator().manual_seed(0)
    logits, bias = torch.randn(300, 896, generator=source), 0.1 * torch.randn(896, generator=source)
    expected = route(logits, bias, top_k=16)[1]
    with ops.backend("emulator"):
        ids = route(logits, bias, top_k=16)[1]
    sums = torch.sigmoid(logits.double()) + bias.double()
    assert (sums.gather(1, ids) - sums.gather(1, expected)).abs().max() < APART
    assert (ids == expected).all(1).float().mean() > 0.98


def test_a_token_alone_equals_the_token_in_a_batch() -> None:
    logits, bias = separated(100, 300, 7, torch.float32)
    with ops.backend("emulator"):
        weights, ids = route(logits, bias, top_k=7)
        pieces = [route(piece, bias, top_k=7) for piece in logits.split([1, 40, 59])]
    assert torch.equal(weights, torch.cat([piece[0] for piece in pieces]))
    assert torch.equal(ids, torch.cat([piece[1] for piece in pieces]))


@pytest.mark.parametrize("chip", SOCS)
def test_results_are_the_same_in_every_order_of_the_pipes(chip: str) -> None:
    logits, bias = separated(66, 1100, 30, torch.float32)

    def outputs(**options: int) -> tuple[Tensor, Tensor]:
        with ops.backend("emulator", soc=chip, **options):
            return route(logits, bias, top_k=30)

    first = outputs()
    for options in ({}, *({"seed": seed} for seed in range(10))):
        assert all(torch.equal(a, b) for a, b in zip(outputs(**options), first, strict=True)), options


def test_inputs_that_are_not_contiguous_and_a_wide_bias() -> None:
    logits, bias = separated(9, 40, 6, torch.float32)
    check(logits.t().contiguous().t(), bias.repeat_interleave(2)[::2], top_k=6)
    check(logits, bias.double(), top_k=6)


def test_no_token_launches_nothing() -> None:
    with ops.backend("emulator") as run:
        weights, ids = route(torch.empty(0, 8), torch.zeros(8), top_k=2)
    assert weights.shape == ids.shape == (0, 2) and not run.calls


FIELDS = struct.Struct("<2q7If")


def used_bytes(data: bytes, element: int) -> int:
    """UB that the kernel's InitBuffer calls take."""
    _, _, experts, pitch, _, _, chosen, rows, _, _ = FIELDS.unpack(data)
    in_row = -(-experts * element // 32) * 32
    eights = -(-rows // 8) * 8
    sizes = [rows * in_row] * 2 + [experts * 4] + [rows * chosen * (8 + element)] * 2 + [pitch * 4] * 2 + [32]
    sizes += [rows * pitch * 4] * 2 + [rows * pitch // 8] + [rows * pitch * 8] * 2 + [rows * chosen * 4] * 4
    return sum(-(-size // 32) * 32 for size in [*sizes, eights * 4, eights * 32])


@pytest.mark.parametrize("chip", NAMES)
def test_tilings_fit_and_cover_everything(chip: str) -> None:
    device = soc(chip)
    accepted = 0
    for tokens in (1, 2, 47, 48, 49, 512, 131072):
        for experts in (1, 8, 64, 100, 128, 129, 384, 896, 1024, 2048, 4096, 5000, 8064):
            for top_k in (1, 8, 16, 33, 64):
                for element in (2, 4):
                    try:
                        tiling = ROUTE.tile_for((tokens, experts, top_k, element, 1), (1.0,), device)
                    except ValueError as error:
                        assert top_k > experts or "do not fit into UB" in str(error), error
                        continue
                    accepted += 1
                    total, a_core, _, pitch, _, _, _, rows, _, _ = FIELDS.unpack(tiling.data)
                    assert total == tokens and a_core * tiling.block_dim >= tokens > a_core * (tiling.block_dim - 1)
                    assert tiling.block_dim <= device.vector_cores and pitch >= experts and rows * pitch // 64 <= 255
                    assert used_bytes(tiling.data, element) <= device.usable_ub
    assert accepted > 500


def test_what_the_kernel_does_not_take_is_refused() -> None:
    logits, bias = torch.zeros(2, 100), torch.zeros(100)
    with ops.backend("emulator") as run:
        with pytest.raises(ValueError, match="route on a3: top_k is 65; the kernel chooses at most 64 experts"):
            route(logits, bias, top_k=65)
        with pytest.raises(ValueError, match="there are 9000 experts; the kernel takes at most 8064"):
            route(torch.zeros(1, 9000), torch.zeros(9000), top_k=2)
        with pytest.raises(ValueError, match="the scores of 8000 experts do not fit into UB"):
            route(torch.zeros(1, 8000), torch.zeros(8000), top_k=2)
        with pytest.raises(ValueError, match="route: logits is torch.float64; its kernel takes float32"):
            route(logits.double(), bias, top_k=2)
    assert not run.calls


def test_gradients_come_from_the_reference_where_that_is_allowed() -> None:
    logits, bias = separated(4, 20, 3, torch.float32)
    direction = torch.arange(3.0)

    def gradient(value: Tensor) -> Tensor:
        return torch.autograd.grad((route(value, bias, top_k=3)[0] * direction).sum(), value)[0]

    expected = gradient(logits.clone().requires_grad_())
    with ops.backend("emulator", missing="reference"):
        assert_close_rms(gradient(logits.clone().requires_grad_()), expected, "gradient", RELATIVE_RMS[torch.float32])
    with ops.backend("emulator"), pytest.raises(BackendError, match="route_backward has no Ascend C kernel"):
        gradient(logits.clone().requires_grad_())
