"""The demo: a small Kimi K3 that learns to recall on the CPU, and goes through every part of the package on its way.

It is trained, saved with MXFP4 experts, checked, loaded back with the experts still packed, and asked in text. The task
is recall from a context: a prompt names letters with a number each and ends with one of the letters; the answer is its
number, and then the model has to stop.

    Given K42 Q17 A83 T60; Q        ->  17

The numbers of a training context have an even sum and those of a held-out context an odd one, so that no context is in
both.
"""

from __future__ import annotations

import math
import random
import string
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from ascend_k3 import ops
from ascend_k3.attention import KimiDeltaAttention
from ascend_k3.bpe import train_bpe, write_tokenizer
from ascend_k3.checkpoint import load_model, save_model
from ascend_k3.config import K3Config, KDAConfig, TextConfig
from ascend_k3.doctor import check_checkpoint
from ascend_k3.files import new_folder
from ascend_k3.generation import generate
from ascend_k3.layout import tensor_specs
from ascend_k3.model import K3ForConditionalGeneration
from ascend_k3.moe import Experts
from ascend_k3.problems import format_problem
from ascend_k3.tokenizer import FEWEST_RESERVED, K3Tokenizer

LETTERS = string.ascii_uppercase
NUMBERS = range(10, 100)
END = "[EOS]"
# One token for each byte, each " A", each number, and what leads to "Given".
RANKS = 256 + len(LETTERS) + len(NUMBERS) + len("Given") - 1
VOCABULARY = RANKS + FEWEST_RESERVED

FEWEST_PAIRS, PAIRS = 4, 24  # at the start of training; from its middle on, and in held-out prompts
QUERIES = 6  # asked of one training context
BATCH = 32
STEPS = 100
LEARNING_RATE = 1.5e-2
WARMUP = 10  # steps
PACKED_FROM = 0.75  # part of the training after which the experts stay at MXFP4 values

HELD_OUT = 200  # prompts
SHOWN = 6
ENOUGH, UNTRAINED_BELOW = 0.95, 0.10  # exact answers, as parts of HELD_OUT
LOGITS_CHANGE = 1e-4  # by saving and loading, as a part of the largest logit; 0 where both add in the same order


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

    def prompt(self, letter: str) -> str:
        return f"{self.context} {letter}"

    def answer(self, letter: str) -> str:
        """What is right after `prompt(letter)`: the number and the end."""
        return f"{self.numbers[letter]}{END}"


def make_tokenizer(folder: Path) -> K3Tokenizer:
    """Write the tokenizer of the task's text into `folder`, and read it."""
    every_pair = "".join(f" {letter}{number}" for letter in LETTERS for number in NUMBERS)
    write_tokenizer(folder, train_bpe([f"Given{every_pair};"], RANKS), VOCABULARY)
    return K3Tokenizer.from_pretrained(folder)


def small_config(special_ids: dict[str, int]) -> K3Config:
    """A K3 with every mechanism of the language model: the smallest that learns this within a minute or two."""
    hidden = 64
    text = TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        num_hidden_layers=6,
        full_attn_layers=(2, 5),
        kda=KDAConfig(num_heads=2, head_dim=32, short_conv_kernel_size=4, gate_lower_bound=-5.0),
        num_attention_heads=2,
        q_lora_rank=64,
        kv_lora_rank=32,
        qk_nope_head_dim=32,
        qk_rope_head_dim=16,
        v_head_dim=32,
        intermediate_size=2 * hidden,
        first_k_dense_replace=1,
        num_experts=8,
        num_experts_per_token=2,
        num_shared_experts=1,
        moe_intermediate_size=32,
        routed_expert_hidden_size=32,
        routed_scaling_factor=1.0,
        activation_situ_beta=4.0,
        activation_situ_linear_beta=25.0,
        rms_norm_eps=1e-5,
        attn_res_block_size=2,
        max_position_embeddings=4096,
        bos_token_id=special_ids["[BOS]"],
        eos_token_id=special_ids[END],
        pad_token_id=special_ids["[PAD]"],
        metadata={"initializer_range": hidden**-0.5},
    )
    return K3Config(
        text=text,
        vision=None,
        media_placeholder_token_id=special_ids["<|media_pad|>"],
        image_placeholder="<|kimi_image_placeholder|>",
        metadata={"architectures": ["KimiK3ForConditionalGeneration"]},
    )


@torch.no_grad()
def initialize(model: K3ForConditionalGeneration, seed: int) -> None:
    """Draw the parameters such that recall is learned soon.

    KDA layers start as soft memories: a key is projected like a query, but made of the last four tokens instead of
    one, and the output projection is the transposed value projection, so that what was stored comes out alike. lm_head
    starts as the scaled embedding. Nothing of the task's letters and numbers is in that, and no answer is right before
    training; it saves the many steps in which plain draws would learn to copy.
    """
    generator = torch.Generator().manual_seed(seed)
    model.reset_parameters(generator)
    embedding, head = model.language_model.model.embed_tokens.weight, model.language_model.lm_head.weight
    embedding.normal_(0, 1, generator=generator)
    head.copy_(embedding * embedding.shape[1] ** -0.5)
    for module in model.modules():
        if isinstance(module, KimiDeltaAttention):
            module.k_proj.weight.copy_(module.q_proj.weight)
            module.o_proj.weight.copy_(module.v_proj.weight.T)
            for convolution in (module.q_conv1d, module.v_conv1d):
                convolution.weight.zero_()[..., -1] = 1
            module.k_conv1d.weight.fill_(0.5)


def training_batch(source: random.Random, tokenizer: K3Tokenizer, pairs: int) -> tuple[Tensor, Tensor]:
    """ids [BATCH, T], and of the same shape whether a token belongs to an answer: only those are learned."""
    rows, answers = [], []
    for _ in range(BATCH):
        task = Recall.draw(source, pairs, held_out=False)
        ids = tokenizer.encode(task.context)
        learned = [False] * len(ids)
        for letter in source.sample(list(task.numbers), min(QUERIES, pairs)):
            query = tokenizer.encode(f" {letter}")
            answer = tokenizer.encode(task.answer(letter), allow_special=True)
            ids += query + answer
            learned += [False] * len(query) + [True] * len(answer)
        rows.append(ids)
        answers.append(learned)
    return torch.tensor(rows), torch.tensor(answers)


def train(model: K3ForConditionalGeneration, tokenizer: K3Tokenizer, seed: int, steps: int) -> list[float]:
    """Train in place; the loss of each step (nats a token).

    Contexts grow from `FEWEST_PAIRS` to `PAIRS` in the first half. In the last quarter the experts are at values that
    MXFP4 holds exactly and only the rest goes on learning; at the end the rest is rounded to bf16. Saving with packed
    experts then changes nothing.
    """
    source = random.Random(f"training {seed}")
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.0)
    losses: list[float] = []
    with tqdm(total=steps, desc="training", unit="step", disable=None) as bar:
        for step in range(steps):
            part = step / steps
            if step == int(PACKED_FROM * steps):
                round_experts(model)
            for group in optimizer.param_groups:
                group["lr"] = LEARNING_RATE * min((step + 1) / WARMUP, 0.51 + 0.49 * math.cos(math.pi * part))
            pairs = min(PAIRS, FEWEST_PAIRS + int(2 * part * (PAIRS - FEWEST_PAIRS)))
            ids, learned = training_batch(source, tokenizer, pairs)
            logits = model(ids[:, :-1]).logits
            loss = functional.cross_entropy(logits[learned[:, 1:]], ids[:, 1:][learned[:, 1:]])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            bar.set_postfix(pairs=pairs, loss=f"{losses[-1]:.3f}", refresh=False)
            bar.update()
            if bar.disable and (step + 1) * 10 // steps > step * 10 // steps:
                print(f"  step {step + 1:3}/{steps}  {pairs:2} pairs  loss {losses[-1]:.3f}", flush=True)
    round_rest(model)
    return losses


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """A held-out prompt, the text that is right after it, and the text that the model gave."""

    prompt: str
    right: str
    given: str

    def __str__(self) -> str:
        return f"{self.prompt} -> {self.given}  {'right' if self.given == self.right else 'WRONG, it is ' + self.right}"


def ask(model: K3ForConditionalGeneration, tokenizer: K3Tokenizer, seed: int) -> list[Answered]:
    """The model's greedy answers to `HELD_OUT` prompts, which depend on the seed only."""
    source = random.Random(f"held-out {seed}")
    tasks = [Recall.draw(source, PAIRS, held_out=True) for _ in range(HELD_OUT)]
    letters = [source.choice(list(task.numbers)) for task in tasks]
    prompts = [task.prompt(letter) for task, letter in zip(tasks, letters, strict=True)]
    rows = generate(model, [tokenizer.encode(prompt) for prompt in prompts], max_new_tokens=4).tolist()
    end = tokenizer.special_ids[END]
    given = [tokenizer.decode(row[: row.index(end) + 1] if end in row else row) for row in rows]
    return [
        Answered(prompt=prompt, right=task.answer(letter), given=text)
        for prompt, task, letter, text in zip(prompts, tasks, letters, given, strict=True)
    ]


def exact(answers: list[Answered]) -> float:
    """The part of the answers that are right to the character, the end included."""
    return sum(answer.given == answer.right for answer in answers) / len(answers)


@torch.inference_mode()
def logits_change(model: K3ForConditionalGeneration, other: K3ForConditionalGeneration, ids: Tensor) -> float:
    """The largest difference of the logits of two models for ids [B, T], over the largest logit of the first."""
    expected = model(ids).logits
    return float((other(ids).logits - expected).abs().max() / expected.abs().max())


def is_success(untrained: list[Answered], reloaded: list[Answered], change: float) -> bool:
    """Whether training made the difference, the reloaded checkpoint answers, and its logits are those of before.

    The logits are asked for because answers alone would be right with wrong experts: attention does most of this task.
    """
    return exact(reloaded) >= ENOUGH and exact(untrained) < UNTRAINED_BELOW and change <= LOGITS_CHANGE


def run_demo(output: Path | None = None, seed: int = 0) -> bool:
    """Make, train, save, check, load and ask a small K3, telling what happens; whether all went as it should.

    Args:
        output: a folder that does not exist yet or is empty, for the checkpoint; None removes it at the end.
        seed: of parameters, training contexts and held-out contexts; the same seed gives the same model.
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
        task = Recall.draw(random.Random(f"held-out {seed}"), PAIRS, held_out=True)
        prompt = task.prompt(next(iter(task.numbers)))
        print(f'The checkpoint is in {output}. Ask it: ascend-k3 generate {output} --prompt "{prompt}"')
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
        f"{text.num_experts_per_token} of {text.num_experts} experts a token.\n"
        f"Its task: read {PAIRS} letters with a number each, then say the number of one letter, and stop."
    )
    before = ask(model, tokenizer, seed)
    print(f"Untrained: {_share(before)} held-out prompts are answered exactly. The first:\n  {before[0]}")

    training_start = time.perf_counter()
    losses = train(model, tokenizer, seed, steps)
    seconds = time.perf_counter() - training_start
    print(f"Trained {steps} steps in {seconds:.0f} s: loss {losses[0]:.2f} -> {losses[-1]:.4f}.")

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
    ids = torch.tensor([tokenizer.encode(answered.prompt) for answered in before[:SHOWN]])
    change = logits_change(model, reloaded, ids)
    print(
        f"Loaded back, the experts {'' if reloaded.packed_experts else 'NOT '}packed: logits differ from those before "
        f"saving by at most {change:g} of the largest (asked for: at most {LOGITS_CHANGE:g})."
    )
    after = ask(reloaded, tokenizer, seed)
    print(f"Reloaded: {_share(after)} held-out prompts are answered exactly. The first {SHOWN}:")
    print(*(f"  {answered}" for answered in after[:SHOWN]), sep="\n")
    succeeded = reloaded.packed_experts and is_success(before, after, change)
    print(
        f"{'Success' if succeeded else 'FAILED'} in {time.perf_counter() - start:.0f} s: {_share(after)} exact, "
        f"asked for at least {ENOUGH:.0%}; untrained {_share(before)}, asked for below {UNTRAINED_BELOW:.0%}."
    )
    return succeeded


def _share(answers: list[Answered]) -> str:
    return f"{exact(answers):.1%} of {len(answers)}"
