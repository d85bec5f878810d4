"""Kernels of Attention Residuals on the emulator: the cases, one pass, hard inputs, determinism, tiling, refusals."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from ascend_k3.ops import backends, kernel_cases
from ascend_k3.ops.attention_residual import (
    AttentionResidualStats,
    attention_residual,
    attention_residual_prepare,
    attention_residual_update,
)
from ascend_k3.ops.attention_residual.kernel import launch
from ascend_k3.ops.attention_residual.kernel.cases import CASES
from ascend_k3.ops.errors import BackendError
from ascend_k3.ops.kernel_cases import Case
from ascend_k3.ops.kernels import KernelLaunch
from ascend_k3.ops.soc import soc
from tests.tolerances import RELATIVE_RMS, assert_close_rms

SOCS = ("a3", "950pr")
EPS = 1e-5
FLOAT, BF16, HALF = torch.float32, torch.bfloat16, torch.float16


def numbers(*sizes: int, dtype: torch.dtype = FLOAT, seed: int = 0, scale: float = 1.0) -> Tensor:
    return (scale * torch.randn(sizes, generator=torch.Generator().manual_seed(seed))).to(dtype)


def weights(width: int, dtype: torch.dtype = FLOAT) -> tuple[Tensor, Tensor]:
    query = numbers(width, dtype=dtype, seed=9, scale=2 * width**-0.5)
    return 1 + numbers(width, dtype=dtype, seed=8, scale=0.2), query


def assert_close(value: Tensor, right: Tensor, name: str = "") -> None:
    assert value.dtype == right.dtype
    assert_close_rms(value, right, name, RELATIVE_RMS[right.dtype])


def on(chip: str, call: Callable[[], Tensor | Sequence[Tensor]], **options: object) -> list[Tensor]:
    """What the kernels compute; a hazard raises."""
    with backends.backend("emulator", soc=chip, **options):
        return kernel_cases.tensors(call())


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case, chip: str) -> None:
    outcome = kernel_cases.run(case, chip)
    shown = f"error {outcome.error:.2e}, bytes {outcome.bytes_ratio:.3f}, {outcome.seconds:.2f} s"
    assert outcome.ok, shown + "".join(f"\n{hazard}" for report in outcome.reports for hazard in report.hazards)


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("dtype", [FLOAT, BF16])
def test_each_row_is_read_once(dtype: torch.dtype, last: bool) -> None:
    tokens, count, width = 100, 8, 1000
    blocks = numbers(tokens, count, width, dtype=dtype)
    partial = numbers(tokens, width, dtype=dtype) if last else None
    with backends.backend("emulator") as used:
        attention_residual(blocks, partial, *weights(width, dtype), eps=EPS)
    (call,) = used.calls
    counters, cores = (
        call.report.counters,
        launch.MIX.tile_for((tokens, count, width, 2, last, False), (EPS, 0.0), soc("a3")).block_dim,
    )
    row = width * dtype.itemsize
    assert counters.read["tensors"] == tokens * (count + last) * row + cores * 2 * row
    assert counters.written["tensors"] == tokens * row
    assert counters.gm_bytes == counters.read["tensors"] + counters.written["tensors"]


def test_bank_of_a_prefill_takes_less_than_a_minute() -> None:
    tokens, count, width = 2048, 8, 7168
    blocks = torch.empty(tokens, count, width, dtype=BF16).normal_(generator=torch.Generator().manual_seed(0))
    begin = time.perf_counter()
    (y,) = on("a3", lambda: attention_residual(blocks, None, *weights(width, BF16), eps=EPS))
    assert time.perf_counter() - begin < 60
    some = slice(0, tokens, 97)
    assert_close(y[some], attention_residual(blocks[some], None, *weights(width, BF16), eps=EPS))


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("dtype", [FLOAT, BF16])
def test_two_phases_are_one(dtype: torch.dtype, chip: str) -> None:
    tokens, count, width, points = 5, 8, 300, 4
    blocks, partial = numbers(tokens, count, width, dtype=dtype), numbers(tokens, width, dtype=dtype, seed=1)
    norms, queries = (
        1 + numbers(points, width, dtype=dtype, seed=2, scale=0.2),
        numbers(points, width, dtype=dtype, seed=3, scale=0.1),
    )
    output = {"output_norm_weight": norms[0], "output_eps": EPS}

    def two_phases() -> list[Tensor]:
        stats = attention_residual_prepare(blocks, norms, queries, eps=EPS)
        return [
            attention_residual_update(stats, own, norms[i], queries[i], eps=EPS, index=i, **output)
            for i in range(points)
            for own in (partial, None)
        ]

    expected = [
        attention_residual(blocks, own, norms[i], queries[i], eps=EPS, **output)
        for i in range(points)
        for own in (partial, None)
    ]
    for value, right in zip(on(chip, two_phases), expected, strict=True):
        assert_close(value, right)


# ---- Hard inputs ----


def hard(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Tokens of 10 sources: infinities and NaN early and late, huge, tiny and zero rows, one usual token."""
    blocks, partial = numbers(8, 9, 500, dtype=dtype), numbers(8, 500, dtype=dtype, seed=1)
    blocks[0, 0, 3] = torch.inf
    blocks[1, 7, 499] = torch.nan
    partial[2, 0] = -torch.inf
    blocks[3] *= 3e30 if dtype != HALF else 2e3  # squares overflow in float32
    blocks[4, 2], partial[4] = 0, 0
    blocks[5], partial[5] = 0, 0
    blocks[6] *= 1e-30 if dtype != HALF else 1e-3
    return blocks, partial


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("dtype", [FLOAT, BF16, HALF])
def test_hard_inputs_as_the_reference(dtype: torch.dtype, norm: bool, chip: str) -> None:
    blocks, partial = hard(dtype)
    nw, qw = weights(500, dtype)
    output = {"output_norm_weight": nw, "output_eps": EPS} if norm else {}

    def call() -> list[Tensor]:
        stats = attention_residual_prepare(blocks, nw[None], qw[None], eps=EPS)
        return [
            attention_residual(blocks, partial, nw, qw, eps=EPS, **output),
            attention_residual(blocks, None, nw, qw, eps=EPS, **output),
            *stats,
            attention_residual_update(stats, partial, nw, qw, eps=EPS, **output),
        ]

    for value, right in zip(on(chip, call), call(), strict=True):
        value, right = value.reshape(8, -1), right.reshape(8, -1)  # statistics have one mixing point
        for token in range(8):
            assert torch.equal(value[token].isnan(), right[token].isnan()), token
            assert torch.equal(value[token].isinf(), right[token].isinf()), token
            finite = right[token].isfinite()
            if finite.any():
                assert_close(value[token][finite], right[token][finite])


@pytest.mark.parametrize("chip", SOCS)
def test_sources_of_score_minus_infinity_have_no_weight(chip: str) -> None:
    blocks = numbers(2, 10, 64)
    blocks[:, :, 0] = 0
    blocks[0, :6, 0] = -100  # the whole first group: its scores are -inf, and those of the second are finite
    blocks[1, 6:, 0] = -100
    norm_weight, query_weight = torch.ones(64), numbers(64, seed=1)
    query_weight[0] = 3e37
    (y,) = on(chip, lambda: attention_residual(blocks, None, norm_weight, query_weight, eps=EPS))
    expected = attention_residual(blocks, None, norm_weight, query_weight, eps=EPS)
    assert expected.isfinite().all()
    assert_close(y, expected)


# ---- Determinism ----


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("case", [case for case in CASES if case.mutated], ids=lambda case: case.name)
def test_ten_schedules_give_the_same_bits(case: Case, chip: str) -> None:
    first = on(chip, case.call)
    for seed in (None, *range(10)):
        for value, right in zip(on(chip, case.call, seed=seed), first, strict=True):
            assert torch.equal(value, right), seed


# ---- Tiling ----


def mix_row(width: int, dtype: torch.dtype) -> Tensor:
    blocks, partial = numbers(1, 8, width, dtype=dtype), numbers(1, width, dtype=dtype, seed=1)
    norm = {"output_norm_weight": numbers(width, dtype=dtype, seed=2), "output_eps": EPS}
    return attention_residual(blocks, partial, *weights(width, dtype), eps=EPS, **norm)


def prepare_row(width: int, dtype: torch.dtype) -> AttentionResidualStats:
    norms, queries = numbers(2, 5, width, dtype=dtype, seed=1, scale=width**-0.25)
    return attention_residual_prepare(numbers(1, 8, width, dtype=dtype), norms, queries, eps=EPS)


def update_row(width: int, dtype: torch.dtype) -> Tensor:
    stats = AttentionResidualStats(torch.zeros(1, 1), torch.ones(1, 1), numbers(1, 1, width))
    norm = {"output_norm_weight": numbers(width, dtype=dtype, seed=2), "output_eps": EPS}
    partial = numbers(1, width, dtype=dtype, seed=1)
    return attention_residual_update(stats, partial, *weights(width, dtype), eps=EPS, **norm)


# Calls of one token with all that takes room, and the sizes that their tiling gets.
ROWS: dict[str, tuple[KernelLaunch, Callable[[int, int], Sequence[int]], Callable[[int, torch.dtype], object]]] = {
    "mix": (launch.MIX, lambda width, element: (1, 8, width, element, 1, 1), mix_row),
    "prepare": (launch.PREPARE, lambda width, element: (1, 8, width, element, 5), prepare_row),
    "update": (launch.UPDATE, lambda width, element: (1, width, element, 1, 1), update_row),
}


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("dtype", [FLOAT, BF16])
@pytest.mark.parametrize("name", ROWS)
def test_widths_up_to_the_last_that_fits(name: str, dtype: torch.dtype, chip: str) -> None:
    kernel, sizes, call = ROWS[name]

    def accepted(width: int) -> bool:
        try:
            kernel.tile_for(sizes(width, dtype.itemsize), (EPS, EPS), soc(chip))
        except ValueError as refusal:
            assert f"a row of {width} elements " in str(refusal)
            return False
        return True

    least, most = 7168, 1 << 20
    assert accepted(least) and not accepted(most)
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if accepted(middle) else (least, middle)
    for width in (3584, 7168, 7169, least):  # the emulator reports buffers beyond UB
        for value, right in zip(
            on(chip, lambda w=width: call(w, dtype)), kernel_cases.tensors(call(width, dtype)), strict=True
        ):
            assert_close(value, right)
    with backends.backend("emulator", soc=chip), pytest.raises(ValueError, match=f"a row of {most} elements"):
        call(most, dtype)


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("dtype", [FLOAT, BF16])
@pytest.mark.parametrize("name", ROWS)
def test_smallest_memory_of_every_tiling(name: str, dtype: torch.dtype, chip: str) -> None:
    """UB grows by 32 bytes; wherever the tiling makes another use of it, that use fits exactly."""
    kernel, sizes, call = ROWS[name]
    expected, tilings = kernel_cases.tensors(call(40, dtype)), set()
    for ub in range(0, 12 << 10, 32):
        small = soc(chip).with_(usable_ub=max(ub, 1), capacity={"UB": max(ub, 1)})
        try:
            tiling = kernel.tile_for(sizes(40, dtype.itemsize), (EPS, EPS), small).data
        except ValueError:
            assert not tilings
            continue
        if tiling not in tilings:
            tilings.add(tiling)
            with backends.backend("emulator", soc=small):
                for value, right in zip(kernel_cases.tensors(call(40, dtype)), expected, strict=True):
                    assert_close(value, right)
    assert len(tilings) >= 2


@pytest.mark.parametrize("chip", SOCS)
def test_widest_row_without_a_partial_sum(chip: str) -> None:
    stats = AttentionResidualStats(torch.zeros(1, 1), torch.ones(1, 1), numbers(1, 1, 16320))
    nw, qw = weights(16320, BF16)
    (y,) = on(chip, lambda: attention_residual_update(stats, None, nw, qw, eps=EPS))
    assert torch.equal(y, stats.weighted[0].bfloat16())


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("count", range(1, 17))
def test_every_number_of_sources(count: int, chip: str) -> None:
    blocks, partial = numbers(2, count, 100), numbers(2, 100, seed=1)
    (y,) = on(chip, lambda: attention_residual(blocks, partial, *weights(100), eps=EPS))
    assert_close(y, attention_residual(blocks, partial, *weights(100), eps=EPS))


@pytest.mark.parametrize("points", range(1, 20))
def test_every_number_of_points(points: int) -> None:
    def call() -> AttentionResidualStats:
        return attention_residual_prepare(numbers(3, 4, 2000), *numbers(2, points, 2000, seed=1, scale=0.1), eps=EPS)

    for value, right in zip(on("a3", call), call(), strict=True):
        assert_close(value, right)


@pytest.mark.parametrize(
    ("kernel", "sizes", "sentence"),
    [
        (launch.MIX, (0, 1, 8, 4, 0, 0), "there are 0 tokens of 8 elements"),
        (launch.MIX, (4, 0, 8, 4, 0, 0), "neither a block nor a partial sum"),
        (launch.PREPARE, (4, 0, 8, 4, 1), "there are 0 blocks and 1 mixing points"),
        (launch.PREPARE, (4, 2, 8, 4, 0), "there are 2 blocks and 0 mixing points"),
        (launch.UPDATE, (4, 0, 4, 1, 0), "there are 4 tokens of 0 elements"),
        (launch.UPDATE, (4, 16321, 2, 0, 0), "a row of 16321 elements is longer than the 16320 that one instruction"),
        (launch.UPDATE, (4, 16000, 4, 1, 1), "a row of 16000 elements does not fit into UB of 188416 bytes"),
    ],
)
def test_sizes_that_tilings_refuse(kernel: KernelLaunch, sizes: Sequence[int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        kernel.tile_for(sizes, (EPS, EPS), soc("a3"))


@pytest.mark.parametrize("tokens", [1, 47, 48, 49, 1000, 10**6])
@pytest.mark.parametrize("chip", SOCS)
def test_tokens_are_shared_among_the_cores(tokens: int, chip: str) -> None:
    tiling = launch.MIX.tile_for((tokens, 8, 7168, 2, 1, 1), (EPS, EPS), soc(chip))
    a_core = int.from_bytes(tiling.data[8:16], "little")
    assert (tiling.block_dim - 1) * a_core < tokens <= tiling.block_dim * a_core
    assert tiling.block_dim <= soc(chip).vector_cores and tiling.workspace == 0


# ---- Tensors ----


def test_strided_inputs() -> None:
    blocks, partial = numbers(8, 3, 50).transpose(0, 1), numbers(50, 3, seed=1).t()
    nw, qw = numbers(100, seed=2)[::2], numbers(100, seed=3)[1::2]

    def call() -> list[Tensor]:
        stats = attention_residual_prepare(blocks, nw[None], qw[None], eps=EPS)
        return [
            attention_residual(blocks, partial, nw, qw, eps=EPS, output_norm_weight=qw, output_eps=EPS),
            *stats,
            attention_residual_update(stats, partial, nw, qw, eps=EPS),
        ]

    for value, right in zip(on("a3", call), call(), strict=True):
        assert_close(value, right)
        assert value.is_contiguous()


def test_no_token_launches_nothing() -> None:
    def call() -> list[Tensor]:
        stats = attention_residual_prepare(numbers(0, 2, 8), *numbers(2, 1, 8), eps=EPS)
        return [
            attention_residual(numbers(0, 2, 8), numbers(0, 8), *weights(8), eps=EPS),
            *stats,
            attention_residual_update(stats, numbers(0, 8), *weights(8), eps=EPS),
        ]

    with backends.backend("emulator") as used:
        given = call()
    assert used.calls == []
    assert [value.shape for value in given] == [value.shape for value in call()]


def test_dtypes_that_no_kernel_has() -> None:
    blocks = numbers(2, 2, 8)
    stats = attention_residual_prepare(blocks, *numbers(2, 1, 8), eps=EPS)
    wide = AttentionResidualStats(*(value.double() for value in stats))
    with backends.backend("emulator"):
        with pytest.raises(ValueError, match="attention_residual: blocks is torch.float64; its kernel takes float32, "):
            attention_residual(blocks.double(), None, *(w.double() for w in weights(8)), eps=EPS)
        with pytest.raises(ValueError, match="norm_weight is torch.bfloat16 and blocks is torch.float32"):
            attention_residual(blocks, None, *weights(8, BF16), eps=EPS)
        with pytest.raises(ValueError, match="query_weights is torch.bfloat16 and blocks is torch.float32"):
            attention_residual_prepare(blocks, numbers(1, 8), numbers(1, 8, dtype=BF16), eps=EPS)
        with pytest.raises(ValueError, match="maximum is torch.float64; its kernel takes float32"):
            attention_residual_update(wide, None, *weights(8), eps=EPS)
        with pytest.raises(ValueError, match="output_norm_weight is torch.float16 and norm_weight is torch.float32"):
            attention_residual_update(
                stats, None, *weights(8), eps=EPS, output_norm_weight=torch.ones(8, dtype=HALF), output_eps=EPS
            )


def test_weights_that_score_nothing_only_name_the_dtype() -> None:
    stats = attention_residual_prepare(numbers(3, 2, 8), *numbers(2, 1, 8), eps=EPS)
    nw, qw = weights(8)
    (y,) = on("a3", lambda: attention_residual_update(stats, None, nw.bfloat16(), qw.half(), eps=EPS))
    assert torch.equal(y, attention_residual_update(stats, None, nw.bfloat16(), qw.half(), eps=EPS))


# ---- Gradients ----


def test_gradient_is_that_of_the_reference() -> None:
    def gradients() -> list[Tensor]:
        inputs = [numbers(3, 4, 40), numbers(3, 40, seed=1), *weights(40), numbers(40, seed=2)]
        blocks, partial, nw, qw, ow = (value.requires_grad_() for value in inputs)
        stats = attention_residual_prepare(blocks, nw[None], qw[None], eps=EPS)
        one = attention_residual(blocks, partial, nw, qw, eps=EPS, output_norm_weight=ow, output_eps=EPS)
        two = attention_residual_update(stats, partial, nw, qw, eps=EPS)
        return list(torch.autograd.grad((one.sin() + two.cos()).sum(), [blocks, partial, nw, qw, ow]))

    for value, right in zip(on("a3", gradients, missing="reference"), gradients(), strict=True):
        assert_close(value, right)
    with pytest.raises(BackendError, match="attention_residual_.*backward has no Ascend C kernel"):
        on("a3", gradients)
