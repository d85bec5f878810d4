"""The decode kernel of KDA on the emulator: fixtures, definition, hard inputs, accepted tokens, padding, refusals."""

from __future__ import annotations

import itertools
import struct

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from ascend_k3 import ops
from ascend_k3.ops import kernel_cases
from ascend_k3.ops.emulator.mutants import small
from ascend_k3.ops.errors import NoKernelError
from ascend_k3.ops.kda.kernel.cases import DECODE as CASES
from ascend_k3.ops.kda.kernel.launch import DECODE, DTYPES, WIDTHS
from ascend_k3.ops.soc import NAMES, SoC, soc
from tests.ops.kda_inputs import BOUND, HARD, INPUTS, call, fixture_names, hard_inputs, random_inputs
from tests.ops.kda_oracle import recurrence
from tests.ops.kernel_checks import SOCS, assert_case, assert_repeatable, on_emulator
from tests.paths import FIXTURES
from tests.tolerances import KDA_STATE_RMS, RELATIVE_RMS, assert_close_rms


def on_kernel(
    x: dict[str, Tensor], chip: str | SoC = "a3", slots: Tensor | None = None, **options
) -> tuple[Tensor, Tensor]:
    """o and the pool, which is `pool`, or else the initial states in their order."""
    pool = x.get("pool", x["initial_state"]).float().clone()
    slots = torch.arange(x["q"].shape[0]) if slots is None else slots
    (o,) = on_emulator(lambda: decode(x, pool, slots, **options), chip)
    return o, pool


def decode(x: dict[str, Tensor], pool: Tensor, slots: Tensor, **options) -> Tensor:
    return ops.kda_decode(
        *(x[name] for name in INPUTS),
        pool,
        slots,
        A_log=x["A_log"],
        dt_bias=x["dt_bias"],
        lower_bound=BOUND,
        **options,
    )


def tokens(x: dict[str, Tensor], begin: int, end: int) -> dict[str, Tensor]:
    return {**x, **{name: x[name][:, begin:end] for name in INPUTS}}


def by_eight(x: dict[str, Tensor], chip: str = "a3", step: int = 8) -> tuple[Tensor, Tensor]:
    """A whole sequence, `step` tokens a call."""
    outputs, pool = [], x["initial_state"]
    for begin in range(0, x["q"].shape[1], step):
        o, pool = on_kernel({**tokens(x, begin, begin + step), "pool": pool}, chip)
        outputs.append(o)
    return torch.cat(outputs, 1), pool


def assert_same(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], dtype: torch.dtype) -> None:
    assert_close_rms(found[0], expected[0], "o", RELATIVE_RMS[dtype])
    assert_close_rms(found[1], expected[1], "state", KDA_STATE_RMS[dtype])


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases(case: kernel_cases.Case, chip: str) -> None:
    assert_case(case, chip)


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("case", [case for case in CASES if case.mutated], ids=lambda case: case.name)
def test_runs_and_schedules_give_the_same_bits(case: kernel_cases.Case, chip: str) -> None:
    assert_repeatable(case, chip)


@pytest.mark.parametrize(
    "name",
    fixture_names("kda_kernel/fp32*_collinear.safetensors")
    + fixture_names("kda_kernel/*_floor.safetensors", exclude="bf16_K64")
    + fixture_names("kda_op/*D128_T[17]*.safetensors", exclude="T130"),
)
def test_eight_tokens_at_a_time_equal_the_fixture(name: str) -> None:
    x = load_file(FIXTURES / name)
    o, state = by_eight({"initial_state": torch.zeros_like(x["final_state"]), **x})
    assert o.dtype == x["v"].dtype
    assert_close_rms(o, x["o"], "o", KDA_STATE_RMS[o.dtype] if o.dtype == torch.float32 else RELATIVE_RMS[o.dtype])
    assert_close_rms(state, x["final_state"], "state", KDA_STATE_RMS[o.dtype])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", HARD)
def test_hard_inputs_equal_the_definition(kind: str, dtype: torch.dtype) -> None:
    x = hard_inputs(kind, length=24, width=128, dtype=dtype)
    assert_same(by_eight(x), call(recurrence, x), dtype)


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_gates_without_bound_equal_the_definition(size: float) -> None:
    x = random_inputs(8, width=128, value=128)
    x["g"] = x["g"] * size
    x["beta"] = x["beta"] * size
    x["A_log"] = x["A_log"] + 3
    assert_same(on_kernel(x), call(recurrence, x), torch.float32)


def test_norms_of_small_rows_equal_the_definition() -> None:
    x = random_inputs(3, width=128, value=128)
    x["q"], x["k"] = x["q"] * 1e-4, x["k"] * 1e-4
    assert_same(on_kernel(x), call(recurrence, x), torch.float32)


@pytest.mark.parametrize("length", range(1, 9))
@pytest.mark.parametrize(("dtype", "width"), list(itertools.product(DTYPES, WIDTHS)), ids=str)
def test_every_number_of_tokens_equals_the_definition(length: int, dtype: torch.dtype, width: int) -> None:
    """On two cores, where an item has as many rows as fit."""
    x = random_inputs(length, heads=3, width=width, value=width, dtype=dtype)
    assert_same(on_kernel(x, small("a3")), call(recurrence, x), dtype)


@pytest.mark.parametrize("step", [1, 3, 8])
def test_every_split_equals_the_chunk_operator(step: int) -> None:
    x = random_inputs(21, width=64, value=64)
    assert_same(by_eight(x, step=step), call(ops.kda, x), torch.float32)


@pytest.mark.parametrize("accepted", [[0, 1, 5], [3, 5, 0]], ids=str)
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_only_accepted_tokens_stay_in_the_state(accepted: list[int], kind: torch.dtype) -> None:
    x = random_inputs(5, batch=3, width=128, value=128)
    o, pool = on_kernel(x, num_accepted=torch.tensor(accepted, dtype=kind))
    assert torch.equal(o, on_kernel(x)[0])
    for n, count in enumerate(accepted):
        if count == 0:
            assert torch.equal(pool[n], x["initial_state"][n])
        else:
            alone = {name: value[n : n + 1] for name, value in tokens(x, 0, count).items() if value.dim() > 2}
            assert torch.equal(pool[n], on_kernel({**x, **alone})[1][0])


def test_a_later_token_reaches_no_earlier_output_and_no_accepted_state() -> None:
    x = random_inputs(8, batch=1, width=64, value=64)
    clean, state = on_kernel(x, num_accepted=torch.tensor([5]))
    for name in INPUTS:
        x[name][:, 5:] = torch.nan
    o, poisoned = on_kernel(x, num_accepted=torch.tensor([5]))
    assert torch.equal(o[:, :5], clean[:, :5]) and torch.equal(poisoned, state)
    assert o[:, 5:].isnan().all()


@pytest.mark.parametrize("chip", SOCS)
def test_padding_rows_are_inert(chip: str) -> None:
    x = random_inputs(2, batch=4, width=128, value=128, dtype=torch.bfloat16)
    rows = [0, 2]
    expected, states = on_kernel({name: value[rows] if value.dim() > 2 else value for name, value in x.items()}, chip)
    for name in INPUTS:
        x[name][[1, 3]] = torch.nan
    x["pool"] = torch.full((6, 2, 128, 128), torch.nan)
    x["pool"][[5, 2]] = x["initial_state"][rows]
    slots, counts = torch.tensor([5, -1, 2, -1], dtype=torch.int32), torch.tensor([2, 77, 2, -9])
    o, pool = on_kernel(x, chip, slots, num_accepted=counts)
    assert torch.equal(o[rows], expected) and not o[[1, 3]].any()
    assert torch.equal(pool[[5, 2]], states) and pool[[0, 1, 3, 4]].isnan().all()


@pytest.mark.parametrize("chip", SOCS)
def test_a_neighbour_s_nan_stays_with_the_neighbour(chip: str) -> None:
    x = random_inputs(3, batch=3, width=128, value=128, dtype=torch.bfloat16)
    clean, states = on_kernel(x, chip)
    for name in (*INPUTS, "initial_state"):
        x[name][1] = torch.nan
    o, poisoned = on_kernel(x, chip)
    assert torch.equal(o[[0, 2]], clean[[0, 2]]) and torch.equal(poisoned[[0, 2]], states[[0, 2]])
    assert o[1].isnan().all()


@pytest.mark.parametrize("first", [0.0, torch.nan])
def test_packed_sequences_are_what_they_are_alone(first: float) -> None:
    """`first` is added to the first sequence, whose tokens fill up the others to one length."""
    lengths, accepted = [2, 0, 8, 1], torch.tensor([1, 0, 8, 1], dtype=torch.int32)
    offsets = [0, *itertools.accumulate(lengths)]
    x = random_inputs(offsets[-1], width=64, value=64)
    for name in INPUTS:
        x[name][:, :2] += first
    x["pool"] = torch.randn(4, 2, 64, 64, generator=torch.Generator().manual_seed(5))
    o, pool = on_kernel(x, slots=torch.arange(4), cu_seqlens=torch.tensor(offsets), num_accepted=accepted)
    for n, (begin, end) in enumerate(itertools.pairwise(offsets)):
        part = {**tokens(x, begin, end), "pool": x["pool"][n : n + 1]}
        alone, state = on_kernel(part, num_accepted=accepted[n : n + 1])
        torch.testing.assert_close(o[:, begin:end], alone, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(pool[n : n + 1], state, rtol=0, atol=0, equal_nan=True)


def test_beta_may_be_float32_beside_bf16() -> None:
    x = random_inputs(5, width=128, value=128, dtype=torch.bfloat16)
    x["beta"] = x["beta"].float() + 1e-3
    assert_same(on_kernel(x), call(recurrence, x), torch.bfloat16)


def test_tensors_need_not_be_contiguous() -> None:
    x = random_inputs(3, batch=2, width=64, value=64)
    expected, states = on_kernel(x)
    x["q"], x["v"] = (x[name].transpose(1, 2).contiguous().transpose(1, 2) for name in "qv")
    pool = x["initial_state"].transpose(0, 1).contiguous().transpose(0, 1)
    (o,) = on_emulator(lambda: decode(x, pool, torch.arange(2)))
    assert torch.equal(o, expected) and torch.equal(pool, states)


def test_nothing_to_do() -> None:
    x = random_inputs(0, batch=2, width=64, value=64)
    o, pool = on_kernel(x)
    assert o.shape == (2, 0, 2, 64) and torch.equal(pool, x["initial_state"])
    x = random_inputs(2, batch=0, width=64, value=64)
    assert on_kernel(x)[0].shape == (0, 2, 2, 64)


@pytest.mark.parametrize("chip", NAMES)
def test_tilings_share_the_rows_among_the_cores(chip: str) -> None:
    facts = soc(chip)
    shapes = itertools.product((1, 2, 16, 300), range(1, 9), (1, 6, 96), WIDTHS, (2, 4))
    for sequences, length, heads, width, element in shapes:
        tiling = DECODE.tile_for((sequences, length, heads, width, element, 0), (-5.0, 1.0), facts)
        items, a_core, _, _, rows = struct.unpack_from("qqIII", tiling.data)
        assert items * rows == sequences * heads * width and rows in (16, 32, 64)
        assert (tiling.block_dim - 1) * a_core < items <= tiling.block_dim * a_core
        assert tiling.block_dim <= facts.vector_cores and tiling.workspace == 0
        assert a_core * rows <= max(48, 1.5 * sequences * heads * width / facts.vector_cores)
    assert DECODE.tile_for((1, 1, 6, 128, 2, 0), (-5.0, 1.0), facts).block_dim == 48
    with pytest.raises(ValueError, match=r"q has 96 key channels; the kernel takes 64 and 128"):
        DECODE.tile_for((1, 1, 1, 96, 2, 0), (-5.0, 1.0), facts)
    with pytest.raises(ValueError, match=r"q has 9 tokens a sequence; the kernel takes 1 to 8"):
        DECODE.tile_for((1, 9, 1, 64, 2, 0), (-5.0, 1.0), facts)
    with pytest.raises(ValueError, match=r"8 tokens of 128 channels do not fit into UB of 65536 bytes"):
        DECODE.tile_for((1, 8, 1, 128, 2, 0), (-5.0, 1.0), facts.with_(usable_ub=64 * 1024))


def test_what_the_kernel_refuses() -> None:
    x = random_inputs(2, width=32, value=32)
    pool = x["initial_state"].clone()
    with ops.backend("emulator"), pytest.raises(NoKernelError, match=r"kda_decode: .*, 64 or 128; they have 32 and 32"):
        decode(x, pool, torch.arange(1))
    with ops.backend("emulator", missing="reference") as run:
        o = decode(x, pool, torch.arange(1))
    assert [(ran.name, ran.backend) for ran in run.calls] == [("kda_decode", "reference")]
    assert_same((o, pool), call(recurrence, x), torch.float32)
    x = random_inputs(2, width=64, value=64)
    doubles = {name: x[name].double() for name in INPUTS}
    refused = [
        (doubles, torch.float32, "q is torch.float64; its kernel takes float32, bf"),
        ({"beta": x["beta"].bfloat16()}, torch.float32, "beta is torch.bfloat16 and q is torch.float32"),
        ({}, torch.float64, "states is torch.float64; its kernel takes float32"),
    ]
    for change, dtype, message in refused:
        with ops.backend("emulator"), pytest.raises(ValueError, match=f"^kda_decode: {message}"):
            decode({**x, **change}, x["initial_state"].to(dtype), torch.arange(1))
