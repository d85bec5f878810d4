"""A cache of built kernels for the session, and the kernels beside the tests by their opcodes."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascend_k3.ops import emulator

FOLDER = Path(__file__).parent / "kernels"


class Source:
    """A kernel's source: `enum Op` numbers its cases, and comments `// @name` mark lines."""

    def __init__(self, name: str) -> None:
        self.path = FOLDER / name
        text = self.path.read_text()
        found = re.search(r"enum Op[^{]*\{(.*?)\}", text, re.DOTALL)
        names = re.sub(r"//[^\n]*|\s", "", found[1]).strip(",").split(",") if found else []
        self.opcodes = {name: number for number, name in enumerate(names)}
        self.lines: dict[str, int] = {}
        for number, line in enumerate(text.splitlines(), 1):
            for mark in re.findall(r"@(\w+)", line.partition("//")[2]):
                self.lines[mark] = number

    def build(self, soc: str = "a3", **defines: str) -> emulator.Kernel:
        """The kernel named as its file."""
        return _built(self.path, soc, tuple(sorted(defines.items())))


@functools.cache
def _built(path: Path, soc: str, defines: tuple[tuple[str, str], ...]) -> emulator.Kernel:
    return emulator.build(path, entry=path.stem, soc=soc, defines=dict(defines))


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels are built into a folder of this session, unless ASCEND_K3_CACHE names one."""
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("ASCEND_K3_CACHE"):
            patch.setenv("ASCEND_K3_CACHE", str(tmp_path_factory.mktemp("emulator")))
        yield


@pytest.fixture(scope="session")
def source() -> type[Source]:
    """`source("hazards.cpp")` is a kernel beside the tests."""
    return Source
