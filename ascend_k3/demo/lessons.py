"""What the tasks of the demo have in common: questions with one right answer, rows to learn from, batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from ascend_k3.images import expand_pads, image_prompt, preprocess_batch, resize_plan
from ascend_k3.tokenizer import K3Tokenizer

END = "[EOS]"  # ends every answer
PAD = "<|media_pad|>"


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A prompt, with a picture before it or without, and what is right after it, the end included."""

    prompt: str
    answer: str
    picture: Image.Image | None = None

    @property
    def shown(self) -> Image.Image:
        """The picture, of a question that must have one."""
        if self.picture is None:
            raise ValueError(f"the question {self.prompt!r} has no picture; ask one that has.")
        return self.picture

    def ids(self, tokenizer: K3Tokenizer) -> list[int]:
        """The prompt as `ascend-k3 generate --image PICTURE --prompt PROMPT` has it: one pad stands for the picture."""
        shown = "" if self.picture is None else image_prompt(*self.picture.size)
        return tokenizer.encode_segments([(shown, True), (self.prompt, False)])


@dataclass(frozen=True, kw_only=True, slots=True)
class Lesson:
    """A row to train on: its ids, and for each whether it belongs to an answer; only those are learned."""

    ids: list[int]
    learned: list[bool]
    picture: Image.Image | None = None


def make_lesson(tokenizer: K3Tokenizer, context: str, questions: Sequence[Question]) -> Lesson:
    """One context, which all questions are about, and after it each question with its answer.

    The context is the picture of the questions or, without one, the text `context`.
    """
    picture = questions[0].picture
    if picture is None:
        ids = tokenizer.encode(context)
    else:
        ids = tokenizer.encode(image_prompt(*picture.size), allow_special=True)
        ids = expand_pads(ids, [resize_plan(*picture.size).grid], tokenizer.special_ids[PAD])
    learned = [False] * len(ids)
    for question in questions:
        asked = tokenizer.encode(question.prompt.removeprefix(context))
        answer = tokenizer.encode(question.answer, allow_special=True)
        ids += asked + answer
        learned += [False] * len(asked) + [True] * len(answer)
    return Lesson(ids=ids, learned=learned, picture=picture)


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Rows one after another: what the model takes, and whether each of the T tokens is learned."""

    inputs: dict[str, Tensor]
    learned: Tensor  # [T] bool

    @classmethod
    def pack(cls, lessons: Sequence[Lesson]) -> Batch:
        return cls(
            inputs=pack_rows([lesson.ids for lesson in lessons], (lesson.picture for lesson in lessons)),
            learned=torch.tensor([token for lesson in lessons for token in lesson.learned]),
        )


def pack_rows(rows: Sequence[Sequence[int]], pictures: Iterable[Image.Image | None]) -> dict[str, Tensor]:
    """The arguments of the model for rows of ids and the pictures in them (None: no picture): B is 1, T their sum."""
    offsets = torch.tensor([0, *map(len, rows)]).cumsum(0)
    ids = torch.tensor([token for row in rows for token in row])
    return {"input_ids": ids[None], "cu_seqlens": offsets, **picture_inputs(pictures)}


def picture_inputs(pictures: Iterable[Image.Image | None]) -> dict[str, Tensor]:
    """`pixel_values` and `grid_thws` of the pictures; nothing where there is none."""
    shown = [picture for picture in pictures if picture is not None]
    return dict(zip(("pixel_values", "grid_thws"), preprocess_batch(shown), strict=True)) if shown else {}
