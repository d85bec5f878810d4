"""Block Attention Residuals: what stands in place of a residual stream.

The outputs of attention and feed-forward are summed into a running prefix for one block of layers; the sum then enters
the bank, and the prefix starts anew. What a layer reads is a mixture of the bank's blocks and the prefix, with weights
from a softmax over depth. The first block is the embedding alone.

Source: Attention Residuals in the K3 report, 2.2; `attn_res_block_size` of the release.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ascend_k3 import ops
from ascend_k3.norm import RMSNorm


@dataclass(frozen=True, slots=True)
class Residual:
    """blocks [T, n, D]: the bank; prefix [T, D]: the running sum, None at a block's start."""

    blocks: Tensor
    prefix: Tensor | None

    @classmethod
    def start(cls, embedding: Tensor) -> Residual:
        return cls(embedding.new_empty(embedding.shape[0], 0, embedding.shape[1]), embedding)

    def mix(self, norm: RMSNorm, query: nn.Linear) -> Tensor:
        """The mixture [T, D] that one sublayer reads. With an empty bank it is the prefix, whatever the weights are."""
        if self.blocks.shape[1] == 0 and self.prefix is not None:
            return self.prefix
        return ops.attention_residual(self.blocks, self.prefix, norm.weight, query.weight, eps=norm.eps)

    def close_block(self) -> Residual:
        """Move the prefix into the bank."""
        if self.prefix is None:
            raise ValueError("Residual.close_block: the block is empty; add an output before closing it.")
        return Residual(torch.cat((self.blocks, self.prefix[:, None]), 1), None)

    def add(self, output: Tensor) -> Residual:
        """Sum a sublayer's output into the prefix."""
        return Residual(self.blocks, output if self.prefix is None else self.prefix + output)
