"""The gradient kernel of KDA on the emulator: fixtures, definition, hard inputs, tails, packed, schedules, fallback."""

from __future__ import annotations

import itertools

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from ascend_k3 import ops
from ascend_k3.ops import kernel_cases
from ascend_k3.ops.kda.kernel.cases import GRADIENTS
from ascend_k3.ops.kda.kernel.launch import BACKWARD, DTYPES, WIDTHS
from ascend_k3.ops.soc import NAMES, soc
from tests.ops.kda_inputs import HARD, INPUTS, LENGTHS, WEIGHTS, call, fixture_names, hard_inputs, random_inputs
from tests.ops.kda_oracle import recurrence
from tests.ops.kernel_checks import SOCS, assert_case, assert_repeatable
from tests.paths import FIXTURES
from tests.tolerances import FIXTURE_GRADIENT, KDA_STATE_RMS, assert_close_rms, largest

LEAVES = (*INPUTS, *WEIGHTS, "initial_state")


def seeded(x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Gradients of o and of the final states, exact in the inputs' dtype."""
    source = torch.Generator().manual_seed(11)
    sequences = len(x["q"]) if x.get("cu_seqlens") is None else len(x["cu_seqlens"]) - 1
    states = (sequences, *x["v"].shape[2:], x["q"].shape[3])
    return torch.randn(x["v"].shape, generator=source).to(x["v"].dtype), torch.randn(states, generator=source)


def gradients(function, x: dict[str, Tensor], grads: tuple[Tensor, Tensor] | None = None) -> dict[str, Tensor]:
    leaves = {name: x[name].clone().requires_grad_() for name in LEAVES if x.get(name) is not None}
    outputs = call(function, {**x, **leaves})
    given = [grad.to(y.dtype) for grad, y in zip(grads or seeded(x), outputs, strict=True)]
    return dict(zip(leaves, torch.autograd.grad(outputs, list(leaves.values()), given), strict=True))


def on_kernel(x: dict[str, Tensor], chip: str = "a3", grads: tuple[Tensor, Tensor] | None = None) -> dict[str, Tensor]:
    with ops.backend("emulator", soc=chip) as run:
        found = gradients(ops.kda, x, grads)
    assert [(ran.name, ran.backend) for ran in run.calls] == [("kda", "emulator"), ("kda_backward", "emulator")]
    return found


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], dtype: torch.dtype) -> None:
    assert found.keys() == expected.keys()
    for name, wanted in expected.items():
        if wanted.double().abs().max() < 1e-9:  # a gate at its floor lets as good as nothing through
            assert found[name].abs().max() < 1e-9
        elif dtype == torch.float32:
            assert largest(found[name], wanted) <= FIXTURE_GRADIENT, name
        else:
            assert_close_rms(found[name], wanted, name, KDA_STATE_RMS[dtype])


def double(x: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: value.double() if value is not None and value.is_floating_point() else value for name, value in x.items()
    }


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("case", GRADIENTS, ids=lambda case: case.name)
def test_cases(case: kernel_cases.Case, chip: str) -> None:
    assert_case(case, chip)


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("case", [case for case in GRADIENTS if case.mutated], ids=lambda case: case.name)
def test_runs_and_schedules_give_the_same_bits(case: kernel_cases.Case, chip: str) -> None:
    assert_repeatable(case, chip)


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("name", fixture_names("kda_kernel/*grad*.safetensors"))
def test_gradients_equal_the_fixture(name: str, chip: str) -> None:
    x = load_file(FIXTURES / name)
    found = on_kernel(x, chip, (x["do"], x["dfinal_state"]))
    for key, grad in found.items():
        assert grad.dtype == x[key].dtype and grad.shape == x[key].shape
    assert_same(found, {key: x[f"d{key}"] for key in found}, x["q"].dtype)


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", HARD)
def test_hard_inputs_equal_the_definition(kind: str, dtype: torch.dtype, chip: str) -> None:
    x = hard_inputs(kind, width=128, dtype=dtype)
    assert_same(on_kernel(x, chip), gradients(recurrence, double(x), seeded(x)), dtype)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("dtype", "width"), list(itertools.product(DTYPES, WIDTHS)), ids=str)
def test_every_tail_equals_the_definition(length: int, dtype: torch.dtype, width: int) -> None:
    x = random_inputs(length, batch=2, width=width, value=width, dtype=dtype)
    assert_same(on_kernel(x), gradients(recurrence, double(x), seeded(x)), dtype)


@pytest.mark.parametrize("chip", SOCS)
def test_packed_sequences_without_a_state(chip: str) -> None:
    x = random_inputs(150, heads=3, width=64, value=64)
    x["initial_state"], x["cu_seqlens"] = None, torch.tensor([0, 0, 1, 81, 81, 150])
    assert_same(on_kernel(x, chip), gradients(recurrence, double(x), seeded(x)), torch.float32)


def test_an_empty_sequence_passes_the_gradient_of_its_state_on() -> None:
    x = random_inputs(20, width=64, value=64)
    x["cu_seqlens"] = torch.tensor([0, 0, 20])
    x["initial_state"] = torch.randn(2, 2, 64, 64, generator=torch.Generator().manual_seed(1))
    grads = (torch.zeros_like(x["v"]), torch.randn(2, 2, 64, 64, generator=torch.Generator().manual_seed(2)))
    found = on_kernel(x, grads=grads)
    assert torch.equal(found["initial_state"][0], grads[1][0])
    assert_same(found, gradients(recurrence, double(x), grads), torch.float32)


def test_a_split_sequence_gives_the_same() -> None:
    x = random_inputs(130, width=64, value=64)
    tokens = ("q", "k", "v", "g", "beta")

    def in_two(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, **options):
        parts, state = [], options.pop("initial_state")
        for begin, end in ((0, 50), (50, 130)):
            piece = dict(zip(tokens, (y[:, begin:end] for y in (q, k, v, g, beta)), strict=True))
            o, state = ops.kda(*piece.values(), **options, initial_state=state)
            parts.append(o)
        return torch.cat(parts, 1), state

    with ops.backend("emulator"):
        found = gradients(in_two, x)
    assert_same(found, on_kernel(x), torch.float32)


def test_a_neighbour_s_nan_stays_with_the_neighbour() -> None:
    x = random_inputs(100, heads=2, width=64, value=64)
    x["initial_state"], x["cu_seqlens"] = None, torch.tensor([0, 37, 60, 100])
    clean = on_kernel(x)
    for name in INPUTS:
        x[name][:, 37:60] = float("nan")
    found = on_kernel(x)
    for name in INPUTS:
        assert torch.equal(found[name][:, :37], clean[name][:, :37])
        assert torch.equal(found[name][:, 60:], clean[name][:, 60:])


def test_beta_may_be_float32_beside_bf16() -> None:
    x = random_inputs(70, width=64, value=64, dtype=torch.bfloat16)
    x["beta"] = x["beta"].float() + 1e-3
    found = on_kernel(x)
    assert found["beta"].dtype == torch.float32
    assert_same(found, gradients(recurrence, double(x), seeded(x)), torch.bfloat16)


def test_nothing_to_do() -> None:
    x = random_inputs(0, batch=0, width=64, value=64)
    with ops.backend("emulator"):
        assert all(grad.numel() == 0 or not grad.any() for grad in gradients(ops.kda, x).values())


def test_the_backward_pass_takes_the_backend_of_the_forward_pass() -> None:
    x = random_inputs(5, width=32, value=32)
    with ops.backend("emulator", missing="reference") as run:
        leaves = {name: x[name].requires_grad_() for name in LEAVES}
        o, _ = call(ops.kda, {**x, **leaves})
    o.sum().backward()
    assert [(ran.name, ran.backend) for ran in run.calls] == [("kda", "reference"), ("kda_backward", "reference")]


@pytest.mark.parametrize("chip", NAMES)
def test_tilings_fill_the_cores_and_keep_the_states(chip: str) -> None:
    facts = soc(chip)
    tiling = BACKWARD.tile_for((1, 1000, 96, 128, 2, 1), (-5.0, 1.0), facts)
    assert tiling.block_dim == facts.cube_cores
    assert tiling.workspace >= tiling.block_dim * 16 * 128 * 128 * 4
    with pytest.raises(ValueError, match=r"q has 96 key channels; the kernel takes 64 and 128"):
        BACKWARD.tile_for((1, 10, 1, 96, 2, 1), (-5.0, 1.0), facts)
