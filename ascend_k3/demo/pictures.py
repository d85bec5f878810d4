"""Pictures: one shape in one colour on a light ground, and a question about it.

    (a picture of a red ring) What colour?     ->  red
    (a picture of a red ring) Which shape?     ->  ring

A scene is a colour, a shape and the corner that the shape is moved to; its size, its exact place, its shade and the
ground differ from picture to picture. Each colour and shape is held out in one of the four corners and seen in the
three others, so that no scene is in both sets. Held-out questions have every colour, and every shape, equally often:
who does not see the picture is right once in six or once in four.
"""

from __future__ import annotations

import random
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from ascend_k3.demo.lessons import END, Lesson, Question, make_lesson
from ascend_k3.tokenizer import K3Tokenizer

COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 160, 60),
    "blue": (50, 80, 220),
    "yellow": (240, 220, 50),
    "purple": (150, 50, 190),
    "orange": (245, 140, 30),
}
SHAPES = ("ring", "square", "triangle", "cross")
CORNERS = ("top left", "top right", "bottom left", "bottom right")
SIDE = 56  # pixels: 4 x 4 patches, 4 tokens
SIZES = range(39, 51)  # of a shape, in pixels
SHADE, GROUND = 12, (225, 255)  # how far a colour goes up or down; the gray of the ground

COLOUR, SHAPE = "What colour?", "Which shape?"
PROMPTS = (COLOUR, SHAPE)
# What a tokenizer is to know: with MERGES merges each of these words is one token.
WORDS = ("image", "What", " colour", "Which", " shape", *COLOURS, *SHAPES)
MERGES = 54

Rows = np.ndarray[Any, Any]
Box = tuple[int, int, int, int]  # left, top, right, bottom
Colour = tuple[int, int, int]
COLUMNS = SIDE // 2  # characters of a line of `as_text`
INK = 40  # of 255: where the channels differ by more, it is the shape, for the ground is gray

ROUNDS = 3  # over the held-out scenes
BLIND = (1 / len(COLOURS) + 1 / len(SHAPES)) / 2  # the part that a constant answer to each question gets right


class Scene(NamedTuple):
    colour: str
    shape: str
    corner: str

    @property
    def held_out(self) -> bool:
        places = (list(COLOURS).index(self.colour), SHAPES.index(self.shape), CORNERS.index(self.corner))
        return sum(places) % len(CORNERS) == 0

    def draw(self, source: random.Random) -> Image.Image:
        """A picture of the scene, `SIDE` x `SIDE` pixels, RGB."""
        size = source.choice(SIZES)
        room = SIDE - 1 - size
        nearer = range((room + 1) // 2)  # the middle itself is in no corner
        down, right = divmod(CORNERS.index(self.corner), 2)
        x, y = ((room - gap if far else gap) for far in (right, down) for gap in [source.choice(nearer)])
        ground = (source.randint(*GROUND),) * 3
        red, green, blue = (min(255, value + source.randint(-SHADE, SHADE)) for value in COLOURS[self.colour])
        image = Image.new("RGB", (SIDE, SIDE), ground)
        _draw_shape(ImageDraw.Draw(image), self.shape, (x, y, x + size, y + size), (red, green, blue), ground)
        return image

    def ask(self, prompt: str, picture: Image.Image) -> Question:
        answer = {COLOUR: self.colour, SHAPE: self.shape}[prompt]
        return Question(prompt=prompt, answer=answer + END, picture=picture)


SCENES = [Scene(*names) for names in product(COLOURS, SHAPES, CORNERS)]
TRAINING = [scene for scene in SCENES if not scene.held_out]
HELD_OUT = [scene for scene in SCENES if scene.held_out]


def draw_lesson(source: random.Random, tokenizer: K3Tokenizer) -> Lesson:
    """A picture of a training scene, and both questions in any order."""
    scene = source.choice(TRAINING)
    picture = scene.draw(source)
    return make_lesson(tokenizer, "", [scene.ask(prompt, picture) for prompt in source.sample(PROMPTS, len(PROMPTS))])


def held_out_questions(seed: int) -> list[Question]:
    """Each question of each held-out scene, `ROUNDS` times, always with a new picture; they depend on the seed only."""
    source = random.Random(f"held-out pictures {seed}")
    questions = [
        scene.ask(prompt, scene.draw(source)) for _ in range(ROUNDS) for scene in HELD_OUT for prompt in PROMPTS
    ]
    source.shuffle(questions)
    return questions


def as_text(picture: Image.Image, *, colour: bool) -> list[str]:
    """The picture in half blocks, 14 lines of `COLUMNS` characters: its colours by ANSI codes, or the shape alone."""
    pixels = np.asarray(picture.convert("RGB").resize((COLUMNS, COLUMNS), Image.Resampling.BOX)).astype(int)
    if colour:
        return ["".join(map(_half_block, upper, lower)) + "\x1b[0m" for upper, lower in _row_pairs(pixels)]
    ink = np.ptp(pixels, axis=-1) > INK
    return ["".join(" ▀▄█"[up + 2 * low] for up, low in zip(*rows, strict=True)) for rows in _row_pairs(ink)]


def _row_pairs(rows: Rows) -> list[tuple[Rows, Rows]]:
    return list(zip(rows[::2], rows[1::2], strict=True))


def _half_block(upper: Rows, lower: Rows) -> str:
    """One character of two pixels: the upper one in front, the lower one behind it."""
    front, back = (";".join(map(str, pixel)) for pixel in (upper, lower))
    return f"\x1b[38;2;{front};48;2;{back}m▀"


def _draw_shape(draw: ImageDraw.ImageDraw, shape: str, box: Box, colour: Colour, ground: Colour) -> None:
    left, top, right, bottom = box
    third, quarter = (right - left) // 3, (right - left) // 4
    if shape == "ring":
        draw.ellipse(box, fill=colour)
        draw.ellipse((left + quarter, top + quarter, right - quarter, bottom - quarter), fill=ground)
    elif shape == "square":
        draw.rectangle(box, fill=colour)
    elif shape == "triangle":
        draw.polygon(((left, bottom), (right, bottom), ((left + right) // 2, top)), fill=colour)
    else:  # cross
        draw.rectangle((left + third, top, right - third, bottom), fill=colour)
        draw.rectangle((left, top + third, right, bottom - third), fill=colour)
