"""What imports what, and what importing does not touch: devices, compilers, the network, torch_npu."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from importlib.util import resolve_name
from pathlib import Path

import pytest

from tests.paths import ROOT

# folder -> folders that it may import from; whatever is above it in docs/ARCHITECTURE.md's picture is missing
MAY_IMPORT = {
    "ops": {"ops"},
    "ascend_k3": {"ops", "ascend_k3"},
    "parallel": {"ops", "ascend_k3", "parallel"},
    "serving": {"ops", "ascend_k3", "parallel", "serving"},
    "train": {"ops", "ascend_k3", "parallel", "train"},
}
OPS_MAY_IMPORT = ("torch", "matplotlib")  # the second for the emulator's pictures only
HELP_SECONDS = 0.5  # CPU time of `ascend-k3 --help`


def module_name(file: Path) -> str:
    """The name that a source file of the five folders is imported as."""
    folder, *parts = file.relative_to(ROOT).with_suffix("").parts
    package = ["ascend_k3"] if folder == "ascend_k3" else ["ascend_k3", folder]
    return ".".join(package + [part for part in parts if part != "__init__"])


def sources(folder: str) -> list[Path]:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files, f"{folder}/ holds no Python file"
    return files


def imported_modules(source: str, package: str, *, inside_functions: bool) -> set[str]:
    """Full names of the modules, and of the names taken from modules, that a source imports."""
    found: set[str] = set()
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package)
            found |= {f"{module}.{alias.name}" for alias in node.names}
        if inside_functions or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            todo += ast.iter_child_nodes(node)
    return found


def forbidden(folder: str, names: set[str]) -> set[str]:
    """Those of the imported names that a file of the folder may not import."""
    wrong = set()
    for name in names:
        top, _, rest = name.partition(".")
        if top == "ascend_k3":
            first = rest.partition(".")[0]
            if (first if first in MAY_IMPORT else "ascend_k3") not in MAY_IMPORT[folder]:
                wrong.add(name)
        elif folder == "ops" and top not in OPS_MAY_IMPORT and top not in sys.stdlib_module_names:
            wrong.add(name)
    return wrong


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_point_downwards(folder: str) -> None:
    for file in sources(folder):
        # the commands of cli.py import what they need when they run
        inside_functions = file != ROOT / "ascend_k3" / "cli.py"
        package = module_name(file) if file.name == "__init__.py" else module_name(file).rpartition(".")[0]
        names = imported_modules(file.read_text(encoding="utf-8"), package, inside_functions=inside_functions)
        wrong = forbidden(folder, names)
        assert not wrong, f"{file.relative_to(ROOT)} imports {sorted(wrong)}, which stands above it"


@pytest.mark.parametrize(
    ("folder", "source"),
    [
        pytest.param("ops", "import ascend_k3.model", id="ops-model"),
        pytest.param("ops", "from ascend_k3 import model", id="ops-model-from"),
        pytest.param("ops", "from .. import config", id="ops-relative"),
        pytest.param("ops", "import numpy as np", id="ops-third-party"),
        pytest.param("ops", "def f():\n    import ascend_k3.model", id="ops-inside-function"),
        pytest.param("ascend_k3", "from ascend_k3 import train", id="model-train"),
        pytest.param("parallel", "from ascend_k3.serving import x", id="parallel-serving"),
        pytest.param("serving", "from ascend_k3.train.loop import x", id="serving-train"),
    ],
)
def test_an_upward_import_is_seen(folder: str, source: str) -> None:
    assert forbidden(folder, imported_modules(source, f"ascend_k3.{folder}", inside_functions=True))


def run(code: str, folder: Path, *, path: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own, in `folder`, with `path` first on its search path."""
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    if path is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(path), environment.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=folder,
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_help_does_not_import_torch_and_is_quick(tmp_path: Path) -> None:
    code = """
        import sys, time
        from ascend_k3.cli import main
        try:
            main(["--help"])
        except SystemExit as stop:
            assert stop.code == 0
        heavy = {"torch", "numpy", "safetensors", "tiktoken"} & sys.modules.keys()
        assert not heavy, f"imported: {heavy}"
        print("seconds", time.process_time())
    """
    results = [run(code, tmp_path) for _ in range(3)]
    for result in results:
        assert result.returncode == 0, result.stderr
        assert "demo" in result.stdout
    assert min(float(result.stdout.split()[-1]) for result in results) < HELP_SECONDS


def test_importing_the_package_does_not_import_torch(tmp_path: Path) -> None:
    result = run("import sys, ascend_k3; assert 'torch' not in sys.modules", tmp_path)
    assert result.returncode == 0, result.stderr


# Python tells an audit hook of everything that leaves the process.
WATCHED_IMPORT = """
    import importlib, sys
    reached = []
    def watch(event, arguments):
        leaves = event.startswith(("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.system"))
        if leaves or (event == "open" and str(arguments[0]).startswith("/dev/")):
            reached.append((event, arguments))
    sys.addaudithook(watch)
    for name in {names!r}:
        importlib.import_module(name)
        assert not reached, f"importing {{name}} reached for {{reached}}"
        assert "torch_npu" not in sys.modules, f"importing {{name}} imported torch_npu"
    import torch
    assert not torch.cuda.is_initialized()
"""


def test_importing_every_module_touches_nothing_outside(tmp_path: Path) -> None:
    names = [module_name(file) for folder in MAY_IMPORT for file in sources(folder)]
    result = run(WATCHED_IMPORT.format(names=names), tmp_path, path=fake_torch_npu(tmp_path, works=True))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("action", ["__import__('os').system('true')", "__import__('socket').socket()"])
def test_the_watch_sees_what_leaves_the_process(tmp_path: Path, action: str) -> None:
    (tmp_path / "reaching.py").write_text(action)
    result = run(WATCHED_IMPORT.format(names=["reaching"]), tmp_path, path=tmp_path)
    assert "importing reaching reached for" in result.stderr


def fake_torch_npu(folder: Path, *, works: bool) -> Path:
    """A folder with a distribution torch_npu as torch sees it: an entry point that torch calls when it is imported.

    Without CANN (works=False) it fails as the real one does, at the first library that it cannot find.
    """
    package = folder / "fake" / "torch_npu"
    package.mkdir(parents=True)
    missing = "libascendcl.so: cannot open shared object file: No such file or directory"
    (package / "__init__.py").write_text(
        "def _autoload(): pass\n" if works else f"raise ImportError({missing!r})\n", encoding="utf-8"
    )
    information = folder / "fake" / "torch_npu-2.13.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_npu\nVersion: 2.13.0\n")
    (information / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    return folder / "fake"


def test_the_fake_torch_npu_breaks_a_plain_import_of_torch(tmp_path: Path) -> None:
    result = run("import torch", tmp_path, path=fake_torch_npu(tmp_path, works=False))
    assert "Failed to load the backend extension: torch_npu" in result.stderr


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import ascend_k3.ops", id="ops"),
        pytest.param("import ascend_k3; ascend_k3.load_model", id="lazy-name"),
        pytest.param("import ascend_k3.model", id="model"),
        pytest.param("import ascend_k3, torch", id="torch-after"),
    ],
)
def test_torch_npu_without_cann_breaks_nothing(tmp_path: Path, code: str) -> None:
    check = "import sys, torch; assert 'torch_npu' not in sys.modules; print(torch.ones(2).sum().item())"
    result = run(f"{code}\n{check}", tmp_path, path=fake_torch_npu(tmp_path, works=False))
    assert (result.returncode, result.stdout) == (0, "2.0\n"), result.stderr


def test_autoload_that_the_user_asks_for_stays(tmp_path: Path) -> None:
    code = "import ascend_k3.ops, sys; print('torch_npu' in sys.modules)"
    path = fake_torch_npu(tmp_path, works=True)
    result = run(code, tmp_path, path=path, TORCH_DEVICE_BACKEND_AUTOLOAD="1")
    assert result.stdout == "True\n", result.stderr


def test_autoload_is_left_alone_when_torch_came_first(tmp_path: Path) -> None:
    code = "import os, torch, ascend_k3.ops; print(os.environ.get('TORCH_DEVICE_BACKEND_AUTOLOAD'))"
    result = run(code, tmp_path)
    assert result.stdout == "None\n", result.stderr
