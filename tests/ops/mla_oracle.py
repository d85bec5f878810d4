"""Latent attention by its definition, and inputs for it: what the tests of `ops.mla` compare with."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

HEADS, NOPE, SHARED, RANK, VALUE = 3, 6, 4, 10, 5
SCALE = (NOPE + SHARED) ** -0.5
NAMES = ("q", "kv_latent", "k_pe", "w_uk", "w_uv", "gate")


def offsets(lengths: list[int], dtype: torch.dtype = torch.int64) -> Tensor:
    return F.pad(torch.tensor(lengths, dtype=dtype).cumsum(0, dtype=dtype), (1, 0))


def inputs(queries: int, keys: int, dtype: torch.dtype = torch.float32, heads: int = HEADS, seed: int = 0) -> dict:
    make = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=make, dtype=torch.float64).to(dtype)

    return {
        "q": normal(queries, heads, NOPE + SHARED),
        "kv_latent": normal(keys, RANK),
        "k_pe": normal(keys, SHARED),
        "w_uk": normal(heads, NOPE, RANK) / 2,
        "w_uv": normal(heads, VALUE, RANK) / 2,
        "gate": normal(queries, heads, VALUE),
    }


def definition(t: dict, lengths_q: list[int], lengths_kv: list[int], scale: float = SCALE) -> Tensor:
    """SPEC's Gated MLA in float64, one query at a time; each head's keys and values are expanded from the latent."""
    t = {name: tensor.double() for name, tensor in t.items() if tensor is not None}
    rows = [torch.zeros(0, t["w_uv"].shape[0], t["w_uv"].shape[1], dtype=torch.float64)]
    first_query = first_key = 0
    for length_q, length_kv in zip(lengths_q, lengths_kv, strict=True):
        own = slice(first_key, first_key + length_kv)
        nope = torch.einsum("hnr,lr->hln", t["w_uk"], t["kv_latent"][own])
        keys = torch.cat([nope, t["k_pe"][own].expand(len(nope), -1, -1)], -1)
        values = torch.einsum("hvr,lr->hlv", t["w_uv"], t["kv_latent"][own])
        for i in range(length_q):
            visible = length_kv - length_q + i + 1
            scores = scale * torch.einsum("hd,hld->hl", t["q"][first_query + i], keys[:, :visible])
            mixed = torch.einsum("hl,hlv->hv", torch.softmax(scores, -1), values[:, :visible])
            if "gate" in t:
                mixed = mixed / (1 + torch.exp(-t["gate"][first_query + i]))
            rows.append(mixed[None])
        first_query, first_key = first_query + length_q, first_key + length_kv
    return torch.cat(rows)


def absorbed(t: dict) -> Tensor:
    """[q_nope w_uk | q_pe] of every query."""
    nope = torch.einsum("thn,hnr->thr", t["q"][..., :NOPE], t["w_uk"])
    return torch.cat([nope, t["q"][..., NOPE:]], -1)


def paged(
    rows: list[Tensor], block_size: int, spare_blocks: int = 2, poison: float = math.nan
) -> tuple[Tensor, Tensor, Tensor]:
    """Pool, block table and lengths for sequences of latent rows; blocks in shuffled order, the rest is poison."""
    lengths = torch.tensor([len(item) for item in rows], dtype=torch.int32)
    counts = [-(-len(item) // block_size) for item in rows]
    order = torch.randperm(sum(counts) + spare_blocks, generator=torch.Generator().manual_seed(1)).tolist()
    pool = rows[0].new_full((len(order), block_size, rows[0].shape[1]), poison)
    table = torch.full((len(rows), max(counts) + 1), -1, dtype=torch.int32)
    table[:, -1] = 2**31 - 1
    for index, item in enumerate(rows):
        for page in range(counts[index]):
            table[index, page] = order.pop()
            part = item[page * block_size : (page + 1) * block_size]
            pool[table[index, page], : len(part)] = part
    return pool, table, lengths
