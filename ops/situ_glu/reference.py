"""SiTU-GLU in plain PyTorch, its gradient, and its output in an MX format."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops.library import compute_dtype
from ascend_k3.ops.mx import reference as mx


def situ_glu(gate_up: Tensor, beta: float, linear_beta: float | None) -> Tensor:
    gate, up = gate_up.to(compute_dtype(gate_up)).chunk(2, dim=-1)
    product = beta * torch.tanh(gate / beta) * torch.sigmoid(gate)
    product = product * (up if linear_beta is None else linear_beta * torch.tanh(up / linear_beta))
    return product.to(gate_up.dtype).contiguous()


def situ_glu_backward(
    grads: list[Tensor], needs: list[bool], gate_up: Tensor, beta: float, linear_beta: float | None
) -> list[Tensor]:
    """The gradient from the inputs alone, so that training keeps nothing else of this step."""
    gate, up = gate_up.to(compute_dtype(gate_up)).chunk(2, dim=-1)
    grad = grads[0].to(gate.dtype)
    bent, opening = torch.tanh(gate / beta), torch.sigmoid(gate)
    grad_up = grad * (bent * beta * opening)
    if linear_beta is not None:
        bounded = torch.tanh(up / linear_beta)
        grad_up = grad_up * (1 - bounded.square())
        up = linear_beta * bounded
    # d/dg [beta tanh(g/beta) sigmoid(g)] = sigmoid(g) (1 - tanh^2 + beta tanh(g/beta) (1 - sigmoid(g)))
    grad_gate = grad * up * opening * (1 - bent.square() + beta * bent * (1 - opening))
    return [torch.cat((grad_gate, grad_up), dim=-1).to(gate_up.dtype)]


def situ_glu_mx_quantize(
    gate_up: Tensor, beta: float, linear_beta: float | None, format: str, rule: str
) -> tuple[Tensor, Tensor]:
    return mx.quantize(situ_glu(gate_up, beta, linear_beta), format, rule)
