"""A whole matrix product: tiles, two buffers in L1 and in L0, several blocks."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path

import pytest
import torch

from ascend_k3.ops import emulator
from tests.tolerances import RELATIVE_RMS, relative_rms

KERNELS = Path(__file__).parent / "kernels"


@cache
def kernel(soc: str) -> emulator.Kernel:
    return emulator.build(KERNELS / "cube_matmul.cpp", entry="cube_matmul", soc=soc)


def check(soc: str, m: int, n: int, k: int, blocks: int, seed: int | None = None) -> torch.Tensor:
    torch.manual_seed(0)
    a, b = torch.randn(m, k).bfloat16(), torch.randn(k, n).bfloat16()
    c = torch.zeros(m, n, dtype=torch.bfloat16)
    report = kernel(soc).launch(blocks, a, b, c, struct.pack("<3i", m, n, k), outputs=[2], seed=seed)
    assert report.hazards == ()
    assert relative_rms(c, a.float() @ b.float()) < RELATIVE_RMS[torch.bfloat16]
    macs = sum(core["counters"]["bf16"]["amount"] for core in report.data["cores"] if "bf16" in core["counters"])
    assert macs == m * n * k
    return c


@pytest.mark.parametrize("soc", ("a3", "950pr"))
def test_product_of_2048(soc: str) -> None:
    check(soc, 2048, 2048, 2048, 8)


@pytest.mark.parametrize("soc", ("a3", "950pr"))
def test_any_schedule_gives_the_same_bits(soc: str) -> None:
    plain = check(soc, 256, 512, 512, 3)
    for seed in range(3):
        assert torch.equal(check(soc, 256, 512, 512, 3, seed), plain)
