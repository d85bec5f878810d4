"""Wheel, sdist and editable install: built with the oldest setuptools of pyproject.toml, used from another folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.paths import ROOT

FOLDERS = ("ascend_k3", "ops", "parallel", "serving", "train")
# what a later kernel will look like; planted in the copy that is built
PLANTED = (
    "ops/planted/kernel/x.h",
    "ops/planted/kernel/x.hpp",
    "ops/planted/kernel/x.cpp",
    "ops/planted/CMakeLists.txt",
)

USE = """
import importlib.util
from pathlib import Path
import ascend_k3, ascend_k3.ops, ascend_k3.parallel, ascend_k3.serving, ascend_k3.train, ascend_k3.ops.planted
import torch
home = Path({home!r}).resolve()
for module in (ascend_k3, ascend_k3.ops, ascend_k3.parallel, ascend_k3.serving, ascend_k3.train):
    assert home in Path(module.__file__).resolve().parents, module.__file__
for name in ("ops", "parallel", "serving", "train", "tests", "benchmarks", "tools"):
    assert importlib.util.find_spec(name) is None, f"{{name}} is importable at top level"
assert ascend_k3.__version__ == {version!r}
assert (Path(ascend_k3.ops.planted.__file__).parent / "kernel" / "x.h").is_file()
assert torch.equal(ascend_k3.ops.rms_norm(torch.ones(1, 4), torch.ones(4), eps=0.0), torch.ones(1, 4))
"""


def command(*words: str | Path, cwd: Path) -> str:
    """Output of a command; its errors, if it fails, are the failure's text."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    result = subprocess.run([str(word) for word in words], cwd=cwd, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(map(str, words))}\n{result.stdout}{result.stderr}"
    return result.stdout


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A fresh virtual environment that pip fills from outside."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @classmethod
    def make(cls, folder: Path) -> Environment:
        command(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
        return cls(folder=folder)

    def pip(self, *words: str | Path) -> None:
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.python)
        command(*pip, *words, cwd=self.folder)

    def show_dependencies(self) -> None:
        """Make torch and the other dependencies of the environment that runs the tests importable here.

        Only the folder is added: what is installed there in editable form does not come along.
        """
        site_packages = next(self.folder.glob("lib/python*/site-packages"))
        folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (site_packages / "dependencies.pth").write_text("\n".join(folders) + "\n")


@dataclass(frozen=True, kw_only=True)
class Build:
    """A copy of the repository and what the oldest setuptools makes of it."""

    source: Path
    builder: Environment
    sdist: Path
    wheel: Path
    wheel_of_sdist: Path


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder = tmp_path_factory.mktemp("packaging")
    source = folder / "source"
    apart = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "fixtures")
    shutil.copytree(ROOT, source, ignore=apart)
    for name in PLANTED:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("// planted\n")
    (source / "ops" / "planted" / "__init__.py").touch()

    oldest = re.search(r"setuptools>=([\d.]+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert oldest is not None
    builder = Environment.make(folder / "builder")
    builder.pip("install", "--no-deps", f"setuptools=={oldest[1]}")

    def wheel(of: Path, name: str) -> Path:
        builder.pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / name, of)
        return next((folder / name).glob("*.whl"))

    direct = wheel(source, "wheel")
    (folder / "sdist").mkdir()
    build_sdist = f"import setuptools.build_meta as backend; backend.build_sdist({str(folder / 'sdist')!r})"
    command(builder.python, "-c", build_sdist, cwd=source)
    sdist = next((folder / "sdist").glob("*.tar.gz"))
    return Build(
        source=source, builder=builder, sdist=sdist, wheel=direct, wheel_of_sdist=wheel(sdist, "wheel_of_sdist")
    )


def version() -> str:
    found = re.search('"(.+)"', (ROOT / "ascend_k3" / "version.py").read_text(encoding="utf-8").splitlines()[-1])
    assert found is not None
    return found[1]


def expected_files(source: Path) -> set[str]:
    """Names in the wheel of every Python, C++ and CMake file of the five folders."""
    names = set()
    for folder in FOLDERS:
        package = "ascend_k3" if folder == "ascend_k3" else f"ascend_k3/{folder}"
        for file in (source / folder).rglob("*"):
            if file.suffix in (".py", ".h", ".hpp", ".cpp") or file.name in ("CMakeLists.txt", "py.typed"):
                names.add(f"{package}/{file.relative_to(source / folder).as_posix()}")
    return names


def test_the_wheel_holds_the_five_folders_and_nothing_else(build: Build) -> None:
    with zipfile.ZipFile(build.wheel) as archive:
        names = {name for name in archive.namelist() if not name.startswith(f"ascend_k3-{version()}.dist-info/")}
        assert archive.read(f"ascend_k3-{version()}.dist-info/top_level.txt").split() == [b"ascend_k3"]
    expected = expected_files(build.source)
    assert expected >= {"ascend_k3/py.typed", "ascend_k3/ops/planted/kernel/x.h"}
    missing = expected - names
    assert not missing, f"not in the wheel (is an __init__.py missing?): {sorted(missing)}"
    assert {name.split("/")[0] for name in names} == {"ascend_k3"}
    assert not {name for name in names if "/tests/" in name or "/benchmarks/" in name}


def test_the_sdist_builds_the_same_wheel(build: Build) -> None:
    with zipfile.ZipFile(build.wheel) as direct, zipfile.ZipFile(build.wheel_of_sdist) as indirect:
        record = f"ascend_k3-{version()}.dist-info/RECORD"
        assert set(direct.read(record).splitlines()) == set(indirect.read(record).splitlines())
    with tarfile.open(build.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {*PLANTED, "LICENSE", "README.md", "pyproject.toml", "setup.py"} <= names


@pytest.mark.parametrize("form", ["wheel", "wheel_of_sdist", "editable"])
def test_each_form_of_install_gives_the_same_imports(build: Build, form: str, tmp_path: Path) -> None:
    if form == "editable":
        # in the builder: an editable install needs setuptools when it is made, not when it is used
        environment, home = build.builder, build.source
        environment.pip("install", "--no-deps", "--no-index", "--no-build-isolation", "-e", build.source)
    else:
        environment = Environment.make(tmp_path / "environment")
        environment.pip("install", "--no-deps", "--no-index", getattr(build, form))
        home = environment.folder
    environment.show_dependencies()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command(environment.python, "-c", USE.format(home=str(home), version=version()), cwd=elsewhere)
    assert "demo" in command(environment.folder / "bin" / "ascend-k3", "--help", cwd=elsewhere)
    assert version() in command(environment.python, "-m", "ascend_k3", "--version", cwd=elsewhere)
