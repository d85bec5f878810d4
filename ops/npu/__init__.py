"""Kernels on the device. Not run on hardware by this project: there was none.

`CMakeLists.txt` builds, with CANN, one library of all entry points; `sources.py` writes what it compiles. The library
is loaded at the first npu tensor. A launch is the same as on the emulator: the same source, the same tiling function,
the same order of arguments.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ascend_k3.ops.errors import BackendError
from ascend_k3.ops.soc import SoC, soc

if TYPE_CHECKING:
    from ascend_k3.ops.kernels import KernelLaunch

LIBRARY = "libascend_k3_kernels.so"
HERE = Path(__file__).parent


def symbol(entry: str, defines: Mapping[str, object]) -> str:
    """The name of an entry point built with these macros: rms_norm with DTYPE=bfloat16_t is rms_norm_bfloat16_t."""
    return "_".join([entry, *(str(defines[name]) for name in sorted(defines))])


def library_path() -> Path:
    """$ASCEND_K3_NPU_LIBRARY, or the library's name beside this file."""
    return Path(os.environ.get("ASCEND_K3_NPU_LIBRARY") or HERE / LIBRARY)


@functools.cache
def library() -> ctypes.CDLL:
    """The built library.

    Raises: BackendError without one.
    """
    path = library_path()
    if not path.is_file():
        raise BackendError(
            f"there are no kernels for npu tensors at {path}: build them on a machine with CANN, "
            f"`cmake -S {HERE} -B build -DSOC_VERSION=... && cmake --build build`, and set ASCEND_K3_NPU_LIBRARY."
        )
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BackendError(f"the kernels for npu tensors at {path} cannot be loaded: {error}.") from error


def device_soc() -> SoC:
    """The SoC that kernels are tiled for: $ASCEND_K3_SOC.

    Raises: BackendError when it is not set: tiling for another SoC would use memory that is not there.
    """
    name = os.environ.get("ASCEND_K3_SOC")
    if not name:
        raise BackendError("ASCEND_K3_SOC is not set; kernels on npu tensors need it: a2, a3, 950pr or 950dt.")
    return soc(name)


def launch_on_device(
    kernel: KernelLaunch,
    tensors: Sequence[Tensor],
    sizes: Sequence[int],
    numbers: Sequence[float],
    defines: Mapping[str, object],
) -> None:
    """Put a launch on the current stream of the tensors' device.

    Workspace and tiling data are tensors of the same stream, so that their memory is not given away before the kernel
    has run.

    Raises: BackendError without a library, and when the launch is not accepted; ValueError from the tiling.
    """
    function = getattr(library(), f"aclrtlaunch_{symbol(kernel.entry, defines)}", None)
    if function is None:
        raise BackendError(f"{library_path()} has no kernel {symbol(kernel.entry, defines)}; build it again.")
    device = tensors[0].device
    tiling = kernel.tile_for(sizes, numbers, device_soc())
    workspace = torch.empty(max(tiling.workspace, 1), dtype=torch.uint8, device=device)
    data = torch.frombuffer(bytearray(tiling.data), dtype=torch.uint8).to(device)
    stream = getattr(torch, "npu").current_stream(device).npu_stream  # torch_npu adds the module  # noqa: B009
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (*tensors, workspace, data)]
    status = function(ctypes.c_uint32(tiling.block_dim), ctypes.c_void_p(stream), *pointers)
    if status != 0:
        raise BackendError(f"{kernel.entry}: the launch on {device} was refused with status {status}.")
