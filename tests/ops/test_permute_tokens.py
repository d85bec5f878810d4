"""Rows to their experts and back: definitions, gradients, what they have in common with `fused_experts`, refusals."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ascend_k3.ops.fused_experts import fused_experts, permute_tokens, unpermute_tokens
from ascend_k3.ops.situ_glu import situ_glu
from tests.tolerances import RELATIVE_RMS, assert_close_rms


def definition(x: Tensor, ids: Tensor, experts: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pair by pair: the experts in order, then the dropped ones."""
    rows, places, counts = torch.zeros(ids.numel(), x.shape[1], dtype=x.dtype), torch.full(ids.shape, -1), []
    place = 0
    for expert in range(experts):
        counts.append(0)
        for token in range(ids.shape[0]):
            for slot in range(ids.shape[1]):
                if ids[token, slot] == expert:
                    rows[place], places[token, slot] = x[token], place
                    place, counts[-1] = place + 1, counts[-1] + 1
    return rows, places.to(torch.int32), torch.tensor(counts, dtype=torch.int32)


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=40)
@given(st.integers(0, 7), st.integers(0, 4), st.integers(1, 6), st.sampled_from([torch.int32, torch.int64]), st.data())
def test_permutation_is_its_definition(
    tokens: int, top_k: int, experts: int, kind: torch.dtype, data: st.DataObject
) -> None:
    count = tokens * top_k
    values = data.draw(st.lists(st.integers(-1, experts - 1), min_size=count, max_size=count))
    ids, x = torch.tensor(values, dtype=kind).view(tokens, top_k), random(0, tokens, 5)
    found = permute_tokens(x, ids, experts)
    assert [value.dtype for value in found] == [torch.float32, torch.int32, torch.int32]
    for value, expected in zip(found, definition(x, ids, experts), strict=True):
        assert torch.equal(value, expected)


@pytest.mark.parametrize("out", [None, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_return_is_its_definition(dtype: torch.dtype, out: torch.dtype | None) -> None:
    rows, weights = random(0, 9, 17).to(dtype), random(1, 4, 3)
    places = torch.tensor([[8, 0, -1], [-1, -1, -1], [3, 2, 1], [4, 4, 5]], dtype=torch.int32)
    expected = torch.zeros(4, 17, dtype=torch.float64)
    for token in range(4):
        for slot in range(3):
            if places[token, slot] >= 0:
                expected[token] += weights[token, slot].double() * rows[places[token, slot]].double()
    y = unpermute_tokens(rows, weights, places, dtype=out)
    assert y.dtype == (out or dtype)
    assert_close_rms(y, expected, "y", RELATIVE_RMS[out or dtype])


def test_what_is_dropped_takes_no_part_whatever_it_holds() -> None:
    x, ids = random(0, 3, 4), torch.tensor([[1, -1], [-1, -1], [0, 1]])
    x[1] = math.nan
    rows, places, counts = permute_tokens(x, ids, 2)
    assert counts.tolist() == [1, 2] and torch.equal(rows[3:], torch.zeros(3, 4))
    weights = torch.tensor([[0.5, math.nan], [math.inf, math.nan], [0.25, 2.0]])
    y = unpermute_tokens(rows, weights, places)
    assert torch.equal(y, torch.stack((0.5 * x[0], torch.zeros(4), 2.25 * x[2])))
    assert torch.equal(
        unpermute_tokens(torch.empty(0, 4), weights, torch.full((3, 2), -1, dtype=torch.int32)), torch.zeros(3, 4)
    )


def test_with_a_product_in_between_they_are_fused_experts() -> None:
    x, w13, w2 = random(0, 9, 8), random(1, 5, 12, 8), random(2, 5, 8, 6)
    weights, ids = random(3, 9, 3), torch.randint(-1, 5, (9, 3), generator=torch.Generator().manual_seed(4))
    rows, places, counts = permute_tokens(x, ids, 5)
    groups = torch.split(rows, [*counts.tolist(), int((ids < 0).sum())])[:5]
    done = [situ_glu(group @ w13[e].T, beta=4.0, linear_beta=25.0) @ w2[e].T for e, group in enumerate(groups)]
    y = unpermute_tokens(torch.cat((*done, torch.full_like(rows[int(counts.sum()) :], math.nan))), weights, places)
    expected = fused_experts(x, weights, ids, w13, w2, beta=4.0, linear_beta=25.0)
    assert_close_rms(y, expected, "y", RELATIVE_RMS[torch.float32])


def test_registration_and_gradients() -> None:
    x, ids = random(0, 5, 3).double().requires_grad_(), torch.tensor([[1, 0], [-1, 1], [2, 2], [0, -1], [2, 1]])
    torch.library.opcheck(torch.ops.ascend_k3.permute_tokens.default, (x, ids, 4))
    assert torch.autograd.gradcheck(lambda value: permute_tokens(value, ids, 4)[0], x)
    rows, weights = random(1, 10, 3).double().requires_grad_(), random(2, 5, 2).double().requires_grad_()
    places = permute_tokens(x, ids, 4)[1]
    torch.library.opcheck(torch.ops.ascend_k3.unpermute_tokens.default, (rows, weights, places, torch.float64))
    torch.library.opcheck(
        torch.ops.ascend_k3.unpermute_tokens.default, (rows.detach().float(), weights.detach(), places, torch.bfloat16)
    )
    assert torch.autograd.gradcheck(lambda *values: unpermute_tokens(*values, places), (rows, weights))


def test_wrong_arguments_are_refused() -> None:
    x, ids = torch.zeros(3, 4), torch.tensor([[0], [1], [2]])
    rows, weights, places = torch.zeros(3, 4), torch.zeros(3, 1), torch.zeros(3, 1, dtype=torch.int32)
    for call, text in (
        (lambda: permute_tokens(x[0], ids, 3), r"permute_tokens: x must have the shape \[T, D\], got \[4\]"),
        (lambda: permute_tokens(x, ids[:2], 3), r"permute_tokens: ids must have the shape \[3, top_k\], got \[2, 1\]"),
        (lambda: permute_tokens(x, ids.float(), 3), "permute_tokens: ids must be of dtype int32, int64, got float32"),
        (lambda: permute_tokens(x, ids, 2), "permute_tokens: ids must be 0 to 1, or -1 to drop a slot; got 2"),
        (lambda: permute_tokens(x, ids - 2, 2), "permute_tokens: ids must be 0 to 1, or -1 to drop a slot; got -2"),
        (lambda: permute_tokens(x, ids, 0), "permute_tokens: experts must be at least 1, got 0"),
        (lambda: permute_tokens(x, ids, 3.0), "permute_tokens: experts must be an integer, got float"),
        (lambda: unpermute_tokens(rows, weights, places.long()), "places must be of dtype int32, got int64"),
        (lambda: unpermute_tokens(rows, weights[:2], places), r"weights must have the shape \[3, 1\], got \[2, 1\]"),
        (
            lambda: unpermute_tokens(rows[:0], weights, places),
            "places must be 0 to -1, or -1 to leave out a slot; got 0",
        ),
        (
            lambda: unpermute_tokens(rows, weights, places + 3),
            "places must be 0 to 2, or -1 to leave out a slot; got 3",
        ),
        (lambda: unpermute_tokens(rows, weights, places, dtype=torch.int32), "dtype must be one of float32"),
    ):
        with pytest.raises(ValueError, match=text):
            call()  # type: ignore[no-untyped-call]
