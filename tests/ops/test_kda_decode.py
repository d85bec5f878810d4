"""Decoding of packed sequences where the values are not known, and the counts of accepted tokens."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.ops.test_kda import decode, packed, random_inputs

LENGTHS = [3, 0, 8, 1]
ACCEPTED = torch.tensor([2, 0, 8, 1])


def run(x: dict[str, Tensor], pool: Tensor, slots: Tensor, accepted: Tensor | None) -> Tensor:
    return decode(x, pool, slots, cu_seqlens=x["cu_seqlens"], num_accepted=accepted)


@pytest.mark.parametrize("accepted", [None, ACCEPTED], ids=["all", "some"])
@pytest.mark.parametrize("lengths", [LENGTHS, [1, 1], [2]], ids=str)
def test_packed_decode_compiles_without_a_graph_break(lengths: list[int], accepted: Tensor | None) -> None:
    x = packed(lengths, width=8, value=6)
    slots = torch.tensor([3, 0, 2, -1])[: len(lengths)]
    accepted = None if accepted is None else torch.minimum(accepted[: len(lengths)], torch.tensor(lengths))
    pool = torch.randn(4, 2, 6, 8)
    eager, compiled = pool.clone(), pool.clone()
    expected = run(x, eager, slots, accepted)
    found = torch.compile(run, backend="aot_eager", fullgraph=True)(x, compiled, slots, accepted)
    assert torch.equal(found, expected) and torch.equal(compiled, eager) and not torch.equal(pool, eager)


def test_packed_decode_has_shapes_on_meta() -> None:
    x = {name: value.to("meta") for name, value in packed(LENGTHS, dtype=torch.bfloat16).items()}
    o = run(x, torch.empty(4, 2, 32, 32, device="meta"), torch.arange(4, device="meta"), ACCEPTED.to("meta"))
    assert (o.shape, o.dtype, o.device.type) == ((1, 12, 2, 32), torch.bfloat16, "meta")


@pytest.mark.parametrize("lengths", [[], [0], [0, 0]], ids=str)
def test_packed_decode_of_no_tokens(lengths: list[int]) -> None:
    x = packed(lengths)
    pool = torch.randn(2, 2, 32, 32)
    before = pool.clone()
    o = run(x, pool, torch.arange(len(lengths)), None)
    assert o.shape == (1, 0, 2, 32) and torch.equal(pool, before)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([2, -1], "num_accepted must be 0 to the length of each sequence; sequence 1 of 3 tokens has -1"),
        ([4, 0], "num_accepted must be 0 to the length of each sequence; sequence 0 of 3 tokens has 4"),
    ],
)
def test_counts_beyond_a_sequence_are_refused(counts: list[int], message: str) -> None:
    x = random_inputs(3, batch=2)
    with pytest.raises(ValueError, match=f"^kda_decode: {message}"):
        decode(x, x["initial_state"].clone(), torch.arange(2), num_accepted=torch.tensor(counts))


def test_counts_beyond_a_packed_sequence_are_refused() -> None:
    x = packed([3, 1])
    with pytest.raises(ValueError, match="^kda_decode: num_accepted must be 0 to .*; sequence 1 of 1 tokens has 2"):
        run(x, torch.randn(2, 2, 32, 32), torch.arange(2), torch.tensor([3, 2]))


def test_counts_of_padding_rows_may_be_anything() -> None:
    x = random_inputs(3, batch=2)
    decode(x, x["initial_state"].clone(), torch.tensor([0, -1]), num_accepted=torch.tensor([3, -1]))


def test_packed_sequences_beyond_eight_tokens_are_refused() -> None:
    x = packed([9, 1])
    with pytest.raises(ValueError, match="^kda_decode: at most 8 tokens a sequence, got 9; use kda for more"):
        run(x, torch.randn(2, 2, 32, 32), torch.arange(2), None)


def test_packing_with_a_batch_is_refused() -> None:
    x = {**random_inputs(2, batch=2), "cu_seqlens": torch.tensor([0, 2])}
    with pytest.raises(ValueError, match="^kda_decode: with cu_seqlens the batch size of q must be 1, got 2"):
        run(x, torch.randn(2, 2, 32, 32), torch.arange(1), None)


def test_the_operator_is_sound_on_counts() -> None:
    x = random_inputs(2, batch=2, width=4, value=4)
    tokens = [x[name] for name in ("q", "k", "v", "g", "beta")]
    arguments = (*tokens, torch.randn(3, 2, 4, 4), torch.tensor([2, 0]), x["A_log"], x["dt_bias"], -5.0, 0.5)
    torch.library.opcheck(torch.ops.ascend_k3.kda_decode, (*arguments, torch.tensor([1, 2])))
