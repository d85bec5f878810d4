"""How far an operator may be from its definition, by the dtype of its inputs. Never loosened to make something pass."""

from __future__ import annotations

import torch
from torch import Tensor

# RMS of the error over RMS of the float64 definition, for one operator.
RELATIVE_RMS = {
    torch.float64: 1e-12,
    torch.float32: 2e-6,
    torch.float16: 1e-3,
    torch.bfloat16: 5e-3,
}

# The same for states of KDA, and in bf16 for its gradients (docs/contract.md: 1e-2 in bf16).
KDA_STATE_RMS = {**RELATIVE_RMS, torch.float32: 5e-6, torch.bfloat16: 1e-2}
# Of all its gradients together with those of A_log and dt_bias, which are sums over all tokens that cancel in part.
KDA_GRADIENT_RMS = {**KDA_STATE_RMS, torch.float32: 2e-5}


def relative_rms(value: Tensor, expected: Tensor) -> float:
    """RMS of `value - expected` over RMS of `expected`, in float64; NaN anywhere gives NaN."""
    value, expected = value.detach().double(), expected.detach().double()
    error = value - expected
    scale = expected.square().mean().sqrt()
    return (
        float(error.square().mean().sqrt() / scale) if scale > 0 else float(error.abs().max() if error.numel() else 0)
    )
