"""The demo's model, training and story, and a run of it that is too short to learn. Its tasks: test_demo_tasks.py."""

from __future__ import annotations

import random
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

from ascend_k3 import ops
from ascend_k3.checkpoint import load_model, save_model
from ascend_k3.config import K3Config
from ascend_k3.demo import pictures, recall, run_demo, story, training
from ascend_k3.demo.lessons import END, Question
from ascend_k3.demo.small import RANKS, initialize, make_tokenizer, small_config
from ascend_k3.demo.story import Answered, Results
from ascend_k3.doctor import check_checkpoint
from ascend_k3.model import K3ForConditionalGeneration
from ascend_k3.moe import Experts
from ascend_k3.ops.errors import NonFiniteError
from ascend_k3.tokenizer import K3Tokenizer


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> K3Tokenizer:
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def model(tokenizer: K3Tokenizer) -> K3ForConditionalGeneration:
    model = K3ForConditionalGeneration(small_config(tokenizer.special_ids))
    initialize(model, seed=0)
    return model


def test_the_model_has_every_mechanism(tokenizer: K3Tokenizer) -> None:
    config = small_config(tokenizer.special_ids)
    text, vision = config.text, config.vision
    assert len(text.kda_layers) > 1
    assert len(text.full_attn_layers) > 1
    assert text.num_residual_blocks > 1
    assert text.is_dense(0)
    assert not text.is_dense(1)
    assert 1 < text.num_experts_per_token < text.num_experts
    assert text.num_shared_experts > 0
    assert text.routed_expert_hidden_size < text.hidden_size
    assert text.vocab_size == tokenizer.vocab_size
    assert vision is not None
    assert vision.vt_num_hidden_layers > 1
    assert vision.vt_num_attention_heads > 1
    assert vision.qkv_hidden_size // vision.vt_num_attention_heads > 4, "more than one pair of rows and of columns"
    assert vision.init_pos_emb_height != pictures.SIDE // vision.patch_size, "positions are stretched"
    assert tokenizer.decode([config.media_placeholder_token_id]) == "<|media_pad|>"
    assert K3Config.from_dict(config.to_dict()) == config


def test_a_seed_gives_its_own_model_and_questions(tokenizer: K3Tokenizer, model: K3ForConditionalGeneration) -> None:
    again, other = (K3ForConditionalGeneration(model.config) for _ in range(2))
    initialize(again, seed=0)
    initialize(other, seed=1)
    for name in ("language_model.model.layers.0.self_attn.v_proj.weight", "vision_tower.patch_embed.proj.weight"):
        weights = [dict(m.named_parameters())[name] for m in (model, again, other)]
        assert torch.equal(weights[0], weights[1])
        assert not torch.equal(weights[0], weights[2])
    prompts = [[question.prompt for question in recall.held_out_questions(seed)] for seed in (0, 0, 1)]
    shown = [[question.shown.tobytes() for question in pictures.held_out_questions(seed)] for seed in (0, 0, 1)]
    for drawn, count in ((prompts, recall.HELD_OUT), (shown, pictures.ROUNDS * len(pictures.HELD_OUT) * 2)):
        assert drawn[0] == drawn[1]
        assert not set(drawn[0]) & set(drawn[2])
        assert len(set(drawn[0])) == count


def test_mla_layers_start_as_a_mean_that_comes_out_by_the_transposed_way_in(
    model: K3ForConditionalGeneration,
) -> None:
    attention = model.language_model.model.layers[2].self_attn
    _, values = attention._up_projections()
    way_in = torch.cat([head @ attention.kv_a_proj_with_mqa.weight[: values.shape[-1]] for head in values])
    torch.testing.assert_close(attention.o_proj.weight, way_in.T)


def test_pictures_join_when_the_contexts_have_grown(tokenizer: K3Tokenizer) -> None:
    source = random.Random(0)
    rows = []
    for part in (0.0, 0.5 * training.PICTURES_FROM, training.PICTURES_FROM, 1.0):
        batches = training.draw_batches(source, tokenizer, part)
        rows.append({task: batch.inputs["cu_seqlens"].diff().tolist() for task, batch in batches.items()})

    def asked(pairs: int) -> int:
        """Tokens of a row: the context, then a letter, a number and the end for each query."""
        return 2 * pairs + 2 + 3 * min(pairs, recall.QUERIES)

    assert rows[0] == {"recall": [asked(training.FEWEST_PAIRS)] * training.CONTEXTS}
    assert len(rows[1]["recall"]) == training.CONTEXTS
    assert asked(training.FEWEST_PAIRS) < rows[1]["recall"][0] < asked(recall.PAIRS) <= 64
    assert rows[2] == rows[3]
    assert rows[2]["recall"] == [asked(recall.PAIRS)] * training.CONTEXTS_BESIDE
    assert len(rows[2]["pictures"]) == training.PICTURES
    assert rows[1].keys() == {"recall"}


def test_vision_starts_to_learn_with_the_first_picture() -> None:
    rates = [training.learning_rates(step, 100) for step in range(100)]
    first = int(training.PICTURES_FROM * 100)
    assert {vision for _, vision in rates[:first]} == {0.0}
    assert 0 < rates[first][1] < max(vision for _, vision in rates) <= training.RATE_VISION
    assert max(language for language, _ in rates[first:]) == pytest.approx(training.RATE_BESIDE)
    assert max(language for language, _ in rates) < training.RATE
    assert max(rates[-1]) < 0.1 * training.RATE_BESIDE


def test_both_tasks_give_a_loss_and_learn(tokenizer: K3Tokenizer, model: K3ForConditionalGeneration) -> None:
    batches = training.draw_batches(random.Random(0), tokenizer, part=1.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first, second = (training.learn(model, optimizer, batches) for _ in range(2))
    assert first.keys() == {"recall", "pictures"}
    assert all(second[task] < first[task] for task in first)


def test_what_was_trained_survives_packing_bit_for_bit(
    tokenizer: K3Tokenizer, model: K3ForConditionalGeneration, tmp_path: Path
) -> None:
    before = {name: value.clone() for name, value in model.named_parameters()}
    losses = training.train(model, tokenizer, seed=0, steps=2)
    assert [sorted(step) for step in losses] == [["recall"], ["pictures", "recall"]]
    # The router's bias has no gradient, nor has the first mixture, which has the embedding alone to mix.
    fixed = (
        "e_score_correction_bias",
        "layers.0.self_attention_res_norm.weight",
        "layers.0.self_attention_res_proj.weight",
    )
    rounded = {name: value.bfloat16().float() for name, value in before.items()}
    still = [
        name
        for name, value in model.named_parameters()
        if torch.equal(value, before[name]) or torch.equal(value, rounded[name])
    ]
    # Two steps of a rate that begins small: the norms of vision have moved, and bf16 has rounded them back to one.
    grads = {name: value.grad for name, value in model.named_parameters()}
    still = [name for name in still if not ("norm" in name and name.startswith(("vision", "mm")) and grads[name].any())]
    assert [name for name in still if not name.endswith(fixed)] == []

    save_model(model, tmp_path / "checkpoint", experts="mxfp4")
    expanded = load_model(tmp_path / "checkpoint", dtype=torch.float32, experts=torch.float32).state_dict()
    assert expanded.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(expanded[name], value), name


def test_rounded_experts_stay_where_they_are(tokenizer: K3Tokenizer, model: K3ForConditionalGeneration) -> None:
    training.round_experts(model)
    experts = [module for module in model.modules() if isinstance(module, Experts)]
    rounded = [module.w13.clone() for module in experts]
    training.train(model, tokenizer, seed=0, steps=2)
    for module, weight in zip(experts, rounded, strict=True):
        assert torch.equal(module.w13, weight)
        packed = ops.mx_quantize(weight, format="mxfp4", rule="even")
        assert torch.equal(ops.mx_dequantize(packed, dtype=torch.float32), weight)


def test_a_run_too_short_to_learn_goes_all_the_way_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    assert story.demonstrate(folder, tmp_path, seed=0, steps=2) is False
    shown = capsys.readouterr().out
    assert "Untrained: 0.0% of 200 held-out prompts and 0.0% of 144 questions about held-out pictures" in shown
    assert re.search(r"step +2/2 .* recall \d.*pictures \d", shown)
    change = re.search(r"logits differ from those before saving by at most (\S+) of the largest", shown)
    assert change is not None
    assert float(change[1]) <= story.LOGITS_CHANGE
    assert shown.count("WRONG, it is") == 2 + story.SHOWN + story.SHOWN_PICTURES
    asked = pictures.held_out_questions(seed=0)
    for line in pictures.as_text(asked[0].shown, colour=False):
        assert line.strip() in shown
    assert "\x1b" not in shown, "no codes for colours where no terminal reads"
    assert "FAILED in" in shown

    assert check_checkpoint(folder).ok
    assert load_model(folder).packed_experts
    assert K3Tokenizer.from_pretrained(folder).stop_ids == (RANKS + 1,)
    with Image.open(folder / story.PICTURE_FILE) as kept:
        assert kept.tobytes() == asked[0].shown.tobytes()


def test_an_output_that_is_taken_is_refused_before_any_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(FileExistsError, match="exists and is not an empty folder"):
        run_demo(output=tmp_path)
    assert capsys.readouterr().out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def answers(right: int, total: int) -> list[Answered]:
    question = Question(prompt="Given K42; K", answer="42[EOS]")
    return [Answered(question=question, given="42[EOS]" if n < right else "42") for n in range(total)]


ALL = {"untrained": 0, "untrained_pictures": 0, "recall": 200, "pictures": 100, "covered": 20, "logits_change": 0.0}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({}, True, id="all"),
        pytest.param(
            {
                "untrained": 19,
                "untrained_pictures": 9,
                "recall": 190,
                "pictures": 90,
                "covered": 24,
                "logits_change": story.LOGITS_CHANGE,
            },
            True,
            id="just enough",
        ),
        pytest.param({"recall": 189}, False, id="one prompt too few"),
        pytest.param({"pictures": 89}, False, id="one picture too few"),
        pytest.param({"untrained": 20}, False, id="untrained too good"),
        pytest.param({"untrained_pictures": 10}, False, id="untrained too good at pictures"),
        pytest.param({"covered": 25}, False, id="too good without seeing"),
        pytest.param({"recall": 0, "pictures": 0}, False, id="untrained"),
        pytest.param({"logits_change": 0.01}, False, id="other logits"),
        pytest.param({"logits_change": float("nan")}, False, id="logits that are no numbers"),
    ],
)
def test_success_is_answers_that_training_brought_and_logits_that_were_kept(
    change: dict[str, float], expected: bool
) -> None:
    values = {**ALL, **change}
    results = Results(
        untrained=answers(int(values["untrained"]), 200),
        untrained_pictures=answers(int(values["untrained_pictures"]), 100),
        recall=answers(int(values["recall"]), 200),
        pictures=answers(int(values["pictures"]), 100),
        covered=answers(int(values["covered"]), 100),
        logits_change=values["logits_change"],
    )
    assert results.is_success() is expected


def test_wrong_packed_experts_and_wrong_eyes_change_the_logits(
    tokenizer: K3Tokenizer, model: K3ForConditionalGeneration, tmp_path: Path
) -> None:
    training.round_experts(model)
    training.round_rest(model)
    save_model(model, tmp_path / "checkpoint", experts="mxfp4")
    reloaded = load_model(tmp_path / "checkpoint", dtype=torch.float32)
    prompts, about = recall.held_out_questions(seed=0)[:1], pictures.held_out_questions(seed=0)[:1]

    def change(questions: list[Question]) -> float:
        return story.logits_change(model, reloaded, tokenizer, questions)

    assert change(prompts + about) <= story.LOGITS_CHANGE
    assert reloaded.config.vision is not None
    with torch.no_grad():
        reloaded.vision_tower.patch_embed.proj.weight.neg_()
    assert change(prompts) <= story.LOGITS_CHANGE
    assert change(prompts + about) > story.LOGITS_CHANGE
    next(module for module in reloaded.modules() if isinstance(module, Experts)).w13_scale.sub_(1)
    assert change(prompts) > story.LOGITS_CHANGE, "gate and up of one layer are halved"


def test_answers_do_not_depend_on_the_other_questions_and_those_about_pictures_see_them(
    tokenizer: K3Tokenizer, model: K3ForConditionalGeneration
) -> None:
    questions = pictures.held_out_questions(seed=0)[:8]
    together = story.ask(model, tokenizer, questions)
    assert [answered.question for answered in together] == questions
    assert [story.ask(model, tokenizer, [question])[0].given for question in questions] == [
        answered.given for answered in together
    ]
    hidden = story.covered(questions)
    assert [(question.prompt, question.answer, question.shown.size) for question in hidden] == [
        (question.prompt, question.answer, question.shown.size) for question in questions
    ]
    assert {question.shown.tobytes() for question in hidden} == {bytes(story.COVER) * pictures.SIDE**2}

    assert model.config.vision is not None
    torch.nn.init.constant_(model.vision_tower.patch_embed.proj.weight, float("nan"))
    story.ask(model, tokenizer, recall.held_out_questions(seed=0)[:1])
    with pytest.raises(NonFiniteError):
        story.ask(model, tokenizer, questions)


def test_an_answer_goes_up_to_its_end_or_to_four_tokens(
    tokenizer: K3Tokenizer, model: K3ForConditionalGeneration
) -> None:
    """With a head that knows the end and "x" alone, and takes the one or the other by the sign of a feature."""
    head = model.language_model.lm_head.weight
    feature = torch.randn(head.shape[1], generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        head.zero_()
        head[tokenizer.special_ids[END]], head[tokenizer.encode("x")[0]] = feature, -feature
    given = {answered.given for answered in story.ask(model, tokenizer, recall.held_out_questions(seed=0))}
    assert given <= {"[EOS]", "x[EOS]", "xx[EOS]", "xxx[EOS]", "xxxx"}
    assert {"[EOS]", "xxxx"} <= given


@pytest.mark.slow
def test_the_demo_succeeds_and_its_commands_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo(output=tmp_path / "small", seed=3) is True
    shown = capsys.readouterr().out
    assert "Success in" in shown
    assert check_checkpoint(tmp_path / "small").ok

    commands = [shlex.split(line) for line in shown.splitlines() if line.startswith("  ascend-k3 generate")]
    questions = [held_out(3)[0] for held_out in (recall.held_out_questions, pictures.held_out_questions)]
    assert [command[-1] for command in commands] == [question.prompt for question in questions]
    for (program, *arguments), question in zip(commands, questions, strict=True):
        assert program == "ascend-k3"
        run = [sys.executable, "-P", "-m", "ascend_k3", *arguments]
        answer = subprocess.run(run, capture_output=True, text=True, check=True).stdout
        assert answer == question.answer.removesuffix(END) + "\n"
