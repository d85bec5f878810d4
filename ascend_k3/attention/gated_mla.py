"""The Gated MLA layer: low-rank queries, a shared latent for keys and values, no positions, an output gate."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ascend_k3 import ops
from ascend_k3.config import TextConfig
from ascend_k3.norm import RMSNorm
from ascend_k3.sequences import Sequences


class GatedMLA(nn.Module):
    """x [T, D] -> [T, D]; the cache holds a row [R + P] a token: the normed latent and the key part all heads share.

    Source: docs/spec.md 1.4; `mla_use_nope`, `mla_use_output_gate`, `kv_lora_rank`.
    """

    def __init__(self, config: TextConfig, layer: int) -> None:
        super().__init__()
        heads, hidden = config.num_attention_heads, config.hidden_size
        self.config = config
        self.layer = layer
        self.key_width = config.qk_nope_head_dim + config.qk_rope_head_dim
        self.scale = self.key_width**-0.5
        self.q_a_proj = nn.Linear(hidden, config.q_lora_rank, bias=False)
        self.q_a_layernorm = RMSNorm(config.q_lora_rank, config.LOW_RANK_NORM_EPS)
        self.q_b_proj = nn.Linear(config.q_lora_rank, heads * self.key_width, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(hidden, config.latent_width, bias=False)
        self.kv_a_layernorm = RMSNorm(config.kv_lora_rank, config.LOW_RANK_NORM_EPS)
        self.kv_b_proj = nn.Linear(
            config.kv_lora_rank, heads * (config.qk_nope_head_dim + config.v_head_dim), bias=False
        )
        self.g_proj = nn.Linear(hidden, heads * config.v_head_dim, bias=False)
        self.o_proj = nn.Linear(heads * config.v_head_dim, hidden, bias=False)

    def forward(self, x: Tensor, sequences: Sequences) -> Tensor:
        config, heads = self.config, self.config.num_attention_heads
        query = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))).view(-1, heads, self.key_width)
        latent, key_part = self.kv_a_proj_with_mqa(x).split((config.kv_lora_rank, config.qk_rope_head_dim), -1)
        latent = self.kv_a_layernorm(latent)
        gate = self.g_proj(x).view(-1, heads, config.v_head_dim)
        step = sequences.step
        if step is None:
            output = self._prefill(query, latent, key_part, gate, sequences.cu_seqlens, sequences.cu_seqlens)
        else:
            pool = step.cache.latents[self.layer]
            ops.latent_write(pool, torch.cat((latent, key_part), -1), step.slot_mapping)
            if sequences.is_decode:
                output = self._decode(query, pool, step.block_table, step.lengths) * torch.sigmoid(gate)
            else:
                rows = pool.flatten(0, 1)[step.context]
                latent, key_part = rows.split((config.kv_lora_rank, config.qk_rope_head_dim), -1)
                output = self._prefill(query, latent, key_part, gate, sequences.cu_seqlens, step.cu_context)
        return self.o_proj(output.flatten(1))

    def _up_projections(self) -> tuple[Tensor, Tensor]:
        """kv_b_proj by head: [H, nope, R] for keys and [H, V, R] for values."""
        config = self.config
        weight = self.kv_b_proj.weight.view(config.num_attention_heads, -1, config.kv_lora_rank)
        keys, values = weight.split((config.qk_nope_head_dim, config.v_head_dim), 1)
        return keys, values

    def _prefill(
        self, query: Tensor, latent: Tensor, key_part: Tensor, gate: Tensor, cu_query: Tensor, cu_context: Tensor
    ) -> Tensor:
        keys, values = self._up_projections()
        return ops.mla_prefill(query, latent, key_part, keys, values, cu_query, cu_context, scale=self.scale, gate=gate)

    def _decode(self, query: Tensor, pool: Tensor, block_table: Tensor, lengths: Tensor) -> Tensor:
        """Attention on the latent itself: the key projection moves to the query, the value projection to the output.

        Both products are kept in float32, so that absorbing does not round where the prefill does not.
        """
        config = self.config
        keys, values = (
            weight.to(torch.promote_types(weight.dtype, torch.float32)) for weight in self._up_projections()
        )
        nope, shared = query.to(keys.dtype).split((config.qk_nope_head_dim, config.qk_rope_head_dim), -1)
        absorbed = torch.cat((torch.einsum("nhd,hdr->nhr", nope, keys), shared), -1)
        output = ops.mla_decode(absorbed, pool, block_table, lengths, scale=self.scale, rank=config.kv_lora_rank)
        return torch.einsum("nhr,hvr->nhv", output, values).to(query.dtype)
