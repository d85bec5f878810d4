"""Which of the three ways computes an operator: the reference, the kernels on the emulator, or the kernels on an NPU.

A tensor's device picks reference or npu. CPU tensors go through the kernels' own source where that is asked for:

    with ops.backend("emulator", soc="950pr") as run:
        y = ops.rms_norm(x, weight, eps=1e-5)
    run.calls        # what ran, with the emulator's report of each launch

The environment variables ASCEND_K3_BACKEND=emulator and ASCEND_K3_SOC do the same for a whole program.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ascend_k3.ops.errors import BackendError
from ascend_k3.ops.soc import SoC
from ascend_k3.ops.soc import soc as find_soc

NAMES = ("reference", "emulator")
DEFAULT_SOC = "a3"
MISSING = ("refuse", "reference")
LAUNCH_OPTIONS = ("hazards", "seed", "timeline", "mutation", "list_mutations", "time_limit")  # of Kernel.launch


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """An operator that ran under `backend(...)`: the backend it ran on, and the emulator's report of its launch."""

    name: str
    backend: str
    report: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """What is in force.

    name: "reference" or "emulator", for CPU tensors. soc: of ops/soc.py, for which kernels are built and tiled.
    missing: "refuse" raises for an operator without a kernel, "reference" computes it by its reference; `calls` tells.
    refuse_hazards: whether a hazard raises, or is in the reports of `calls` only.
    launch: options of the emulator's launches: hazards, seed, timeline and others of `Kernel.launch`.
    """

    name: str
    soc: SoC
    missing: str = "refuse"
    refuse_hazards: bool = True
    launch: Mapping[str, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    keep_calls: bool = True

    def record(self, call: Call) -> None:
        if self.keep_calls:
            self.calls.append(call)


_CURRENT: ContextVar[Backend | None] = ContextVar("ascend_k3_backend", default=None)


def current() -> Backend:
    """The backend in force for CPU tensors."""
    chosen = _CURRENT.get()
    if chosen is not None:
        return chosen
    name = os.environ.get("ASCEND_K3_BACKEND", "reference")
    if name not in NAMES:
        raise ValueError(f"ASCEND_K3_BACKEND is {name!r}; it must be one of {', '.join(NAMES)}.")
    return Backend(name=name, soc=find_soc(os.environ.get("ASCEND_K3_SOC", DEFAULT_SOC)), keep_calls=False)


@contextmanager
def backend(
    name: str, *, soc: str | SoC = DEFAULT_SOC, missing: str = "refuse", refuse_hazards: bool = True, **launch: Any
) -> Iterator[Backend]:
    """Compute CPU tensors by `name` ("reference" or "emulator") inside the block.

    Args: see `Backend`; `launch` are its options by name, `backend("emulator", seed=3)`.
    Raises: ValueError for a name, a SoC or a `missing` that does not exist; TypeError for an option that does not.
    """
    if name not in NAMES:
        raise ValueError(
            f"backend: {name!r} is no backend for CPU tensors; it must be one of {', '.join(NAMES)} (npu tensors run "
            "on their device by themselves)."
        )
    if missing not in MISSING:
        raise ValueError(f"backend: missing is {missing!r}; it must be one of {', '.join(MISSING)}.")
    for option in launch:
        if option not in LAUNCH_OPTIONS:
            raise TypeError(f"backend: there is no option {option!r}; the options are {', '.join(LAUNCH_OPTIONS)}.")
    chosen = Backend(
        name=name,
        soc=find_soc(soc) if isinstance(soc, str) else soc,
        missing=missing,
        refuse_hazards=refuse_hazards,
        launch=launch,
    )
    with use(chosen):
        yield chosen


@contextmanager
def use(chosen: Backend) -> Iterator[None]:
    """Put a backend in force again: that of the forward pass, in the backward pass."""
    token = _CURRENT.set(chosen)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def without_kernel(operator: str) -> None:
    """What an operator without a kernel does under the emulator: refuse, or be recorded as run by its reference.

    Raises: BackendError.
    """
    chosen = current()
    if chosen.missing == "refuse":
        raise BackendError(
            f"{operator} has no Ascend C kernel, so the emulator cannot run it; compute it by its reference with "
            '`ops.backend("emulator", missing="reference")`.'
        )
    chosen.record(Call(name=operator, backend="reference"))
