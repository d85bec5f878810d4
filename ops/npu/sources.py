"""Write what the build for NPUs compiles: one file for each entry point and set of macros.

    python -m ascend_k3.ops.npu.sources FOLDER

An entry point that is built for several dtypes becomes several functions with names of their own (`symbol`). The list
is that of the operators' `kernel/launch.py`, so that the device has what the emulator runs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

from ascend_k3.ops.kernel_cases import OPERATORS
from ascend_k3.ops.kernels import KernelLaunch
from ascend_k3.ops.npu import symbol


def launches() -> Iterator[KernelLaunch]:
    """Every entry point of the package."""
    for operator in OPERATORS:
        module = importlib.import_module(f"ascend_k3.ops.{operator}.kernel.launch")
        yield from (value for value in vars(module).values() if isinstance(value, KernelLaunch))


def write_sources(folder: Path) -> list[Path]:
    """The files, written into `folder`; each defines the macros, renames the entry point and includes its source."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for launch in launches():
        for defines in launch.variants:
            name = symbol(launch.entry, defines)
            lines = [f"#define {key} {value}" for key, value in sorted(defines.items())]
            if name != launch.entry:
                lines.append(f"#define {launch.entry} {name}")
            lines.append(f'#include "{launch.folder / launch.source}"')
            path = folder / f"{name}.cpp"
            path.write_text("\n".join(lines) + "\n")
            written.append(path)
    return written


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m ascend_k3.ops.npu.sources FOLDER")
    for file in write_sources(Path(sys.argv[1])):
        print(file)
