"""Which backend computes: the context, the environment, what is refused, what is recorded."""

from __future__ import annotations

import pytest
import torch

from ascend_k3 import ops
from ascend_k3.ops import backends
from ascend_k3.ops.errors import BackendError
from ascend_k3.ops.soc import soc

X, WEIGHT = torch.ones(2, 8), torch.ones(8)


def norm() -> torch.Tensor:
    return ops.rms_norm(X, WEIGHT, eps=1e-5)


def write() -> None:  # has no kernel
    ops.latent_write(torch.zeros(2, 4, 8), torch.ones(1, 8), torch.tensor([3]))


def test_the_reference_is_what_runs_without_being_asked() -> None:
    assert backends.current().name == "reference"
    with ops.backend("reference") as run:
        norm()
    assert run.calls == []


def test_calls_name_what_ran_where() -> None:
    with ops.backend("emulator", soc="950pr", missing="reference") as run:
        norm()
        write()
    assert [(call.name, call.backend) for call in run.calls] == [
        ("rms_norm", "emulator"),
        ("latent_write", "reference"),
    ]
    assert run.calls[0].report.counters.gm_bytes > 0
    assert run.calls[1].report is None


def test_an_operator_without_a_kernel_is_refused_unless_told() -> None:
    with (
        ops.backend("emulator"),
        pytest.raises(BackendError, match=r'latent_write has no Ascend C kernel.*missing="reference"'),
    ):
        write()


def test_backends_nest_and_end_with_their_block() -> None:
    with ops.backend("emulator") as outer:
        with ops.backend("reference") as inner:
            norm()
        with pytest.raises(ZeroDivisionError), ops.backend("reference"):
            raise ZeroDivisionError
        norm()
    assert (len(outer.calls), inner.calls) == (1, [])
    assert backends.current().name == "reference"


def test_a_soc_may_have_figures_of_its_own() -> None:
    x = torch.randn(64, 8)
    with ops.backend("emulator", soc=soc("a3").with_(vector_cores=3)) as run:
        ops.rms_norm(x, WEIGHT, eps=1e-5)
    assert len(run.calls[0].report.data["cores"]) == 3


def test_options_reach_the_launch() -> None:
    with ops.backend("emulator", timeline=5) as run:
        norm()
    assert len(run.calls[0].report.timeline) == 5


def test_the_gradient_of_the_forward_pass_runs_on_its_backend() -> None:
    x = X.clone().requires_grad_()
    with ops.backend("emulator", missing="reference") as run:
        y = ops.rms_norm(x, WEIGHT, eps=1e-5)
    forward = len(run.calls)
    y.sum().backward()
    assert x.grad is not None and x.grad.shape == x.shape
    assert all(call.backend == "reference" for call in run.calls[forward:])


def test_the_environment_chooses_for_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_K3_BACKEND", "emulator")
    monkeypatch.setenv("ASCEND_K3_SOC", "950pr")
    assert (backends.current().name, backends.current().soc.name) == ("emulator", "950pr")
    with pytest.raises(BackendError, match="latent_write has no Ascend C kernel"):
        write()
    with ops.backend("reference"):
        write()


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, options, error, message in (
        ("npu", {}, ValueError, r"'npu' is no backend for CPU tensors; it must be one of reference, emulator"),
        ("emulator", {"missing": "skip"}, ValueError, r"missing is 'skip'; it must be one of refuse, reference"),
        ("emulator", {"speed": 3}, TypeError, r"there is no option 'speed'; the options are hazards, seed, timeline"),
        ("emulator", {"soc": "910"}, ValueError, r"'910' is no SoC; it must be one of a2, a3"),
    ):
        with pytest.raises(error, match=message), ops.backend(name, **options):
            pass
    monkeypatch.setenv("ASCEND_K3_BACKEND", "cuda")
    with pytest.raises(ValueError, match=r"ASCEND_K3_BACKEND is 'cuda'; it must be one of reference, emulator"):
        norm()
