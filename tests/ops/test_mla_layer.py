"""The released Gated MLA layer, built from the operators: one prefill, prefill and decode, padding, bfloat16."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from ascend_k3.ops.mla import latent_write, mla_decode, mla_prefill
from ascend_k3.ops.rms_norm import rms_norm
from tests.ops.mla_oracle import offsets, paged
from tests.paths import FIXTURES
from tests.tolerances import BF16_MULTIPLE, FIXTURE_ATOL, FIXTURE_RTOL


class Layer:
    """Gated MLA of docs/spec.md 1.4 from the operators and plain linear maps, over the weights of the fixture."""

    def __init__(self, stored: dict[str, Tensor], config: dict, dtype: torch.dtype) -> None:
        self.weights = {k[2:-7]: v.to(dtype) for k, v in stored.items() if k.startswith("w.")}
        self.heads, self.rank = config["num_attention_heads"], config["kv_lora_rank"]
        self.nope, self.value = config["qk_nope_head_dim"], config["v_head_dim"]
        self.scale = (self.nope + config["qk_rope_head_dim"]) ** -0.5
        kv_b = self.weights["kv_b_proj"].view(self.heads, self.nope + self.value, self.rank)
        self.w_uk, self.w_uv = kv_b[:, : self.nope], kv_b[:, self.nope :]

    def queries_keys_gate(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        w = self.weights
        compressed = rms_norm(F.linear(x, w["q_a_proj"]), w["q_a_layernorm"], eps=1e-6)
        q = F.linear(compressed, w["q_b_proj"]).unflatten(-1, (self.heads, -1))
        latent, k_pe = F.linear(x, w["kv_a_proj_with_mqa"]).split(
            [self.rank, w["kv_a_proj_with_mqa"].shape[0] - self.rank], -1
        )
        gate = F.linear(x, w["g_proj"]).unflatten(-1, (self.heads, self.value))
        return q, rms_norm(latent, w["kv_a_layernorm"], eps=1e-6), k_pe, gate

    def prefill(self, x: Tensor, lengths: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        q, latent, k_pe, gate = self.queries_keys_gate(x)
        cu = offsets(lengths)
        o = mla_prefill(q, latent, k_pe, self.w_uk, self.w_uv, cu, cu, scale=self.scale, gate=gate)
        return F.linear(o.flatten(1), self.weights["o_proj"]), latent, k_pe

    def decode(self, x: Tensor, pool: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
        q, latent, k_pe, gate = self.queries_keys_gate(x)
        places = lengths - 1
        slots = (
            table.gather(1, (places // pool.shape[1])[:, None].long())[:, 0] * pool.shape[1] + places % pool.shape[1]
        )
        latent_write(pool, torch.cat([latent, k_pe], -1), slots)
        nope = torch.einsum("thn,hnr->thr", q[..., : self.nope], self.w_uk)
        query = torch.cat([nope, q[..., self.nope :]], -1)
        o = mla_decode(query, pool, table, lengths, scale=self.scale, rank=self.rank)
        o = torch.einsum("thr,hvr->thv", o, self.w_uv) * torch.sigmoid(gate)
        return F.linear(o.flatten(1), self.weights["o_proj"])


@pytest.fixture(scope="module")
def released() -> tuple[dict, dict]:
    stated = json.loads((FIXTURES / "layers" / "gated_mla_layer.json").read_text())
    return stated, load_file(FIXTURES / "layers" / "gated_mla_layer.safetensors")


def test_released_layer_in_one_prefill(released: tuple[dict, dict]) -> None:
    stated, stored = released
    layer = Layer(stored, stated["config"], torch.float32)
    batch, tokens, _ = stored["x"].shape
    y, latent, k_pe = layer.prefill(stored["x"].flatten(0, 1), [tokens] * batch)
    for found, name in ((y, "y"), (latent, "latent_cache"), (k_pe, "k_pe_cache")):
        torch.testing.assert_close(found, stored[name].flatten(0, 1), atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)


def test_released_layer_in_prefill_and_absorbed_decode(released: tuple[dict, dict]) -> None:
    stated, stored = released
    layer = Layer(stored, stated["config"], torch.float32)
    batch, start = stored["x"].shape[0], stated["prefill_len"]
    y, latent, k_pe = layer.prefill(stored["x"][:, :start].flatten(0, 1), [start] * batch)
    torch.testing.assert_close(y, stored["y"][:, :start].flatten(0, 1), atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)
    rows = torch.cat([latent, k_pe], -1).unflatten(0, (batch, start))
    room = rows.new_zeros(batch, stated["decode_len"], rows.shape[-1])
    pool, table, _ = paged(list(torch.cat([rows, room], 1)), block_size=4)
    for token in range(start, start + stated["decode_len"]):
        lengths = torch.full((batch,), token + 1)
        y = layer.decode(stored["x"][:, token], pool, table, lengths)
        torch.testing.assert_close(y, stored["y"][:, token], atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)


def test_released_layer_with_left_padding(released: tuple[dict, dict]) -> None:
    stated, stored = released
    layer = Layer(stored, stated["config"], torch.float32)
    real = stored["attention_mask"].bool()
    y = torch.zeros_like(stored["y_pad"])
    y[real] = layer.prefill(stored["x"][:, : real.shape[1]][real], real.sum(1).tolist())[0]
    torch.testing.assert_close(y, stored["y_pad"], atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)


def test_released_layer_in_bfloat16(released: tuple[dict, dict]) -> None:
    stated, stored = released
    layer = Layer(stored, stated["config"], torch.bfloat16)
    batch, tokens, _ = stored["x_bf16"].shape
    y, _, _ = layer.prefill(stored["x_bf16"].flatten(0, 1), [tokens] * batch)
    error = (y.double() - stored["y_bf16_exact"].flatten(0, 1).double()).abs().max()
    assert float(error) <= BF16_MULTIPLE * stated["bf16_err"]["max"]
