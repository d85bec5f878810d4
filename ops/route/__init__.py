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
    shows in the weights. Calculated in float32 (float64 if logits are), the weights rounded once.

    Args:
        logits: [T, E] floating point. Rounded to bf16 before, near experts may change places.
        bias: [E] float32 or float64 (`e_score_correction_bias`); rounded to bf16 it would choose other experts.
        top_k: experts a token, 16 in the release.
        renormalize: False leaves out the division by the sum.
        scaling_factor: `routed_scaling_factor`.
    Returns: weights [T, top_k] of logits' dtype, and ids [T, top_k] int64, by falling sigmoid(logits) + bias.
    Raises: ValueError for a wrong shape, dtype, device or top_k.
    Source: router of the released model.
    """
    checks.dtype("route", "logits", logits)
    checks.is_tensor("route", "bias", bias)
    if bias.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"route: bias must be of dtype float32, float64, got {str(bias.dtype).removeprefix('torch.')}; "
            "keep the bias in float32: a bf16 bias would select other experts."
        )
    checks.shape("route", "logits", logits, ("T", "E"))
    checks.shape("route", "bias", bias, (logits.shape[1],))
    checks.same_device("route", logits=logits, bias=bias)
    checks.integer("route", "top_k", top_k)
    checks.number("route", "scaling_factor", scaling_factor)
    if not 1 <= top_k <= logits.shape[1]:
        raise ValueError(f"route: top_k must be 1 to the number of experts, {logits.shape[1]}; got {top_k}.")
    return torch.ops.ascend_k3.route(logits, bias, top_k, renormalize, float(scaling_factor))
