"""The whole model, on the emulator where there are kernels and by the reference elsewhere: the fixtures' logits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ascend_k3 import generate, ops
from ascend_k3.ops.backends import Backend
from tests.ascend_k3.checkpoints import NAMES, expected, tiny
from tests.tolerances import FIXTURE_GRADIENT, KERNEL_LOGITS_ATOL, LOGITS_ATOL, largest

pytestmark = pytest.mark.parametrize("soc", ["a3", "950pr"])

KERNELS = {"rms_norm", "rms_norm_gated", "attention_residual", "causal_conv1d", "route", "situ_glu"}
# Heads of 64 and of 128 channels have a kernel: those of ckpt_kernel, but not those of the others.
KDA_KERNELS = {"ckpt_kernel": {"kda", "kda_decode"}}


def ran(run: Backend, backend: str) -> set[str]:
    return {call.name for call in run.calls if call.backend == backend}


@pytest.mark.parametrize("name", ["ckpt_bf16", "ckpt_mxfp4"])
def test_a_padded_batch_gives_the_fixture_logits(name: str, soc: str) -> None:
    x = expected(name)
    with ops.backend("emulator", soc=soc, missing="reference") as run:
        logits = tiny(name)(x["batch_input_ids"], x["batch_attention_mask"]).logits
    assert ran(run, "emulator") == KERNELS
    assert ran(run, "reference") == {"kda", "mla_prefill", "fused_experts"}
    torch.testing.assert_close(logits, x["batch_logits"], atol=LOGITS_ATOL, rtol=0)


def test_the_kernel_sized_checkpoint_gives_the_fixture_logits(soc: str) -> None:
    x = expected("ckpt_kernel")
    with ops.backend("emulator", soc=soc, missing="reference") as run:
        logits = tiny("ckpt_kernel")(x["input_ids"][None]).logits[0]
    assert ran(run, "emulator") == KERNELS | {"kda"}
    torch.testing.assert_close(logits, x["logits"], atol=KERNEL_LOGITS_ATOL, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_greedy_tokens_equal_the_fixture(name: str, soc: str) -> None:
    x = expected(name)
    with ops.backend("emulator", soc=soc, missing="reference") as run:
        found = generate(tiny(name), x["greedy_prompt"][None], max_new_tokens=16)[0]
    assert found.tolist() == x["greedy_ids"].tolist()
    assert ran(run, "emulator") == KERNELS | {"causal_conv1d_update"} | KDA_KERNELS.get(name, set())


def test_a_training_step_of_the_kernel_sized_checkpoint_equals_the_reference(soc: str) -> None:
    """KDA's layers forward and backward on the emulator: loss, and the gradient of every parameter."""
    tokens = expected("ckpt_kernel")["input_ids"][None]

    def step() -> tuple[Tensor, dict[str, Tensor]]:
        model = tiny("ckpt_kernel")
        parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
        loss = cross_entropy(model(tokens).logits[0, :-1], tokens[0, 1:])
        grads = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        return loss, {name: grad for name, grad in zip(parameters, grads, strict=True) if grad is not None}

    loss, wanted = step()
    with ops.backend("emulator", soc=soc, missing="reference") as run:
        found_loss, found = step()
    assert {"kda", "kda_backward"} <= ran(run, "emulator") and "kda_backward" not in ran(run, "reference")
    assert abs(found_loss - loss) <= LOGITS_ATOL and found.keys() == wanted.keys() and wanted
    for name, grad in wanted.items():
        assert largest(found[name], grad) <= FIXTURE_GRADIENT, name
