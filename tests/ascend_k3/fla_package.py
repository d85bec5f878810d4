"""Run by `test_fla.py::test_the_package_runs_on_ours`: the real flash-linear-attention, its functions run by ours.

Each call goes to the names that the package exports, on CPU tensors, where it has no kernel of its own. What it returns
is compared with the package's own definition in plain PyTorch, and the figures are printed.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable

import torch
from fla.ops.kda import chunk_kda, fused_recurrent_kda  # imported before `install`, as user code may
from fla.ops.kda.fused_recurrent import fused_recurrent_kda_fwd
from fla.ops.kda.gate import naive_kda_lowerbound_gate
from fla.ops.kda.naive import naive_recurrent_kda
from torch import Tensor

import ascend_k3.fla
from ascend_k3.ops.errors import BackendError
from ascend_k3.ops.tolerances import KDA_STATE_RMS, RELATIVE_RMS, relative_rms

BOUND = -5.0
RAW = dict(use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, lower_bound=BOUND)
NAMES = ("q", "k", "v", "g", "beta", "A_log", "dt_bias", "initial_state")
BOTH = {"chunk_kda": chunk_kda, "fused_recurrent_kda": fused_recurrent_kda}


class Log(logging.Handler):
    """Keeps the messages of fla's dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def random_inputs(
    length: int, *, batch: int = 2, heads: int = 2, width: int = 32, value: int = 48
) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(length)
    shapes = {
        **dict.fromkeys(("q", "k", "g"), (batch, length, heads, width)),
        "v": (batch, length, heads, value),
        "beta": (batch, length, heads),
        "A_log": (heads,),
        "dt_bias": (heads * width,),
        "initial_state": (batch, heads, width, value),
    }
    return {name: torch.randn(shapes[name], generator=generator) for name in NAMES}


def definition(x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The package's own recurrence and gate, in float32; inputs and states of bf16 calls are widened first."""
    x = {name: value.float() for name, value in x.items()}
    q, k = (y * (y.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for y in (x["q"], x["k"]))
    g = naive_kda_lowerbound_gate(x["g"], x["A_log"], x["dt_bias"], lower_bound=BOUND)
    return naive_recurrent_kda(
        q, k, x["v"], g, x["beta"].sigmoid(), initial_state=x["initial_state"], output_final_state=True
    )


def close(what: str, found: Tensor, expected: Tensor, bound: float) -> None:
    error = relative_rms(found, expected)
    print(f"{what:55} {error:.1e} of {bound:.0e}")
    assert found.shape == expected.shape and error <= bound, what


def refused(kind: type[Exception], sentence: str, function, *arguments, **options) -> None:
    try:
        function(*arguments, **options)
    except kind as error:
        assert sentence in str(error), error
    else:
        raise AssertionError(f"not refused: {sentence}")


def same_arguments(ours: Callable[..., object], theirs: Callable[..., object]) -> None:
    """The same arguments in the same order with the same defaults; what only one of them has is named."""

    def positional(function: Callable[..., object]) -> dict[str, object]:
        parameters = inspect.signature(function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}

    found, wanted = list(positional(ours).items()), list(positional(theirs).items())
    assert found == wanted, f"{theirs.__name__}: {set(found) ^ set(wanted)}"


def compare(name: str, length: int, dtype: torch.dtype) -> None:
    x = random_inputs(length)
    x |= {key: x[key].to(dtype) for key in NAMES[:5]}
    o, state = BOTH[name](**x, **RAW, output_final_state=True)
    expected, expected_state = definition(x)
    kind = f"{name}, T={length}, {str(dtype).removeprefix('torch.')}"
    close(f"{kind}: o", o, expected, RELATIVE_RMS[dtype])
    close(f"{kind}: state", state, expected_state, KDA_STATE_RMS[dtype])


def compare_gradients(name: str, length: int) -> None:
    x = {key: value.requires_grad_() for key, value in random_inputs(length).items()}

    def gradients(o: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(o.square().sum() + state.square().sum(), list(x.values()))

    found = gradients(*BOTH[name](**x, **RAW, output_final_state=True))
    for key, grad, expected in zip(x, found, gradients(*definition(x)), strict=True):
        close(f"{name}, T={length}: gradient of {key}", grad, expected, KDA_STATE_RMS[torch.float32])


def compare_packed(name: str, lengths: list[int]) -> None:
    x = random_inputs(sum(lengths), batch=1)
    x["initial_state"] = torch.randn(len(lengths), *x["initial_state"].shape[1:])
    o, state = BOTH[name](**x, **RAW, output_final_state=True, cu_seqlens=torch.tensor([0, *lengths]).cumsum(0))
    begin = 0
    for n, length in enumerate(lengths):
        alone = x | {key: x[key][:, begin : begin + length] for key in NAMES[:5]}
        expected, expected_state = definition(alone | {"initial_state": x["initial_state"][n : n + 1]})
        close(f"{name}, {length} of {lengths}: o", o[:, begin : begin + length], expected, RELATIVE_RMS[torch.float32])
        close(f"{name}, {length} of {lengths}: state", state[n : n + 1], expected_state, KDA_STATE_RMS[torch.float32])
        begin += length


def as_flash_kda_is_called() -> None:
    """Inference in bf16 at its one width, with the states the other way round under the argument's former name."""
    x = random_inputs(40, width=128, value=128)
    x |= {key: x[key].bfloat16() for key in NAMES[:5]}
    expected, expected_state = definition(x)
    x["initial_state"] = x["initial_state"].mT.contiguous()
    with torch.inference_mode():
        o, state = chunk_kda(**x, **RAW, safe_gate=True, output_final_state=True, transpose_state_layout=True)
    close("as FlashKDA is called: o", o, expected, RELATIVE_RMS[torch.bfloat16])
    close("as FlashKDA is called: state", state.mT, expected_state, KDA_STATE_RMS[torch.bfloat16])


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    log = Log()
    logging.getLogger("fla").addHandler(log)
    logging.getLogger("fla").setLevel(logging.INFO)
    x = random_inputs(5)

    same_arguments(ascend_k3.fla.chunk_kda, chunk_kda)
    same_arguments(ascend_k3.fla.fused_recurrent_kda, fused_recurrent_kda)
    same_arguments(ascend_k3.fla._fused_recurrent_kda_fwd, fused_recurrent_kda_fwd)
    for function in BOTH.values():  # the package on its own: Triton finds no device, or not these tensors on it
        refused(Exception, "", function, **x, **RAW)
    if os.environ.get("FLA_DISABLE_BACKEND_DISPATCH") == "1":
        refused(BackendError, "FLA_DISABLE_BACKEND_DISPATCH is 1", ascend_k3.fla.install)
        print("install refuses")
        return

    print(ascend_k3.fla.install())
    for name in BOTH:
        for length in (1, 8, 9, 130):
            compare(name, length, torch.float32)
        compare(name, 130, torch.bfloat16)
        compare_gradients(name, 70)
        compare_packed(name, [5, 8, 1])
        compare_packed(name, [70, 3])
        refused(
            ValueError, "use_qk_l2norm_in_kernel must be True for ascend_k3", BOTH[name], *(x[n] for n in NAMES[:5])
        )
        refused(ValueError, "lower_bound must be a number", BOTH[name], **x, **RAW | {"lower_bound": None})
        assert BOTH[name](**x, **RAW)[1] is None
    as_flash_kda_is_called()

    chosen = [message for message in log.messages if message.endswith("-> ascend_k3")]
    print(*chosen, sep="\n")
    assert len(chosen) == 2, log.messages
    print("flash-linear-attention runs on ascend_k3")


if __name__ == "__main__":
    main()
