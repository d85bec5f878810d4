"""`ascend_k3::mla_prefill`, `ascend_k3::mla_decode` and `ascend_k3::latent_write`."""

from __future__ import annotations

from torch import Tensor

from ascend_k3.ops.library import register
from ascend_k3.ops.mla import reference


def _prefill(q: Tensor, kv_latent: Tensor, k_pe: Tensor, w_uk: Tensor, w_uv: Tensor, *_: object) -> Tensor:
    return q.new_empty(q.shape[0], q.shape[1], w_uv.shape[1])


def _decode(q_absorbed: Tensor, pool: Tensor, block_table: Tensor, seq_lens: Tensor, scale: float, rank: int) -> Tensor:
    return q_absorbed.new_empty(q_absorbed.shape[0], q_absorbed.shape[1], rank)


def _write(pool: Tensor, rows: Tensor, slot_mapping: Tensor) -> None:
    return None


register(
    "mla_prefill",
    "(Tensor q, Tensor kv_latent, Tensor k_pe, Tensor w_uk, Tensor w_uv, Tensor cu_seqlens_q, Tensor cu_seqlens_kv, "
    "float scale, Tensor? gate) -> Tensor",
    reference.mla_prefill,
    _prefill,
    differentiable=("q", "kv_latent", "k_pe", "w_uk", "w_uv", "gate"),
    backward=reference.mla_prefill_backward,
)
register(
    "mla_decode",
    "(Tensor q_absorbed, Tensor pool, Tensor block_table, Tensor seq_lens, float scale, int rank) -> Tensor",
    reference.mla_decode,
    _decode,
    no_gradient=(
        "mla_decode: it has no gradient; attend with mla_prefill to train, or call under torch.no_grad() to generate."
    ),
)
register(
    "latent_write",
    "(Tensor(a!) pool, Tensor rows, Tensor slot_mapping) -> ()",
    reference.latent_write,
    _write,
)
