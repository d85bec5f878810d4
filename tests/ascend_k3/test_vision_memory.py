"""Memory of the tower at the released width: attention must not hold patches x patches."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import FIXTURES

LIMIT = 2 * 2**30  # bytes above the weights

MEASURE = """
import json, sys
from dataclasses import replace
import torch
from ascend_k3 import K3Config
from ascend_k3.vision import VisionTower

def resident(key):
    for line in open("/proc/self/status"):
        if line.startswith(key):
            return int(line.split()[1]) * 1024

config, layers, rows, columns = sys.argv[1], *map(int, sys.argv[2:])
vision = K3Config.from_pretrained(config).vision
tower = VisionTower(replace(vision, vt_num_hidden_layers=layers or vision.vt_num_hidden_layers))
with torch.no_grad():
    for parameter in tower.parameters():
        parameter.normal_(0, 0.02)
    pixels = torch.randn(rows * columns, 3, 14, 14)
    before = resident("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")  # resets the peak
    tokens = tower(pixels, torch.tensor([[1, rows, columns]]))
print(json.dumps([resident("VmHWM") - before, list(tokens.shape), bool(torch.isfinite(tokens).all())]))
"""


@pytest.mark.parametrize(
    "config, layers, rows, columns",
    [
        pytest.param("released_config.json", 1, 148, 148, id="a block on 2048 x 2048", marks=pytest.mark.slow),
        pytest.param("released_config.json", 1, 2, 512, id="a block on a strip of 512 patches"),
        pytest.param("ckpt_bf16/config.json", 0, 148, 148, id="a tiny tower on 2048 x 2048"),
    ],
)
def test_the_peak_stays_within_two_gib(config: str, layers: int, rows: int, columns: int, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", MEASURE, str(FIXTURES / config), *map(str, (layers, rows, columns))]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, cwd=tmp_path)
    peak, shape, finite = json.loads(done.stdout)
    print(f"{rows} x {columns} patches: {peak / 2**30:.2f} GiB above weights and pixels")
    assert finite and shape[:2] == [rows * columns // 4, 4]
    assert peak <= LIMIT
