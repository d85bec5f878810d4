"""Experts over routed tokens: weights in bf16, float32 or float64, or MX-quantized."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops import checks
from ascend_k3.ops.fused_experts import library as _library  # noqa: F401  (registers the operators)
from ascend_k3.ops.fused_experts.reference import DENSE
from ascend_k3.ops.mx import MXTensor
from ascend_k3.ops.situ_glu import bounds


def fused_experts(
    x: Tensor,
    weights: Tensor,
    ids: Tensor,
    w13: Tensor | MXTensor,
    w2: Tensor | MXTensor,
    *,
    activation: str = "situ",
    beta: float | None,
    linear_beta: float | None,
) -> Tensor:
    """y_t = sum_k weights[t, k] w2_e situ_glu(w13_e x_t) with e = ids[t, k].

    Computed in float32 (float64 if any of x, weights, w13, w2 is) and rounded once. Only the experts that some id names
    are read, and quantized ones are expanded one at a time. An id of -1 drops its slot; a token all of whose slots are
    dropped gives zeros whatever it holds. Gradients: x, weights, and dense w13 and w2.

    Args:
        x: [T, D] floating point, the latent of each token.
        weights: [T, top_k] floating point, ids: [T, top_k] int32 or int64, -1 to E-1: as from `route`.
        w13: [E, 2I, D], the gate rows, then the up rows: bf16, float32, float64, or MX along D.
        w2: [E, D, I] of the same kind; MX along I.
        activation: "situ", the one that K3 has.
        beta, linear_beta: those of `situ_glu`.
    Returns: [T, D] of x's dtype.
    Raises: ValueError for a wrong shape, dtype, device, id, format, activation or bound.
    Source: routed experts of the released model.
    """
    op = "fused_experts"
    if activation != "situ":
        raise ValueError(f'{op}: activation must be "situ", got {activation!r}.')
    beta, linear_beta = bounds(op, beta, linear_beta)
    checks.dtype(op, "x", x)
    checks.dtype(op, "weights", weights)
    checks.dtype(op, "ids", ids, checks.INTEGERS)
    checks.shape(op, "x", x, ("T", "D"))
    checks.shape(op, "ids", ids, (x.shape[0], "top_k"))
    checks.shape(op, "weights", weights, tuple(ids.shape))
    w13_data, w13_scale, format = _parts(op, "w13", w13)
    w2_data, w2_scale, w2_format = _parts(op, "w2", w2)
    if format != w2_format:
        raise ValueError(f"{op}: w13 and w2 must be of one format, got {format} and {w2_format}.")
    latent = x.shape[1]
    if len(w13.shape) != 3 or w13.shape[1] % 2 or w13.shape[2] != latent:
        raise ValueError(f"{op}: w13 must have the shape [E, 2I, {latent}] to fit x, got {list(w13.shape)}.")
    experts, width = w13.shape[0], w13.shape[1] // 2
    if tuple(w2.shape) != (experts, latent, width):
        raise ValueError(
            f"{op}: w2 must have the shape [{experts}, {latent}, {width}] to fit w13, got {list(w2.shape)}."
        )
    checks.same_device(
        op, x=x, weights=weights, ids=ids, w13=w13_data, w13_scale=w13_scale, w2=w2_data, w2_scale=w2_scale
    )
    _check_ids(op, ids, experts)
    return torch.ops.ascend_k3.fused_experts(
        x, weights, ids, w13_data, w13_scale, w2_data, w2_scale, format, beta, linear_beta
    )


def _parts(op: str, name: str, stack: Tensor | MXTensor) -> tuple[Tensor, Tensor | None, str]:
    if isinstance(stack, MXTensor):
        return stack.data, stack.scale, stack.format
    checks.dtype(op, name, stack)
    return stack, None, DENSE


def _check_ids(op: str, ids: Tensor, experts: int) -> None:
    if not checks.values_known(ids) or not ids.numel():
        return
    low, high = (int(bound) for bound in ids.aminmax())
    if low < -1 or high >= experts:
        found = low if low < -1 else high
        raise ValueError(f"{op}: ids must be 0 to {experts - 1}, or -1 to drop a slot; got {found}.")
