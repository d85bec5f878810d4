"""What a sequence leaves behind for its next tokens: KDA states, convolution windows, latent rows, and who owns them.

Per KDA layer a slot holds one state matrix and one convolution window, of a size that does not grow. Per MLA layer all
slots share one pool of pages; a table maps each slot's pages. A slot's contents count only up to its length: a slot of
length 0 starts from a zero state, whatever its memory holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ascend_k3.config import TextConfig
from ascend_k3.ops.errors import NonFiniteError

BLOCK_SIZE = 64  # tokens a page


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheStep:
    """Where one forward pass reads and writes: N sequences, T new tokens, C tokens of context with them."""

    cache: K3Cache
    slots: Tensor  # [N] int64
    lengths: Tensor  # [N] int32, after the step
    block_table: Tensor  # [N, blocks] int32
    slot_mapping: Tensor  # [T] int64, the pool row of each new token
    context: Tensor  # [C] int64, the pool rows of each sequence from its first token on; empty where all decode
    cu_context: Tensor  # [N + 1] int64


class K3Cache:
    """Room for `max_sequences` sequences of up to `max_tokens` tokens each.

    Args:
        config: of the model.
        max_sequences: slots.
        max_tokens: tokens that one slot can hold.
        dtype: of latent rows and convolution windows; states are float32 (float64 for a float64 model).

    `model(..., cache=cache, cache_slots=[3, 0])` continues the sequences in slots 3 and 0. `reset` empties slots.
    """

    def __init__(
        self,
        config: TextConfig,
        *,
        max_sequences: int,
        max_tokens: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        if max_sequences < 1 or max_tokens < 1:
            raise ValueError(
                f"K3Cache: max_sequences and max_tokens must be at least 1, got {max_sequences} and {max_tokens}."
            )
        if max_tokens > config.max_position_embeddings:
            raise ValueError(
                f"K3Cache: max_tokens is {max_tokens}; the model goes up to {config.max_position_embeddings}."
            )
        kda = config.kda
        pages = -(-max_tokens // BLOCK_SIZE)
        state_dtype = torch.promote_types(dtype, torch.float32)
        self.max_tokens = max_tokens
        self.device = torch.device(device)
        self.states: dict[int, Tensor] = {}
        self.windows: dict[int, Tensor] = {}
        self.latents: dict[int, Tensor] = {}
        for layer in range(config.num_hidden_layers):
            if config.is_full_attention(layer):
                self.latents[layer] = torch.zeros(
                    max_sequences * pages, BLOCK_SIZE, config.latent_width, dtype=dtype, device=device
                )
            else:
                self.states[layer] = torch.zeros(
                    max_sequences, kda.num_heads, kda.head_dim, kda.head_dim, dtype=state_dtype, device=device
                )
                self.windows[layer] = torch.zeros(
                    max_sequences, 3 * kda.width, kda.short_conv_kernel_size - 1, dtype=dtype, device=device
                )
        self._pages = torch.full((max_sequences, pages), -1, dtype=torch.int32)
        self._free = list(range(max_sequences * pages - 1, -1, -1))
        self._lengths = [0] * max_sequences
        self._broken = [False] * max_sequences

    @property
    def max_sequences(self) -> int:
        return len(self._lengths)

    def length(self, slot: int) -> int:
        """Tokens that slot `slot` holds."""
        return self._lengths[slot]

    def reset(self, slots: Sequence[int] | Tensor | None = None) -> None:
        """Empty the slots (all when None) and give their pages back."""
        chosen = range(self.max_sequences) if slots is None else self._slot_numbers(slots)
        for slot in chosen:
            used = self._pages[slot][self._pages[slot] >= 0].tolist()
            self._free.extend(reversed(used))
            self._pages[slot] = -1
            self._lengths[slot] = 0
            self._broken[slot] = False

    def begin(self, slots: Sequence[int] | Tensor, new_tokens: Sequence[int]) -> CacheStep:
        """Make room for `new_tokens[n]` tokens in slot `slots[n]`. The slots are unusable until `commit`."""
        slots = self._slot_numbers(slots)
        self._check(slots, new_tokens)
        decode = all(count == 1 for count in new_tokens)
        fresh = [slot for slot in slots if self._lengths[slot] == 0]
        for tensors in (self.states, self.windows):
            for tensor in tensors.values():
                tensor[fresh] = 0
        after = [self._lengths[slot] + count for slot, count in zip(slots, new_tokens, strict=True)]
        written, context = [], []
        for slot, length, count in zip(slots, after, new_tokens, strict=True):
            self._broken[slot] = True
            pages = self._pages[slot]
            for page in range(-(-(length - count) // BLOCK_SIZE), -(-length // BLOCK_SIZE)):
                pages[page] = self._free.pop()
            written.append(_rows(pages, length - count, length))
            if not decode:
                context.append(_rows(pages, 0, length))
        most = max((-(-length // BLOCK_SIZE) for length in after), default=0)
        return CacheStep(
            cache=self,
            slots=torch.tensor(slots, dtype=torch.int64, device=self.device),
            lengths=torch.tensor(after, dtype=torch.int32, device=self.device),
            block_table=self._pages[list(slots), :most].to(self.device),
            slot_mapping=_joined(written).to(self.device),
            context=_joined(context).to(self.device),
            cu_context=torch.tensor([0, *after]).cumsum(0).to(self.device),
        )

    def commit(self, step: CacheStep) -> None:
        """Accept what the layers have written, after a look that every state is finite.

        Raises: NonFiniteError naming layer and slot; the slot then stays unusable until it is reset, the others do not.
        """
        slots = step.slots.tolist()
        bad: dict[int, int] = {}
        for layer, states in self.states.items():
            finite = torch.isfinite(states[step.slots]).flatten(1).all(1).tolist()
            for slot, good in zip(slots, finite, strict=True):
                if not good:
                    bad.setdefault(slot, layer)
        for slot, length in zip(slots, step.lengths.tolist(), strict=True):
            if slot not in bad:
                self._lengths[slot] = length
                self._broken[slot] = False
        if bad:
            slot, layer = next(iter(bad.items()))
            raise NonFiniteError(
                f"the KDA state of layer {layer} in cache slot {slot} is not finite after "
                f"{int(step.lengths[slots.index(slot)])} tokens; "
                f"it was not committed: reset slot {slot}, and look at the weights and inputs of that layer."
            )

    def _slot_numbers(self, slots: Sequence[int] | Tensor) -> list[int]:
        """The slots as integers that exist."""
        numbers = slots.tolist() if isinstance(slots, Tensor) else list(slots) if isinstance(slots, Iterable) else slots
        if not isinstance(numbers, list) or not all(type(slot) is int for slot in numbers):
            raise ValueError(f"cache slots must be a list of integers, got {slots!r}.")
        for slot in numbers:
            if not 0 <= slot < self.max_sequences:
                raise ValueError(
                    f"cache slot {slot} does not exist; the cache has slots 0 to {self.max_sequences - 1}."
                )
        return numbers

    def _check(self, slots: Sequence[int], new_tokens: Sequence[int]) -> None:
        if len(slots) != len(new_tokens):
            raise ValueError(f"cache_slots names {len(slots)} slots; there are {len(new_tokens)} sequences.")
        if len(set(slots)) != len(slots):
            raise ValueError(f"cache_slots must name each slot once, got {list(slots)}.")
        for slot, count in zip(slots, new_tokens, strict=True):
            if self._broken[slot]:
                raise ValueError(
                    f"cache slot {slot} was left unfinished by a failed forward; reset([{slot}]) empties it."
                )
            if self._lengths[slot] + count > self.max_tokens:
                raise ValueError(
                    f"cache slot {slot} holds {self._lengths[slot]} tokens and {count} more exceed its max_tokens, "
                    f"{self.max_tokens}; make the cache larger or reset the slot."
                )


def _rows(pages: Tensor, begin: int, end: int) -> Tensor:
    """Pool rows of the tokens from `begin` to `end` of a sequence with these pages."""
    positions = torch.arange(begin, end)
    return pages.long()[positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)
