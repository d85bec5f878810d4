"""Recall from a context: a prompt names letters with a number each and ends with one of the letters; say its number.

    Given K42 Q17 A83 T60; Q        ->  17

The numbers of a training context have an even sum and those of a held-out context an odd one, so that no context is in
both.
"""

from __future__ import annotations

import random
import string
from dataclasses import dataclass

from ascend_k3.demo.lessons import END, Lesson, Question, make_lesson
from ascend_k3.tokenizer import K3Tokenizer

LETTERS = string.ascii_uppercase
NUMBERS = range(10, 100)
# What a tokenizer is to know: with 26 + 90 + 4 merges each " A", each number and "Given" are one token.
TEXT = "Given" + "".join(f" {letter}{number}" for letter in LETTERS for number in NUMBERS) + ";"
MERGES = len(LETTERS) + len(NUMBERS) + len("Given") - 1

PAIRS = 24  # in held-out prompts
QUERIES = 4  # asked of one training context, of 62 tokens then: one chunk of KDA
HELD_OUT = 200  # prompts


@dataclass(frozen=True, kw_only=True, slots=True)
class Recall:
    """One context: which number each letter has, in the order of the text."""

    numbers: dict[str, int]

    @classmethod
    def draw(cls, source: random.Random, pairs: int, *, held_out: bool) -> Recall:
        numbers = [source.choice(NUMBERS) for _ in range(pairs)]
        numbers[-1] ^= (
            sum(numbers) % 2 != held_out
        )  # to the neighbour 10|11, 12|13, ... where the sum is of the other set
        return cls(numbers=dict(zip(source.sample(LETTERS, pairs), numbers, strict=True)))

    @property
    def context(self) -> str:
        return "Given" + "".join(f" {letter}{number}" for letter, number in self.numbers.items()) + ";"

    def ask(self, letter: str) -> Question:
        return Question(prompt=f"{self.context} {letter}", answer=f"{self.numbers[letter]}{END}")


def draw_lesson(source: random.Random, tokenizer: K3Tokenizer, pairs: int) -> Lesson:
    """A training context and up to `QUERIES` of its letters."""
    task = Recall.draw(source, pairs, held_out=False)
    letters = source.sample(list(task.numbers), min(QUERIES, pairs))
    return make_lesson(tokenizer, task.context, [task.ask(letter) for letter in letters])


def held_out_questions(seed: int) -> list[Question]:
    """`HELD_OUT` prompts, which depend on the seed only."""
    source = random.Random(f"held-out {seed}")
    tasks = [Recall.draw(source, PAIRS, held_out=True) for _ in range(HELD_OUT)]
    return [task.ask(source.choice(list(task.numbers))) for task in tasks]
