"""Checks the Markdown files: each relative link leads to a file, each test that is named exists, and the two READMEs
show the same commands.

Exit code 1 and one line for each problem.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TEST = re.compile(r"`(?:(test_\w+\.py)::)?(test_\w+)(?:\[[^`]*)?`")  # `test_x` or `test_file.py::test_x[case]`
CODE = re.compile(r"^```.*?^```", flags=re.MULTILINE | re.DOTALL)


def markdown_files() -> list[Path]:
    """The Markdown files of the repository, those of fixtures, hidden folders and build output excepted."""
    apart = {"build", "dist", "fixtures"}
    names = [path.relative_to(ROOT) for path in ROOT.rglob("*.md")]
    return [ROOT / name for name in names if not any(part in apart or part.startswith(".") for part in name.parts)]


def broken_links(file: Path) -> list[str]:
    """One line for each relative link of the file that leads nowhere."""
    text = CODE.sub("", file.read_text(encoding="utf-8"))
    targets = [target.split("#")[0] for target in LINK.findall(text) if "://" not in target]
    return [
        f"{file.relative_to(ROOT)}: the link {target} leads to no file"
        for target in targets
        if target and not (file.parent / target).exists()
    ]


def absent_tests(file: Path, known: dict[str, set[str]]) -> list[str]:
    """One line for each test function that the file names and no test file, or not the one it names, defines."""
    everywhere = set().union(*known.values())
    named = TEST.findall(file.read_text(encoding="utf-8"))
    return [
        f"{file.relative_to(ROOT)}: there is no test {name}{f' in {where}' if where else ''}"
        for where, name in named
        if name not in (known.get(where, set()) if where else everywhere)
    ]


def differing_twins() -> list[str]:
    """One line if the code blocks of README.md and README.zh.md differ, comments aside."""
    blocks = []
    for name in ("README.md", "README.zh.md"):
        file = ROOT / name
        if not file.exists():
            return [f"{name} is missing"]
        code = "\n".join(CODE.findall(file.read_text(encoding="utf-8")))
        blocks.append([re.sub(r"\s*#.*", "", line) for line in code.splitlines()])
    return [] if blocks[0] == blocks[1] else ["README.md and README.zh.md show different commands in their code blocks"]


def main() -> int:
    """Print the problems; 0 if there are none."""
    known: dict[str, set[str]] = {}
    for file in (ROOT / "tests").rglob("*.py"):
        known.setdefault(file.name, set()).update(re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8")))
    problems = differing_twins()
    for file in sorted(markdown_files()):
        problems += broken_links(file) + absent_tests(file, known)
    print("\n".join(problems) or "docs: links, named tests and twin READMEs are fine")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
