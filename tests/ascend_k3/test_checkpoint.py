"""Checkpoints: into a model and back, streamed, in every form, and never half."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ascend_k3 import (
    BackendError,
    CheckpointError,
    K3Config,
    check_checkpoint,
    convert_checkpoint,
    load_model,
    ops,
    save_model,
)
from ascend_k3.checkpoint import CheckpointReader
from ascend_k3.config import mxfp4_quantization_config
from ascend_k3.layout import tensor_specs
from tests.ascend_k3.checkpoints import expected, tiny
from tests.paths import FIXTURES

TOKENS = torch.arange(1, 40)[None]


def all_tensors(folder: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    return found


def logits(folder: Path, **options) -> Tensor:
    return load_model(folder, dtype=torch.float32, **options)(TOKENS).logits


def edited(folder: Path, name: str, change) -> None:
    """Replace one tensor of a single-file checkpoint."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors[name] = change(tensors[name])
    save_file(tensors, file, metadata={"format": "pt"})


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "ckpt_mxfp4", tmp_path / "copy"))


# --- loading --------------------


def test_dtypes_are_the_stored_ones_unless_asked() -> None:
    model = load_model(FIXTURES / "ckpt_mxfp4")
    stored = {spec.name: spec.dtype for spec in tensor_specs(model.config)}
    names = {torch.bfloat16: "BF16", torch.float32: "F32", torch.uint8: "U8"}
    assert {name: names[tensor.dtype] for name, tensor in model.state_dict().items()} == stored
    assert not model.training and model.dtype == torch.bfloat16


def test_small_parameters_stay_float32_in_bf16() -> None:
    model = load_model(FIXTURES / "ckpt_bf16", dtype=torch.bfloat16)
    wide = {name.split(".", 4)[-1] for name, p in model.named_parameters() if p.dtype == torch.float32}
    parts = ("A_log", "dt_bias", "q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight", "o_norm.weight")
    assert wide == {f"self_attn.{part}" for part in parts} | {"block_sparse_moe.gate.e_score_correction_bias"}


def test_float64_is_float64_throughout() -> None:
    model = load_model(FIXTURES / "ckpt_bf16", dtype=torch.float64)
    assert {p.dtype for p in model.parameters()} == {torch.float64}
    x = expected("ckpt_bf16")
    row = x["batch_input_ids"][2:]
    assert (model(row).logits - x["batch_logits"][2]).abs().max() < 1e-4


def test_experts_stay_packed_or_are_expanded() -> None:
    packed, expanded = tiny("ckpt_mxfp4"), tiny("ckpt_mxfp4", experts=torch.bfloat16)
    experts = packed.language_model.model.layers[1].block_sparse_moe.experts
    assert experts.packed and experts.w13_codes.dtype == torch.uint8
    assert expanded.language_model.model.layers[1].block_sparse_moe.experts.w2.dtype == torch.bfloat16
    torch.testing.assert_close(packed(TOKENS).logits, expanded(TOKENS).logits, atol=1e-5, rtol=0)


def test_expanded_experts_are_the_exact_values() -> None:
    samples = load_file(FIXTURES / "ckpt_mxfp4_dequant_samples.safetensors")
    state = tiny("ckpt_mxfp4", experts=torch.bfloat16).state_dict()
    for name, value in samples.items():
        assert torch.equal(state[name.removesuffix("_dequant")], value), name


def test_a_state_dict_has_the_released_names_and_goes_in_again() -> None:
    for name in ("ckpt_bf16", "ckpt_mxfp4"):
        source = tiny(name)
        state = source.state_dict()
        assert set(state) == {spec.name for spec in tensor_specs(source.config)}
        target = load_model(FIXTURES / name, dtype=torch.float32)
        for tensor in (*target.parameters(), *target.buffers()):
            tensor.data.zero_()
        target.load_state_dict(state)
        assert torch.equal(target(TOKENS).logits, source(TOKENS).logits)


def test_a_state_dict_with_a_missing_expert_is_refused() -> None:
    model = load_model(FIXTURES / "ckpt_bf16")
    state = dict(model.state_dict())
    missing = "language_model.model.layers.2.block_sparse_moe.experts.3.w3.weight"
    del state[missing]
    with pytest.raises(RuntimeError, match=f'Missing key.*"{missing}"'):
        model.load_state_dict(state)


@pytest.mark.parametrize("change", [lambda v: v[:1], lambda v: torch.rand(v.shape), lambda v: v[:3]])
def test_a_state_dict_with_an_expert_of_another_form_is_refused(change) -> None:
    model = load_model(FIXTURES / "ckpt_mxfp4")
    name = "language_model.model.layers.1.block_sparse_moe.experts.3.w1.weight_packed"
    state = {key: value.clone() for key, value in model.state_dict().items()}
    before = state[name].clone()
    with pytest.raises(RuntimeError, match=rf"{name}: the module has torch.uint8 \[32, 32\], the state dict "):
        model.load_state_dict({**state, name: change(state[name])})
    assert torch.equal(model.state_dict()[name], before)


@pytest.mark.parametrize(
    "options", [dict(experts="mxfp4"), dict(experts=None), dict(dtype=torch.int8), dict(dtype="float32")]
)
def test_a_dtype_that_is_none_is_refused(options: dict) -> None:
    with pytest.raises(ValueError, match="load_model: (dtype|experts) is "):
        load_model(FIXTURES / "ckpt_mxfp4", **options)


def test_names_without_the_root_are_read(copy: Path) -> None:
    wanted = logits(copy)
    tensors = {k.removeprefix("language_model."): v for k, v in load_file(copy / "model.safetensors").items()}
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    (copy / "model.safetensors.index.json").unlink()
    assert torch.equal(logits(copy), wanted)


def test_codes_and_scales_may_lie_in_different_shards(copy: Path, tmp_path: Path) -> None:
    wanted = logits(copy, experts=torch.float32)
    tensors = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    parts = {
        "model-00001-of-00002.safetensors": {k: v for k, v in tensors.items() if not k.endswith("_scale")},
        "model-00002-of-00002.safetensors": {k: v for k, v in tensors.items() if k.endswith("_scale")},
    }
    for file, part in parts.items():
        save_file(part, copy / file)
    index = {"metadata": {}, "weight_map": {k: file for file, part in parts.items() for k in part}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    assert torch.equal(logits(copy, experts=torch.float32), wanted)


def test_the_tail_of_a_log_is_cut_and_a_warning_is_given(copy: Path) -> None:
    wanted = logits(copy)
    name = "language_model.model.layers.0.self_attn.A_log"
    edited(copy, name, lambda value: torch.cat((value[:4], torch.full_like(value[4:], 7.0))))
    assert [p.code for p in check_checkpoint(copy).problems if p.severity == "warning"] == ["a-log-tail"]
    assert torch.equal(logits(copy), wanted)


def test_only_what_is_packed_is_read_as_packed(copy: Path) -> None:
    """The config's own rule would have 35 more modules quantized; the files decide."""
    notes = [p for p in check_checkpoint(copy).problems if p.code == "quantized-set"]
    assert len(notes) == 1 and "35 linear modules" in notes[0].message
    state = load_model(copy).state_dict()
    packed = {name for name in state if name.endswith("_packed")}
    assert packed and all(".experts." in name for name in packed)


def test_the_files_decide_against_the_config(tmp_path: Path) -> None:
    """Packed files under a config that knows nothing of it, and plain files under one that speaks of MXFP4."""
    for name, packed in (("ckpt_mxfp4", True), ("ckpt_bf16", False)):
        folder = Path(shutil.copytree(FIXTURES / name, tmp_path / name))
        wanted = logits(folder)
        data = json.loads((folder / "config.json").read_text())
        if packed:
            del data["text_config"]["quantization_config"]
        else:
            data["text_config"]["quantization_config"] = mxfp4_quantization_config()
        (folder / "config.json").write_text(json.dumps(data))
        assert check_checkpoint(folder).ok
        assert load_model(folder).packed_experts is packed
        assert torch.equal(logits(folder), wanted)


def test_every_element_comes_from_the_files() -> None:
    """Memory that nothing was copied into holds NaN in tests, and the largest value for integers."""
    for name in ("ckpt_bf16", "ckpt_mxfp4"):
        model = load_model(FIXTURES / name)
        stored = all_tensors(FIXTURES / name)
        for key, value in model.state_dict().items():
            assert torch.equal(value, stored[key]), key


def test_a_tensor_that_no_file_has_is_refused(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader's own last look, should the doctor have missed something."""
    monkeypatch.setattr("ascend_k3.checkpoint.require_sound", lambda path: None)
    lose_tensor(copy)
    (copy / "model.safetensors.index.json").unlink()
    with pytest.raises(
        CheckpointError, match="1 tensors of the model are not in the checkpoint, first .*g_proj.weight"
    ):
        load_model(copy)
    reshape(copy)
    with pytest.raises(CheckpointError, match=r"norm.weight has the shape \[63\]; the model needs \[64\]"):
        load_model(copy)


# --- refusing ---------------------


def remove(file: str):
    return lambda folder: (folder / file).unlink()


def truncate(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def reshape(folder: Path) -> None:
    edited(folder, "language_model.model.norm.weight", lambda value: value[:-1])


def retype(folder: Path) -> None:
    edited(folder, "language_model.model.norm.weight", lambda value: value.half())


def drop_key(folder: Path) -> None:
    data = json.loads((folder / "config.json").read_text())
    del data["text_config"]["linear_attn_config"]["gate_lower_bound"]
    (folder / "config.json").write_text(json.dumps(data))


def garble(file: str):
    return lambda folder: (folder / file).write_text("{ not JSON")


def lose_tensor(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["language_model.model.layers.3.self_attn.g_proj.weight"]
    save_file(tensors, folder / "model.safetensors")


REFUSED = {
    "no-config": (remove("config.json"), "config.json: the file is absent"),
    "no-shard": (remove("model.safetensors"), "the index places 636 tensors in this shard and it is absent"),
    "truncated": (truncate, "shorter than its header says"),
    "shape": (reshape, r"norm.weight: .*\[63\]"),
    "dtype": (retype, "norm.weight: .*F16"),
    "key": (drop_key, "gate_lower_bound is missing"),
    "config-json": (garble("config.json"), "not readable as JSON"),
    "index-json": (garble("model.safetensors.index.json"), "not readable as JSON"),
    "tensor": (lose_tensor, "layers.3.self_attn.g_proj.weight"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_broken_checkpoint_is_refused_before_anything_is_loaded(case: str, copy: Path) -> None:
    damage, message = REFUSED[case]
    damage(copy)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_model(copy)
    assert str(caught.value).startswith(f"{copy} cannot be loaded: error: ")


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", FIXTURES / "ckpt_bf16" / "config.json"):
        with pytest.raises(FileNotFoundError, match="is not a folder; give the folder that holds"):
            load_model(path)
        with pytest.raises(FileNotFoundError, match="is not a folder; give the folder that holds"):
            convert_checkpoint(path, tmp_path / "out")


@pytest.mark.parametrize("device", ["npu", "npu:3", "cuda"])
def test_a_device_without_operators_is_refused(device: str) -> None:
    with pytest.raises(BackendError, match=f"device is '{device}'; the operators of this version compute on the CPU"):
        load_model(FIXTURES / "ckpt_bf16", device=device)


# --- saving and converting ----------------------


@pytest.mark.parametrize("name", ["ckpt_bf16", "ckpt_mxfp4", "ckpt_kernel"])
def test_saving_what_was_loaded_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    model = load_model(FIXTURES / name)
    kind = "mxfp4" if model.packed_experts else "bf16"
    save_model(model, tmp_path / "out", experts=kind, shard_size=400_000)
    assert check_checkpoint(tmp_path / "out").ok
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 2
    before, after = all_tensors(FIXTURES / name), all_tensors(tmp_path / "out")
    assert before.keys() == after.keys()
    for key, value in before.items():
        assert value.dtype == after[key].dtype and torch.equal(value, after[key]), key
    assert json.loads((tmp_path / "out/config.json").read_text()) == json.loads(
        (FIXTURES / name / "config.json").read_text()
    )


def test_plain_experts_are_packed_as_the_release_packs(tmp_path: Path) -> None:
    model = load_model(FIXTURES / "ckpt_bf16")
    save_model(model, tmp_path / "out")
    config = K3Config.from_pretrained(tmp_path / "out")
    assert config.experts_are_mxfp4 and check_checkpoint(tmp_path / "out").ok
    name = "language_model.model.layers.1.block_sparse_moe.experts.2.w2"
    packed = ops.mx_quantize(model.state_dict()[f"{name}.weight"].detach(), format="mxfp4", rule="even")
    written = all_tensors(tmp_path / "out")
    assert torch.equal(written[f"{name}.weight_packed"], packed.data)
    assert torch.equal(written[f"{name}.weight_scale"], packed.scale)
    assert written["language_model.model.layers.0.self_attn.A_log"].shape == (32,)
    assert not written["language_model.model.layers.0.self_attn.A_log"][4:].any()


def test_expanding_and_packing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    convert_checkpoint(FIXTURES / "ckpt_mxfp4", tmp_path / "plain", experts="bf16")
    convert_checkpoint(tmp_path / "plain", tmp_path / "packed", experts="mxfp4")
    convert_checkpoint(tmp_path / "packed", tmp_path / "again")
    wanted = logits(FIXTURES / "ckpt_mxfp4")
    for folder in ("plain", "packed", "again"):
        assert check_checkpoint(tmp_path / folder).ok
        torch.testing.assert_close(logits(tmp_path / folder), wanted, atol=1e-5, rtol=0)
    before, after = all_tensors(FIXTURES / "ckpt_mxfp4"), all_tensors(tmp_path / "again")
    dequantized = 0
    for key, value in before.items():
        if key.endswith("_packed"):
            scale = key.replace("_packed", "_scale")
            exact = [
                ops.mx_dequantize(ops.MXTensor(x[key], x[scale], "mxfp4"), dtype=torch.float32) for x in (before, after)
            ]
            assert torch.equal(*exact), key
            dequantized += 1
        elif not key.endswith("_scale"):
            assert torch.equal(value, after[key]), key
    assert dequantized == 8 * 8 * 3


def test_layers_are_kept_and_renumbered(tmp_path: Path) -> None:
    convert_checkpoint(FIXTURES / "ckpt_mxfp4", tmp_path / "out", layers=[0, 1, 3, 8])
    assert check_checkpoint(tmp_path / "out").ok
    text = K3Config.from_pretrained(tmp_path / "out").text
    assert text.num_hidden_layers == 4 and text.full_attn_layers == (2, 3) and text.first_k_dense_replace == 1
    before, after = all_tensors(FIXTURES / "ckpt_mxfp4"), all_tensors(tmp_path / "out")
    for new, old in enumerate([0, 1, 3, 8]):
        key = "language_model.model.layers.{}.self_attn.o_proj.weight"
        assert torch.equal(after[key.format(new)], before[key.format(old)])
    load_model(tmp_path / "out")(TOKENS)


def test_companions_are_copied(copy: Path, tmp_path: Path) -> None:
    (copy / "tiktoken.model").write_bytes(b"IQ== 0\n")
    (copy / "generation_config.json").write_text('{"eos_token_id": [146, 145]}')
    convert_checkpoint(copy, tmp_path / "out")
    assert (tmp_path / "out/tiktoken.model").read_bytes() == b"IQ== 0\n"
    assert json.loads((tmp_path / "out/generation_config.json").read_text()) == {"eos_token_id": [146, 145]}


@pytest.mark.parametrize(
    "options, message",
    [
        ({"layers": [9]}, r"layers must ascend and lie between 0 and 8, got \[9\]"),
        ({"layers": [2, 1]}, "layers must ascend"),
        ({"layers": []}, "layers must ascend"),
        ({"experts": "int4"}, 'experts must be "mxfp4" or "bf16", got \'int4\''),
        ({"shard_size": 0}, "shard_size must be a positive number of bytes, got 0"),
    ],
)
def test_a_wrong_conversion_is_refused_and_leaves_nothing(options: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        convert_checkpoint(FIXTURES / "ckpt_mxfp4", tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_checkpoint_is_never_overwritten(copy: Path) -> None:
    before = {file.name: file.read_bytes() for file in copy.iterdir()}
    with pytest.raises(FileExistsError, match="exists and is not an empty folder"):
        save_model(tiny("ckpt_mxfp4"), copy)
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == before


def test_a_failed_save_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk."""
    script = f"""
import resource, signal
from ascend_k3 import load_model, save_model
model = load_model({str(FIXTURES / "ckpt_mxfp4")!r})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
save_model(model, {str(tmp_path / "out")!r})
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode != 0 and "cannot be written" in done.stderr, done.stderr[-800:]
    assert list(tmp_path.iterdir()) == []


def test_the_reader_says_what_it_has() -> None:
    with CheckpointReader(FIXTURES / "ckpt_mxfp4") as reader:
        assert reader.packed_experts and reader.stored_dtype() == torch.bfloat16
        assert reader.read("language_model.nothing") is None


# --- memory -----------------------


MEASURE = """
import json, resource, sys, threading
import torch
from ascend_k3 import load_model
def resident(key):
    for line in open("/proc/self/status"):
        if line.startswith(key):
            return int(line.split()[1]) * 1024
warm = load_model(sys.argv[1])  # libraries and code are in memory before the measurement
del warm
before = resident("VmRSS")
open("/proc/self/clear_refs", "w").write("5")  # resets the peak
model = load_model(sys.argv[2])
peak = resident("VmHWM") - before
size = sum(t.nbytes for t in (*model.parameters(), *model.buffers()))
largest = max(t.nbytes for t in model.state_dict().values())
print(json.dumps([size, largest, peak]))
"""


def test_loading_holds_the_model_and_one_tensor(tmp_path: Path) -> None:
    """A checkpoint of over 2 GB, in few shards: the peak is at most 1.1 times the model and the largest tensor."""
    data = json.loads((FIXTURES / "ckpt_kernel/config.json").read_text())
    data["text_config"] |= {"hidden_size": 2048, "vocab_size": 131072, "routed_expert_hidden_size": 2048}
    data["text_config"] |= {"moe_intermediate_size": 1024, "num_experts": 64}
    config = K3Config.from_dict(data)
    folder = tmp_path / "large"
    folder.mkdir()
    names: dict[str, str] = {}
    shards: list[dict[str, Tensor]] = [{}]
    dtypes = {"BF16": torch.bfloat16, "F32": torch.float32, "U8": torch.uint8}
    for spec in tensor_specs(config):
        if sum(t.nbytes for t in shards[-1].values()) > 900_000_000:
            shards.append({})
        shards[-1][spec.name] = torch.zeros(spec.shape, dtype=dtypes[spec.dtype])
        names[spec.name] = f"model-{len(shards):05d}.safetensors"
    for number, shard in enumerate(shards, 1):
        save_file(shard, folder / f"model-{number:05d}.safetensors")
    total = sum(t.nbytes for shard in shards for t in shard.values())
    assert total >= 2_000_000_000
    shards.clear()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(FIXTURES / "ckpt_kernel"), str(folder)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    size, largest, peak = json.loads(done.stdout)
    print(f"model {size:,} bytes, largest tensor {largest:,}, peak {peak:,}: {peak / size:.3f} of the model")
    assert peak <= 1.1 * size + largest
    assert peak >= 0.9 * size, "the measurement did not see the model"


def test_written_files_have_the_permissions_of_new_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        save_model(tiny("ckpt_kernel"), tmp_path / "out")
    finally:
        os.umask(before)
    assert {oct(file.stat().st_mode & 0o777) for file in (tmp_path / "out").iterdir()} == {"0o640"}
    assert oct((tmp_path / "out").stat().st_mode & 0o777) == "0o750"


def test_written_files_are_plain_safetensors(tmp_path: Path) -> None:
    save_model(tiny("ckpt_kernel"), tmp_path / "out")
    with safe_open(tmp_path / "out/model-00001-of-00001.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert set(file.keys()) == {spec.name for spec in tensor_specs(tiny("ckpt_kernel").config)}
