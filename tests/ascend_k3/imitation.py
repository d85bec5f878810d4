"""Checkpoints of any size without weights: true headers and true lengths, and sparse files of zeros behind them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ascend_k3.config import K3Config
from ascend_k3.layout import TensorSpec, tensor_specs

INDEX = "model.safetensors.index.json"


def write_imitation(folder: Path, config: K3Config, shards: int = 96) -> None:
    """Write config.json, the index and `shards` shards that a checkpoint of `config` would have, full of zeros.

    Tensors keep the order of the model and are cut into shards of about equal length.
    """
    folder.mkdir(parents=True, exist_ok=True)
    specs = list(tensor_specs(config))
    total = sum(spec.nbytes for spec in specs)
    parts: list[list[TensorSpec]] = [[] for _ in range(shards)]
    position = 0
    for spec in specs:
        parts[position * shards // total].append(spec)
        position += spec.nbytes
    weight_map: dict[str, str] = {}
    for number, part in enumerate(parts, start=1):
        name = f"model-{number:05d}-of-{shards:05d}.safetensors"
        write_sparse_shard(folder / name, part)
        weight_map.update(dict.fromkeys((spec.name for spec in part), name))
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(config.to_dict()))


def write_sparse_shard(path: Path, specs: Iterable[TensorSpec]) -> None:
    """Write one shard whose data are zeros that take no space on the disk."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, dtype, shape in specs:
        end = position + TensorSpec(name, dtype, shape).nbytes
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, end]}
        position = end
    with open(path, "wb") as file:
        file.write(_header_bytes(header))
        file.truncate(file.tell() + position)


def edit_header(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Apply `change` to the header of a small shard, and leave its data as they are."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    path.write_bytes(_header_bytes(header) + data[8 + length :])


def edit_json(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Apply `change` to the content of a JSON file."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def _header_bytes(header: dict[str, Any]) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
