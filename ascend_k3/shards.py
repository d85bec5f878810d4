"""The files of a safetensors checkpoint: headers, index, manifest. Reads no weights; uses no torch itself.

A shard is 8 bytes (length N of the header, little endian), N bytes of JSON (name -> dtype, shape, [begin, end) counted
from the end of the header), and the tensors, which fill the rest of the file without gaps.

Source: the safetensors format, https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

from ascend_k3.files import read_json
from ascend_k3.layout import DTYPE_BYTES
from ascend_k3.ops.errors import CheckpointError

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_LENGTH_BYTES = 8
_LFS_POINTER = b"version https://git-lfs"
_MANIFEST_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")
_HASH_CHUNK = 8 << 20
_MAX_DIMENSIONS = 64  # of a tensor; PyTorch has no more
_MAX_NAME_BYTES = 255  # of a file, on the usual file systems


class TensorEntry(NamedTuple):
    """One tensor in a shard; `begin` and `end` are bytes after the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardHeader:
    """What a shard's header says, and the length that the file has."""

    tensors: dict[str, TensorEntry]
    metadata: dict[str, str]
    data_start: int  # bytes before the first tensor
    data_bytes: int  # bytes of all tensors
    file_bytes: int

    @property
    def missing_bytes(self) -> int:
        """Bytes by which the file is shorter than its header says; negative if it is longer."""
        return self.data_start + self.data_bytes - self.file_bytes

    def length_problem(self) -> str | None:
        """What is wrong with the length of the file and what to do, or None."""
        if self.missing_bytes > 0:
            return f"the file is {self.missing_bytes:,} bytes shorter than its header says: download it again."
        if self.missing_bytes < 0:
            return f"the file is {-self.missing_bytes:,} bytes longer than its header says: download it again."
        return None


def read_header(path: str | Path) -> ShardHeader:
    """Read and check the header of a shard; no other byte is read.

    Raises:
        CheckpointError: the file is absent, no shard, damaged in its header, or not as long as the header says.
    """
    header = scan_header(path)
    problem = header.length_problem()
    if problem is not None:
        raise CheckpointError(f"{path}: {problem}")
    return header


def scan_header(path: str | Path) -> ShardHeader:
    """As `read_header`, but a file of the wrong length is accepted: `length_problem` of the result tells."""
    raw, file_bytes = _read_raw_header(path)
    if raw[:1] != b"{":
        raise CheckpointError(f"{path}: the header does not begin with '{{'; the file is damaged: download it again.")
    try:
        data = json.loads(raw.decode("utf-8"), object_pairs_hook=partial(_once, path))
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: the header is not JSON ({error}): download it again.") from error
    metadata = data.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CheckpointError(f"{path}: __metadata__ in the header must map strings to strings: download it again.")
    tensors = {name: _entry(path, name, info) for name, info in data.items()}
    return ShardHeader(
        tensors=tensors,
        metadata=metadata,
        data_start=_LENGTH_BYTES + len(raw),
        data_bytes=_check_extents(path, tensors),
        file_bytes=file_bytes,
    )


def read_tensor_bytes(path: str | Path, header: ShardHeader, name: str) -> bytes:
    """The stored bytes of one tensor (meant for small ones). Raises `CheckpointError` if they are not there."""
    if name not in header.tensors:
        raise CheckpointError(f"{path}: tensor {name} is not in this shard; look up its shard in {INDEX_NAME}.")
    entry = header.tensors[name]
    try:
        with open(path, "rb") as file:
            file.seek(header.data_start + entry.begin)
            data = file.read(entry.end - entry.begin)
    except OSError as error:
        raise CheckpointError(f"{path}: the file cannot be read ({error.strerror}).") from error
    if len(data) != entry.end - entry.begin:
        raise CheckpointError(f"{path}: the file ends inside tensor {name}: download it again.")
    return data


def read_index(folder: str | Path) -> dict[str, str]:
    """Name of each tensor -> file name of its shard.

    From the index; from the header of `model.safetensors` if that is alone, which a checkpoint of one file may be.

    Raises:
        CheckpointError: neither exists, or the index cannot be used.
    """
    folder = Path(folder)
    if os.path.lexists(folder / INDEX_NAME):
        return read_index_file(folder / INDEX_NAME)[0]
    if os.path.lexists(folder / SINGLE_NAME):
        return dict.fromkeys(read_header(folder / SINGLE_NAME).tensors, SINGLE_NAME)
    raise CheckpointError(
        f"{folder}: neither {INDEX_NAME} nor {SINGLE_NAME} is there; give the folder of a checkpoint, "
        "or download them again."
    )


def read_index_file(path: str | Path) -> tuple[dict[str, str], dict[str, Any]]:
    """`weight_map` (tensor -> file name) and `metadata` of an index. Raises `CheckpointError`."""
    data = read_json(path)
    if not isinstance(data, dict) or not isinstance(data.get("weight_map"), dict):
        raise CheckpointError(f"{path}: the index must be an object with an object 'weight_map': download it again.")
    weight_map = data["weight_map"]
    metadata = data.get("metadata", {})
    if not isinstance(metadata, dict):
        raise CheckpointError(f"{path}: 'metadata' in the index must be an object: download it again.")
    for name, file in weight_map.items():
        if type(file) is not str:
            raise CheckpointError(f"{path}: the index maps {name} to {file!r}, not to a file name: download it again.")
    for file in sorted(set(weight_map.values())):
        if not stays_inside(file):
            raise CheckpointError(f"{path}: shard name {file!r} leaves the folder; use an index of shards beside it.")
        if len(file.encode("utf-8", "surrogatepass")) > _MAX_NAME_BYTES:
            raise CheckpointError(
                f"{path}: shard name {file[:40]!r}... has {len(file):,} characters, and a file name at most "
                f"{_MAX_NAME_BYTES} bytes: download it again."
            )
    return weight_map, metadata


def read_manifest(path: str | Path) -> dict[str, str]:
    """File name -> SHA-256 in lower case, from lines as `sha256sum` writes them: `HASH  name` or `HASH *name`.

    Empty lines and lines that begin with # are passed over. Names are relative to the checkpoint's folder.

    Raises:
        FileNotFoundError: no such manifest.
        CheckpointError: a line is not of this form, leaves the folder or gives a file a second hash; or there is none.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is no file; give the manifest that sha256sum wrote.")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: the manifest is not readable as text ({error}).") from error
    hashes: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _MANIFEST_LINE.fullmatch(line)
        if match is None:
            raise CheckpointError(f"{path}: line {number} is {line!r}; it must be a SHA-256, two spaces, a file name.")
        name = str(PurePosixPath(match[2]))
        if not stays_inside(name):
            raise CheckpointError(f"{path}: line {number} names {name!r}, which leaves the checkpoint's folder.")
        if hashes.setdefault(name, match[1].lower()) != match[1].lower():
            raise CheckpointError(f"{path}: line {number} gives {name} a second, different hash; keep the right one.")
    if not hashes:
        raise CheckpointError(f"{path}: the manifest names no file; write it with sha256sum.")
    return hashes


def sha256_of(path: str | Path, advance: Callable[[int], None] | None = None) -> str:
    """SHA-256 of a file, in lower-case hex; `advance(n)` is told of each n bytes."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_HASH_CHUNK):
            digest.update(chunk)
            if advance is not None:
                advance(len(chunk))
    return digest.hexdigest()


def stays_inside(name: str) -> bool:
    """Whether a file name taken from a file lies in the folder it is used in: relative, without `..`."""
    parts = PurePosixPath(name).parts
    return bool(parts) and not (
        name.startswith("/") or ".." in parts or "\\" in name or "\0" in name or PureWindowsPath(name).drive
    )


def _read_raw_header(path: str | Path) -> tuple[bytes, int]:
    """The JSON bytes of a header, and the length of the file."""
    try:
        _refuse_other_than_file(path)
        with open(path, "rb") as file:
            file_bytes = os.fstat(file.fileno()).st_size
            first = file.read(len(_LFS_POINTER))
            if first == _LFS_POINTER:
                raise CheckpointError(f"{path}: the file is a Git LFS pointer, not the weights: run git lfs pull.")
            if len(first) < _LENGTH_BYTES:
                raise CheckpointError(
                    f"{path}: the file has {file_bytes} bytes, too few for a header: download it again."
                )
            length = int.from_bytes(first[:_LENGTH_BYTES], "little")
            if not 2 <= length <= MAX_HEADER_BYTES:
                raise CheckpointError(
                    f"{path}: the header's length would be {length:,} bytes, and may be 2 to {MAX_HEADER_BYTES:,}; "
                    "the file is damaged or is no safetensors file: download it again."
                )
            if length > file_bytes - _LENGTH_BYTES:
                raise CheckpointError(
                    f"{path}: the file has {file_bytes:,} bytes and ends inside its header of {length:,}: "
                    "download it again."
                )
            file.seek(_LENGTH_BYTES)
            return file.read(length), file_bytes
    except OSError as error:
        raise CheckpointError(f"{path}: the file cannot be read ({error.strerror}).") from error


def _refuse_other_than_file(path: str | Path) -> None:
    """Say what a path is that is no file; opening a pipe would wait for somebody to write."""
    if os.path.islink(path) and not os.path.exists(path):
        raise CheckpointError(f"{path}: it is a symbolic link that leads to no file: download it again.")
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise CheckpointError(f"{path}: it is a folder, not a file: remove it, and download the file if it is due.")
    if not stat.S_ISREG(mode):
        raise CheckpointError(f"{path}: it is not a regular file: download it again.")


def _once(path: str | Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; of a key that stands twice, Python's reader would silently keep the last value."""
    found = dict(pairs)
    if len(found) != len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise CheckpointError(f"{path}: the key {twice!r} stands twice in one object of the header: download it again.")
    return found


def _entry(path: str | Path, name: str, info: Any) -> TensorEntry:
    try:
        dtype, shape, (begin, end) = info["dtype"], info["shape"], info["data_offsets"]
        well_formed = type(dtype) is str and type(shape) is list and all(type(n) is int and n >= 0 for n in shape)
        well_formed = well_formed and type(begin) is int and type(end) is int
    except (TypeError, KeyError, ValueError, IndexError):
        well_formed = False
    if not well_formed:
        raise CheckpointError(
            f"{path}: tensor {name} lacks a dtype, a shape of whole numbers or two data_offsets in the header: "
            "download it again."
        )
    if len(shape) > _MAX_DIMENSIONS or max(*shape, abs(begin), abs(end), 0) >= 2**63:
        raise CheckpointError(
            f"{path}: tensor {name} has {len(shape):,} dimensions, of {_MAX_DIMENSIONS} allowed, or a number of 2**63 "
            "or more in its shape or data_offsets: download it again."
        )
    if dtype not in DTYPE_BYTES:
        raise CheckpointError(f"{path}: tensor {name} has dtype {dtype!r}, which is not known: download it again.")
    wanted = DTYPE_BYTES[dtype] * prod(shape)
    if end - begin != wanted:
        raise CheckpointError(
            f"{path}: tensor {name}, {dtype} {shape}, needs {wanted:,} bytes; its data_offsets [{begin}, {end}] "
            f"hold {end - begin:,}: download it again."
        )
    return TensorEntry(dtype, tuple(shape), begin, end)


def _check_extents(path: str | Path, tensors: dict[str, TensorEntry]) -> int:
    """The bytes of all tensors, which must follow each other from 0 without hole or overlap."""
    position = 0
    for name, entry in sorted(tensors.items(), key=lambda item: item[1][2:]):
        if entry.begin != position:
            kind = "overlaps the tensor before it" if entry.begin < position else "leaves a hole before it"
            raise CheckpointError(
                f"{path}: tensor {name} begins at byte {entry.begin:,} where {position:,} is due, so it {kind}; "
                "the header is damaged: download it again."
            )
        position = entry.end
    return position
