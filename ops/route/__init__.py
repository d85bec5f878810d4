"""Routing: which experts a token goes to, and with what weight."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops import checks
from ascend_k3.ops.route import library as _library  # noqa: F401  (registers the operators)


def route(
    logits: Tensor, bias: Tensor, *, top_k: int, renormalize: bool = True, scaling_factor: float = 1.0
) -> tuple[Tensor, Tensor]:
    """ids = top_k of sigmoid(logits) + bias; weights = s / (sum s + 1e-20) * scaling_factor, s = sigmoid(logits)[ids].

    The bias takes part in the choice only, so it has no gradient; the gradient of logits holds the choice fixed. Of
    equal experts the lowest index is chosen first. A NaN counts as the largest value: the ids stay valid and the NaN
    shows in the weights.

    Args:
        logits: [T, E] float32 or float64.
        bias: [E] float32 or float64 (`e_score_correction_bias`); rounded to bf16 it would choose other experts.
        top_k: experts a token, 16 in the release.
        renormalize: False leaves out the division by the sum.
        scaling_factor: `routed_scaling_factor`.
    Returns: weights [T, top_k] of logits' dtype, and ids [T, top_k] int64, by falling sigmoid(logits) + bias.
    Raises: ValueError for a wrong shape, dtype, device or top_k.
    Source: router of the released model.
    """
    checks.dtype("route", "logits", logits, (torch.float32, torch.float64))
    checks.dtype("route", "bias", bias, (torch.float32, torch.float64))
    checks.shape("route", "logits", logits, ("T", "E"))
    checks.shape("route", "bias", bias, (logits.shape[1],))
    checks.same_device("route", logits=logits, bias=bias)
    if not 1 <= top_k <= logits.shape[1]:
        raise ValueError(f"route: top_k must be 1 to the number of experts, {logits.shape[1]}; got {top_k}.")
    return torch.ops.ascend_k3.route(logits, bias, top_k, renormalize, float(scaling_factor))
