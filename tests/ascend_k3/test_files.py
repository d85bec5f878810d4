"""A file or a folder is there whole, or as it was."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ascend_k3 import CheckpointError
from ascend_k3.files import new_folder, read_json, read_object, replaced, write_json


def test_json_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "index.json"
    write_json(path, {"b": "ü", "a": 1})
    assert path.read_text(encoding="utf-8") == '{\n  "b": "ü",\n  "a": 1\n}\n'
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"b": "ü", "a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_text("old")
    with pytest.raises(OSError, match="full"), replaced(path) as file:
        file.write_text("ne")
        raise OSError("disk full")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with (
            pytest.raises(FileExistsError, match="is not a regular file, and only such a file is replaced"),
            replaced(path),
        ):
            pass
    with pytest.raises(CheckpointError, match="pipe: it is not a regular file"):
        read_json(tmp_path / "pipe")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    with replaced(tmp_path / "link") as file:
        file.write_text("new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "new"


def test_a_key_that_stands_twice_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": {"b": 1, "b": 2}}')
    with pytest.raises(CheckpointError, match="x.json: the key 'b' stands twice in one object"):
        read_json(tmp_path / "x.json")


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "new"
    with new_folder(target) as folder:
        (folder / "a").write_text("1")
        assert not target.exists()
    assert [file.name for file in target.iterdir()] == ["a"]
    with pytest.raises(RuntimeError), new_folder(tmp_path / "other") as folder:
        (folder / "a").write_text("1")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_with_content_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path, tmp_path / "file"):
        with (
            pytest.raises(FileExistsError, match="exists and is not an empty folder; choose another"),
            new_folder(path),
        ):
            pass
    missing = tmp_path / "a" / "b"
    with pytest.raises(FileNotFoundError, match="make the folder that b goes into"), new_folder(missing):
        pass
    assert (tmp_path / "file").read_text() == "mine"


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    with new_folder(tmp_path) as folder:
        (folder / "a").write_text("1")
    assert (tmp_path / "a").read_text() == "1"


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[" * 100_000], ids=["cut", "binary", "deep"])
def test_what_is_no_json_is_said_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="x.json: the file is not readable as JSON"):
        read_json(path)


def test_what_is_no_object_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(CheckpointError, match="must be a JSON object, got list"):
        read_object(tmp_path / "x.json")
    with pytest.raises(CheckpointError, match="it is not a regular file"):
        read_json(tmp_path)
