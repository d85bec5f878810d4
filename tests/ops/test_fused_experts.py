"""Routed experts: the LatentMoE fixture, the definition, MX weights, dropped slots, gradients, and refusals."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from ascend_k3.ops.fused_experts import fused_experts
from ascend_k3.ops.mx import MXTensor, mx_dequantize, mx_quantize
from ascend_k3.ops.rms_norm import rms_norm
from ascend_k3.ops.route import route
from ascend_k3.ops.situ_glu import situ_glu
from tests.paths import FIXTURES
from tests.tolerances import BF16_MULTIPLE, FIXTURE_ATOL, FIXTURE_RTOL, RELATIVE_RMS, assert_close_rms

LAYERS = FIXTURES / "layers"
FIXTURE = load_file(LAYERS / "latent_moe.safetensors")
NOTES = json.loads((LAYERS / "latent_moe.json").read_text())
BOUNDS = {"beta": 4.0, "linear_beta": 25.0}
MX_FORMATS = ["mxfp4", "mxfp8_e4m3", "mxfp8_e5m2"]


def definition(
    x: Tensor,
    weights: Tensor,
    ids: Tensor,
    w13: Tensor,
    w2: Tensor,
    beta: float = 4.0,
    linear_beta: float | None = 25.0,
) -> Tensor:
    """Token by token and slot by slot in float64."""
    x, weights, w13, w2 = x.double(), weights.double(), w13.double(), w2.double()
    rows = []
    for t in range(x.shape[0]):
        total = torch.zeros_like(x[t])
        for slot, expert in enumerate(ids[t].tolist()):
            if expert >= 0:
                gate, up = (w13[expert] @ x[t]).chunk(2)
                up = up if linear_beta is None else linear_beta * torch.tanh(up / linear_beta)
                active = beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * up
                total = total + weights[t, slot] * (w2[expert] @ active)
        rows.append(total)
    return torch.stack(rows) if rows else x


def random_case(
    tokens: int,
    dtype: torch.dtype = torch.float32,
    *,
    experts: int = 6,
    top_k: int = 3,
    latent: int = 32,
    width: int = 32,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    ids = torch.rand(tokens, experts, generator=generator).argsort(dim=1)[:, :top_k]
    weights = torch.rand(tokens, top_k, generator=generator, dtype=torch.float64)
    weights = weights.to(torch.promote_types(dtype, torch.float32))
    w13, w2 = normal(experts, 2 * width, latent) * 0.3, normal(experts, latent, width) * 0.3
    return normal(tokens, latent), weights, ids, w13, w2


def fixture_layer(x: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    """StableLatentMoE of the released model, made of the operators and the fixture's weights."""
    w = {name.removeprefix("w."): value for name, value in FIXTURE.items() if name.startswith("w.")}
    experts = range(NOTES["config"]["num_experts"])
    gate_and_up = [torch.cat((w[f"experts.{e}.w1.weight"], w[f"experts.{e}.w3.weight"])) for e in experts]
    w13 = torch.stack(gate_and_up).to(dtype)
    w2 = torch.stack([w[f"experts.{e}.w2.weight"] for e in experts]).to(dtype)
    flat = x.flatten(0, 1)
    logits = F.linear(flat.float(), w["gate.weight"].float())
    weights, ids = route(logits, w["gate.e_score_correction_bias"], top_k=NOTES["config"]["num_experts_per_token"])
    latent = F.linear(flat, w["routed_expert_down_proj.weight"].to(dtype))
    routed = fused_experts(latent, weights, ids, w13, w2, **BOUNDS)
    normed = rms_norm(routed, w["routed_expert_norm.weight"].to(dtype), eps=1e-5)
    gate_up = torch.cat((w["shared_experts.gate_proj.weight"], w["shared_experts.up_proj.weight"])).to(dtype)
    shared = F.linear(situ_glu(F.linear(x, gate_up), **BOUNDS), w["shared_experts.down_proj.weight"].to(dtype))
    y = F.linear(normed, w["routed_expert_up_proj.weight"].to(dtype)).view_as(x) + shared
    order = ids.argsort(dim=1)
    return {
        "topk_idx": ids.gather(1, order),
        "topk_weight": weights.gather(1, order),
        "latent": latent,
        "routed_latent": routed,
        "shared_out": shared,
        "y": y,
    }


def test_latent_moe_matches_the_fixture() -> None:
    found = fixture_layer(FIXTURE["x"], torch.float32)
    for name, value in found.items():
        assert value.shape == FIXTURE[name].shape, name
        torch.testing.assert_close(
            value, FIXTURE[name], atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_latent_moe_in_bf16_is_as_near_as_the_released_code() -> None:
    found = fixture_layer(FIXTURE["x_bf16"], torch.bfloat16)["y"]
    error = (found.double() - FIXTURE["y_bf16_exact"].double()).abs().max()
    assert error <= BF16_MULTIPLE * NOTES["bf16_err"]["max"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("beta", "linear_beta"), [(4.0, 25.0), (1.0, None)])
def test_matches_the_float64_definition(dtype: torch.dtype, beta: float, linear_beta: float | None) -> None:
    case = random_case(33, dtype)
    y = fused_experts(*case, beta=beta, linear_beta=linear_beta)
    assert y.dtype == dtype
    assert_close_rms(y, definition(*case, beta, linear_beta), "y", RELATIVE_RMS[dtype])


@settings(max_examples=25)
@given(
    st.sampled_from([0, 1, 2, 7, 15, 16, 17, 65]),
    st.integers(1, 6),
    st.sampled_from([1, 5, 16]),
    st.sampled_from([torch.int32, torch.int64]),
    st.integers(0, 99),
)
def test_every_shape_and_dropped_slots_match_the_definition(
    tokens: int, top_k: int, width: int, dtype: torch.dtype, seed: int
) -> None:
    x, weights, ids, w13, w2 = random_case(tokens, top_k=top_k, latent=7, width=width, seed=seed)
    ids[torch.rand(ids.shape, generator=torch.Generator().manual_seed(seed)) < 0.2] = -1
    y = fused_experts(x, weights, ids.to(dtype), w13, w2, **BOUNDS)
    assert y.shape == x.shape
    assert_close_rms(y, definition(x, weights, ids, w13, w2), "y", RELATIVE_RMS[torch.float32])


@pytest.mark.parametrize("format", MX_FORMATS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_quantized_experts_equal_their_dense_values(format: str, dtype: torch.dtype) -> None:
    x, weights, ids, w13, w2 = random_case(17, dtype, latent=64)
    q13, q2 = mx_quantize(w13.float(), format=format), mx_quantize(w2.float(), format=format)
    exact = [mx_dequantize(q, dtype=torch.float32) for q in (q13, q2)]
    y = fused_experts(x, weights, ids, q13, q2, **BOUNDS)
    assert y.dtype == dtype and torch.equal(y, fused_experts(x, weights, ids, *exact, **BOUNDS))
    assert_close_rms(y, definition(x, weights, ids, *exact), "y", RELATIVE_RMS[dtype])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_calculated_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    x, weights, ids, w13, w2 = random_case(9, dtype)
    wanted = fused_experts(x.float(), weights, ids, w13.float(), w2.float(), **BOUNDS).to(dtype)
    assert torch.equal(fused_experts(x, weights, ids, w13, w2, **BOUNDS), wanted)
    assert torch.equal(fused_experts(x, weights, ids, w13.float(), w2.float(), **BOUNDS), wanted)


def test_an_expert_named_twice_counts_twice() -> None:
    x, weights, ids, w13, w2 = random_case(4)
    ids[1] = 5
    y = fused_experts(x, weights, ids, w13, w2, **BOUNDS)
    assert_close_rms(y, definition(x, weights, ids, w13, w2), "y", RELATIVE_RMS[torch.float32])


def test_huge_inputs_stay_within_the_bound() -> None:
    x, weights, ids, w13, w2 = random_case(16)
    y = fused_experts(x * 1e20, weights, ids, w13, w2, **BOUNDS)
    bound = (weights.unsqueeze(-1) * 100 * w2.abs().sum(-1)[ids]).sum(1)
    assert y.isfinite().all() and (y.abs() <= bound).all()
    assert_close_rms(y, definition(x * 1e20, weights, ids, w13, w2), "y", RELATIVE_RMS[torch.float32])


def test_one_expert_for_all_tokens_and_all_experts_for_one() -> None:
    x, weights, _, w13, w2 = random_case(40, top_k=6)
    same = torch.full((40, 1), 3)
    y = fused_experts(x, weights[:, :1], same, w13, w2, **BOUNDS)
    assert_close_rms(y, definition(x, weights[:, :1], same, w13, w2), "y", RELATIVE_RMS[torch.float32])
    every = torch.arange(6).expand(40, 6)
    y = fused_experts(x, weights, every, w13, w2, **BOUNDS)
    assert_close_rms(y, definition(x, weights, every, w13, w2), "y", RELATIVE_RMS[torch.float32])


def test_slots_in_another_order_give_the_same_bits() -> None:
    x, weights, ids, w13, w2 = random_case(21)
    y = fused_experts(x, weights, ids, w13, w2, **BOUNDS)
    assert torch.equal(y, fused_experts(x, weights.flip(1), ids.flip(1), w13, w2, **BOUNDS))


def test_split_equals_one_shot() -> None:
    x, weights, ids, w13, w2 = random_case(65)
    y = fused_experts(x, weights, ids, w13, w2, **BOUNDS)
    pieces = zip(*(value.split([1, 0, 15, 49]) for value in (x, weights, ids)), strict=True)
    split = torch.cat([fused_experts(*piece, w13, w2, **BOUNDS) for piece in pieces])
    assert_close_rms(split, y, "y", RELATIVE_RMS[torch.float32])


@pytest.mark.parametrize("kind", ["dense", *MX_FORMATS])
def test_unused_experts_and_dropped_tokens_are_inert(kind: str) -> None:
    x, weights, ids, w13, w2 = random_case(12)
    ids[ids == 2] = -1  # expert 2 is unused, and some slots are dropped
    ids[5] = -1

    def run() -> Tensor:
        if kind == "dense":
            return fused_experts(x, weights, ids, w13, w2, **BOUNDS)
        return fused_experts(x, weights, ids, mx_quantize(w13, format=kind), mx_quantize(w2, format=kind), **BOUNDS)

    clean = run()
    w13[2] = torch.nan
    w2[2] = torch.nan
    weights[ids < 0] = torch.nan
    x[5] = torch.nan
    poisoned = run()
    assert torch.equal(poisoned, clean) and torch.equal(poisoned[5], torch.zeros(32))


def test_nan_in_unused_experts_and_dropped_tokens_leaves_gradients_clean() -> None:
    x, weights, ids, w13, w2 = random_case(12)
    ids[ids == 2] = -1
    ids[5] = -1

    def gradients() -> tuple[Tensor, ...]:
        inputs = [value.clone().requires_grad_() for value in (x, weights, w13, w2)]
        y = fused_experts(inputs[0], inputs[1], ids, inputs[2], inputs[3], **BOUNDS)
        return torch.autograd.grad(y.square().sum(), inputs)

    clean = gradients()
    w13[2] = torch.nan
    w2[2] = torch.nan
    weights[ids < 0] = torch.nan
    x[5] = torch.nan
    for found, wanted in zip(gradients(), clean, strict=True):
        assert torch.equal(found, wanted)
    assert not clean[0][5].any() and not clean[1][ids < 0].any() and not clean[2][2].any() and not clean[3][2].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients_match_autograd_of_the_definition(dtype: torch.dtype) -> None:
    x, weights, ids, w13, w2 = random_case(33, dtype)
    ids[::5, 1] = -1
    inputs = [value.requires_grad_() for value in (x, weights, w13, w2)]
    exact = [value.detach().double().requires_grad_() for value in inputs]
    grad = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    y = fused_experts(inputs[0], inputs[1], ids, inputs[2], inputs[3], **BOUNDS)
    found = torch.autograd.grad(y, inputs, grad)
    wanted = torch.autograd.grad(definition(exact[0], exact[1], ids, exact[2], exact[3]), exact, grad.double())
    for name, value, reference in zip(("x", "weights", "w13", "w2"), found, wanted, strict=True):
        assert_close_rms(value, reference, f"gradient of {name}", RELATIVE_RMS[value.dtype])


@pytest.mark.parametrize("only", ["x", "weights", "w13", "w2"])
def test_each_gradient_alone_equals_the_gradient_among_all(only: str) -> None:
    x, weights, ids, w13, w2 = random_case(9)
    values = {"x": x, "weights": weights, "w13": w13, "w2": w2}

    def gradient(names: list[str]) -> Tensor:
        inputs = {name: value.clone().requires_grad_(name in names) for name, value in values.items()}
        y = fused_experts(inputs["x"], inputs["weights"], ids, inputs["w13"], inputs["w2"], **BOUNDS)
        y.square().sum().backward()
        assert all(inputs[name].grad is None for name in values if name not in names)
        return inputs[only].grad

    assert torch.equal(gradient([only]), gradient(list(values)))


def test_gradients_pass_through_quantized_experts() -> None:
    x, weights, ids, w13, w2 = random_case(9)
    packed = [mx_quantize(value, format="mxfp4") for value in (w13, w2)]
    dense = [mx_dequantize(value, dtype=torch.float32) for value in packed]
    inputs = [x.requires_grad_(), weights.requires_grad_()]
    found = torch.autograd.grad(fused_experts(x, weights, ids, *packed, **BOUNDS).square().sum(), inputs)
    wanted = torch.autograd.grad(fused_experts(x, weights, ids, *dense, **BOUNDS).square().sum(), inputs)
    assert all(torch.equal(value, reference) for value, reference in zip(found, wanted, strict=True))


@pytest.mark.parametrize("linear_beta", [25.0, None])
def test_registration_and_gradient(linear_beta: float | None) -> None:
    x, weights, ids, w13, w2 = random_case(5, torch.float64, experts=4, top_k=2, latent=3, width=2)
    ids[1, 0] = -1
    x, weights, w13, w2 = (value.requires_grad_() for value in (x, weights, w13, w2))
    arguments = (x, weights, ids, w13, None, w2, None, "dense", 4.0, linear_beta)
    torch.library.opcheck(torch.ops.ascend_k3.fused_experts.default, arguments)

    def run(*values: Tensor) -> Tensor:
        return fused_experts(values[0], values[1], ids, values[2], values[3], beta=4.0, linear_beta=linear_beta)

    assert torch.autograd.gradcheck(run, (x, weights, w13, w2))


@pytest.mark.parametrize("format", MX_FORMATS)
def test_registration_with_quantized_experts(format: str) -> None:
    x, weights, ids, w13, w2 = random_case(5, torch.bfloat16)
    q13, q2 = mx_quantize(w13, format=format), mx_quantize(w2, format=format)
    x, weights = x.requires_grad_(), weights.requires_grad_()
    arguments = (x, weights, ids, q13.data, q13.scale, q2.data, q2.scale, format, 4.0, 25.0)
    # torch's check of the schema compares the arguments before and after, which it cannot do for float8.
    every = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    checks = every if format == "mxfp4" else every[1:]
    torch.library.opcheck(torch.ops.ascend_k3.fused_experts.default, arguments, test_utils=checks)


def test_compiled_equals_eager() -> None:
    def step(value: Tensor) -> Tensor:
        return fused_experts(value * 2, weights, ids, w13, w2, **BOUNDS)

    x, weights, ids, w13, w2 = random_case(5)
    x.requires_grad_()
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), step(x))
    (found,) = torch.autograd.grad(compiled(x).sum(), x)
    (wanted,) = torch.autograd.grad(step(x).sum(), x)
    assert torch.equal(found, wanted)


def quantized(*shape: int, format: str = "mxfp4") -> MXTensor:
    return mx_quantize(torch.zeros(*shape), format=format)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation": "silu"}, "activation must be \"situ\", got 'silu'"),
        ({"beta": -1.0}, "beta must be positive .*, got -1.0"),
        ({"linear_beta": -1.0}, "linear_beta must be positive, .*; got -1.0"),
        ({"x": torch.zeros(2, 32, dtype=torch.int64)}, "x must be of dtype .*, got int64"),
        ({"x": torch.zeros(1, 2, 32)}, r"x must have the shape \[T, D\], got \[1, 2, 32\]"),
        ({"weights": torch.zeros(2, 2, dtype=torch.int64)}, "weights must be of dtype .*, got int64"),
        ({"weights": torch.zeros(2, 3)}, r"weights must have the shape \[2, 2\], got \[2, 3\]"),
        ({"ids": torch.zeros(2, 2)}, "ids must be of dtype int32, int64, got float32"),
        ({"ids": torch.zeros(3, 2, dtype=torch.int64)}, r"ids must have the shape \[2, top_k\], got \[3, 2\]"),
        ({"ids": torch.tensor([[0, 4], [1, 2]])}, "ids must be 0 to 3, or -1 to drop a slot; got 4"),
        ({"ids": torch.tensor([[0, -2], [1, 2]])}, "ids must be 0 to 3, or -1 to drop a slot; got -2"),
        ({"w13": torch.zeros(4, 64, 32, dtype=torch.uint8)}, "w13 must be of dtype .*, got uint8"),
        ({"w13": torch.zeros(4, 63, 32)}, r"w13 must have the shape \[E, 2I, 32\] to fit x, got \[4, 63, 32\]"),
        ({"w13": torch.zeros(4, 64, 16)}, r"w13 must have the shape \[E, 2I, 32\] to fit x, got \[4, 64, 16\]"),
        ({"w13": torch.zeros(64, 32)}, r"w13 must have the shape \[E, 2I, 32\] to fit x, got \[64, 32\]"),
        ({"w2": torch.zeros(4, 32, 64)}, r"w2 must have the shape \[4, 32, 32\] to fit w13, got \[4, 32, 64\]"),
        ({"w2": torch.zeros(3, 32, 32)}, r"w2 must have the shape \[4, 32, 32\] to fit w13, got \[3, 32, 32\]"),
        ({"w2": torch.zeros(4, 32, 32, device="meta")}, "w2 is on meta and x on cpu; move them to one device"),
        ({"w2": quantized(4, 32, 32)}, "w13 and w2 must be of one format, got dense and mxfp4"),
        (
            {"w13": quantized(4, 64, 32, format="mxfp8_e4m3"), "w2": quantized(4, 32, 32)},
            "w13 and w2 must be of one format, got mxfp8_e4m3 and mxfp4",
        ),
        (
            {"w13": quantized(4, 64, 64), "w2": quantized(4, 32, 32)},
            r"w13 must have the shape \[E, 2I, 32\] to fit x, got \[4, 64, 64\]",
        ),
        (
            {"w13": quantized(4, 64, 32), "w2": quantized(4, 32, 64)},
            r"w2 must have the shape \[4, 32, 32\] to fit w13, got \[4, 32, 64\]",
        ),
    ],
    ids=[
        "activation", "beta", "linear_beta", "x dtype", "x shape", "weights dtype", "weights shape", "ids dtype",
        "ids shape", "id too large", "id below -1", "w13 dtype", "w13 odd", "w13 width", "w13 axes", "w2 width",
        "w2 experts", "device", "dense and packed", "two formats", "packed w13 width", "packed w2 width",
    ],
)  # fmt: skip
def test_refuses(change: dict, message: str) -> None:
    arguments = {
        "x": torch.zeros(2, 32),
        "weights": torch.zeros(2, 2),
        "ids": torch.tensor([[0, 1], [3, 2]]),
        "w13": torch.zeros(4, 64, 32),
        "w2": torch.zeros(4, 32, 32),
        **BOUNDS,
        **change,
    }
    with pytest.raises(ValueError, match=f"fused_experts: {message}"):
        fused_experts(**arguments)
