"""Checkpoints in the released layout: stream one into a model, write one from a model, convert one into another.

Nothing is loaded before the whole checkpoint was looked at (`doctor`), and nothing is written where a reader could find
half of it: a new checkpoint grows in a folder beside its own and is renamed at the end.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open
from torch import Tensor, nn
from tqdm import tqdm

from ascend_k3 import ops
from ascend_k3.attention.kda import KimiDeltaAttention
from ascend_k3.config import K3Config, mxfp4_quantization_config
from ascend_k3.doctor import check_checkpoint
from ascend_k3.files import new_folder, save_tensors, write_json
from ascend_k3.layout import ROOT, ExpertFormat, TensorSpec, tensor_specs
from ascend_k3.model import K3ForConditionalGeneration
from ascend_k3.moe import Experts
from ascend_k3.ops.checks import FLOATS
from ascend_k3.ops.errors import BackendError, CheckpointError
from ascend_k3.problems import format_problem
from ascend_k3.shards import read_index
from ascend_k3.tokenizer import stop_token_ids

DEFAULT_SHARD_SIZE = 5_000_000_000  # bytes
PACKED, SCALE, PLAIN = ".weight_packed", ".weight_scale", ".weight"
_STORED_DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32, "U8": torch.uint8}
# Files that belong to a checkpoint beside its tensors; `convert` copies those that are there.
_COMPANIONS = ("generation_config.json", "tokenizer_config.json", "tiktoken.model", "preprocessor_config.json")


def load_model(
    path: str | Path,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    experts: Literal["keep"] | torch.dtype = "keep",
) -> K3ForConditionalGeneration:
    """Load a checkpoint folder, tensor by tensor: at most the model and one tensor are in memory.

    Args:
        path: a checkpoint folder of Kimi K3, with the names of the release or without their `language_model.` root.
        device: where the model goes; "cpu" or "meta" today, since operators have no other implementation yet.
        dtype: of activations and matrices; None for the stored one. What checkpoints keep in F32 (A_log, dt_bias,
            convolutions, o_norm, the router's bias) is float32 at least.
        experts: "keep" leaves MXFP4 experts packed; a dtype expands them.
    Raises: FileNotFoundError; CheckpointError with the first thing that is wrong, before anything is loaded;
        BackendError for a device without operators.
    """
    path = Path(path)
    if str(device).split(":")[0] not in ("cpu", "meta"):
        raise BackendError(f"device is {str(device)!r}; the operators of this version compute on the CPU: use 'cpu'.")
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder; give the folder that holds the checkpoint's config.json.")
    for name, value in (("dtype", dtype), ("experts", None if experts == "keep" else experts)):
        if value is not None and value not in FLOATS:
            allowed = ", ".join(str(item) for item in FLOATS)
            raise ValueError(
                f"load_model: {name} is {value!r}; it must be a torch dtype, one of {allowed}, or left out."
            )
    if experts is None:
        raise ValueError('load_model: experts is None; it must be "keep" or a torch dtype.')
    require_sound(path)
    config = K3Config.from_pretrained(path)
    with CheckpointReader(path) as reader:
        packed = experts == "keep" and reader.packed_experts
        model = _build_on_meta(config, packed, dtype or reader.stored_dtype())
        if isinstance(experts, torch.dtype):
            for module in model.modules():
                if isinstance(module, Experts):
                    module.to(experts)
        model.to_empty(device=device)
        _fill(model, reader)
    model.stop_ids = stop_token_ids(path)
    return model.eval()


def require_sound(path: Path) -> None:
    """Raise `CheckpointError` with the first error that the checkpoint doctor finds."""
    report = check_checkpoint(path)
    errors = [problem for problem in report.problems if problem.severity == "error"]
    if errors:
        more = f" ({len(errors) - 1} more: `ascend-k3 check {path}` lists them)" if len(errors) > 1 else ""
        raise CheckpointError(f"{path} cannot be loaded: {format_problem(errors[0])}{more}")


def save_model(
    model: K3ForConditionalGeneration,
    path: str | Path,
    experts: ExpertFormat = "mxfp4",
    shard_size: int = DEFAULT_SHARD_SIZE,
) -> None:
    """Write a model as a checkpoint folder in the released layout, which other K3 loaders read.

    Tensors get the released dtypes: BF16, and F32 for the few that are kept so. Experts that are not packed yet are
    packed with the "even" scale rule, as the release's packer does; "bf16" writes plain ones.

    Args:
        path: a folder that does not exist yet, or is empty.
        shard_size: bytes that one file may have, unless a single tensor is larger.
    Raises: FileExistsError; ValueError for an unknown format or a shard size below 1. On any error nothing is left.
    """
    config = _with_experts(model.config, experts)
    tensors = model.state_dict()

    def fetch(spec: TensorSpec) -> Tensor:
        return _in_format(spec, tensors.get, f"the model has no tensor for {spec.name}")

    write_checkpoint(config, fetch, path, shard_size)


def convert_checkpoint(
    source: str | Path,
    target: str | Path,
    *,
    experts: ExpertFormat | None = None,
    layers: list[int] | None = None,
    shard_size: int = DEFAULT_SHARD_SIZE,
) -> None:
    """Write a checkpoint anew, tensor by tensor, so that any size fits in memory.

    Args:
        experts: "mxfp4" packs, "bf16" expands, None leaves the routed experts as they are.
        layers: keep only these layers (from 0, ascending), renumbered: a smaller model for trials, not an equal one.
        shard_size: bytes that one file may have, unless a single tensor is larger.
    Raises: as `load_model` and `save_model`; ValueError for layers that do not exist or do not ascend.
    """
    source = Path(source)
    if not source.is_dir():
        raise FileNotFoundError(f"{source} is not a folder; give the folder that holds the checkpoint's config.json.")
    require_sound(source)
    config = K3Config.from_pretrained(source)
    with CheckpointReader(source) as reader:
        present: ExpertFormat = "mxfp4" if reader.packed_experts else "bf16"
        kept = list(range(config.text.num_hidden_layers)) if layers is None else layers
        config = _with_layers(_with_experts(config, experts or present), kept)

        def fetch(spec: TensorSpec) -> Tensor:
            def read(name: str) -> Tensor | None:
                return reader.read(_renumbered(name, kept))

            return _in_format(spec, read, f"{source} has no tensor for {spec.name}")

        companions = [source / name for name in _COMPANIONS if (source / name).is_file()]
        write_checkpoint(config, fetch, target, shard_size, companions)


def write_checkpoint(
    config: K3Config,
    fetch: Callable[[TensorSpec], Tensor],
    path: str | Path,
    shard_size: int,
    companions: list[Path] | None = None,
) -> None:
    """Write every tensor of `config` as `fetch` gives it, config, index and `companions`, into a new folder."""
    if not isinstance(shard_size, int) or shard_size < 1:
        raise ValueError(f"shard_size must be a positive number of bytes, got {shard_size!r}.")
    shards = list(_cut_into_shards(tensor_specs(config), shard_size))
    with new_folder(path) as folder:
        weight_map: dict[str, str] = {}
        with tqdm(total=sum(map(len, shards)), desc="writing", unit="tensor", disable=None) as bar:
            for number, specs in enumerate(shards, 1):
                file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
                tensors = {}
                for spec in specs:
                    tensors[spec.name] = fetch(spec)
                    weight_map[spec.name] = file
                    bar.update()
                save_tensors(tensors, folder / file)
        total = sum(spec.nbytes for specs in shards for spec in specs)
        write_json(
            folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map}
        )
        for companion in companions or ():
            shutil.copy(companion, folder)
        if not (folder / "generation_config.json").exists():
            write_json(
                folder / "generation_config.json",
                {"eos_token_id": config.text.eos_token_id, "max_length": config.text.max_position_embeddings},
            )
        write_json(folder / "config.json", config.to_dict())


class CheckpointReader:
    """Tensors of a checkpoint folder by their released name, read one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: dict[str, str] = {}
        index = read_index(path)
        for name, file in index.items():
            rooted = name if name.startswith((ROOT, "vision_tower.", "mm_projector.")) else ROOT + name
            self.files[rooted] = file
        self._stored = dict(zip(self.files, index, strict=True))
        self._open: dict[str, Any] = {}

    def __enter__(self) -> CheckpointReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.clear()

    @property
    def packed_experts(self) -> bool:
        """Whether the routed experts are MXFP4; what is in the files decides, not the config."""
        return any(name.endswith(PACKED) for name in self.files)

    def stored_dtype(self) -> torch.dtype:
        """The dtype of the embedding."""
        return self.read(f"{ROOT}model.embed_tokens.weight").dtype  # type: ignore[union-attr]

    def read(self, name: str) -> Tensor | None:
        """The tensor, or None when the checkpoint has none of that name."""
        file = self.files.get(name)
        if file is None:
            return None
        if file not in self._open:
            # "pread" copies what is asked for; mapped files would stay in this process's memory.
            self._open[file] = safe_open(self.path / file, framework="pt", backend="pread")
        return self._open[file].get_tensor(self._stored[name])

    def in_file_order(self) -> Iterator[str]:
        """All names, file by file."""
        return iter(sorted(self.files, key=lambda name: self.files[name]))


def _build_on_meta(config: K3Config, packed: bool, dtype: torch.dtype) -> K3ForConditionalGeneration:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):
            return K3ForConditionalGeneration(config, packed_experts=packed)
    finally:
        torch.set_default_dtype(before)


@torch.no_grad()
def _fill(model: K3ForConditionalGeneration, reader: CheckpointReader) -> None:
    """Copy every tensor of the checkpoint into the model's memory, and require that nothing of it is left over."""
    targets = _targets(model)
    unfilled = set(targets)
    names = list(reader.in_file_order())
    for name in tqdm(names, desc="loading", unit="tensor", disable=None):
        if name.endswith(SCALE) and name not in targets:
            continue  # read with its codes
        value = reader.read(name)
        if value is None:
            continue
        if name not in targets and name.endswith(PACKED):
            name = name.removesuffix(PACKED) + PLAIN
            scale = reader.read(name.removesuffix(PLAIN) + SCALE)
            if scale is None:
                raise CheckpointError(f"{name}: its weight_scale is absent; download the checkpoint again.")
            value = ops.mx_dequantize(ops.MXTensor(value, scale, "mxfp4"), dtype=targets[name].dtype)
        target = targets[name]
        if name.endswith(".A_log"):
            value = value[: target.shape[0]]
        if value.shape != target.shape:
            raise CheckpointError(f"{name} has the shape {list(value.shape)}; the model needs {list(target.shape)}.")
        target.copy_(value)
        unfilled.discard(name)
    if unfilled:
        raise CheckpointError(f"{len(unfilled)} tensors of the model are not in the checkpoint, first {min(unfilled)}.")


def _targets(model: K3ForConditionalGeneration) -> dict[str, Tensor]:
    """Released name -> the memory it is loaded into: views of parameters and buffers."""
    targets = dict(model.state_dict(keep_vars=False))
    for prefix, module in model.named_modules():
        if isinstance(module, KimiDeltaAttention):
            targets[f"{prefix}.A_log"] = module.A_log.detach()  # the state dict has a padded copy
    return targets


def _in_format(spec: TensorSpec, get: Callable[[str], Tensor | None], absent: str) -> Tensor:
    """The tensor of `spec` from whichever form `get` has it in: plain or packed experts, any float dtype."""
    value = get(spec.name)
    if value is None:
        base = re.sub(r"\.weight(_packed|_scale)?$", "", spec.name)
        plain, codes, scale = get(base + PLAIN), get(base + PACKED), get(base + SCALE)
        if spec.name.endswith(PLAIN) and codes is not None and scale is not None:
            value = ops.mx_dequantize(ops.MXTensor(codes, scale, "mxfp4"), dtype=torch.bfloat16)
        elif plain is not None and not spec.name.endswith(PLAIN):
            packed = ops.mx_quantize(plain.detach(), format="mxfp4", rule="even")
            value = packed.data if spec.name.endswith(PACKED) else packed.scale
        else:
            raise CheckpointError(f"{absent}; the checkpoint is incomplete.")
    value = value.detach().to(device="cpu", dtype=_STORED_DTYPES[spec.dtype])
    if spec.name.endswith(".A_log") and value.shape[0] < spec.shape[0]:
        value = nn.functional.pad(value, (0, spec.shape[0] - value.shape[0]))
    if tuple(value.shape) != spec.shape:
        raise CheckpointError(f"{spec.name} has the shape {list(value.shape)}; the config asks for {list(spec.shape)}.")
    return value.contiguous()


def _cut_into_shards(specs: Iterator[TensorSpec], shard_size: int) -> Iterator[list[TensorSpec]]:
    shard: list[TensorSpec] = []
    size = 0
    for spec in specs:
        if shard and size + spec.nbytes > shard_size:
            yield shard
            shard, size = [], 0
        shard.append(spec)
        size += spec.nbytes
    yield shard


def _with_experts(config: K3Config, experts: ExpertFormat) -> K3Config:
    if experts not in ("mxfp4", "bf16"):
        raise ValueError(f'experts must be "mxfp4" or "bf16", got {experts!r}.')
    if experts == "bf16":
        return replace(config, quantization=None)
    return replace(config, quantization=config.quantization or mxfp4_quantization_config())


def _with_layers(config: K3Config, kept: list[int]) -> K3Config:
    layers = config.text.num_hidden_layers
    if not kept or kept != sorted(set(kept)) or kept[0] < 0 or kept[-1] >= layers:
        shown = kept if len(kept) <= 8 else [*kept[:7], "..."]
        raise ValueError(f"layers must ascend and lie between 0 and {layers - 1}, got {shown}.")
    text = replace(
        config.text,
        num_hidden_layers=len(kept),
        full_attn_layers=tuple(new for new, old in enumerate(kept) if config.text.is_full_attention(old)),
        first_k_dense_replace=sum(config.text.is_dense(old) for old in kept),
    )
    return replace(config, text=text)


def _renumbered(name: str, kept: list[int]) -> str:
    """The name in the source of a tensor of the target whose layers are `kept`."""
    return re.sub(r"(\.layers\.)(\d+)\.", lambda match: f"{match[1]}{kept[int(match[2])]}.", name, count=1)
