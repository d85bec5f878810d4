"""`K3Config`: what a checkpoint's config.json says of the model, with every rule about it checked once, here.

A key that changes the arithmetic has no default: a file without it is refused, and so is a key that is not known. Keys
that do not touch the arithmetic (`METADATA`) are kept as they are and written back. `to_dict` gives what was read.

Source: the released config.json of Kimi K3; field names are its keys. Layer numbers count from 0 here and from 1 there.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any

from ascend_k3.config_keys import SHOWN_ITEMS, Keys, shown
from ascend_k3.files import read_json
from ascend_k3.ops.errors import CheckpointError

# Keys that select one of several formulas. K3 has one value for each; another would be another model.
_FIXED_TEXT: dict[str, Any] = {
    "hidden_act": "situ",
    "latent_moe_use_norm": True,
    "mla_use_nope": True,
    "mla_use_output_gate": True,
    "moe_layer_freq": 1,
    "moe_renormalize": True,
    "moe_router_activation_func": "sigmoid",
    "num_expert_group": 1,
    "num_nextn_predict_layers": 0,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "use_grouped_topk": True,
}
_FIXED_VISION: dict[str, Any] = {
    "activation_func": "gelu_pytorch_tanh",
    "attn_bias": False,
    "linear_bias": False,
    "merge_kernel_size": [2, 2],
    "merge_type": "sd2_tpool",
    "mlp_type": "mlp2",
    "mm_projector_type": "patchmergerv2",
    "norm_type": "rmsnorm",
    "patch_embed_proj_bias": False,
    "pos_emb_interpolation_mode": "bilinear",
    "pos_emb_type": "divided_fixed",
    "projector_hidden_act": "gelu",
}
MX_GROUP = 32  # inputs that share one scale of an MXFP4 weight
# What compressed-tensors writes for MXFP4; the only quantization that a K3 checkpoint has.
_MXFP4_WEIGHTS = {"num_bits": 4, "type": "float", "group_size": MX_GROUP, "strategy": "group", "symmetric": True}

# A damaged number must not start a loop over billions of tensors. Far above the release: 93 layers, 896 experts each.
_LARGEST_SIZE = 2**31
_LARGEST_COUNT = {"num_hidden_layers": 2**12, "vt_num_hidden_layers": 2**12, "num_experts": 2**20}
_MOST_EXPERTS = 2**20  # in all layers together


@dataclass(frozen=True, kw_only=True, slots=True)
class KDAConfig:
    """Kimi Delta Attention (`linear_attn_config`)."""

    num_heads: int
    head_dim: int
    short_conv_kernel_size: int
    gate_lower_bound: float  # lower bound of the log decay of one token; its absence would mean another gate formula

    @property
    def width(self) -> int:
        """Channels of q, k, v, the gate and the output gate."""
        return self.num_heads * self.head_dim

    @property
    def stored_heads(self) -> int:
        """Length of `A_log` in a checkpoint: padded with zeros to the head dimension (release: 96 -> 128)."""
        return max(self.num_heads, self.head_dim)


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionConfig:
    """MoonViT-V2 and the projector (`vision_config`)."""

    patch_size: int
    init_pos_emb_height: int
    init_pos_emb_width: int
    init_pos_emb_time: int
    vt_hidden_size: int
    vt_intermediate_size: int
    vt_num_attention_heads: int
    vt_num_hidden_layers: int
    qkv_hidden_size: int
    mm_hidden_size: int
    text_hidden_size: int
    projector_ln_eps: float
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_sizes(self, "vision_config", skip=("metadata",))
        if self.qkv_hidden_size % (4 * self.vt_num_attention_heads):
            raise CheckpointError(
                f"vision_config.qkv_hidden_size is {self.qkv_hidden_size}; it must be a multiple of "
                f"4 * vt_num_attention_heads = {4 * self.vt_num_attention_heads}, for rotary pairs of rows and columns."
            )
        if self.mm_hidden_size != self.vt_hidden_size:
            raise CheckpointError(
                f"vision_config.mm_hidden_size is {self.mm_hidden_size}; the projector reads the tower's "
                f"vt_hidden_size, {self.vt_hidden_size}."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class TextConfig:
    """The language model (`text_config`)."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    full_attn_layers: tuple[int, ...]  # zero-based; the file counts from one
    kda: KDAConfig
    # Gated MLA
    num_attention_heads: int
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int  # the shared key part; never rotated
    v_head_dim: int
    # feed-forward and experts
    intermediate_size: int
    first_k_dense_replace: int
    num_experts: int
    num_experts_per_token: int
    num_shared_experts: int
    moe_intermediate_size: int
    routed_expert_hidden_size: int
    routed_scaling_factor: float
    activation_situ_beta: float
    activation_situ_linear_beta: float
    # norms and residuals
    rms_norm_eps: float
    attn_res_block_size: int
    max_position_embeddings: int
    bos_token_id: int
    eos_token_id: int
    pad_token_id: int
    metadata: Mapping[str, Any] = field(default_factory=dict)

    # The released classes build the two low-rank norms of MLA with their own default, not with rms_norm_eps.
    LOW_RANK_NORM_EPS = 1e-6

    def __post_init__(self) -> None:
        _check_sizes(
            self,
            "text_config",
            skip=(
                "full_attn_layers",
                "kda",
                "metadata",
                "first_k_dense_replace",
                "bos_token_id",
                "eos_token_id",
                "pad_token_id",
            ),
        )
        _check_sizes(self.kda, "text_config.linear_attn_config", skip=("gate_lower_bound",))
        if self.kda.short_conv_kernel_size < 2:
            raise CheckpointError(
                f"linear_attn_config.short_conv_kernel_size is {self.kda.short_conv_kernel_size}; it must be at least "
                "2, since the convolution keeps the tokens before the current one."
            )
        if not -5.0 <= self.kda.gate_lower_bound < 0:
            raise CheckpointError(
                f"linear_attn_config.gate_lower_bound is {self.kda.gate_lower_bound}; it must lie in [-5, 0), since 16 "
                "tokens at the bound must stay inside the range of float32."
            )
        if self.num_experts_per_token > self.num_experts:
            raise CheckpointError(
                f"text_config.num_experts_per_token is {self.num_experts_per_token}; there are {self.num_experts} "
                "experts."
            )
        if not 0 <= self.first_k_dense_replace <= self.num_hidden_layers:
            raise CheckpointError(
                f"text_config.first_k_dense_replace is {self.first_k_dense_replace}; it must lie between 0 and "
                f"num_hidden_layers = {self.num_hidden_layers}."
            )
        experts = (self.num_hidden_layers - self.first_k_dense_replace) * self.num_experts
        if experts > _MOST_EXPERTS:
            raise CheckpointError(
                f"text_config.num_experts is {self.num_experts}, which makes {experts} experts in all layers; "
                f"they must be at most {_MOST_EXPERTS}."
            )
        if "initializer_range" in self.metadata:
            deviation = self.metadata["initializer_range"]
            if type(deviation) not in (int, float) or not 0 < deviation <= sys.float_info.max:
                raise CheckpointError(
                    f"text_config.initializer_range is {shown(deviation)}; it must be a positive finite number, "
                    "or be left out."
                )
        for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
            if not 0 <= getattr(self, name) < self.vocab_size:
                raise CheckpointError(
                    f"text_config.{name} is {getattr(self, name)}; it must lie in [0, vocab_size = {self.vocab_size})."
                )

    def is_full_attention(self, layer: int) -> bool:
        """Whether layer `layer` (from 0) is Gated MLA; all others are KDA."""
        return layer in self.full_attn_layers

    def is_dense(self, layer: int) -> bool:
        """Whether layer `layer` (from 0) has the dense feed-forward; all others have experts."""
        return layer < self.first_k_dense_replace

    @property
    def kda_layers(self) -> tuple[int, ...]:
        """The KDA layers, from 0."""
        return tuple(i for i in range(self.num_hidden_layers) if i not in self.full_attn_layers)

    @property
    def num_residual_blocks(self) -> int:
        """Block states in the bank at the end of the stack: one per started block of layers."""
        return -(-self.num_hidden_layers // self.attn_res_block_size)

    @property
    def latent_width(self) -> int:
        """Elements of one token's row in an MLA layer's cache: normed latent, then the shared key part."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def shared_intermediate_size(self) -> int:
        """Width of the shared experts, which are stored as one fused feed-forward."""
        return self.num_shared_experts * self.moe_intermediate_size


@dataclass(frozen=True, kw_only=True, slots=True)
class K3Config:
    """Kimi K3: text, vision (or none), and whether the routed experts are stored as MXFP4.

    Raises `CheckpointError` for a missing, unknown or impossible key, naming it.
    """

    text: TextConfig
    vision: VisionConfig | None
    media_placeholder_token_id: int
    image_placeholder: str
    quantization: Mapping[str, Any] | None = None  # `quantization_config` of text_config, as it stands there
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.vision is not None and self.vision.text_hidden_size != self.text.hidden_size:
            raise CheckpointError(
                f"vision_config.text_hidden_size is {self.vision.text_hidden_size}; "
                f"text_config.hidden_size is {self.text.hidden_size}: they must be equal."
            )
        if not 0 <= self.media_placeholder_token_id < self.text.vocab_size:
            raise CheckpointError(
                f"media_placeholder_token_id is {self.media_placeholder_token_id}; it must lie in "
                f"[0, vocab_size = {self.text.vocab_size})."
            )
        if self.quantization is not None:
            _check_quantization(self.quantization, self.text)

    @property
    def experts_are_mxfp4(self) -> bool:
        """Whether the config says that the routed experts are stored as MXFP4."""
        return self.quantization is not None

    @classmethod
    def from_pretrained(cls, path: str | Path) -> K3Config:
        """Read a config.json, or the one in a checkpoint folder. Raises `CheckpointError`, or `FileNotFoundError`."""
        path = Path(path)
        file = path / "config.json" if path.is_dir() else path
        if not os.path.lexists(file):
            raise FileNotFoundError(f"{file} does not exist; give a checkpoint folder or its config.json.")
        try:
            return cls.from_dict(read_json(file))
        except CheckpointError as error:
            raise error if str(file) in str(error) else CheckpointError(f"{file}: {error}") from error

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> K3Config:
        """Build from the parsed config.json of a K3 checkpoint."""
        top = Keys(data, "config")
        text = _text_from(Keys(top.take("text_config"), "text_config"))
        vision_data = top.take_optional("vision_config")
        vision = None if vision_data is None else _vision_from(Keys(vision_data, "vision_config"))
        top.require({"model_type": "kimi_k3", "tie_word_embeddings": False})
        for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
            top.require({name: getattr(text[0], name)})
        return cls(
            text=text[0],
            vision=vision,
            media_placeholder_token_id=top.take_as("media_placeholder_token_id", int),
            image_placeholder=top.take_as("image_placeholder", str),
            quantization=text[1],
            metadata=top.metadata(),
        )

    def to_dict(self) -> dict[str, Any]:
        """The config.json that `from_dict` reads; for a config that was read, equal to what was read."""
        text = self.text
        ids = {name: getattr(text, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        text_dict = {
            **_plain(text, skip=("full_attn_layers", "kda")),
            **_FIXED_TEXT,
            "num_key_value_heads": text.num_attention_heads,
            "linear_attn_config": {
                **_plain(text.kda),
                "use_full_rank_gate": True,
                "full_attn_layers": [i + 1 for i in text.full_attn_layers],
                "kda_layers": [i + 1 for i in text.kda_layers],
            },
            "model_type": "kimi_linear",
        }
        if self.quantization is not None:
            text_dict["quantization_config"] = copy.deepcopy(dict(self.quantization))
        result = {
            **copy.deepcopy(dict(self.metadata)),
            **ids,
            "media_placeholder_token_id": self.media_placeholder_token_id,
            "image_placeholder": self.image_placeholder,
            "model_type": "kimi_k3",
            "tie_word_embeddings": False,
            "text_config": text_dict,
        }
        if self.vision is not None:
            result["vision_config"] = {**_plain(self.vision), **copy.deepcopy(_FIXED_VISION)}
        return result

    def num_parameters(self) -> int:
        """Parameters of the model: `A_log` counted once per head, one per MXFP4 code, scales not counted."""
        from ascend_k3.layout import count_parameters

        return count_parameters(self)

    def num_activated_parameters(self) -> int:
        """Parameters that one text token uses: its `num_experts_per_token` experts, lm_head, no embedding table."""
        from ascend_k3.layout import count_activated_parameters

        return count_activated_parameters(self)


def mxfp4_quantization_config() -> dict[str, Any]:
    """The `quantization_config` of the release: routed experts as MXFP4, packed by compressed-tensors."""
    return {
        "config_groups": {
            "group_0": {
                "format": "mxfp4-pack-quantized",
                "targets": ["Linear"],
                "weights": {**_MXFP4_WEIGHTS, "dynamic": False, "observer": "minmax", "scale_dtype": "torch.uint8"},
            }
        },
        "format": "mxfp4-pack-quantized",
        "ignore": [
            "re:.*self_attn.*",
            "re:.*shared_experts.*",
            r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
            "re:.*lm_head.*",
            "re:.*vision_tower.*",
            "re:.*mm_projector.*",
        ],
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
    }


def _text_from(keys: Keys) -> tuple[TextConfig, Mapping[str, Any] | None]:
    keys.require({"model_type": "kimi_linear", **_FIXED_TEXT})
    values = keys.fill(TextConfig, skip=("full_attn_layers", "kda"))
    keys.require({"num_key_value_heads": values["num_attention_heads"]})
    linear = Keys(keys.take("linear_attn_config"), "linear_attn_config")
    kda = KDAConfig(**linear.fill(KDAConfig))
    linear.require({"use_full_rank_gate": True})
    full, recurrent = linear.take("full_attn_layers"), linear.take("kda_layers")
    linear.metadata()
    _check_layer_list("full_attn_layers", full)
    _check_layer_list("kda_layers", recurrent)
    quantization = keys.take_optional("quantization_config")
    text = TextConfig(**values, kda=kda, full_attn_layers=tuple(i - 1 for i in full), metadata=keys.metadata())
    _check_each_layer_once(full, recurrent, text.num_hidden_layers)
    return text, quantization


def _vision_from(keys: Keys) -> VisionConfig:
    keys.require(_FIXED_VISION)
    return VisionConfig(**keys.fill(VisionConfig), metadata=keys.metadata())


def _check_layer_list(name: str, value: Any) -> None:
    if not isinstance(value, list) or not all(type(i) is int for i in value) or value != sorted(set(value)):
        raise CheckpointError(
            f"linear_attn_config.{name} must be an ascending list of layer numbers from 1, got {shown(value)}."
        )


def _check_each_layer_once(full: list[int], recurrent: list[int], layers: int) -> None:
    listed = {*full, *recurrent}
    wrong = {i for i in listed if not 1 <= i <= layers} | (set(full) & set(recurrent))
    wrong.update(islice((i for i in range(1, layers + 1) if i not in listed), SHOWN_ITEMS + 1))
    if wrong:
        first = shown(sorted(wrong)[:SHOWN_ITEMS]) + (" and more" if len(wrong) > SHOWN_ITEMS else "")
        raise CheckpointError(
            "linear_attn_config.full_attn_layers and kda_layers must together name each layer from 1 to "
            f"num_hidden_layers = {layers} once; wrong are {first}."
        )


def _check_quantization(data: Mapping[str, Any], text: TextConfig) -> None:
    if not isinstance(data, Mapping) or data.get("quant_method") != "compressed-tensors":
        raise CheckpointError("quantization_config.quant_method must be 'compressed-tensors'; nothing else is read.")
    if data.get("format") != "mxfp4-pack-quantized":
        raise CheckpointError(
            f"quantization_config.format is {shown(data.get('format'))}; K3 experts are 'mxfp4-pack-quantized'."
        )
    groups = data.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        raise CheckpointError("quantization_config.config_groups must have exactly one group, for MXFP4 weights.")
    (group,) = groups.values()
    weights = group.get("weights") if isinstance(group, Mapping) else None
    for key, wanted in _MXFP4_WEIGHTS.items():
        found = weights.get(key) if isinstance(weights, Mapping) else None
        if found != wanted:
            raise CheckpointError(f"quantization_config weights.{key} is {shown(found)}; MXFP4 has {wanted!r}.")
    if group.get("input_activations") is not None:
        raise CheckpointError("quantization_config input_activations is set; a K3 checkpoint stores weights only.")
    for name in ("routed_expert_hidden_size", "moe_intermediate_size"):
        if getattr(text, name) % MX_GROUP:
            raise CheckpointError(
                f"text_config.{name} is {getattr(text, name)}; MXFP4 groups need a multiple of {MX_GROUP}."
            )


def _check_sizes(config: Any, where: str, skip: tuple[str, ...]) -> None:
    """Every number of a config dataclass must be positive, and the whole numbers not absurdly large."""
    for item in fields(config):
        if item.name in skip:
            continue
        value = getattr(config, item.name)
        if not value > 0:
            raise CheckpointError(f"{where}.{item.name} is {shown(value)}; it must be positive.")
        largest = _LARGEST_COUNT.get(item.name, _LARGEST_SIZE)
        if item.type == "int" and value > largest:
            raise CheckpointError(f"{where}.{item.name} is {shown(value)}; it must be at most {largest}.")


def _plain(config: Any, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of a config dataclass and its metadata, as JSON values."""
    values = {f.name: getattr(config, f.name) for f in fields(config) if f.name not in (*skip, "metadata")}
    return {**copy.deepcopy(dict(getattr(config, "metadata", {}))), **values}
