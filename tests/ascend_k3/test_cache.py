"""The cache: slots, pages, who may continue what, and what is not committed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ascend_k3 import NonFiniteError
from ascend_k3.cache import BLOCK_SIZE, K3Cache
from tests.ascend_k3.checkpoints import tiny

TOKENS = torch.arange(1, 13)[None]


def logits(cache: K3Cache, slot: int, tokens: Tensor = TOKENS) -> Tensor:
    return tiny("ckpt_mxfp4")(tokens, cache=cache, cache_slots=[slot]).logits


def new_cache(sequences: int = 3, tokens: int = 200) -> K3Cache:
    return tiny("ckpt_mxfp4").new_cache(max_sequences=sequences, max_tokens=tokens)


def poison(cache: K3Cache, slots: list[int]) -> None:
    for tensors in (cache.states, cache.windows):
        for tensor in tensors.values():
            tensor[slots] = torch.nan


def test_a_new_sequence_never_reads_what_its_slot_held() -> None:
    """A one-token prompt on a recycled slot is where engines read the previous owner's state."""
    cache = new_cache(1)
    expected = logits(new_cache(1), 0, TOKENS[:, :1])
    logits(cache, 0)
    poison(cache, [0])
    for latents in cache.latents.values():
        latents.fill_(torch.nan)
    cache.reset([0])
    assert torch.equal(logits(cache, 0, TOKENS[:, :1]), expected)


def test_other_slots_do_not_matter() -> None:
    cache = new_cache()
    expected = logits(new_cache(), 1)
    poison(cache, [0, 2])
    assert torch.equal(logits(cache, 1), expected)
    assert all(states[[0, 2]].isnan().all() for states in cache.states.values())


def test_pages_are_given_back() -> None:
    cache = new_cache(sequences=2, tokens=2 * BLOCK_SIZE)
    for _ in range(5):
        logits(cache, 0, torch.ones(1, 2 * BLOCK_SIZE, dtype=torch.int64))
        logits(cache, 1, torch.ones(1, BLOCK_SIZE + 1, dtype=torch.int64))
        cache.reset()
    assert cache.length(0) == cache.length(1) == 0


def test_no_graph_is_kept_in_the_cache() -> None:
    model, cache = tiny("ckpt_bf16"), tiny("ckpt_bf16").new_cache(max_sequences=1, max_tokens=32)
    model(TOKENS, cache=cache)
    model(TOKENS[:, :1], cache=cache)
    for tensors in (cache.states, cache.windows, cache.latents):
        assert not any(tensor.requires_grad for tensor in tensors.values())


def test_a_state_that_is_not_finite_is_not_committed_and_poisons_nobody() -> None:
    model, cache = tiny("ckpt_mxfp4"), new_cache()
    for slot in (0, 1, 2):
        logits(cache, slot)
    expected = logits_of_next = model(TOKENS[:, :1], cache=cache, cache_slots=[2]).logits
    cache.reset([2])
    logits(cache, 2)
    cache.states[5][1, 0, 0, 0] = torch.inf
    with pytest.raises(NonFiniteError, match=r"the KDA state of layer 5 in cache slot 1 is not finite .* reset slot 1"):
        model(TOKENS[:, :1].expand(2, 1), cache=cache, cache_slots=[1, 0])
    with pytest.raises(ValueError, match=r"cache slot 1 was left unfinished by a failed forward; reset\(\[1\]\)"):
        logits(cache, 1)
    logits_of_next = model(TOKENS[:, :1], cache=cache, cache_slots=[2]).logits
    assert torch.equal(logits_of_next, expected)
    assert cache.length(0) == TOKENS.shape[1] + 1
    cache.reset([1])
    assert torch.equal(logits(cache, 1), logits(new_cache(), 1))


def test_a_failed_forward_leaves_the_slot_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    model, cache = tiny("ckpt_mxfp4"), new_cache()
    layer = model.language_model.model.layers[4]

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    hook = layer.register_forward_pre_hook(fail)
    try:
        with pytest.raises(RuntimeError, match="out of memory"):
            logits(cache, 0)
    finally:
        hook.remove()
    with pytest.raises(ValueError, match="cache slot 0 was left unfinished"):
        logits(cache, 0)


@pytest.mark.parametrize(
    "slots, counts, message",
    [
        ([0], [1, 1], "cache_slots names 1 slots; there are 2 sequences"),
        ([1, 1], [1, 1], "cache_slots must name each slot once"),
        ([3], [1], "cache slot 3 does not exist; the cache has slots 0 to 2"),
        ([-1], [1], "cache slot -1 does not exist"),
        ([True], [1], r"cache slots must be a list of integers, got \[True\]"),
        ("01", [1, 1], "cache slots must be a list of integers, got '01'"),
        (1, [1], "cache slots must be a list of integers, got 1"),
        ([0], [201], "cache slot 0 holds 0 tokens and 201 more exceed its max_tokens, 200"),
    ],
)
def test_slots_that_do_not_fit_are_refused(slots: list[int], counts: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        new_cache().begin(slots, counts)


def test_slots_may_be_a_tensor() -> None:
    cache = new_cache()
    tiny("ckpt_mxfp4")(TOKENS.expand(2, -1), cache=cache, cache_slots=torch.tensor([2, 0]))
    assert [cache.length(slot) for slot in range(3)] == [12, 0, 12]
    with pytest.raises(ValueError, match="must name each slot once"):
        tiny("ckpt_mxfp4")(TOKENS.expand(2, -1), cache=cache, cache_slots=torch.tensor([1, 1]))


def test_only_slots_that_exist_are_reset() -> None:
    for slot in (-1, 3):
        with pytest.raises(ValueError, match=f"cache slot {slot} does not exist"):
            new_cache().reset([slot])


def test_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="max_sequences and max_tokens must be at least 1, got 0 and 5"):
        tiny("ckpt_bf16").new_cache(max_sequences=0, max_tokens=5)
    with pytest.raises(ValueError, match="max_tokens is 5000; the model goes up to 4096"):
        tiny("ckpt_bf16").new_cache(max_sequences=1, max_tokens=5000)
