"""Launch an Ascend C kernel of this package: on the emulator for CPU tensors, on the device for npu tensors.

An operator's `kernel/launch.py` declares each of its entry points once:

    RMS_NORM = KernelLaunch(folder=HERE, source="rms_norm.cpp", entry="rms_norm")

and `RMS_NORM.run(inputs, outputs, sizes, numbers, defines)` does the rest: the tiling by the C++ function that the
device build compiles too, the launch, the checks. The kernel's parameters are the inputs, the outputs, the workspace
and the tiling data, all global memory.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ascend_k3.ops import backends
from ascend_k3.ops.errors import BackendError, NoKernelError
from ascend_k3.ops.soc import SoC

INCLUDE = Path(__file__).parent / "include"
MOST_TILING = 4096  # bytes of tiling data

# Names of dtypes in kernel sources.
TYPES = {
    torch.float32: "float",
    torch.bfloat16: "bfloat16_t",
    torch.float16: "half",
    torch.int32: "int32_t",
    torch.int64: "int64_t",
    torch.uint8: "uint8_t",
    torch.float8_e4m3fn: "fp8_e4m3fn_t",
    torch.float8_e5m2: "fp8_e5m2_t",
}


def for_dtypes(*dtypes: torch.dtype) -> tuple[Mapping[str, object], ...]:
    """Variants of a kernel whose macro DTYPE is the type of its tensors."""
    return tuple({"DTYPE": TYPES[dtype]} for dtype in dtypes)


def one_dtype(op: str, allowed: Sequence[torch.dtype], **tensors: Tensor) -> torch.dtype:
    """The dtype that all of these tensors have, one of those that the kernel is built for.

    Raises: NoKernelError.
    """
    (first, tensor), *others = tensors.items()
    if tensor.dtype not in allowed:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in allowed)
        raise NoKernelError(
            f"{op}: {first} is {tensor.dtype}; its kernel takes {names}. Convert it, or use the reference."
        )
    for name, other in others:
        if other.dtype != tensor.dtype:
            raise NoKernelError(
                f"{op}: {name} is {other.dtype} and {first} is {tensor.dtype}; the kernel takes one dtype for both."
            )
    return tensor.dtype


class Platform(ctypes.Structure):
    """`Platform` of include/ascend_k3/platform.h."""

    _fields_ = [
        (name, ctypes.c_uint32) for name in ("arch", "cube_cores", "vector_cores", "ub", "l1", "l0a", "l0b", "l0c")
    ]


class Launch(ctypes.Structure):
    """`Launch` of include/ascend_k3/platform.h."""

    _fields_ = [
        ("block_dim", ctypes.c_uint32),
        ("tiling_bytes", ctypes.c_uint32),
        ("workspace", ctypes.c_uint64),
        ("refusal", ctypes.c_char * 240),
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiling:
    """What a tiling function answered: blocks, bytes of workspace, and the bytes that the kernel reads."""

    block_dim: int
    workspace: int
    data: bytes


def platform_of(chip: SoC) -> Platform:
    capacity = chip.capacity
    return Platform(
        arch=chip.arch,
        cube_cores=chip.cube_cores,
        vector_cores=chip.vector_cores,
        ub=chip.usable_ub,
        l1=capacity["L1"],
        l0a=capacity["L0A"],
        l0b=capacity["L0B"],
        l0c=capacity["L0C"],
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelLaunch:
    """One entry point of Ascend C.

    folder, source, entry: the operator's kernel folder, its file, and the `extern "C" __global__` function in it.
    tiling: the header in the folder that defines `<entry>_tile` (or `tile` if it is named otherwise).
    variants: the sets of macros that it is built with, of which `run` gets one; the build for NPUs makes all of them.
    """

    folder: Path
    source: str
    entry: str
    tiling: str = "tiling.h"
    tile: str = ""
    variants: tuple[Mapping[str, object], ...] = ({},)

    def tile_for(self, sizes: Sequence[int], numbers: Sequence[float] = (), chip: SoC | None = None) -> Tiling:
        """The tiling of a shape on a SoC (the one of the backend in force when left out).

        Raises: ValueError with the tiling function's sentence for a shape that it refuses.
        """
        chip = chip or backends.current().soc
        function = getattr(_tiling_library(self.folder / self.tiling), f"{self.tile or self.entry}_tile_exported")
        function.restype = ctypes.c_bool
        launch, data = Launch(), ctypes.create_string_buffer(MOST_TILING)
        accepted = function(
            ctypes.byref(platform_of(chip)),
            (ctypes.c_int64 * max(len(sizes), 1))(*sizes),
            (ctypes.c_double * max(len(numbers), 1))(*numbers),
            data,
            ctypes.byref(launch),
        )
        if not accepted:
            raise ValueError(f"{self.entry} on {chip.name}: {launch.refusal.decode()}")
        return Tiling(block_dim=launch.block_dim, workspace=launch.workspace, data=data.raw[: launch.tiling_bytes])

    def run(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        sizes: Sequence[int],
        numbers: Sequence[float] = (),
        defines: Mapping[str, object] | None = None,
        updated: Sequence[Tensor] = (),
    ) -> None:
        """Launch on tensors: `inputs` are read, `updated` are read and written, `outputs` are written whole.

        The order of the kernel's parameters is inputs, updated, outputs. All tensors are contiguous.

        Raises: ValueError from the tiling; BackendError for hazards on the emulator, and without a library on npu.
        """
        if dict(defines or {}) not in [dict(variant) for variant in self.variants]:
            raise BackendError(
                f"{self.entry} is not built with {dict(defines or {})}; its variants are {self.variants}."
            )
        tensors = [*inputs, *updated, *outputs]
        if tensors[0].device.type != "cpu":
            from ascend_k3.ops.npu import launch_on_device

            launch_on_device(self, tensors, sizes, numbers, defines or {})
            return
        chosen = backends.current()
        tiling = self.tile_for(sizes, numbers)
        kernel = _built(self.folder / self.source, self.entry, chosen.soc.name, _items(defines)).on(chosen.soc)
        first_output = len(tensors) - len(outputs)
        report = kernel.launch(
            tiling.block_dim,
            *tensors,
            workspace=tiling.workspace,
            tiling=tiling.data,
            outputs=range(first_output, len(tensors)),
            **chosen.launch,
        )
        chosen.record(backends.Call(name=self.entry, backend="emulator", report=report))
        if report.hazards and chosen.refuse_hazards:
            shown = "\n  ".join(str(hazard) for hazard in report.hazards[:5])
            count = f"{len(report.hazards)} hazard{'s' if len(report.hazards) > 1 else ''}"
            raise BackendError(f"{self.entry}: the emulator found {count}:\n  {shown}")


def _items(defines: Mapping[str, object] | None) -> tuple[tuple[str, object], ...]:
    return tuple(sorted((defines or {}).items()))


@functools.cache
def _built(source: Path, entry: str, chip: str, defines: tuple[tuple[str, object], ...]) -> Any:
    from ascend_k3.ops import emulator

    return emulator.build(source, entry, chip, include_dirs=(INCLUDE,), defines=dict(defines))


@functools.cache
def _tiling_library(header: Path) -> ctypes.CDLL:
    """The tiling functions of a header, compiled for the host: each `x_tile` is exported as `x_tile_exported`."""
    import re

    from ascend_k3.ops.emulator.compiler import compile_object

    names = re.findall(r"^ASCEND_K3_TILING\((\w+)", header.read_text(), flags=re.MULTILINE)
    exports = "\n".join(
        f'extern "C" bool {name}_tile_exported(const ascend_k3::Platform* p, const int64_t* s, const double* n, '
        f"void* t, ascend_k3::Launch* l) {{ return {name}_tile(p, s, n, t, l); }}"
        for name in names
    )
    text = f'#include "{header}"\n{exports}\n'
    return ctypes.CDLL(str(compile_object(f"tiling-{header.parent.parent.name}", text, flags=(f"-I{INCLUDE}",))))
