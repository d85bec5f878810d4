"""Headers, index, manifest: what is read, and each refusal."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from ascend_k3.layout import TensorSpec
from ascend_k3.ops.errors import CheckpointError
from ascend_k3.shards import (
    INDEX_NAME,
    TensorEntry,
    read_header,
    read_index,
    read_manifest,
    read_tensor_bytes,
    scan_header,
    sha256_of,
    stays_inside,
)
from tests.ascend_k3.imitation import edit_header, write_sparse_shard
from tests.paths import FIXTURES


def shard_bytes(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(begin: object, end: object, dtype: object = "U8", shape: object = None) -> dict[str, object]:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "one.safetensors"
    specs = [TensorSpec("a", "BF16", (2, 3)), TensorSpec("b", "F32", (4,)), TensorSpec("c", "U8", (0,))]
    write_sparse_shard(path, specs)
    return path


def test_a_header_is_read_without_the_data(shard):
    header = read_header(shard)
    assert header.tensors == {
        "a": TensorEntry("BF16", (2, 3), 0, 12),
        "b": TensorEntry("F32", (4,), 12, 28),
        "c": TensorEntry("U8", (0,), 28, 28),
    }
    assert header.metadata == {"format": "pt"}
    assert (header.data_bytes, header.file_bytes) == (28, header.data_start + 28)
    assert header.length_problem() is None


def test_tensors_may_lie_in_another_order_than_they_are_named(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(shard_bytes({"late": tensor(4, 6), "early": tensor(0, 4)}, bytes(range(6))))
    header = read_header(path)
    assert read_tensor_bytes(path, header, "late") == b"\4\5"
    assert read_tensor_bytes(path, header, "early") == b"\0\1\2\3"


def test_a_shard_written_by_the_safetensors_library_is_read():
    import safetensors

    path = FIXTURES / "ckpt_mxfp4" / "model.safetensors"
    header = read_header(path)
    with safetensors.safe_open(path, "np") as file:
        assert set(file.keys()) == set(header.tensors)
        name = "language_model.model.layers.1.self_attn.A_log"
        assert read_tensor_bytes(path, header, name) == file.get_tensor(name).tobytes()


AGAIN = "download it again"
BAD_HEADERS = {
    "empty": (b"", f"has 0 bytes, too few for a header: {AGAIN}"),
    "seven bytes": (bytes(7), f"has 7 bytes, too few for a header: {AGAIN}"),
    "absurd length": (b"<!DOCTYPE html>", f"length would be .* 2 to 100,000,000; .* no safetensors file: {AGAIN}"),
    "length zero": (bytes(16), "length would be 0 bytes"),
    "ends in header": (shard_bytes({"a": tensor(0, 4)})[:-3], f"ends inside its header of .*: {AGAIN}"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid", "a Git LFS pointer, .*: run git lfs pull"),
    "no JSON": (shard_bytes(b'{"a": '), f"the header is not JSON .*: {AGAIN}"),
    "no UTF-8": (shard_bytes(b'{"\xff": 1}'), f"the header is not JSON .*: {AGAIN}"),
    "deep nesting": (shard_bytes(b'{"a":' + b"[" * 200_000), f"the header is not JSON .*: {AGAIN}"),
    "list": (shard_bytes([1, 2]), f"the header does not begin with '{{'; .*: {AGAIN}"),
    "metadata": (shard_bytes({"__metadata__": {"format": 1}}), f"__metadata__ .* must map strings to strings: {AGAIN}"),
    "overlap": (shard_bytes({"a": tensor(0, 4), "b": tensor(2, 6)}, bytes(6)), "b begins at byte 2 where 4 .* over"),
    "hole": (shard_bytes({"a": tensor(0, 4), "b": tensor(6, 8)}, bytes(8)), "b begins at byte 6 where 4 .* hole"),
    "hole at 0": (shard_bytes({"a": tensor(2, 4)}, bytes(4)), f"tensor a begins at byte 2 where 0 .*: {AGAIN}"),
    "negative": (shard_bytes({"a": tensor(-2, 2)}, bytes(4)), "tensor a begins at byte -2 where 0"),
    "extent": (shard_bytes({"a": tensor(0, 4, "F32", [2])}, bytes(4)), rf"a, F32 \[2\], needs 8 .* hold 4: {AGAIN}"),
    "dtype": (shard_bytes({"a": tensor(0, 4, "Q7")}, bytes(4)), f"dtype 'Q7', which is not known: {AGAIN}"),
    "entry": (shard_bytes({"a": 7}), f"tensor a lacks a dtype, a shape of .* two data_offsets .*: {AGAIN}"),
    "dtype list": (shard_bytes({"a": tensor(0, 4, ["U8"])}, bytes(4)), "tensor a lacks"),
    "shape": (shard_bytes({"a": tensor(0, 4, "U8", [4.0])}, bytes(4)), "tensor a lacks"),
    "negative shape": (shard_bytes({"a": tensor(0, 4, "U8", [-2, -2])}, bytes(4)), "tensor a lacks"),
    "many dimensions": (
        shard_bytes({"a": tensor(0, 4, "U8", [2] * 10**5)}, bytes(4)),
        f"a has 100,000 .* 64 allowed, .*: {AGAIN}",
    ),
    "huge dimension": (shard_bytes({"a": tensor(0, 4, "U8", [2**63])}, bytes(4)), "a has 1 dim.* a number of 2.*63"),
    "huge bytes": (shard_bytes({"a": tensor(0, 4, "U8", [2**62] * 64)}, bytes(4)), "a, U8 .* needs .* hold 4"),
    "huge offsets": (
        shard_bytes({"a": tensor(-9 * 10**4299, 9 * 10**4299, "U8", [4])}, bytes(4)),
        r"a number of 2\*\*63 or more in its shape or data_offsets",
    ),
    "same tensor": (shard_bytes(b'{"a": 1, "b": 2, "a": 3}'), f"the key 'a' stands twice in one object .*: {AGAIN}"),
    "same key": (
        shard_bytes(b'{"a": {"dtype": "U8", "shape": [0], "dtype": "I8", "data_offsets": [0, 0]}}'),
        "the key 'dtype' stands twice in one object of the header",
    ),
    "one offset": (shard_bytes({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0]}}), "tensor a lacks"),
    "offset words": (shard_bytes({"a": {"dtype": "U8", "shape": [4], "data_offsets": "04"}}), "tensor a lacks"),
}


@pytest.mark.parametrize("content, message", BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_a_bad_header_is_refused(tmp_path, content, message):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as error:
        read_header(path)
    assert str(error.value).startswith(f"{path}: ")
    assert str(error.value).count(str(path)) == 1
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change, message", [(-5, "5 bytes shorter than"), (+3, "3 bytes longer than")], ids=["short", "long"]
)
def test_a_file_of_the_wrong_length_is_refused_and_can_still_be_scanned(shard, change, message):
    with open(shard, "r+b") as file:
        file.truncate(shard.stat().st_size + change)
    with pytest.raises(CheckpointError, match=f"the file is {message} its header says: download it again"):
        read_header(shard)
    header = scan_header(shard)
    assert list(header.tensors) == ["a", "b", "c"]
    assert header.missing_bytes == -change


def test_an_absent_shard_and_a_folder_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be read .No such file"):
        read_header(tmp_path / "absent.safetensors")
    with pytest.raises(CheckpointError, match="it is a folder, not a file: remove it, and download"):
        read_header(tmp_path)


def test_a_pipe_and_links_to_nothing_are_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(CheckpointError, match="pipe.safetensors: it is not a regular file: download it again"):
        read_header(tmp_path / "pipe.safetensors")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("absent")
    for name in ("loop", "dangling"):
        with pytest.raises(CheckpointError, match=f"{name}: it is a symbolic link that leads to no file: download"):
            read_header(tmp_path / name)


def test_a_link_to_a_shard_is_read(shard, tmp_path):
    (tmp_path / "link.safetensors").symlink_to(shard)
    assert read_header(tmp_path / "link.safetensors") == read_header(shard)


def test_bytes_of_a_tensor_that_is_not_there_are_refused(shard):
    header = read_header(shard)
    with pytest.raises(CheckpointError, match=f"tensor z is not in this shard; look up its shard in {INDEX_NAME}"):
        read_tensor_bytes(shard, header, "z")
    with open(shard, "r+b") as file:
        file.truncate(header.data_start + 20)
    with pytest.raises(CheckpointError, match="the file ends inside tensor b: download it again"):
        read_tensor_bytes(shard, header, "b")
    shard.unlink()
    with pytest.raises(CheckpointError, match="the file cannot be read"):
        read_tensor_bytes(shard, header, "b")


def test_index_of_one_file_with_and_without_an_index_file(tmp_path):
    source = FIXTURES / "ckpt_mxfp4"
    shutil.copy(source / "model.safetensors", tmp_path)
    without = read_index(tmp_path)
    assert len(without) == 636 and set(without.values()) == {"model.safetensors"}
    assert read_index(source) == without
    (tmp_path / INDEX_NAME).write_text(json.dumps({"weight_map": {"a": "other.safetensors"}}))
    assert read_index(tmp_path) == {"a": "other.safetensors"}  # the index goes before the file


def test_a_folder_without_index_and_single_file_is_refused(tmp_path):
    (tmp_path / "model-00001-of-00002.safetensors").touch()
    with pytest.raises(CheckpointError, match=f"neither {INDEX_NAME} nor model.safetensors is there"):
        read_index(tmp_path)


BAD_INDEXES = {
    "no JSON": ("{", "is not readable as JSON .*: download it again"),
    "deep nesting": ("[" * 200_000, "is not readable as JSON"),
    "list": ("[]", "must be an object with an object 'weight_map': download it again"),
    "no weight_map": ("{}", "must be an object with an object 'weight_map'"),
    "weight_map list": ('{"weight_map": ["a"]}', "must be an object with an object 'weight_map'"),
    "number": ('{"weight_map": {"a": 1}}', "maps a to 1, not to a file name"),
    "nested": ('{"weight_map": {"a": ["b"]}}', r"maps a to \['b'\], not to a file name"),
    "metadata": ('{"metadata": 3, "weight_map": {}}', "'metadata' in the index must be an object"),
    "parent": ('{"weight_map": {"a": "../b"}}', "shard name '../b' leaves the folder"),
    "long name": (
        json.dumps({"weight_map": {"a": "x" * 5000}}),
        "shard name 'x{40}'... has 5,000 characters, and a file name at most 255 bytes: download it again",
    ),
    "same tensor": ('{"weight_map": {"a": "b", "a": "c"}}', "the key 'a' stands twice"),
    "absolute": ('{"weight_map": {"a": "/etc/b"}}', "shard name '/etc/b' leaves the folder"),
}


@pytest.mark.parametrize("content, message", BAD_INDEXES.values(), ids=BAD_INDEXES)
def test_a_bad_index_is_refused(tmp_path, content, message):
    (tmp_path / INDEX_NAME).write_text(content)
    with pytest.raises(CheckpointError, match=message):
        read_index(tmp_path)


@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to(path)], ids=["pipe", "folder", "loop"]
)
def test_an_index_that_is_no_file_is_not_passed_over_for_the_single_shard(tmp_path, make):
    shutil.copy(FIXTURES / "ckpt_mxfp4" / "model.safetensors", tmp_path)
    make(tmp_path / INDEX_NAME)
    with pytest.raises(CheckpointError, match=f"{INDEX_NAME}: (it is not a regular file|the file cannot be read)"):
        read_index(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "sub/model.safetensors", "..model", "a..b/c"])
def test_names_inside_the_folder_are_accepted(name):
    assert stays_inside(name)


@pytest.mark.parametrize("name", ["", ".", "..", "/a", "../a", "a/../../b", "C:/a", "a\\..\\b", "a\0b"])
def test_names_that_leave_the_folder_are_recognised(name):
    assert not stays_inside(name)


def test_a_manifest_is_read_in_both_forms(tmp_path):
    path = tmp_path / "SHA256SUMS"
    path.write_text(f"# of the release\n{'a' * 64}  one.json\n\n{'B' * 64} *./sub/two words.bin\r\n")
    assert read_manifest(path) == {"one.json": "a" * 64, "sub/two words.bin": "b" * 64}


BAD_MANIFESTS = {
    "short hash": ("abc  one\n", "line 1 is 'abc  one'; it must be a SHA-256, two spaces, a file name"),
    "no name": (f"# x\n{'a' * 64}\n", "line 2 is"),
    "parent": (f"{'a' * 64}  ../one\n", "line 1 names '../one', which leaves the checkpoint's folder"),
    "two hashes": (f"{'a' * 64}  one\n{'b' * 64}  one\n", "line 2 gives one a second, different hash"),
    "empty": ("\n", "the manifest names no file; write it with sha256sum"),
}


@pytest.mark.parametrize("content, message", BAD_MANIFESTS.values(), ids=BAD_MANIFESTS)
def test_a_bad_manifest_is_refused(tmp_path, content, message):
    path = tmp_path / "SHA256SUMS"
    path.write_text(content)
    with pytest.raises(CheckpointError, match=message):
        read_manifest(path)


def test_an_absent_and_a_binary_manifest_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no file; give the manifest"):
        read_manifest(tmp_path / "absent")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\0")
    with pytest.raises(CheckpointError, match="the manifest is not readable as text"):
        read_manifest(tmp_path / "binary")


def test_sha256_tells_of_the_bytes_it_has_read(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(bytes(9 << 20))
    steps: list[int] = []
    assert sha256_of(path, steps.append) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert len(steps) == 2 and sum(steps) == 9 << 20


def test_a_changed_header_keeps_the_data(shard):
    edit_header(shard, lambda header: header.pop("__metadata__"))
    assert read_header(shard).metadata == {}
