"""What every operator refuses alike: no tensor, no number, sizes of zero."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from ascend_k3 import ops
from ascend_k3.ops import checks


def kda_arguments(batch: int = 1, heads: int = 2, width: int = 4, value: int = 3) -> dict:
    return {
        "q": torch.ones(batch, 5, heads, width),
        "k": torch.ones(batch, 5, heads, width),
        "v": torch.ones(batch, 5, heads, value),
        "g": torch.ones(batch, 5, heads, width),
        "beta": torch.ones(batch, 5, heads),
        "A_log": torch.ones(heads),
        "dt_bias": torch.ones(heads * width),
        "lower_bound": -5.0,
    }


def kda_decode_arguments(**sizes: int) -> dict:
    x = kda_arguments(**sizes)
    states = torch.ones(2, x["q"].shape[2], x["v"].shape[3], x["q"].shape[3])
    return {**x, "states": states, "state_indices": torch.tensor([1])}


def prefill_arguments(heads: int = 2, value: int = 3, rank: int = 5) -> dict:
    offsets = torch.tensor([0, 4])
    return {
        "q": torch.ones(4, heads, 6),
        "kv_latent": torch.ones(4, rank),
        "k_pe": torch.ones(4, 2),
        "w_uk": torch.ones(heads, 4, rank),
        "w_uv": torch.ones(heads, value, rank),
        "cu_seqlens_q": offsets,
        "cu_seqlens_kv": offsets,
        "scale": 1.0,
    }


def mla_decode_arguments(heads: int = 2) -> dict:
    table = torch.tensor([[0]])
    return {
        "q_absorbed": torch.ones(1, heads, 6),
        "pool": torch.ones(1, 4, 6),
        "block_table": table,
        "seq_lens": torch.tensor([2]),
        "scale": 1.0,
        "rank": 4,
    }


def residual_arguments(width: int = 4) -> dict:
    return {
        "blocks": torch.ones(3, 2, width),
        "partial": torch.ones(3, width),
        "norm_weight": torch.ones(width),
        "query_weight": torch.ones(width),
        "eps": 1e-5,
    }


def prepare_arguments(width: int = 4) -> dict:
    weights = torch.ones(1, width)
    return {"blocks": torch.ones(3, 2, width), "norm_weights": weights, "query_weights": weights, "eps": 1e-5}


def update_arguments(width: int = 4) -> dict:
    bank = torch.ones(1, 3)
    stats = ops.AttentionResidualStats(bank, bank, torch.ones(1, 3, width))
    return {"stats": stats, **{k: v for k, v in residual_arguments(width).items() if k != "blocks"}}


def convolution_arguments(channels: int = 4) -> dict:
    return {"x": torch.ones(1, 5, channels), "weight": torch.ones(channels, 1, 4)}


def step_arguments(channels: int = 4) -> dict:
    pool = torch.ones(2, channels, 3)
    weight = torch.ones(channels, 1, 4)
    return {"x": torch.ones(1, channels), "weight": weight, "windows": pool, "window_indices": torch.tensor([1])}


def expert_arguments() -> dict:
    return {
        "x": torch.ones(2, 4),
        "weights": torch.ones(2, 1),
        "ids": torch.zeros(2, 1, dtype=torch.int64),
        "w13": torch.ones(3, 6, 4),
        "w2": torch.ones(3, 4, 3),
        "beta": 4.0,
        "linear_beta": 25.0,
    }


ARGUMENTS = {
    "kda": kda_arguments,
    "kda_decode": kda_decode_arguments,
    "mla_prefill": prefill_arguments,
    "mla_decode": mla_decode_arguments,
    "latent_write": lambda: {
        "pool": torch.ones(1, 4, 6),
        "rows": torch.ones(1, 6),
        "slot_mapping": torch.tensor([2]),
    },
    "attention_residual": residual_arguments,
    "attention_residual_prepare": prepare_arguments,
    "attention_residual_update": update_arguments,
    "causal_conv1d": convolution_arguments,
    "causal_conv1d_update": step_arguments,
    "fused_experts": expert_arguments,
    "route": lambda: {"logits": torch.ones(2, 4), "bias": torch.ones(4), "top_k": 2},
    "rms_norm": lambda: {"x": torch.ones(2, 4), "weight": torch.ones(4), "eps": 1e-5},
    "rms_norm_gated": lambda: {
        "x": torch.ones(2, 4),
        "gate": torch.ones(2, 4),
        "weight": torch.ones(4),
        "eps": 1e-5,
    },
    "situ_glu": lambda: {"gate_up": torch.ones(2, 4), "beta": 4.0, "linear_beta": 25.0},
    "mx_quantize": lambda: {"x": torch.ones(2, 32), "format": "mxfp4"},
    "mx_matmul": lambda: {"a": torch.ones(2, 32), "b": ops.mx_quantize(torch.ones(2, 32), format="mxfp4")},
}
TENSORS = [
    (op, name) for op, make in ARGUMENTS.items() for name, value in make().items() if isinstance(value, Tensor)
] + [
    ("kda", "initial_state"),
    ("kda", "cu_seqlens"),
    ("kda_decode", "cu_seqlens"),
    ("kda_decode", "num_accepted"),
    ("mla_prefill", "gate"),
    ("causal_conv1d", "initial_window"),
    ("causal_conv1d", "cu_seqlens"),
]
OPTIONAL = {"initial_state", "cu_seqlens", "num_accepted", "gate", "initial_window", "partial"}


@pytest.mark.parametrize("op", ARGUMENTS)
def test_the_arguments_of_this_file_are_accepted(op: str) -> None:
    getattr(ops, op)(**ARGUMENTS[op]())


@pytest.mark.parametrize("value", [[1.0, 2.0], None, np.ones(3)], ids=["list", "none", "numpy"])
@pytest.mark.parametrize(("op", "name"), TENSORS)
def test_what_is_no_tensor_is_refused(op: str, name: str, value: object) -> None:
    if value is None and name in OPTIONAL and op != "rms_norm_gated":
        getattr(ops, op)(**{**ARGUMENTS[op](), name: None})
        return
    found = type(value).__name__
    with pytest.raises(ValueError, match=f"^{op}: {name} must be a torch.Tensor, got {found}.$"):
        getattr(ops, op)(**{**ARGUMENTS[op](), name: value})


def test_stats_that_are_no_stats_are_refused() -> None:
    wanted = "^attention_residual_update: stats must be AttentionResidualStats, got list; attention_residual_prepare"
    with pytest.raises(ValueError, match=wanted):
        ops.attention_residual_update(**{**update_arguments(), "stats": [1, 2, 3]})


@pytest.mark.parametrize("value", ["1e-5", torch.tensor(1e-5), True], ids=["text", "tensor", "bool"])
@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("kda", "lower_bound"),
        ("kda", "scale"),
        ("kda_decode", "lower_bound"),
        ("kda_decode", "scale"),
        ("mla_prefill", "scale"),
        ("mla_decode", "scale"),
        ("attention_residual", "eps"),
        ("attention_residual_prepare", "eps"),
        ("attention_residual_update", "eps"),
        ("rms_norm", "eps"),
        ("rms_norm_gated", "eps"),
        ("situ_glu", "beta"),
        ("situ_glu", "linear_beta"),
        ("fused_experts", "beta"),
        ("fused_experts", "linear_beta"),
        ("route", "scaling_factor"),
    ],
)
def test_what_is_no_number_is_refused(op: str, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{op}: {name} must be a number, got {type(value).__name__}.$"):
        getattr(ops, op)(**{**ARGUMENTS[op](), name: value})


@pytest.mark.parametrize("value", ["64", 64.0, True], ids=["text", "float", "bool"])
@pytest.mark.parametrize(
    ("op", "name"),
    [("kda", "chunk_size"), ("mla_decode", "rank"), ("attention_residual_update", "index"), ("route", "top_k")],
)
def test_what_is_no_integer_is_refused(op: str, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{op}: {name} must be an integer, got {type(value).__name__}.$"):
        getattr(ops, op)(**{**ARGUMENTS[op](), name: value})


@pytest.mark.parametrize(
    ("op", "arguments", "message"),
    [
        ("kda", kda_arguments(heads=0), r"H of q must be at least 1, got the shape \[1, 5, 0, 4\]"),
        ("kda", kda_arguments(width=0), r"K of q must be at least 1, got the shape \[1, 5, 2, 0\]"),
        ("kda", kda_arguments(value=0), r"V of v must be at least 1, got the shape \[1, 5, 2, 0\]"),
        ("kda_decode", kda_decode_arguments(heads=0), "H of q must be at least 1"),
        ("kda_decode", kda_decode_arguments(width=0), "K of q must be at least 1"),
        ("kda_decode", kda_decode_arguments(value=0), "V of v must be at least 1"),
        ("mla_prefill", prefill_arguments(heads=0), r"H of w_uk must be at least 1, got the shape \[0, 4, 5\]"),
        ("mla_prefill", prefill_arguments(value=0), r"V of w_uv must be at least 1, got the shape \[2, 0, 5\]"),
        ("mla_prefill", prefill_arguments(rank=0), r"R of kv_latent must be at least 1, got the shape \[4, 0\]"),
        ("mla_decode", mla_decode_arguments(heads=0), r"H of q_absorbed must be at least 1, got the shape \[1, 0, 6\]"),
        ("attention_residual", residual_arguments(0), r"D of blocks must be at least 1, got the shape \[3, 2, 0\]"),
        ("attention_residual_prepare", prepare_arguments(0), "D of blocks must be at least 1"),
        ("attention_residual_update", update_arguments(0), "D of stats.weighted must be at least 1"),
        ("causal_conv1d", convolution_arguments(0), r"C of x must be at least 1, got the shape \[1, 5, 0\]"),
        ("causal_conv1d_update", step_arguments(0), r"C of x must be at least 1, got the shape \[1, 0\]"),
    ],
)
def test_sizes_of_zero_are_refused(op: str, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{op}: {message}"):
        getattr(ops, op)(**arguments)


@pytest.mark.parametrize(("op", "name"), [("kda", "cu_seqlens"), ("kda_decode", "cu_seqlens"),
                                          ("kda_decode", "num_accepted"), ("mla_prefill", "cu_seqlens_q"),
                                          ("causal_conv1d", "cu_seqlens")])  # fmt: skip
def test_lengths_on_another_device_are_refused(op: str, name: str) -> None:
    lengths = torch.tensor([2] if name == "num_accepted" else [0, 5], device="meta")
    with pytest.raises(ValueError, match=f"^{op}: {name} is on meta and .* on cpu; move them to one device"):
        getattr(ops, op)(**{**ARGUMENTS[op](), name: lengths})


def test_values_are_known_unless_on_meta_or_compiled() -> None:
    assert checks.values_known(torch.tensor([1])) and not checks.values_known(torch.tensor([1], device="meta"))

    def known(x: Tensor) -> Tensor:
        return x + (1 if checks.values_known(x) else 2)

    assert torch.compile(known, backend="eager", fullgraph=True)(torch.zeros(1)).item() == 2
