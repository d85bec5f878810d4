"""Attention Residuals: released values, the definition in float64, both phases, hard inputs, gradients, refusals."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from ascend_k3.ops.attention_residual import (
    AttentionResidualStats,
    attention_residual,
    attention_residual_prepare,
    attention_residual_update,
    reference,
)
from tests.paths import FIXTURES
from tests.tolerances import BF16_MULTIPLE, FIXTURE_ATOL, FIXTURE_RTOL, RELATIVE_RMS, assert_close_rms

LAYERS = FIXTURES / "layers"
EPS = 1e-5


def fixture_cases(kind: str) -> list[dict]:
    stated = json.loads((LAYERS / "attn_res_op.json").read_text())
    cases = [case for case in stated["cases"] if case["case"].endswith(kind)]
    assert stated["eps"] == EPS and len(cases) == 5
    return cases


def fixture_tensors(name: str) -> dict[str, Tensor]:
    stored = load_file(LAYERS / "attn_res_op.safetensors")
    return {key.removeprefix(name + "."): value for key, value in stored.items() if key.startswith(name + ".")}


def definition(
    blocks: Tensor,
    partial: Tensor | None,
    norm_weight: Tensor,
    query_weight: Tensor,
    output_norm_weight: Tensor | None = None,
) -> Tensor:
    """SPEC's mix in float64, one token and one source at a time."""
    result = torch.zeros(blocks.shape[0], blocks.shape[2], dtype=torch.float64)
    weight = norm_weight.double() * query_weight.double().flatten()
    for token in range(blocks.shape[0]):
        sources = [blocks[token, j].double() for j in range(blocks.shape[1])]
        if partial is not None:
            sources.append(partial[token].double())
        scores = [float((v / math.sqrt(float((v * v).mean()) + EPS) * weight).sum()) for v in sources]
        masses = [math.exp(score - max(scores)) for score in scores]
        for mass, source in zip(masses, sources, strict=True):
            result[token] += mass / sum(masses) * source
        if output_norm_weight is not None:
            row = result[token]
            result[token] = row / math.sqrt(float((row * row).mean()) + EPS) * output_norm_weight.double()
    return result


def inputs(tokens: int, count: int, width: int, dtype: torch.dtype = torch.float32, seed: int = 0):
    """blocks (a slice of a longer bank), partial, norm_weight, query_weight, output_norm_weight."""
    make = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=make, dtype=torch.float64).to(dtype)

    bank = normal(tokens, count + 2, width)
    return bank[:, :count], normal(tokens, width), 1 + normal(width) / 4, normal(width) / 4, 1 + normal(width) / 4


@pytest.mark.parametrize("case", fixture_cases("fp32"), ids=lambda case: case["case"])
def test_released_values_in_float32(case: dict) -> None:
    t = fixture_tensors(case["case"])
    partial = t["prefix"] + t["delta"]
    assert torch.equal(partial, t["prefix_updated"])
    y = attention_residual(t["blocks"], partial, t["norm_w"], t["proj_w"], eps=EPS)
    torch.testing.assert_close(y, t["out"], atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)
    y = attention_residual(
        t["blocks"], partial, t["norm_w"], t["proj_w"], eps=EPS, output_norm_weight=t["out_norm_w"], output_eps=EPS
    )
    torch.testing.assert_close(y, t["out_normed"], atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)
    torch.testing.assert_close(y, t["out_normed_fused"], atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)


@pytest.mark.parametrize("case", fixture_cases("bf16"), ids=lambda case: case["case"])
def test_bfloat16_stays_near_the_exact_value(case: dict) -> None:
    t = fixture_tensors(case["case"])
    partial = t["prefix"] + t["delta"]
    assert torch.equal(partial, t["prefix_updated"])
    y = attention_residual(t["blocks"], partial, t["norm_w"], t["proj_w"], eps=EPS)
    assert y.dtype == torch.bfloat16
    assert float((y.double() - t["out_f64"].double()).abs().max()) <= BF16_MULTIPLE * case["hf_vs_f64"]


@pytest.mark.parametrize("case", fixture_cases("bf16"), ids=lambda case: case["case"])
def test_following_norm_sees_the_mixture_before_it_is_rounded(case: dict) -> None:
    """The stored fused and unfused values differ; ours must be the fused one, up to single roundings."""
    t = fixture_tensors(case["case"])
    arguments = (t["blocks"], t["prefix_updated"], t["norm_w"], t["proj_w"])
    y = attention_residual(*arguments, eps=EPS, output_norm_weight=t["out_norm_w"], output_eps=EPS)
    differing = [(y != t[name]).double().mean().item() for name in ("out_normed_fused", "out_normed")]
    assert differing[0] < 0.02 < 0.1 < differing[1]
    torch.testing.assert_close(y, t["out_normed_fused"], rtol=2**-7, atol=0)


@pytest.mark.parametrize("dtype", RELATIVE_RMS, ids=str)
@pytest.mark.parametrize(
    ("count", "with_partial"), [(0, True), (1, False), (1, True), (8, False), (8, True)], ids=lambda value: f"{value}"
)
def test_matches_the_definition(dtype: torch.dtype, count: int, with_partial: bool) -> None:
    blocks, partial, norm_weight, query_weight, output_norm = inputs(13, count, 48, dtype)
    partial = partial if with_partial else None
    y = attention_residual(blocks, partial, norm_weight, query_weight, eps=EPS)
    assert y.dtype == dtype and y.shape == (13, 48)
    assert_close_rms(y, definition(blocks, partial, norm_weight, query_weight), "y", RELATIVE_RMS[dtype])
    normed = attention_residual(
        blocks, partial, norm_weight, query_weight, eps=EPS, output_norm_weight=output_norm, output_eps=EPS
    )
    expected = definition(blocks, partial, norm_weight, query_weight, output_norm)
    assert_close_rms(normed, expected, "normed y", RELATIVE_RMS[dtype])


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.sampled_from([0, 1, 2, 7, 17, 64, 65]),
    count=st.integers(0, 9),
    width=st.sampled_from([1, 2, 15, 33]),
    with_partial=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_any_shape_matches_the_definition_in_one_and_in_two_phases(
    tokens: int, count: int, width: int, with_partial: bool, seed: int
) -> None:
    blocks, partial, norm_weight, query_weight, _ = inputs(tokens, count, width, torch.float64, seed)
    if not with_partial:
        if count == 0:
            return
        partial = None
    expected = definition(blocks, partial, norm_weight, query_weight)
    y = attention_residual(blocks, partial, norm_weight, query_weight, eps=EPS)
    assert_close_rms(y, expected, "one phase", RELATIVE_RMS[torch.float64])
    if count:
        stats = attention_residual_prepare(blocks, norm_weight[None], query_weight[None], eps=EPS)
        y = attention_residual_update(stats, partial, norm_weight, query_weight, eps=EPS)
        assert_close_rms(y, expected, "two phases", RELATIVE_RMS[torch.float64])


@pytest.mark.parametrize("dtype", RELATIVE_RMS, ids=str)
def test_two_phases_serve_several_mixing_points(dtype: torch.dtype) -> None:
    """One bank, three mixing points, each with its own weights and partial sum, the last with the norm that follows."""
    blocks, *_ = inputs(9, 4, 32, dtype)
    points = [inputs(9, 4, 32, dtype, seed=seed)[1:] for seed in (1, 2, 3)]
    norm_weights, query_weights = torch.stack([p[1] for p in points]), torch.stack([p[2] for p in points])
    stats = attention_residual_prepare(blocks, norm_weights, query_weights[:, None], eps=EPS)
    assert isinstance(stats, AttentionResidualStats)
    inside = torch.float64 if dtype == torch.float64 else torch.float32
    assert [(tuple(item.shape), item.dtype) for item in stats] == [
        ((3, 9), inside),
        ((3, 9), inside),
        ((3, 9, 32), inside),
    ]
    for index, (partial, norm_weight, query_weight, output_norm) in enumerate(points):
        norm = {"output_norm_weight": output_norm, "output_eps": EPS} if index == 2 else {}
        y = attention_residual_update(stats, partial, norm_weight, query_weight, eps=EPS, index=index, **norm)
        expected = definition(blocks, partial, norm_weight, query_weight, norm.get("output_norm_weight"))
        assert y.dtype == dtype
        assert_close_rms(y, expected, f"point {index}", RELATIVE_RMS[dtype])
        alone = attention_residual_update(stats, None, norm_weight, query_weight, eps=EPS, index=index)
        assert alone.dtype == dtype
        assert_close_rms(alone, definition(blocks, None, norm_weight, query_weight), "bank", RELATIVE_RMS[dtype])


def test_without_a_partial_the_update_has_the_dtype_of_the_norm_weight() -> None:
    blocks, _, norm_weight, query_weight, _ = inputs(3, 2, 8)
    stats = attention_residual_prepare(blocks, norm_weight[None], query_weight[None], eps=EPS)
    y = attention_residual_update(stats, None, norm_weight.bfloat16(), query_weight, eps=EPS)
    assert y.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_token_does_not_depend_on_the_others_nor_on_the_slab(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks, partial, norm_weight, query_weight, _ = inputs(37, 3, 40, dtype)
    whole = attention_residual(blocks, partial, norm_weight, query_weight, eps=EPS)
    for cut in (1, 16, 36):
        halves = [
            attention_residual(blocks[part], partial[part], norm_weight, query_weight, eps=EPS)
            for part in (slice(cut), slice(cut, None))
        ]
        assert torch.equal(torch.cat(halves), whole)
    monkeypatch.setattr(reference, "SLAB", 5 * 4 * 40)
    assert torch.equal(attention_residual(blocks, partial, norm_weight, query_weight, eps=EPS), whole)


def test_one_source_is_given_back_and_never_aliased() -> None:
    blocks, partial, norm_weight, query_weight, _ = inputs(5, 0, 16)
    y = attention_residual(blocks, partial, norm_weight, query_weight, eps=EPS)
    assert torch.equal(y, partial) and y.data_ptr() != partial.data_ptr()
    y = attention_residual(partial[:, None], None, norm_weight, query_weight, eps=EPS)
    assert torch.equal(y, partial) and y.data_ptr() != partial.data_ptr()


def test_equal_scores_give_the_mean() -> None:
    blocks, partial, norm_weight, _, _ = inputs(6, 3, 32)
    y = attention_residual(blocks, partial, norm_weight, torch.zeros(32), eps=EPS)
    mean = torch.cat([blocks, partial[:, None]], 1).double().mean(1)
    assert_close_rms(y, mean, "y", RELATIVE_RMS[torch.float32])


@pytest.mark.parametrize("factor", [1e4, -1e4], ids=["scores-1e4", "scores-minus-1e4"])
def test_huge_scores_pick_the_best_source(factor: float) -> None:
    blocks, partial, norm_weight, query_weight, _ = inputs(6, 3, 32)
    query_weight = query_weight * factor
    expected = definition(blocks, partial, norm_weight, query_weight)
    y = attention_residual(blocks, partial, norm_weight, query_weight, eps=EPS)
    assert_close_rms(y, expected, "one phase", RELATIVE_RMS[torch.float32])
    stats = attention_residual_prepare(blocks, norm_weight[None], query_weight[None], eps=EPS)
    y = attention_residual_update(stats, partial, norm_weight, query_weight, eps=EPS)
    assert_close_rms(y, expected, "two phases", RELATIVE_RMS[torch.float32])


def test_sources_of_every_magnitude_and_zero() -> None:
    """1e-20 scores through eps, 1e4 through its direction alone, and a zero source scores 0."""
    blocks, partial, norm_weight, query_weight, _ = inputs(6, 4, 32)
    blocks = blocks * torch.tensor([1e-20, 1.0, 1e4, 0.0]).view(1, 4, 1)
    expected = definition(blocks, partial, norm_weight, query_weight)
    y = attention_residual(blocks, partial, norm_weight, query_weight, eps=EPS)
    assert_close_rms(y, expected, "y", RELATIVE_RMS[torch.float32])
    tiny = attention_residual(blocks[:, :1], None, norm_weight, query_weight, eps=EPS)
    torch.testing.assert_close(tiny, blocks[:, 0])
    assert torch.equal(attention_residual(blocks[:, 3:], None, norm_weight, query_weight, eps=EPS), torch.zeros(6, 32))


def test_poisoned_rows_and_unwritten_memory_change_nothing() -> None:
    blocks, partial, norm_weight, query_weight, _ = inputs(9, 3, 24)
    padding = torch.tensor([0, 4, 8])
    kept = torch.tensor([1, 2, 3, 5, 6, 7])
    clean = attention_residual(blocks, partial, norm_weight, query_weight, eps=EPS)
    bank = torch.cat([blocks, torch.full((9, 1, 24), torch.nan)], 1)  # a row of the bank that is not yet written
    bank[padding] = torch.nan
    partial[padding] = torch.nan
    torch.use_deterministic_algorithms(True)  # torch.empty is then filled with NaN
    try:
        y = attention_residual(bank[:, :3], partial, norm_weight, query_weight, eps=EPS)
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(y[kept], clean[kept]) and bool(y[padding].isnan().all())


def grad_inputs(count: int):
    return [item.requires_grad_() for item in (i.clone() for i in inputs(3, count, 5, torch.float64))]


@pytest.mark.parametrize("count", [0, 2], ids=["no-block", "two-blocks"])
@pytest.mark.parametrize("normed", [False, True], ids=["plain", "normed"])
def test_gradients(count: int, normed: bool) -> None:
    blocks, partial, norm_weight, query_weight, output_norm = grad_inputs(count)

    def one_phase(blocks, partial, norm_weight, query_weight, output_norm):
        norm = {"output_norm_weight": output_norm, "output_eps": EPS} if normed else {}
        return attention_residual(blocks, partial, norm_weight, query_weight, eps=EPS, **norm)

    assert torch.autograd.gradcheck(one_phase, (blocks, partial, norm_weight, query_weight, output_norm))
    if count:
        assert torch.autograd.gradcheck(
            lambda b, n, q, o: one_phase(b, None, n, q, o), (blocks, norm_weight, query_weight, output_norm)
        )


@pytest.mark.parametrize("with_partial", [True, False], ids=["partial", "bank-alone"])
def test_gradients_of_the_two_phases(with_partial: bool) -> None:
    """Through the statistics: the sum over two mixing points that share a bank."""
    blocks, partial, norm_weight, query_weight, output_norm = grad_inputs(3)

    def two_phases(blocks, partial, norm_weight, query_weight, output_norm):
        queries = torch.stack([query_weight, -query_weight])
        stats = attention_residual_prepare(blocks, torch.stack([norm_weight, norm_weight]), queries, eps=EPS)
        given = partial if with_partial else None
        plain = attention_residual_update(stats, given, norm_weight, queries[0], eps=EPS, index=0)
        norm = {"output_norm_weight": output_norm, "output_eps": EPS}
        return plain + attention_residual_update(stats, given, norm_weight, queries[1], eps=EPS, index=1, **norm)

    assert torch.autograd.gradcheck(two_phases, (blocks, partial, norm_weight, query_weight, output_norm))


@pytest.mark.parametrize("count", [0, 2], ids=["no-block", "two-blocks"])
def test_registration_is_sound(count: int) -> None:
    blocks, partial, norm_weight, query_weight, output_norm = [
        i.float().detach().requires_grad_() for i in grad_inputs(count)
    ]
    operators = torch.ops.ascend_k3
    mix = operators.attention_residual.default
    torch.library.opcheck(mix, (blocks, partial, norm_weight, query_weight, EPS, output_norm, EPS))
    torch.library.opcheck(mix, (blocks, partial, norm_weight, query_weight, EPS, None, None))
    if count:
        torch.library.opcheck(mix, (blocks, None, norm_weight, query_weight, EPS, None, None))
        prepare = operators.attention_residual_prepare.default
        torch.library.opcheck(prepare, (blocks, norm_weight[None], query_weight[None], EPS))
        stats = [
            item.detach()[0].clone().requires_grad_()
            for item in prepare(blocks, norm_weight[None], query_weight[None], EPS)
        ]
        update = operators.attention_residual_update.default
        torch.library.opcheck(update, (*stats, partial, norm_weight, query_weight, EPS, output_norm, EPS))
        torch.library.opcheck(update, (*stats, None, norm_weight.detach(), query_weight.detach(), EPS, None, None))


def test_compiles_and_has_shapes_on_meta() -> None:
    blocks, partial, norm_weight, query_weight, output_norm = inputs(4, 2, 8, torch.bfloat16)

    def both(blocks, partial, norm_weight, query_weight, output_norm):
        norm = {"output_norm_weight": output_norm, "output_eps": EPS}
        one = attention_residual(blocks, partial, norm_weight, query_weight, eps=EPS, **norm)
        stats = attention_residual_prepare(blocks, norm_weight[None], query_weight[None], eps=EPS)
        return one, attention_residual_update(stats, partial, norm_weight, query_weight, eps=EPS, **norm)

    arguments = (blocks, partial, norm_weight, query_weight, output_norm)
    compiled = torch.compile(both, backend="aot_eager", fullgraph=True)(*arguments)
    on_meta = both(*[item.to("meta") for item in arguments])
    for found, meta, expected in zip(compiled, on_meta, both(*arguments), strict=True):
        assert torch.equal(found, expected)
        assert (meta.shape, meta.dtype) == (expected.shape, expected.dtype)


ONE_PHASE_REFUSALS = {
    "blocks-dtype": (
        {"blocks": torch.zeros(3, 2, 8, dtype=torch.int64)},
        "blocks must be of dtype float32, .* got int64",
    ),
    "blocks-shape": ({"blocks": torch.zeros(3, 8)}, r"blocks must have the shape \[T, NB, D\], got \[3, 8\]"),
    "partial-shape": ({"partial": torch.zeros(2, 8)}, r"partial must have the shape \[3, 8\], got \[2, 8\]"),
    "partial-dtype": ({"partial": torch.zeros(3, 8).bfloat16()}, "partial must be of dtype float32, got bfloat16"),
    "norm-shape": ({"norm_weight": torch.zeros(7)}, r"norm_weight must have the shape \[8\], got \[7\]"),
    "norm-dtype": ({"norm_weight": torch.zeros(8, dtype=torch.bool)}, "norm_weight must be of dtype .* got bool"),
    "query-shape": ({"query_weight": torch.zeros(9)}, r"query_weight must have the shape \[8\], got \[9\]"),
    "query-rows": ({"query_weight": torch.zeros(2, 8)}, r"query_weight must have the shape \[1, 8\], got \[2, 8\]"),
    "query-dtype": ({"query_weight": torch.zeros(8, dtype=torch.int32)}, "query_weight must be of dtype .* got int32"),
    "eps": ({"eps": -1e-5}, "eps must not be negative, got -1e-05"),
    "eps-nan": ({"eps": math.nan}, "eps must not be negative, got nan"),
    "norm-without-eps": ({"output_norm_weight": torch.zeros(8)}, "belong together; only output_norm_weight was given"),
    "eps-without-norm": ({"output_eps": 1e-5}, "belong together; only output_eps was given"),
    "output-norm-shape": (
        {"output_norm_weight": torch.zeros(4), "output_eps": 1e-5},
        r"output_norm_weight must have the shape \[8\], got \[4\]",
    ),
    "output-norm-dtype": (
        {"output_norm_weight": torch.zeros(8, dtype=torch.int8), "output_eps": 1e-5},
        "output_norm_weight must be of dtype .* got int8",
    ),
    "output-eps": (
        {"output_norm_weight": torch.zeros(8), "output_eps": -1.0},
        "output_eps must not be negative, got -1.0",
    ),
    "nothing": (
        {"blocks": torch.zeros(3, 0, 8), "partial": None},
        "nothing to mix; give at least one block or a partial sum",
    ),
    "device": ({"partial": torch.zeros(3, 8, device="meta")}, "partial is on meta and blocks on cpu"),
}


@pytest.mark.parametrize(("change", "message"), ONE_PHASE_REFUSALS.values(), ids=ONE_PHASE_REFUSALS)
def test_refusals(change: dict, message: str) -> None:
    blocks, partial, norm_weight, query_weight, _ = inputs(3, 2, 8)
    arguments = {
        "blocks": blocks,
        "partial": partial,
        "norm_weight": norm_weight,
        "query_weight": query_weight,
        "eps": EPS,
    }
    attention_residual(**arguments)
    with pytest.raises(ValueError, match=f"^attention_residual: .*{message}"):
        attention_residual(**{**arguments, **change})


PREPARE_REFUSALS = {
    "blocks-dtype": ({"blocks": torch.zeros(3, 2, 8, dtype=torch.int64)}, "blocks must be of dtype .* got int64"),
    "blocks-shape": ({"blocks": torch.zeros(3, 8)}, r"blocks must have the shape \[T, NB, D\], got \[3, 8\]"),
    "empty-bank": ({"blocks": torch.zeros(3, 0, 8)}, "blocks must hold at least one block.*gives the partial sum back"),
    "norm-shape": ({"norm_weights": torch.zeros(8)}, r"norm_weights must have the shape \[M, 8\], got \[8\]"),
    "norm-dtype": ({"norm_weights": torch.zeros(2, 8, dtype=torch.int8)}, "norm_weights must be of dtype .* got int8"),
    "query-shape": ({"query_weights": torch.zeros(3, 8)}, r"query_weights must have the shape \[2, 8\], got \[3, 8\]"),
    "query-rows": (
        {"query_weights": torch.zeros(2, 2, 8)},
        r"query_weights must have the shape \[2, 1, 8\], got \[2, 2, 8\]",
    ),
    "query-dtype": (
        {"query_weights": torch.zeros(2, 8, dtype=torch.int8)},
        "query_weights must be of dtype .* got int8",
    ),
    "no-points": (
        {"norm_weights": torch.zeros(0, 8), "query_weights": torch.zeros(0, 8)},
        r"norm_weights must have at least one row, got \[0, 8\]",
    ),
    "eps": ({"eps": -1.0}, "eps must not be negative, got -1.0"),
    "device": ({"query_weights": torch.zeros(2, 8, device="meta")}, "query_weights is on meta and blocks on cpu"),
}


@pytest.mark.parametrize(("change", "message"), PREPARE_REFUSALS.values(), ids=PREPARE_REFUSALS)
def test_refusals_of_prepare(change: dict, message: str) -> None:
    arguments = {
        "blocks": torch.ones(3, 2, 8),
        "norm_weights": torch.ones(2, 8),
        "query_weights": torch.ones(2, 8),
        "eps": EPS,
    }
    attention_residual_prepare(**arguments)
    with pytest.raises(ValueError, match=f"^attention_residual_prepare: .*{message}"):
        attention_residual_prepare(**{**arguments, **change})


def stats_with(**change: Tensor) -> AttentionResidualStats:
    whole = attention_residual_prepare(torch.ones(3, 2, 8), torch.ones(2, 8), torch.ones(2, 8), eps=EPS)
    return whole._replace(**change)


UPDATE_REFUSALS = {
    "weighted-shape": (
        {"stats": stats_with(weighted=torch.ones(3, 8))},
        r"stats.weighted must have the shape \[M, T, D\], got \[3, 8\]",
    ),
    "weighted-dtype": (
        {"stats": stats_with(weighted=torch.ones(2, 3, 8).half())},
        "stats.weighted must be of dtype float32, float64, got float16",
    ),
    "maximum-shape": (
        {"stats": stats_with(maximum=torch.ones(2, 4))},
        r"stats.maximum must have the shape \[2, 3\], got \[2, 4\]",
    ),
    "normalizer-shape": (
        {"stats": stats_with(normalizer=torch.ones(3))},
        r"stats.normalizer must have the shape \[2, 3\], got \[3\]",
    ),
    "no-index": ({"index": None}, "index must name one of the 2 mixing points of stats, from 0 to 1; it was left out"),
    "index": ({"index": 2}, "index must be from 0 to 1, the last mixing point of stats, got 2"),
    "index-negative": ({"index": -1}, "index must be from 0 to 1, the last mixing point of stats, got -1"),
    "partial-shape": ({"partial": torch.ones(4, 8)}, r"partial must have the shape \[3, 8\], got \[4, 8\]"),
    "partial-dtype": ({"partial": torch.ones(3, 8, dtype=torch.int64)}, "partial must be of dtype .* got int64"),
    "norm-shape": ({"norm_weight": torch.ones(4)}, r"norm_weight must have the shape \[8\], got \[4\]"),
    "query-shape": ({"query_weight": torch.ones(4)}, r"query_weight must have the shape \[8\], got \[4\]"),
    "eps": ({"eps": -1.0}, "eps must not be negative, got -1.0"),
    "norm-without-eps": ({"output_norm_weight": torch.ones(8)}, "belong together; only output_norm_weight was given"),
    "device": ({"partial": torch.ones(3, 8, device="meta")}, "partial is on meta and weighted on cpu"),
}


@pytest.mark.parametrize(("change", "message"), UPDATE_REFUSALS.values(), ids=UPDATE_REFUSALS)
def test_refusals_of_update(change: dict, message: str) -> None:
    arguments = {
        "stats": stats_with(),
        "partial": torch.ones(3, 8),
        "norm_weight": torch.ones(8),
        "query_weight": torch.ones(1, 8),
        "eps": EPS,
        "index": 1,
    }
    attention_residual_update(**arguments)
    with pytest.raises(ValueError, match=f"^attention_residual_update: .*{message}"):
        attention_residual_update(**{**arguments, **change})
