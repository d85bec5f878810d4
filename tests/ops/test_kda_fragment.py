"""Transition product and local state of fragments: together they are the whole sequence, on both backends."""

from __future__ import annotations

import contextlib
import itertools

import pytest
import torch
from torch import Tensor

from ascend_k3 import ops
from tests.ops.kda_inputs import BOUND, HARD, call, hard_inputs, random_inputs
from tests.ops.kda_oracle import recurrence
from tests.tolerances import KDA_STATE_RMS, assert_close_rms

TOKENS = ("q", "k", "v", "g", "beta")


def fragment(x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    return ops.kda_fragment(
        *(x[name] for name in TOKENS[1:]),
        A_log=x["A_log"],
        dt_bias=x["dt_bias"],
        lower_bound=BOUND,
        cu_seqlens=x.get("cu_seqlens"),
    )


@pytest.mark.parametrize("value", [64, 32])
@pytest.mark.parametrize("kind", HARD)
def test_fragments_pass_the_state_on_as_the_definition_does(kind: str, value: int) -> None:
    x = hard_inputs(kind, dtype=torch.float64)
    x["v"], x["initial_state"] = x["v"][..., :value], x["initial_state"][:, :, :value]
    state = x["initial_state"]
    for begin, end in itertools.pairwise((0, 1, 60, 60, 130)):
        transition, local = fragment({**x, **{name: x[name][:, begin:end] for name in TOKENS}})
        state = state @ transition + local
    assert_close_rms(state, call(recurrence, x)[1], "state", KDA_STATE_RMS[torch.float64])


@pytest.mark.parametrize("backend", ["reference", "emulator"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_packed_fragments(dtype: torch.dtype, backend: str) -> None:
    x = random_inputs(100, heads=3, width=64, value=64, dtype=dtype)
    x["cu_seqlens"] = torch.tensor([0, 37, 37, 100])
    x["initial_state"] = torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(3))
    with ops.backend("emulator") if backend == "emulator" else contextlib.nullcontext():
        transition, local = fragment(x)
    assert transition.dtype == local.dtype == torch.float32
    assert torch.equal(transition[1], torch.eye(64).expand(3, 64, 64)) and not local[1].any()
    expected = call(recurrence, x)[1]
    assert_close_rms(x["initial_state"] @ transition + local, expected, "state", KDA_STATE_RMS[dtype])


def test_gradients_go_through() -> None:
    x = random_inputs(20, heads=1, width=4, value=3, dtype=torch.float64)
    names = TOKENS[1:]

    def states(*values: Tensor) -> tuple[Tensor, Tensor]:
        return fragment({**x, **dict(zip(names, values, strict=True))})

    assert torch.autograd.gradcheck(states, tuple(x[name].requires_grad_() for name in names))


def test_what_it_refuses() -> None:
    x = random_inputs(5, width=64, value=64)
    with pytest.raises(ValueError, match="kda: beta must"):
        fragment({**x, "beta": x["beta"][..., :1]})
