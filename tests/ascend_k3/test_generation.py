"""Generation: the fixtures' greedy tokens, batches, sampling, stops, streaming, refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from ascend_k3 import NonFiniteError, generate, load_model
from ascend_k3.generation import sample
from tests.ascend_k3.checkpoints import NAMES, expected, tiny
from tests.paths import FIXTURES

PROMPTS = [[5, 6, 7], [9], list(range(1, 71)), [11, 12, 13, 14, 15, 16, 17]]


@pytest.mark.parametrize("name", NAMES)
def test_greedy_tokens_equal_the_fixture(name: str) -> None:
    x = expected(name)
    assert generate(tiny(name), x["greedy_prompt"][None], max_new_tokens=16)[0].tolist() == x["greedy_ids"].tolist()


@pytest.mark.parametrize("name", ["ckpt_bf16", "ckpt_mxfp4"])
def test_teacher_forced_logits_equal_the_fixture(name: str) -> None:
    from tests.tolerances import LOGITS_ATOL

    x = expected(name)
    tokens = torch.cat((x["greedy_prompt"], x["greedy_ids"][:-1]))
    logits = tiny(name)(tokens[None], logits_to_keep=16).logits[0]
    torch.testing.assert_close(logits, x["greedy_logits"], atol=LOGITS_ATOL, rtol=0)


@pytest.mark.parametrize("options", [dict(), dict(temperature=0.8, top_p=0.9, seed=3)], ids=["greedy", "sampled"])
def test_a_prompt_gets_the_same_in_a_batch_as_alone(options: dict) -> None:
    model = tiny("ckpt_mxfp4")
    together = generate(model, PROMPTS, max_new_tokens=9, stop_ids=[], **options)
    for row, prompt in zip(together, PROMPTS, strict=True):
        assert row.tolist() == generate(model, [prompt], max_new_tokens=9, stop_ids=[], **options)[0].tolist()


def test_a_padded_tensor_is_a_list_of_prompts() -> None:
    model = tiny("ckpt_mxfp4")
    ids = torch.tensor([[0, 0, 5, 6, 7], [11, 12, 13, 14, 15]])
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    wanted = generate(model, [[5, 6, 7], [11, 12, 13, 14, 15]], max_new_tokens=4)
    assert torch.equal(generate(model, ids, max_new_tokens=4, attention_mask=mask), wanted)


def test_a_prompt_ends_after_a_stop_id_and_the_others_go_on() -> None:
    model = tiny("ckpt_mxfp4")
    free = generate(model, PROMPTS, max_new_tokens=8, stop_ids=[])
    stop = int(free[0, 2])
    stopped = generate(model, PROMPTS, max_new_tokens=8, stop_ids=[stop])
    pad = model.config.text.pad_token_id
    for row, whole in zip(stopped.tolist(), free.tolist(), strict=True):
        length = whole.index(stop) + 1 if stop in whole else len(whole)
        assert row[:length] == whole[:length]
        assert all(token == pad for token in row[length:])


def test_tokens_are_streamed_as_they_come() -> None:
    seen: list[tuple[int, int]] = []
    answers = generate(
        tiny("ckpt_mxfp4"), PROMPTS[:2], max_new_tokens=3, stop_ids=[], callback=lambda *x: seen.append(x)
    )
    assert seen == [(row, int(answers[row, step])) for step in range(3) for row in range(2)]


def test_seeds_repeat_and_differ() -> None:
    model = tiny("ckpt_mxfp4")

    def draw(seed: int | list[int] | None) -> list[list[int]]:
        return generate(model, [[5, 6]] * 2, max_new_tokens=12, temperature=1.5, seed=seed, stop_ids=[]).tolist()

    assert draw(1) == draw(1)
    first, second = draw([1, 2])
    assert first != second and first == draw(1)[0]


def test_top_p_keeps_the_least_set_that_reaches_it() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    generator = torch.Generator().manual_seed(0)
    for top_p, allowed in ((0.5, {0}), (0.51, {0, 1}), (0.8, {0, 1}), (0.81, {0, 1, 2}), (1.0, {0, 1, 2, 3})):
        assert {sample(logits, 1.0, top_p, generator) for _ in range(400)} == allowed


def test_temperature_shapes_the_distribution() -> None:
    logits = torch.tensor([1.0, 0.0])
    generator = torch.Generator().manual_seed(0)
    for temperature in (0.5, 2.0):
        share = sum(sample(logits, temperature, 1.0, generator) == 0 for _ in range(4000)) / 4000
        assert abs(share - torch.softmax(logits / temperature, 0)[0].item()) < 0.03


def test_greedy_takes_the_lowest_of_equals() -> None:
    assert sample(torch.tensor([1.0, 3.0, 3.0]), 0.0, 1.0) == 1


def test_logits_that_are_not_finite_name_the_prompt() -> None:
    model = tiny("ckpt_bf16")
    hook = model.language_model.lm_head.register_forward_hook(
        lambda _, __, out: torch.where(torch.arange(len(out))[:, None] == 1, torch.nan, out)
    )
    try:
        with pytest.raises(NonFiniteError, match="the logits of prompt 1 are not finite after 0 new tokens"):
            generate(model, PROMPTS[:3], max_new_tokens=2)
    finally:
        hook.remove()


def test_a_state_that_is_not_finite_names_the_prompt() -> None:
    model = load_model(FIXTURES / "ckpt_bf16", dtype=torch.float32)
    with torch.no_grad():
        model.language_model.model.layers[0].self_attn.v_proj.weight.fill_(torch.inf)
    with pytest.raises(NonFiniteError, match=r"generate: the KDA state of layer 0 in cache slot 0 .* after 2 tokens"):
        generate(model, [[1, 2]], max_new_tokens=2)


def test_stop_ids_are_those_of_all_files(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FIXTURES / "ckpt_mxfp4", tmp_path / "copy"))
    free = generate(tiny("ckpt_mxfp4"), [[5, 6, 7]], max_new_tokens=6, stop_ids=[])[0].tolist()
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [146, free[2]]}))
    model = load_model(folder, dtype=torch.float32)
    assert set(model.stop_ids) == {146, free[2]}
    assert generate(model, [[5, 6, 7]], max_new_tokens=6)[0].tolist() == free[: free.index(free[2]) + 1]


def test_the_coldest_temperature_is_greedy() -> None:
    logits = torch.tensor([1.0, 3.0, 2.0])
    for temperature in (5e-324, 1e-40, 1e-3):
        assert sample(logits, temperature, 1.0, torch.Generator()) == 1


def test_nothing_to_do() -> None:
    model = tiny("ckpt_bf16")
    assert generate(model, [[1]], max_new_tokens=0).shape == (1, 0)
    assert generate(model, [], max_new_tokens=3).shape == (0, 0)


@pytest.mark.parametrize(
    "prompts, options, message",
    [
        ([[1], []], {}, "prompt 1 is empty; give at least one token"),
        ([[1, 160]], {}, "token id 160 is outside the vocabulary"),
        ([[1]], {"temperature": -1.0}, "temperature must be 0 or a positive number, got -1.0"),
        ([[1]], {"temperature": float("nan")}, "temperature must be 0 or a positive number, got nan"),
        ([[1]], {"top_p": 0.0}, r"top_p must lie in \(0, 1\], got 0.0"),
        ([[1]], {"max_new_tokens": -2}, "max_new_tokens must not be negative, got -2"),
        ([[10**30]], {}, "token id 1000000000000000000000000000000 is outside the vocabulary"),
        ([[True]], {}, "prompt 0 must be a list of integers, got True in it"),
        ([1, 2], {}, "prompt 0 must be a list of token ids, got 1"),
        (["ab"], {}, "prompt 0 must be a list of token ids, got 'ab'"),
        ([[1]], {"seed": 2**64}, "seed must be an integer of 64 bits"),
        ([[1]], {"seed": 1.5}, "seed must be an integer of 64 bits, or a list of them, got 1.5"),
        ([[1]], {"max_new_tokens": 2.0}, "max_new_tokens must be an integer, got 2.0"),
        (torch.ones(1, 3, dtype=torch.int64), {"attention_mask": torch.tensor([[1, 0, 1]])}, "a hole in row 0"),
        ([[1]], {"seed": [1, 2]}, "2 seeds for 1 prompts"),
        ([[1]], {"attention_mask": torch.ones(1, 1)}, "a list of prompts has no padding"),
        (torch.zeros(1, 2), {}, r"input_ids must be int32 or int64 of the shape \[B, T\]"),
        (torch.ones(1, 2, dtype=torch.int64), {"attention_mask": torch.ones(1, 3)}, "must have the shape of input_ids"),
        ([[1]], {"max_new_tokens": 5000}, "must not exceed the 4096 positions of the model"),
    ],
)
def test_a_wrong_call_is_refused(prompts, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate(tiny("ckpt_bf16"), prompts, **options)
