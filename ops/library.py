"""Registration of operators with torch: one schema, its CPU and Meta implementations, and its gradient.

An operator's `library.py` states its signature once:

    register("situ_glu", "(Tensor gate_up, float beta, float? linear_beta) -> Tensor",
             reference.situ_glu, fake, differentiable=("gate_up",))

which defines `ascend_k3::situ_glu` and, for the named arguments, `ascend_k3::situ_glu_backward`. The gradient is that
of the reference, recomputed in the backward pass, unless the operator brings its own. An operator without a gradient
can refuse the backward pass with a sentence. `kernel` computes the operator by its Ascend C kernels: on npu tensors,
and on CPU tensors where the emulator is in force (backends.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ascend_k3.ops import backends
from ascend_k3.ops.errors import NoKernelError

LIBRARY = torch.library.Library("ascend_k3", "FRAGMENT")

Function = Callable[..., Any]


def register(
    name: str,
    signature: str,
    reference: Function,
    fake: Function,
    *,
    differentiable: Sequence[str] = (),
    backward: Function | None = None,
    no_gradient: str | None = None,
    kernel: Function | None = None,
    backward_kernel: Function | None = None,
) -> None:
    """Define `ascend_k3::name` with a CPU implementation, a Meta implementation, and autograd.

    Args:
        signature: the schema after the name, "(Tensor x, float eps) -> Tensor".
        reference: called with the schema's arguments in order.
        fake: the same arguments; returns empty tensors of the outputs' shapes and dtypes.
        differentiable: names of the tensor arguments that have a gradient; all others get none.
        backward: `backward(grads, needs, *arguments)` returns one gradient for each differentiable argument, and an
            empty tensor where `needs` is false. Left out, the reference is recomputed under autograd.
        no_gradient: for an operator without a gradient, the sentence of the RuntimeError that its backward pass raises.
        kernel: the same arguments; launches the operator's Ascend C kernels, or raises NoKernelError for arguments
            that they are not made for. None: it has none.
        backward_kernel: the arguments of `backward`, likewise.
    """
    LIBRARY.define(name + signature)
    # Without a gradient of its own an operator is opaque: what it writes in place must not drag a graph along.
    LIBRARY.impl(name, _on_cpu(name, reference if differentiable else torch.no_grad()(reference), kernel), "CPU")
    if kernel is not None:
        LIBRARY.impl(name, kernel, "PrivateUse1")
    torch.library.register_fake(f"ascend_k3::{name}", fake, lib=LIBRARY)
    if differentiable:
        _register_gradient(name, signature, reference, list(differentiable), backward, backward_kernel)
    if no_gradient is not None:
        _register_refusal(name, no_gradient)


def _on_cpu(name: str, reference: Function, kernel: Function | None) -> Function:
    def compute(*arguments: Any) -> Any:
        if backends.current().name == "emulator":
            try:
                if kernel is not None:
                    return kernel(*arguments)
                backends.without_kernel(name)
            except NoKernelError:
                if backends.current().missing == "refuse":
                    raise
                backends.without_kernel(name)
        return reference(*arguments)

    return compute


def _register_gradient(
    name: str,
    signature: str,
    reference: Function,
    differentiable: list[str],
    backward: Function | None,
    kernel: Function | None,
) -> None:
    operator = getattr(torch.ops.ascend_k3, name).default
    arguments = [argument.name for argument in operator._schema.arguments]
    positions = [arguments.index(argument) for argument in differentiable]
    parameters = signature[1 : signature.index(")")]
    LIBRARY.define(f"{name}_backward(Tensor[] grads, bool[] needs, {parameters}) -> Tensor[]")

    def recomputed(grads: list[Tensor], needs: list[bool], *values: Any) -> list[Tensor]:
        inputs = list(values)
        for position, needed in zip(positions, needs, strict=True):
            if needed:
                inputs[position] = inputs[position].detach().requires_grad_()
        with torch.enable_grad():
            outputs = reference(*inputs)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        wanted = [inputs[position] for position, needed in zip(positions, needs, strict=True) if needed]
        found = iter(torch.autograd.grad(outputs, wanted, grads, allow_unused=True, materialize_grads=True))
        return [next(found) if needed else grads[0].new_empty(0) for needed in needs]

    def fake_backward(grads: list[Tensor], needs: list[bool], *values: Any) -> list[Tensor]:
        return [
            torch.empty_like(values[position], memory_format=torch.contiguous_format)
            if needed
            else grads[0].new_empty(0)
            for position, needed in zip(positions, needs, strict=True)
        ]

    LIBRARY.impl(f"{name}_backward", _on_cpu(f"{name}_backward", backward or recomputed, kernel), "CPU")
    if kernel is not None:
        LIBRARY.impl(f"{name}_backward", kernel, "PrivateUse1")
    torch.library.register_fake(f"ascend_k3::{name}_backward", fake_backward, lib=LIBRARY)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        tensors = [value for value in inputs if isinstance(value, Tensor)]
        ctx.save_for_backward(*tensors)
        ctx.others = [None if isinstance(value, Tensor) else value for value in inputs]
        ctx.is_tensor = [isinstance(value, Tensor) for value in inputs]
        outputs = (output,) if isinstance(output, Tensor) else output
        ctx.backend = backends.current()
        ctx.outputs = [(value.shape, value.dtype, value.device) for value in outputs]

    def run_backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        values = [next(saved) if flag else other for flag, other in zip(ctx.is_tensor, ctx.others, strict=True)]
        needs = [ctx.is_tensor[position] and ctx.needs_input_grad[position] for position in positions]
        full = [
            torch.zeros(shape, dtype=dtype, device=device) if grad is None else grad.contiguous()
            for grad, (shape, dtype, device) in zip(grads, ctx.outputs, strict=True)
        ]
        with backends.use(ctx.backend):
            found = getattr(torch.ops.ascend_k3, f"{name}_backward")(full, needs, *values)
        result: list[Tensor | None] = [None] * len(values)
        for position, needed, grad in zip(positions, needs, found, strict=True):
            result[position] = grad if needed else None
        return tuple(result)

    torch.library.register_autograd(f"ascend_k3::{name}", run_backward, setup_context=setup_context, lib=LIBRARY)


def _refuse_gradient(grad: Tensor, sentence: str, shape: list[int]) -> Tensor:
    raise RuntimeError(sentence)


# An operator of its own, so that a backward pass can be compiled and is refused when it runs.
LIBRARY.define("refuse_gradient(Tensor grad, str sentence, SymInt[] shape) -> Tensor")
LIBRARY.impl("refuse_gradient", _refuse_gradient, "CPU")
torch.library.register_fake(
    "ascend_k3::refuse_gradient", lambda grad, sentence, shape: grad.new_empty(shape), lib=LIBRARY
)


class _Refusal(torch.autograd.Function):
    """Calls an operator and leaves a node whose backward raises. It saves no tensor."""

    @staticmethod
    def forward(ctx: Any, operator: Function, sentence: str, *arguments: Any) -> Any:
        ctx.sentence = sentence
        ctx.shapes = [argument.shape if isinstance(argument, Tensor) else None for argument in arguments]
        return operator(*arguments)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        refused = [
            torch.ops.ascend_k3.refuse_gradient(grads[0], ctx.sentence, list(shape)) if needed else None
            for shape, needed in zip(ctx.shapes, ctx.needs_input_grad[2:], strict=True)
        ]
        return None, None, *refused


def _register_refusal(name: str, sentence: str) -> None:
    operator = getattr(torch.ops.ascend_k3, name).default

    def call(*arguments: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*arguments)

    # torch.library.register_autograd takes no operator that writes in place, as most of these do.
    def autograd(*arguments: Any) -> Any:
        tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return _Refusal.apply(call, sentence, *arguments)
        return call(*arguments)

    LIBRARY.impl(name, autograd, "Autograd")


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """The dtype that an operator calculates in: float64 if any of these tensors has it, else float32."""
    return torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32
