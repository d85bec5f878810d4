"""The Ascend C samples in examples/emulator: right and without hazards on both SoCs, in every order of the pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import pytest
import torch

from tests.paths import ROOT

FOLDER = ROOT / "examples" / "emulator"
SOCS = ("a3", "950pr")
# Blocks and sizes: below a tile, whole tiles, tails of every kind; a lone row, column or k; blocks without work.
CASES: dict[str, tuple[tuple[int, tuple[int, ...]], ...]] = {
    "vector_add": ((1, (1,)), (4, (5,)), (2, (8192,)), (3, (20_001,)), (8, (100_003,))),
    "row_sum": ((1, (1, 1)), (2, (5, 7)), (1, (32, 512)), (3, (33, 513)), (2, (70, 64)), (4, (100, 1700))),
    "copy_ping_pong": ((1, (1,)), (3, (8192,)), (2, (65_536,)), (3, (100_001,))),
    "matmul": (
        (1, (1, 1, 1)),
        (1, (16, 16, 16)),
        (2, (1, 40, 70)),
        (1, (40, 50, 70)),
        (3, (128, 128, 512)),
        (3, (129, 257, 300)),
        (2, (130, 100, 513)),
    ),
    "matmul_silu": (
        (1, (1, 1, 1)),
        (1, (16, 16, 16)),
        (2, (1, 40, 70)),
        (1, (43, 50, 70)),
        (2, (129, 257, 300)),
        (1, (256, 384, 128)),
        (2, (300, 500, 129)),
    ),
}
SMALL = {
    "vector_add": (2, (20_001,)),
    "row_sum": (2, (70, 600)),
    "copy_ping_pong": (2, (40_001,)),
    "matmul": (2, (129, 130, 300)),
    "matmul_silu": (2, (129, 400, 70)),
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """examples/emulator/run.py as a module, with a cache of built kernels unless ASCEND_K3_CACHE names one."""
    spec = spec_from_file_location("emulator_samples", FOLDER / "run.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("ASCEND_K3_CACHE"):
            patch.setenv("ASCEND_K3_CACHE", str(tmp_path_factory.mktemp("emulator")))
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


def test_every_sample_is_tried(samples: Any) -> None:
    assert {file.stem for file in FOLDER.glob("*.cpp")} == set(samples.SAMPLES) == set(CASES) == set(SMALL)


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("name, blocks, sizes", [(name, *case) for name, cases in CASES.items() for case in cases])
def test_right_and_without_hazards(samples: Any, soc: str, name: str, blocks: int, sizes: tuple[int, ...]) -> None:
    done = samples.run(name, soc, sizes, blocks)
    assert done.report.hazards == ()
    assert done.right, done.error


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("name", SMALL)
def test_the_same_bits_in_every_order(samples: Any, soc: str, name: str) -> None:
    blocks, sizes = SMALL[name]
    first = samples.run(name, soc, sizes, blocks)
    assert first.ok
    for seed in range(10):
        done = samples.run(name, soc, sizes, blocks, seed)
        assert done.report.hazards == (), seed
        assert torch.equal(done.out, first.out), seed


def test_the_script(samples: Any) -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / "run.py", "vector_add"],
        capture_output=True,
        text=True,
        env={**os.environ},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(SOCS) and all(
        "right, error 0.0e+00; 0 hazards; 12,000,036 bytes" in line for line in lines
    )
