"""Latent attention: the definition in float64, pieces, pages, hard inputs, gradients, refusals."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ascend_k3.ops.mla import latent_write, mla_decode, mla_prefill, reference
from tests.ops.mla_oracle import (
    HEADS,
    NAMES,
    NOPE,
    RANK,
    SCALE,
    SHARED,
    VALUE,
    absorbed,
    definition,
    inputs,
    offsets,
    paged,
)
from tests.tolerances import RELATIVE_RMS, assert_close_rms

LENGTHS = [0, 1, 2, 7, 15, 16, 17, 63, 64, 65]


def prefill(t: dict, lengths_q: list[int], lengths_kv: list[int], scale: float = SCALE) -> Tensor:
    return mla_prefill(
        t["q"],
        t["kv_latent"],
        t["k_pe"],
        t["w_uk"],
        t["w_uv"],
        offsets(lengths_q),
        offsets(lengths_kv),
        scale=scale,
        gate=t.get("gate"),
    )


# --- prefill ---


@pytest.mark.parametrize("dtype", RELATIVE_RMS, ids=str)
@pytest.mark.parametrize("gated", [True, False], ids=["gated", "ungated"])
def test_prefill_matches_the_definition(dtype: torch.dtype, gated: bool) -> None:
    lengths_q, lengths_kv = [5, 0, 1, 9], [5, 3, 8, 12]
    t = inputs(15, 28, dtype)
    if not gated:
        t["gate"] = None
    o = prefill(t, lengths_q, lengths_kv)
    assert o.dtype == dtype
    assert_close_rms(o, definition(t, lengths_q, lengths_kv), "o", RELATIVE_RMS[dtype])


@settings(max_examples=30, deadline=None)
@given(
    sequences=st.lists(st.tuples(st.sampled_from(LENGTHS), st.integers(0, 20)), max_size=3),
    scores=st.sampled_from([64, 1024, reference.MAX_SCORES]),
    seed=st.integers(0, 2**16),
)
def test_prefill_of_any_lengths_and_tiling(sequences: list[tuple[int, int]], scores: int, seed: int) -> None:
    """Empty sequences, empty batches, cached prefixes, and tiles so small that heads and queries are both split."""
    lengths_q, lengths_kv = [q for q, _ in sequences], [q + prefix for q, prefix in sequences]
    t = inputs(sum(lengths_q), sum(lengths_kv), torch.float64, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "MAX_SCORES", scores)
        patch.setattr(reference, "MIN_QUERIES", 4)
        patch.setattr(reference, "MAX_QUERIES", 32)
        o = prefill(t, lengths_q, lengths_kv)
    assert_close_rms(o, definition(t, lengths_q, lengths_kv), "o", RELATIVE_RMS[torch.float64])


@pytest.mark.parametrize("kind", [torch.int32, torch.int64], ids=str)
def test_cumulative_lengths_of_both_integer_types(kind: torch.dtype) -> None:
    t = inputs(6, 9)
    gate = t.pop("gate")
    cu_q, cu_kv = offsets([2, 4], kind), offsets([4, 5], kind)
    o = mla_prefill(**t, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv, scale=SCALE, gate=gate)
    assert torch.equal(o, prefill({**t, "gate": gate}, [2, 4], [4, 5]))


@pytest.mark.parametrize(
    "cuts", [[1], [16], [64], [1, 2, 33], list(range(1, 65))], ids=lambda cuts: f"{len(cuts)}-cuts"
)
def test_prefill_in_pieces_equals_one_shot(cuts: list[int]) -> None:
    t = inputs(65, 65)
    whole = prefill(t, [65], [65])
    pieces = []
    for start, stop in zip([0, *cuts], [*cuts, 65], strict=True):
        piece = {**t, "q": t["q"][start:stop], "gate": t["gate"][start:stop]}
        piece.update(kv_latent=t["kv_latent"][:stop], k_pe=t["k_pe"][:stop])
        pieces.append(prefill(piece, [stop - start], [stop]))
    assert_close_rms(torch.cat(pieces), whole, "o", RELATIVE_RMS[torch.float32])


def test_a_sequence_in_a_packed_batch_equals_it_alone_even_beside_nan() -> None:
    """Poisoned neighbours and unwritten memory leave a sequence bit for bit as it is alone."""
    t = inputs(24, 36)
    middle_q, middle_kv = slice(7, 17), slice(11, 25)
    alone = {**t, **{name: t[name][middle_q] for name in ("q", "gate")}}
    alone.update({name: t[name][middle_kv] for name in ("kv_latent", "k_pe")})
    expected = prefill(alone, [10], [14])
    for name, kept in (("q", middle_q), ("gate", middle_q), ("kv_latent", middle_kv), ("k_pe", middle_kv)):
        poisoned = torch.full_like(t[name], torch.nan)
        poisoned[kept] = t[name][kept]
        t[name] = poisoned
    torch.use_deterministic_algorithms(True)  # torch.empty is then filled with NaN
    try:
        o = prefill(t, [7, 10, 7], [11, 14, 11])
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(o[middle_q], expected)
    assert bool(o[:7].isnan().all()) and bool(o[17:].isnan().all())


@pytest.mark.parametrize("size", [1e4, -1e4], ids=["logits-1e4", "logits-minus-1e4"])
def test_huge_logits(size: float) -> None:
    """A key part shared by all keys shifts every score by 1e4 and changes nothing; differences of 1e4 pick one key."""
    t = inputs(17, 17)
    plain = prefill(t, [17], [17])
    t["q"][..., NOPE] = 1
    t["k_pe"][:, 0] = 0
    unshifted = prefill(t, [17], [17])
    t["k_pe"][:, 0] = size / SCALE
    shifted = prefill(t, [17], [17])
    assert bool((unshifted != plain).any())
    unit = (
        abs(size) * torch.finfo(torch.float32).eps
    )  # of a score near `size`, and so of the logarithm of a probability
    torch.testing.assert_close(shifted, unshifted, atol=2 * unit, rtol=0)
    t["k_pe"][:, 0] = size / SCALE * torch.arange(17)
    picked = prefill(t, [17], [17])
    best = torch.arange(17) if size > 0 else torch.zeros(17, dtype=torch.long)
    values = torch.einsum("lr,hvr->lhv", t["kv_latent"][best], t["w_uv"])
    assert_close_rms(picked, values * torch.sigmoid(t["gate"]), "o", RELATIVE_RMS[torch.float32])


def test_equal_scores_give_the_mean_of_what_is_visible() -> None:
    t = inputs(9, 13)
    t.update(q=torch.zeros_like(t["q"]), gate=None)
    values = torch.einsum("lr,hvr->lhv", t["kv_latent"], t["w_uv"]).double()
    means = values.cumsum(0) / torch.arange(1, 14).view(-1, 1, 1)
    assert_close_rms(prefill(t, [9], [13]), means[4:], "o", RELATIVE_RMS[torch.float32])


@pytest.mark.parametrize("open_or_shut", [1e4, -1e4], ids=["open", "shut"])
def test_a_saturated_gate(open_or_shut: float) -> None:
    t = inputs(5, 5)
    ungated = prefill({**t, "gate": None}, [5], [5])
    gated = prefill({**t, "gate": torch.full_like(t["gate"], open_or_shut)}, [5], [5])
    assert torch.equal(gated, ungated if open_or_shut > 0 else torch.zeros_like(ungated))


class LargestTensor(TorchDispatchMode):
    """Remembers the number of elements of the largest tensor that any operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = function(*args, **(kwargs or {}))
        for item in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(item, Tensor):
                self.elements = max(self.elements, item.numel())
        return result


def test_memory_of_prefill_and_its_gradient_is_not_quadratic(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = 2048
    monkeypatch.setattr(reference, "MAX_SCORES", tokens * tokens // 16)
    t = inputs(tokens, tokens, heads=4)
    cu = offsets([tokens])
    arguments = (*[t[name] for name in NAMES[:-1]], cu, cu, SCALE, t["gate"])
    with LargestTensor() as seen:
        o = reference.mla_prefill(*arguments)
        reference.mla_prefill_backward([torch.ones_like(o)], [True] * 6, *arguments)
    assert t["q"].numel() < seen.elements <= reference.MAX_SCORES


def test_prefill_of_8192_tokens() -> None:
    """The last query of a long prefill against the definition."""
    t = inputs(8192, 8192, heads=4)
    o = prefill(t, [8192], [8192])
    last = {**t, "q": t["q"][-1:], "gate": t["gate"][-1:]}
    assert_close_rms(o[-1:], definition(last, [1], [8192]), "o", RELATIVE_RMS[torch.float32])


# --- gradient of prefill ---


@pytest.mark.parametrize("gated", [True, False], ids=["gated", "ungated"])
@pytest.mark.parametrize("scores", [8, reference.MAX_SCORES], ids=["split-heads-and-queries", "one-tile"])
def test_gradient(gated: bool, scores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "MAX_SCORES", scores)
    monkeypatch.setattr(reference, "MIN_QUERIES", 1)
    t = {name: tensor.requires_grad_() for name, tensor in inputs(4, 6, torch.float64, heads=2).items()}
    names = NAMES if gated else NAMES[:-1]

    def run(*tensors: Tensor) -> Tensor:
        return prefill(dict(zip(names, tensors, strict=True)), [3, 0, 1], [3, 1, 2])

    assert torch.autograd.gradcheck(run, [t[name] for name in names], fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradient_matches_that_of_the_definition(dtype: torch.dtype) -> None:
    lengths_q, lengths_kv = [65, 0, 17], [65, 2, 40]
    t = {name: tensor.requires_grad_() for name, tensor in inputs(82, 107, dtype).items()}
    exact = {name: tensor.detach().double().requires_grad_() for name, tensor in t.items()}
    d_o = torch.randn(82, HEADS, VALUE, generator=torch.Generator().manual_seed(3)).to(dtype)
    found = torch.autograd.grad(prefill(t, lengths_q, lengths_kv), [t[name] for name in NAMES], d_o)
    expected = torch.autograd.grad(definition(exact, lengths_q, lengths_kv), [exact[n] for n in NAMES], d_o.double())
    for name, value, wanted in zip(NAMES, found, expected, strict=True):
        assert value.dtype == dtype
        assert_close_rms(value, wanted, f"gradient of {name}", RELATIVE_RMS[dtype])


def test_only_the_gradients_asked_for_are_returned() -> None:
    t = inputs(5, 5)
    t["w_uv"].requires_grad_()
    prefill(t, [5], [5]).sum().backward()
    assert t["w_uv"].grad is not None and all(t[name].grad is None for name in NAMES if name != "w_uv")


# --- decode ---


@pytest.mark.parametrize("dtype", RELATIVE_RMS, ids=str)
@pytest.mark.parametrize("block_size", [1, 3, 16, 64])
def test_decode_equals_the_last_row_of_prefill(dtype: torch.dtype, block_size: int) -> None:
    """Absorbed queries against pages, with poison behind every length, in spare blocks and behind the block table."""
    lengths = [1, 17, 0, 64, 5]
    t = inputs(len(lengths), sum(lengths), torch.float64)
    rows = torch.cat([t["kv_latent"], t["k_pe"]], -1).to(dtype)
    query = absorbed(t).to(dtype)
    pool, table, seq_lens = paged(list(rows.split(lengths)), block_size)
    o = mla_decode(query, pool, table, seq_lens, scale=SCALE, rank=RANK)
    assert o.dtype == dtype and o.shape == (5, HEADS, RANK)
    assert torch.equal(o[2], torch.zeros(HEADS, RANK, dtype=dtype))
    # The definition with the rounded absorbed query: identity in place of w_uk and w_uv.
    identity = torch.eye(RANK).expand(HEADS, -1, -1)
    exact = {"q": query, "kv_latent": rows[:, :RANK], "k_pe": rows[:, RANK:], "w_uk": identity, "w_uv": identity}
    kept = [0, 1, 3, 4]
    exact["q"] = query[kept]
    expected = definition(exact, [1] * 4, [lengths[i] for i in kept])
    assert_close_rms(o[kept], expected, "o", RELATIVE_RMS[dtype])
    if dtype == torch.float64:
        last = prefill({**t, "q": t["q"][kept], "gate": None}, [1] * 4, [lengths[i] for i in kept])
        values = torch.einsum("nhr,hvr->nhv", o[kept], t["w_uv"])
        assert_close_rms(values, last, "values", RELATIVE_RMS[dtype])


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.sampled_from(LENGTHS), min_size=1, max_size=4),
    block_size=st.integers(1, 20),
    tile=st.sampled_from([1, 8, 32, reference.DECODE_TILE]),
    seed=st.integers(0, 2**16),
)
def test_decode_of_any_lengths_pages_and_tiles(lengths: list[int], block_size: int, tile: int, seed: int) -> None:
    t = inputs(len(lengths), sum(lengths), torch.float64, seed=seed)
    rows = torch.cat([t["kv_latent"], t["k_pe"]], -1)
    pool, table, seq_lens = paged(list(rows.split(lengths)), block_size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "DECODE_TILE", tile)
        o = mla_decode(absorbed(t), pool, table, seq_lens, scale=SCALE, rank=RANK)
    first = 0
    for index, length in enumerate(lengths):
        if length == 0:
            assert torch.equal(o[index], torch.zeros_like(o[index]))
            continue
        one = {**t, "q": t["q"][index : index + 1], "gate": None}
        one.update({name: t[name][first : first + length] for name in ("kv_latent", "k_pe")})
        values = torch.einsum("hr,hvr->hv", o[index], t["w_uv"])
        assert_close_rms(values, definition(one, [1], [length])[0], "values", RELATIVE_RMS[torch.float64])
        first += length


def test_decode_over_several_full_tiles_with_huge_logits() -> None:
    """The running maximum rises in later tiles for one sequence and falls for the other."""
    length = 3 * reference.DECODE_TILE + 5
    rows = torch.randn(2, length, RANK + SHARED, generator=torch.Generator().manual_seed(0))
    rows[0, :, RANK] = torch.linspace(-1e4, 1e4, length)
    rows[1, :, RANK] = torch.linspace(1e4, -1e4, length)
    query = torch.zeros(2, HEADS, RANK + SHARED)
    query[..., RANK] = 1
    pool, table, seq_lens = paged(list(rows), 128)
    o = mla_decode(query, pool, table, seq_lens, scale=1.0, rank=RANK)
    mass = torch.softmax(rows[..., RANK].double(), 1)
    expected = torch.einsum("nl,nlr->nr", mass, rows[..., :RANK].double())[:, None].expand(-1, HEADS, -1)
    assert_close_rms(o, expected, "o", RELATIVE_RMS[torch.float32])
    equal = mla_decode(torch.zeros_like(query), pool, table, seq_lens, scale=1.0, rank=RANK)
    mean = rows[..., :RANK].double().mean(1)[:, None].expand(-1, HEADS, -1)
    assert_close_rms(equal, mean, "mean", RELATIVE_RMS[torch.float32])


def test_poison_in_the_pool_changes_no_bit() -> None:
    lengths = [5, 0, 18]
    t = inputs(3, 23)
    rows = torch.cat([t["kv_latent"], t["k_pe"]], -1)
    clean_pool, table, seq_lens = paged(list(rows.split(lengths)), 4, poison=0.0)
    clean = mla_decode(absorbed(t), clean_pool, table.clamp(0, 1), seq_lens.clamp(max=0), scale=SCALE, rank=RANK)
    assert torch.equal(clean, torch.zeros_like(clean))
    clean = mla_decode(absorbed(t), clean_pool, table, seq_lens, scale=SCALE, rank=RANK)
    for poison in (math.nan, math.inf):
        pool, table, seq_lens = paged(list(rows.split(lengths)), 4, poison=poison)
        assert torch.equal(mla_decode(absorbed(t), pool, table, seq_lens, scale=SCALE, rank=RANK), clean)


def test_rank_of_the_released_row_is_known() -> None:
    make = torch.Generator().manual_seed(0)
    pool, query = torch.randn(2, 4, 576, generator=make), torch.randn(1, 2, 576, generator=make)
    table, seq_lens = torch.tensor([[1, 0]], dtype=torch.int32), torch.tensor([7])
    o = mla_decode(query, pool, table, seq_lens, scale=0.1)
    assert o.shape == (1, 2, 512)
    assert torch.equal(o, mla_decode(query, pool, table, seq_lens, scale=0.1, rank=512))


def test_decode_of_no_sequences() -> None:
    o = mla_decode(
        torch.zeros(0, HEADS, 14),
        torch.zeros(2, 4, 14),
        torch.zeros(0, 3, dtype=torch.int32),
        torch.zeros(0).int(),
        scale=1.0,
        rank=RANK,
    )
    assert o.shape == (0, HEADS, RANK)


# --- the pool ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", [torch.int32, torch.int64], ids=str)
def test_rows_land_in_their_slots_and_nowhere_else(dtype: torch.dtype, kind: torch.dtype) -> None:
    """A pool that is a strided view; padding rows hold NaN and are not written."""
    backing = torch.zeros(3, 2, 4, 5, dtype=dtype)
    pool = backing[:, 1]
    rows = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    rows[1] = rows[4] = torch.nan
    latent_write(pool, rows, torch.tensor([11, -1, 0, 6, -1], dtype=kind))
    expected = torch.zeros(12, 5, dtype=dtype)
    for slot, row in ((11, 0), (0, 2), (6, 3)):
        expected[slot] = rows[row].to(dtype)
    assert torch.equal(pool.reshape(12, 5), expected)
    assert torch.equal(backing[:, 0], torch.zeros(3, 4, 5, dtype=dtype))


def test_writing_nothing() -> None:
    pool = torch.ones(2, 3, 4)
    latent_write(pool, torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))
    latent_write(pool, torch.zeros(2, 4), torch.tensor([-1, -1]))
    assert torch.equal(pool, torch.ones(2, 3, 4))


def test_decoding_has_no_gradient_and_leaves_no_graph_in_the_pool() -> None:
    rows = torch.ones(2, RANK + SHARED, requires_grad=True)
    pool, query = torch.zeros(1, 4, RANK + SHARED), torch.ones(1, HEADS, RANK + SHARED, requires_grad=True)
    latent_write(pool, rows, torch.tensor([0, 1]))
    assert not pool.requires_grad and torch.equal(pool[0, :2], rows)
    o = mla_decode(query, pool, torch.tensor([[0]]), torch.tensor([2]), scale=SCALE, rank=RANK)
    with pytest.raises(RuntimeError, match="mla_decode: it has no gradient; attend with mla_prefill to train"):
        o.sum().backward()


# --- registration ---


def test_registration_is_sound() -> None:
    t = {name: tensor.requires_grad_() for name, tensor in inputs(5, 8).items()}
    tensors = [t[name] for name in NAMES[:-1]]
    cu_q, cu_kv = offsets([3, 2]), offsets([4, 4], torch.int32)
    operators = torch.ops.ascend_k3
    for gate in (t["gate"], None):
        torch.library.opcheck(operators.mla_prefill.default, (*tensors, cu_q, cu_kv, SCALE, gate))
    pool, table, seq_lens = paged([torch.ones(5, RANK + SHARED), torch.ones(2, RANK + SHARED)], 4, poison=0.0)
    query = torch.ones(2, HEADS, RANK + SHARED)
    torch.library.opcheck(operators.mla_decode.default, (query, pool, table, seq_lens, SCALE, RANK))
    torch.library.opcheck(
        operators.latent_write.default, (pool, torch.ones(3, RANK + SHARED), torch.tensor([1, -1, 0]))
    )


def test_compiles_and_has_shapes_on_meta() -> None:
    def step(t: dict, cu_q: Tensor, cu_kv: Tensor, pool: Tensor, rows: Tensor, slots: Tensor, query, table, lengths):
        latent_write(pool, rows, slots)
        o = mla_prefill(**t, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv, scale=SCALE)
        return o, mla_decode(query, pool, table, lengths, scale=SCALE, rank=RANK)

    t = inputs(5, 8)
    pool, table, lengths = paged([torch.ones(5, RANK + SHARED), torch.ones(2, RANK + SHARED)], 4, poison=0.0)
    rows, slots = torch.randn(2, RANK + SHARED), torch.tensor([int(table[0, 0]) * 4 + 1, -1])
    rest = (rows, slots, absorbed(inputs(2, 2)), table, lengths)
    cu = (offsets([3, 2]), offsets([4, 4]))
    eager_pool, compiled_pool = pool.clone(), pool.clone()
    expected = step(t, *cu, eager_pool, *rest)
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)(t, *cu, compiled_pool, *rest)
    assert torch.equal(compiled_pool, eager_pool) and not torch.equal(eager_pool, pool)
    on_meta = step({k: v.to("meta") for k, v in t.items()}, *[v.to("meta") for v in (*cu, pool, *rest)])
    for found, meta, wanted in zip(compiled, on_meta, expected, strict=True):
        assert torch.equal(found, wanted)
        assert (meta.shape, meta.dtype) == (wanted.shape, wanted.dtype)
