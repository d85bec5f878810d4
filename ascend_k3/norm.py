"""The RMS norm as a module: one weight, and its eps."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ascend_k3 import ops


def small_parameter_dtype() -> torch.dtype:
    """The dtype of what checkpoints keep in F32 (A_log, dt_bias, convolutions, o_norm, router bias)."""
    return torch.promote_types(torch.get_default_dtype(), torch.float32)


class RMSNorm(nn.Module):
    """y = x / sqrt(mean(x^2) + eps) * weight over the last axis."""

    def __init__(self, width: int, eps: float, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return ops.rms_norm(x, self.weight, eps=self.eps)
