"""Reading JSON, and writing so that a reader finds the old file or all of the new one, and never a part."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from ascend_k3.ops.errors import CheckpointError


def read_json(path: str | Path) -> Any:
    """The content of a JSON file. Raises `CheckpointError` if it is none, or cannot be read."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise CheckpointError(f"{path}: it is not a regular file: download it again.")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
            raise CheckpointError(f"{path}: the key {twice!r} stands twice in one object: download the file again.")
        return found

    try:
        return json.loads(Path(path).read_text(encoding="utf-8"), object_pairs_hook=once)
    except OSError as error:
        raise CheckpointError(f"{path}: the file cannot be read ({error.strerror}).") from error
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: the file is not readable as JSON ({error}): download it again.") from error


def read_object(path: str | Path) -> dict[str, Any]:
    """`read_json` of a file that must hold a JSON object."""
    data = read_json(path)
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: the file must be a JSON object, got {type(data).__name__}: download it again.")
    return data


@contextmanager
def replaced(path: str | Path) -> Iterator[Path]:
    """A path to write to that takes the place of `path` when all went well, and disappears when not."""
    path = Path(path).resolve()
    if path.exists() and not path.is_file():
        raise FileExistsError(f"{path} is not a regular file, and only such a file is replaced; choose another.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} does not exist; make the folder that {path.name} goes into.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        temporary.touch()  # a place that cannot be written is told before any work is done for it
        yield temporary
        _settle(temporary)
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        _reraise(error, path)


def write_json(path: str | Path, data: Any) -> None:
    """Write JSON, indented, in place of `path`."""
    with replaced(path) as file:
        file.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A folder to fill that becomes `path` when all went well, and disappears when not.

    Raises: FileExistsError when `path` is a file or holds something; FileNotFoundError when its parent does not exist.
    """
    path = Path(path).resolve()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} exists and is not an empty folder; choose another, or remove it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} does not exist; make the folder that {path.name} goes into.")
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.partial-", dir=path.parent))
    except OSError as error:
        _reraise(error, path)
    try:
        yield folder
        for file in folder.iterdir():
            _settle(file)
        folder.chmod(0o777 & ~_umask())
        os.replace(folder, path)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        _reraise(error, path)


def save_tensors(tensors: dict[str, Any], path: Path) -> None:
    """`safetensors.torch.save_file`; a failure to write is an `OSError`, as from any other file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(
            f"{path.name} cannot be written ({error}); look at the space and the limits of the disk."
        ) from error


def _settle(file: Path) -> None:
    """Bring a file's content to the disk before its name, and give it the permissions of an ordinary new file."""
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())
    file.chmod(0o666 & ~_umask())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _reraise(error: BaseException, path: Path) -> NoReturn:
    """Raise the error again; that of a system call on a temporary name with the name that the caller knows."""
    if isinstance(error, OSError) and error.strerror and ".partial" in str(error.filename):
        raise type(error)(error.errno, error.strerror, str(path)) from error
    raise error
