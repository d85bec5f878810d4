"""Each layer alone against the independent implementation."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ascend_k3 import K3Config
from ascend_k3.attention import GatedMLA, KimiDeltaAttention
from ascend_k3.cache import K3Cache
from ascend_k3.config import TextConfig
from ascend_k3.moe import StableLatentMoE
from ascend_k3.residual import Residual
from ascend_k3.sequences import Sequences
from tests.ascend_k3.checkpoints import tiny
from tests.paths import FIXTURES
from tests.tolerances import BF16_MULTIPLE, FIXTURE_ATOL, FIXTURE_RTOL

TEXT = K3Config.from_pretrained(FIXTURES / "ckpt_bf16").text


def fixture(name: str) -> tuple[dict, dict[str, Tensor]]:
    folder = FIXTURES / "layers"
    return json.loads((folder / f"{name}.json").read_text()), load_file(folder / f"{name}.safetensors")


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)


def with_weights(layer: nn.Module, tensors: dict[str, Tensor], dtype: torch.dtype = torch.float32) -> nn.Module:
    layer.load_state_dict({k.removeprefix("w."): v for k, v in tensors.items() if k.startswith("w.")})
    for parameter in layer.parameters():  # what is stored in F32 stays so in bf16
        if dtype == torch.float32 or parameter.dtype != torch.float32 or parameter.dim() == 2:
            parameter.data = parameter.data.to(dtype)
    return layer


def sequences(lengths: list[int], cache: K3Cache | None = None) -> Sequences:
    step = None if cache is None else cache.begin(range(len(lengths)), lengths)
    return Sequences(torch.tensor([0, *lengths]).cumsum(0), tuple(lengths), step)


def run(layer: nn.Module, x: Tensor, cache: K3Cache | None = None) -> Tensor:
    """A layer on x [B, T, D]."""
    batch, length = x.shape[:2]
    where = sequences([length] * batch, cache)
    out = layer(x.flatten(0, 1), where).view(x.shape)
    if cache is not None and where.step is not None:
        cache.commit(where.step)
    return out


def run_padded(layer: nn.Module, x: Tensor, mask: Tensor) -> Tensor:
    """A layer on the real tokens of x [B, T, D], zero elsewhere."""
    out = torch.zeros_like(x)
    out[mask.bool()] = layer(x[mask.bool()], sequences(mask.sum(1).tolist()))
    return out


@torch.no_grad()
def test_kda_layer_in_prefill_and_decode() -> None:
    facts, x = fixture("kda_layer")
    layer = with_weights(KimiDeltaAttention(TEXT, 0), x)
    close(run(layer, x["x"]), x["y"])

    cache = K3Cache(TEXT, max_sequences=2, max_tokens=128, dtype=torch.float32)
    prefill, width = facts["prefill_len"], TEXT.kda.width

    def windows(prefix: str) -> Tensor:
        """The fixture keeps four inputs of each convolution; the last three matter."""
        return torch.cat([x[f"{prefix}_conv_state_{c}"][..., -3:] for c in "qkv"], 1)

    outputs = [run(layer, x["x"][:, :prefill], cache)]
    close(cache.states[0], x["prefill_recurrent_state"])
    close(cache.windows[0], windows("prefill"))
    assert cache.windows[0].shape == (2, 3 * width, 3)
    for t in range(prefill, x["x"].shape[1]):
        outputs.append(run(layer, x["x"][:, t : t + 1], cache))
    close(torch.cat(outputs, 1), x["y"])
    close(cache.states[0], x["final_recurrent_state"])
    close(cache.windows[0], windows("final"))


@torch.no_grad()
def test_kda_layer_packed_padded_and_in_bf16() -> None:
    _, weights = fixture("kda_layer")
    facts, x = fixture("kda_layer_varlen_pad_bf16")
    layer = with_weights(KimiDeltaAttention(TEXT, 0), weights)
    lengths = x["cu_seqlens"].diff().tolist()
    close(layer(x["x_varlen"][0], sequences(lengths)), x["y_varlen"][0])
    close(run_padded(layer, x["x_pad"], x["attention_mask"]), x["y_pad"])
    y = run(with_weights(KimiDeltaAttention(TEXT, 0), weights, torch.bfloat16), x["x_bf16"])
    assert y.dtype == torch.bfloat16
    assert (y.float() - x["y_bf16_exact"]).abs().max() <= BF16_MULTIPLE * facts["bf16_err"]["max"]


@torch.no_grad()
def test_gated_mla_layer() -> None:
    facts, x = fixture("gated_mla_layer")
    layer = with_weights(GatedMLA(TEXT, 3), x)
    close(run(layer, x["x"]), x["y"])
    cache = K3Cache(TEXT, max_sequences=2, max_tokens=64, dtype=torch.float32)
    prefill = facts["prefill_len"]
    outputs = [run(layer, x["x"][:, :prefill], cache)]
    for t in range(prefill, prefill + facts["decode_len"]):
        outputs.append(run(layer, x["x"][:, t : t + 1], cache))
    close(torch.cat(outputs, 1), x["y"])
    rows = cache.latents[3][:, : x["x"].shape[1]]  # one page holds each sequence
    close(rows[..., : TEXT.kv_lora_rank], x["latent_cache"])
    close(rows[..., TEXT.kv_lora_rank :], x["k_pe_cache"])

    mask = x["attention_mask"]
    close(run_padded(layer, x["x"][:, : mask.shape[1]], mask), x["y_pad"])
    y = run(with_weights(GatedMLA(TEXT, 3), x, torch.bfloat16), x["x_bf16"])
    assert (y.float() - x["y_bf16_exact"]).abs().max() <= BF16_MULTIPLE * facts["bf16_err"]["max"]


@torch.no_grad()
def test_the_low_rank_norms_have_their_own_eps() -> None:
    """vLLM and SGLang take rms_norm_eps; the released classes take 1e-6, and on small inputs it shows."""
    _, x = fixture("gated_mla_layer")
    layer = with_weights(GatedMLA(TEXT, 3), x)
    assert layer.q_a_layernorm.eps == layer.kv_a_layernorm.eps == 1e-6
    right = run(layer, x["x"] * 1e-2)
    layer.q_a_layernorm.eps = layer.kv_a_layernorm.eps = TEXT.rms_norm_eps
    assert (run(layer, x["x"] * 1e-2) - right).abs().max() > FIXTURE_ATOL / 10


def moe(text: TextConfig, x: dict[str, Tensor], dtype: torch.dtype = torch.float32) -> StableLatentMoE:
    return with_weights(StableLatentMoE(text, packed_experts=False), x, dtype)


@torch.no_grad()
def test_latent_moe() -> None:
    facts, x = fixture("latent_moe")
    layer = moe(TEXT, x)
    flat = x["x"].flatten(0, 1)
    close(layer(flat), x["y"].flatten(0, 1))
    weights, ids = layer.gate(flat)
    order = ids.argsort(1)
    wanted = x["topk_idx"].argsort(1)
    assert torch.equal(ids.gather(1, order), x["topk_idx"].gather(1, wanted))
    close(weights.gather(1, order), x["topk_weight"].gather(1, wanted))
    latent = layer.routed_expert_down_proj(flat)
    close(latent, x["latent"])
    close(layer.experts(latent, weights, ids), x["routed_latent"])
    close(layer.shared_experts(flat), x["shared_out"].flatten(0, 1))
    y = moe(TEXT, x, torch.bfloat16)(x["x_bf16"].flatten(0, 1)).view(x["x_bf16"].shape)
    assert (y.float() - x["y_bf16_exact"]).abs().max() <= BF16_MULTIPLE * facts["bf16_err"]["max"]


@torch.no_grad()
def test_the_routed_scaling_factor_acts_before_the_norm() -> None:
    _, x = fixture("latent_moe")
    flat = x["x"].flatten(0, 1)
    weights, ids = moe(TEXT, x).gate(flat)
    scaled, same_ids = moe(replace(TEXT, routed_scaling_factor=2.5), x).gate(flat)
    assert torch.equal(ids, same_ids)
    close(scaled, 2.5 * weights)


@torch.no_grad()
def test_the_bias_selects_and_does_not_weigh() -> None:
    _, x = fixture("latent_moe")
    layer, flat = moe(TEXT, x), x["x"].flatten(0, 1)
    scores = torch.sigmoid(flat @ layer.gate.weight.T)
    layer.gate.e_score_correction_bias[5] = 10
    weights, ids = layer.gate(flat)
    assert (ids == 5).any(1).all()
    chosen = scores.gather(1, ids)
    close(weights, chosen / chosen.sum(1, keepdim=True))


@torch.no_grad()
@pytest.mark.parametrize(
    "name", ["first_dense", "inside_block_mla", "block_boundary", "inside_block", "block_boundary_mla"]
)
def test_decoder_layer(name: str) -> None:
    facts, x = fixture(f"decoder_{name}")
    layer = tiny("ckpt_bf16").language_model.model.layers[facts["layer_idx"]]
    batch, length, hidden = x["hidden_in"].shape
    residual = Residual(x["block_residual_in"], x["hidden_in"].flatten(0, 1))
    mixtures: list[Tensor] = []
    hooks = [
        norm.register_forward_pre_hook(lambda _, args: mixtures.append(args[0]))
        for norm in (layer.input_layernorm, layer.post_attention_layernorm)
    ]
    attention: list[Tensor] = []
    hooks.append(layer.self_attn.register_forward_hook(lambda _, __, out: attention.append(out)))
    try:
        residual = layer(residual, sequences([length] * batch))
    finally:
        for hook in hooks:
            hook.remove()
    shape = (batch, length, hidden)
    close(mixtures[0].view(shape), x["attn_res_attn"])
    close(attention[0].view(shape), x["attn_out"])
    close(mixtures[1].view(shape), x["attn_res_mlp"])
    close(residual.prefix.view(shape), x["prefix_sum_out"])
    close(residual.blocks, x["block_residual_out"])


def test_an_empty_block_cannot_be_closed() -> None:
    with pytest.raises(ValueError, match="the block is empty; add an output before closing it"):
        Residual.start(torch.zeros(2, 4)).close_block().close_block()
