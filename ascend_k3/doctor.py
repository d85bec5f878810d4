"""The checkpoint doctor: compares config, index and shards of a checkpoint with each other and the released layout.

It reads JSON files and headers, and of the weights only the padding of `A_log`; with a manifest it also hashes files.
Nothing is fetched and nothing is changed; torch is not used. `problems.py` has the words for what is found.
"""

from __future__ import annotations

import gc
import os
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ascend_k3.config import K3Config
from ascend_k3.files import read_json, read_object
from ascend_k3.layout import ROOT, VISION_ROOTS, ExpertFormat, TensorSpec, linear_modules, tensor_specs
from ascend_k3.ops.errors import CheckpointError
from ascend_k3.problems import CheckReport, Findings, Problem, format_problem, report_as_json
from ascend_k3.shards import (
    INDEX_NAME,
    SINGLE_NAME,
    ShardHeader,
    TensorEntry,
    read_index_file,
    read_manifest,
    read_tensor_bytes,
    scan_header,
    sha256_of,
)

__all__ = ["CheckReport", "Problem", "check_checkpoint", "format_problem", "report_as_json"]

Progress = Callable[[int, int], None]

_SHARD_NAME = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})\.safetensors")
_EXPERTS = ".block_sparse_moe.experts."
_DTYPE_REASONS = {
    "F32": "gates, convolutions and routing keep these few tensors in float32, other dtypes have lost digits; "
    "take them from the release",
    "BF16": "float16 has another range and wider dtypes only take memory; convert the weights to bfloat16",
    "U8": "MXFP4 codes and scales are stored as bytes; convert the weights again",
}


class _Located(NamedTuple):
    file: str
    name: str  # as stored
    entry: TensorEntry


def check_checkpoint(
    path: str | Path, manifest: str | Path | None = None, progress: Progress | None = None
) -> CheckReport:
    """Check the checkpoint in folder `path` without loading it.

    Args:
        manifest: file of `sha256sum` lines; each file that it names is read whole and compared.
        progress: called with (done, total): shards whose headers are read; with a manifest, bytes that are hashed.
    Raises:
        FileNotFoundError, NotADirectoryError: `path` is not a folder, or the manifest does not exist.
        CheckpointError: the manifest has a line that is not understood.
    """
    folder = Path(path)
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist; give the folder of a checkpoint.")
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; give the folder of a checkpoint.")
    hashes = None if manifest is None else read_manifest(manifest)
    collects = gc.isenabled()
    gc.disable()  # a million small tuples and no cycles: walking them again and again would take half of the time
    try:
        return _check(folder, hashes, progress)
    finally:
        if collects:
            gc.enable()


def _check(folder: Path, hashes: Mapping[str, str] | None, progress: Progress | None) -> CheckReport:
    found = Findings()
    config = _check_config(folder, found)
    on_disk = sorted(file.name for file in folder.glob("*.safetensors"))
    weight_map, total_size = _check_index(folder, found)
    tensors_in = Counter((weight_map or {}).values())
    if weight_map is not None:
        named = set(tensors_in)
    else:  # without an index a file called model.safetensors is the whole checkpoint
        named = {SINGLE_NAME} if SINGLE_NAME in on_disk else set(on_disk)
    headers = _read_headers(folder, on_disk, named, tensors_in, found, progress if hashes is None else None)
    _check_shard_count(named, found)
    owner = _owners(headers, named, found)
    unread = _compare_with_index(headers, weight_map, owner, found)
    located, unread = _released_names(headers, owner, unread, found)
    size = sum(tensor.entry.end - tensor.entry.begin for tensor in located.values())
    if total_size not in (None, size) and not unread:
        found.add("total-size", INDEX_NAME, told=total_size, size=size)
    if config is not None:
        if located or unread:
            _check_layout(config, located, unread, INDEX_NAME if weight_map is not None else SINGLE_NAME, found)
            _check_a_log(folder, config, headers, located, found)
        _check_tokens(folder, config, found)
    if not (folder / "tiktoken.model").is_file():
        found.add("tokenizer-missing", "tiktoken.model")
    if hashes is not None:
        _check_hashes(folder, hashes, on_disk, found, progress)
    return CheckReport(problems=found.ordered(), shards=len(headers), tensors=len(owner), bytes=size)


def _check_config(folder: Path, found: Findings) -> K3Config | None:
    file = folder / "config.json"
    if not os.path.lexists(file):
        found.add("config-missing", file.name)
        return None
    try:
        return K3Config.from_dict(read_json(file))
    except CheckpointError as error:
        found.add("config-invalid", file.name, reason=_without_path(error, file))
        return None


def _check_index(folder: Path, found: Findings) -> tuple[dict[str, str] | None, Any]:
    """The index's map from tensors to shards, if it can be read, and the total size that it tells."""
    file = folder / INDEX_NAME
    if os.path.lexists(file):
        try:
            weight_map, metadata = read_index_file(file)
            return weight_map, metadata.get("total_size")
        except CheckpointError as error:
            found.add("index-invalid", INDEX_NAME, reason=_without_path(error, file))
    elif not os.path.lexists(folder / SINGLE_NAME):
        found.add("index-missing", INDEX_NAME, single=SINGLE_NAME)
    return None, None


def _read_headers(
    folder: Path,
    on_disk: list[str],
    named: set[str],
    tensors_in: Mapping[str, int],
    found: Findings,
    progress: Progress | None,
) -> dict[str, ShardHeader]:
    headers: dict[str, ShardHeader] = {}
    files = sorted({*on_disk, *named})
    for done, name in enumerate(files, start=1):
        if not os.path.lexists(folder / name):
            found.add("shard-missing", name, count=tensors_in[name])
        else:
            try:
                header = headers[name] = scan_header(folder / name)
                if (problem := header.length_problem()) is not None:
                    code = "shard-truncated" if header.missing_bytes > 0 else "shard-too-long"
                    found.add(code, name, reason=problem)
            except CheckpointError as error:
                found.add("shard-header", name, reason=_without_path(error, folder / name))
        if name not in named:
            found.add("shard-not-in-index", name)
        if progress is not None:
            progress(done, len(files))
    return headers


def _check_shard_count(names: Iterable[str], found: Findings) -> None:
    numbers: dict[tuple[str, str], set[int]] = {}
    for match in filter(None, map(_SHARD_NAME.fullmatch, names)):
        numbers.setdefault((match[1], match[3]), set()).add(int(match[2]))
    for (stem, total), present in sorted(numbers.items()):
        absent = int(total) - sum(1 <= number <= int(total) for number in present)
        if absent:
            first = next(number for number in range(1, int(total) + 1) if number not in present)
            where = f"{stem}-{first:05d}-of-{total}.safetensors"
            found.add("shard-count", where, total=int(total), count=absent)


def _owners(headers: Mapping[str, ShardHeader], named: set[str], found: Findings) -> dict[str, str]:
    """The shard that holds each tensor. Shards of the index go before files that it does not name."""
    owner: dict[str, str] = {}
    for file in sorted(headers, key=lambda file: (file not in named, file)):
        for name in headers[file].tensors:
            other = owner.setdefault(name, file)
            if other != file and file in named:
                found.add("tensor-twice", f"{file}: {name}", other=other)
    return owner


def _compare_with_index(
    headers: Mapping[str, ShardHeader], weight_map: dict[str, str] | None, owner: dict[str, str], found: Findings
) -> set[str]:
    """Compare both ways. Returns the names in the index that no shard shows: nothing more can be said of them."""
    if weight_map is None:
        return set()
    unread = set()
    for name, file in weight_map.items():
        header = headers.get(file)
        if header is not None and name in header.tensors:
            continue
        if name in owner:
            found.add("tensor-wrong-shard", f"{file}: {name}", other=owner[name])
            continue
        unread.add(name)
        if header is not None:
            found.add("tensor-not-in-shard", f"{file}: {name}")
    for name, file in owner.items():
        if name not in weight_map:
            found.add("tensor-not-in-index", f"{file}: {name}")
    return unread


def _released_names(
    headers: Mapping[str, ShardHeader], owner: dict[str, str], unread: set[str], found: Findings
) -> tuple[dict[str, _Located], set[str]]:
    """Tensors by their released names, whichever of the two roots the files use."""
    bare = [name for names in (owner, unread) for name in names if name.startswith(("model.", "lm_head."))]
    if bare:
        rooted = sum(name.startswith(ROOT) for names in (owner, unread) for name in names)
        code = "names-mixed" if rooted else "names-root"
        found.add(code, f"{owner.get(bare[0], INDEX_NAME)}: {bare[0]}", bare=len(bare), rooted=rooted, root=ROOT)
    new = {name: ROOT + name for name in bare}
    located = {new.get(name, name): _Located(file, name, headers[file].tensors[name]) for name, file in owner.items()}
    return located, {new.get(name, name) for name in unread}


def _check_layout(
    config: K3Config, located: dict[str, _Located], unread: set[str], list_name: str, found: Findings
) -> None:
    """Compare names, shapes and dtypes with the released layout; `list_name` is the file that should name a tensor."""
    left = dict(located)
    config = _check_vision(config, left, unread, found)
    try:
        specs = tensor_specs(config, _expert_format(config, located, unread, found))
    except ValueError as error:
        found.add("experts-width", "config.json", reason=error)
        return
    for spec in specs:
        tensor = left.pop(spec.name, None)
        if tensor is not None:
            if tensor.entry.shape != spec.shape or tensor.entry.dtype != spec.dtype:
                _compare_tensor(config, spec, tensor, found)
        elif spec.name not in unread and not _in_other_format(spec.name, located):
            packed = located.get(spec.name.replace(".weight_scale", ".weight_packed"))
            if packed is not None:
                found.add("scale-missing", f"{packed.file}: {packed.name}")
            else:
                found.add("tensor-missing", f"{list_name}: {spec.name}")
    for name, tensor in left.items():
        if not _in_other_format(name, located):
            found.add("tensor-unknown", f"{tensor.file}: {tensor.name}")
    _check_quantized_set(config, located, found)


def _check_vision(config: K3Config, left: dict[str, _Located], unread: set[str], found: Findings) -> K3Config:
    """Vision on one side only is reported once: then the tensors leave `left`, or vision leaves the returned config."""
    stored = [name for name in left if name.startswith(VISION_ROOTS)]
    if config.vision is None and stored:
        found.add("vision-without-config", "config.json", count=len(stored))
        for name in stored:
            del left[name]
    elif config.vision is not None and not stored and not any(name.startswith(VISION_ROOTS) for name in unread):
        found.add("vision-missing", "config.json")
        return replace(config, vision=None)
    return config


def _expert_format(
    config: K3Config, located: Mapping[str, _Located], unread: set[str], found: Findings
) -> ExpertFormat | None:
    """How the experts are stored. The tensors decide, not the config."""
    names = [name for group in (located, unread) for name in group if _EXPERTS in name]
    packed = [name for name in names if name.endswith(".weight_packed")]
    plain = [name for name in names if name.endswith(".weight")]
    if not packed and not plain:
        return None
    if packed and plain:
        few = min(packed, plain, key=len)[0]
        where = f"{located[few].file}: {located[few].name}" if few in located else f"{INDEX_NAME}: {few}"
        found.add("experts-mixed", where, packed=len(packed), plain=len(plain))
    elif packed and not config.experts_are_mxfp4:
        found.add("experts-packed", "config.json")
    elif plain and config.experts_are_mxfp4:
        found.add("experts-not-packed", "config.json")
    return "mxfp4" if len(packed) > len(plain) else "bf16"


def _in_other_format(name: str, located: Mapping[str, _Located]) -> bool:
    """Whether an expert's weight is there in the other format, which is told once, as experts-mixed."""
    if _EXPERTS not in name:
        return False
    module, _, kind = name.rpartition(".")
    others = ("weight_packed", "weight_scale") if kind == "weight" else ("weight",)
    return any(f"{module}.{other}" in located for other in others)


def _compare_tensor(config: K3Config, spec: TensorSpec, tensor: _Located, found: Findings) -> None:
    where = f"{tensor.file}: {tensor.name}"
    dtype, shape = tensor.entry.dtype, tensor.entry.shape
    if dtype != spec.dtype:
        found.add("tensor-dtype", where, dtype=dtype, wanted=spec.dtype, reason=_DTYPE_REASONS[spec.dtype])
    if shape == spec.shape:
        return
    heads = config.text.kda.num_heads
    if not spec.name.endswith(".A_log") or len(shape) != 1:
        found.add("tensor-shape", where, shape=list(shape), wanted=list(spec.shape))
    elif shape[0] < heads:
        found.add("a-log-short", where, entries=shape[0], heads=heads)
    else:
        found.add("a-log-length", where, entries=shape[0], wanted=spec.shape[0], heads=heads)


def _check_quantized_set(config: K3Config, located: Mapping[str, _Located], found: Findings) -> None:
    """Compare what the config's targets and ignore list would quantize with what is packed."""
    if config.quantization is None:
        return
    (group,) = config.quantization["config_groups"].values()
    targets, ignore = group.get("targets"), config.quantization.get("ignore", [])
    for key, patterns in (("targets", targets), ("ignore", ignore)):
        if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            reason = f"quantization_config {key} is {patterns!r} and must be a list of strings"
            found.add("quantized-patterns", "config.json", reason=reason)
            return

    def selected(module: str) -> bool:
        return _matches(module, targets) and not _matches(module, ignore)

    expert = f"{ROOT}model.layers.{config.text.first_k_dense_replace}{_EXPERTS}0.w1"  # one stands for all
    try:
        unpacked = [
            module for module in linear_modules(config) if selected(module) and f"{module}.weight_packed" not in located
        ]
        if f"{expert}.weight_packed" in located and not selected(expert):
            found.add("experts-ignored", "config.json")
    except re.error as error:
        reason = f"quantization_config has a pattern that is no regular expression ({error})"
        found.add("quantized-patterns", "config.json", reason=reason)
        return
    if unpacked:
        found.add("quantized-set", "config.json", count=len(unpacked), module=unpacked[0])


def _matches(module: str, patterns: Iterable[str]) -> bool:
    """Whether compressed-tensors would select a module of class Linear: by class, by name, or by `re:` pattern."""
    return any(
        re.match(pattern[3:], module) is not None if pattern.startswith("re:") else pattern in ("Linear", module)
        for pattern in patterns
    )


def _check_a_log(
    folder: Path,
    config: K3Config,
    headers: Mapping[str, ShardHeader],
    located: Mapping[str, _Located],
    found: Findings,
) -> None:
    """Look whether the entries of `A_log` after the heads are zeros."""
    heads = config.text.kda.num_heads
    for layer in config.text.kda_layers:
        tensor = located.get(f"{ROOT}model.layers.{layer}.self_attn.A_log")
        if tensor is None or tensor.entry.dtype != "F32" or len(tensor.entry.shape) != 1:
            continue
        header, entries = headers[tensor.file], tensor.entry.shape[0]
        if entries <= heads or header.data_start + tensor.entry.end > header.file_bytes:
            continue
        try:
            data = read_tensor_bytes(folder / tensor.file, header, tensor.name)
        except CheckpointError as error:
            found.add("shard-header", tensor.file, reason=_without_path(error, folder / tensor.file))
            continue
        tail = struct.unpack_from(f"<{entries - heads}f", data, 4 * heads)
        if any(tail):
            where = f"{tensor.file}: {tensor.name}"
            found.add("a-log-tail", where, entries=len(tail), count=sum(map(bool, tail)), heads=heads)


def _check_tokens(folder: Path, config: K3Config, found: Findings) -> None:
    """Compare the special tokens of generation_config.json and tokenizer_config.json with the config."""
    text, vocabulary = config.text, config.text.vocab_size
    stops: dict[str, list[int]] = {"config.json": [text.eos_token_id]}
    for file in ("generation_config.json", "tokenizer_config.json"):
        if not os.path.lexists(folder / file):
            continue
        try:
            data = read_object(folder / file)
        except CheckpointError as error:
            found.add("json-invalid", file, reason=_without_path(error, folder / file))
            continue
        for kind in ("eos", "pad"):
            ids = _token_ids(data, kind)
            wrong = [value for value in ids if type(value) is not int or not 0 <= value < vocabulary]
            if wrong:
                found.add("token-id", file, kind=kind, value=wrong[0], vocabulary=vocabulary)
            elif kind == "eos" and ids:
                stops[file] = ids
            elif ids and ids != [text.pad_token_id]:
                found.add("pad-token", file, found=ids[0], used=text.pad_token_id)
    union = sorted({token for ids in stops.values() for token in ids})
    if len(union) > 1:
        listed = ", ".join(f"{file} {ids}" for file, ids in stops.items())
        found.add("stop-tokens", list(stops)[-1], listed=listed, union=union)


def _token_ids(data: Mapping[str, Any], kind: str) -> list[Any]:
    """The ids that a file gives for "eos" or "pad": by number, or by content with the table of added tokens."""
    value = data.get(f"{kind}_token_id")
    ids = list(value) if isinstance(value, list) else [] if value is None else [value]
    content = data.get(f"{kind}_token")
    content = content.get("content") if isinstance(content, dict) else content
    table = data.get("added_tokens_decoder")
    if isinstance(table, dict) and isinstance(content, str):
        for key, token in table.items():
            if isinstance(token, dict) and token.get("content") == content:
                ids.append(int(key) if re.fullmatch(r"[0-9]{1,18}", key) else key)
    return list(dict.fromkeys(ids)) if all(type(token) is int for token in ids) else ids


def _check_hashes(
    folder: Path, hashes: Mapping[str, str], on_disk: list[str], found: Findings, progress: Progress | None
) -> None:
    present = {name: os.path.getsize(folder / name) for name in hashes if os.path.isfile(folder / name)}
    total, done = sum(present.values()), 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    for name, wanted in hashes.items():
        if name not in present:
            found.add("hash-file-missing", name)
            continue
        try:
            actual = sha256_of(folder / name, advance)
        except OSError as error:
            found.add("hash-unreadable", name, reason=error.strerror)
            continue
        if actual != wanted:
            found.add("hash-differs", name, actual=actual, wanted=wanted)
    for name in on_disk:
        if name not in hashes:
            found.add("hash-unlisted", name)


def _without_path(error: Exception, file: Path) -> str:
    return str(error).removeprefix(f"{file}: ")
