"""Which sequences a stream of tokens consists of, and which rows of a cache they continue.

The model computes on one stream [T, D] of real tokens, without padding: batches, padded batches and packed sequences
become such a stream, so that a padded position can never be seen by a real one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from ascend_k3.cache import CacheStep


@dataclass(frozen=True, slots=True)
class Sequences:
    """cu_seqlens [N+1] int64, and the same as lengths on the host; step: where the cache is written."""

    cu_seqlens: Tensor
    lengths: tuple[int, ...]
    step: CacheStep | None = None

    @property
    def is_decode(self) -> bool:
        """Whether each sequence continues a cached one by exactly one token."""
        return self.step is not None and all(length == 1 for length in self.lengths)
