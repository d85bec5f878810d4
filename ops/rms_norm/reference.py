"""RMS norms in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops.library import compute_dtype


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    value = x.to(compute_dtype(x, weight))
    normed = value * torch.rsqrt(value.square().mean(-1, keepdim=True) + eps)
    return (normed.to(x.dtype) * weight).to(x.dtype)


def rms_norm_gated(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    dtype = compute_dtype(x, gate, weight)
    value = x.to(dtype)
    normed = value * torch.rsqrt(value.square().mean(-1, keepdim=True) + eps)
    return (normed * weight.to(dtype) * torch.sigmoid(gate.to(dtype))).to(x.dtype)
