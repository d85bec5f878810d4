"""SiTU-GLU: the fixtures, its definition, its gradient, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from ascend_k3.ops.situ_glu import situ_glu
from tests.paths import FIXTURES
from tests.tolerances import FIXTURE_ATOL, FIXTURE_RTOL, RELATIVE_RMS, assert_close_rms

FIXTURE = load_file(FIXTURES / "layers" / "situ_glu.safetensors")
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def definition(gate_up: Tensor, beta: float, linear_beta: float | None) -> Tensor:
    gate, up = gate_up.double().chunk(2, dim=-1)
    bounded = up if linear_beta is None else linear_beta * torch.tanh(up / linear_beta)
    return beta * torch.tanh(gate / beta) / (1 + torch.exp(-gate)) * bounded


@pytest.mark.parametrize(
    ("beta", "linear_beta", "name"),
    [
        (4.0, 25.0, "y"),
        (4.0, None, "y_no_linear_beta"),
        (1.0, None, "y_beta1"),
        (0.0, None, "y_beta1"),
        (None, None, "y_beta1"),
    ],
    ids=["release", "no linear_beta", "beta 1", "beta 0", "beta absent"],
)
def test_matches_the_fixture(beta: float | None, linear_beta: float | None, name: str) -> None:
    y = situ_glu(FIXTURE["x"], beta=beta, linear_beta=linear_beta)
    torch.testing.assert_close(y, FIXTURE[name], atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)


def test_bf16_is_rounded_once() -> None:
    y = situ_glu(FIXTURE["x_bf16"], beta=4.0, linear_beta=25.0)
    torch.testing.assert_close(y, FIXTURE["y_bf16"], atol=0, rtol=torch.finfo(torch.bfloat16).eps)
    assert torch.equal(y, situ_glu(FIXTURE["x_bf16"].float(), beta=4.0, linear_beta=25.0).bfloat16())


def test_special_values_match_the_fixture_grid() -> None:
    gate_up = torch.stack((FIXTURE["grid_gate"], FIXTURE["grid_up"]), dim=-1)
    y = situ_glu(gate_up, beta=4.0, linear_beta=25.0).squeeze(-1)
    torch.testing.assert_close(y, FIXTURE["grid_y"], atol=0, rtol=FIXTURE_RTOL, equal_nan=True)
    assert torch.equal(y.isnan(), gate_up.isnan().any(-1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("linear_beta", [25.0, None])
def test_matches_the_float64_definition(dtype: torch.dtype, linear_beta: float | None) -> None:
    gate_up = (torch.randn(37, 130, generator=torch.Generator().manual_seed(0)) * 6).to(dtype)
    y = situ_glu(gate_up, beta=4.0, linear_beta=linear_beta)
    assert y.dtype == dtype
    assert_close_rms(y, definition(gate_up, 4.0, linear_beta), "y", RELATIVE_RMS[dtype])


@settings(max_examples=30)
@given(st.lists(st.integers(0, 5), max_size=3), st.sampled_from([0, 1, 2, 7, 15, 16, 17, 65]), st.integers(0, 99))
def test_every_shape_matches_the_definition(leading: list[int], half: int, seed: int) -> None:
    gate_up = torch.randn(*leading, 2 * half, generator=torch.Generator().manual_seed(seed))
    y = situ_glu(gate_up, beta=4.0, linear_beta=25.0)
    assert y.shape == (*leading, half)
    assert_close_rms(y, definition(gate_up, 4.0, 25.0), "y", RELATIVE_RMS[torch.float32])


def test_huge_inputs_stay_within_the_bound_and_have_finite_gradients() -> None:
    values = torch.tensor([-3e38, -1e30, -1e4, -90.0, 0.0, 90.0, 1e4, 1e30, 3e38])
    gate_up = torch.cartesian_prod(values, values).requires_grad_()
    y = situ_glu(gate_up, beta=4.0, linear_beta=25.0)
    y.sum().backward()
    assert gate_up.grad is not None
    assert y.abs().max() == 100 and gate_up.grad.isfinite().all()


def test_gradient_matches_autograd_of_the_definition() -> None:
    gate_up = (torch.randn(50, 64, generator=torch.Generator().manual_seed(1)) * 5).requires_grad_()
    exact = gate_up.detach().double().requires_grad_()
    situ_glu(gate_up, beta=4.0, linear_beta=25.0).square().sum().backward()
    definition(exact, 4.0, 25.0).square().sum().backward()
    assert gate_up.grad is not None and exact.grad is not None
    assert_close_rms(gate_up.grad, exact.grad, "gradient", RELATIVE_RMS[torch.float32])


def test_a_token_alone_equals_the_token_in_a_batch() -> None:
    gate_up = torch.randn(9, 32, generator=torch.Generator().manual_seed(2))
    together = situ_glu(gate_up, beta=4.0, linear_beta=25.0)
    alone = torch.cat([situ_glu(row, beta=4.0, linear_beta=25.0) for row in gate_up.split([1, 3, 5])])
    assert torch.equal(together, alone)


def test_nan_in_other_rows_changes_nothing() -> None:
    gate_up = torch.randn(9, 32, generator=torch.Generator().manual_seed(3))
    clean = situ_glu(gate_up, beta=4.0, linear_beta=25.0)
    gate_up[4] = math.nan
    poisoned = situ_glu(gate_up, beta=4.0, linear_beta=25.0)
    rows = torch.arange(9) != 4
    assert torch.equal(poisoned[rows], clean[rows]) and poisoned[4].isnan().all()


def test_strided_input_gives_contiguous_output() -> None:
    gate_up = torch.randn(6, 8, 5, generator=torch.Generator().manual_seed(4)).transpose(1, 2)
    y = situ_glu(gate_up, beta=4.0, linear_beta=25.0)
    assert y.is_contiguous()
    assert_close_rms(y, definition(gate_up, 4.0, 25.0), "y", RELATIVE_RMS[torch.float32])


@pytest.mark.parametrize("linear_beta", [25.0, None])
def test_registration_and_gradient(linear_beta: float | None) -> None:
    generator = torch.Generator().manual_seed(5)
    gate_up = torch.randn(3, 4, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(torch.ops.ascend_k3.situ_glu.default, (gate_up, 4.0, linear_beta))
    torch.library.opcheck(torch.ops.ascend_k3.situ_glu.default, (gate_up.detach().transpose(0, 1), 4.0, linear_beta))
    assert torch.autograd.gradcheck(lambda value: situ_glu(value, beta=4.0, linear_beta=linear_beta), gate_up)


def test_compiled_equals_eager() -> None:
    def step(value: Tensor) -> Tensor:
        return situ_glu(value * 2, beta=4.0, linear_beta=25.0)

    gate_up = torch.randn(5, 12, generator=torch.Generator().manual_seed(6), requires_grad=True)
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    (compiled_grad,) = torch.autograd.grad(compiled(gate_up).sum(), gate_up)
    (grad,) = torch.autograd.grad(step(gate_up).sum(), gate_up)
    assert torch.equal(compiled(gate_up), step(gate_up)) and torch.equal(compiled_grad, grad)


@pytest.mark.parametrize(
    ("gate_up", "beta", "linear_beta", "message"),
    [
        (torch.zeros(2, 5), 4.0, 25.0, r"gate_up must have an even last axis, gate then up; got \[2, 5\]"),
        (torch.zeros(()), 4.0, 25.0, r"gate_up must have an even last axis, gate then up; got \[\]"),
        (torch.zeros(2, 4, dtype=torch.int32), 4.0, 25.0, "gate_up must be of dtype .*, got int32"),
        (torch.zeros(2, 4), -4.0, 25.0, r"beta must be positive \(None or 0 means 1.0\), got -4.0"),
        (torch.zeros(2, 4), math.nan, 25.0, "beta must be positive .* got nan"),
        (torch.zeros(2, 4), 4.0, 0.0, "linear_beta must be positive, or None .*; got 0.0"),
    ],
    ids=["odd axis", "scalar", "dtype", "negative beta", "nan beta", "linear_beta 0"],
)
def test_refuses(gate_up: Tensor, beta: float, linear_beta: float | None, message: str) -> None:
    with pytest.raises(ValueError, match=f"situ_glu: {message}"):
        situ_glu(gate_up, beta=beta, linear_beta=linear_beta)
