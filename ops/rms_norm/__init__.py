"""Root-mean-square norms: the ordinary one, and the one with an output gate."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops import checks
from ascend_k3.ops.rms_norm import library as _library  # noqa: F401  (registers the operators)


def rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """y = x / sqrt(mean(x^2) + eps) * weight over the last axis.

    The statistics are float32 (float64 if x or weight is); the normalized x is rounded to its dtype before the product
    with `weight`, as the released model does (it shows in bf16 only).

    Args:
        x: [..., D] floating point.
        weight: [D] floating point.
    Returns: [..., D] of x's dtype.
    Raises: ValueError for a wrong shape, dtype, device or eps.
    Source: KimiRMSNorm of the release; `rms_norm_eps` of its config.
    """
    _check("rms_norm", x, weight, eps)
    return torch.ops.ascend_k3.rms_norm(x, weight, eps)


def rms_norm_gated(x: Tensor, gate: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """y = x / sqrt(mean(x^2) + eps) * weight * sigmoid(gate) over the last axis, rounded once at the end.

    Calculated in float32 (float64 if x, gate or weight is).

    Args:
        x, gate: [..., D] floating point; for KDA the last axis is one head.
        weight: [D] floating point.
    Returns: [..., D] of x's dtype.
    Raises: ValueError for a wrong shape, dtype, device or eps.
    Source: output norm of Kimi Delta Attention in the release (`o_norm`, `g_proj`).
    """
    _check("rms_norm_gated", x, weight, eps)
    checks.dtype("rms_norm_gated", "gate", gate)
    checks.shape("rms_norm_gated", "gate", gate, tuple(x.shape))
    checks.same_device("rms_norm_gated", x=x, gate=gate)
    return torch.ops.ascend_k3.rms_norm_gated(x, gate, weight, eps)


def _check(op: str, x: Tensor, weight: Tensor, eps: float) -> None:
    checks.dtype(op, "x", x)
    checks.dtype(op, "weight", weight)
    if x.dim() < 1:
        raise ValueError(f"{op}: x must have at least one axis, got a scalar.")
    checks.shape(op, "weight", weight, (x.shape[-1],))
    checks.same_device(op, x=x, weight=weight)
    checks.eps(op, "eps", eps)
