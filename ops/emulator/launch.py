"""Run a built kernel on CPU memory."""

from __future__ import annotations

import copy
import ctypes
import json
import struct
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ascend_k3.ops.emulator import compiler as builder
from ascend_k3.ops.emulator.report import Report
from ascend_k3.ops.soc import SoC
from ascend_k3.ops.soc import soc as find_soc

KERNEL_TYPES = {"aiv_only": 0, "aic_only": 1, "mix_1_1": 2, "mix_1_2": 3, "mix_aiv_1_0": 4, "mix_aic_1_0": 5}
SPACES = ("GM", "UB", "L1", "L0A", "L0B", "L0C", "BT", "FB", "L0A_MX", "L0B_MX")
TENSOR, OUTPUT, WORKSPACE, TILING = range(4)
REPEAT_BYTES = 256
_RUNNING = threading.Lock()  # the machine is one for a process


class _Argument(ctypes.Structure):
    _fields_ = [
        ("host", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("use", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("value", ctypes.c_uint64),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        ("arch", ctypes.c_int),
        ("kernel_type", ctypes.c_int),
        ("block_dim", ctypes.c_uint32),
        ("cube_entry", ctypes.c_void_p),
        ("vector_entry", ctypes.c_void_p),
        ("arguments", ctypes.POINTER(_Argument)),
        ("argument_count", ctypes.c_int),
        ("capacities", ctypes.POINTER(ctypes.c_uint32)),
        ("rate_names", ctypes.POINTER(ctypes.c_char_p)),
        ("rate_values", ctypes.POINTER(ctypes.c_double)),
        ("rate_count", ctypes.c_int),
        ("clock_hz", ctypes.c_double),
        ("check", ctypes.c_int),
        ("perturb", ctypes.c_int),
        ("auto_sync", ctypes.c_int),
        ("seed", ctypes.c_uint64),
        ("timeline_limit", ctypes.c_uint64),
        ("list_mutations", ctypes.c_int),
        ("mutate", ctypes.c_int),
        ("mutation_kind", ctypes.c_char_p),
        ("mutation_file", ctypes.c_char_p),
        ("mutation_line", ctypes.c_int),
        ("mutation_detail", ctypes.c_int),
        ("time_limit", ctypes.c_double),
    ]


class Kernel:
    """A kernel built for one SoC. `parameters` are its parameters' kinds, `kernel_type` its KERNEL_TYPE."""

    def __init__(
        self, source: Path, entry: str, soc: SoC, include_dirs: Sequence[Path], defines: Mapping[str, object]
    ) -> None:
        self.source, self.entry, self.soc = source, entry, soc
        arch = int(soc.arch)

        def view(name: str) -> ctypes.CDLL:
            return builder.kernel_object(source, entry, name, arch, include_dirs, defines)

        vector = view("AIV")
        declared = vector.emulator_kernel_type()
        if declared < -1:
            raise builder.KernelBuildError(
                f"{source.name}: its kernels declare different kernel types; give each its own file."
            )
        no_cube = declared in (KERNEL_TYPES["aiv_only"], KERNEL_TYPES["mix_aiv_1_0"])
        cube = None if no_cube else view("AIC")
        if declared < 0 and cube is not None:
            uses_vector, uses_cube = bool(vector.emulator_uses() & 1), bool(cube.emulator_uses() & 2)
            declared = KERNEL_TYPES["mix_1_2" if uses_vector and uses_cube else "aic_only" if uses_cube else "aiv_only"]
        self.kernel_type: int = declared
        self._views = {"AIV": vector, "AIC": cube}
        vector.emulator_signature.restype = ctypes.c_char_p
        text = vector.emulator_signature().decode()
        self.parameters: tuple[str, ...] = tuple(text.split(",")) if text else ()

    def on(self, soc: SoC) -> Kernel:
        """The same kernel launched on a SoC of the same architecture with other figures."""
        if soc.arch != self.soc.arch:
            raise ValueError(
                f"{self.entry}: it is built for dav-{self.soc.arch}, {soc.name} is dav-{soc.arch}; build it again."
            )
        other = copy.copy(self)
        other.soc = soc
        return other

    def launch(
        self,
        block_dim: int,
        *args: Any,
        workspace: int = 0,
        tiling: bytes | None = None,
        outputs: Sequence[int] = (),
        hazards: bool = True,
        seed: int | None = None,
        auto_sync: bool = False,
        timeline: int = 0,
        mutation: tuple[str, str, int, int] | None = None,
        list_mutations: bool = False,
        time_limit: float = 0.0,
    ) -> Report:
        """Run the kernel on `block_dim` blocks and tell what happened; tensors are changed in place.

        Args:
            args: one for each parameter: a contiguous CPU tensor or numpy array for a pointer, a number, bytes for a
                struct.
            workspace: bytes of a workspace, undefined at the start; the next pointer after `args`.
            tiling: bytes of tiling data; the pointer after that.
            outputs: positions in `args` of tensors that the kernel has to write whole: they are undefined at the start.
            hazards: check every access; without it the run is faster and reports less.
            seed: of a perturbed order of pipes and cores; None runs the deterministic one.
            auto_sync: synchronize what a compiler with --cce-auto-sync=on does: on vector cores, vector instructions
                with each other, and the scalar's accesses to tensors with V, MTE2 and MTE3.
            timeline: so many instructions are kept with their times.
            mutation, list_mutations: for mutation tests, see mutants.py.
            time_limit: seconds of processor time after which the kernel counts as hanging; 0: none.
        Raises: ValueError for arguments that do not fit the kernel's parameters.
        """
        if block_dim < 1:
            raise ValueError(f"launch: block_dim is {block_dim}; it has to be at least 1.")
        for number in outputs:
            if not 0 <= number < len(args) or self.parameters[number : number + 1] != ("pointer",):
                raise ValueError(
                    f"launch: outputs has {number}, which is not the position of a tensor in the arguments."
                )
        keep: list[Any] = []
        arguments = [self._argument(number, value, number in outputs, keep) for number, value in enumerate(args)]
        arguments += self._extra(len(args), workspace, tiling, keep)
        self._refuse_overlap(arguments)
        if len(arguments) != len(self.parameters):
            raise ValueError(
                f"{self.entry}: it has {len(self.parameters)} parameters ({', '.join(self.parameters)}), the launch "
                f"gives {len(arguments)} (arguments, workspace and tiling together)."
            )
        rates = rates_of(self.soc)
        options = _Options(
            arch=int(self.soc.arch),
            kernel_type=self.kernel_type,
            block_dim=block_dim,
            cube_entry=self._address("AIC"),
            vector_entry=self._address("AIV"),
            arguments=(_Argument * len(arguments))(*arguments),
            argument_count=len(arguments),
            capacities=(ctypes.c_uint32 * len(SPACES))(*(capacity_of(self.soc, space) for space in SPACES)),
            rate_names=(ctypes.c_char_p * len(rates))(*(name.encode() for name in rates)),
            rate_values=(ctypes.c_double * len(rates))(*rates.values()),
            rate_count=len(rates),
            clock_hz=float(self.soc.clock_hz),
            check=hazards,
            perturb=seed is not None,
            auto_sync=auto_sync,
            seed=seed or 0,
            timeline_limit=timeline,
            list_mutations=list_mutations,
            mutate=mutation is not None,
            time_limit=time_limit,
        )
        if mutation is not None:
            options.mutation_kind, options.mutation_file = mutation[0].encode(), mutation[1].encode()
            options.mutation_line, options.mutation_detail = mutation[2], mutation[3]
        library = builder.runtime()
        library.emulator_launch.restype = ctypes.c_char_p
        with _RUNNING:
            text = library.emulator_launch(ctypes.byref(options))
        return Report.from_data(json.loads(text), self.soc)

    def _address(self, view: str) -> int | None:
        library = self._views[view]
        return ctypes.cast(library.emulator_entry, ctypes.c_void_p).value if library is not None else None

    def _argument(self, number: int, value: Any, output: bool, keep: list[Any]) -> _Argument:
        kind = self.parameters[number] if number < len(self.parameters) else "pointer"
        where = f"{self.entry}: argument {number}"
        if kind == "pointer":
            host, size = _memory(value, where, keep)
            return _Argument(
                host=host, bytes=size, use=OUTPUT if output else TENSOR, name=f"argument {number}".encode()
            )
        if kind.startswith("struct"):
            size = int(kind[6:])
            if not isinstance(value, bytes) or len(value) != size:
                raise ValueError(
                    f"{where}: the parameter is a struct of {size} bytes; give bytes of that length, not {value!r}."
                )
            keep.append(ctypes.create_string_buffer(value, size))
            return _Argument(bytes=-1, value=ctypes.addressof(keep[-1]))
        if not isinstance(value, (int, float)):
            raise ValueError(f"{where}: the parameter is a number ({kind}), got {type(value).__name__}.")
        return _Argument(bytes=-1, value=_bits(kind, value, where))

    def _refuse_overlap(self, arguments: list[_Argument]) -> None:
        """Memory may be given twice, as when a kernel works in place, but not in parts and not as an output."""
        for number, later in enumerate(arguments):
            for other, earlier in enumerate(arguments[:number]):
                if later.bytes <= 0 or earlier.bytes <= 0:
                    continue
                begin, end, low, high = later.host, later.host + later.bytes, earlier.host, earlier.host + earlier.bytes
                if end <= low or high <= begin:
                    continue
                where = f"{self.entry}: arguments {other} and {number} share memory"
                if OUTPUT in (later.use, earlier.use):
                    raise ValueError(
                        f"{where}, and one of them is in outputs, whose contents are undefined at the start; leave it "
                        "out."
                    )
                if begin < low or end > high:
                    raise ValueError(f"{where} in part; give the whole tensor first, or copies.")

    def _extra(self, given: int, workspace: int, tiling: bytes | None, keep: list[Any]) -> list[_Argument]:
        missing = len(self.parameters) - given
        out = []
        if workspace or missing == 2 or (missing == 1 and tiling is None):
            keep.append(ctypes.create_string_buffer(max(workspace, 1) + 64))
            start = ctypes.addressof(keep[-1])
            start += -start % 64
            out.append(_Argument(host=start, bytes=workspace, use=WORKSPACE, name=b"the workspace"))
        if tiling is not None:
            keep.append(ctypes.create_string_buffer(tiling, max(len(tiling), 1)))
            out.append(
                _Argument(host=ctypes.addressof(keep[-1]), bytes=len(tiling), use=TILING, name=b"the tiling data")
            )
        elif missing == 2:
            keep.append(ctypes.create_string_buffer(1))
            out.append(_Argument(host=ctypes.addressof(keep[-1]), bytes=0, use=TILING, name=b"the tiling data"))
        return out


def _memory(value: Any, where: str, keep: list[Any]) -> tuple[int, int]:
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu" or not value.is_contiguous():
            raise ValueError(
                f"{where}: the tensor has to be contiguous and on the CPU, it is {tuple(value.shape)} on "
                f"{value.device}."
            )
        keep.append(value)
        return value.data_ptr(), value.numel() * value.element_size()
    array = getattr(value, "__array_interface__", None)
    if array is not None:
        if array["strides"] is not None:
            raise ValueError(f"{where}: the array has to be contiguous, it has strides {array['strides']}.")
        keep.append(value)
        return array["data"][0], value.nbytes
    raise ValueError(
        f"{where}: the parameter is global memory; give a CPU tensor or a numpy array, not {type(value).__name__}."
    )


def _bits(kind: str, value: float, where: str) -> int:
    formats = {"float32": "f", "float64": "d", "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H"}
    formats |= {"int32": "i", "uint32": "I", "int64": "q", "uint64": "Q"}
    try:
        return int.from_bytes(struct.pack("<" + formats[kind], value), "little")
    except (struct.error, KeyError) as error:
        raise ValueError(f"{where}: {value!r} is not a {kind}: {error}.") from None


def capacity_of(soc: SoC, space: str) -> int:
    """Bytes of a local memory, 0 for global memory and for memories that the SoC does not have."""
    return int(soc.capacity.get(space, 0))


def rates_of(soc: SoC) -> dict[str, float]:
    """What a pipe gets done in a second: bytes on a path, repeats of 256 bytes, multiply-adds by type.

    "vector_issue" is of vector functions: their register instructions that start in a cycle.
    """
    rates = {path: soc.path_rate(path) for path in (*soc.path_bytes_per_second, *soc.path_bytes_per_cycle)}
    rates["vector"] = soc.clock_hz * soc.vector_bytes_per_cycle / REPEAT_BYTES
    rates["vector_issue"] = float(soc.vector_issue)
    for dtype, macs in soc.macs_per_cycle.items():
        rates[dtype] = macs * soc.clock_hz
    return rates


def build(
    source: str | Path,
    entry: str,
    soc: str | SoC = "a3",
    include_dirs: Sequence[str | Path] = (),
    defines: Mapping[str, object] | None = None,
) -> Kernel:
    """Compile the kernel `entry` of a C++ file for a SoC of ops/soc.py.

    Args:
        entry: the `extern "C" __global__ __aicore__` function, or an instance of a template, "kernel<float>".
        include_dirs: further folders of headers; the file's own folder and the emulator's headers are always found.
        defines: macros; True defines one without a value.
    Raises: FileNotFoundError; KernelBuildError with the compiler's errors; BackendError without a compiler.
    """
    path = Path(source).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"build: {source} is not a file.")
    chosen = find_soc(soc) if isinstance(soc, str) else soc
    return Kernel(path, entry, chosen, [Path(folder) for folder in include_dirs], defines or {})
