"""Compile an Ascend C kernel with the machine's own C++ compiler, against the emulator's headers.

A kernel becomes two shared objects, as it does on the device: one for cube cores, one for vector cores. What is built
is kept in a cache folder of the user, by the content of everything that went into it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ascend_k3.ops.errors import BackendError

HERE = Path(__file__).parent
INCLUDE = HERE / "include"
RUNTIME = HERE / "runtime"
FLAGS = (
    "-std=c++17",
    "-O2",
    "-ftree-vectorize",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-gnu-unique",
    "-fPIC",
    "-shared",
    "-Wl,-Bsymbolic",
)
VIEWS = ("AIC", "AIV")
MOST_ERRORS = 8  # of the compiler's, that a message shows
MOST_FORMS = 4  # of a call whose arguments fit none


class KernelBuildError(BackendError):
    """The compiler refused a kernel; the message holds its first errors."""


def cache_folder() -> Path:
    """Where built objects are kept: $ASCEND_K3_CACHE, or ascend_k3 in the user's cache folder."""
    chosen = os.environ.get("ASCEND_K3_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ascend_k3"


@functools.cache
def compiler() -> tuple[str, str]:
    """The compiler's path and version line: $CXX, or g++."""
    name = os.environ.get("CXX", "g++")
    path = shutil.which(name)
    if path is None:
        raise BackendError(
            f"the emulator needs a C++17 compiler: {name!r} is not on PATH; install g++ 11 or later, or set CXX."
        )
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return path, version


@functools.cache
def _machine_flags() -> tuple[str, ...]:
    # Half precision conversions and wide loops; what is computed does not depend on it.
    if platform.machine() == "x86_64":
        info = Path("/proc/cpuinfo")
        if info.exists() and {"avx2", "f16c", "fma", "bmi2"} <= set(
            info.read_text().split("flags", 1)[-1].split("\n", 1)[0].split()
        ):
            return ("-march=x86-64-v3",)
    return ()


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def compile_object(name: str, text: str, *, flags: Sequence[str], sources: Iterable[Path] = ()) -> Path:
    """The shared object of C++ `text` and `sources`, from the cache when nothing that it was made of has changed.

    Raises: KernelBuildError with the compiler's first errors; BackendError without a compiler.
    """
    path, version = compiler()
    sources = list(sources)
    command = [*FLAGS, *_machine_flags(), *flags]
    key = _digest(version, *command, text, *(str(source) for source in sources))[:24]
    folder = cache_folder() / "emulator"
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / f"{name}-{key}.json"
    before = _kept(manifest)
    if before is not None and before[1]:
        return before[0]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        main = Path(scratch) / "main.cpp"
        main.write_text(text)
        built, depends = Path(scratch) / "built.so", Path(scratch) / "depends"
        inputs = [str(source) for source in sources] or [str(main)]
        if len(inputs) > 1:
            objects = []
            for number, source in enumerate(inputs):
                objects.append(str(Path(scratch) / f"{number}.o"))
                compiled = [flag for flag in command if flag not in ("-shared", "-Wl,-Bsymbolic")]
                _run([path, *compiled, "-c", source, "-o", objects[-1], "-MMD", "-MF", f"{depends}{number}"], name)
            _run([path, *command, *objects, "-o", str(built)], name)
            texts = [Path(f"{depends}{number}").read_text() for number in range(len(inputs))]
        else:
            _run([path, *command, *inputs, "-o", str(built), "-MMD", "-MF", str(depends)], name)
            texts = [depends.read_text()]
        used = {file for one in texts for file in _dependencies(one) if file != str(main)}
        hashes = {file: _digest(Path(file).read_bytes()) for file in sorted(used)}
        # The name follows the content: this process may have loaded what was built of other content.
        target = folder / f"{name}-{key}-{_digest(json.dumps(hashes))[:16]}.so"
        written = Path(scratch) / "manifest"
        written.write_text(json.dumps({"object": target.name, "files": hashes}))
        os.replace(built, target)
        os.replace(written, manifest)
    if before is not None and before[0] != target:
        before[0].unlink(missing_ok=True)
    return target


def _kept(manifest: Path) -> tuple[Path, bool] | None:
    """The object that a manifest names, and whether the files that it was made of are as they were."""
    try:
        kept = json.loads(manifest.read_text())
        target = manifest.parent / kept["object"]
        same = all(_file_digest(file) == digest for file, digest in kept["files"].items())
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return target, same and target.exists()


def _file_digest(file: str) -> str:
    status = os.stat(file)
    return _stat_digest(file, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=4096)
def _stat_digest(file: str, modified: int, size: int) -> str:
    return _digest(Path(file).read_bytes())


def _dependencies(rule: str) -> list[str]:
    return rule.split(":", 1)[1].replace("\\\n", " ").split()


def _run(command: list[str], name: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return
    lines = _errors(done.stderr) or done.stderr.splitlines()[:MOST_ERRORS]
    raise KernelBuildError(f"{name} does not compile for the emulator:\n  " + "\n  ".join(lines))


def _errors(text: str) -> list[str]:
    """The first errors; before one within the emulator's headers the line of the kernel that leads to it, once.

    Behind a call whose arguments fit no form of it: the first of those that there are.
    """
    lines: list[str] = []
    errors = forms = 0
    leads: list[str] = []  # "required from" lines before the next error
    for line in text.splitlines():
        form = re.search(r"note: candidate: \W(.*)\W$", line)
        if form and lines and forms < MOST_FORMS and " no matching function " in lines[-1 - forms]:
            lines.append("    there is: " + form[1].replace(", emulator::Site)", ")"))
            forms += 1
        elif re.search(r"required (from|by)|in .constexpr. expansion of", line):
            leads.append(line.strip())
        elif re.search(r"\berror: ", line):
            if errors == MOST_ERRORS:
                break
            outside = [lead for lead in leads if not lead.startswith(str(INCLUDE))]
            if line.startswith(str(INCLUDE)) and outside and outside[-1] not in lines:
                lines.append(outside[-1])
            lines.append(line)
            leads = []
            errors, forms = errors + 1, 0
    return lines


@functools.cache
def _loaded(path: Path, global_symbols: bool) -> ctypes.CDLL:
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL if global_symbols else ctypes.RTLD_LOCAL)


@functools.cache
def runtime() -> ctypes.CDLL:
    """The machine itself, which kernels call."""
    sources = sorted(RUNTIME.glob("*.cpp"))
    return _loaded(compile_object("runtime", "", flags=("-fvisibility=default",), sources=sources), True)


@functools.cache
def _headers_digest() -> str:
    return _digest(*(part for file in sorted(INCLUDE.rglob("*.h")) for part in (str(file), file.read_bytes())))


@functools.cache
def _precompiled(flags: tuple[str, ...]) -> Path:
    """The emulator's headers, read once by the compiler for these flags: most of the time that a build takes."""
    path, version = compiler()
    command = [flag for flag in (*FLAGS, *_machine_flags(), *flags) if flag not in ("-shared", "-Wl,-Bsymbolic")]
    folder = cache_folder() / "emulator" / f"headers-{_digest(version, *command, _headers_digest())[:24]}"
    header = folder / "headers.h"
    if not (folder / "headers.h.gch").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            source = Path(scratch) / "headers.h"
            source.write_text('#include "kernel_operator.h"\n#include "emulator/entry.h"\n')
            _run([path, *command, "-x", "c++-header", str(source), "-o", f"{source}.gch"], "kernel_operator.h")
            folder.mkdir(exist_ok=True)
            os.replace(source, header)
            os.replace(f"{source}.gch", folder / "headers.h.gch")
    return header


def kernel_object(
    source: Path, entry: str, view: str, arch: int, include_dirs: Sequence[Path], defines: Mapping[str, object]
) -> ctypes.CDLL:
    """One view of a kernel, loaded."""
    runtime()
    text = f'#include "{source}"\nEMULATOR_ENTRY({entry})\n// {_headers_digest()}\n'
    flags = [f"-D__NPU_ARCH__={arch}", f"-DASC_VIEW_{view}", "-fvisibility=hidden", f"-I{INCLUDE}"]
    flags += ["-include", str(_precompiled(tuple(flags))), f"-I{source.parent}"]
    flags += [f"-I{Path(folder).resolve()}" for folder in include_dirs]
    flags += [f"-D{name}={value}" if value is not True else f"-D{name}" for name, value in defines.items()]
    try:
        return _loaded(compile_object(f"{source.stem}-{view}-{arch}", text, flags=flags), False)
    except KernelBuildError as error:
        if re.search(rf"main\.cpp:2:\d+: error: \W{re.escape(entry)}\W was not declared", str(error)):
            raise KernelBuildError(
                f'{source.name} has no kernel {entry}: entry is the name of an `extern "C" __global__ __aicore__` '
                "function, outside of any namespace."
            ) from None
        raise
