"""The two tasks of the demo: what is asked, what is right, what is held out, and the rows that are learned from."""

from __future__ import annotations

import random
import re
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image

from ascend_k3.demo import pictures, recall
from ascend_k3.demo.lessons import END, PAD, Batch, Question
from ascend_k3.demo.pictures import COLOURS, CORNERS, HELD_OUT, PROMPTS, SCENES, SHAPES, SIDE, TRAINING, Scene
from ascend_k3.demo.recall import PAIRS, QUERIES, Recall
from ascend_k3.demo.small import make_tokenizer
from ascend_k3.tokenizer import K3Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> K3Tokenizer:
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def draws(held_out: bool, count: int = 300) -> list[Recall]:
    source = random.Random(0)
    return [Recall.draw(source, source.randint(1, PAIRS), held_out=held_out) for _ in range(count)]


# Recall


def test_the_answer_is_the_number_of_the_letter_and_the_end() -> None:
    question = Recall(numbers={"K": 42, "Q": 17, "A": 83}).ask("Q")
    assert question == Question(prompt="Given K42 Q17 A83; Q", answer="17[EOS]")


@pytest.mark.parametrize("held_out", [False, True], ids=["training", "held-out"])
def test_contexts_tell_training_from_held_out_by_the_parity_of_their_sum(held_out: bool) -> None:
    for task in draws(held_out):
        shown = re.findall(r" ([A-Z])(\d\d)\b", task.context)
        assert [(letter, int(number)) for letter, number in shown] == list(task.numbers.items())
        assert set(task.numbers.values()) <= set(recall.NUMBERS)
        assert sum(int(number) for _, number in shown) % 2 == held_out


def test_held_out_questions_are_about_held_out_contexts_of_all_pairs() -> None:
    questions = recall.held_out_questions(seed=0)
    assert len(questions) == recall.HELD_OUT
    for question in questions:
        context, letter = question.prompt.split("; ")
        numbers = re.findall(r"\d\d", context)
        assert len(numbers) == PAIRS
        assert sum(map(int, numbers)) % 2 == 1
        assert f" {letter}{question.answer.removesuffix(END)}" in context


def test_every_letter_and_number_is_one_token_and_prompts_round_trip(tokenizer: K3Tokenizer) -> None:
    for task in draws(held_out=True):
        for letter, number in task.numbers.items():
            question = task.ask(letter)
            ids = question.ids(tokenizer)
            assert len(ids) == 2 * len(task.numbers) + 3, "Given, the pairs, the semicolon, the letter"
            assert tokenizer.decode(ids) == question.prompt
            assert len(tokenizer.encode(f"{number}{END}", allow_special=True)) == 2


@pytest.mark.parametrize("pairs", [4, PAIRS])
def test_recall_rows_are_the_tokens_of_their_text_and_only_right_answers_are_learned(
    tokenizer: K3Tokenizer, pairs: int
) -> None:
    source = random.Random(1)
    for _ in range(32):
        lesson = recall.draw_lesson(source, tokenizer, pairs)
        assert lesson.picture is None
        assert len(lesson.ids) == len(lesson.learned)
        text = tokenizer.decode(lesson.ids)
        assert tokenizer.encode(text, allow_special=True) == lesson.ids
        context, asked = text.split(";")
        queries = re.findall(r" ([A-Z])(\d\d)\[EOS\]", asked)
        assert len({letter for letter, _ in queries}) == min(pairs, QUERIES)
        assert all(f" {letter}{number}" in context for letter, number in queries)
        assert learned_text(tokenizer, lesson.ids, lesson.learned) == "".join(f"{n}{END}" for _, n in queries)
        assert sum(map(int, re.findall(r"\d\d", context))) % 2 == 0


def learned_text(tokenizer: K3Tokenizer, ids: list[int], learned: list[bool]) -> str:
    return tokenizer.decode([token for token, is_learned in zip(ids, learned, strict=True) if is_learned])


# Pictures


def look(picture: Image.Image) -> Scene:
    """The scene of a picture, found from its pixels alone."""
    pixels = np.asarray(picture).astype(int)
    ink = np.ptp(pixels, axis=-1) > 40
    nearest = {name: np.abs(np.array(value) - np.median(pixels[ink], axis=0)).sum() for name, value in COLOURS.items()}
    rows, columns = ink.any(1).nonzero()[0], ink.any(0).nonzero()[0]
    box = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    middle, corners = box[box.shape[0] // 2, box.shape[1] // 2], (box[1, 1], box[-2, 1])
    shape = "ring" if not middle else {(1, 1): "square", (0, 1): "triangle", (0, 0): "cross"}[corners]
    up, left = (SIDE - 1 - line[-1] > line[0] for line in (rows, columns))
    return Scene(
        min(nearest, key=nearest.__getitem__), shape, f"{'top' if up else 'bottom'} {'left' if left else 'right'}"
    )


def test_a_picture_shows_its_scene() -> None:
    source = random.Random(0)
    for scene in SCENES * 4:
        picture = scene.draw(source)
        assert (picture.size, picture.mode) == ((SIDE, SIDE), "RGB")
        assert look(picture) == scene
        assert [scene.ask(prompt, picture).answer for prompt in PROMPTS] == [scene.colour + END, scene.shape + END]


def test_every_colour_and_shape_is_held_out_in_one_corner_and_seen_in_the_others() -> None:
    assert sorted(HELD_OUT + TRAINING) == sorted(SCENES)
    assert len(set(SCENES)) == len(COLOURS) * len(SHAPES) * len(CORNERS)
    assert Counter((scene.colour, scene.shape) for scene in HELD_OUT) == Counter(
        (colour, shape) for colour in COLOURS for shape in SHAPES
    )
    for names in (("colour", "shape"), ("colour", "corner"), ("shape", "corner")):
        pairs = [{tuple(getattr(scene, name) for name in names) for scene in part} for part in (TRAINING, SCENES)]
        assert pairs[0] == pairs[1], f"every {' and '.join(names)} are seen together"


def test_held_out_questions_are_about_held_out_scenes_and_no_constant_answer_is_often_right() -> None:
    questions = pictures.held_out_questions(seed=0)
    assert len(questions) >= 100
    assert {look(question.shown) for question in questions} == set(HELD_OUT)
    for question in questions:
        scene = look(question.shown)
        assert question.answer == {"What colour?": scene.colour, "Which shape?": scene.shape}[question.prompt] + END
    best = 0
    for prompt in PROMPTS:
        best += Counter(q.answer for q in questions if q.prompt == prompt).most_common(1)[0][1]
    assert best / len(questions) == pytest.approx(pictures.BLIND)
    in_order = [scene for _ in range(pictures.ROUNDS) for scene in HELD_OUT for _ in PROMPTS]
    seen = [look(question.shown) for question in questions]
    assert seen != in_order, "the first ones are about several scenes"
    assert sorted(seen) == sorted(in_order)


def test_every_word_is_one_token_and_a_picture_stands_before_its_question(tokenizer: K3Tokenizer) -> None:
    for word in pictures.WORDS:
        assert len(tokenizer.encode(word)) == 1, word
    question = pictures.held_out_questions(seed=0)[0]
    text = f"<|media_begin|>image 56x56<|media_content|>{PAD}<|media_end|>{question.prompt}"
    assert question.ids(tokenizer) == tokenizer.encode(text, allow_special=True)
    with pytest.raises(ValueError, match="has no picture"):
        _ = Question(prompt="K", answer="42").shown


def test_picture_rows_have_four_pads_and_only_right_answers_are_learned(tokenizer: K3Tokenizer) -> None:
    source = random.Random(1)
    orders = set()
    for _ in range(100):
        lesson = pictures.draw_lesson(source, tokenizer)
        assert lesson.picture is not None
        scene = look(lesson.picture)
        assert not scene.held_out
        text = tokenizer.decode(lesson.ids)
        start = f"<|media_begin|>image 56x56<|media_content|>{4 * PAD}<|media_end|>"
        both = [f"What colour?{scene.colour}{END}", f"Which shape?{scene.shape}{END}"]
        assert text in (start + "".join(both), start + "".join(reversed(both)))
        orders.add(text.startswith(start + "What"))
        answers = re.findall(r"\?([a-z]+\[EOS\])", text)
        assert learned_text(tokenizer, lesson.ids, lesson.learned) == "".join(answers)
    assert orders == {True, False}


def test_a_batch_keeps_rows_apart_and_pictures_in_order(tokenizer: K3Tokenizer) -> None:
    source = random.Random(2)
    lessons = [recall.draw_lesson(source, tokenizer, 4), *(pictures.draw_lesson(source, tokenizer) for _ in range(2))]
    batch = Batch.pack(lessons)
    rows = torch.split(batch.inputs["input_ids"][0], batch.inputs["cu_seqlens"].diff().tolist())
    assert [row.tolist() for row in rows] == [lesson.ids for lesson in lessons]
    assert batch.learned.tolist() == [token for lesson in lessons for token in lesson.learned]
    assert batch.inputs["grid_thws"].tolist() == [[1, 4, 4]] * 2
    first = batch.inputs["pixel_values"][16]  # patch at the top left of the second picture
    picture = lessons[2].picture
    assert picture is not None
    torch.testing.assert_close(
        first, torch.from_numpy(np.asarray(picture)[:14, :14].copy()).permute(2, 0, 1) / 127.5 - 1
    )
    assert set(Batch.pack(lessons[:1]).inputs) == {"input_ids", "cu_seqlens"}


def test_pictures_as_text_show_the_shape_and_its_colour() -> None:
    picture = Scene("red", "cross", "top left").draw(random.Random(0))
    lines = pictures.as_text(picture, colour=False)
    assert [len(line) for line in lines] == [pictures.COLUMNS] * (pictures.COLUMNS // 2)
    small = np.array([[char in "▀█" for char in line] for line in lines for _ in (0, 1)])
    small[1::2] = [[char in "▄█" for char in line] for line in lines]
    ink = np.ptp(np.asarray(picture).astype(int), axis=-1) > 40
    assert (small.repeat(2, 0).repeat(2, 1) == ink).mean() > 0.95

    coloured = pictures.as_text(picture, colour=True)
    halves = [re.findall(r"\x1b\[38;2;(\d+);(\d+);(\d+);48;2;(\d+);(\d+);(\d+)m▀", line) for line in coloured]
    assert all(line.endswith("\x1b[0m") for line in coloured)
    shown = np.array(halves).astype(int).reshape(len(lines), pictures.COLUMNS, 2, 3).transpose(0, 2, 1, 3)
    expected = np.asarray(picture.resize((pictures.COLUMNS, pictures.COLUMNS), Image.Resampling.BOX))
    assert np.array_equal(shown.reshape(expected.shape), expected)
