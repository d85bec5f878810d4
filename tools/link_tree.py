"""Makes build/typing/ascend_k3: links that show the five folders as the package that they are installed as.

Type checkers and editors do not read `package_dir` of setup.py. With build/typing on their search path they find
`ascend_k3.ops` in a plain checkout. The links are made anew at each run; git ignores them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "build" / "typing"


def main() -> None:
    """Replace build/typing by a fresh tree of links."""
    shutil.rmtree(TREE, ignore_errors=True)
    package = TREE / "ascend_k3"
    package.mkdir(parents=True)
    for entry in (ROOT / "ascend_k3").iterdir():
        if not entry.name.startswith((".", "__pycache__")):
            (package / entry.name).symlink_to(entry)
    for folder in ("ops", "parallel", "serving", "train"):
        (package / folder).symlink_to(ROOT / folder)


if __name__ == "__main__":
    main()
