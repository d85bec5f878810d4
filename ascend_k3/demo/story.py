"""The demo from beginning to end: a small K3 is made, trained, saved, checked, loaded back, and asked.

It is trained on both tasks in one run, saved with MXFP4 experts, checked, loaded back with the experts still packed,
and asked for what it has not seen: contexts (`recall`) and scenes (`pictures`) that are in no training row.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from PIL import Image

from ascend_k3.checkpoint import load_model, save_model
from ascend_k3.demo import pictures, recall
from ascend_k3.demo.lessons import END, Question, pack_rows, picture_inputs
from ascend_k3.demo.small import initialize, make_tokenizer, small_config
from ascend_k3.demo.training import STEPS, show_losses, train
from ascend_k3.doctor import check_checkpoint
from ascend_k3.files import new_folder
from ascend_k3.generation import generate
from ascend_k3.model import K3ForConditionalGeneration
from ascend_k3.problems import format_problem
from ascend_k3.tokenizer import K3Tokenizer

SHOWN, SHOWN_PICTURES = 4, 2
COLUMN = 40  # characters that a shown picture and its answer have
COVER = (128, 128, 128)  # of a picture that the model is not to see
# Exact answers, as parts of the held-out questions. Without the picture, pictures.BLIND is what one can get.
ENOUGH, ENOUGH_PICTURES = 0.95, 0.90
UNTRAINED_BELOW, COVERED_BELOW = 0.10, 0.25
LOGITS_CHANGE = 1e-4  # by saving and loading, as a part of the largest logit; 0 where both add in the same order
PICTURE_FILE = "picture.png"  # in the folder of the checkpoint: a held-out picture


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """A question and the text that the model gave."""

    question: Question
    given: str

    @property
    def is_right(self) -> bool:
        """Right to the character, the end included."""
        return self.given == self.question.answer

    def __str__(self) -> str:
        verdict = "right" if self.is_right else f"WRONG, it is {self.question.answer}"
        return f"{self.question.prompt} -> {self.given}  {verdict}"


def ask(model: K3ForConditionalGeneration, tokenizer: K3Tokenizer, questions: Sequence[Question]) -> list[Answered]:
    """The model's greedy answers."""
    prompts = [question.ids(tokenizer) for question in questions]
    images = picture_inputs(question.picture for question in questions)
    rows = generate(
        model,
        prompts,
        max_new_tokens=4,
        pixel_values=images.get("pixel_values"),
        grid_thws=images.get("grid_thws"),
    ).tolist()
    end = tokenizer.special_ids[END]
    given = [tokenizer.decode(row[: row.index(end) + 1] if end in row else row) for row in rows]
    return [Answered(question=question, given=text) for question, text in zip(questions, given, strict=True)]


def covered(questions: Sequence[Question]) -> list[Question]:
    """The same questions, each about a gray picture of the same size."""
    return [replace(asked, picture=Image.new("RGB", asked.shown.size, COVER)) for asked in questions]


def exact(answers: Sequence[Answered]) -> float:
    """The part of the answers that are right."""
    return sum(answer.is_right for answer in answers) / len(answers)


@torch.inference_mode()
def logits_change(
    model: K3ForConditionalGeneration,
    other: K3ForConditionalGeneration,
    tokenizer: K3Tokenizer,
    questions: Sequence[Question],
) -> float:
    """The largest difference of the logits of two models for some questions, over the largest logit of the first."""
    rows = pack_rows([question.ids(tokenizer) for question in questions], (question.picture for question in questions))
    expected = model(**rows).logits
    return float((other(**rows).logits - expected).abs().max() / expected.abs().max())


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """Answers to the held-out questions, before training and by the reloaded checkpoint."""

    untrained: list[Answered]
    untrained_pictures: list[Answered]
    recall: list[Answered]
    pictures: list[Answered]
    covered: list[Answered]  # the same questions as `pictures`, with nothing to see
    logits_change: float

    def is_success(self) -> bool:
        """Whether training made the difference, the reloaded checkpoint answers, and its logits are those of before.

        The logits are asked for because answers alone would be right with wrong experts: attention does most of it.
        """
        return (
            exact(self.recall) >= ENOUGH
            and exact(self.pictures) >= ENOUGH_PICTURES
            and max(exact(self.untrained), exact(self.untrained_pictures)) < UNTRAINED_BELOW
            and exact(self.covered) < COVERED_BELOW
            and self.logits_change <= LOGITS_CHANGE
        )


def run_demo(output: Path | None = None, seed: int = 0) -> bool:
    """Make, train, save, check, load and ask a small K3, telling what happens; whether all went as it should.

    Args:
        output: a folder that does not exist yet or is empty, for the checkpoint and a picture to ask about; None
            removes it at the end.
        seed: of parameters, training rows and held-out questions; the same seed gives the same model.
    Raises: FileExistsError, FileNotFoundError for an `output` that cannot be made.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small: threads would wait for each other, very long on a busy machine
    try:
        with tempfile.TemporaryDirectory() as scratch, new_folder(output or Path(scratch) / "checkpoint") as folder:
            succeeded = demonstrate(folder, Path(scratch), seed, STEPS)
    finally:
        torch.set_num_threads(threads)
    if output is not None:
        command = f"ascend-k3 generate {shlex.quote(str(output))}"
        picture = shlex.quote(str(output / PICTURE_FILE))
        print(
            f"The checkpoint is in {output}, and in it the first picture, {PICTURE_FILE}. Ask it:\n"
            f'  {command} --prompt "{recall.held_out_questions(seed)[0].prompt}"\n'
            f'  {command} --image {picture} --prompt "{pictures.held_out_questions(seed)[0].prompt}"'
        )
    return succeeded


def demonstrate(folder: Path, scratch: Path, seed: int, steps: int) -> bool:
    """The demo with its checkpoint in the empty `folder`; `scratch` is for the tokenizer that training needs."""
    start = time.perf_counter()
    tokenizer = make_tokenizer(scratch / "tokenizer")
    config = small_config(tokenizer.special_ids)
    model = K3ForConditionalGeneration(config)
    initialize(model, seed)
    text = config.text
    print(
        f"A small Kimi K3 of {config.num_parameters():,} parameters: {len(text.kda_layers)} KDA and "
        f"{len(text.full_attn_layers)} Gated MLA layers in {text.num_residual_blocks} residual blocks, "
        f"{text.num_experts_per_token} of {text.num_experts} experts a token, and MoonViT.\n"
        f"One task: read {recall.PAIRS} letters with a number each, then say the number of one letter, and stop.\n"
        f"The other: see a picture, then say its colour ({', '.join(pictures.COLOURS)}) or its shape "
        f"({', '.join(pictures.SHAPES)}), and stop."
    )
    questions, asked_pictures = recall.held_out_questions(seed), pictures.held_out_questions(seed)
    untrained = ask(model, tokenizer, questions)
    untrained_pictures = ask(model, tokenizer, asked_pictures)
    print(
        f"Untrained: {_share(untrained)} held-out prompts and {_share(untrained_pictures)} questions about held-out "
        f"pictures are answered exactly. The first:\n  {untrained[0]}\n  {untrained_pictures[0]}"
    )

    training_start = time.perf_counter()
    losses = train(model, tokenizer, seed, steps)
    seconds = time.perf_counter() - training_start
    print(f"Trained {steps} steps in {seconds:.0f} s: loss of {show_losses(losses[0])} -> {show_losses(losses[-1])}.")

    save_model(model, folder, experts="mxfp4")
    make_tokenizer(folder)
    report = check_checkpoint(folder)
    for problem in report.problems:
        if problem.severity != "note":
            print(f"  {format_problem(problem)}")
    state = "fine" if report.ok else "NOT fine"
    print(f"Saved with MXFP4 experts and checked: {state}; {report.tensors} tensors, {report.bytes:,} bytes.")
    if not report.ok:
        return False

    reloaded, tokenizer = load_model(folder, dtype=torch.float32), K3Tokenizer.from_pretrained(folder)
    change = logits_change(model, reloaded, tokenizer, questions[:SHOWN] + asked_pictures[:SHOWN])
    print(
        f"Loaded back, the experts {'' if reloaded.packed_experts else 'NOT '}packed: logits differ from those before "
        f"saving by at most {change:g} of the largest (asked for: at most {LOGITS_CHANGE:g})."
    )
    results = Results(
        untrained=untrained,
        untrained_pictures=untrained_pictures,
        recall=ask(reloaded, tokenizer, questions),
        pictures=ask(reloaded, tokenizer, asked_pictures),
        covered=ask(reloaded, tokenizer, covered(asked_pictures)),
        logits_change=change,
    )
    print(f"Reloaded: {_share(results.recall)} held-out prompts are answered exactly. The first {SHOWN}:")
    print(*(f"  {answered}" for answered in results.recall[:SHOWN]), sep="\n")
    print(
        f"Reloaded: {_share(results.pictures)} questions about held-out pictures are answered exactly; about a gray "
        f"picture instead {_share(results.covered)}, and a constant answer gets {pictures.BLIND:.1%}. "
        f"The first {SHOWN_PICTURES}:"
    )
    for line in beside_each_other(results.pictures[:SHOWN_PICTURES], colour=sys.stdout.isatty()):
        print(f"  {line}".rstrip())
    asked_pictures[0].shown.save(folder / PICTURE_FILE)
    succeeded = reloaded.packed_experts and results.is_success()
    print(
        f"{'Success' if succeeded else 'FAILED'} in {time.perf_counter() - start:.0f} s: {_share(results.recall)} "
        f"prompts exact, asked for at least {ENOUGH:.0%}, and {_share(results.pictures)} about pictures, asked for at "
        f"least {ENOUGH_PICTURES:.0%}; untrained {_share(untrained)} and {_share(untrained_pictures)}, asked for below "
        f"{UNTRAINED_BELOW:.0%}."
    )
    return succeeded


def beside_each_other(answers: Sequence[Answered], *, colour: bool) -> list[str]:
    """Lines that show the pictures of the answers next to each other, and under each its question and answer."""
    rows = zip(*(pictures.as_text(answer.question.shown, colour=colour) for answer in answers), strict=True)
    gap = " " * (COLUMN - pictures.COLUMNS)
    return [*(gap.join(row) for row in rows), "".join(f"{answer!s:{COLUMN}}" for answer in answers).rstrip()]


def _share(answers: Sequence[Answered]) -> str:
    return f"{exact(answers):.1%} of {len(answers)}"
