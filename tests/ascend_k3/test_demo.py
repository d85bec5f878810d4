"""The demo's task, model and parts, and a run of it that is too short to learn."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ascend_k3 import demo, ops
from ascend_k3.checkpoint import load_model, save_model
from ascend_k3.config import K3Config
from ascend_k3.demo import END, PAIRS, QUERIES, Answered, Recall
from ascend_k3.doctor import check_checkpoint
from ascend_k3.model import K3ForConditionalGeneration
from ascend_k3.moe import Experts
from ascend_k3.tokenizer import K3Tokenizer


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> K3Tokenizer:
    return demo.make_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def model(tokenizer: K3Tokenizer) -> K3ForConditionalGeneration:
    model = K3ForConditionalGeneration(demo.small_config(tokenizer.special_ids))
    demo.initialize(model, seed=0)
    return model


def draws(held_out: bool, count: int = 300) -> list[Recall]:
    source = random.Random(0)
    return [Recall.draw(source, source.randint(1, PAIRS), held_out=held_out) for _ in range(count)]


def test_the_answer_is_the_number_of_the_letter_and_the_end() -> None:
    task = Recall(numbers={"K": 42, "Q": 17, "A": 83})
    assert task.prompt("Q") == "Given K42 Q17 A83; Q"
    assert task.answer("Q") == "17[EOS]"


@pytest.mark.parametrize("held_out", [False, True], ids=["training", "held-out"])
def test_contexts_tell_training_from_held_out_by_the_parity_of_their_sum(held_out: bool) -> None:
    for task in draws(held_out):
        shown = re.findall(r" ([A-Z])(\d\d)\b", task.context)
        assert [(letter, int(number)) for letter, number in shown] == list(task.numbers.items())
        assert set(task.numbers.values()) <= set(demo.NUMBERS)
        assert sum(int(number) for _, number in shown) % 2 == held_out


def test_every_letter_and_number_is_one_token_and_prompts_round_trip(tokenizer: K3Tokenizer) -> None:
    for task in draws(held_out=True):
        for letter, number in task.numbers.items():
            prompt = task.prompt(letter)
            ids = tokenizer.encode(prompt)
            assert len(ids) == 2 * len(task.numbers) + 3, "Given, the pairs, the semicolon, the letter"
            assert tokenizer.decode(ids) == prompt
            assert len(tokenizer.encode(f"{number}{END}", allow_special=True)) == 2


@pytest.mark.parametrize("pairs", [demo.FEWEST_PAIRS, PAIRS])
def test_training_rows_are_the_tokens_of_their_text_and_only_right_answers_are_learned(
    tokenizer: K3Tokenizer, pairs: int
) -> None:
    ids, learned = demo.training_batch(random.Random(1), tokenizer, pairs)
    assert ids.shape == learned.shape
    assert len(ids) == demo.BATCH
    for row, mask in zip(ids, learned, strict=True):
        text = tokenizer.decode(row.tolist())
        assert tokenizer.encode(text, allow_special=True) == row.tolist()
        context, asked = text.split(";")
        queries = re.findall(r" ([A-Z])(\d\d)\[EOS\]", asked)
        assert len({letter for letter, _ in queries}) == min(pairs, QUERIES)
        assert all(f" {letter}{number}" in context for letter, number in queries)
        assert tokenizer.decode(row[mask].tolist()) == "".join(f"{number}{END}" for _, number in queries)
        assert sum(map(int, re.findall(r"\d\d", context))) % 2 == 0


def test_the_model_has_every_mechanism(tokenizer: K3Tokenizer) -> None:
    config = demo.small_config(tokenizer.special_ids)
    text = config.text
    assert len(text.kda_layers) > 1
    assert len(text.full_attn_layers) > 1
    assert text.num_residual_blocks > 1
    assert text.is_dense(0)
    assert not text.is_dense(1)
    assert 1 < text.num_experts_per_token < text.num_experts
    assert text.num_shared_experts > 0
    assert text.routed_expert_hidden_size < text.hidden_size
    assert text.vocab_size == tokenizer.vocab_size
    assert K3Config.from_dict(config.to_dict()) == config


def test_a_seed_gives_its_own_model_and_prompts(tokenizer: K3Tokenizer, model: K3ForConditionalGeneration) -> None:
    again, other = (K3ForConditionalGeneration(model.config) for _ in range(2))
    demo.initialize(again, seed=0)
    demo.initialize(other, seed=1)
    weights = [m.language_model.model.layers[0].self_attn.v_proj.weight for m in (model, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    prompts = [[answered.prompt for answered in demo.ask(model, tokenizer, seed)] for seed in (0, 0, 1)]
    assert prompts[0] == prompts[1]
    assert not set(prompts[0]) & set(prompts[2])
    assert len(set(prompts[0])) == demo.HELD_OUT


def test_what_was_trained_survives_packing_bit_for_bit(
    tokenizer: K3Tokenizer, model: K3ForConditionalGeneration, tmp_path: Path
) -> None:
    before = {name: value.clone() for name, value in model.named_parameters()}
    losses = demo.train(model, tokenizer, seed=0, steps=2)
    assert len(losses) == 2
    # The router's bias has no gradient, nor has the first mixture, which has the embedding alone to mix.
    fixed = (
        "e_score_correction_bias",
        "layers.0.self_attention_res_norm.weight",
        "layers.0.self_attention_res_proj.weight",
    )
    still = [name for name, value in model.named_parameters() if torch.equal(value, before[name])]
    assert [name for name in still if not name.endswith(fixed)] == []

    save_model(model, tmp_path / "checkpoint", experts="mxfp4")
    expanded = load_model(tmp_path / "checkpoint", dtype=torch.float32, experts=torch.float32).state_dict()
    assert expanded.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(expanded[name], value), name


def test_rounded_experts_stay_where_they_are(tokenizer: K3Tokenizer, model: K3ForConditionalGeneration) -> None:
    demo.round_experts(model)
    experts = [module for module in model.modules() if isinstance(module, Experts)]
    rounded = [module.w13.clone() for module in experts]
    demo.train(model, tokenizer, seed=0, steps=2)
    for module, weight in zip(experts, rounded, strict=True):
        assert torch.equal(module.w13, weight)
        packed = ops.mx_quantize(weight, format="mxfp4", rule="even")
        assert torch.equal(ops.mx_dequantize(packed, dtype=torch.float32), weight)


def test_a_run_too_short_to_learn_goes_all_the_way_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    assert demo.demonstrate(folder, tmp_path, seed=0, steps=2) is False
    shown = capsys.readouterr().out
    assert "Untrained: 0.0% of 200" in shown
    assert re.search(r"step +1/2 .* loss \d", shown)
    change = re.search(r"logits differ from those before saving by at most (\S+) of the largest", shown)
    assert change is not None
    assert float(change[1]) <= demo.LOGITS_CHANGE
    assert shown.count("WRONG, it is") == 1 + demo.SHOWN
    assert "FAILED in" in shown

    assert check_checkpoint(folder).ok
    assert load_model(folder).packed_experts
    assert K3Tokenizer.from_pretrained(folder).stop_ids == (demo.RANKS + 1,)


def test_an_output_that_is_taken_is_refused_before_any_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(FileExistsError, match="exists and is not an empty folder"):
        demo.run_demo(output=tmp_path)
    assert capsys.readouterr().out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def answers(right: int) -> list[Answered]:
    return [
        Answered(prompt="Given K42; K", right="42[EOS]", given="42[EOS]" if n < right else "42") for n in range(200)
    ]


@pytest.mark.parametrize(
    ("untrained", "reloaded", "change", "expected"),
    [
        pytest.param(0, 200, 0.0, True, id="all"),
        pytest.param(19, 190, demo.LOGITS_CHANGE, True, id="just enough"),
        pytest.param(0, 189, 0.0, False, id="one too few"),
        pytest.param(20, 200, 0.0, False, id="untrained too good"),
        pytest.param(0, 0, 0.0, False, id="untrained"),
        pytest.param(0, 200, 0.01, False, id="other logits"),
        pytest.param(0, 200, float("nan"), False, id="logits that are no numbers"),
    ],
)
def test_success_is_answers_that_training_brought_and_logits_that_were_kept(
    untrained: int, reloaded: int, change: float, expected: bool
) -> None:
    assert demo.is_success(answers(untrained), answers(reloaded), change) is expected


def test_wrong_packed_experts_change_the_logits(
    tokenizer: K3Tokenizer, model: K3ForConditionalGeneration, tmp_path: Path
) -> None:
    demo.round_experts(model)
    demo.round_rest(model)
    save_model(model, tmp_path / "checkpoint", experts="mxfp4")
    reloaded = load_model(tmp_path / "checkpoint", dtype=torch.float32)
    ids = torch.tensor([tokenizer.encode(draws(held_out=True)[0].prompt("A"))])
    assert demo.logits_change(model, reloaded, ids) <= demo.LOGITS_CHANGE
    next(module for module in reloaded.modules() if isinstance(module, Experts)).w13_scale.sub_(1)
    assert demo.logits_change(model, reloaded, ids) > demo.LOGITS_CHANGE, "gate and up of one layer are halved"


@pytest.mark.slow
def test_the_demo_succeeds_and_leaves_its_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.run_demo(output=tmp_path / "small", seed=3) is True
    shown = capsys.readouterr().out
    assert "Success in" in shown
    assert str(tmp_path / "small") in shown
    assert check_checkpoint(tmp_path / "small").ok
