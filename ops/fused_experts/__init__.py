"""Experts over routed tokens: weights in bf16, float32 or float64, or MX-quantized; rows to their experts and back."""

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


def permute_tokens(x: Tensor, ids: Tensor, experts: int) -> tuple[Tensor, Tensor, Tensor]:
    """rows[places[t, k]] = x[t]: the row of each pair of a token and a slot, grouped by expert.

    Within an expert the pairs keep their order. Pairs of id -1 are dropped: their place is -1, and as many rows of
    zeros stand behind the last expert's. Gradient: x.

    Args:
        x: [T, D] floating point.
        ids: [T, top_k] int32 or int64, -1 to experts-1.
        experts: how many there are, E.
    Returns: rows [T * top_k, D] of x's dtype, places [T, top_k] int32, and counts [E] int32, the pairs of each expert.
    Raises: ValueError for a wrong shape, dtype, device, id or number of experts.
    Source: the tokens of each expert as `fused_experts` takes them, as one tensor for a grouped product.
    """
    op = "permute_tokens"
    checks.dtype(op, "x", x)
    checks.shape(op, "x", x, ("T", "D"))
    checks.dtype(op, "ids", ids, checks.INTEGERS)
    checks.shape(op, "ids", ids, (x.shape[0], "top_k"))
    checks.same_device(op, x=x, ids=ids)
    checks.integer(op, "experts", experts)
    if experts < 1:
        raise ValueError(f"{op}: experts must be at least 1, got {experts}.")
    _check_ids(op, ids, experts)
    return torch.ops.ascend_k3.permute_tokens(x, ids, experts)


def unpermute_tokens(rows: Tensor, weights: Tensor, places: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """y_t = sum_k weights[t, k] rows[places[t, k]], slot after slot: what `permute_tokens` took apart, added up again.

    Computed in float32 (float64 if rows or weights are) and rounded once. A place of -1 is left out, whatever its
    weight. Gradients: rows and weights.

    Args:
        rows: [P, D] floating point.
        weights: [T, top_k] floating point.
        places: [T, top_k] int32, -1 to P-1.
        dtype: of y; that of rows when None.
    Returns: y [T, D].
    Raises: ValueError for a wrong shape, dtype, device or place.
    Source: the weighted sum of `fused_experts`.
    """
    op = "unpermute_tokens"
    checks.dtype(op, "rows", rows)
    checks.shape(op, "rows", rows, ("P", "D"))
    checks.dtype(op, "places", places, (torch.int32,))
    checks.shape(op, "places", places, ("T", "top_k"))
    checks.dtype(op, "weights", weights)
    checks.shape(op, "weights", weights, tuple(places.shape))
    checks.same_device(op, rows=rows, weights=weights, places=places)
    dtype = rows.dtype if dtype is None else dtype
    if dtype not in checks.FLOATS:
        names = ", ".join(str(item).removeprefix("torch.") for item in checks.FLOATS)
        raise ValueError(f"{op}: dtype must be one of {names}, got {str(dtype).removeprefix('torch.')}.")
    _check_range(op, "places", places, rows.shape[0], "leave out a slot")
    return torch.ops.ascend_k3.unpermute_tokens(rows, weights, places, dtype)


def _parts(op: str, name: str, stack: Tensor | MXTensor) -> tuple[Tensor, Tensor | None, str]:
    if isinstance(stack, MXTensor):
        return stack.data, stack.scale, stack.format
    checks.dtype(op, name, stack)
    return stack, None, DENSE


def _check_ids(op: str, ids: Tensor, experts: int) -> None:
    _check_range(op, "ids", ids, experts, "drop a slot")


def _check_range(op: str, name: str, values: Tensor, count: int, meaning: str) -> None:
    if not checks.values_known(values) or not values.numel():
        return
    low, high = (int(bound) for bound in values.aminmax())
    if low < -1 or high >= count:
        found = low if low < -1 else high
        raise ValueError(f"{op}: {name} must be 0 to {count - 1}, or -1 to {meaning}; got {found}.")
