"""Routing: the fixtures, ties, its definition, its gradient, and what it refuses."""

from __future__ import annotations

import json
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from ascend_k3.ops.route import route
from tests.paths import FIXTURES
from tests.tolerances import FIXTURE_ATOL, FIXTURE_RTOL, RELATIVE_RMS, assert_close_rms

LAYERS = FIXTURES / "layers"
FIXTURE = load_file(LAYERS / "router.safetensors")
CASES = json.loads((LAYERS / "router.json").read_text())["cases"]


def definition(logits: Tensor, bias: Tensor, top_k: int, renormalize: bool, factor: float) -> tuple[Tensor, Tensor]:
    """The definition, token by token with Python's sort, which keeps the order of equal values."""
    scores = torch.sigmoid(logits)
    rows = [
        sorted(range(len(row)), key=lambda expert, row=row: -row[expert])[:top_k]  # type: ignore[misc]
        for row in (scores + bias).tolist()
    ]
    ids = torch.tensor(rows, dtype=torch.int64).view(len(rows), top_k)
    weights = torch.sigmoid(logits.double()).gather(1, ids)
    if renormalize:
        weights = weights / (weights.sum(1, keepdim=True) + 1e-20)
    return weights * factor, ids


def random_case(tokens: int, experts: int, seed: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(tokens, experts, generator=generator, dtype=dtype)
    return logits, torch.randn(experts, generator=generator, dtype=dtype) * 0.1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_matches_the_fixture(case: dict) -> None:
    tensor = {name.removeprefix(case["case"] + "."): value for name, value in FIXTURE.items()}
    logits = F.linear(tensor["x"], tensor["gate_w"])
    weights, ids = route(logits, tensor["bias"], top_k=case["topk"], scaling_factor=case["routed_scaling_factor"])
    order = ids.argsort(dim=1)
    assert torch.equal(ids.gather(1, order), tensor["topk_idx"])
    torch.testing.assert_close(weights.gather(1, order), tensor["topk_weight"], atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)


def test_ties_go_to_the_lowest_index_as_in_the_fixture() -> None:
    weights, ids = route(FIXTURE["ties.logits"], FIXTURE["ties.bias"], top_k=2)
    order = ids.argsort(dim=1)
    assert torch.equal(ids.gather(1, order), FIXTURE["ties.topk_idx_lowest_index"])
    wanted = FIXTURE["ties.topk_weight"]
    torch.testing.assert_close(weights.gather(1, order), wanted, atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)


@settings(max_examples=40)
@given(st.data())
def test_many_ties_keep_the_order_of_the_definition(data: st.DataObject) -> None:
    experts = data.draw(st.integers(1, 40))
    count = 3 * experts
    values = data.draw(st.lists(st.sampled_from([-2.0, -0.5, 0.0, 1.0, 3.0]), min_size=count, max_size=count))
    top_k = data.draw(st.integers(1, experts))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    logits = torch.tensor(values, dtype=dtype).view(3, experts)
    bias = torch.tensor(data.draw(st.lists(st.sampled_from([-2.0, 0.0, 0.25]), min_size=experts, max_size=experts)))
    _, ids = route(logits, bias, top_k=top_k)
    assert torch.equal(ids, definition(logits, bias, top_k, True, 1.0)[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("renormalize", "factor"), [(True, 1.0), (True, 2.5), (False, 1.0)])
@pytest.mark.parametrize("tokens", [0, 1, 2, 7, 17, 65])
def test_matches_the_definition(dtype: torch.dtype, renormalize: bool, factor: float, tokens: int) -> None:
    logits, bias = random_case(tokens, 96, tokens, dtype)
    weights, ids = route(logits, bias, top_k=8, renormalize=renormalize, scaling_factor=factor)
    wanted_weights, wanted_ids = definition(logits, bias, 8, renormalize, factor)
    assert weights.dtype == dtype and ids.dtype == torch.int64
    assert torch.equal(ids, wanted_ids)
    assert_close_rms(weights, wanted_weights, "weights", RELATIVE_RMS[dtype])


def test_huge_logits_and_closed_experts() -> None:
    logits = torch.tensor([[1e30, -1e30, 200.0, -200.0, 0.0, torch.inf], [-torch.inf] * 6])
    bias = torch.tensor([0.0, 0.0, 0.0, 0.0, -torch.inf, -10.0])
    weights, ids = route(logits, bias, top_k=4)
    assert ids.tolist() == [[0, 2, 1, 3], [0, 1, 2, 3]]
    assert torch.equal(weights[0], torch.tensor([0.5, 0.5, 0.0, 0.0]))
    assert torch.equal(weights[1], torch.zeros(4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_nan_shows_in_its_row_and_nowhere_else(dtype: torch.dtype, sign: float) -> None:
    logits, bias = random_case(5, 20, 0, dtype)
    clean_weights, clean_ids = route(logits, bias, top_k=4)
    logits[1, 7] = math.copysign(math.nan, sign)
    logits[3] = math.copysign(math.nan, sign)
    weights, ids = route(logits, bias, top_k=4)
    untouched = torch.tensor([0, 2, 4])
    assert torch.equal(weights[untouched], clean_weights[untouched])
    assert torch.equal(ids[untouched], clean_ids[untouched])
    assert ids[1, 0] == 7 and ids[3].tolist() == [0, 1, 2, 3]
    assert weights[1].isnan().all() and weights[3].isnan().all()


def test_a_token_alone_equals_the_token_in_a_batch() -> None:
    logits, bias = random_case(12, 64, 1)
    weights, ids = route(logits, bias, top_k=6)
    pieces = [route(piece, bias, top_k=6) for piece in logits.split([1, 4, 7])]
    assert torch.equal(ids, torch.cat([piece[1] for piece in pieces]))
    assert torch.equal(weights, torch.cat([piece[0] for piece in pieces]))


@pytest.mark.parametrize("renormalize", [True, False])
def test_registration_and_gradient(renormalize: bool) -> None:
    logits, bias = random_case(4, 10, 2, torch.float64)
    logits.requires_grad_()
    operator = torch.ops.ascend_k3.route.default
    torch.library.opcheck(operator, (logits, bias, 3, renormalize, 2.5))
    torch.library.opcheck(operator, (logits.detach().float().t().contiguous().t(), bias.float(), 3, renormalize, 1.0))

    def weights(value: Tensor) -> Tensor:
        return route(value, bias, top_k=3, renormalize=renormalize, scaling_factor=2.5)[0]

    assert torch.autograd.gradcheck(weights, logits)


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_logits_are_calculated_in_float32_and_rounded_once(
    dtype: torch.dtype, renormalize: bool
) -> None:
    logits, bias = random_case(7, 96, 5)
    half, wide = logits.to(dtype).requires_grad_(), logits.to(dtype).float().requires_grad_()
    weights, ids = route(half, bias, top_k=8, renormalize=renormalize, scaling_factor=2.5)
    wanted, wanted_ids = route(wide, bias, top_k=8, renormalize=renormalize, scaling_factor=2.5)
    assert torch.equal(ids, wanted_ids) and weights.dtype == dtype and torch.equal(weights, wanted.to(dtype))
    direction = torch.arange(8.0).expand_as(wanted)
    (found,) = torch.autograd.grad(weights, half, direction.to(dtype))
    (expected,) = torch.autograd.grad(wanted, wide, direction)
    assert found.dtype == dtype and torch.equal(found, expected.to(dtype))
    torch.library.opcheck(torch.ops.ascend_k3.route.default, (half, bias, 3, renormalize, 1.0))


def test_bias_has_no_gradient_and_ids_none() -> None:
    logits, bias = random_case(4, 10, 3)
    logits.requires_grad_()
    bias.requires_grad_()
    weights, ids = route(logits, bias, top_k=3)
    weights.square().sum().backward()
    assert bias.grad is None and not ids.requires_grad
    assert logits.grad is not None and ((logits.grad != 0).sum(1) == 3).all()


def test_compiled_equals_eager() -> None:
    def step(value: Tensor) -> tuple[Tensor, Tensor]:
        return route(value * 2, bias, top_k=3)

    logits, bias = random_case(4, 10, 4)
    logits.requires_grad_()
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    found, wanted = compiled(logits), step(logits)
    assert torch.equal(found[0], wanted[0]) and torch.equal(found[1], wanted[1])
    (found_grad,) = torch.autograd.grad(found[0].square().sum(), logits)
    (wanted_grad,) = torch.autograd.grad(wanted[0].square().sum(), logits)
    assert torch.equal(found_grad, wanted_grad)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": torch.zeros(2, 8, dtype=torch.int64)}, "logits must be of dtype float32, .*, got int64"),
        (
            {"bias": torch.zeros(8, dtype=torch.bfloat16)},
            "bias must be of dtype float32, float64, got bfloat16; keep the bias in float32: a bf16 bias would select",
        ),
        ({"logits": torch.zeros(8)}, r"logits must have the shape \[T, E\], got \[8\]"),
        ({"bias": torch.zeros(7)}, r"bias must have the shape \[8\], got \[7\]"),
        ({"bias": torch.zeros(8, device="meta")}, "bias is on meta and logits on cpu"),
        ({"top_k": 0}, "top_k must be 1 to the number of experts, 8; got 0"),
        ({"top_k": 9}, "top_k must be 1 to the number of experts, 8; got 9"),
    ],
    ids=["logits dtype", "bias dtype", "logits shape", "bias shape", "device", "top_k 0", "top_k 9"],
)
def test_refuses(change: dict, message: str) -> None:
    arguments = {"logits": torch.zeros(2, 8), "bias": torch.zeros(8), "top_k": 2, **change}
    with pytest.raises(ValueError, match=f"route: {message}"):
        route(**arguments)
