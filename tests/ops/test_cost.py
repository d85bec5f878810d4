"""Least costs: counted by hand and by loops, the bytes of real calls, scaling laws, and bounds at K3's shapes."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ascend_k3 import ops
from ascend_k3.ops.attention_residual import cost as attention_residual
from ascend_k3.ops.causal_conv1d import cost as causal_conv1d
from ascend_k3.ops.cost import Bound, Cost, mac_type, nbytes
from ascend_k3.ops.fused_experts import cost as fused_experts
from ascend_k3.ops.kda import cost as kda
from ascend_k3.ops.mla import cost as mla
from ascend_k3.ops.mx import cost as mx
from ascend_k3.ops.rms_norm import cost as rms_norm
from ascend_k3.ops.route import cost as route
from ascend_k3.ops.situ_glu import cost as situ_glu
from ascend_k3.ops.soc import NAMES, soc

BF16, FP32, INT64 = torch.bfloat16, torch.float32, torch.int64
SHORT = {BF16: "bf16", FP32: "fp32", torch.float16: "fp16"}
FLOATS = list(SHORT)

US = 1e-6


def make(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.rand(shape, dtype=torch.float32).to(dtype)


def size(*tensors: Tensor | None) -> int:
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


# one case or two of each operator: cost, bytes_in, bytes_out, macs, vector_elements
BY_HAND: dict[str, tuple[Cost, int, int, dict[str, int], int]] = {
    # 3 x 8 in bf16: 48 bytes, and a weight of 16; 4 for each of 24
    "rms_norm": (rms_norm.rms_norm(rows=3, width=8, dtype="bf16"), 48 + 16, 48, {}, 96),
    "rms_norm, weight in float32": (
        rms_norm.rms_norm(rows=3, width=8, dtype="bf16", weight_dtype="fp32"),
        48 + 32,
        48,
        {},
        96,
    ),
    "rms_norm_gated": (rms_norm.rms_norm_gated(rows=3, width=8, dtype="bf16"), 48 + 48 + 16, 48, {}, 144),
    "rms_norm_gated, gate in float32": (
        rms_norm.rms_norm_gated(rows=3, width=8, dtype="bf16", gate_dtype="fp32"),
        48 + 96 + 16,
        48,
        {},
        144,
    ),
    "situ_glu": (situ_glu.situ_glu(rows=2, width=32, dtype="fp32"), 512, 256, {}, 8 * 64),
    "situ_glu, linear up": (situ_glu.situ_glu(rows=2, width=32, dtype="fp32", linear_beta=False), 512, 256, {}, 6 * 64),
    # 64 codes of a byte and 2 scales; 32 bytes of codes and 2 scales
    "situ_glu to mxfp8": (
        situ_glu.situ_glu_mx_quantize(rows=2, width=32, dtype="bf16", format="mxfp8_e4m3"),
        256,
        66,
        {},
        11 * 64,
    ),
    "situ_glu to mxfp4": (
        situ_glu.situ_glu_mx_quantize(rows=2, width=32, dtype="bf16", format="mxfp4", linear_beta=False),
        256,
        34,
        {},
        9 * 64,
    ),
    "mx_quantize": (mx.mx_quantize(elements=96, dtype="bf16", format="mxfp4"), 192, 51, {}, 288),
    "mx_dequantize": (mx.mx_dequantize(elements=96, format="mxfp8_e5m2", dtype="fp32"), 99, 384, {}, 96),
    # a 2 x 64 (132 bytes), b 3 x 64 (102 bytes); MXFP4 is cast to MXFP8
    "mx_matmul mxfp8 x mxfp4": (
        mx.mx_matmul(rows=2, columns=3, depth=64, a="mxfp8_e4m3", b="mxfp4", out_dtype="bf16"),
        132 + 102,
        12,
        {"mxfp8": 384},
        0,
    ),
    "mx_matmul mxfp4 x mxfp4": (
        mx.mx_matmul(rows=2, columns=3, depth=64, a="mxfp4", b="mxfp4", out_dtype="fp32"),
        68 + 102,
        24,
        {"mxfp4": 384},
        0,
    ),
    "mx_matmul bf16 x mxfp4": (
        mx.mx_matmul(rows=2, columns=3, depth=64, a="bf16", b="mxfp4", out_dtype="bf16"),
        256 + 102,
        12,
        {"bf16": 384},
        192,
    ),
    "mx_matmul mxfp8 x mxfp4 in bf16": (
        mx.mx_matmul(rows=2, columns=3, depth=64, a="mxfp8_e4m3", b="mxfp4", out_dtype="bf16", multiplied_as="bf16"),
        132 + 102,
        12,
        {"bf16": 384},
        128 + 192,
    ),
    "route": (
        route.route(tokens=2, experts=10, top_k=3, dtype="fp32"),
        80 + 40,
        6 * (4 + 8),
        {},
        3 * 20 + 2 * 6,
    ),
    "route, not renormalized, int32": (
        route.route(tokens=2, experts=10, top_k=3, dtype="bf16", renormalize=False, id_dtype="int32"),
        40 + 40,
        6 * (2 + 4),
        {},
        3 * 20 + 6,
    ),
    # 5 tokens of 3 channels; windows of 2 sequences hold 2 * 3 * 3 numbers
    "causal_conv1d": (
        causal_conv1d.causal_conv1d(tokens=5, channels=3, taps=4, sequences=2, dtype="bf16"),
        30 + 24,
        30 + 36,
        {},
        6 * 15,
    ),
    "causal_conv1d, all inputs": (
        causal_conv1d.causal_conv1d(
            tokens=5,
            channels=3,
            taps=4,
            sequences=2,
            dtype="bf16",
            weight_dtype="fp32",
            initial_window=True,
            index_dtype="int32",
            activation=False,
        ),
        30 + 48 + 36 + 12,
        30 + 36,
        {},
        4 * 15,
    ),
    "causal_conv1d_update": (
        causal_conv1d.causal_conv1d_update(sequences=2, channels=3, taps=4, dtype="bf16"),
        12 + 24 + 36 + 16,
        12 + 36,
        {},
        6 * 6,
    ),
    "causal_conv1d_update, no activation": (
        causal_conv1d.causal_conv1d_update(sequences=2, channels=3, taps=4, dtype="bf16", activation=False),
        12 + 24 + 36 + 16,
        12 + 36,
        {},
        4 * 6,
    ),
    # 2 tokens of 4: 8 numbers a source; 3 sources
    "attention_residual": (
        attention_residual.attention_residual(tokens=2, blocks=2, width=4, dtype="bf16"),
        48 + 16,
        16,
        {},
        5 * 24,
    ),
    "attention_residual, bank alone, normed": (
        attention_residual.attention_residual(
            tokens=2, blocks=2, width=4, dtype="bf16", partial=False, output_norm=True
        ),
        32 + 24,
        16,
        {},
        5 * 16 + 4 * 8,
    ),
    # two points: 2 + 2 * 3 for each of 16; statistics 2 * 2 * (4 + 2) float32
    "attention_residual_prepare": (
        attention_residual.attention_residual_prepare(tokens=2, blocks=2, width=4, points=2, dtype="bf16"),
        32 + 32,
        96,
        {},
        8 * 16,
    ),
    "attention_residual_update": (
        attention_residual.attention_residual_update(tokens=2, width=4, dtype="bf16"),
        48 + 16 + 16,
        16,
        {},
        6 * 8,
    ),
    "attention_residual_update, bank alone, normed": (
        attention_residual.attention_residual_update(tokens=2, width=4, dtype="bf16", partial=False, output_norm=True),
        48 + 8,
        16,
        {},
        (1 + 4) * 8,
    ),
    # 2 tokens, 3 of 5 experts, D = 32, I = 64: an expert has 3 * 2048 weights, 3264 bytes in MXFP4
    "fused_experts, bf16": (
        fused_experts.fused_experts(
            tokens=2, top_k=3, experts=5, latent=32, width=64, dtype="bf16", weight_dtype="bf16", experts_hit=4
        ),
        128 + 24 + 48 + 4 * 12288,
        128,
        {"bf16": 6 * 6144},
        6 * (8 * 64 + 32),
    ),
    "fused_experts, mxfp4": (
        fused_experts.fused_experts(
            tokens=2, top_k=3, experts=5, latent=32, width=64, dtype="bf16", weight_dtype="mxfp4", experts_hit=4
        ),
        128 + 24 + 48 + 4 * 3264,
        128,
        {"bf16": 6 * 6144},
        6 * (8 * 64 + 32) + 4 * 6144,
    ),
    "fused_experts, mxfp4 in mxfp8": (
        fused_experts.fused_experts(
            tokens=2,
            top_k=3,
            experts=5,
            latent=32,
            width=64,
            dtype="bf16",
            weight_dtype="mxfp4",
            experts_hit=4,
            multiplied_as="mxfp8",
        ),
        128 + 24 + 48 + 4 * 3264,
        128,
        {"mxfp8": 6 * 6144},
        6 * (8 * 64 + 32) + 3 * (2 * 32 + 6 * 64),
    ),
    "fused_experts, all slots dropped": (
        fused_experts.fused_experts(
            tokens=2, top_k=0, experts=5, latent=32, width=64, dtype="bf16", weight_dtype="bf16", experts_hit=0
        ),
        128,
        128,
        {"bf16": 0},
        0,
    ),
    "permute": (
        fused_experts.permute(tokens=2, top_k=3, experts=5, width=32, dtype="bf16"),
        128 + 48,
        384 + 24 + 20,
        {},
        0,
    ),
    "unpermute": (
        fused_experts.unpermute(tokens=2, top_k=3, width=32, dtype="fp32", out_dtype="bf16"),
        768 + 24 + 24,
        128,
        {},
        192,
    ),
    # 2 heads, nope 4, P 2, R 8, V 3; 2 queries on 3 keys see 2 + 3 pairs, 1 on 1 sees 1
    "mla_prefill": (
        mla.mla_prefill(
            sequences=[(2, 3), (1, 1)], heads=2, nope=4, shared_key=2, rank=8, value=3, dtype="bf16", gate=True
        ),
        2 * (3 * 2 * 6 + 4 * 10 + 2 * 7 * 8 + 3 * 2 * 3) + 2 * 24,
        36,
        {"bf16": 2 * 8 * 7 * 4 + 2 * 9 * 6},
        36 + 4 * 2 * 6 + 3 * 18,
    ),
    "mla_prefill, no gate, one sequence without queries": (
        mla.mla_prefill(sequences=[(0, 9), (1, 2)], heads=1, nope=4, shared_key=2, rank=8, value=3, dtype="fp32"),
        4 * (6 + 2 * 10 + 7 * 8) + 2 * 24,
        12,
        {"fp32": 8 * 7 * 2 + 9 * 2},
        6 + 4 * 2 + 3,
    ),
    # 2 heads, R 8, P 2; 5 rows in blocks of 2: 3 entries of the table and 2 lengths of 4 bytes
    "mla_decode": (
        mla.mla_decode(seq_lens=[4, 1], heads=2, rank=8, shared_key=2, block_size=2, dtype="bf16"),
        2 * (2 * 2 * 10 + 5 * 10) + 4 * (3 + 2),
        64,
        {"bf16": 2 * 18 * 5},
        40 + 4 * 2 * 5 + 32,
    ),
    "latent_write": (mla.latent_write(tokens=3, width=10, dtype="fp32", pool_dtype="bf16"), 120 + 24, 60, {}, 0),
    # 1 head, K 4, V 2, 3 tokens in chunks of 2 and 1; q, k, g, v and beta have 15 numbers a token
    "kda": (
        kda.kda(lengths=[3], heads=1, key=4, value=2, dtype="bf16", chunk_size=2),
        2 * 3 * 15 + 4 * 5,
        12 + 32,
        {"bf16": 3 * 3 * 8 + (4 + 1) * 6},
        3 * (20 * 4 + 2) + 2 * 8,
    ),
    "kda, packed, with states": (
        kda.kda(lengths=[3, 0], heads=1, key=4, value=2, dtype="bf16", initial_state=True, index_dtype="int64"),
        2 * 3 * 15 + 4 * 5 + 24 + 64,
        12 + 64,
        {"bf16": 3 * 3 * 8 + 9 * 6},
        3 * (20 * 4 + 2) + 8,
    ),
    "kda_backward": (
        kda.kda_backward(lengths=[3], heads=1, key=4, value=2, dtype="bf16", chunk_size=2),
        2 * 3 * 15 + 4 * 5 + 12 + 32,
        2 * 3 * 15 + 4 * 5,
        {"bf16": 3 * 8 * 8 + 3 * 5 * 4 + (9 + 2) * 2},
        3 * (46 * 4 + 4 * 2) + 2 * 4 * 8,
    ),
    "kda_decode": (
        kda.kda_decode(lengths=[2, 1], heads=1, key=4, value=3, dtype="bf16"),
        2 * 3 * 16 + 4 * 5 + 16 + 96,
        18 + 96,
        {"bf16": 3 * 3 * 12},
        3 * (11 * 4 + 2 * 3 + 12),
    ),
}


@pytest.mark.parametrize(("cost", "bytes_in", "bytes_out", "macs", "vector_elements"), BY_HAND.values(), ids=BY_HAND)
def test_counted_by_hand(cost: Cost, bytes_in: int, bytes_out: int, macs: dict[str, int], vector_elements: int) -> None:
    assert (cost.bytes_in, cost.bytes_out) == (bytes_in, bytes_out)
    assert dict(cost.macs) == macs
    assert cost.vector_elements == vector_elements
    assert cost.bytes == bytes_in + bytes_out


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bytes_of_norms_and_activation(dtype: torch.dtype) -> None:
    x, gate, weight = make(3, 5, 8, dtype=dtype), make(3, 5, 8), make(8, dtype=FP32)
    cost = rms_norm.rms_norm(rows=15, width=8, dtype=SHORT[dtype], weight_dtype="fp32")
    assert (cost.bytes_in, cost.bytes_out) == (size(x, weight), size(ops.rms_norm(x, weight, eps=1e-5)))

    cost = rms_norm.rms_norm_gated(rows=15, width=8, dtype=SHORT[dtype], gate_dtype="bf16", weight_dtype="fp32")
    y = ops.rms_norm_gated(x, gate, weight, eps=1e-5)
    assert (cost.bytes_in, cost.bytes_out) == (size(x, gate, weight), size(y))

    gate_up = make(3, 5, 64, dtype=dtype)
    y = ops.situ_glu(gate_up, beta=4.0, linear_beta=25.0)
    cost = situ_glu.situ_glu(rows=15, width=32, dtype=SHORT[dtype])
    assert (cost.bytes_in, cost.bytes_out) == (size(gate_up), size(y))
    for format in ("mxfp4", "mxfp8_e4m3", "mxfp8_e5m2"):
        q = ops.mx_quantize(y, format=format)
        cost = situ_glu.situ_glu_mx_quantize(rows=15, width=32, dtype=SHORT[dtype], format=format)
        assert (cost.bytes_in, cost.bytes_out) == (size(gate_up), size(q.data, q.scale))


@pytest.mark.parametrize("format", ["mxfp4", "mxfp8_e4m3", "mxfp8_e5m2"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bytes_of_mx(dtype: torch.dtype, format: str) -> None:
    x, b = make(3, 96, dtype=dtype), ops.mx_quantize(make(5, 96), format=format)
    q = ops.mx_quantize(x, format=format)
    cost = mx.mx_quantize(elements=288, dtype=SHORT[dtype], format=format)
    assert (cost.bytes_in, cost.bytes_out) == (size(x), size(q.data, q.scale))

    cost = mx.mx_dequantize(elements=288, format=format, dtype=SHORT[dtype])
    assert (cost.bytes_in, cost.bytes_out) == (size(q.data, q.scale), size(ops.mx_dequantize(q, dtype=dtype)))

    y = ops.mx_matmul(q, b, out_dtype=dtype)
    cost = mx.mx_matmul(rows=3, columns=5, depth=96, a=format, b=format, out_dtype=SHORT[dtype])
    assert (cost.bytes_in, cost.bytes_out) == (size(q.data, q.scale, b.data, b.scale), size(y))
    if dtype != torch.float16:
        cost = mx.mx_matmul(rows=3, columns=5, depth=96, a=SHORT[dtype], b=format, out_dtype=SHORT[dtype])
        assert (cost.bytes_in, cost.bytes_out) == (size(x, b.data, b.scale), size(ops.mx_matmul(x, b)))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bytes_of_routing_and_experts(dtype: torch.dtype) -> None:
    logits, bias = torch.randn(7, 12).to(dtype), make(12, dtype=FP32)
    weights, ids = ops.route(logits, bias, top_k=3)
    cost = route.route(tokens=7, experts=12, top_k=3, dtype=SHORT[dtype])
    assert (cost.bytes_in, cost.bytes_out) == (size(logits, bias), size(weights, ids))

    x, hit = make(7, 32, dtype=dtype), len(ids.unique())
    shapes = {"tokens": 7, "top_k": 3, "experts": 12, "latent": 32, "width": 64, "experts_hit": hit}
    types = {"dtype": SHORT[dtype], "routing_dtype": SHORT[dtype]}
    w13, w2 = make(12, 128, 32), make(12, 32, 64)
    y = ops.fused_experts(x, weights, ids, w13, w2, beta=4.0, linear_beta=25.0)
    cost = fused_experts.fused_experts(**shapes, **types, weight_dtype="bf16")
    used = [w13[e] for e in ids.unique()] + [w2[e] for e in ids.unique()]
    assert (cost.bytes_in, cost.bytes_out) == (size(x, weights, ids, *used), size(y))

    q13, q2 = ops.mx_quantize(w13, format="mxfp4"), ops.mx_quantize(w2, format="mxfp4")
    y = ops.fused_experts(x, weights, ids, q13, q2, beta=4.0, linear_beta=25.0)
    cost = fused_experts.fused_experts(**shapes, **types, weight_dtype="mxfp4")
    used = [part[e] for e in ids.unique() for part in (q13.data, q13.scale, q2.data, q2.scale)]
    assert (cost.bytes_in, cost.bytes_out) == (size(x, weights, ids, *used), size(y))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bytes_of_the_permutation(dtype: torch.dtype) -> None:
    """Permutation, experts that change nothing, and the weighted return, as a loop would do them."""
    rows, weights = make(5, 32, dtype=dtype), make(5, 2, dtype=FP32)
    ids = torch.stack([torch.randperm(6)[:2] for _ in range(5)])
    order = ids.flatten().argsort(stable=True)
    permuted, places = rows[order // 2], order.argsort().to(torch.int32).view(5, 2)
    counts = torch.bincount(ids.flatten(), minlength=6).to(torch.int32)
    cost = fused_experts.permute(tokens=5, top_k=2, experts=6, width=32, dtype=SHORT[dtype])
    assert (cost.bytes_in, cost.bytes_out) == (size(rows, ids), size(permuted, places, counts))

    y = (permuted[places.long()].float() * weights.unsqueeze(2)).sum(1).to(dtype)
    torch.testing.assert_close(y, (rows.float() * weights.sum(1, keepdim=True)).to(dtype))
    cost = fused_experts.unpermute(tokens=5, top_k=2, width=32, dtype=SHORT[dtype])
    assert (cost.bytes_in, cost.bytes_out) == (size(permuted, weights, places), size(y))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
def test_bytes_of_the_convolution(dtype: torch.dtype, packed: bool) -> None:
    x, weight = make(1 if packed else 2, 6, 5, dtype=dtype), make(5, 1, 4)
    offsets = torch.tensor([0, 2, 6], dtype=torch.int32) if packed else None
    tokens, windows = 6 if packed else 12, make(2, 5, 3, dtype=dtype)
    shapes = {"tokens": tokens, "channels": 5, "taps": 4, "sequences": 2}
    types = {"dtype": SHORT[dtype], "weight_dtype": "bf16", "index_dtype": "int32" if packed else None}
    for initial in (None, windows):
        outputs = ops.causal_conv1d(x, weight, initial, offsets)
        cost = causal_conv1d.causal_conv1d(**shapes, **types, initial_window=initial is not None)
        assert (cost.bytes_in, cost.bytes_out) == (size(x, weight, initial, offsets), size(*outputs))

    step, slots = make(2, 5, dtype=dtype), torch.tensor([1, 0])
    windows = windows.float()
    y = ops.causal_conv1d_update(step, weight, windows, slots)
    cost = causal_conv1d.causal_conv1d_update(
        sequences=2, channels=5, taps=4, dtype=SHORT[dtype], weight_dtype="bf16", window_dtype="fp32"
    )
    assert (cost.bytes_in, cost.bytes_out) == (size(step, weight, windows, slots), size(y, windows))


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "normed"])
@pytest.mark.parametrize("with_partial", [False, True], ids=["bank alone", "with partial"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bytes_of_attention_residual(dtype: torch.dtype, with_partial: bool, norm: bool) -> None:
    blocks, partial = make(7, 3, 16, dtype=dtype), make(7, 16, dtype=dtype) if with_partial else None
    norms, queries = make(2, 16, dtype=dtype), make(2, 16, dtype=dtype)
    output = {"output_norm_weight": make(16, dtype=dtype), "output_eps": 1e-5} if norm else {}
    weight = make(16, dtype=dtype) if norm else None
    types = {"dtype": SHORT[dtype], "partial": with_partial, "output_norm": norm}
    y = ops.attention_residual(blocks, partial, norms[1], queries[1], eps=1e-5, **output)
    cost = attention_residual.attention_residual(tokens=7, blocks=3, width=16, **types)
    assert (cost.bytes_in, cost.bytes_out) == (size(blocks, partial, norms[1], queries[1], weight), size(y))

    stats = ops.attention_residual_prepare(blocks, norms, queries, eps=1e-5)
    cost = attention_residual.attention_residual_prepare(tokens=7, blocks=3, width=16, points=2, dtype=SHORT[dtype])
    assert (cost.bytes_in, cost.bytes_out) == (size(blocks, norms, queries), size(*stats))

    y = ops.attention_residual_update(stats, partial, norms[1], queries[1], eps=1e-5, index=1, **output)
    cost = attention_residual.attention_residual_update(tokens=7, width=16, **types)
    scored = (norms[1], queries[1]) if with_partial else ()  # without a partial sum they only name a dtype
    one = [part[1] for part in stats]
    assert (cost.bytes_in, cost.bytes_out) == (size(*one, partial, *scored, weight), size(y))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bytes_of_latent_attention(dtype: torch.dtype) -> None:
    sequences = [(2, 5), (0, 0), (3, 3)]
    q, latent, shared = make(5, 2, 6, dtype=dtype), make(8, 8, dtype=dtype), make(8, 2, dtype=dtype)
    w_uk, w_uv = make(2, 4, 8, dtype=dtype), make(2, 3, 8, dtype=dtype)
    offsets = (torch.tensor([0, 2, 2, 5]), torch.tensor([0, 5, 5, 8]))
    for gate in (None, make(5, 2, 3, dtype=dtype)):
        y = ops.mla_prefill(q, latent, shared, w_uk, w_uv, *offsets, scale=0.4, gate=gate)
        cost = mla.mla_prefill(
            sequences=sequences,
            heads=2,
            nope=4,
            shared_key=2,
            rank=8,
            value=3,
            dtype=SHORT[dtype],
            gate=gate is not None,
        )
        assert (cost.bytes_in, cost.bytes_out) == (size(q, latent, shared, w_uk, w_uv, *offsets, gate), size(y))

    pool, rows, slots = make(2, 4, 10), make(8, 10, dtype=dtype), torch.arange(8)
    ops.latent_write(pool, rows, slots)
    cost = mla.latent_write(tokens=8, width=10, dtype=SHORT[dtype], pool_dtype="bf16")
    assert (cost.bytes_in, cost.bytes_out) == (size(rows, slots), size(pool))

    # both blocks are full, so that all of the pool and of the table is read
    absorbed = make(2, 3, 10, dtype=dtype)
    table, lengths = torch.tensor([[1], [0]], dtype=torch.int32), torch.tensor([4, 4], dtype=torch.int32)
    y = ops.mla_decode(absorbed, pool, table, lengths, scale=0.4, rank=8)
    cost = mla.mla_decode(
        seq_lens=[4, 4], heads=3, rank=8, shared_key=2, block_size=4, dtype=SHORT[dtype], pool_dtype="bf16"
    )
    assert (cost.bytes_in, cost.bytes_out) == (size(absorbed, pool, table, lengths), size(y))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("initial", [False, True], ids=["zero state", "state given"])
def test_bytes_of_kda(dtype: torch.dtype, initial: bool) -> None:
    heads, key, value, tokens = 2, 8, 6, 20
    inputs = [make(1, tokens, heads, width, dtype=dtype) for width in (key, key, value, key)]
    inputs.append(make(1, tokens, heads, dtype=dtype))
    A_log, dt_bias = make(heads, dtype=FP32), make(heads * key, dtype=FP32)
    state = make(2, heads, value, key, dtype=FP32) if initial else None
    offsets = torch.tensor([0, 3, 20])
    given = [x for x in (*inputs, A_log, dt_bias, state) if x is not None]
    for x in given:
        x.requires_grad_()
    outputs = ops.kda(
        *inputs, A_log=A_log, dt_bias=dt_bias, lower_bound=-5.0, initial_state=state, cu_seqlens=offsets, chunk_size=16
    )
    shapes = {"lengths": [3, 17], "heads": heads, "key": key, "value": value, "dtype": SHORT[dtype]}
    cost = kda.kda(**shapes, initial_state=initial, index_dtype="int64", chunk_size=16)
    assert (cost.bytes_in, cost.bytes_out) == (size(*given, offsets), size(*outputs))

    output_grads = [torch.rand_like(x) for x in outputs]
    grads = torch.autograd.grad(outputs, given, output_grads)
    cost = kda.kda_backward(**shapes, initial_state=initial, index_dtype="int64", chunk_size=16)
    assert (cost.bytes_in, cost.bytes_out) == (size(*given, offsets, *output_grads), size(*grads))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
def test_bytes_of_kda_decode(dtype: torch.dtype, packed: bool) -> None:
    heads, key, value = 2, 8, 6
    lengths = [1, 3] if packed else [2, 2]
    lead = (1, 4) if packed else (2, 2)
    inputs = [make(*lead, heads, width, dtype=dtype) for width in (key, key, value, key)]
    inputs.append(make(*lead, heads, dtype=dtype))
    A_log, dt_bias = make(heads, dtype=FP32), make(heads, key, dtype=FP32)
    states, slots = make(2, heads, value, key, dtype=FP32), torch.tensor([1, 0])
    offsets = torch.tensor([0, 1, 4]) if packed else None
    accepted = torch.tensor([1, 2]) if packed else None
    o = ops.kda_decode(
        *inputs,
        states,
        slots,
        A_log=A_log,
        dt_bias=dt_bias,
        lower_bound=-5.0,
        cu_seqlens=offsets,
        num_accepted=accepted,
    )
    cost = kda.kda_decode(
        lengths=lengths,
        heads=heads,
        key=key,
        value=value,
        dtype=SHORT[dtype],
        packed=packed,
        num_accepted=packed,
    )
    assert cost.bytes_in == size(*inputs, A_log, dt_bias, states, slots, offsets, accepted)
    assert cost.bytes_out == size(o, states)


LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=4)
SIZES = st.integers(1, 9)


def kda_macs(chunk: int, key: int, value: int) -> int:
    """Multiply-adds of a chunk of the forward pass, token by token and pair by pair."""
    macs = 0
    for t in range(chunk):
        macs += 2 * key * value  # both reads of the incoming state
        for _ in range(t):
            macs += key + value  # L[t, s], and its product with u_s in the substitution
        for _ in range(t + 1):
            macs += key + value  # A[t, s], and its product with u_s
        macs += key * value  # k_t u_t^T into the state
    return macs


def kda_backward_macs(chunk: int, key: int, value: int) -> int:
    macs = 0
    for t in range(chunk):
        macs += 2 * key * value  # again: what u_t reads of the state, k_t u_t^T
        macs += key * value  # k_t dS'
        macs += 3 * key * value  # do_t S, w_t S, u_t dS': gradients of the decayed q and of two of the keys
        macs += 2 * key * value  # q_t do_t^T and k_t w_t^T into dS
        for _ in range(t):
            macs += key + value  # again: L[t, s], the substitution
            macs += 2 * value  # the transposed substitution; w_t u_s of dL
            macs += 2 * key  # dL[t, s] to both of its keys
        for _ in range(t + 1):
            macs += key  # again: A[t, s]
            macs += 2 * value  # A^T do; do_t u_s of dA
            macs += 2 * key  # dA[t, s] to q_t and to k_s
    return macs


@given(LENGTHS, st.sampled_from([16, 32]), SIZES, SIZES, st.integers(1, 3))
def test_kda_is_the_sum_over_its_chunks(lengths: list[int], chunk: int, key: int, value: int, heads: int) -> None:
    chunks = [min(chunk, length - start) for length in lengths for start in range(0, length, chunk)]
    shapes = {"lengths": lengths, "heads": heads, "key": key, "value": value, "dtype": "bf16", "chunk_size": chunk}
    forward, backward = kda.kda(**shapes), kda.kda_backward(**shapes)
    assert forward.macs == {"bf16": heads * sum(kda_macs(c, key, value) for c in chunks)}
    assert backward.macs == {"bf16": heads * sum(kda_backward_macs(c, key, value) for c in chunks)}


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=4), SIZES, SIZES)
def test_prefill_attends_to_the_causal_pairs(lengths: list[tuple[int, int]], heads: int, width: int) -> None:
    sequences = [(queries, queries + prefix) for queries, prefix in lengths]
    pairs = sum(
        key <= keys - queries + query for queries, keys in sequences for query in range(queries) for key in range(keys)
    )
    shapes = {"heads": heads, "nope": width, "shared_key": 2, "value": 3, "dtype": "bf16"}
    cost = mla.mla_prefill(sequences=sequences, rank=5, **shapes)
    read = sum(keys for queries, keys in sequences if queries)
    assert cost.macs == {"bf16": heads * (5 * (width + 3) * read + (width + 2 + 3) * pairs)}
    cheaper = mla.mla_prefill(sequences=sequences, rank=4, **shapes)
    assert cost.macs["bf16"] - cheaper.macs["bf16"] == heads * (width + 3) * read


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5), st.integers(1, 8))
def test_decode_is_the_sum_over_its_sequences(lengths: list[int], block_size: int) -> None:
    def cost(seq_lens: list[int]) -> Cost:
        return mla.mla_decode(
            seq_lens=seq_lens, heads=3, rank=8, shared_key=2, block_size=block_size, dtype="bf16", index_dtype="int32"
        )

    parts = [cost([length]) for length in lengths]
    whole = cost(lengths)
    assert whole.bytes_in == sum(part.bytes_in for part in parts)
    assert whole.bytes_out == sum(part.bytes_out for part in parts)
    assert whole.macs["bf16"] == sum(part.macs["bf16"] for part in parts)
    assert whole.vector_elements == sum(part.vector_elements for part in parts)


@pytest.mark.parametrize(
    ("experts", "top_k", "tokens"), [(4, 1, 3), (4, 2, 3), (5, 2, 2), (5, 3, 1), (3, 3, 2), (4, 2, 0)]
)
def test_expected_experts_is_the_mean_over_all_choices(experts: int, top_k: int, tokens: int) -> None:
    choices = list(itertools.combinations(range(experts), top_k))
    draws = list(itertools.product(choices, repeat=tokens))
    mean = sum(len(set().union(*draw)) for draw in draws) / len(draws)
    assert abs(fused_experts.expected_experts(tokens=tokens, top_k=top_k, experts=experts) - mean) <= 0.5


@given(st.integers(0, 3000), st.integers(1, 16))
def test_expected_experts_stays_within_pairs_and_experts(tokens: int, top_k: int) -> None:
    hit = fused_experts.expected_experts(tokens=tokens, top_k=top_k, experts=896)
    more = fused_experts.expected_experts(tokens=tokens + 1, top_k=top_k, experts=896)
    assert 0 <= hit <= min(896, tokens * top_k) and hit <= more


# each a function of the number of tokens
OF_TOKENS: dict[str, Callable[[int], Cost]] = {
    "rms_norm": lambda n: rms_norm.rms_norm(rows=n, width=12, dtype="bf16"),
    "rms_norm_gated": lambda n: rms_norm.rms_norm_gated(rows=n, width=12, dtype="bf16"),
    "situ_glu": lambda n: situ_glu.situ_glu(rows=n, width=32, dtype="bf16"),
    "situ_glu_mx_quantize": lambda n: situ_glu.situ_glu_mx_quantize(rows=n, width=32, dtype="bf16", format="mxfp4"),
    "mx_quantize": lambda n: mx.mx_quantize(elements=64 * n, dtype="bf16", format="mxfp4"),
    "mx_dequantize": lambda n: mx.mx_dequantize(elements=64 * n, format="mxfp4", dtype="bf16"),
    "mx_matmul": lambda n: mx.mx_matmul(rows=n, columns=6, depth=64, a="bf16", b="mxfp4", out_dtype="bf16"),
    "route": lambda n: route.route(tokens=n, experts=20, top_k=4, dtype="fp32"),
    "causal_conv1d": lambda n: causal_conv1d.causal_conv1d(tokens=n, channels=6, taps=4, sequences=1, dtype="bf16"),
    "causal_conv1d_update": lambda n: causal_conv1d.causal_conv1d_update(sequences=n, channels=6, taps=4, dtype="bf16"),
    "attention_residual": lambda n: attention_residual.attention_residual(
        tokens=n, blocks=3, width=12, dtype="bf16", output_norm=True
    ),
    "attention_residual_prepare": lambda n: attention_residual.attention_residual_prepare(
        tokens=n, blocks=3, width=12, points=5, dtype="bf16"
    ),
    "attention_residual_update": lambda n: attention_residual.attention_residual_update(
        tokens=n, width=12, dtype="bf16", output_norm=True
    ),
    "fused_experts": lambda n: fused_experts.fused_experts(
        tokens=n, top_k=2, experts=4, latent=32, width=64, dtype="bf16", weight_dtype="mxfp4", experts_hit=2
    ),
    "permute": lambda n: fused_experts.permute(tokens=n, top_k=2, experts=4, width=32, dtype="bf16"),
    "unpermute": lambda n: fused_experts.unpermute(tokens=n, top_k=2, width=32, dtype="bf16"),
    "latent_write": lambda n: mla.latent_write(tokens=n, width=10, dtype="bf16"),
    "mla_decode": lambda n: mla.mla_decode(seq_lens=[7] * n, heads=2, rank=8, shared_key=2, block_size=4, dtype="bf16"),
    "kda": lambda n: kda.kda(lengths=[16 * n], heads=2, key=4, value=6, dtype="bf16", chunk_size=16),
    "kda_backward": lambda n: kda.kda_backward(lengths=[16 * n], heads=2, key=4, value=6, dtype="bf16", chunk_size=16),
    "kda_decode": lambda n: kda.kda_decode(lengths=[1] * n, heads=2, key=4, value=6, dtype="bf16"),
}


@pytest.mark.parametrize("cost", OF_TOKENS.values(), ids=OF_TOKENS)
@settings(max_examples=20)
@given(st.integers(1, 100), st.integers(1, 100))
def test_tokens_add_up_and_the_weights_are_read_once(cost: Callable[[int], Cost], a: int, b: int) -> None:
    """f(a + b) + f(0's weights) = f(a) + f(b): every count is a constant and a part that is linear in the tokens."""
    fixed = [2 * x - y for x, y in zip(counts(cost(1)), counts(cost(2)), strict=True)]
    together, apart = counts(cost(a + b)), zip(counts(cost(a)), counts(cost(b)), strict=True)
    assert [x + y - f for (x, y), f in zip(apart, fixed, strict=True)] == together
    assert all(f >= 0 for f in fixed)
    assert all(f == 0 for f in fixed[2:]) or cost in (OF_TOKENS["mx_matmul"], OF_TOKENS["fused_experts"])


def counts(cost: Cost) -> list[int]:
    """bytes_in, bytes_out, multiply-adds, vector elements."""
    return [cost.bytes_in, cost.bytes_out, sum(cost.macs.values()), cost.vector_elements]


def test_two_phases_score_a_bank_once() -> None:
    """Over M mixing points the one-phase form reads the bank M times; two phases read it once, and the statistics."""
    shapes = {"tokens": 512, "width": 7168, "dtype": "bf16"}
    one = attention_residual.attention_residual(blocks=8, **shapes)
    prepare = attention_residual.attention_residual_prepare(blocks=8, points=24, **shapes)
    update = attention_residual.attention_residual_update(**shapes)
    bank, row = 8 * 512 * 7168 * 2, 512 * 7168
    assert 24 * one.bytes - (prepare.bytes + 24 * update.bytes) == 23 * bank - 24 * (2 * 4 * 512 * 7170 + 2 * 7168 * 2)
    assert prepare.bytes_out == 24 * 512 * (7168 + 2) * 4
    assert prepare.vector_elements + 24 * update.vector_elements < 24 * one.vector_elements
    assert 24 * one.vector_elements == 24 * 45 * row


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(st.integers(1, 10**12), st.integers(1, 10**12), st.integers(1, 10**12))
def test_a_bound_is_the_slowest_resource(name: str, moved: int, macs: int, elements: int) -> None:
    facts = soc(name)
    cost = Cost(bytes_in=moved, bytes_out=moved, macs={"bf16": macs, "fp32": macs}, vector_elements=elements)
    bound = cost.bound(facts)
    cube = macs * (1 / 4096 + 1 / 1024) / (facts.cube_cores * facts.clock_hz)
    assert bound.seconds == {
        "memory": pytest.approx(2 * moved / facts.gm_bytes_per_second),
        "cube": pytest.approx(cube),
        "vector": pytest.approx(elements / (64 * facts.vector_issue * facts.vector_cores * facts.clock_hz)),
    }
    assert bound.time == max(bound.seconds.values()) == bound.seconds[bound.name]
    faster = cost.bound(facts.with_(gm_bytes_per_second=2 * facts.gm_bytes_per_second))
    assert faster.seconds["memory"] == pytest.approx(bound.seconds["memory"] / 2)
    assert faster.seconds["cube"] == bound.seconds["cube"]


def test_a_bound_of_nothing_is_zero() -> None:
    assert Cost(bytes_in=0, bytes_out=0).bound(soc("a3")).time == 0


def assert_bound(bound: Bound, name: str, **microseconds: float) -> None:
    assert bound.name == name
    for resource, expected in microseconds.items():
        assert bound.seconds[resource] == pytest.approx(expected * US, rel=1e-3), resource


def test_attention_residual_over_eight_blocks() -> None:
    """10 x 2048 x 7168 numbers in bf16, 293.6 MB: 183.5 us at 1.6 TB/s; 45 x 14.68 million vector elements."""
    cost = attention_residual.attention_residual(tokens=2048, blocks=8, width=7168, dtype="bf16")
    assert cost.bytes == 293_601_280 + 2 * 14_336
    assert cost.vector_elements == 660_602_880
    assert_bound(cost.bound(soc("a3")), "memory", memory=183.52, cube=0, vector=116.24)
    assert_bound(cost.bound(soc("950dt")), "memory", memory=73.41, cube=0, vector=43.44)


def test_rms_norm_of_a_prefill_batch() -> None:
    cost = rms_norm.rms_norm(rows=2048, width=7168, dtype="bf16")
    assert_bound(cost.bound(soc("a3")), "memory", memory=36.71, vector=10.33)


def test_a_square_matrix_product_is_bound_by_the_cube() -> None:
    """2048^3 products: 8.59e9 over 4096 x 24 x 1.85e9, and over 16384 x 32 x 1.65e9 in mxfp4."""
    cost = mx.mx_matmul(rows=2048, columns=2048, depth=2048, a="mxfp4", b="mxfp4", out_dtype="bf16")
    assert_bound(cost.bound(soc("950pr")), "cube", cube=9.930, memory=8.028, vector=0)
    cost = mx.mx_matmul(rows=2048, columns=2048, depth=2048, a="bf16", b="mxfp4", out_dtype="bf16")
    assert_bound(cost.bound(soc("a3")), "cube", cube=47.23)


def test_experts_of_all_layers_are_the_checkpoint_s_bytes() -> None:
    """2,722,740,830,208 routed weights (docs/spec.md) in MXFP4: 17 bytes for 32."""
    cost = fused_experts.fused_experts(
        tokens=4096, top_k=16, experts=896, latent=3584, width=3072, dtype="bf16", weight_dtype="mxfp4", experts_hit=896
    )
    rest = 4096 * 3584 * 2 + 4096 * 16 * (4 + 8)
    assert 92 * (cost.bytes_in - rest) == 2_722_740_830_208 * 17 // 32


def test_experts_in_decode_are_bound_by_memory() -> None:
    """64 tokens x 16 of 896: 896 (1 - (1 - 1/56)^64) = 613 experts, 17.55 MB each."""
    cost = fused_experts.fused_experts(
        tokens=64, top_k=16, experts=896, latent=3584, width=3072, dtype="bf16", weight_dtype="mxfp4"
    )
    assert cost.bytes_in == 613 * 17_547_264 + 64 * 3584 * 2 + 1024 * 12
    assert_bound(cost.bound(soc("a3")), "memory", memory=6723.4, cube=185.98)


def test_decode_of_latent_attention_reads_its_cache_once() -> None:
    """131,072 rows of 1,152 bytes: 151 MB; 96 heads of 1,088 products a row."""
    cost = mla.mla_decode(seq_lens=[131_072], heads=96, rank=512, shared_key=64, block_size=128, dtype="bf16")
    assert cost.bytes == 131_072 * 1152 + 96 * (576 + 512) * 2 + 4 * 1024 + 4
    assert_bound(cost.bound(soc("a3")), "memory", memory=94.50, cube=75.28, vector=8.88)


def test_decode_of_kda_moves_its_states() -> None:
    """32 sequences x 96 heads x 64 KiB, read and written: 403 MB."""
    cost = kda.kda_decode(lengths=[1] * 32, heads=96, key=128, value=128, dtype="bf16")
    states = 2 * 32 * 96 * 128 * 128 * 4
    assert states < cost.bytes < 1.01 * states
    assert_bound(cost.bound(soc("a3")), "memory", memory=cost.bytes / 1.6e6)


def test_kda_over_a_long_sequence() -> None:
    """4096 tokens x 8 heads: 1,282 bytes and 65,536 products a token and head, 2.147e9 in all."""
    cost = kda.kda(lengths=[4096], heads=8, key=128, value=128, dtype="bf16")
    states, parameters = 8 * 128 * 128 * 4, 8 * 129 * 4
    assert cost.bytes - states - parameters == 4096 * 8 * 1282
    assert cost.macs == {"bf16": 4096 * 8 * 65_536}
    assert_bound(cost.bound(soc("a3")), "memory", memory=26.58, cube=11.81, vector=16.98)
    backward = kda.kda_backward(lengths=[4096], heads=8, key=128, value=128, dtype="bf16")
    assert backward.macs == {"bf16": 4096 * 8 * (8 * 128 * 128 + 3 * 64 * 128 + (5 * 64 - 1) * 64)}


def test_a_soc_without_the_type_has_no_bound() -> None:
    product = {"rows": 16, "columns": 16, "depth": 64, "a": "mxfp8_e4m3", "b": "mxfp4", "out_dtype": "bf16"}
    with pytest.raises(ValueError, match=r"^soc: the cube cores of a2 \(dav-2201\) do not multiply 'mxfp8'"):
        mx.mx_matmul(**product).bound(soc("a2"))
    assert mx.mx_matmul(**product, multiplied_as="bf16").bound(soc("a2")).time > 0


def test_mxfp8_operands_do_not_become_mxfp4() -> None:
    message = "^cost: operands in mxfp8_e4m3 do not fit a product in mxfp4; ask for mxfp8 or a plain type.$"
    with pytest.raises(ValueError, match=message):
        mx.mx_matmul(rows=1, columns=1, depth=32, a="mxfp8_e4m3", b="mxfp4", out_dtype="bf16", multiplied_as="mxfp4")


@pytest.mark.parametrize(
    ("count", "dtype", "message"),
    [
        (4, "bfloat16", "the type must be one of fp32, fp16, bf16, int32, int64, mxfp8_e4m3, .*, got 'bfloat16'"),
        (-1, "bf16", "the number of elements must not be negative, got -1"),
        (33, "mxfp4", "elements in mxfp4 must fill blocks of 32, got 33"),
    ],
)
def test_what_has_no_size(count: int, dtype: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^cost: {message}.$"):
        nbytes(count, dtype)


@pytest.mark.parametrize("hit", [-1, 5, 7])
def test_experts_that_cannot_be_hit(hit: int) -> None:
    with pytest.raises(ValueError, match=f"^cost: experts_hit must be 0 to 4, the smaller of .*; got {hit}.$"):
        fused_experts.fused_experts(
            tokens=2, top_k=2, experts=6, latent=32, width=32, dtype="bf16", weight_dtype="bf16", experts_hit=hit
        )


def test_fewer_keys_than_queries() -> None:
    message = "^cost: a sequence needs as many keys as queries at least, got 3 and 2.$"
    with pytest.raises(ValueError, match=message):
        mla.mla_prefill(sequences=[(3, 2)], heads=1, nope=1, shared_key=1, rank=1, value=1, dtype="bf16")


def test_operands_are_converted_to_what_is_multiplied() -> None:
    """A cast costs nothing here, a scale one element, a quantization three."""
    found = {(x, y): mx.conversion_elements(x, y) for x in ("fp32", "bf16", "mxfp4") for y in ("bf16", "mxfp8")}
    assert found == {
        ("fp32", "bf16"): 0,
        ("fp32", "mxfp8"): 3,
        ("bf16", "bf16"): 0,
        ("bf16", "mxfp8"): 3,
        ("mxfp4", "bf16"): 1,
        ("mxfp4", "mxfp8"): 0,
    }


def test_the_types_of_products() -> None:
    assert [mac_type(x) for x in ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "bf16", "fp32")] == [
        "mxfp8",
        "mxfp8",
        "mxfp4",
        "bf16",
        "fp32",
    ]


def test_every_operator_has_a_cost() -> None:
    """Each public operator has a function of its name in its folder's cost.py."""
    modules = (
        attention_residual,
        causal_conv1d,
        fused_experts,
        kda,
        mla,
        mx,
        rms_norm,
        route,
        situ_glu,
    )
    operators = {name for name in ops.__all__ if hasattr(torch.ops.ascend_k3, name)}
    assert len(operators) >= 18
    assert not [name for name in operators if not any(hasattr(module, name) for module in modules)]
