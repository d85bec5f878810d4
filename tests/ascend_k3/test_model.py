"""The whole model against the independent implementation, and against itself in every way of feeding tokens."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ascend_k3 import K3Config, K3ForConditionalGeneration
from ascend_k3.layout import count_activated_parameters, count_parameters, count_stored_elements
from tests.ascend_k3.checkpoints import expected, tiny
from tests.paths import FIXTURES
from tests.tolerances import BF16_MULTIPLE, FIXTURE_ATOL, FIXTURE_RTOL, KERNEL_LOGITS_ATOL, LOGITS_ATOL, SPLIT_ATOL

BATCHES = ("ckpt_bf16", "ckpt_mxfp4")


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("experts", ["keep", torch.float32], ids=str)
def test_a_padded_batch_gives_the_fixture_logits(name: str, experts) -> None:
    x = expected(name)
    logits = tiny(name, experts=experts)(x["batch_input_ids"], x["batch_attention_mask"]).logits
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, x["batch_logits"], atol=LOGITS_ATOL, rtol=0)
    assert not logits[x["batch_attention_mask"] == 0].any()


def test_the_kernel_sized_checkpoint_gives_the_fixture_logits() -> None:
    x = expected("ckpt_kernel")
    logits = tiny("ckpt_kernel")(x["input_ids"][None]).logits[0]
    torch.testing.assert_close(logits, x["logits"], atol=KERNEL_LOGITS_ATOL, rtol=0)


@pytest.mark.parametrize("name", BATCHES)
def test_bf16_is_as_near_to_exact_as_the_released_code(name: str) -> None:
    x, model = expected(name), tiny(name, dtype=torch.bfloat16)
    facts = json.loads((FIXTURES / f"{name}_expected.json").read_text())
    logits = model(x["batch_input_ids"], x["batch_attention_mask"]).logits
    for row, bound in enumerate(facts["hf_bf16_vs_f64_max"]):
        real = x["batch_attention_mask"][row].bool()
        error = (logits[row, real] - x["batch_logits"][row, real]).abs().max()
        assert error <= BF16_MULTIPLE * bound, f"row {row}: {error:.3f}"


def test_the_prefix_after_every_layer_equals_the_fixture() -> None:
    x, model = expected("ckpt_bf16"), tiny("ckpt_bf16")
    row = x["batch_input_ids"][1][x["batch_attention_mask"][1] == 1]
    prefixes: list[Tensor] = []
    hooks = [
        layer.register_forward_hook(lambda _, __, residual: prefixes.append(residual.prefix))
        for layer in model.language_model.model.layers
    ]
    try:
        model(row[None])
    finally:
        for hook in hooks:
            hook.remove()
    wanted = x["row1_layer_prefix_sum"]
    assert len(prefixes) == len(wanted)
    for layer, (found, want) in enumerate(zip(prefixes, wanted, strict=True)):
        torch.testing.assert_close(
            found, want[-len(row) :], atol=FIXTURE_ATOL * 10, rtol=FIXTURE_RTOL, msg=f"layer {layer}"
        )


# --- every way of feeding the same tokens --------------------


def random_tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 140, shape, generator=torch.Generator().manual_seed(seed))


def same(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=SPLIT_ATOL, rtol=0)


@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_padding_is_inert_whatever_it_holds(side: str) -> None:
    model, tokens = tiny("ckpt_mxfp4"), random_tokens(2, 30)
    mask = torch.ones_like(tokens)
    if side in ("left", "both"):
        mask[0, :9] = 0
    if side in ("right", "both"):
        mask[0, 22:] = 0
    logits = model(tokens, mask).logits
    other = torch.where(mask == 0, (tokens + 17) % 140, tokens)
    assert torch.equal(model(other, mask).logits, logits)
    alone = model(tokens[:1, mask[0].bool()]).logits
    same(logits[0, mask[0].bool()], alone[0])
    same(logits[1], model(tokens[1:]).logits[0])


def test_packed_sequences_equal_each_alone() -> None:
    model, tokens = tiny("ckpt_mxfp4"), random_tokens(1, 40)
    offsets = [0, 1, 1, 18, 40]
    logits = model(tokens, cu_seqlens=torch.tensor(offsets)).logits
    for begin, end in zip(offsets, offsets[1:], strict=False):
        same(logits[:, begin:end], model(tokens[:, begin:end]).logits)


@settings(max_examples=8)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_prefill_in_pieces_of_any_size_equals_one_shot(sizes: list[int]) -> None:
    model, tokens = tiny("ckpt_mxfp4"), random_tokens(2, sum(sizes))
    whole = model(tokens).logits
    cache = model.new_cache(max_sequences=3, max_tokens=128)
    pieces = [model(piece, cache=cache, cache_slots=[2, 0]).logits for piece in tokens.split(sizes, dim=1)]
    same(torch.cat(pieces, 1), whole)


def test_decode_equals_prefill_over_more_than_one_page() -> None:
    model, tokens = tiny("ckpt_mxfp4"), random_tokens(1, 140)
    whole = model(tokens).logits
    cache = model.new_cache(max_sequences=1, max_tokens=140)
    parts = [model(tokens[:, :60], cache=cache).logits]
    parts += [model(tokens[:, t : t + 1], cache=cache).logits for t in range(60, 140)]
    same(torch.cat(parts, 1), whole)


def test_sequences_of_different_ages_decode_together() -> None:
    model = tiny("ckpt_mxfp4")
    old, new = random_tokens(1, 70), random_tokens(1, 3, seed=1)
    cache = model.new_cache(max_sequences=4, max_tokens=128)
    model(old[:, :69], cache=cache, cache_slots=[3])
    model(new[:, :2], cache=cache, cache_slots=[1])
    logits = model(torch.cat((new[:, 2:], old[:, 69:])), cache=cache, cache_slots=[1, 3]).logits
    same(logits[0], model(new).logits[0, 2:])
    same(logits[1], model(old).logits[0, 69:])


def test_a_padded_batch_fills_a_cache() -> None:
    model, tokens = tiny("ckpt_mxfp4"), random_tokens(2, 12)
    mask = torch.ones_like(tokens)
    mask[1, :7] = 0
    cache = model.new_cache(max_sequences=2, max_tokens=32)
    model(tokens, mask, cache=cache)
    assert [cache.length(0), cache.length(1)] == [12, 5]
    following = random_tokens(2, 1, seed=3)
    logits = model(following, cache=cache).logits
    same(logits[1], model(torch.cat((tokens[1:, 7:], following[1:]), 1)).logits[0, -1:])


def test_the_last_logits_alone() -> None:
    model, tokens = tiny("ckpt_bf16"), random_tokens(2, 9)
    mask = torch.ones_like(tokens)
    mask[0, :7] = 0
    whole = model(tokens, mask).logits
    kept = model(tokens, mask, logits_to_keep=3).logits
    assert kept.shape == (2, 3, 160)
    same(kept[1], whole[1, -3:])
    same(kept[0, 1:], whole[0, -2:])
    assert not kept[0, 0].any()
    packed = model(tokens[:1], cu_seqlens=torch.tensor([0, 4, 9]), logits_to_keep=1).logits
    same(packed[:, 0], model(tokens[:1], cu_seqlens=torch.tensor([0, 4, 9])).logits[0, [3, 8]])


@pytest.mark.parametrize("shape", [(1, 0), (0, 5)], ids=str)
def test_no_tokens_give_no_logits(shape: tuple[int, int]) -> None:
    assert tiny("ckpt_bf16")(random_tokens(*shape)).logits.shape == (*shape, 160)


def test_two_runs_are_bit_identical() -> None:
    model, tokens = tiny("ckpt_mxfp4", dtype=torch.bfloat16), random_tokens(2, 50)
    assert torch.equal(model(tokens).logits, model(tokens).logits)


def test_every_parameter_that_computes_has_a_gradient() -> None:
    torch.manual_seed(0)
    model = K3ForConditionalGeneration(K3Config.from_pretrained(FIXTURES / "ckpt_kernel"))
    model(random_tokens(2, 24)).logits.square().mean().backward()
    without = {name for name, p in model.named_parameters() if p.grad is None}
    layer0 = "language_model.model.layers.0.self_attention_res_"
    routers = {f"language_model.model.layers.{i}.block_sparse_moe.gate.e_score_correction_bias" for i in range(1, 5)}
    assert without == {f"{layer0}norm.weight", f"{layer0}proj.weight"} | routers


# --- the release, on the meta device --------------------


@pytest.fixture(scope="module")
def release() -> K3ForConditionalGeneration:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            return K3ForConditionalGeneration(
                K3Config.from_pretrained(FIXTURES / "released_config.json"), packed_experts=True
            )
    finally:
        torch.set_default_dtype(before)


def test_the_release_has_exactly_the_released_tensors(release: K3ForConditionalGeneration) -> None:
    dtypes = {torch.bfloat16: "BF16", torch.float32: "F32", torch.uint8: "U8"}
    table = json.loads((FIXTURES / "released_tensors.json").read_text())
    seen = 0
    for name, tensor in release.state_dict().items():
        if ".experts." in name:
            head, tail = name.split(".experts.")
            name = f"{head}.experts.0.{tail.split('.', 1)[1]}"
        assert [dtypes[tensor.dtype], list(tensor.shape)] == table[name], name
        seen += 1
    assert seen == 497_220


def test_the_release_counts_as_published(release: K3ForConditionalGeneration) -> None:
    config = release.config
    assert config.num_parameters() == count_parameters(config) == 2_779_931_834_976
    assert count_stored_elements(config) == 2_779_931_837_184
    assert round(config.num_activated_parameters() / 1e6) == 104_190
    assert count_activated_parameters(config) == config.num_activated_parameters()
    codes = sum(b.numel() for n, b in release.named_buffers() if n.endswith("_codes"))
    assert sum(p.numel() for p in release.parameters()) + 2 * codes == 2_779_931_834_976


def test_the_call_of_the_contract_by_position() -> None:
    model, tokens = tiny("ckpt_bf16"), random_tokens(1, 4)
    assert torch.equal(model(tokens, None, None, None).logits, model(tokens).logits)


def test_a_refused_call_leaves_the_cache_as_it_was() -> None:
    model, tokens = tiny("ckpt_mxfp4"), random_tokens(2, 9)
    cache = model.new_cache(max_sequences=3, max_tokens=20)
    for wrong in (-1, 1.0, True):
        with pytest.raises(ValueError, match="logits_to_keep must be 0"):
            model(tokens, cache=cache, logits_to_keep=wrong)
    assert cache.length(0) == 0
    model(tokens, cache=cache)


def test_no_sequences_with_a_cache() -> None:
    model = tiny("ckpt_bf16")
    assert model(random_tokens(0, 5), cache=model.new_cache(max_sequences=1, max_tokens=8)).logits.shape == (0, 5, 160)


def test_nothing_has_a_gradient_through_a_cache() -> None:
    model = tiny("ckpt_bf16")
    logits = model(random_tokens(1, 5), cache=model.new_cache(max_sequences=1, max_tokens=8)).logits
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        torch.autograd.grad(logits.sum(), model.language_model.model.embed_tokens.weight)


@pytest.mark.parametrize("bound", [-5.0, -0.5, -0.01])
def test_drawn_parameters_are_finite_at_every_gate_bound(bound: float) -> None:
    data = json.loads((FIXTURES / "ckpt_kernel/config.json").read_text())
    data["text_config"]["linear_attn_config"]["gate_lower_bound"] = bound
    model = K3ForConditionalGeneration(K3Config.from_dict(data))
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


# --- refusals --------------------


REFUSED = {
    "rank": (
        dict(input_ids=torch.zeros(3, dtype=torch.int64)),
        r"input_ids must be int32 or int64 of the shape \[B, T\]",
    ),
    "floats": (dict(input_ids=torch.zeros(1, 3)), r"input_ids must be int32 or int64 .* got torch.float32 \[1, 3\]"),
    "too-large": (
        dict(input_ids=torch.tensor([[1, 160]])),
        "token id 160 is outside the vocabulary: ids go from 0 to 159",
    ),
    "negative": (dict(input_ids=torch.tensor([[1, -1]])), "token id -1 is outside the vocabulary"),
    "mask-shape": (dict(attention_mask=torch.ones(1, 2)), r"attention_mask must have the shape of input_ids, \[1, 4\]"),
    "mask-values": (dict(attention_mask=torch.tensor([[1, 2, 1, 1]])), "must hold only 0 .* and 1"),
    "mask-hole": (dict(attention_mask=torch.tensor([[1, 0, 1, 1]])), "a hole in row 0; the ones of a row must stand"),
    "mask-and-packed": (
        dict(attention_mask=torch.ones(1, 4), cu_seqlens=torch.tensor([0, 4])),
        "attention_mask or cu_seqlens, not both",
    ),
    "packed-end": (dict(cu_seqlens=torch.tensor([0, 3])), r"cu_seqlens must rise from 0 to 4.* got \[0, 3\]"),
    "packed-falls": (dict(cu_seqlens=torch.tensor([0, 3, 2, 4])), "cu_seqlens must rise from 0 to 4"),
    "list": (dict(input_ids=[[1, 2]]), "input_ids must be a torch.Tensor, got list"),
    "mask-list": (dict(attention_mask=[[1, 1, 1, 1]]), "attention_mask must be a torch.Tensor, got list"),
    "packed-list": (dict(cu_seqlens=[0, 4]), "cu_seqlens must be a torch.Tensor, got list"),
    "packed-scalar": (dict(cu_seqlens=torch.tensor(4)), r"cu_seqlens must rise from 0 to 4"),
    "bool": (dict(input_ids=torch.ones(1, 2, dtype=torch.bool)), "input_ids must be int32 or int64"),
    "slots-alone": (dict(cache_slots=[0]), "cache_slots names slots of a cache; give the cache as well"),
    "keep": (dict(logits_to_keep=-1), "logits_to_keep must be 0 .* got -1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_call_is_refused(case: str) -> None:
    change, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        tiny("ckpt_bf16")(**{"input_ids": torch.tensor([[1, 2, 3, 4]]), **change})
