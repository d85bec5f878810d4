"""The layout against the released list of tensors, the small checkpoints of the fixtures, and the published counts."""

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ascend_k3 import layout
from ascend_k3.config import K3Config
from ascend_k3.layout import (
    TensorSpec,
    count_activated_parameters,
    count_parameters,
    count_stored_elements,
    linear_modules,
    tensor_specs,
)
from ascend_k3.shards import read_header
from tests.paths import FIXTURES

OTHER_EXPERTS = re.compile(r"\.experts\.[1-9][0-9]*\.")


@pytest.fixture(scope="module")
def released() -> K3Config:
    return K3Config.from_pretrained(FIXTURES / "released_config.json")


@pytest.fixture(scope="module")
def released_specs(released: K3Config) -> list[TensorSpec]:
    return list(tensor_specs(released))


def test_released_tensors_have_the_published_names_dtypes_and_shapes(released_specs):
    listed = json.loads((FIXTURES / "released_tensors.json").read_text())
    ours = [spec for spec in released_specs if not OTHER_EXPERTS.search(spec.name)]
    assert [(name, [dtype, list(shape)]) for name, dtype, shape in ours] == list(listed.items())  # in the same order


def test_all_experts_have_the_tensors_of_expert_0(released_specs):
    experts: dict[str, list[tuple[str, ...]]] = {}
    for spec in released_specs:
        if ".experts." in spec.name:
            head, _, tail = spec.name.partition(".experts.")
            number, _, name = tail.partition(".")
            experts.setdefault(number, []).append((head, name, spec.dtype, spec.shape))
    assert sorted(experts, key=int) == [str(number) for number in range(896)]
    assert all(rows == experts["0"] for rows in experts.values())


def test_released_totals_are_those_of_the_published_index(released_specs):
    assert len(released_specs) == len({spec.name for spec in released_specs}) == 497_220
    assert sum(spec.nbytes for spec in released_specs) == 1_560_860_324_864


@pytest.mark.parametrize("name", ["ckpt_bf16", "ckpt_mxfp4", "ckpt_kernel"])
def test_small_checkpoints_have_exactly_the_tensors_of_their_config(name):
    header = read_header(FIXTURES / name / "model.safetensors")
    stored = {name: (entry.dtype, entry.shape) for name, entry in header.tensors.items()}
    config = K3Config.from_pretrained(FIXTURES / name)
    assert {spec.name: (spec.dtype, spec.shape) for spec in tensor_specs(config)} == stored


def test_expert_format_can_be_chosen_against_the_config():
    bf16 = K3Config.from_pretrained(FIXTURES / "ckpt_bf16")
    mxfp4 = K3Config.from_pretrained(FIXTURES / "ckpt_mxfp4")
    assert list(tensor_specs(bf16, "mxfp4")) == list(tensor_specs(mxfp4))
    assert list(tensor_specs(mxfp4, "bf16")) == list(tensor_specs(bf16))


def test_without_vision_config_there_are_no_vision_tensors():
    config = K3Config.from_pretrained(FIXTURES / "ckpt_bf16")
    names = [spec.name for spec in tensor_specs(replace(config, vision=None))]
    assert all(name.startswith("language_model.") for name in names)
    assert len(names) < len(list(tensor_specs(config)))


def test_parameters_of_the_release(released):
    assert count_parameters(released) == released.num_parameters() == 2_779_931_834_976


def test_stored_elements_of_the_release(released):
    assert count_stored_elements(released) == 2_779_931_837_184


def test_activated_parameters_of_the_release(released):
    # The parts of the published table; their sum is the card's 104.2e9.
    parts = {
        "KDA": 30_618_086_496,
        "Gated MLA": 5_572_706_304,
        "16 routed experts": 92 * 16 * 3 * 3072 * 3584,
        "shared experts": 12_155_092_992,
        "latent down, up, norm": 4_727_310_336,
        "dense layer": 726_663_168,
        "router": 590_955_008,
        "norms and Attention Residuals": 4_021_248,
        "lm_head": 1_174_405_120,
    }
    assert count_activated_parameters(released) == sum(parts.values()) == 104_189_612_640
    assert released.num_activated_parameters() == 104_189_612_640


@pytest.mark.parametrize("name", ["ckpt_bf16", "ckpt_kernel"])
def test_counts_agree_with_the_list_of_tensors(name):
    config = K3Config.from_pretrained(FIXTURES / name)
    specs = list(tensor_specs(config, "bf16"))
    stored = sum(spec.elements for spec in specs)
    text, kda = config.text, config.text.kda
    padding = len(text.kda_layers) * (kda.stored_heads - kda.num_heads)
    assert count_stored_elements(config) == stored
    assert count_parameters(config) == stored - padding
    unused = [
        spec.elements
        for spec in specs
        if not spec.name.startswith("language_model.")
        or "embed_tokens" in spec.name
        or any(f".experts.{number}." in spec.name for number in range(text.num_experts_per_token, text.num_experts))
    ]
    assert count_activated_parameters(config) == stored - padding - sum(unused)


def test_linear_modules_are_neither_router_nor_embedding_nor_convolution(released):
    modules = list(linear_modules(released))
    others = (".gate", ".embed_tokens", "_conv1d", ".pos_emb", ".patch_embed.proj", "norm")
    assert not any(name.endswith(others) for name in modules)
    first = "language_model.model.layers.0."
    assert {f"{first}self_attn.q_proj", f"{first}mlp.up_proj", f"{first}mlp_res_proj"} <= set(modules)


def test_an_unknown_expert_format_is_refused(released):
    with pytest.raises(ValueError, match="experts is 'fp8'; it must be 'mxfp4', 'bf16' or None"):
        tensor_specs(released, "fp8")


@pytest.mark.parametrize("key", ["routed_expert_hidden_size", "moe_intermediate_size"])
def test_packed_experts_of_a_width_without_whole_groups_are_refused(key):
    config = K3Config.from_pretrained(FIXTURES / "ckpt_bf16")
    config = replace(config, text=replace(config.text, **{key: 48}))
    with pytest.raises(ValueError, match=f"text_config.{key} is 48; .* multiple of 32, so store these as 'bf16'"):
        tensor_specs(config, "mxfp4")
    assert list(tensor_specs(config))


def test_the_modules_that_read_checkpoints_do_not_import_torch():
    for name in ("layout", "shards", "problems", "doctor", "config"):
        tree = ast.parse(Path(layout.__file__).with_name(f"{name}.py").read_text())
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not any(module.split(".")[0] == "torch" for module in imported), name
