"""SiTU-GLU, the activation of every feed-forward of K3: dense, shared and routed."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops import checks
from ascend_k3.ops.mx import MXTensor, check_target
from ascend_k3.ops.mx.formats import BLOCK
from ascend_k3.ops.situ_glu import library as _library  # noqa: F401  (registers the operators)


def situ_glu(gate_up: Tensor, *, beta: float | None, linear_beta: float | None) -> Tensor:
    """y = beta tanh(g / beta) sigmoid(g) * linear_beta tanh(u / linear_beta), with [g | u] = gate_up on the last axis.

    Both factors are bounded, so |y| <= beta * linear_beta; near zero it is SiLU(g) * u. Computed in float32 (float64
    for float64 input) and rounded once.

    Args:
        gate_up: [..., 2I] floating point: the gate, then the up part.
        beta: bound of the gate, 4.0 in the release (`activation_situ_beta`); None or 0 means 1.0, as there.
        linear_beta: bound of the up part, 25.0 in the release (`activation_situ_linear_beta`); None leaves u as it is.
    Returns: [..., I] of gate_up's dtype.
    Raises: ValueError for a wrong shape, dtype or bound.
    Source: SiTU of the released model.
    """
    _check("situ_glu", gate_up)
    return torch.ops.ascend_k3.situ_glu(gate_up, *bounds("situ_glu", beta, linear_beta))


def situ_glu_mx_quantize(
    gate_up: Tensor, *, beta: float | None, linear_beta: float | None, format: str, rule: str = "floor"
) -> MXTensor:
    """mx_quantize(situ_glu(gate_up)) in one step: y is rounded to gate_up's dtype, and that is quantized.

    The activation between the two products of an expert whose second one takes MX operands; y itself goes nowhere.

    Args:
        gate_up: [..., 2I] floating point: the gate, then the up part; I a multiple of 32.
        beta, linear_beta: see `situ_glu`.
        format, rule: see `mx_quantize`.
    Returns: MXTensor of shape [..., I]. It carries no gradient.
    Raises: ValueError for a wrong shape, dtype, bound, format or rule; BackendError for a device without an
        implementation.
    Source: `situ_glu` and `mx_quantize`.
    """
    op = "situ_glu_mx_quantize"
    check_target(op, format, rule)
    _check(op, gate_up)
    if gate_up.shape[-1] % (2 * BLOCK):
        raise ValueError(
            f"{op}: the last axis of gate_up must be a multiple of {2 * BLOCK}, blocks of {BLOCK} in gate and up, "
            f"got the shape {list(gate_up.shape)}."
        )
    data, scale = torch.ops.ascend_k3.situ_glu_mx_quantize(
        gate_up.detach(), *bounds(op, beta, linear_beta), format, rule
    )
    return MXTensor(data, scale, format)


def _check(op: str, gate_up: Tensor) -> None:
    checks.dtype(op, "gate_up", gate_up)
    checks.same_device(op, gate_up=gate_up)
    if gate_up.dim() < 1 or gate_up.shape[-1] % 2:
        raise ValueError(f"{op}: gate_up must have an even last axis, gate then up; got {list(gate_up.shape)}.")


def bounds(op: str, beta: float | None, linear_beta: float | None) -> tuple[float, float | None]:
    """`beta` and `linear_beta` checked, with the release's reading of an absent `beta`."""
    for name, bound in (("beta", beta), ("linear_beta", linear_beta)):
        if bound is not None:
            checks.number(op, name, bound)
    beta = beta or 1.0
    if not beta > 0:
        raise ValueError(f"{op}: beta must be positive (None or 0 means 1.0), got {beta}.")
    if linear_beta is not None and not linear_beta > 0:
        raise ValueError(
            f"{op}: linear_beta must be positive, or None to leave the up part as it is; got {linear_beta}."
        )
    return float(beta), None if linear_beta is None else float(linear_beta)
