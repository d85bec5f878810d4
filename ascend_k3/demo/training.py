"""How the small K3 learns both tasks in one run."""

from __future__ import annotations

import math
import random

import torch
from torch.nn import functional
from tqdm import tqdm

from ascend_k3 import ops
from ascend_k3.demo import pictures, recall
from ascend_k3.demo.lessons import Batch
from ascend_k3.layout import tensor_specs
from ascend_k3.model import K3ForConditionalGeneration
from ascend_k3.moe import Experts
from ascend_k3.tokenizer import K3Tokenizer

STEPS = 130
WARMUP = 10  # steps, of the language model and again of the vision tower
PICTURES_FROM = 0.3  # part of the training after which pictures join
FEWEST_PAIRS = 4  # in a context at the start; `recall.PAIRS` from shortly before pictures join
CONTEXTS, CONTEXTS_BESIDE, PICTURES = 32, 10, 48  # rows of a step: contexts alone; then fewer beside pictures
RATE, RATE_BESIDE, RATE_VISION = 1.5e-2, 6e-3, 4e-3  # of learning: the language model alone, then beside; the tower
PACKED_FROM = 0.75  # part of the training after which the experts stay at MXFP4 values


def train(model: K3ForConditionalGeneration, tokenizer: K3Tokenizer, seed: int, steps: int) -> list[dict[str, float]]:
    """Train in place; the losses of each step (nats a token of an answer) by task.

    It begins with recall alone, whose contexts grow from `FEWEST_PAIRS` to `recall.PAIRS`. From `PICTURES_FROM` on each
    step is a batch of contexts and one of pictures. In the last quarter the experts are at
    values that MXFP4 holds exactly and only the rest goes on learning; at the end the rest is rounded to bf16. Saving
    with packed experts then changes nothing.
    """
    source = random.Random(f"training {seed}")
    language = list(model.language_model.parameters())
    vision = [*model.vision_tower.parameters(), *model.mm_projector.parameters()]
    optimizer = torch.optim.AdamW([{"params": language}, {"params": vision}], betas=(0.9, 0.95), weight_decay=0.0)
    losses: list[dict[str, float]] = []
    with tqdm(total=steps, desc="training", unit="step", disable=None) as bar:
        for step in range(steps):
            if step == int(PACKED_FROM * steps):
                round_experts(model)
            for group, rate in zip(optimizer.param_groups, learning_rates(step, steps), strict=True):
                group["lr"] = rate
            losses.append(learn(model, optimizer, draw_batches(source, tokenizer, step / steps)))
            bar.set_postfix(losses[-1], refresh=False)
            bar.update()
            if bar.disable and (step + 1) * 10 // steps > step * 10 // steps:
                print(f"  step {step + 1:3}/{steps}  loss of {show_losses(losses[-1])}", flush=True)
    round_rest(model)
    return losses


def learning_rates(step: int, steps: int) -> tuple[float, float]:
    """Of the language model and of vision: falling to half until pictures join, then both anew, as a cosine."""
    since = step / steps - PICTURES_FROM
    if since < 0:
        return RATE * min(1, (step + 1) / WARMUP) * 0.5 * (1 - since / PICTURES_FROM), 0.0
    decay = 0.51 + 0.49 * math.cos(math.pi * since / (1 - PICTURES_FROM))
    return RATE_BESIDE * decay, RATE_VISION * min((since * steps + 1) / WARMUP, decay)


def draw_batches(source: random.Random, tokenizer: K3Tokenizer, part: float) -> dict[str, Batch]:
    """The rows of one step by task, after this part of the training. Rows of a batch are about equally long."""
    if part < PICTURES_FROM:
        more = int((recall.PAIRS - FEWEST_PAIRS) * part / (0.8 * PICTURES_FROM))
        pairs = min(recall.PAIRS, FEWEST_PAIRS + more)
        return {"recall": Batch.pack([recall.draw_lesson(source, tokenizer, pairs) for _ in range(CONTEXTS)])}
    contexts = [recall.draw_lesson(source, tokenizer, recall.PAIRS) for _ in range(CONTEXTS_BESIDE)]
    shown = [pictures.draw_lesson(source, tokenizer) for _ in range(PICTURES)]
    return {"recall": Batch.pack(contexts), "pictures": Batch.pack(shown)}


def learn(
    model: K3ForConditionalGeneration, optimizer: torch.optim.Optimizer, batches: dict[str, Batch]
) -> dict[str, float]:
    """One step on the sum of the tasks' losses; each of them."""
    optimizer.zero_grad()
    losses = {}
    for task, batch in batches.items():
        learned = batch.learned[1:]
        logits = model(**batch.inputs).logits[0, :-1]
        loss = functional.cross_entropy(logits[learned], batch.inputs["input_ids"][0, 1:][learned])
        loss.backward()
        losses[task] = loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return losses


def show_losses(losses: dict[str, float]) -> str:
    """Such as "recall 0.0123, pictures 0.0456"."""
    return ", ".join(f"{task} {loss:.4f}" for task, loss in losses.items())


@torch.no_grad()
def round_experts(model: K3ForConditionalGeneration) -> None:
    """Round the routed experts to the MXFP4 values that `save_model` would store, and keep them there."""
    for module in model.modules():
        if isinstance(module, Experts):
            for weight in (module.w13, module.w2):
                packed = ops.mx_quantize(weight, format="mxfp4", rule="even")
                weight.copy_(ops.mx_dequantize(packed, dtype=weight.dtype))
                weight.requires_grad_(False)


@torch.no_grad()
def round_rest(model: K3ForConditionalGeneration) -> None:
    """Round to bf16 what checkpoints keep in bf16; MXFP4 values stay as they are, for bf16 holds all of them."""
    stored = {spec.name for spec in tensor_specs(model.config) if spec.dtype == "BF16"}
    for name, value in model.state_dict().items():
        if name in stored:
            value.copy_(value.bfloat16())
