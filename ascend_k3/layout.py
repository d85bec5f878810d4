"""The tensors of a Kimi K3 checkpoint as released: every name, dtype and shape, from the config alone.

Two kinds of routed experts exist: "mxfp4" (the release: packed codes and scales) and "bf16" (plain weights). The rest
of a checkpoint is the same for both. Sizes of matrices are [out, in].
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Literal, NamedTuple

from ascend_k3.config import MX_GROUP, K3Config, TextConfig, VisionConfig

ExpertFormat = Literal["mxfp4", "bf16"]

# Bytes of one element, by the dtype names of safetensors. A K3 checkpoint has BF16, F32 and U8; the others are here so
# that a file which holds them can be read and told to be wrong.
DTYPE_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
}

ROOT = "language_model."  # of the text model's names; `vision_tower.` and `mm_projector.` stand beside it
VISION_ROOTS = ("vision_tower.", "mm_projector.")
MX_CODES_PER_BYTE = 2
MERGED_PATCHES = 4  # 2x2 patches enter the projector as one token

_Rows = list[tuple[str, str, tuple[int, ...]]]  # name below a prefix, dtype, shape


class TensorSpec(NamedTuple):
    """One tensor of a checkpoint; `dtype` is "BF16", "F32" or "U8"."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in a file, in bytes."""
        return DTYPE_BYTES[self.dtype] * prod(self.shape)


def tensor_specs(config: K3Config, experts: ExpertFormat | None = None) -> Iterator[TensorSpec]:
    """Every tensor of a checkpoint of `config`, in the order of the model: embedding, layers, norm, lm_head, vision.

    Args:
        experts: how the routed experts are stored; None for what the config says.
    Raises:
        ValueError: `experts` is another word, or "mxfp4" with a width that is not a multiple of 32.
    """
    rows = _expert_rows(config.text, experts or ("mxfp4" if config.experts_are_mxfp4 else "bf16"))
    return _all_tensors(config, rows)


def linear_modules(config: K3Config) -> Iterator[str]:
    """Names of the modules of class Linear in the released model, the routed experts left out.

    The router is a module of its own, not a Linear; nor are embeddings and convolutions.
    """
    for name, _, shape in _without_experts(config):
        if len(shape) == 2 and name.endswith(".weight") and not name.endswith((".embed_tokens.weight", ".gate.weight")):
            yield name.removesuffix(".weight")


def count_stored_elements(config: K3Config) -> int:
    """Elements of a checkpoint: `A_log` with its padding, one per MXFP4 code, scales not counted."""
    text = config.text
    moe_layers = text.num_hidden_layers - text.first_k_dense_replace
    routed = moe_layers * text.num_experts * _expert_parameters(text)
    return routed + sum(spec.elements for spec in _without_experts(config))


def count_parameters(config: K3Config) -> int:
    """Parameters of the model: as `count_stored_elements`, but `A_log` counts once per head."""
    return count_stored_elements(config) - _a_log_padding(config.text)


def count_activated_parameters(config: K3Config) -> int:
    """Parameters that one text token uses.

    These are the text model's, less the embedding table (a lookup), with `num_experts_per_token` of the routed experts.
    lm_head counts; so does the router with its bias, and the unused mixing point before layer 0.
    """
    text = config.text
    moe_layers = text.num_hidden_layers - text.first_k_dense_replace
    fixed = sum(spec.elements for spec in _without_experts(config) if spec.name.startswith(ROOT))
    routed = moe_layers * text.num_experts_per_token * _expert_parameters(text)
    return fixed - _embedding(text).elements - _a_log_padding(text) + routed


def _a_log_padding(text: TextConfig) -> int:
    return len(text.kda_layers) * (text.kda.stored_heads - text.kda.num_heads)


def _expert_parameters(text: TextConfig) -> int:
    return 3 * text.moe_intermediate_size * text.routed_expert_hidden_size


def _all_tensors(config: K3Config, expert_rows: _Rows) -> Iterator[TensorSpec]:
    text = config.text
    yield _embedding(text)
    for layer in range(text.num_hidden_layers):
        yield from _layer(text, layer)
        if not text.is_dense(layer):
            for expert in range(text.num_experts):
                yield from _under(f"{ROOT}model.layers.{layer}.block_sparse_moe.experts.{expert}.", expert_rows)
    yield from _after_layers(config)


def _without_experts(config: K3Config) -> Iterator[TensorSpec]:
    text = config.text
    yield _embedding(text)
    for layer in range(text.num_hidden_layers):
        yield from _layer(text, layer)
    yield from _after_layers(config)


def _embedding(text: TextConfig) -> TensorSpec:
    return TensorSpec(f"{ROOT}model.embed_tokens.weight", "BF16", (text.vocab_size, text.hidden_size))


def _under(prefix: str, rows: _Rows) -> Iterator[TensorSpec]:
    for name, dtype, shape in rows:
        yield TensorSpec(prefix + name, dtype, shape)


def _layer(text: TextConfig, layer: int) -> Iterator[TensorSpec]:
    """One layer, without its routed experts."""
    prefix = f"{ROOT}model.layers.{layer}."
    hidden = text.hidden_size
    attention = _mla(text) if text.is_full_attention(layer) else _kda(text)
    yield from _under(f"{prefix}self_attn.", attention)
    yield from _under(
        prefix,
        [
            ("input_layernorm.weight", "BF16", (hidden,)),
            ("post_attention_layernorm.weight", "BF16", (hidden,)),
            ("self_attention_res_norm.weight", "BF16", (hidden,)),
            ("mlp_res_norm.weight", "BF16", (hidden,)),
            ("self_attention_res_proj.weight", "BF16", (1, hidden)),
            ("mlp_res_proj.weight", "BF16", (1, hidden)),
        ],
    )
    if text.is_dense(layer):
        yield from _under(f"{prefix}mlp.", _mlp(hidden, text.intermediate_size))
    else:
        latent = text.routed_expert_hidden_size
        yield from _under(
            f"{prefix}block_sparse_moe.",
            [
                ("gate.weight", "BF16", (text.num_experts, hidden)),
                ("gate.e_score_correction_bias", "F32", (text.num_experts,)),
                ("routed_expert_down_proj.weight", "BF16", (latent, hidden)),
                ("routed_expert_norm.weight", "BF16", (latent,)),
                ("routed_expert_up_proj.weight", "BF16", (hidden, latent)),
            ],
        )
        yield from _under(f"{prefix}block_sparse_moe.shared_experts.", _mlp(hidden, text.shared_intermediate_size))


def _kda(text: TextConfig) -> _Rows:
    kda, hidden = text.kda, text.hidden_size
    rows: _Rows = []
    for name in "qkv":
        rows.append((f"{name}_proj.weight", "BF16", (kda.width, hidden)))
        rows.append((f"{name}_conv1d.weight", "F32", (kda.width, 1, kda.short_conv_kernel_size)))
    return rows + [
        ("A_log", "F32", (kda.stored_heads,)),
        ("dt_bias", "F32", (kda.width,)),
        ("f_a_proj.weight", "BF16", (kda.head_dim, hidden)),
        ("f_b_proj.weight", "BF16", (kda.width, kda.head_dim)),
        ("b_proj.weight", "BF16", (kda.num_heads, hidden)),
        ("g_proj.weight", "BF16", (kda.width, hidden)),
        ("o_norm.weight", "F32", (kda.head_dim,)),
        ("o_proj.weight", "BF16", (hidden, kda.width)),
    ]


def _mla(text: TextConfig) -> _Rows:
    heads, hidden = text.num_attention_heads, text.hidden_size
    return [
        ("q_a_proj.weight", "BF16", (text.q_lora_rank, hidden)),
        ("q_a_layernorm.weight", "BF16", (text.q_lora_rank,)),
        ("q_b_proj.weight", "BF16", (heads * (text.qk_nope_head_dim + text.qk_rope_head_dim), text.q_lora_rank)),
        ("kv_a_proj_with_mqa.weight", "BF16", (text.latent_width, hidden)),
        ("kv_a_layernorm.weight", "BF16", (text.kv_lora_rank,)),
        ("kv_b_proj.weight", "BF16", (heads * (text.qk_nope_head_dim + text.v_head_dim), text.kv_lora_rank)),
        ("g_proj.weight", "BF16", (heads * text.v_head_dim, hidden)),
        ("o_proj.weight", "BF16", (hidden, heads * text.v_head_dim)),
    ]


def _mlp(hidden: int, inner: int) -> _Rows:
    return [
        ("gate_proj.weight", "BF16", (inner, hidden)),
        ("up_proj.weight", "BF16", (inner, hidden)),
        ("down_proj.weight", "BF16", (hidden, inner)),
    ]


def _expert_rows(text: TextConfig, experts: str) -> _Rows:
    """The tensors of one routed expert: w1 is the gate, w3 the up projection, w2 the down projection."""
    latent, inner = text.routed_expert_hidden_size, text.moe_intermediate_size
    shapes = {"w1": (inner, latent), "w2": (latent, inner), "w3": (inner, latent)}
    if experts == "bf16":
        return [(f"{name}.weight", "BF16", shape) for name, shape in shapes.items()]
    if experts != "mxfp4":
        raise ValueError(f"experts is {experts!r}; it must be 'mxfp4', 'bf16' or None for what the config says.")
    for key, width in (("routed_expert_hidden_size", latent), ("moe_intermediate_size", inner)):
        if width % MX_GROUP:
            raise ValueError(
                f"text_config.{key} is {width}; experts stored as MXFP4 need a multiple of {MX_GROUP}, "
                "so store these as 'bf16'."
            )
    rows: _Rows = []
    for name, (outputs, inputs) in shapes.items():
        rows.append((f"{name}.weight_packed", "U8", (outputs, inputs // MX_CODES_PER_BYTE)))
        rows.append((f"{name}.weight_scale", "U8", (outputs, inputs // MX_GROUP)))
    return rows


def _after_layers(config: K3Config) -> Iterator[TensorSpec]:
    text = config.text
    yield from _under(
        ROOT,
        [
            ("model.norm.weight", "BF16", (text.hidden_size,)),
            ("model.output_attn_res_norm.weight", "BF16", (text.hidden_size,)),
            ("model.output_attn_res_proj.weight", "BF16", (1, text.hidden_size)),
            ("lm_head.weight", "BF16", (text.vocab_size, text.hidden_size)),
        ],
    )
    if config.vision is not None:
        yield from _vision(config.vision)


def _vision(vision: VisionConfig) -> Iterator[TensorSpec]:
    width, patch = vision.vt_hidden_size, vision.patch_size
    yield from _under(
        "vision_tower.patch_embed.",
        [
            ("proj.weight", "BF16", (width, 3, patch, patch)),
            ("pos_emb.weight", "BF16", (vision.init_pos_emb_height, vision.init_pos_emb_width, width)),
        ],
    )
    for block in range(vision.vt_num_hidden_layers):
        yield from _under(
            f"vision_tower.encoder.blocks.{block}.",
            [
                ("norm0.weight", "BF16", (width,)),
                ("norm1.weight", "BF16", (width,)),
                ("mlp.fc0.weight", "BF16", (vision.vt_intermediate_size, width)),
                ("mlp.fc1.weight", "BF16", (width, vision.vt_intermediate_size)),
                ("wqkv.weight", "BF16", (3 * vision.qkv_hidden_size, width)),
                ("wo.weight", "BF16", (width, vision.qkv_hidden_size)),
            ],
        )
    merged = MERGED_PATCHES * vision.mm_hidden_size
    yield TensorSpec("vision_tower.encoder.final_layernorm.weight", "BF16", (width,))
    yield TensorSpec("mm_projector.proj.0.weight", "BF16", (merged, merged))
    yield TensorSpec("mm_projector.proj.2.weight", "BF16", (vision.text_hidden_size, merged))
    yield TensorSpec("mm_projector.post_norm.weight", "BF16", (vision.text_hidden_size,))
