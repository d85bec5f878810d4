"""The chunk kernel of KDA on the emulator: fixtures, definition, hard inputs, tails, splits, schedules, refusals."""

from __future__ import annotations

import itertools

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from ascend_k3 import ops
from ascend_k3.ops import kernel_cases
from ascend_k3.ops.errors import NoKernelError
from ascend_k3.ops.kda.kernel import extrapolate
from ascend_k3.ops.kda.kernel.cases import CHUNKS, kda_call
from ascend_k3.ops.kda.kernel.launch import DTYPES, KDA, WIDTHS, fragments
from ascend_k3.ops.soc import NAMES, soc
from tests.ops.kda_inputs import HARD, LENGTHS, call, fixture_names, hard_inputs, random_inputs
from tests.ops.kda_oracle import recurrence
from tests.ops.kernel_checks import SOCS, assert_case, assert_repeatable, on_emulator
from tests.paths import FIXTURES
from tests.tolerances import FIXTURE_ATOL, FIXTURE_RTOL, KDA_STATE_RMS, RELATIVE_RMS, assert_close_rms


def on_kernel(x: dict[str, Tensor], chip: str = "a3", **options) -> tuple[Tensor, Tensor]:
    o, state = on_emulator(lambda: call(ops.kda, x), chip, **options)
    return o, state


def assert_same(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], dtype: torch.dtype) -> None:
    assert_close_rms(found[0], expected[0], "o", RELATIVE_RMS[dtype])
    assert_close_rms(found[1], expected[1], "state", KDA_STATE_RMS[dtype])


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("case", CHUNKS, ids=lambda case: case.name)
def test_cases(case: kernel_cases.Case, chip: str) -> None:
    assert_case(case, chip)


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("case", [case for case in CHUNKS if case.mutated], ids=lambda case: case.name)
def test_runs_and_schedules_give_the_same_bits(case: kernel_cases.Case, chip: str) -> None:
    assert_repeatable(case, chip)


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("name", fixture_names("kda_kernel/*.safetensors") + fixture_names("kda_op/*D128*.safetensors"))
def test_the_kernel_equals_the_fixture(name: str, chip: str) -> None:
    x = load_file(FIXTURES / name)
    o, state = on_kernel(x, chip)
    assert o.dtype == x["v"].dtype and state.dtype == torch.float32
    if o.dtype == torch.float32:
        torch.testing.assert_close(o, x["o"], atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)
    else:
        assert_close_rms(o, x["o"], "o", RELATIVE_RMS[o.dtype])
    assert_close_rms(state, x["final_state"], "state", KDA_STATE_RMS[o.dtype])


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", HARD)
def test_hard_inputs_equal_the_definition(kind: str, dtype: torch.dtype, chip: str) -> None:
    x = hard_inputs(kind, width=128, dtype=dtype)
    assert_same(on_kernel(x, chip), call(recurrence, x), dtype)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("dtype", "width"), list(itertools.product(DTYPES, WIDTHS)), ids=str)
def test_every_tail_equals_the_definition(length: int, dtype: torch.dtype, width: int) -> None:
    x = random_inputs(length, batch=2, width=width, value=width, dtype=dtype)
    assert_same(on_kernel(x), call(recurrence, x), dtype)


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("cut", [1, 16, 63, 64, 65])
def test_a_split_sequence_gives_the_same(cut: int, chip: str) -> None:
    x = random_inputs(130, width=64, value=64)
    whole = on_kernel(x, chip)
    tokens = ("q", "k", "v", "g", "beta")
    first, state = on_kernel({**x, **{name: x[name][:, :cut] for name in tokens}}, chip)
    rest, state = on_kernel({**x, **{name: x[name][:, cut:] for name in tokens}, "initial_state": state}, chip)
    assert_same((torch.cat((first, rest), 1), state), whole, torch.float32)


def test_a_packed_sequence_is_what_it_is_alone() -> None:
    x = random_inputs(150, heads=3, width=64, value=64, dtype=torch.bfloat16)
    lengths = [0, 1, 80, 0, 69]
    offsets = [0, *itertools.accumulate(lengths)]
    states = torch.randn(5, 3, 64, 64, generator=torch.Generator().manual_seed(7))
    o, final = on_kernel({**x, "initial_state": states, "cu_seqlens": torch.tensor(offsets)})
    for n, (begin, end) in enumerate(itertools.pairwise(offsets)):
        tokens = {name: x[name][:, begin:end] for name in ("q", "k", "v", "g", "beta")}
        alone, state = on_kernel({**x, **tokens, "initial_state": states[n : n + 1]})
        assert torch.equal(o[:, begin:end], alone) and torch.equal(final[n : n + 1], state)
    assert torch.equal(final[0], states[0]) and torch.equal(final[3], states[3])


def test_a_neighbour_s_nan_stays_with_the_neighbour() -> None:
    x = random_inputs(100, heads=2, width=64, value=64)
    offsets = torch.tensor([0, 37, 60, 100])
    clean, states = on_kernel({**x, "initial_state": None, "cu_seqlens": offsets})
    for name in ("q", "k", "v", "g", "beta"):
        x[name][:, 37:60] = float("nan")
    o, poisoned = on_kernel({**x, "initial_state": None, "cu_seqlens": offsets})
    real = torch.ones(100, dtype=torch.bool)
    real[37:60] = False
    assert torch.equal(o[:, real], clean[:, real]) and torch.equal(poisoned[[0, 2]], states[[0, 2]])


def test_nothing_to_do() -> None:
    x = random_inputs(0, batch=2, width=64, value=64)
    o, state = on_kernel(x)
    assert o.shape == (2, 0, 2, 64) and torch.equal(state, x["initial_state"])
    x = random_inputs(0, batch=0, width=64, value=64)
    assert call(ops.kda, x)[1].shape == (0, 2, 64, 64)


def test_beta_may_be_float32_beside_bf16() -> None:
    x = random_inputs(70, width=64, value=64, dtype=torch.bfloat16)
    x["beta"] = x["beta"].float() + 1e-3
    assert_same(on_kernel(x), call(recurrence, x), torch.bfloat16)


@pytest.mark.parametrize("chip", NAMES)
def test_tilings_fill_the_cores_and_no_more(chip: str) -> None:
    facts = soc(chip)
    for sequences, heads in ((1, 1), (1, 96), (1, 6), (40, 96), (3, 5)):
        tiling = KDA.tile_for((sequences, 1000, heads, 128, 2, 1), (-5.0, 1.0), facts)
        assert tiling.block_dim == min(facts.cube_cores, sequences * heads)
        assert tiling.workspace % (tiling.block_dim * 512) == 0
        assert tiling.workspace <= 64 * 2**20  # stays in the second-level cache
    with pytest.raises(ValueError, match=r"q has 96 key channels; the kernel takes 64 and 128"):
        KDA.tile_for((1, 10, 1, 96, 2, 1), (-5.0, 1.0), facts)


def test_what_the_kernel_refuses() -> None:
    x = random_inputs(5, width=32, value=32)
    with ops.backend("emulator"), pytest.raises(NoKernelError, match=r"one width, 64 or 128; they have 32 and 32"):
        call(ops.kda, x)
    with ops.backend("emulator", missing="reference") as run:
        o, state = call(ops.kda, x)
    assert [(ran.name, ran.backend) for ran in run.calls] == [("kda", "reference")]
    assert_same((o, state), call(recurrence, x), torch.float32)
    x = random_inputs(5, width=64, value=64, dtype=torch.float64)
    with ops.backend("emulator"), pytest.raises(ValueError, match=r"q is torch.float64; its kernel takes float32, bf"):
        call(ops.kda, x)
    x = random_inputs(5, width=64, value=64)
    with ops.backend("emulator"), pytest.raises(ValueError, match=r"beta is torch.bfloat16 and q is torch.float32"):
        call(ops.kda, {**x, "beta": x["beta"].bfloat16()})


SHARES = (
    (2, (300,), 7, True),
    (3, (130,), 17, False),
    (4, (64,), 31, True),
    (2, (0, 17, 0, 130), 13, True),
    (3, (200, 1, 64, 70), 9, False),
)


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("blocks", "lengths", "heads", "initial"), SHARES)
def test_heads_that_two_blocks_share(
    blocks: int, lengths: tuple[int, ...], heads: int, initial: bool, dtype: torch.dtype, chip: str
) -> None:
    few = soc(chip).with_(cube_cores=blocks, vector_cores=2 * blocks)
    x = random_inputs(sum(lengths), heads=heads, width=64, value=64, dtype=dtype)
    x["cu_seqlens"] = torch.tensor([0, *itertools.accumulate(lengths)])
    states = torch.randn(len(lengths), heads, 64, 64, generator=torch.Generator().manual_seed(5))
    x["initial_state"] = states if initial else None
    found = on_kernel(x, few)
    assert_same(found, call(recurrence, x), dtype)
    again = on_kernel(x, few, seed=3)
    assert torch.equal(found[0], again[0]) and torch.equal(found[1], again[1])


def test_shares_are_what_the_kernel_deals() -> None:
    assert extrapolate.share(96, 128, 24) == (512, 4, 96)
    assert extrapolate.share(64, 128, 24) == (342, 4, 64 + 16)
    assert extrapolate.share(6, 128, 24) == (128, 1, 6)  # too few: whole heads
    assert extrapolate.share(25, 128, 24) == (256, 2, 25)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("initial", [True, False])
def test_few_heads_of_long_sequences_are_cut_into_fragments(dtype: torch.dtype, initial: bool) -> None:
    x = random_inputs(4200, heads=1, width=64, value=64, dtype=dtype)
    x["dt_bias"] = x["dt_bias"] - 6  # so slow that fragments matter to each other
    if not initial:
        x["initial_state"] = None
    with ops.backend("emulator", soc="950pr") as run:
        found = call(ops.kda, x)
    assert len(run.calls) == 2
    assert_same(found, call(recurrence, x), dtype)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((1, 8192, 1), 8), ((1, 8192, 6), 4), ((1, 8192, 7), 1), ((2, 65536, 1), 12), ((1, 4000, 1), 1)],
)
def test_fragments_follow_from_shape_and_soc(shape: tuple[int, int, int], expected: int) -> None:
    with ops.backend("emulator", soc="a3"):
        assert fragments(*shape) == expected


def test_the_extrapolation_is_what_a_longer_run_takes() -> None:
    chip = soc("950pr")
    found = extrapolate.extrapolate(chip)
    assert [(one.heads, one.lengths) for one in found] == list(extrapolate.SHAPES)
    small = chip.with_(cube_cores=2, vector_cores=4)
    with ops.backend("emulator", soc=small) as run:
        kda_call([16 * 64], heads=5, width=128, dtype=torch.bfloat16, initial=False)
    taken = run.calls[0].report.estimate().critical_path
    chunks, _, _ = extrapolate.share(5, 16, 2)
    assert chunks == 40 and taken == pytest.approx(chunks * found[0].stages["a chunk"], rel=0.2)
    # what docs/kda.md claims; the bound is memory's
    assert all(one.ratio < 1.5 for one in found) and found[0].bytes_a_token < 2500
    assert any("8 x 1024 tokens x 64 heads: modelled" in line for line in extrapolate.lines(chip))
