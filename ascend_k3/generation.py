"""Generation: prefill, then one token a step for every sequence that has not stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ascend_k3.model import K3ForConditionalGeneration
from ascend_k3.ops.errors import NonFiniteError


@torch.inference_mode()
def generate(
    model: K3ForConditionalGeneration,
    input_ids: Tensor | Sequence[Sequence[int]],
    max_new_tokens: int = 16,
    temperature: float = 0.0,
    *,
    top_p: float = 1.0,
    seed: int | Sequence[int] | None = None,
    stop_ids: Sequence[int] | None = None,
    attention_mask: Tensor | None = None,
    callback: Callable[[int, int], None] | None = None,
) -> Tensor:
    """New tokens for each prompt. A prompt gets the same tokens in a batch as alone.

    Args:
        input_ids: [B, T] integers, or a list of prompts of any lengths.
        temperature: 0 takes the likeliest token; else tokens are drawn from softmax(logits / temperature).
        top_p: draw only from the likeliest tokens that together have this probability; in (0, 1].
        seed: of the draws, one for all prompts or one for each; None for a different result every time.
        stop_ids: a prompt ends after one of these, which is kept; None for the config's eos_token_id.
        attention_mask: [B, T] of 0 and 1 where `input_ids` is padded.
        callback: called with (prompt number, token) as soon as a token is there.
    Returns: [B, n] int64 on the CPU, n <= max_new_tokens; after its end a row holds the config's pad_token_id.
    Raises: ValueError for an empty prompt or an option out of range; NonFiniteError naming the prompt whose logits are
        not finite.
    """
    prompts = _prompts(input_ids, attention_mask)
    _check_options(max_new_tokens, temperature, top_p)
    text = model.config.text
    stops = {text.eos_token_id} if stop_ids is None else set(stop_ids)
    if isinstance(seed, Sequence) and len(seed) != len(prompts):
        raise ValueError(f"generate: {len(seed)} seeds for {len(prompts)} prompts; give one for each, or one for all.")
    generators = [_generator(seed[n] if isinstance(seed, Sequence) else seed) for n in range(len(prompts))]
    answers: list[list[int]] = [[] for _ in prompts]
    if not prompts or max_new_tokens == 0:
        return torch.empty(len(prompts), 0, dtype=torch.int64)

    longest = max(map(len, prompts))
    cache = model.new_cache(max_sequences=len(prompts), max_tokens=longest + max_new_tokens - 1)
    active = list(range(len(prompts)))
    tokens = torch.tensor([token for prompt in prompts for token in prompt])
    lengths = [len(prompt) for prompt in prompts]
    while active:
        offsets = torch.tensor([0, *lengths]).cumsum(0)
        logits = (
            model(tokens[None], cache=cache, cache_slots=active, cu_seqlens=offsets, logits_to_keep=1)
            .logits[:, 0]
            .cpu()
        )
        finite = torch.isfinite(logits).all(-1)
        if not finite.all():
            row = active[int(finite.logical_not().nonzero()[0, 0])]
            raise NonFiniteError(
                f"generate: the logits of prompt {row} are not finite after {len(answers[row])} new tokens; "
                "no token was drawn from them."
            )
        remaining = []
        for row, row_logits in zip(active, logits, strict=True):
            token = sample(row_logits, temperature, top_p, generators[row])
            answers[row].append(token)
            if callback is not None:
                callback(row, token)
            if token not in stops and len(answers[row]) < max_new_tokens:
                remaining.append(row)
        active = remaining
        tokens = torch.tensor([answers[row][-1] for row in active], dtype=torch.int64)
        lengths = [1] * len(active)

    width = max(map(len, answers))
    return torch.tensor([answer + [text.pad_token_id] * (width - len(answer)) for answer in answers])


def sample(logits: Tensor, temperature: float, top_p: float, generator: torch.Generator | None = None) -> int:
    """One token from logits [vocab]: the likeliest at temperature 0 (the lowest id of equals), else a draw."""
    if temperature == 0:
        return int((logits == logits.max()).nonzero()[0, 0])
    probabilities = torch.softmax(logits.double() / temperature, -1)
    if top_p < 1:
        ordered, order = probabilities.sort(descending=True, stable=True)
        kept = ordered.cumsum(0) - ordered < top_p  # the one that crosses top_p is kept
        probabilities = torch.zeros_like(probabilities).index_copy(0, order, ordered * kept)
    return int(torch.multinomial(probabilities, 1, generator=generator))


def _prompts(input_ids: Tensor | Sequence[Sequence[int]], attention_mask: Tensor | None) -> list[list[int]]:
    if isinstance(input_ids, Tensor):
        if input_ids.dim() != 2 or input_ids.is_floating_point():
            raise ValueError(
                f"generate: input_ids must be integers of the shape [B, T], got {input_ids.dtype} "
                f"{list(input_ids.shape)}."
            )
        if attention_mask is not None and attention_mask.shape != input_ids.shape:
            raise ValueError(
                f"generate: attention_mask must have the shape of input_ids, {list(input_ids.shape)}, "
                f"got {list(attention_mask.shape)}."
            )
        masks = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        prompts = [row[mask.bool()].tolist() for row, mask in zip(input_ids, masks, strict=True)]
    else:
        if attention_mask is not None:
            raise ValueError("generate: attention_mask goes with a padded tensor; a list of prompts has no padding.")
        prompts = [list(prompt) for prompt in input_ids]
    for number, prompt in enumerate(prompts):
        if not prompt:
            raise ValueError(f"generate: prompt {number} is empty; give at least one token.")
    return prompts


def _check_options(max_new_tokens: int, temperature: float, top_p: float) -> None:
    if max_new_tokens < 0:
        raise ValueError(f"generate: max_new_tokens must not be negative, got {max_new_tokens}.")
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"generate: temperature must be 0 or a positive number, got {temperature}.")
    if not 0 < top_p <= 1:
        raise ValueError(f"generate: top_p must lie in (0, 1], got {top_p}.")


def _generator(seed: int | None) -> torch.Generator:
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator
