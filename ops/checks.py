"""Checks of arguments that several operators share; each raises `ValueError` with one sentence."""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops.errors import BackendError

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
INTEGERS = (torch.int32, torch.int64)


def is_tensor(op: str, name: str, value: object) -> None:
    """Require a torch.Tensor."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{op}: {name} must be a torch.Tensor, got {type(value).__name__}.")


def number(op: str, name: str, value: object) -> None:
    """Require an int or a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{op}: {name} must be a number, got {type(value).__name__}.")


def integer(op: str, name: str, value: object) -> None:
    """Require an int."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{op}: {name} must be an integer, got {type(value).__name__}.")


def eps(op: str, name: str, value: float) -> None:
    """Require the eps of a norm: a number that is not negative."""
    number(op, name, value)
    if not value >= 0:
        raise ValueError(f"{op}: {name} must not be negative, got {value}.")


def values_known(tensor: Tensor) -> bool:
    """Whether the values of `tensor` can be looked at: not on the meta device, and not while code is compiled."""
    return tensor.device.type != "meta" and not torch.compiler.is_compiling()


def shape(op: str, name: str, tensor: Tensor, wanted: tuple[int | str, ...]) -> None:
    """Require the shape `wanted`; a string in it names a free size."""
    is_tensor(op, name, tensor)
    sizes = tuple(tensor.shape)
    fits = len(sizes) == len(wanted) and all(
        isinstance(want, str) or size == want for size, want in zip(sizes, wanted, strict=True)
    )
    if not fits:
        text = ", ".join(str(want) for want in wanted)
        raise ValueError(f"{op}: {name} must have the shape [{text}], got {list(sizes)}.")


def at_least_one(op: str, name: str, tensor: Tensor, **sizes: int) -> None:
    """Require that none of the named `sizes` of `tensor` is zero."""
    for size, value in sizes.items():
        if value < 1:
            raise ValueError(f"{op}: {size} of {name} must be at least 1, got the shape {list(tensor.shape)}.")


def dtype(op: str, name: str, tensor: Tensor, allowed: tuple[torch.dtype, ...] = FLOATS) -> None:
    """Require one of the dtypes `allowed`."""
    is_tensor(op, name, tensor)
    if tensor.dtype not in allowed:
        names = ", ".join(str(item).removeprefix("torch.") for item in allowed)
        raise ValueError(f"{op}: {name} must be of dtype {names}, got {str(tensor.dtype).removeprefix('torch.')}.")


def same_device(op: str, **tensors: Tensor | None) -> None:
    """Require one device for all tensors, and one that has an implementation."""
    for name, tensor in tensors.items():
        if tensor is not None:
            is_tensor(op, name, tensor)
    devices = {name: tensor.device for name, tensor in tensors.items() if tensor is not None}
    first_name, first = next(iter(devices.items()))
    for name, device in devices.items():
        if device != first:
            raise ValueError(f"{op}: {name} is on {device} and {first_name} on {first}; move them to one device.")
    if first.type not in ("cpu", "meta"):
        raise BackendError(
            f"{op}: no implementation for tensors on {first}; this build computes on the CPU, move the tensors there."
        )


def cu_seqlens(op: str, name: str, offsets: Tensor, total: int) -> None:
    """Require cumulative lengths: [N+1] integers from 0 to `total` that never fall; equal ones: an empty sequence."""
    dtype(op, name, offsets, INTEGERS)
    if offsets.dim() != 1 or offsets.numel() < 1:
        raise ValueError(f"{op}: {name} must have the shape [N+1], got {list(offsets.shape)}.")
    if not values_known(offsets):
        return
    values = offsets.tolist()
    if values[0] != 0 or values[-1] != total or any(b < a for a, b in zip(values, values[1:], strict=False)):
        shown = values if len(values) <= 8 else [*values[:4], "...", *values[-3:]]
        raise ValueError(f"{op}: {name} must rise from 0 to the number of tokens, {total}; got {shown}.")


def slots(op: str, name: str, indices: Tensor, count: int, pool: int) -> None:
    """Require [count] integers below `pool`, no slot twice; -1 marks a padding row and may repeat."""
    dtype(op, name, indices, INTEGERS)
    shape(op, name, indices, (count,))
    if not values_known(indices):
        return
    values = indices.tolist()
    wrong = [value for value in values if not -1 <= value < pool]
    if wrong:
        raise ValueError(f"{op}: {name} must be 0 to {pool - 1}, or -1 for a padding row; got {wrong[0]}.")
    used = [value for value in values if value >= 0]
    if len(set(used)) != len(used):
        twice = next(value for value in used if used.count(value) > 1)
        raise ValueError(f"{op}: {name} names slot {twice} twice; each row needs its own.")
