"""The SiTU-GLU feed-forward: the dense layer's, and the shared experts'."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ascend_k3 import ops
from ascend_k3.config import TextConfig


class FeedForward(nn.Module):
    """down(situ(gate(x)) * up(x)); see `ops.situ_glu`."""

    def __init__(self, config: TextConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.gate_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.down_proj = nn.Linear(width, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate_up = torch.cat((self.gate_proj(x), self.up_proj(x)), -1)
        hidden = ops.situ_glu(
            gate_up, beta=self.config.activation_situ_beta, linear_beta=self.config.activation_situ_linear_beta
        )
        return self.down_proj(hidden)
