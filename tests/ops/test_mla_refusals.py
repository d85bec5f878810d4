"""Every call of the latent attention operators that is refused, with its sentence."""

from __future__ import annotations

import pytest
import torch

from ascend_k3.ops.mla import latent_write, mla_decode, mla_prefill
from tests.ops.mla_oracle import RANK, SCALE, inputs, offsets

PREFILL_REFUSALS = {
    "q-shape": ({"q": torch.ones(5, 3, 9)}, r"q must have the shape \[Tq, 3, 10\], got \[5, 3, 9\]"),
    "q-dtype": ({"q": torch.ones(5, 3, 10, dtype=torch.int64)}, "q must be of dtype .* got int64"),
    "latent-shape": ({"kv_latent": torch.ones(8)}, r"kv_latent must have the shape \[Tkv, R\], got \[8\]"),
    "k_pe-shape": ({"k_pe": torch.ones(7, 4)}, r"k_pe must have the shape \[8, P\], got \[7, 4\]"),
    "w_uk-shape": ({"w_uk": torch.ones(3, 6, 9)}, r"w_uk must have the shape \[H, nope, 10\], got \[3, 6, 9\]"),
    "w_uv-shape": ({"w_uv": torch.ones(2, 5, 10)}, r"w_uv must have the shape \[3, V, 10\], got \[2, 5, 10\]"),
    "w_uv-dtype": ({"w_uv": torch.ones(3, 5, 10, dtype=torch.int8)}, "w_uv must be of dtype .* got int8"),
    "gate-shape": ({"gate": torch.ones(5, 15)}, r"gate must have the shape \[5, 3, 5\], got \[5, 15\]"),
    "gate-dtype": ({"gate": torch.ones(5, 3, 5, dtype=torch.bool)}, "gate must be of dtype .* got bool"),
    "cu-dtype": ({"cu_seqlens_q": torch.tensor([0.0, 5.0])}, "cu_seqlens_q must be of dtype int32, int64, got float32"),
    "cu-q-total": (
        {"cu_seqlens_q": offsets([3, 1])},
        r"cu_seqlens_q must rise from 0 to the number of tokens, 5; got \[0, 3, 4\]",
    ),
    "cu-kv-total": (
        {"cu_seqlens_kv": offsets([4, 5])},
        r"cu_seqlens_kv must rise from 0 to the number of tokens, 8; got \[0, 4, 9\]",
    ),
    "cu-count": ({"cu_seqlens_kv": offsets([4, 3, 1])}, r"cu_seqlens_kv must have the shape \[3\], got \[4\]"),
    "short-keys": (
        {"cu_seqlens_kv": offsets([7, 1])},
        "sequence 1 has 2 queries but only 1 keys; cu_seqlens_kv must count its cached prefix and its new tokens",
    ),
    "device": ({"k_pe": torch.ones(8, 4, device="meta")}, "k_pe is on meta and q on cpu"),
}


@pytest.mark.parametrize(("change", "message"), PREFILL_REFUSALS.values(), ids=PREFILL_REFUSALS)
def test_refusals_of_prefill(change: dict, message: str) -> None:
    arguments = {**inputs(5, 8), "cu_seqlens_q": offsets([3, 2]), "cu_seqlens_kv": offsets([4, 4]), "scale": SCALE}
    mla_prefill(**arguments)
    with pytest.raises(ValueError, match=f"^mla_prefill: {message}"):
        mla_prefill(**{**arguments, **change})


INT = torch.int32
DECODE_REFUSALS = {
    "q-shape": ({"q_absorbed": torch.ones(2, 3, 10)}, r"q_absorbed must have the shape \[N, H, 14\], got \[2, 3, 10\]"),
    "q-dtype": ({"q_absorbed": torch.ones(2, 3, 14, dtype=INT)}, "q_absorbed must be of dtype .* got int32"),
    "pool-shape": (
        {"pool": torch.ones(12, 14)},
        r"pool must have the shape \[blocks, block_size, R\+P\], got \[12, 14\]",
    ),
    "pool-dtype": ({"pool": torch.ones(3, 4, 14, dtype=torch.uint8)}, "pool must be of dtype .* got uint8"),
    "pool-block-size": ({"pool": torch.ones(3, 0, 14)}, r"pool must have a block_size of at least 1, got \[3, 0, 14\]"),
    "table-shape": ({"block_table": torch.ones(3, 2, dtype=INT)}, r"block_table must have the shape \[2, max_blocks\]"),
    "table-dtype": ({"block_table": torch.ones(2, 2)}, "block_table must be of dtype int32, int64, got float32"),
    "lens-shape": ({"seq_lens": torch.ones(1, dtype=INT)}, r"seq_lens must have the shape \[2\], got \[1\]"),
    "lens-dtype": ({"seq_lens": torch.ones(2)}, "seq_lens must be of dtype int32, int64, got float32"),
    "length-negative": (
        {"seq_lens": torch.tensor([3, -1])},
        r"seq_lens\[1\] is -1; with 2 blocks of 4 it must be from 0 to 8",
    ),
    "length-beyond": (
        {"seq_lens": torch.tensor([9, 1])},
        r"seq_lens\[0\] is 9; with 2 blocks of 4 it must be from 0 to 8",
    ),
    "block-beyond": (
        {"block_table": torch.tensor([[0, 1], [2, 3]])},
        r"block_table\[1, 1\] is 3 and sequence 1 reads it; blocks of this pool go from 0 to 2",
    ),
    "block-negative": (
        {"block_table": torch.tensor([[-1, 1], [2, 0]])},
        r"block_table\[0, 0\] is -1 and sequence 0 reads it; blocks of this pool go from 0 to 2",
    ),
    "rank-unknown": (
        {"rank": None},
        r"rank must be given for rows of width 14; only the release's rows of 512 \+ 64 are split without it",
    ),
    "rank-zero": ({"rank": 0}, "rank must be from 1 to the row width, 14, got 0"),
    "rank-wide": ({"rank": 15}, "rank must be from 1 to the row width, 14, got 15"),
    "device": ({"pool": torch.ones(3, 4, 14, device="meta")}, "pool is on meta and q_absorbed on cpu"),
}


@pytest.mark.parametrize(("change", "message"), DECODE_REFUSALS.values(), ids=DECODE_REFUSALS)
def test_refusals_of_decode(change: dict, message: str) -> None:
    arguments = {
        "q_absorbed": torch.ones(2, 3, 14),
        "pool": torch.ones(3, 4, 14),
        "block_table": torch.tensor([[0, -1], [2, 1]], dtype=INT),
        "seq_lens": torch.tensor([4, 7], dtype=INT),
        "scale": SCALE,
        "rank": RANK,
    }
    mla_decode(**arguments)
    with pytest.raises(ValueError, match=f"^mla_decode: {message}"):
        mla_decode(**{**arguments, **change})


WRITE_REFUSALS = {
    "pool-shape": (
        {"pool": torch.ones(12, 5)},
        r"pool must have the shape \[blocks, block_size, R\+P\], got \[12, 5\]",
    ),
    "pool-dtype": ({"pool": torch.ones(3, 4, 5, dtype=INT)}, "pool must be of dtype .* got int32"),
    "pool-block-size": ({"pool": torch.ones(3, 0, 5)}, "pool must have a block_size of at least 1"),
    "rows-shape": ({"rows": torch.ones(2, 4)}, r"rows must have the shape \[T, 5\], got \[2, 4\]"),
    "rows-dtype": ({"rows": torch.ones(2, 5, dtype=INT)}, "rows must be of dtype .* got int32"),
    "slots-shape": ({"slot_mapping": torch.tensor([1])}, r"slot_mapping must have the shape \[2\], got \[1\]"),
    "slots-dtype": ({"slot_mapping": torch.ones(2)}, "slot_mapping must be of dtype int32, int64, got float32"),
    "slot-beyond": (
        {"slot_mapping": torch.tensor([0, 12])},
        r"slot_mapping\[1\] is 12; slots of this pool go from 0 to 11, and -1 marks a padding row",
    ),
    "slot-negative": (
        {"slot_mapping": torch.tensor([-2, 1])},
        r"slot_mapping\[0\] is -2; slots of this pool go from 0 to 11",
    ),
    "slot-twice": ({"slot_mapping": torch.tensor([7, 7])}, "slot 7 comes more than once in slot_mapping"),
    "device": ({"rows": torch.ones(2, 5, device="meta")}, "rows is on meta and pool on cpu"),
}


@pytest.mark.parametrize(("change", "message"), WRITE_REFUSALS.values(), ids=WRITE_REFUSALS)
def test_refusals_of_write(change: dict, message: str) -> None:
    arguments = {"pool": torch.ones(3, 4, 5), "rows": torch.ones(2, 5), "slot_mapping": torch.tensor([1, 11])}
    latent_write(**arguments)
    with pytest.raises(ValueError, match=f"^latent_write: {message}"):
        latent_write(**{**arguments, **change})
