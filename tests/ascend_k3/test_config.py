"""K3Config: the released file in and out unchanged; every missing, unknown or impossible key is refused by name."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ascend_k3 import CheckpointError, K3Config
from ascend_k3.config import mxfp4_quantization_config
from tests.paths import FIXTURES

RELEASED = json.loads((FIXTURES / "released_config.json").read_text())
FILES = ("released_config.json", "ckpt_bf16/config.json", "ckpt_mxfp4/config.json", "ckpt_kernel/config.json")


@pytest.mark.parametrize("name", FILES)
def test_a_config_is_written_back_unchanged(name: str) -> None:
    data = json.loads((FIXTURES / name).read_text())
    assert K3Config.from_pretrained(FIXTURES / name).to_dict() == data


def test_reading_does_not_share_memory_with_the_input() -> None:
    data = copy.deepcopy(RELEASED)
    config = K3Config.from_dict(data)
    config.to_dict()["text_config"]["linear_attn_config"]["kda_layers"].clear()
    config.to_dict()["text_config"]["quantization_config"]["ignore"].clear()
    assert config.to_dict() == RELEASED


def test_the_released_schedule_of_layers() -> None:
    text = K3Config.from_dict(RELEASED).text
    assert text.full_attn_layers == (*range(3, 92, 4), 92)
    assert len(text.kda_layers) == 69 and len(text.full_attn_layers) == 24
    assert [i for i in range(93) if text.is_dense(i)] == [0]
    assert sum(i in text.kda_layers and not text.is_dense(i) for i in range(93)) == 68
    assert text.is_full_attention(91) and text.is_full_attention(92) and not text.is_full_attention(0)
    assert text.num_residual_blocks == 8 and text.latent_width == 576 and text.shared_intermediate_size == 6144
    assert text.kda.stored_heads == 128 and text.pad_token_id == 163839


def test_the_quantization_that_is_written_is_the_released_one() -> None:
    assert mxfp4_quantization_config() == RELEASED["text_config"]["quantization_config"]


def paths(data: Any, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every key of the config that is not metadata, as a path from the top."""
    metadata = {"architectures", "auto_map", "dtype", "initializer_range", "use_cache", "ignore_index"}
    found = []
    for key, value in data.items():
        if key in metadata or key.startswith("_") or key in ("quantization_config", "vision_config"):
            continue
        found.append((*prefix, key))
        if isinstance(value, dict):
            found += paths(value, (*prefix, key))
    return found


ARITHMETIC = paths(RELEASED) + paths(RELEASED["vision_config"], ("vision_config",))


@pytest.mark.parametrize("path", ARITHMETIC, ids=".".join)
def test_a_missing_key_is_named_and_not_guessed(path: tuple[str, ...]) -> None:
    data = copy.deepcopy(RELEASED)
    holder = data
    for key in path[:-1]:
        holder = holder[key]
    del holder[path[-1]]
    with pytest.raises(CheckpointError, match=rf"\b{path[-1]} is missing; it changes what the model computes"):
        K3Config.from_dict(data)


def test_the_keys_whose_absence_gave_garbage_elsewhere_are_among_the_required() -> None:
    names = {path[-1] for path in ARITHMETIC}
    assert {
        "gate_lower_bound",
        "activation_situ_beta",
        "activation_situ_linear_beta",
        "routed_expert_hidden_size",
        "attn_res_block_size",
        "full_attn_layers",
        "kda_layers",
    } <= names


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


WRONG: dict[str, tuple[str, Any, str]] = {
    "unknown-top": ("logit_scale", 2.0, "config.logit_scale is not a key of Kimi K3 and could change"),
    "unknown-text": ("text_config.rope_theta", 1e4, "text_config.rope_theta is not a key of Kimi K3"),
    "unknown-linear": ("text_config.linear_attn_config.gate_rank", 128, "linear_attn_config.gate_rank is not a key"),
    "unknown-vision": ("vision_config.vt_pool", 2, "vision_config.vt_pool is not a key"),
    "other-activation": ("text_config.hidden_act", "silu", "hidden_act is 'silu'; Kimi K3 has 'situ'"),
    "rope": ("text_config.mla_use_nope", False, "mla_use_nope is False; Kimi K3 has True"),
    "one-is-not-true": ("text_config.mla_use_nope", 1, "mla_use_nope is 1; Kimi K3 has True"),
    "softmax-router": ("text_config.moe_router_activation_func", "softmax", "moe_router_activation_func is 'softmax'"),
    "tied": ("tie_word_embeddings", True, "tie_word_embeddings is True"),
    "low-rank-gate": ("text_config.linear_attn_config.use_full_rank_gate", False, "use_full_rank_gate is False"),
    "mtp": ("text_config.num_nextn_predict_layers", 1, "num_nextn_predict_layers is 1; Kimi K3 has 0"),
    "grouped-keys": ("text_config.num_key_value_heads", 8, "num_key_value_heads is 8; Kimi K3 has 96"),
    "text-type": ("text_config.hidden_size", "7168", "text_config.hidden_size must be of type int, got '7168'"),
    "bool-is-no-int": ("text_config.q_lora_rank", True, "q_lora_rank must be of type int, got True"),
    "negative": ("text_config.num_experts", -1, "num_experts is -1; it must be positive"),
    "top-k": ("text_config.num_experts_per_token", 900, "num_experts_per_token is 900; there are 896 experts"),
    "gate-bound": ("text_config.linear_attn_config.gate_lower_bound", -9.0, r"gate_lower_bound is -9.0; .*\[-5, 0\)"),
    "pad": ("text_config.pad_token_id", 163840, r"pad_token_id is 163840; it must lie in \[0, vocab_size = 163840\)"),
    "pad-differs": ("pad_token_id", 0, "config.pad_token_id is 0; Kimi K3 has 163839"),
    "media-type": ("media_placeholder_token_id", "7", "media_placeholder_token_id must be of type int, got '7'"),
    "placeholder-type": ("image_placeholder", 7, "image_placeholder must be of type str, got 7"),
    "not-finite": ("text_config.rms_norm_eps", float("nan"), "rms_norm_eps must be of type float, got nan"),
    "media": ("media_placeholder_token_id", 200000, "media_placeholder_token_id is 200000"),
    "dense": ("text_config.first_k_dense_replace", 94, "first_k_dense_replace is 94"),
    "widths": ("vision_config.text_hidden_size", 4096, "text_hidden_size is 4096; text_config.hidden_size is 7168"),
    "tower-widths": ("vision_config.mm_hidden_size", 64, "mm_hidden_size is 64; .*vt_hidden_size, 1024"),
    "tower-heads": ("vision_config.qkv_hidden_size", 1000, "qkv_hidden_size is 1000; it must be a multiple"),
    "model-type": ("model_type", "kimi_k2", "model_type is 'kimi_k2'; Kimi K3 has 'kimi_k3'"),
    "text-object": ("text_config", 3, "text_config must be a JSON object, got int"),
    "list-type": ("text_config.linear_attn_config.full_attn_layers", "4", "must be an ascending list of layer numbers"),
    "list-order": ("text_config.linear_attn_config.full_attn_layers", [8, 4], "must be an ascending list"),
    "list-gap": (
        "text_config.linear_attn_config.full_attn_layers",
        [4, 8],
        r"name each layer from 1 to .*wrong are \[12",
    ),
    "zero-based": (
        "text_config.linear_attn_config.kda_layers",
        list(range(69)),
        "must together name each layer from 1",
    ),
    "method": ("text_config.quantization_config.quant_method", "gptq", "quant_method must be 'compressed-tensors'"),
    "format": (
        "text_config.quantization_config.format",
        "nvfp4",
        "format is 'nvfp4'; K3 experts are 'mxfp4-pack-quant",
    ),
    "groups": ("text_config.quantization_config.config_groups", {}, "must have exactly one group"),
}


WRONG.update(
    {
        "one-layer-too-many": (
            "text_config.num_hidden_layers",
            94,
            r"from 1 to num_hidden_layers = 94 once; wrong are \[94\]\.$",
        ),
        "many-layers": (
            "text_config.num_hidden_layers",
            1000,
            r"wrong are \[94, 95, 96, 97, 98, 99, 100, 101\] and more\.$",
        ),
        "billions-of-layers": (
            "text_config.num_hidden_layers",
            10**10,
            "text_config.num_hidden_layers is 10000000000; it must be at most 4096",
        ),
        "absurd-layers": ("text_config.num_hidden_layers", 10**30, "num_hidden_layers must be of type int, got 10000"),
        "absurd-layer-number": (
            "text_config.linear_attn_config.full_attn_layers",
            [4, 10**400],
            r"wrong are \[8, 12, .*\] and more\.$",
        ),
        "long-list": (
            "text_config.linear_attn_config.full_attn_layers",
            [5] * 10**6,
            r"must be an ascending list of layer numbers from 1, got \[5, 5, 5, 5, 5, 5, 5, 5, \.\.\.\]\.$",
        ),
        "absurd-float": (
            "text_config.rms_norm_eps",
            10**309,
            r"rms_norm_eps must be of type float, got 1000\S+0000\.$",
        ),
        "unwritable-float": (
            "text_config.rms_norm_eps",
            10**5000,
            "rms_norm_eps must be of type float, got one of .* too",
        ),
        "unwritable-id": (
            "media_placeholder_token_id",
            10**5000,
            "media_placeholder_token_id must be of type int, got",
        ),
        "long-value": ("text_config.hidden_act", "x" * 10**6, r"hidden_act is 'x+\.\.\.x+'; Kimi K3 has 'situ'"),
        "experts": ("text_config.num_experts", 10**10, "text_config.num_experts is 10000000000; .* at most 1048576"),
        "experts-of-all-layers": (
            "text_config.num_experts",
            10**5,
            "num_experts is 100000, which makes 9200000 experts in all layers; they must be at most 1048576",
        ),
        "tower-layers": ("vision_config.vt_num_hidden_layers", 10**10, "vt_num_hidden_layers is .* at most 4096"),
        "width": ("text_config.hidden_size", 2**31 + 1, "text_config.hidden_size is 2147483649; .* at most 2147483648"),
        "kda-width": (
            "text_config.linear_attn_config.head_dim",
            2**40,
            "head_dim is 1099511627776; .* at most 2147483648",
        ),
        "tower-width": ("vision_config.vt_intermediate_size", 2**40, "vt_intermediate_size is .* at most 2147483648"),
        "no-kernel": (
            "text_config.linear_attn_config.short_conv_kernel_size",
            1,
            "short_conv_kernel_size is 1; it must be at least 2",
        ),
        "deep-metadata": ("text_config.auto_map", nested(5000), "text_config has values that are nested too deeply"),
    }
)
INITIALIZER = "initializer_range is {}; it must be a positive finite number, or be left out"
for value, text in (
    (None, "None"),
    (0, "0"),
    (-0.1, "-0.1"),
    (True, "True"),
    ("0.02", "'0.02'"),
    (float("inf"), "inf"),
):
    WRONG[f"initializer-{text}"] = ("text_config.initializer_range", value, INITIALIZER.format(text))
WRONG["initializer-nan"] = ("text_config.initializer_range", float("nan"), INITIALIZER.format("nan"))
WRONG["initializer-absurd"] = ("text_config.initializer_range", 10**400, "initializer_range is 10000.*; it must be a")


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_value_is_refused_by_name(case: str) -> None:
    path, value, message = WRONG[case]
    data = copy.deepcopy(RELEASED)
    *parents, last = path.split(".")
    holder = data
    for key in parents:
        holder = holder[key]
    holder[last] = value
    with pytest.raises(CheckpointError, match=message) as error:
        K3Config.from_dict(data)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("value", [None, 0.02, 1])
def test_the_initializer_range_may_be_left_out(value: float | None) -> None:
    data = copy.deepcopy(RELEASED)
    del data["text_config"]["initializer_range"]
    if value is not None:
        data["text_config"]["initializer_range"] = value
    assert K3Config.from_dict(data).to_dict() == data


@pytest.mark.parametrize("key, value", [("num_bits", 8), ("group_size", 64), ("type", "int"), ("symmetric", False)])
def test_another_weight_format_is_refused(key: str, value: Any) -> None:
    data = copy.deepcopy(RELEASED)
    data["text_config"]["quantization_config"]["config_groups"]["group_0"]["weights"][key] = value
    with pytest.raises(CheckpointError, match=rf"weights.{key} is {value!r}"):
        K3Config.from_dict(data)


def test_quantized_activations_are_refused() -> None:
    data = copy.deepcopy(RELEASED)
    data["text_config"]["quantization_config"]["config_groups"]["group_0"]["input_activations"] = {"num_bits": 8}
    with pytest.raises(CheckpointError, match="input_activations is set"):
        K3Config.from_dict(data)


def test_packed_experts_need_whole_groups() -> None:
    data = copy.deepcopy(RELEASED)
    data["text_config"]["moe_intermediate_size"] = 3080
    with pytest.raises(CheckpointError, match="moe_intermediate_size is 3080; MXFP4 groups need a multiple of 32"):
        K3Config.from_dict(data)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="config.json does not exist; give a checkpoint folder"):
        K3Config.from_pretrained(tmp_path)
    file = tmp_path / "config.json"
    os.mkfifo(file)
    with pytest.raises(CheckpointError, match="config.json: it is not a regular file"):
        K3Config.from_pretrained(tmp_path)
    file.unlink()
    file.write_text('{"image_placeholder": "a", "image_placeholder": "b"}')
    with pytest.raises(CheckpointError, match="config.json: the key 'image_placeholder' stands twice"):
        K3Config.from_pretrained(tmp_path)
    file.write_text("{")
    with pytest.raises(CheckpointError, match="config.json: the file is not readable as JSON"):
        K3Config.from_pretrained(tmp_path)
    file.write_text("[]")
    with pytest.raises(CheckpointError, match="config.json: config must be a JSON object, got list"):
        K3Config.from_pretrained(file)
