"""The small K3 of the demo: its tokenizer, its config, and how its parameters start."""

from __future__ import annotations

from pathlib import Path

import torch

from ascend_k3.attention import GatedMLA, KimiDeltaAttention
from ascend_k3.bpe import train_bpe, write_tokenizer
from ascend_k3.config import K3Config, KDAConfig, TextConfig, VisionConfig
from ascend_k3.demo import pictures, recall
from ascend_k3.demo.lessons import END, PAD
from ascend_k3.model import K3ForConditionalGeneration
from ascend_k3.tokenizer import FEWEST_RESERVED, K3Tokenizer

RANKS = 256 + recall.MERGES + pictures.MERGES
VOCABULARY = RANKS + FEWEST_RESERVED


def make_tokenizer(folder: Path) -> K3Tokenizer:
    """Write the tokenizer of the tasks' text into `folder`, and read it."""
    write_tokenizer(folder, train_bpe([recall.TEXT, *pictures.WORDS], RANKS), VOCABULARY)
    return K3Tokenizer.from_pretrained(folder)


def small_config(special_ids: dict[str, int]) -> K3Config:
    """A K3 with every mechanism of the release: the smallest that learns both tasks within a minute or two."""
    hidden = 64
    text = TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        num_hidden_layers=6,
        full_attn_layers=(2, 5),
        kda=KDAConfig(num_heads=2, head_dim=32, short_conv_kernel_size=4, gate_lower_bound=-5.0),
        num_attention_heads=2,
        q_lora_rank=64,
        kv_lora_rank=32,
        qk_nope_head_dim=32,
        qk_rope_head_dim=16,
        v_head_dim=32,
        intermediate_size=2 * hidden,
        first_k_dense_replace=1,
        num_experts=8,
        num_experts_per_token=2,
        num_shared_experts=1,
        moe_intermediate_size=32,
        routed_expert_hidden_size=32,
        routed_scaling_factor=1.0,
        activation_situ_beta=4.0,
        activation_situ_linear_beta=25.0,
        rms_norm_eps=1e-5,
        attn_res_block_size=2,
        max_position_embeddings=4096,
        bos_token_id=special_ids["[BOS]"],
        eos_token_id=special_ids[END],
        pad_token_id=special_ids["[PAD]"],
        metadata={"initializer_range": hidden**-0.5},
    )
    vision = VisionConfig(
        patch_size=14,
        init_pos_emb_height=8,
        init_pos_emb_width=8,
        init_pos_emb_time=4,
        vt_hidden_size=64,
        vt_intermediate_size=128,
        vt_num_attention_heads=4,
        vt_num_hidden_layers=2,
        qkv_hidden_size=64,
        mm_hidden_size=64,
        text_hidden_size=hidden,
        projector_ln_eps=1e-5,
    )
    return K3Config(
        text=text,
        vision=vision,
        media_placeholder_token_id=special_ids[PAD],
        image_placeholder="<|kimi_image_placeholder|>",
        metadata={"architectures": ["KimiK3ForConditionalGeneration"]},
    )


@torch.no_grad()
def initialize(model: K3ForConditionalGeneration, seed: int) -> None:
    """Draw the parameters such that recall is learned soon.

    KDA layers start as soft memories: a key is projected like a query, but made of the last four tokens instead of
    one, and the output projection is the transposed value projection, so that what was stored comes out alike. In MLA
    layers it is the transposed value projection too: they start as a mean of what was read, pictures included. lm_head
    starts as the scaled embedding. Nothing of the tasks' letters, numbers, colours and shapes is in that, and no answer
    is right before training; it saves the many steps in which plain draws would learn to copy.
    """
    generator = torch.Generator().manual_seed(seed)
    model.reset_parameters(generator)
    embedding, head = model.language_model.model.embed_tokens.weight, model.language_model.lm_head.weight
    embedding.normal_(0, 1, generator=generator)
    head.copy_(embedding * embedding.shape[1] ** -0.5)
    for module in model.modules():
        if isinstance(module, KimiDeltaAttention):
            module.k_proj.weight.copy_(module.q_proj.weight)
            module.o_proj.weight.copy_(module.v_proj.weight.T)
            for convolution in (module.q_conv1d, module.v_conv1d):
                convolution.weight.zero_()[..., -1] = 1
            module.k_conv1d.weight.fill_(0.5)
        elif isinstance(module, GatedMLA):
            config = module.config
            latent = module.kv_a_proj_with_mqa.weight[: config.kv_lora_rank]
            by_head = module.kv_b_proj.weight.view(config.num_attention_heads, -1, config.kv_lora_rank)
            values = by_head[:, config.qk_nope_head_dim :].flatten(0, 1)
            module.o_proj.weight.copy_((values @ latent).T)
