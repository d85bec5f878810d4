"""Generation: prefill, then one token a step for every sequence that has not stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ascend_k3.model import K3ForConditionalGeneration, unpadded
from ascend_k3.ops.checks import INTEGERS
from ascend_k3.ops.errors import NonFiniteError

_COLDEST = 1e-30  # temperatures below give what this gives, the likeliest token, without leaving the range of float64


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
    pixel_values: Tensor | None = None,
    grid_thws: Tensor | None = None,
    callback: Callable[[int, int], None] | None = None,
) -> Tensor:
    """New tokens for each prompt. A prompt gets the same tokens in a batch as alone.

    Args:
        input_ids: [B, T] integers, or a list of prompts of any lengths.
        temperature: 0 takes the likeliest token; else tokens are drawn from softmax(logits / temperature).
        top_p: draw only from the likeliest tokens that together have this probability; in (0, 1].
        seed: of the draws, one for all prompts or one for each; None for a different result every time.
        stop_ids: a prompt ends after one of these, which is kept; None for `model.stop_ids`, which `load_model` takes
            from config, generation_config and tokenizer_config.
        attention_mask: [B, T] of 0 and 1 where `input_ids` is padded.
        pixel_values, grid_thws: the images of all prompts, in the order of their placeholders; see
            `images.preprocess_batch`, which takes frames as well. A prompt holds the config's
            media_placeholder_token_id once for each image, or once for each image token.
        callback: called with (prompt number, token) as soon as a token is there.
    Returns: [B, n] int64 on the CPU, n <= max_new_tokens; after its end a row holds the config's pad_token_id.
    Raises: ValueError for an empty prompt or an option out of range; NonFiniteError naming the prompt whose logits are
        not finite.
    """
    text = model.config.text
    prompts = _prompts(input_ids, attention_mask, text.vocab_size)
    _check_options(max_new_tokens, temperature, top_p)
    if grid_thws is not None:
        prompts = _expanded(prompts, grid_thws, model.config.media_placeholder_token_id)
    stops = set(model.stop_ids if stop_ids is None else stop_ids)
    generators = [_generator(value) for value in _seeds(seed, len(prompts))]
    answers: list[list[int]] = [[] for _ in prompts]
    if not prompts or max_new_tokens == 0:
        return torch.empty(len(prompts), 0, dtype=torch.int64)

    longest = max(map(len, prompts))
    if longest + max_new_tokens - 1 > text.max_position_embeddings:
        raise ValueError(
            f"generate: the longest prompt has {longest} tokens and max_new_tokens is {max_new_tokens}; together they "
            f"must not exceed the {text.max_position_embeddings} positions of the model."
        )
    cache = model.new_cache(max_sequences=len(prompts), max_tokens=longest + max_new_tokens - 1)
    active = list(range(len(prompts)))
    tokens = torch.tensor([token for prompt in prompts for token in prompt])
    lengths = [len(prompt) for prompt in prompts]
    images = (pixel_values, grid_thws)
    while active:
        offsets = torch.tensor([0, *lengths]).cumsum(0)
        try:
            logits = model(
                tokens[None], None, *images, cache=cache, cache_slots=active, cu_seqlens=offsets, logits_to_keep=1
            ).logits
        except NonFiniteError as error:
            raise NonFiniteError(f"generate: {error} The cache slot is the number of the prompt.") from error
        images = (None, None)  # they belong to the prompts
        logits = logits[:, 0].cpu()
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
    logits = logits.double()
    probabilities = torch.softmax((logits - logits.max()) / max(temperature, _COLDEST), -1)
    if top_p < 1:
        ordered, order = probabilities.sort(descending=True, stable=True)
        kept = ordered.cumsum(0) - ordered < top_p  # the one that crosses top_p is kept
        probabilities = torch.zeros_like(probabilities).index_copy(0, order, ordered * kept)
    return int(torch.multinomial(probabilities, 1, generator=generator))


def _prompts(
    input_ids: Tensor | Sequence[Sequence[int]], attention_mask: Tensor | None, vocabulary: int
) -> list[list[int]]:
    """The prompts as lists of ids that are all in the vocabulary."""
    if isinstance(input_ids, Tensor):
        if input_ids.dim() != 2 or input_ids.dtype not in INTEGERS:
            raise ValueError(
                f"generate: input_ids must be int32 or int64 of the shape [B, T], got {input_ids.dtype} "
                f"{list(input_ids.shape)}."
            )
        if attention_mask is None:
            prompts = input_ids.tolist()
        else:
            lengths, positions = unpadded(attention_mask, tuple(input_ids.shape))
            rows = input_ids.cpu().flatten()[positions].split(lengths)
            prompts = [row.tolist() for row in rows]
    else:
        if attention_mask is not None:
            raise ValueError("generate: attention_mask goes with a padded tensor; a list of prompts has no padding.")
        prompts = list(input_ids)
    for number, prompt in enumerate(prompts):
        if not isinstance(prompt, Sequence) or isinstance(prompt, str):
            raise ValueError(f"generate: prompt {number} must be a list of token ids, got {prompt!r}.")
        if not prompt:
            raise ValueError(f"generate: prompt {number} is empty; give at least one token.")
        for token in prompt:
            if isinstance(token, bool) or not isinstance(token, int):
                raise ValueError(f"generate: prompt {number} must be a list of integers, got {token!r} in it.")
            if not 0 <= token < vocabulary:
                raise ValueError(f"token id {token} is outside the vocabulary: ids go from 0 to {vocabulary - 1}.")
    return [list(prompt) for prompt in prompts]


def _expanded(prompts: list[list[int]], grid_thws: Tensor, placeholder: int) -> list[list[int]]:
    """The prompts with a placeholder for each image token; as they are where they have that already."""
    from ascend_k3.images import expand_pads, tokens_of

    counts = [prompt.count(placeholder) for prompt in prompts]
    if sum(counts) != len(grid_thws):
        if sum(counts) == sum(map(tokens_of, grid_thws.tolist())):
            return prompts
        raise ValueError(
            f"generate: the prompts have {sum(counts)} image placeholders (id {placeholder}) and there are "
            f"{len(grid_thws)} images; give one placeholder for each image."
        )
    return [
        expand_pads(prompt, grids, placeholder) for prompt, grids in zip(prompts, grid_thws.split(counts), strict=True)
    ]


def _seeds(seed: int | Sequence[int] | None, prompts: int) -> list[int | None]:
    """One seed for each prompt."""
    seeds: list[int | None] = list(seed) if isinstance(seed, list | tuple) else [seed] * prompts  # type: ignore[list-item]
    if len(seeds) != prompts:
        raise ValueError(f"generate: {len(seeds)} seeds for {prompts} prompts; give one for each, or one for all.")
    for value in seeds:
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63
        ):
            raise ValueError(f"generate: seed must be an integer of 64 bits, or a list of them, got {value!r}.")
    return seeds


def _check_options(max_new_tokens: int, temperature: float, top_p: float) -> None:
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int):
        raise ValueError(f"generate: max_new_tokens must be an integer, got {max_new_tokens!r}.")
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
