"""Reading JSON, and writing so that a reader finds the old file or all of the new one, and never a part."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ascend_k3.ops.errors import CheckpointError


def read_json(path: str | Path) -> Any:
    """The content of a JSON file. Raises `CheckpointError` if it is none, or cannot be read."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: the file cannot be read ({error.strerror}).") from error
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
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())  # the content reaches the disk before the name does
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: str | Path, data: Any) -> None:
    """Write JSON, indented, in place of `path`."""
    with replaced(path) as file:
        file.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A folder to fill that becomes `path` when all went well, and disappears when not.

    Raises: FileExistsError when `path` is a file or holds something; FileNotFoundError when its parent does not exist.
    """
    path = Path(path).absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} exists and is not an empty folder; choose another, or remove it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} does not exist; make the folder that {path.name} goes into.")
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.partial-", dir=path.parent))
    try:
        yield folder
        folder.chmod(0o755)
        os.replace(folder, path)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
