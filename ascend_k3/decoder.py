"""The decoder: one layer, and the stack of them between the embedding and the final norm."""

from __future__ import annotations

from torch import Tensor, nn

from ascend_k3.attention import GatedMLA, KimiDeltaAttention
from ascend_k3.config import TextConfig
from ascend_k3.mlp import FeedForward
from ascend_k3.moe import StableLatentMoE
from ascend_k3.norm import RMSNorm
from ascend_k3.residual import Residual
from ascend_k3.sequences import Sequences


class DecoderLayer(nn.Module):
    """Attention, then feed-forward, each reading a mixture of the residual bank and adding its output to the prefix."""

    def __init__(self, config: TextConfig, layer: int, packed_experts: bool) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.starts_block = layer % config.attn_res_block_size == 0
        attention = GatedMLA if config.is_full_attention(layer) else KimiDeltaAttention
        self.self_attn = attention(config, layer)
        if config.is_dense(layer):
            self.mlp = FeedForward(config, config.intermediate_size)
        else:
            self.block_sparse_moe = StableLatentMoE(config, packed_experts)
        self.input_layernorm = RMSNorm(hidden, eps)
        self.post_attention_layernorm = RMSNorm(hidden, eps)
        self.self_attention_res_norm = RMSNorm(hidden, eps)
        self.self_attention_res_proj = nn.Linear(hidden, 1, bias=False)
        self.mlp_res_norm = RMSNorm(hidden, eps)
        self.mlp_res_proj = nn.Linear(hidden, 1, bias=False)

    @property
    def feed_forward(self) -> FeedForward | StableLatentMoE:
        return self.mlp if hasattr(self, "mlp") else self.block_sparse_moe

    def forward(self, residual: Residual, sequences: Sequences) -> Residual:
        mixed = residual.mix(self.self_attention_res_norm, self.self_attention_res_proj)
        if self.starts_block:
            residual = residual.close_block()
        residual = residual.add(self.self_attn(self.input_layernorm(mixed), sequences))
        mixed = residual.mix(self.mlp_res_norm, self.mlp_res_proj)
        return residual.add(self.feed_forward(self.post_attention_layernorm(mixed)))


class Decoder(nn.Module):
    """Embedding, layers, final mixture and norm: token ids [T] -> [T, D]. Named `model` in checkpoints.

    `media` are the embeddings [M, D] of images, in order, and `is_media` [T] says in place of which tokens they stand.
    """

    def __init__(self, config: TextConfig, packed_experts: bool) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            DecoderLayer(config, layer, packed_experts) for layer in range(config.num_hidden_layers)
        )
        self.output_attn_res_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.output_attn_res_proj = nn.Linear(config.hidden_size, 1, bias=False)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self, tokens: Tensor, sequences: Sequences, media: Tensor | None = None, is_media: Tensor | None = None
    ) -> Tensor:
        embedding = self.embed_tokens(tokens)
        if media is not None and is_media is not None:
            embedding = embedding.index_put((is_media,), media.to(embedding.dtype))
        residual = Residual.start(embedding)
        for layer in self.layers:
            residual = layer(residual, sequences)
        return self.norm(residual.mix(self.output_attn_res_norm, self.output_attn_res_proj))
