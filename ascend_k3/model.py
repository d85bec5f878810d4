"""Kimi K3 as one module: `K3ForConditionalGeneration`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ascend_k3.attention.kda import KimiDeltaAttention, ShortConvolution
from ascend_k3.cache import K3Cache
from ascend_k3.config import K3Config
from ascend_k3.decoder import Decoder
from ascend_k3.moe import Experts, Router
from ascend_k3.norm import RMSNorm
from ascend_k3.ops.checks import INTEGERS
from ascend_k3.sequences import Sequences
from ascend_k3.vision import MERGE, PositionEmbedding, Projector, VisionTower


@dataclass(frozen=True, slots=True)
class K3Output:
    """logits [B, T, vocab] float32; zero at padded positions. See `logits_to_keep` for fewer."""

    logits: Tensor


class LanguageModel(nn.Module):
    """Decoder and lm_head, as checkpoints nest them: `language_model.model` and `language_model.lm_head`."""

    def __init__(self, config: K3Config, packed_experts: bool) -> None:
        super().__init__()
        self.model = Decoder(config.text, packed_experts)
        self.lm_head = nn.Linear(config.text.hidden_size, config.text.vocab_size, bias=False)


class K3ForConditionalGeneration(nn.Module):
    """Kimi K3. Parameters are uninitialized where the `meta` device is in force, else drawn as for training.

    Args:
        config: what to build.
        packed_experts: routed experts as MXFP4 codes and scales (not trainable) instead of floating point.
    """

    def __init__(self, config: K3Config, *, packed_experts: bool = False) -> None:
        super().__init__()
        self.config = config
        self.packed_experts = packed_experts
        self.stop_ids: tuple[int, ...] = (config.text.eos_token_id,)  # `load_model` takes the union of its files
        self.language_model = LanguageModel(config, packed_experts)
        if config.vision is not None:
            self.vision_tower = VisionTower(config.vision)
            self.mm_projector = Projector(config.vision)
        if not self.language_model.lm_head.weight.is_meta:
            self.reset_parameters()

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that activations have."""
        return self.language_model.lm_head.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.language_model.lm_head.weight.device

    def new_cache(self, *, max_sequences: int, max_tokens: int) -> K3Cache:
        """A cache for `max_sequences` sequences of up to `max_tokens` tokens each."""
        return K3Cache(
            self.config.text, max_sequences=max_sequences, max_tokens=max_tokens, dtype=self.dtype, device=self.device
        )

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
        grid_thws: Tensor | None = None,
        cache: K3Cache | None = None,
        cache_slots: Sequence[int] | Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        logits_to_keep: int = 0,
    ) -> K3Output:
        """Logits of token ids.

        Args:
            input_ids: [B, T] integers.
            attention_mask: [B, T] of 0 and 1; the ones of a row stand together, so that a row is padded on the left or
                on the right (or on both sides). Padded positions are not computed and get zero logits.
            pixel_values: [patches, 3, P, P] of all images, in the order of their placeholders; see
                `images.preprocess_batch`, for which several frames are one image as well.
            grid_thws: [images, 3] frames, rows and columns of patches of each image. `input_ids` holds
                `media_placeholder_token_id` either once for each image, and is expanded here (logits are those of the
                expanded rows, padded on the side that `attention_mask` pads on), or once for each image token.
            cache: continue the sequences that it holds, and store these tokens in it; nothing then has a gradient.
            cache_slots: the cache's slot of each sequence; 0 to N-1 when None.
            cu_seqlens: [N + 1]; B is 1 and its T tokens are N sequences, one after another.
            logits_to_keep: 0 for all positions; n for the last n real tokens of each sequence, as [N, n, vocab]
                (zero where a sequence is shorter, at the front).
        Raises: ValueError for a wrong shape, an id outside the vocabulary, a mask with holes or slots that do not fit;
            NonFiniteError from the cache.
        """
        if isinstance(logits_to_keep, bool) or not isinstance(logits_to_keep, int) or logits_to_keep < 0:
            raise ValueError(f"logits_to_keep must be 0 (all) or the number of last tokens, got {logits_to_keep!r}.")
        if cache is None and cache_slots is not None:
            raise ValueError("cache_slots names slots of a cache; give the cache as well.")
        tokens, lengths, positions = self._stream(input_ids, attention_mask, cu_seqlens)
        shape = tuple(input_ids.shape)
        media = is_media = None
        if pixel_values is not None or grid_thws is not None:
            media, tokens, repeats = self._media(tokens, pixel_values, grid_thws)
            is_media = tokens == self.config.media_placeholder_token_id
            if len(repeats):  # one placeholder became several
                lengths = [int(part.sum()) for part in repeats.split(lengths)]
                shape, positions = _aligned(lengths, shape, attention_mask, cu_seqlens is not None)
        offsets = torch.tensor([0, *lengths]).cumsum(0)
        if cache is None:
            sequences = Sequences(offsets.to(tokens.device), tuple(lengths))
            hidden = self.language_model.model(tokens, sequences, media, is_media)
        else:
            step = cache.begin(range(len(lengths)) if cache_slots is None else cache_slots, lengths)
            sequences = Sequences(offsets.to(tokens.device), tuple(lengths), step)
            with torch.no_grad():  # the cache would cut the graph of keys, values and states, and gradients be wrong
                hidden = self.language_model.model(tokens, sequences, media, is_media)
            cache.commit(step)

        rows, places = torch.arange(len(tokens)), positions
        if logits_to_keep:
            ends = offsets[1:, None] - torch.arange(logits_to_keep, 0, -1)
            kept = (ends >= offsets[:-1, None]).flatten()
            rows, places, shape = ends.flatten()[kept], kept.nonzero().flatten(), (len(lengths), logits_to_keep)
        logits = self.language_model.lm_head(hidden[rows.to(hidden.device)])
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        vocabulary = logits.shape[-1]
        if len(places) < math.prod(shape):
            padded = logits.new_zeros(math.prod(shape), vocabulary)
            logits = padded.index_copy(0, places.to(padded.device), logits)
        return K3Output(logits.view(*shape, vocabulary))

    def _stream(
        self, input_ids: Tensor, attention_mask: Tensor | None, cu_seqlens: Tensor | None
    ) -> tuple[Tensor, list[int], Tensor]:
        """The real tokens [T], the length of each sequence, and the position of each token in the flat input."""
        for name, value in (("input_ids", input_ids), ("attention_mask", attention_mask), ("cu_seqlens", cu_seqlens)):
            if not isinstance(value, Tensor) and (value is not None or name == "input_ids"):
                raise ValueError(f"{name} must be a torch.Tensor, got {type(value).__name__}.")
        if input_ids.dim() != 2 or input_ids.dtype not in INTEGERS:
            raise ValueError(
                f"input_ids must be int32 or int64 of the shape [B, T], got {input_ids.dtype} {list(input_ids.shape)}."
            )
        batch, length = input_ids.shape
        if cu_seqlens is not None:
            if attention_mask is not None:
                raise ValueError("give attention_mask or cu_seqlens, not both: packed sequences have no padding.")
            values = cu_seqlens.flatten().tolist()
            rising = all(b >= a for a, b in zip(values, values[1:], strict=False))
            if batch != 1 or not values or values[0] != 0 or values[-1] != length or not rising:
                raise ValueError(
                    f"cu_seqlens must rise from 0 to {length}, the tokens of the one row of input_ids; got {values} "
                    f"for input_ids of the shape {list(input_ids.shape)}."
                )
            lengths = [b - a for a, b in zip(values, values[1:], strict=False)]
            positions = torch.arange(length)
        elif attention_mask is None:
            lengths, positions = [length] * batch, torch.arange(batch * length)
        else:
            lengths, positions = unpadded(attention_mask, (batch, length))
        tokens = input_ids.flatten()[positions.to(input_ids.device)].to(self.device)
        vocabulary = self.config.text.vocab_size
        wrong = tokens[(tokens < 0) | (tokens >= vocabulary)]
        if len(wrong):
            raise ValueError(f"token id {int(wrong[0])} is outside the vocabulary: ids go from 0 to {vocabulary - 1}.")
        return tokens, lengths, positions

    def _media(
        self, tokens: Tensor, pixel_values: Tensor | None, grid_thws: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Embeddings of the images [M, D], the tokens with a placeholder for each, and how often a token was repeated.

        The repeats are empty when the placeholders came expanded.
        """
        if pixel_values is None or grid_thws is None:
            raise ValueError("pixel_values and grid_thws go together; give both, or neither.")
        if self.config.vision is None:
            raise ValueError("this checkpoint has no vision tower; give text only.")
        embeddings = self.mm_projector(self.vision_tower(pixel_values.to(self.device), grid_thws))
        sizes = (grid_thws[:, 1] * grid_thws[:, 2] // MERGE**2).to(tokens.device)
        placeholders = tokens == self.config.media_placeholder_token_id
        found = int(placeholders.sum())
        if found == len(embeddings):
            return embeddings, tokens, tokens.new_empty(0)
        if found != len(sizes):
            raise ValueError(
                f"input_ids hold {found} image placeholders (id {self.config.media_placeholder_token_id}); there must "
                f"be one for each of the {len(sizes)} images, or one for each of their {len(embeddings)} tokens."
            )
        repeats = torch.ones_like(tokens).masked_scatter(placeholders, sizes.to(tokens.dtype))
        return embeddings, tokens.repeat_interleave(repeats), repeats

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the parameters for training from scratch.

        Matrices are normal with `initializer_range` (0.02 when the config has none); norms are one, biases zero. The
        residual queries are zero, so that a mixture starts as a plain mean. A_log is zero and dt_bias such that the
        log decay of one token lies between -1e-3 and -1 (or half its bound), evenly in log: the report does not state
        its own choice.
        """
        deviation = float(self.config.text.metadata.get("initializer_range", 0.02))
        for module in self.modules():
            if isinstance(module, Experts):
                if module.packed:
                    for buffer in module.buffers():
                        buffer.zero_()
                else:
                    module.w13.normal_(0, deviation, generator=generator)
                    module.w2.normal_(0, deviation, generator=generator)
            elif isinstance(module, Router):
                module.weight.normal_(0, deviation, generator=generator)
                module.e_score_correction_bias.zero_()
            elif isinstance(module, nn.Linear | nn.Embedding | nn.Conv2d | PositionEmbedding):
                module.weight.normal_(0, deviation, generator=generator)
            elif isinstance(module, ShortConvolution):
                bound = module.weight.shape[-1] ** -0.5
                module.weight.uniform_(-bound, bound, generator=generator)
            elif isinstance(module, RMSNorm):
                module.weight.fill_(1)
            elif isinstance(module, KimiDeltaAttention):
                module.A_log.zero_()
                bound = -module.config.gate_lower_bound
                high = math.log(min(1.0, bound / 2))
                decay = (
                    torch.empty_like(module.dt_bias).uniform_(math.log(1e-3) + high, high, generator=generator).exp()
                )
                module.dt_bias.copy_(torch.logit(decay / bound))
        for name, parameter in self.named_parameters():
            if name.endswith("res_proj.weight"):
                parameter.zero_()


def _aligned(
    lengths: list[int], shape: tuple[int, ...], mask: Tensor | None, packed: bool
) -> tuple[tuple[int, ...], Tensor]:
    """The shape [B, T] that rows of these lengths fill, and the flat position of each token in it."""
    if packed:
        return (1, sum(lengths)), torch.arange(sum(lengths))
    longest = max(lengths, default=0)
    on_the_left = mask is not None and shape[1] > 0 and bool((mask[:, 0] == 0).any())
    starts = [row * longest + (longest - length if on_the_left else 0) for row, length in enumerate(lengths)]
    parts = [torch.arange(start, start + length) for start, length in zip(starts, lengths, strict=True)]
    return (len(lengths), longest), torch.cat(parts) if parts else torch.arange(0)


def unpadded(mask: Tensor, shape: tuple[int, ...]) -> tuple[list[int], Tensor]:
    """The number of real tokens in each row, and the flat positions of all of them."""
    if tuple(mask.shape) != shape:
        raise ValueError(f"attention_mask must have the shape of input_ids, {list(shape)}, got {list(mask.shape)}.")
    mask = mask.cpu()
    real = mask.bool()
    if not torch.equal(real.to(mask.dtype), mask):
        raise ValueError("attention_mask must hold only 0 (padding) and 1 (token).")
    edges = (real[:, 1:] != real[:, :-1]).sum(1) + real[:, :1].sum(1) + real[:, -1:].sum(1)
    broken = (edges > 2).nonzero().flatten()
    if len(broken):
        raise ValueError(f"attention_mask has a hole in row {int(broken[0])}; the ones of a row must stand together.")
    return real.sum(1).tolist(), real.flatten().nonzero().flatten()
