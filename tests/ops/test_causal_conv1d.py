"""Causal convolution: the fixture's windows, its definition, packing, splits, the pooled step, and what it refuses."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from ascend_k3.ops.causal_conv1d import causal_conv1d, causal_conv1d_update
from tests.paths import FIXTURES
from tests.tolerances import FIXTURE_ATOL, FIXTURE_RTOL, RELATIVE_RMS, assert_close_rms

FIXTURE = load_file(FIXTURES / "layers" / "kda_layer.safetensors")
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
LENGTHS = [0, 1, 2, 3, 4, 7, 15, 16, 17, 63, 64, 65]


def definition(x: Tensor, weight: Tensor, window: Tensor, activation: str | None) -> tuple[Tensor, Tensor]:
    """One sequence [T, C] in float64, token by token; window [C, W-1]."""
    width = weight.shape[-1]
    inputs = torch.cat((window.double(), x.double().t()), dim=1)
    outputs = [(inputs[:, t : t + width] * weight[:, 0].double()).sum(1) for t in range(x.shape[0])]
    y = torch.stack(outputs) if outputs else x.double()
    return y * torch.sigmoid(y) if activation == "silu" else y, inputs[:, inputs.shape[1] - width + 1 :]


def packed(lengths: list[int], channels: int = 6, width: int = 4, seed: int = 0, dtype: torch.dtype = torch.float32):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, sum(lengths), channels, generator=generator, dtype=torch.float64).to(dtype)
    weight = torch.randn(channels, 1, width, generator=generator, dtype=torch.float64)
    window = torch.randn(len(lengths), channels, width - 1, generator=generator, dtype=torch.float64).to(dtype)
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0)
    return x, weight.to(torch.promote_types(dtype, torch.float32)), window, cu_seqlens


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_windows_match_the_kda_layer_fixture(name: str) -> None:
    raw = F.linear(FIXTURE["x"], FIXTURE[f"w.{name}_proj.weight"].float())
    weight = FIXTURE[f"w.{name}_conv1d.weight"]
    _, window = causal_conv1d(raw[:, :67], weight)
    wanted = FIXTURE[f"prefill_conv_state_{name}"][..., 1:]
    torch.testing.assert_close(window, wanted, atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)
    for t in range(67, 72):
        causal_conv1d_update(raw[:, t], weight, window, torch.arange(2))
    wanted = FIXTURE[f"final_conv_state_{name}"][..., 1:]
    torch.testing.assert_close(window, wanted, atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)


@pytest.mark.parametrize("activation", ["silu", None])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matches_the_float64_definition(dtype: torch.dtype, activation: str | None) -> None:
    x, weight, window, _ = packed([65, 65], channels=33, dtype=dtype)
    x = x.view(2, 65, 33)
    y, next_window = causal_conv1d(x, weight, window, activation=activation)
    assert y.dtype == dtype and next_window.dtype == dtype and next_window.is_contiguous()
    for n in range(2):
        wanted_y, wanted_window = definition(x[n], weight, window[n], activation)
        assert_close_rms(y[n], wanted_y, "y", RELATIVE_RMS[dtype])
        assert torch.equal(next_window[n].double(), wanted_window)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_calculated_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    x, weight, window, _ = packed([65], channels=32, dtype=dtype)
    y, _ = causal_conv1d(x, weight.to(dtype), window)
    wanted, _ = causal_conv1d(x.float(), weight.to(dtype).float(), window.float())
    assert torch.equal(y, wanted.to(dtype))
    step = causal_conv1d_update(x[0, :1], weight.to(dtype), window, torch.tensor([0]))
    assert torch.equal(step, wanted[0, :1].to(dtype))


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(LENGTHS), max_size=5),
    st.sampled_from([2, 3, 4, 7]),
    st.booleans(),
    st.sampled_from([torch.int32, torch.int64]),
)
def test_packed_sequences_match_the_definition(
    lengths: list[int], width: int, with_window: bool, offsets: torch.dtype
) -> None:
    x, weight, window, cu_seqlens = packed(lengths, width=width)
    y, next_window = causal_conv1d(x, weight, window if with_window else None, cu_seqlens.to(offsets))
    assert y.shape == x.shape and next_window.shape == window.shape
    for n, (start, end) in enumerate(zip(cu_seqlens[:-1], cu_seqlens[1:], strict=True)):
        history = window[n] if with_window else torch.zeros_like(window[n])
        wanted_y, wanted_window = definition(x[0, start:end], weight, history, "silu")
        assert_close_rms(y[0, start:end], wanted_y, f"y of sequence {n}", RELATIVE_RMS[torch.float32])
        assert torch.equal(next_window[n].double(), wanted_window)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 17])
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_a_batch_equals_the_same_sequences_packed(batch: int, length: int) -> None:
    x, weight, window, cu_seqlens = packed([length] * batch)
    y, next_window = causal_conv1d(x.view(batch, length, 6), weight, window)
    packed_y, packed_window = causal_conv1d(x, weight, window, cu_seqlens)
    assert torch.equal(y.reshape(1, -1, 6), packed_y) and torch.equal(next_window, packed_window)


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 16, 63, 64, 65])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_split_equals_one_shot(cut: int, dtype: torch.dtype) -> None:
    x, weight, window, _ = packed([65], channels=32, dtype=dtype)
    y, last = causal_conv1d(x, weight, window)
    first_y, carried = causal_conv1d(x[:, :cut], weight, window)
    second_y, split_last = causal_conv1d(x[:, cut:], weight, carried)
    assert torch.equal(torch.cat((first_y, second_y), dim=1), y) and torch.equal(split_last, last)


@pytest.mark.parametrize("activation", ["silu", None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_token_by_token_equals_the_whole_sequence(dtype: torch.dtype, activation: str | None) -> None:
    x, weight, window, _ = packed([9, 9, 9], channels=32, dtype=dtype)
    x = x.view(3, 9, 32)
    y, last = causal_conv1d(x, weight, window, activation=activation)
    slots = torch.tensor([4, 0, 2])
    pool = torch.full((5, 32, 3), torch.nan, dtype=dtype)
    pool[slots] = window
    steps = [causal_conv1d_update(x[:, t], weight, pool, slots, activation=activation) for t in range(9)]
    assert_close_rms(torch.stack(steps, dim=1), y, "y", RELATIVE_RMS[dtype])
    assert torch.equal(pool[slots], last) and pool[[1, 3]].isnan().all()


def test_large_and_cancelling_inputs() -> None:
    x = torch.tensor([1e30, -1e30, 3.0, 1e-30, 0.0]).view(1, 5, 1)
    weight = torch.tensor([1.0, 1.0, 1.0, 1.0]).view(1, 1, 4)
    y, _ = causal_conv1d(x, weight)
    wanted, _ = definition(x[0], weight, torch.zeros(1, 3), "silu")
    torch.testing.assert_close(y[0, :3].double(), wanted[:3], atol=1e23, rtol=0)
    assert y.isfinite().all()


def test_nan_in_one_sequence_stays_there() -> None:
    x, weight, window, cu_seqlens = packed([5, 7, 0, 4])
    clean_y, clean_window = causal_conv1d(x, weight, window, cu_seqlens)
    x[0, 5:12] = torch.nan
    window[1] = torch.nan
    y, next_window = causal_conv1d(x, weight, window, cu_seqlens)
    tokens, sequences = torch.tensor([*range(5), *range(12, 16)]), torch.tensor([0, 2, 3])
    assert torch.equal(y[0, tokens], clean_y[0, tokens])
    assert torch.equal(next_window[sequences], clean_window[sequences])
    assert y[0, 5:12].isnan().all()


@pytest.mark.parametrize("indices", [torch.int32, torch.int64], ids=str)
def test_padding_rows_and_other_slots_are_inert(indices: torch.dtype) -> None:
    x, weight, pool, _ = packed([1] * 4)
    x = x.view(4, 6)
    slots = torch.tensor([2, -1, 0, -1], dtype=indices)
    clean_pool = pool.clone()
    clean_y = causal_conv1d_update(x, weight, clean_pool, slots)
    x[[1, 3]] = torch.nan
    pool[[1, 3]] = torch.nan
    y = causal_conv1d_update(x, weight, pool, slots)
    assert torch.equal(y, clean_y) and torch.equal(y[[1, 3]], torch.zeros(2, 6))
    assert torch.equal(pool[[0, 2]], clean_pool[[0, 2]]) and pool[[1, 3]].isnan().all()


def test_the_step_updates_a_strided_pool_in_place() -> None:
    x, weight, pool, _ = packed([1] * 4)
    strided = torch.full((4, 3, 6), torch.nan).transpose(1, 2)
    strided.copy_(pool)
    y = causal_conv1d_update(x.view(4, 6), weight, strided, torch.arange(4))
    assert torch.equal(y, causal_conv1d_update(x.view(4, 6), weight, pool, torch.arange(4)))
    assert torch.equal(strided, pool)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_windows_of_another_dtype_are_converted(dtype: torch.dtype, kind: torch.dtype) -> None:
    x, weight, window, cu_seqlens = packed([5, 1], dtype=dtype)
    window = window.to(kind).requires_grad_()
    y, next_window = causal_conv1d(x, weight, window, cu_seqlens)
    expected, expected_window = causal_conv1d(x, weight, window.to(dtype), cu_seqlens)
    assert torch.equal(y, expected) and torch.equal(next_window, expected_window) and next_window.dtype == dtype
    (gradient,) = torch.autograd.grad(y.float().sum(), window)
    assert gradient.dtype == kind and gradient.any()

    pool, plain = window.detach().clone(), window.detach().to(dtype)
    token, slots = x[0, :2], torch.tensor([1, 0])
    y = causal_conv1d_update(token, weight, pool, slots)
    assert torch.equal(y, causal_conv1d_update(token, weight, plain, slots)) and y.dtype == dtype
    assert pool.dtype == kind and torch.equal(pool, plain.to(kind))


def test_gradients_match_autograd_of_the_definition() -> None:
    lengths = [0, 1, 2, 9, 0, 30]
    x, weight, window, cu_seqlens = packed(lengths)
    generator = torch.Generator().manual_seed(7)
    grad_y, grad_window = torch.randn(x.shape, generator=generator), torch.randn(window.shape, generator=generator)
    inputs = [value.clone().requires_grad_() for value in (x, weight, window)]
    exact = [value.double().requires_grad_() for value in (x, weight, window)]
    found = torch.autograd.grad(causal_conv1d(*inputs, cu_seqlens), inputs, (grad_y, grad_window))
    pieces = [
        definition(exact[0][0, start:end], exact[1], exact[2][n], "silu")
        for n, (start, end) in enumerate(zip(cu_seqlens[:-1], cu_seqlens[1:], strict=True))
    ]
    outputs = (torch.cat([piece[0] for piece in pieces])[None], torch.stack([piece[1] for piece in pieces]))
    wanted = torch.autograd.grad(outputs, exact, (grad_y.double(), grad_window.double()))
    for name, value, reference in zip(("x", "weight", "initial_window"), found, wanted, strict=True):
        assert_close_rms(value, reference, f"gradient of {name}", RELATIVE_RMS[torch.float32])


@pytest.mark.parametrize("activation", ["silu", None])
@pytest.mark.parametrize("lengths", [None, [0, 1, 5, 2]], ids=["batch", "packed"])
@pytest.mark.parametrize("with_window", [True, False])
def test_registration_and_gradient(lengths: list[int] | None, with_window: bool, activation: str | None) -> None:
    x, weight, window, cu_seqlens = packed(lengths or [4, 4], channels=3, dtype=torch.float64)
    if lengths is None:
        x, cu_seqlens = x.view(2, 4, 3), None
    arguments = (
        x.requires_grad_(),
        weight.requires_grad_(),
        window.requires_grad_() if with_window else None,
        cu_seqlens,
        activation,
    )
    torch.library.opcheck(torch.ops.ascend_k3.causal_conv1d.default, arguments)
    assert torch.autograd.gradcheck(causal_conv1d, arguments)


def test_registration_of_the_step() -> None:
    x, weight, pool, _ = packed([1] * 4)
    operator = torch.ops.ascend_k3.causal_conv1d_update.default
    torch.library.opcheck(operator, (x.view(4, 6), weight, pool, torch.tensor([3, -1, 0, 1]), "silu"))
    torch.library.opcheck(operator, (x.view(6, 4).t(), weight, pool, torch.tensor([3, -1, 0, 1]), None))


def test_compiled_equals_eager() -> None:
    def prefill(value: Tensor) -> tuple[Tensor, Tensor]:
        return causal_conv1d(value * 2, weight, window, cu_seqlens)

    def step(value: Tensor, pool: Tensor) -> Tensor:
        return causal_conv1d_update(value * 2, weight, pool, torch.tensor([1, -1, 0]))

    x, weight, window, cu_seqlens = packed([5, 0, 3])
    x.requires_grad_()
    compiled = torch.compile(prefill, backend="aot_eager", fullgraph=True)
    for found, wanted in zip(compiled(x), prefill(x), strict=True):
        assert torch.equal(found, wanted)
    (found_grad,) = torch.autograd.grad(compiled(x)[0].sum(), x)
    (wanted_grad,) = torch.autograd.grad(prefill(x)[0].sum(), x)
    assert torch.equal(found_grad, wanted_grad)

    token, pool = x.detach()[0, :3], window.clone()
    found = torch.compile(step, backend="aot_eager", fullgraph=True)(token, pool)
    assert torch.equal(found, step(token, window)) and torch.equal(pool, window)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(4, 6)}, r"x must have the shape \[B, T, C\], got \[4, 6\]"),
        ({"x": torch.zeros(2, 4, 6, dtype=torch.int64)}, "x must be of dtype .*, got int64"),
        ({"weight": torch.zeros(6, 4)}, r"weight must have the shape \[6, 1, W\], got \[6, 4\]"),
        ({"weight": torch.zeros(5, 1, 4)}, r"weight must have the shape \[6, 1, W\], got \[5, 1, 4\]"),
        ({"weight": torch.zeros(6, 1, 1)}, "weight must have W >= 2 taps, got 1"),
        ({"weight": torch.zeros(6, 1, 4, dtype=torch.uint8)}, "weight must be of dtype .*, got uint8"),
        ({"weight": torch.zeros(6, 1, 4, device="meta")}, "weight is on meta and x on cpu; move them to one device"),
        ({"initial_window": torch.zeros(2, 6, 4)}, r"initial_window must have the shape \[2, 6, 3\], got \[2, 6, 4\]"),
        ({"initial_window": torch.zeros(2, 6, 3).int()}, "initial_window must be of dtype float32, .*, got int32"),
        ({"cu_seqlens": torch.tensor([0, 4])}, "cu_seqlens packs sequences into one row, so x must have B = 1; got 2"),
        ({"activation": "gelu"}, "activation must be \"silu\" or None, got 'gelu'"),
        (
            {"x": torch.zeros(1, 4, 6), "cu_seqlens": torch.tensor([0, 3])},
            r"cu_seqlens must rise from 0 to the number of tokens, 4; got \[0, 3\]",
        ),
        (
            {"x": torch.zeros(1, 4, 6), "cu_seqlens": torch.tensor([0, 4]), "initial_window": torch.zeros(2, 6, 3)},
            r"initial_window must have the shape \[1, 6, 3\], got \[2, 6, 3\]",
        ),
    ],
    ids=[
        "x shape", "x dtype", "weight axes", "channels", "one tap", "weight dtype", "device", "window shape",
        "window dtype", "batch and packing", "activation", "offsets", "windows of packed",
    ],
)  # fmt: skip
def test_refuses(change: dict, message: str) -> None:
    arguments = {"x": torch.zeros(2, 4, 6), "weight": torch.zeros(6, 1, 4), **change}
    with pytest.raises(ValueError, match=f"causal_conv1d: {message}"):
        causal_conv1d(**arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(2, 1, 6)}, r"x must have the shape \[N, C\], got \[2, 1, 6\]"),
        ({"x": torch.zeros(2, 6, dtype=torch.int64)}, "x must be of dtype .*, got int64"),
        ({"weight": torch.zeros(6, 1, 1)}, "weight must have W >= 2 taps, got 1"),
        ({"windows": torch.zeros(3, 6, 4)}, r"windows must have the shape \[slots, 6, 3\], got \[3, 6, 4\]"),
        ({"windows": torch.zeros(3, 6, 3).int()}, "windows must be of dtype float32, .*, got int32"),
        ({"window_indices": torch.zeros(2)}, "window_indices must be of dtype int32, int64, got float32"),
        ({"window_indices": torch.tensor([0])}, r"window_indices must have the shape \[2\], got \[1\]"),
        ({"window_indices": torch.tensor([0, 3])}, "window_indices must be 0 to 2, or -1 for a padding row; got 3"),
        ({"window_indices": torch.tensor([0, -2])}, "window_indices must be 0 to 2, or -1 for a padding row; got -2"),
        ({"window_indices": torch.tensor([1, 1])}, "window_indices names slot 1 twice; each row needs its own"),
        ({"windows": torch.zeros(3, 6, 3, device="meta")}, "windows is on meta and x on cpu"),
        ({"activation": "relu"}, "activation must be \"silu\" or None, got 'relu'"),
    ],
    ids=[
        "x shape", "x dtype", "one tap", "pool shape", "pool dtype", "indices dtype", "indices shape", "slot too large",
        "slot below -1", "slot twice", "device", "activation",
    ],
)  # fmt: skip
def test_the_step_refuses(change: dict, message: str) -> None:
    arguments = {
        "x": torch.zeros(2, 6),
        "weight": torch.zeros(6, 1, 4),
        "windows": torch.zeros(3, 6, 3),
        "window_indices": torch.tensor([2, 0]),
        **change,
    }
    with pytest.raises(ValueError, match=f"causal_conv1d_update: {message}"):
        causal_conv1d_update(**arguments)
