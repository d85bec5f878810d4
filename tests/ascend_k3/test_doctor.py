"""The checkpoint doctor: each kind of damage, made in a small checkpoint, is named with its place and its remedy."""

import gc
import hashlib
import json
import os
import re
import shutil
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_k3.config import K3Config
from ascend_k3.doctor import CheckReport, Problem, check_checkpoint, format_problem, report_as_json
from ascend_k3.ops.errors import CheckpointError
from ascend_k3.problems import KINDS
from ascend_k3.shards import read_header, scan_header
from tests.ascend_k3.imitation import INDEX, edit_header, edit_json, write_imitation
from tests.paths import FIXTURES

MXFP4, BF16 = FIXTURES / "ckpt_mxfp4", FIXTURES / "ckpt_bf16"
SINGLE = "model.safetensors"
SHARDS = [f"model-0000{number}-of-00004.safetensors" for number in (1, 2, 3, 4)]
LAYER = "language_model.model.layers.1."
EXPERT = f"{LAYER}block_sparse_moe.experts.0.w1"
A_LOG = f"{LAYER}self_attn.A_log"
TEXT = "text_config"
LINEAR = "linear_attn_config"
NOT_DAMAGE = {"quantized-set", "tokenizer-missing"}  # notes on any small checkpoint of the tests


def damage(report: CheckReport) -> list[Problem]:
    return [problem for problem in report.problems if problem.code not in NOT_DAMAGE]


def only(report: CheckReport, code: str) -> Problem:
    """The one problem besides the usual notes, which must be of this code."""
    found = damage(report)
    assert [problem.code for problem in found] == [code], [format_problem(problem) for problem in found]
    return found[0]


def first(report: CheckReport, code: str) -> Problem:
    return next(problem for problem in report.problems if problem.code == code)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the small MXFP4 checkpoint: one file with an index."""
    return Path(shutil.copytree(MXFP4, tmp_path / "ckpt"))


@pytest.fixture
def imitation(tmp_path: Path) -> Path:
    """An imitation of the small MXFP4 checkpoint in four shards."""
    write_imitation(tmp_path / "ckpt", K3Config.from_pretrained(MXFP4), shards=4)
    return tmp_path / "ckpt"


def shard_of(folder: Path, name: str) -> str:
    return json.loads((folder / INDEX).read_text())["weight_map"][name]


# ---- checkpoints that are fine


def test_the_whole_release_in_seconds(tmp_path):
    config = K3Config.from_pretrained(FIXTURES / "released_config.json")
    write_imitation(tmp_path, config, shards=96)
    steps: list[tuple[int, int]] = []
    start = time.process_time()
    report = check_checkpoint(tmp_path, progress=lambda done, total: steps.append((done, total)))
    seconds = time.process_time() - start
    assert report.ok
    assert (report.shards, report.tensors, report.bytes) == (96, 497_220, 1_560_860_324_864)
    note = first(report, "quantized-set")
    assert note.severity == "note" and "would quantize 371 linear modules that are stored unpacked" in note.message
    assert not damage(report)
    assert steps == [(done, 96) for done in range(1, 97)]
    assert seconds < 30

    # The lengths are the true ones, so that the checks for truncation have run: 16 GB of zeros, then one byte less.
    last = tmp_path / "model-00096-of-00096.safetensors"
    assert last.stat().st_size > 15e9
    os.truncate(last, last.stat().st_size - 1)
    assert scan_header(last).missing_bytes == 1


@pytest.mark.parametrize("name, tensors", [("ckpt_bf16", 444), ("ckpt_mxfp4", 636), ("ckpt_kernel", 320)])
def test_small_checkpoints_are_fine(name, tensors):
    report = check_checkpoint(FIXTURES / name)
    assert gc.isenabled()  # switched off while it works
    assert report.ok and not damage(report)
    assert (report.shards, report.tensors) == (1, tensors)
    assert report.bytes == json.loads((FIXTURES / name / INDEX).read_text())["metadata"]["total_size"]


def test_one_file_without_an_index_is_a_checkpoint(copied):
    (copied / INDEX).unlink()
    report = check_checkpoint(copied)
    assert report.ok and not damage(report)
    assert report.tensors == 636


def test_names_without_the_root_are_accepted_with_a_note(imitation):
    def strip(names: dict) -> None:
        for name in list(names):
            names[name.removeprefix("language_model.")] = names.pop(name)

    edit_json(imitation / INDEX, lambda index: strip(index["weight_map"]))
    for shard in SHARDS:
        edit_header(imitation / shard, strip)
    report = check_checkpoint(imitation)
    problem = only(report, "names-root")
    assert report.ok and problem.severity == "note"
    assert problem.where.endswith(": model.embed_tokens.weight")
    assert "lack the root 'language_model.'; both forms are loaded" in problem.message


def test_quantized_set_counts_what_the_ignore_list_leaves_in(copied):
    # 8 MoE layers with two projections of the latent, and 2 * 9 + 1 mixing points
    assert "would quantize 35 linear modules" in first(check_checkpoint(copied), "quantized-set").message
    edit_json(
        copied / "config.json",
        lambda config: config[TEXT]["quantization_config"]["ignore"].extend(["re:.*res_proj", "re:.*routed_"]),
    )
    assert all(problem.code != "quantized-set" for problem in check_checkpoint(copied).problems)


def test_ignored_names_count_without_the_pattern_prefix_too(copied):
    name = "language_model.model.output_attn_res_proj"
    edit_json(copied / "config.json", lambda config: config[TEXT]["quantization_config"]["ignore"].append(name))
    assert "would quantize 34 linear modules" in first(check_checkpoint(copied), "quantized-set").message


# ---- damage, one case each: how it is made, the code, the place, words of the message


def drop_key(*path: str) -> Callable[[Path], None]:
    def change(config: dict) -> None:
        for key in path[:-1]:
            config = config[key]
        del config[path[-1]]

    return lambda folder: edit_json(folder / "config.json", change)


def set_key(*path: str, value: object) -> Callable[[Path], None]:
    def change(config: dict) -> None:
        for key in path[:-1]:
            config = config[key]
        config[path[-1]] = value

    return lambda folder: edit_json(folder / "config.json", change)


def header(shard: str, change: Callable[[dict], object]) -> Callable[[Path], None]:
    return lambda folder: edit_header(folder / shard, change)


def unnamed(name: str) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / INDEX, lambda index: index["weight_map"].pop(name))


def placed(name: str, shard: str) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / INDEX, lambda index: index["weight_map"].update({name: shard}))


def write(file: str, content: object) -> Callable[[Path], None]:
    text = content if isinstance(content, str) else json.dumps(content)
    return lambda folder: (folder / file).write_text(text) and None


def resized(file: str, change: int) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / file, (folder / file).stat().st_size + change)


def reshape(name: str, dtype: str, shape: list[int]) -> Callable[[dict], None]:
    def change(tensors: dict) -> None:
        tensors[name].update(dtype=dtype, shape=shape)

    return change


def rename(old: str, new: str, shard: str = SINGLE) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        edit_json(folder / INDEX, lambda index: index["weight_map"].update({new: index["weight_map"].pop(old)}))
        edit_header(folder / shard, lambda tensors: tensors.update({new: tensors.pop(old)}))

    return change


def written_a_log(values: list[float]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        shard = read_header(folder / SINGLE)
        with open(folder / SINGLE, "r+b") as file:
            file.seek(shard.data_start + shard.tensors[A_LOG].begin)
            file.write(struct.pack(f"<{len(values)}f", *values))

    return change


def replaced_by(file: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / file).unlink(missing_ok=True)
        make(folder / file)

    return change


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def twice(file: str, key: str) -> Callable[[Path], None]:
    """Let a key of a JSON file stand twice, with the same value."""

    def change(folder: Path) -> None:
        text = (folder / file).read_text()
        value = json.dumps(json.loads(text)[key])
        (folder / file).write_text(text.replace("{", f'{{"{key}": {value}, ', 1))

    return change


END = {"content": "E"}
ONE_FILE = {
    "config missing": (
        lambda folder: (folder / "config.json").unlink(),
        "config-missing",
        "config.json",
        "the file is absent .*: download it again",
    ),
    "config no JSON": (write("config.json", "{"), "config-invalid", "config.json", "not readable as JSON"),
    "gate bound missing": (
        drop_key(TEXT, LINEAR, "gate_lower_bound"),
        "config-invalid",
        "config.json",
        "linear_attn_config.gate_lower_bound is missing; .* take it from the config.json",
    ),
    "situ beta missing": (
        drop_key(TEXT, "activation_situ_linear_beta"),
        "config-invalid",
        "config.json",
        "text_config.activation_situ_linear_beta is missing",
    ),
    "layer list missing": (
        drop_key(TEXT, LINEAR, "kda_layers"),
        "config-invalid",
        "config.json",
        "linear_attn_config.kda_layers is missing",
    ),
    "unknown key": (
        set_key(TEXT, "sliding_window", value=4096),
        "config-invalid",
        "config.json",
        "text_config.sliding_window is not a key of Kimi K3 .* remove it",
    ),
    "index no JSON": (write(INDEX, "<html>"), "index-invalid", INDEX, "not readable as JSON .*: download it again"),
    "index list": (write(INDEX, []), "index-invalid", INDEX, "must be an object with an object 'weight_map'"),
    "total size": (
        lambda folder: edit_json(folder / INDEX, lambda index: index["metadata"].update(total_size=7)),
        "total-size",
        INDEX,
        "metadata.total_size is 7 and the tensors have 1508896 bytes; write the index",
    ),
    "config twice": (
        twice("config.json", "pad_token_id"),
        "config-invalid",
        "config.json",
        "'pad_token_id' stands twice",
    ),
    "index twice": (twice(INDEX, "metadata"), "index-invalid", INDEX, "the key 'metadata' stands twice"),
    "config is a pipe": (
        replaced_by("config.json", os.mkfifo),
        "config-invalid",
        "config.json",
        "is not a regular file",
    ),
    "index is a pipe": (replaced_by(INDEX, os.mkfifo), "index-invalid", INDEX, "is not a regular file"),
    "shard is a pipe": (replaced_by(SINGLE, os.mkfifo), "shard-header", SINGLE, "^it is not a regular file: download"),
    "config is a loop": (replaced_by("config.json", loop), "config-invalid", "config.json", "cannot be read .Too many"),
    "index is a loop": (replaced_by(INDEX, loop), "index-invalid", INDEX, "cannot be read .Too many"),
    "shard is a loop": (replaced_by(SINGLE, loop), "shard-header", SINGLE, "^it is a symbolic link that leads to no"),
    "tokens are a loop": (
        replaced_by("generation_config.json", loop),
        "json-invalid",
        "generation_config.json",
        "cannot be read .Too many",
    ),
    "long shard name": (placed("x", "x" * 5000), "index-invalid", INDEX, "has 5,000 characters, .* at most 255 bytes"),
    "shard of many dimensions": (
        header(SINGLE, reshape(A_LOG, "F32", [2] * 10**5)),
        "shard-header",
        SINGLE,
        "A_log has 100,000 dimensions, .*: download it again",
    ),
    "billions of layers": (
        set_key(TEXT, "num_hidden_layers", value=10**10),
        "config-invalid",
        "config.json",
        "num_hidden_layers is 10000000000; it must be at most",
    ),
    "billions of experts": (
        set_key(TEXT, "num_experts", value=10**10),
        "config-invalid",
        "config.json",
        "num_experts is 10000000000; it must be at most",
    ),
    "absurd float": (
        set_key(TEXT, "routed_scaling_factor", value=10**400),
        "config-invalid",
        "config.json",
        "routed_scaling_factor must be of type float",
    ),
    "shard is empty": (write(SINGLE, ""), "shard-header", SINGLE, "has 0 bytes, too few .*: download it again"),
    "shard is a page": (write(SINGLE, "<!DOCTYPE html>"), "shard-header", SINGLE, "no safetensors file: download it"),
    "shard short": (resized(SINGLE, -10), "shard-truncated", SINGLE, "10 bytes shorter than its header says: download"),
    "shard nearly empty": (resized(SINGLE, -1_500_000), "shard-truncated", SINGLE, "1,500,000 bytes shorter than its"),
    "shard long": (resized(SINGLE, 10), "shard-too-long", SINGLE, "10 bytes longer than its header says: download"),
    "shape": (
        header(SINGLE, reshape(f"{LAYER}self_attn.q_proj.weight", "BF16", [64, 128])),
        "tensor-shape",
        f"{SINGLE}: {LAYER}self_attn.q_proj.weight",
        r"shape is \[64, 128\] .* must be \[128, 64\]; use config.json",
    ),
    "dtype of a gate": (
        header(SINGLE, reshape(f"{LAYER}self_attn.dt_bias", "I32", [128])),
        "tensor-dtype",
        f"{SINGLE}: {LAYER}self_attn.dt_bias",
        "I32 and must be F32: gates, .*; take them from",
    ),
    "dtype of a matrix": (
        header(SINGLE, reshape("language_model.model.norm.weight", "F16", [64])),
        "tensor-dtype",
        f"{SINGLE}: language_model.model.norm.weight",
        "F16 .* BF16: .*; convert the weights",
    ),
    "dtype of codes": (
        header(SINGLE, reshape(f"{EXPERT}.weight_packed", "I8", [32, 32])),
        "tensor-dtype",
        f"{SINGLE}: {EXPERT}.weight_packed",
        "I8 .* U8: .* stored as bytes; convert the weights again",
    ),
    "A_log short": (
        set_key(TEXT, LINEAR, "num_heads", value=48),
        "a-log-short",
        f"{SINGLE}: language_model.model.layers.0.self_attn.A_log",
        "A_log has 32 entries for 48 heads; download the shard again",
    ),
    "A_log tail": (
        written_a_log([1.0] * 4 + [0.0] * 26 + [float("nan"), -2.0]),
        "a-log-tail",
        f"{SINGLE}: {A_LOG}",
        "of the 28 padding entries 2 are not zero; the first 4 are used: compare the shard's hash",
    ),
    "config not quantized": (
        drop_key(TEXT, "quantization_config"),
        "experts-packed",
        "config.json",
        "packed as MXFP4 and quantization_config is absent; they are read as packed: add it",
    ),
    "experts ignored": (
        set_key(TEXT, "quantization_config", "ignore", value=["re:.*"]),
        "experts-ignored",
        "config.json",
        "leave out the experts, which are packed; .* take the lists from the release",
    ),
    "ignore no list": (
        set_key(TEXT, "quantization_config", "ignore", value="re:.*"),
        "quantized-patterns",
        "config.json",
        "ignore is 're:.*' and must be a list of strings; take it from the release",
    ),
    "ignore no pattern": (
        set_key(TEXT, "quantization_config", "ignore", value=["re:("]),
        "quantized-patterns",
        "config.json",
        "a pattern that is no regular expression .*; take it from the release",
    ),
    "no vision_config": (
        drop_key("vision_config"),
        "vision-without-config",
        "config.json",
        "hold 18 vision tensors and vision_config is absent; use the config.json of these weights",
    ),
    "generation no JSON": (
        write("generation_config.json", "{"),
        "json-invalid",
        "generation_config.json",
        "not readable as JSON .*: download it again",
    ),
    "generation a list": (
        write("generation_config.json", []),
        "json-invalid",
        "generation_config.json",
        "must be a JSON object, got list: download it again",
    ),
    "eos out of range": (
        write("generation_config.json", {"eos_token_id": [146, 160]}),
        "token-id",
        "generation_config.json",
        r"eos token 160 must be a number in \[0, .* = 160\): download",
    ),
    "eos a word": (
        write("generation_config.json", {"eos_token_id": "x"}),
        "token-id",
        "generation_config.json",
        "eos token 'x' must be a number",
    ),
    "pad out of range": (
        write("generation_config.json", {"pad_token_id": -1}),
        "token-id",
        "generation_config.json",
        "pad token -1 must be a number",
    ),
    "tokenizer out of range": (
        write("tokenizer_config.json", {"eos_token": "E", "added_tokens_decoder": {"163585": END}}),
        "token-id",
        "tokenizer_config.json",
        "eos token 163585 must be a number",
    ),
    "eos differs": (
        write("generation_config.json", {"eos_token_id": [145, 146]}),
        "stop-tokens",
        "generation_config.json",
        r"generation_config.json \[145, 146\]\); .* at each of \[145, 146\]",
    ),
    "tokenizer eos differs": (
        write("tokenizer_config.json", {"eos_token": {"content": "E"}, "added_tokens_decoder": {"145": END}}),
        "stop-tokens",
        "tokenizer_config.json",
        r"tokenizer_config.json \[145\]\); .* at each of \[145, 146\]",
    ),
    "pad differs": (
        write("generation_config.json", {"pad_token_id": 0}),
        "pad-token",
        "generation_config.json",
        "the pad token is 0 here and 159 in config.json, which is used",
    ),
    "scale missing": (
        rename(f"{EXPERT}.weight_scale", f"{LAYER}spare"),
        "scale-missing",
        f"{SINGLE}: {EXPERT}.weight_packed",
        "no weight_scale beside it, .*; download shard and",
    ),
    "unknown tensor": (
        rename("language_model.model.norm.weight", "language_model.model.norm.bias"),
        "tensor-unknown",
        f"{SINGLE}: language_model.model.norm.bias",
        "no such tensor; use the config.json of these",
    ),
    "missing tensor": (
        rename("language_model.model.norm.weight", "language_model.model.norm.bias"),
        "tensor-missing",
        f"{INDEX}: language_model.model.norm.weight",
        "is in no shard; download the shard that",
    ),
    "mixed roots": (
        rename("language_model.lm_head.weight", "lm_head.weight"),
        "names-mixed",
        f"{SINGLE}: lm_head.weight",
        "1 names begin with .* and 617 with .* mixed: download all from one",
    ),
}
# Damage that is seen from two sides has two problems.
TWO_SIDED = {"scale missing", "unknown tensor", "missing tensor", "A_log short"}


@pytest.mark.parametrize("change, code, where, message", ONE_FILE.values(), ids=ONE_FILE)
def test_damage_to_a_checkpoint_of_one_file(copied, request, change, code, where, message):
    change(copied)
    report = check_checkpoint(copied)
    alone = request.node.callspec.id not in TWO_SIDED
    check_problem(report, only(report, code) if alone else first(report, code), where, message)


def check_problem(report: CheckReport, problem: Problem, where: str, message: str) -> None:
    assert problem.where == where
    assert re.search(message, problem.message), problem.message
    assert problem.severity == KINDS[problem.code][0]
    assert report.ok == (problem.severity != "error") or len(damage(report)) > 1
    assert "\n" not in format_problem(problem)


FIRST = "language_model.model.embed_tokens.weight"
FOUR_FILES = {
    "index missing": (
        lambda folder: (folder / INDEX).unlink(),
        "index-missing",
        INDEX,
        "the index is absent, and so is model.safetensors, .*: download the index again",
    ),
    "shard missing": (
        lambda folder: (folder / SHARDS[1]).unlink(),
        "shard-missing",
        SHARDS[1],
        "the index places [0-9]+ tensors in this shard and it is absent: download it again",
    ),
    "stale shard": (
        lambda folder: shutil.copy(folder / SHARDS[0], folder / "old.safetensors"),
        "shard-not-in-index",
        "old.safetensors",
        "the index places no tensor in this shard; remove the file if it is stale",
    ),
    "tensor not in index": (
        unnamed(FIRST),
        "tensor-not-in-index",
        f"{SHARDS[0]}: {FIRST}",
        "the index does not name it; download shard and index again",
    ),
    "tensor not in shard": (
        placed("language_model.model.more", SHARDS[2]),
        "tensor-not-in-shard",
        f"{SHARDS[2]}: language_model.model.more",
        "which does not hold it; download shard and index again",
    ),
    "wrong shard": (
        placed(FIRST, SHARDS[3]),
        "tensor-wrong-shard",
        f"{SHARDS[3]}: {FIRST}",
        f"places the tensor here and it is in {SHARDS[0]}; download the index and both shards again",
    ),
    "two formats": (
        rename(f"{EXPERT}.weight_packed", f"{EXPERT}.weight", SHARDS[0]),
        "experts-mixed",
        f"{SHARDS[0]}: {EXPERT}.weight",
        "191 .* packed and 1 are not; .* convert it again",
    ),
}


@pytest.mark.parametrize("change, code, where, message", FOUR_FILES.values(), ids=FOUR_FILES)
def test_damage_to_a_checkpoint_of_four_files(imitation, change, code, where, message):
    change(imitation)
    report = check_checkpoint(imitation)
    check_problem(report, only(report, code), where, message)


@pytest.mark.parametrize(
    "make, message",
    [(Path.mkdir, "it is a folder"), (loop, "it is a symbolic link"), (os.mkfifo, "it is not a regular file")],
    ids=["folder", "loop", "pipe"],
)
def test_what_is_no_file_and_not_in_the_index_is_told_as_what_it_is(copied, make, message):
    make(copied / "x.safetensors")
    problems = damage(check_checkpoint(copied))
    assert [(problem.code, problem.where) for problem in problems] == [
        ("shard-header", "x.safetensors"),
        ("shard-not-in-index", "x.safetensors"),
    ]
    assert problems[0].message.startswith(message)


def test_a_lost_tensor_is_reported_once(imitation):
    edit_header(imitation / SHARDS[0], lambda tensors: tensors.update(spare=tensors.pop(FIRST)))
    codes = {problem.code for problem in damage(check_checkpoint(imitation))}
    assert codes == {"tensor-not-in-shard", "tensor-not-in-index", "tensor-unknown"}


def test_the_same_tensor_in_two_shards(imitation):
    def second_norm(tensors: dict) -> None:
        name = next(name for name, info in tensors.items() if name.endswith(".input_layernorm.weight"))
        tensors["language_model.model.norm.weight"] = tensors.pop(name)

    edit_header(imitation / SHARDS[1], second_norm)
    problem = first(check_checkpoint(imitation), "tensor-twice")
    assert problem.where == f"{SHARDS[3]}: language_model.model.norm.weight"
    assert problem.message == f"the tensor is also in {SHARDS[1]}; remove the shard that is stale."


def test_numbers_of_shards_with_a_gap(imitation):
    lost = SHARDS[2]

    def forget(index: dict) -> None:
        index["weight_map"] = {name: file for name, file in index["weight_map"].items() if file != lost}

    edit_json(imitation / INDEX, forget)
    (imitation / lost).unlink()
    report = check_checkpoint(imitation)
    problem = first(report, "shard-count")
    assert problem.where == lost and problem.severity == "warning"
    assert "count 4 shards and 1 of the numbers do not occur; download the absent shards" in problem.message
    assert not report.ok and first(report, "tensor-missing")


def test_vision_tensors_that_are_absent_are_one_problem(copied, tmp_path):
    config = K3Config.from_pretrained(copied)
    write_imitation(tmp_path / "text", replace(config, vision=None), shards=1)
    shutil.copy(copied / "config.json", tmp_path / "text")
    problem = only(check_checkpoint(tmp_path / "text"), "vision-missing")
    assert problem.where == "config.json"
    assert "download their shard, or remove vision_config" in problem.message


def test_experts_that_are_not_packed_against_the_config(tmp_path):
    shutil.copytree(BF16, tmp_path / "ckpt")
    shutil.copy(MXFP4 / "config.json", tmp_path / "ckpt")
    report = check_checkpoint(tmp_path / "ckpt")
    problem = only(report, "experts-not-packed")
    assert report.ok and problem.severity == "warning"
    assert "they are read as they are: remove it" in problem.message


def test_packed_experts_of_a_width_without_whole_groups(copied):
    drop_key(TEXT, "quantization_config")(copied)
    set_key(TEXT, "moe_intermediate_size", value=48)(copied)
    problem = first(check_checkpoint(copied), "experts-width")
    assert problem.where == "config.json"
    assert "text_config.moe_intermediate_size is 48; experts stored as MXFP4 need a multiple of 32" in problem.message


def test_an_a_log_without_padding_is_loaded_with_a_warning(tmp_path):
    def unpadded(tensors: dict) -> None:
        position = 0
        for name, info in tensors.items():
            if name != "__metadata__":
                begin, end = info["data_offsets"]
                if name == A_LOG:
                    info["shape"], end = [4], begin + 16
                info["data_offsets"] = [position, position + end - begin]
                position += end - begin

    write_imitation(tmp_path, K3Config.from_pretrained(MXFP4), shards=1)
    shard = next(tmp_path.glob("*.safetensors"))
    edit_header(shard, unpadded)
    os.truncate(shard, shard.stat().st_size - 28 * 4)
    edit_json(tmp_path / INDEX, lambda index: index.pop("metadata"))
    report = check_checkpoint(tmp_path)
    problem = only(report, "a-log-length")
    assert report.ok and problem.where == f"{shard.name}: {A_LOG}"
    assert "has 4 entries and the release would store 32; the first 4 are used" in problem.message


def test_a_model_safetensors_without_index_is_the_whole_checkpoint(copied):
    (copied / INDEX).unlink()
    shutil.copy(copied / SINGLE, copied / "old.safetensors")
    assert only(check_checkpoint(copied), "shard-not-in-index").where == "old.safetensors"


def test_a_tokenizer_that_is_absent_is_a_note(copied):
    note = first(check_checkpoint(copied), "tokenizer-missing")
    assert (note.severity, note.where) == ("note", "tiktoken.model")
    (copied / "tiktoken.model").touch()
    assert all(problem.code != "tokenizer-missing" for problem in check_checkpoint(copied).problems)


def test_an_empty_folder_has_two_errors_and_no_flood(tmp_path):
    assert [problem.code for problem in damage(check_checkpoint(tmp_path))] == ["config-missing", "index-missing"]
    shutil.copy(MXFP4 / "config.json", tmp_path)
    assert [problem.code for problem in damage(check_checkpoint(tmp_path))] == ["index-missing"]


def test_many_problems_of_one_kind_are_cut_short_and_counted(copied):
    drop_key(TEXT, "quantization_config")(copied)
    shutil.copy(FIXTURES / "ckpt_kernel" / "config.json", copied)
    report = check_checkpoint(copied)
    shapes = [problem for problem in report.problems if problem.code == "tensor-shape"]
    assert len(shapes) == 21 and not report.ok
    assert shapes[-1].where == "checkpoint" and shapes[-1].severity == "error"
    assert shapes[-1].message.startswith("... and ") and "more of this kind" in shapes[-1].message
    order = [problem.severity for problem in report.problems]
    assert order == sorted(order, key=["error", "warning", "note"].index)


# ---- hashes


def manifest_of(folder: Path, *names: str) -> Path:
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    path = folder / "SHA256SUMS"
    path.write_text("".join(lines))
    return path


def test_hashes_that_agree(copied):
    steps: list[tuple[int, int]] = []
    manifest = manifest_of(copied, SINGLE, "config.json", INDEX)
    report = check_checkpoint(copied, manifest=manifest, progress=lambda done, total: steps.append((done, total)))
    assert report.ok and not damage(report)
    total = sum((copied / name).stat().st_size for name in (SINGLE, "config.json", INDEX))
    assert steps[-1] == (total, total) and steps == sorted(steps)


def test_a_byte_that_changed_is_seen_by_the_hash_alone(copied):
    manifest = manifest_of(copied, SINGLE)
    data = bytearray((copied / SINGLE).read_bytes())
    data[-1] ^= 1
    (copied / SINGLE).write_bytes(data)
    assert not damage(check_checkpoint(copied))
    problem = only(check_checkpoint(copied, manifest=manifest), "hash-differs")
    assert problem.where == SINGLE and problem.message.endswith("download the file again.")


def test_files_on_one_side_of_the_manifest_only(imitation):
    manifest = manifest_of(imitation, *SHARDS[1:])
    (imitation / SHARDS[1]).unlink()
    report = check_checkpoint(imitation, manifest=manifest)
    assert [problem.code for problem in damage(report)] == ["shard-missing", "hash-file-missing", "hash-unlisted"]
    assert first(report, "hash-file-missing").where == SHARDS[1]
    unlisted = first(report, "hash-unlisted")
    assert unlisted.where == SHARDS[0] and unlisted.severity == "warning"
    assert "its bytes were not checked; use a manifest of all files" in unlisted.message


def test_a_name_in_the_manifest_that_no_file_can_have_is_absent(copied):
    (copied / "SHA256SUMS").write_text(f"{'a' * 64}  {'x' * 5000}\n")
    codes = [problem.code for problem in damage(check_checkpoint(copied, manifest=copied / "SHA256SUMS"))]
    assert codes == ["hash-file-missing", "hash-unlisted"]


def test_a_file_that_cannot_be_read_is_a_problem(copied):
    (copied / "spare").symlink_to("/proc/self/mem")  # opens, and fails at the first byte
    (copied / "SHA256SUMS").write_text(f"{'a' * 64}  spare\n{'b' * 64}  {SINGLE}\n")
    report = check_checkpoint(copied, manifest=copied / "SHA256SUMS")
    assert [problem.code for problem in damage(report)] == ["hash-unreadable", "hash-differs"]
    problem = first(report, "hash-unreadable")
    assert problem.where == "spare" and "cannot be read (Input/output error): download it again" in problem.message


def test_a_manifest_that_is_not_understood_is_refused(copied):
    (copied / "SHA256SUMS").write_text("what\n")
    with pytest.raises(CheckpointError, match="line 1 is 'what'; it must be a SHA-256"):
        check_checkpoint(copied, manifest=copied / "SHA256SUMS")
    with pytest.raises(FileNotFoundError, match="is no file; give the manifest"):
        check_checkpoint(copied, manifest=copied / "absent")


# ---- calls and output


def test_a_path_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist; give the folder of a checkpoint"):
        check_checkpoint(tmp_path / "absent")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="is a file; give the folder of a checkpoint"):
        check_checkpoint(tmp_path / "file")


def test_a_problem_is_one_printable_line():
    problem = Problem(severity="error", code="tensor-unknown", where="a: x\ny\x1b[2J\ud800", message="no such tensor.")
    assert format_problem(problem) == "error: tensor-unknown: a: x\\ny\\x1b[2J\\ud800: no such tensor."


def test_a_report_as_json(copied):
    (copied / SINGLE).unlink()
    data = json.loads(json.dumps(report_as_json(check_checkpoint(copied))))
    assert (data["ok"], data["shards"], data["tensors"], data["bytes"]) == (False, 0, 0, 0)
    assert data["problems"][0] == {
        "severity": "error",
        "code": "shard-missing",
        "where": SINGLE,
        "message": "the index places 636 tensors in this shard and it is absent: download it again.",
    }


@pytest.fixture(scope="module")
def garbled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("garbled")
    for name in ("config.json", INDEX, SINGLE):
        shutil.copy(MXFP4 / name, folder)
    manifest_of(folder, SINGLE)
    return folder


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_shard_cut_anywhere_is_a_problem(garbled, data):
    original = (MXFP4 / SINGLE).read_bytes()
    header_end = 8 + int.from_bytes(original[:8], "little")
    length = data.draw(st.one_of(st.integers(0, header_end + 8), st.integers(0, len(original) - 1)))
    (garbled / SINGLE).write_bytes(original[:length])
    report = check_checkpoint(garbled)
    assert not report.ok
    assert report.problems[0].code in ("shard-header", "shard-truncated")
    assert report.problems[0].where == SINGLE and "download it again" in report.problems[0].message


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_garbled_shard_is_a_problem_and_never_a_crash(garbled, data):
    original = (MXFP4 / SINGLE).read_bytes()
    header_end = 8 + int.from_bytes(original[:8], "little")
    begin = data.draw(st.one_of(st.integers(0, header_end - 1), st.integers(0, len(original) - 1)))
    new = data.draw(st.binary(min_size=1, max_size=16).filter(lambda new: original[begin : begin + len(new)] != new))
    (garbled / SINGLE).write_bytes(original[:begin] + new + original[begin + len(new) :])
    check_checkpoint(garbled)  # headers alone need not see it
    assert not check_checkpoint(garbled, manifest=garbled / "SHA256SUMS").ok
