"""Operators without a gradient say so in the backward pass, in eager and compiled code."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ascend_k3 import ops

KDA_SENTENCE = "^kda_decode: it has no gradient; use kda to train, or call under torch.no_grad\\(\\) to generate.$"
STEP_SENTENCE = (
    "^causal_conv1d_update: it has no gradient; use causal_conv1d to train, "
    "or call under torch.no_grad\\(\\) to generate.$"
)
MLA_SENTENCE = (
    "^mla_decode: it has no gradient; attend with mla_prefill to train, or call under torch.no_grad\\(\\) to generate.$"
)


def kda_decode(x: Tensor, states: Tensor) -> Tensor:
    """x [2, 4], states [3, 1, 4, 4]."""
    tokens, slots = x.view(2, 1, 1, 4), torch.tensor([2, 0])
    weights = {"A_log": torch.zeros(1), "dt_bias": torch.zeros(4), "lower_bound": -5.0}
    return ops.kda_decode(tokens, tokens, tokens, tokens, tokens[..., 0], states, slots, **weights)


def packed_kda_decode(x: Tensor, states: Tensor) -> Tensor:
    tokens, slots = x.view(1, 2, 1, 4), torch.tensor([2, 0])
    weights = {"A_log": torch.zeros(1), "dt_bias": torch.zeros(4), "lower_bound": -5.0}
    offsets = torch.tensor([0, 1, 2])
    return ops.kda_decode(tokens, tokens, tokens, tokens, tokens[..., 0], states, slots, **weights, cu_seqlens=offsets)


def step(x: Tensor, windows: Tensor) -> Tensor:
    return ops.causal_conv1d_update(x, torch.ones(4, 1, 4), windows, torch.tensor([2, 0]))


def mla_decode(x: Tensor, pool: Tensor) -> Tensor:
    table, lengths = torch.tensor([[0], [1]]), torch.tensor([1, 2])
    return ops.mla_decode(x.view(2, 1, 4), pool, table, lengths, scale=1.0, rank=2)


CASES = {
    "kda_decode": (kda_decode, (3, 1, 4, 4), KDA_SENTENCE),
    "kda_decode-packed": (packed_kda_decode, (3, 1, 4, 4), KDA_SENTENCE),
    "causal_conv1d_update": (step, (3, 4, 3), STEP_SENTENCE),
    "mla_decode": (mla_decode, (2, 4, 4), MLA_SENTENCE),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(("function", "shape", "sentence"), CASES.values(), ids=CASES)
def test_backward_is_refused(function: Callable, shape: tuple, sentence: str, compiled: bool) -> None:
    x = torch.randn(2, 4, requires_grad=True)
    pool = torch.randn(shape)
    run = torch.compile(function, backend="aot_eager", fullgraph=True) if compiled else function
    y = run(x * 2, pool)
    assert not pool.requires_grad
    with pytest.raises(RuntimeError, match=sentence):
        y.sum().backward()


@pytest.mark.parametrize(("function", "shape", "sentence"), CASES.values(), ids=CASES)
def test_results_are_the_same_with_and_without_a_graph(function: Callable, shape: tuple, sentence: str) -> None:
    x = torch.randn(2, 4, requires_grad=True)
    pools = [torch.randn(shape)]
    pools.append(pools[0].clone())
    with torch.no_grad():
        y = function(x, pools[0])
    assert not y.requires_grad
    assert torch.equal(function(x, pools[1]), y) and torch.equal(*pools)
    assert not function(x.detach(), pools[1]).requires_grad
