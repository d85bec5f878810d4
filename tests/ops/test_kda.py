"""Kimi Delta Attention: fixtures, definition, hard inputs, tails, splits, gradients, decode, refusals."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from ascend_k3 import ops
from tests.ops.kda_inputs import (
    BOUND,
    HARD,
    INPUTS,
    LENGTHS,
    WEIGHTS,
    call,
    fixture_names,
    hard_inputs,
    random_inputs,
)
from tests.ops.kda_oracle import recurrence
from tests.paths import FIXTURES
from tests.tolerances import FIXTURE_GRADIENT, KDA_STATE_RMS, RELATIVE_RMS, assert_close_rms, largest


def same_output(found: Tensor, wanted: Tensor) -> None:
    """The same tokens computed in another way, float32."""
    assert_close_rms(found, wanted, "o", RELATIVE_RMS[torch.float32])


def same_state(found: Tensor, wanted: Tensor) -> None:
    assert_close_rms(found, wanted, "state", KDA_STATE_RMS[torch.float32])


@pytest.mark.parametrize(
    "name",
    fixture_names("kda_op/*.safetensors", exclude="grad") + fixture_names("kda_kernel/*.safetensors", exclude="grad"),
)
def test_forward_equals_the_fixture(name: str) -> None:
    x = load_file(FIXTURES / name)
    o, state = call(ops.kda, x)
    dtype = x["q"].dtype
    assert o.dtype == x["v"].dtype and state.dtype == torch.float32
    assert_close_rms(o, x["o"], "o", RELATIVE_RMS[dtype])
    assert_close_rms(state, x["final_state"], "state", KDA_STATE_RMS[torch.float32])
    if "o_bf16" in x:
        assert torch.equal(o, x["o_bf16"]) or largest(o, x["o_bf16"]) <= 2**-8


@pytest.mark.parametrize(
    "name", fixture_names("kda_op/*grad*.safetensors") + fixture_names("kda_kernel/*grad*.safetensors")
)
def test_gradients_equal_the_fixture(name: str) -> None:
    x = load_file(FIXTURES / name)
    names = [*INPUTS, *WEIGHTS, "initial_state"]
    leaves = {key: x[key].clone().requires_grad_() for key in names}
    o, state = call(ops.kda, {**x, **leaves})
    found = torch.autograd.grad([o, state], list(leaves.values()), [x["do"].to(o.dtype), x["dfinal_state"]])
    for key, grad in zip(names, found, strict=True):
        assert grad.dtype == x[key].dtype and grad.shape == x[key].shape
        if x["q"].dtype == torch.float32:
            assert largest(grad, x[f"d{key}"]) <= FIXTURE_GRADIENT, key
        else:
            assert_close_rms(grad, x[f"d{key}"], f"d{key}", KDA_STATE_RMS[torch.bfloat16])


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_every_tail_equals_the_definition(length: int, dtype: torch.dtype) -> None:
    x = random_inputs(length, batch=2, value=48, dtype=dtype)
    o, state = call(ops.kda, x)
    expected, expected_state = call(recurrence, x)
    assert_close_rms(o, expected, "o", RELATIVE_RMS[dtype])
    assert_close_rms(
        state, expected_state, "state", KDA_STATE_RMS[torch.float64 if dtype == torch.float64 else torch.float32]
    )


@pytest.mark.parametrize("chunk_size", [16, 32, 64, 128])
@pytest.mark.parametrize("kind", HARD)
def test_hard_inputs_equal_the_definition(kind: str, chunk_size: int) -> None:
    x = hard_inputs(kind)
    o, state = call(ops.kda, x, chunk_size=chunk_size)
    expected, expected_state = call(recurrence, x)
    assert_close_rms(o, expected, "o", RELATIVE_RMS[torch.float32])
    assert_close_rms(state, expected_state, "state", KDA_STATE_RMS[torch.float32])


@pytest.mark.parametrize("kind", HARD)
def test_gradients_of_hard_inputs_equal_those_of_the_definition(kind: str) -> None:
    x = hard_inputs(kind, length=70)
    names = [*INPUTS, *WEIGHTS, "initial_state"]

    def gradients(function):
        leaves = {key: x[key].clone().requires_grad_() for key in names}
        o, state = call(function, leaves)
        return torch.autograd.grad(
            o.double().square().sum() * 1e4 + state.double().square().sum(), list(leaves.values())
        )

    for key, found, wanted in zip(names, gradients(ops.kda), gradients(recurrence), strict=True):
        scale = wanted.double().abs().max()
        if scale > 1e-20:
            assert largest(found, wanted) <= FIXTURE_GRADIENT, key


def packed(lengths: Iterable[int], **options) -> dict[str, Tensor]:
    lengths = list(lengths)
    x = random_inputs(sum(lengths), **options)
    x["cu_seqlens"] = torch.tensor([0, *lengths]).cumsum(0)
    x["initial_state"] = torch.randn(len(lengths), *x["initial_state"].shape[1:])
    return x


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from((0, *LENGTHS, 130)), min_size=1, max_size=6), st.sampled_from((torch.int32, torch.int64))
)
def test_packed_sequences_equal_each_alone(lengths: list[int], dtype: torch.dtype) -> None:
    x = packed(lengths, heads=1, width=16, value=16)
    x["cu_seqlens"] = x["cu_seqlens"].to(dtype)
    o, state = call(ops.kda, x)
    begin = 0
    for n, length in enumerate(lengths):
        alone = {**x, "cu_seqlens": None, "initial_state": x["initial_state"][n : n + 1]}
        alone |= {name: x[name][:, begin : begin + length] for name in INPUTS}
        o_alone, state_alone = call(ops.kda, alone)
        same_output(o[:, begin : begin + length], o_alone)
        same_state(state[n : n + 1], state_alone)
        begin += length


@pytest.mark.parametrize("lengths", [[0], [0, 0], []], ids=["one-empty", "two-empty", "none"])
def test_no_tokens_at_all(lengths: list[int]) -> None:
    x = packed(lengths)
    x["initial_state"] = torch.randn(len(lengths), 2, 32, 32)
    o, state = call(ops.kda, x)
    assert o.shape == (1, 0, 2, 32)
    assert torch.equal(state, x["initial_state"])


@settings(max_examples=30)
@given(st.integers(0, 150), st.sampled_from((16, 64)))
def test_split_anywhere_equals_one_shot(cut: int, chunk_size: int) -> None:
    x = random_inputs(150, heads=1, width=16, value=16)
    o, state = call(ops.kda, x, chunk_size=chunk_size)
    first = {**x, **{name: x[name][:, :cut] for name in INPUTS}}
    o_first, carried = call(ops.kda, first, chunk_size=chunk_size)
    second = {**x, **{name: x[name][:, cut:] for name in INPUTS}, "initial_state": carried}
    o_second, final = call(ops.kda, second, chunk_size=chunk_size)
    same_output(torch.cat((o_first, o_second), 1), o)
    same_state(final, state)


def test_long_sequences_stay_finite_and_right() -> None:
    x = random_inputs(20_000, heads=1, width=16, value=16)
    o, state = call(ops.kda, x)
    expected, expected_state = call(recurrence, x)
    assert_close_rms(o, expected, "o", RELATIVE_RMS[torch.float32])
    assert_close_rms(state, expected_state, "state", KDA_STATE_RMS[torch.float32])


def test_two_runs_are_bit_identical() -> None:
    x = packed([3, 65, 0, 130], dtype=torch.bfloat16)
    first, second = call(ops.kda, x), call(ops.kda, x)
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])


def test_nan_in_one_sequence_does_not_reach_another() -> None:
    x = packed([20, 17, 40])
    clean, clean_state = call(ops.kda, x)
    for name in INPUTS:
        x[name] = x[name].clone()
        x[name][:, 20:37] = torch.nan
    o, state = call(ops.kda, x)
    assert torch.equal(o[:, :20], clean[:, :20]) and torch.equal(o[:, 37:], clean[:, 37:])
    assert torch.equal(state[[0, 2]], clean_state[[0, 2]])


@pytest.mark.parametrize("lengths", [[5], [17, 0, 33]], ids=str)
def test_gradcheck(lengths: list[int]) -> None:
    x = packed(lengths, heads=1, width=3, value=2, dtype=torch.float64)
    names = [*INPUTS, *WEIGHTS, "initial_state"]
    x["initial_state"] = x["initial_state"].double()
    leaves = [x[name].requires_grad_() for name in names]

    def function(*values: Tensor):
        return call(ops.kda, {**dict(zip(names, values, strict=True)), "cu_seqlens": x["cu_seqlens"]}, chunk_size=16)

    torch.autograd.gradcheck(function, leaves, fast_mode=sum(lengths) > 5)


def test_pieces_that_do_not_fit_the_cache_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from ascend_k3.ops.kda import reference

    x = packed([300, 10, 170, 64], heads=2, width=32, value=32)
    names = [*INPUTS, *WEIGHTS, "initial_state"]

    def run() -> list[Tensor]:
        leaves = {key: x[key].clone().requires_grad_() for key in names}
        o, state = call(ops.kda, {**leaves, "cu_seqlens": x["cu_seqlens"]})
        return [o, state, *torch.autograd.grad(o.square().sum() + state.sum(), list(leaves.values()))]

    whole = run()
    monkeypatch.setattr(reference, "_ELEMENTS_AT_ONCE", 2 * 2 * 32 * 64)
    for found, wanted in zip(run(), whole, strict=True):
        assert_close_rms(found, wanted, "output or gradient", KDA_STATE_RMS[torch.float32])


def test_registration_is_sound() -> None:
    x = packed([5, 0, 20], heads=1, width=4, value=4)
    tensors = [x[name].requires_grad_() for name in (*INPUTS, *WEIGHTS)]
    torch.library.opcheck(torch.ops.ascend_k3.kda, (*tensors, BOUND, 0.5, x["initial_state"], x["cu_seqlens"], 64))
    states, slots = torch.randn(4, 1, 4, 4), torch.tensor([2, -1, 0])
    tokens = [x[name].detach()[0, :3, None] for name in INPUTS]
    torch.library.opcheck(
        torch.ops.ascend_k3.kda_decode, (*tokens, states, slots, *(t.detach() for t in tensors[5:]), BOUND, 0.5, None)
    )


def test_compiles_without_a_graph_break() -> None:
    x = random_inputs(20)
    compiled = torch.compile(functools.partial(call, ops.kda), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x)[0], call(ops.kda, x)[0])


# --- decode --------------------


def decode(x: dict[str, Tensor], states: Tensor, slots: Tensor, **options) -> Tensor:
    return ops.kda_decode(
        *(x[name] for name in INPUTS),
        states,
        slots,
        A_log=x["A_log"],
        dt_bias=x["dt_bias"],
        lower_bound=BOUND,
        **options,
    )


@pytest.mark.parametrize("length", [1, 2, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_decode_equals_the_definition(length: int, dtype: torch.dtype) -> None:
    x = random_inputs(length, batch=3, value=48, dtype=dtype)
    pool = torch.full((5, 2, 48, 32), torch.nan, dtype=x["initial_state"].dtype)
    slots = torch.tensor([4, 0, 2])
    pool[slots] = x["initial_state"]
    expected, expected_state = call(recurrence, x)
    o = decode(x, pool, slots)
    assert o.dtype == dtype
    assert_close_rms(o, expected, "o", RELATIVE_RMS[dtype])
    assert_close_rms(pool[slots], expected_state, "state", KDA_STATE_RMS[pool.dtype])
    assert pool[[1, 3]].isnan().all()


def test_decode_token_by_token_continues_a_prefill() -> None:
    x = random_inputs(40)
    o, state = call(ops.kda, x)
    first = {**x, **{name: x[name][:, :33] for name in INPUTS}}
    outputs, pool = call(ops.kda, first)
    outputs = [outputs]
    for t in range(33, 40):
        outputs.append(decode({**x, **{name: x[name][:, t : t + 1] for name in INPUTS}}, pool, torch.tensor([0])))
    same_output(torch.cat(outputs, 1), o)
    same_state(pool, state)


@pytest.mark.parametrize("accepted", [[0, 1, 5], [3, 3, 0]], ids=str)
def test_decode_keeps_only_accepted_tokens(accepted: list[int]) -> None:
    x = random_inputs(5, batch=3)
    pool = x["initial_state"].clone()
    o = decode(x, pool, torch.arange(3), num_accepted=torch.tensor(accepted))
    assert_close_rms(o, call(recurrence, x)[0], "o", RELATIVE_RMS[torch.float32])
    for n, count in enumerate(accepted):
        part = {
            **x,
            **{name: x[name][n : n + 1, :count] for name in INPUTS},
            "initial_state": x["initial_state"][n : n + 1],
        }
        same_state(pool[n : n + 1], call(recurrence, part)[1].float())


def test_decode_of_packed_sequences_equals_each_alone() -> None:
    lengths = [3, 0, 8, 1]
    x = packed(lengths)
    pool = x["initial_state"].clone()
    accepted = torch.tensor([2, 0, 8, 1], dtype=torch.int32)
    o = decode(x, pool, torch.arange(4, dtype=torch.int32), cu_seqlens=x["cu_seqlens"], num_accepted=accepted)
    begin = 0
    for n, length in enumerate(lengths):
        alone = {**x, **{name: x[name][:, begin : begin + length] for name in INPUTS}}
        state = x["initial_state"][n : n + 1].clone()
        o_alone = decode(alone, state, torch.tensor([0]), num_accepted=accepted[n : n + 1])
        assert torch.equal(o[:, begin : begin + length], o_alone)
        assert torch.equal(pool[n : n + 1], state)
        begin += length


def test_decode_padding_rows_are_inert() -> None:
    x = random_inputs(2, batch=3)
    pool, clean = x["initial_state"].clone(), x["initial_state"].clone()
    expected = decode({**x, **{name: x[name][:2] for name in INPUTS}}, clean, torch.tensor([1, 0]))
    for name in INPUTS:
        x[name][2] = torch.nan
    o = decode(x, pool, torch.tensor([1, 0, -1]))
    assert torch.equal(o[:2], expected) and not o[2].any()
    assert torch.equal(pool, clean)


# --- refusals --------------------

REFUSED = {
    "q-rank": (dict(q=torch.zeros(3, 2, 4)), r"kda: q must have the shape \[B, T, H, K\], got \[3, 2, 4\]"),
    "k-shape": (dict(k=torch.zeros(1, 4, 2, 5)), r"kda: k must have the shape \[1, 4, 2, 32\], got \[1, 4, 2, 5\]"),
    "v-shape": (dict(v=torch.zeros(1, 3, 2, 5)), r"kda: v must have the shape \[1, 4, 2, V\]"),
    "g-shape": (dict(g=torch.zeros(1, 4, 2)), r"kda: g must have the shape"),
    "beta-shape": (dict(beta=torch.zeros(1, 4, 3)), r"kda: beta must have the shape \[1, 4, 2\]"),
    "A_log-padded": (dict(A_log=torch.zeros(128)), r"kda: A_log must have the shape \[2\], got \[128\]"),
    "dt_bias": (dict(dt_bias=torch.zeros(63)), r"kda: dt_bias must have the shape \[64\]"),
    "dtype": (dict(q=torch.zeros(1, 4, 2, 32, dtype=torch.int64)), r"kda: q must be of dtype float32, .* got int64"),
    "state": (
        dict(initial_state=torch.zeros(2, 2, 32, 32)),
        r"kda: initial_state must have the shape \[1, 2, 32, 32\]",
    ),
    "cu-end": (dict(cu_seqlens=torch.tensor([0, 3])), r"kda: cu_seqlens must rise from 0 to the number of tokens, 4"),
    "cu-falls": (dict(cu_seqlens=torch.tensor([0, 3, 2, 4])), r"kda: cu_seqlens must rise"),
    "cu-dtype": (dict(cu_seqlens=torch.tensor([0.0, 4.0])), r"kda: cu_seqlens must be of dtype int32, int64"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_kda_refuses(case: str) -> None:
    change, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        call(ops.kda, {**random_inputs(4), **change})


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(chunk_size=24), "chunk_size must be a power of two from 16 on, got 24"),
        (dict(chunk_size=0), "chunk_size must be a power of two from 16 on, got 0"),
    ],
)
def test_kda_refuses_options(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(ops.kda, random_inputs(4), **options)


@pytest.mark.parametrize("bound", [0.0, 1.0, -5.1, float("nan")])
def test_kda_refuses_a_bound_out_of_range(bound: float) -> None:
    x = random_inputs(4)
    with pytest.raises(ValueError, match=r"lower_bound must lie in \[-5, 0\)"):
        ops.kda(*(x[name] for name in INPUTS), A_log=x["A_log"], dt_bias=x["dt_bias"], lower_bound=bound)


def test_kda_refuses_packing_with_a_batch() -> None:
    x = random_inputs(4, batch=2)
    x["cu_seqlens"] = torch.tensor([0, 4])
    with pytest.raises(ValueError, match="the batch size of q must be 1, got 2"):
        call(ops.kda, x)


def test_decode_refuses() -> None:
    x = random_inputs(1, batch=2)
    pool = x["initial_state"].clone()
    with pytest.raises(ValueError, match="state_indices must be 0 to 1, or -1 for a padding row; got 7"):
        decode(x, pool, torch.tensor([0, 7]))
    with pytest.raises(ValueError, match="names slot 1 twice"):
        decode(x, pool, torch.tensor([1, 1]))
    with pytest.raises(ValueError, match=r"state_indices must have the shape \[2\]"):
        decode(x, pool, torch.tensor([1]))
    with pytest.raises(ValueError, match="states must be of dtype float32, float64, got bfloat16"):
        decode(x, pool.bfloat16(), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="at most 8 tokens a sequence, got 9; use kda for more"):
        decode(random_inputs(9, batch=2), pool, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"num_accepted must have the shape \[2\]"):
        decode(x, pool, torch.tensor([0, 1]), num_accepted=torch.tensor([1]))


def test_mixed_devices_are_refused() -> None:
    x = random_inputs(4)
    x["k"] = x["k"].to("meta")
    with pytest.raises(ValueError, match="k is on meta and q on cpu; move them to one device"):
        call(ops.kda, x)


# --- the inverse inside a chunk --------------------


@pytest.mark.parametrize("size", [16, 32, 64, 128])
def test_the_inverse_keeps_its_digits_on_nearly_equal_keys(size: int) -> None:
    """Scored on the strictly lower part: the unit diagonal would hide every error.

    A product of powers of L has a relative error of 130 % here at 32 and of 1e9 at 64.
    """
    from ascend_k3.ops.kda.reference import _inverse

    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(128, generator=generator) + 0.1 * torch.randn(8, size, 128, generator=generator)
    keys = torch.nn.functional.normalize(keys, dim=-1)
    lower = (0.999 * keys @ keys.mT).tril(-1)
    exact = torch.linalg.inv(torch.eye(size, dtype=torch.float64) + lower.double()).tril(-1)
    assert_close_rms(_inverse(lower).tril(-1), exact, "inverse", RELATIVE_RMS[torch.float32])
