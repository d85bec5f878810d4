"""docs/emulator.md does what it says: its kernel, its script, its broken kernel and what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

TUTORIAL = (ROOT / "docs" / "emulator.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", TUTORIAL, flags=re.DOTALL)
(KERNEL, *_), (SCRIPT, *_), (PRINTED, BROKEN, *_) = (
    [text for language, text in BLOCKS if language == wanted] for wanted in ("cpp", "python", "")
)


def run(folder: Path, kernel: str) -> str:
    (folder / "scale.cpp").write_text(kernel)
    (folder / "run.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "run.py"], cwd=folder, capture_output=True, text=True, env={**os.environ}, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("broken", [False, True], ids=["right", "broken"])
def test_the_tutorial_prints_what_it_shows(tmp_path: Path, broken: bool) -> None:
    kernel = "".join(line for line in KERNEL.splitlines(keepends=True) if not broken or "V_MTE3" not in line)
    assert run(tmp_path, kernel) == (BROKEN if broken else PRINTED)
    assert (tmp_path / "scale.json").stat().st_size > 0
