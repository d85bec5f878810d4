"""Speed of the reference operators beside the obvious alternative, in one run: `make bench`.

Every figure is single-threaded CPU time, the minimum of several runs; the two sides of a ratio run in turn. Before a
pair is timed it is compared: a faster operator that computes something else is an error. The table goes to the terminal
and, generated and never typed, to benchmarks/RESULTS.md.
"""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from unittest import mock

import naive
import torch
from torch import Tensor

from ascend_k3 import K3Config, K3ForConditionalGeneration, ops
from ascend_k3.config import KDAConfig, TextConfig

RUNS = 5
AGREEMENT = 1e-4  # largest difference over largest magnitude, float32


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; times in milliseconds."""

    name: str
    ours: list[float]
    other: list[float]
    other_name: str

    def cells(self) -> list[str]:
        best, other = min(self.ours), min(self.other)
        spread = f"{max(self.ours) / best:.2f} / {max(self.other) / other:.2f}"
        return [self.name, f"{best:.1f}", f"{other:.1f}", self.other_name, f"{other / best:.1f}", spread]


def cpu_ms(function: Callable[[], object]) -> float:
    begin = time.process_time()
    function()
    return (time.process_time() - begin) * 1e3


def compare(
    name: str, ours: Callable[[], Tensor], other: Callable[[], Tensor], other_name: str, runs: int = RUNS
) -> Row:
    a, b = ours(), other()
    difference = float((a - b).abs().max() / b.abs().max())
    if not difference <= AGREEMENT:
        raise RuntimeError(f"{name}: the two sides differ by {difference:.1e} of the largest value.")
    pairs = [(cpu_ms(ours), cpu_ms(other)) for _ in range(runs)]
    print(f"  {name}: done", flush=True)
    return Row(name, [x for x, _ in pairs], [y for _, y in pairs], other_name)


def kda_rows() -> Iterator[Row]:
    length, heads, width = 2048, 4, 128
    inputs = [torch.randn(1, length, heads, width) for _ in range(4)] + [torch.randn(1, length, heads)]
    weights = {"A_log": torch.zeros(heads), "dt_bias": torch.randn(heads * width) - 2, "lower_bound": -5.0}
    grad = torch.randn(1, length, heads, width)

    def forward(function: Callable[..., tuple[Tensor, Tensor]]) -> Callable[[], Tensor]:
        def run() -> Tensor:
            with torch.no_grad():
                return function(*inputs, **weights)[0]

        return run

    def both(function: Callable[..., tuple[Tensor, Tensor]]) -> Callable[[], Tensor]:
        def run() -> Tensor:
            leaves = [x.detach().requires_grad_() for x in inputs]
            o, state = function(*leaves, **weights)
            return torch.cat([x.flatten() for x in torch.autograd.grad((o * grad).sum() + state.sum(), leaves)])

        return run

    shape = f"T={length} H={heads} D={width}"
    yield compare(f"KDA forward, {shape}", forward(ops.kda), forward(naive.kda_recurrence), "token by token")
    in_place = forward(naive.kda_recurrence_in_place)
    yield compare(f"KDA forward, {shape}", forward(ops.kda), in_place, "token by token, in place, no gradient")
    yield compare(f"KDA forward+backward, {shape}", both(ops.kda), both(naive.kda_recurrence), "token by token", runs=3)


def moe_row(tokens: int, experts: int, top_k: int) -> Row:
    latent, inner = 256, 128
    x = torch.randn(tokens, latent)
    w13, w2 = torch.randn(experts, 2 * inner, latent) / 16, torch.randn(experts, latent, inner) / 11
    weights, ids = ops.route(torch.randn(tokens, experts), torch.zeros(experts), top_k=top_k)
    bounds = {"beta": 4.0, "linear_beta": 25.0}
    return compare(
        f"experts, {tokens} tokens, {experts} experts, top {top_k}",
        lambda: ops.fused_experts(x, weights, ids, w13, w2, **bounds),
        lambda: naive.fused_experts(x, weights, ids, w13, w2, **bounds),
        "loop over experts",
    )


def small_model() -> K3ForConditionalGeneration:
    text = TextConfig(
        vocab_size=512,
        hidden_size=256,
        num_hidden_layers=8,
        full_attn_layers=(3, 7),
        kda=KDAConfig(num_heads=4, head_dim=64, short_conv_kernel_size=4, gate_lower_bound=-5.0),
        num_attention_heads=4,
        q_lora_rank=128,
        kv_lora_rank=128,
        qk_nope_head_dim=64,
        qk_rope_head_dim=32,
        v_head_dim=64,
        intermediate_size=512,
        first_k_dense_replace=1,
        num_experts=32,
        num_experts_per_token=4,
        num_shared_experts=1,
        moe_intermediate_size=128,
        routed_expert_hidden_size=128,
        routed_scaling_factor=1.0,
        activation_situ_beta=4.0,
        activation_situ_linear_beta=25.0,
        rms_norm_eps=1e-5,
        attn_res_block_size=4,
        max_position_embeddings=131072,
        bos_token_id=488,
        eos_token_id=490,
        pad_token_id=511,
    )
    config = K3Config(text=text, vision=None, media_placeholder_token_id=500, image_placeholder="<|image|>")
    torch.manual_seed(0)
    model = K3ForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:  # activations of about one, as in a trained model
                parameter.normal_(0, parameter.shape[-1] ** -0.5)
    return model.eval()


@contextmanager
def naive_operators() -> Iterator[None]:
    names = ("causal_conv1d", "fused_experts", "attention_residual", "mla_prefill")
    with mock.patch.multiple(ops, kda=naive.kda_recurrence, **{name: getattr(naive, name) for name in names}):
        yield


def model_row() -> Row:
    model, tokens = small_model(), torch.randint(0, 480, (1, 1024))

    def ours() -> Tensor:
        with torch.no_grad():
            return model(tokens).logits

    def with_naive() -> Tensor:
        with naive_operators():
            return ours()

    return compare("small model forward, T=1024", ours, with_naive, "naive operators")


@dataclass(frozen=True, slots=True)
class Decode:
    """CPU milliseconds of one token at a context, by part of the model."""

    context: int
    total: float
    kda: float
    mla: float


@torch.no_grad()
def decode_rows() -> Iterator[Decode]:
    model = small_model()
    spent = {"kda": 0.0, "mla": 0.0}
    for layer, module in enumerate(model.language_model.model.layers):
        kind = "mla" if model.config.text.is_full_attention(layer) else "kda"
        inner = module.self_attn.forward

        def timed(*args: object, inner: Callable[..., Tensor] = inner, kind: str = kind) -> Tensor:
            begin = time.process_time()
            out = inner(*args)
            spent[kind] += (time.process_time() - begin) * 1e3
            return out

        module.self_attn.forward = timed
    for context in (1024, 8192, 65536):
        cache = model.new_cache(max_sequences=1, max_tokens=context + RUNS + 1)
        for piece in torch.randint(0, 480, (1, context)).split(4096, 1):
            model(piece, cache=cache, logits_to_keep=1)
        best = Decode(context, float("inf"), 0, 0)
        for _ in range(RUNS):
            spent.update(kda=0.0, mla=0.0)
            total = cpu_ms(lambda cache=cache: model(torch.tensor([[1]]), cache=cache))
            if total < best.total:
                best = replace(best, total=total, **spent)
        print(f"  decode at {context} tokens: done", flush=True)
        yield best


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def commit() -> str:
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = [*kda_rows(), moe_row(512, 256, 8), moe_row(4, 896, 16), model_row()]
    decode = list(decode_rows())
    text = "\n".join(
        [
            "# Benchmarks",
            "",
            f"Written by `make bench` on {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC; commit {commit()}; "
            f"{processor()}, one thread; Python {platform.python_version()}, torch {torch.__version__}; float32. "
            f"CPU time, minimum of {RUNS} runs (3 for forward+backward); spread is slowest over fastest, ours / other. "
            "Nothing here was run on an NPU.",
            "",
            table(["what", "ours, ms", "other, ms", "other", "ratio", "spread"], [row.cells() for row in rows]),
            "",
            "One token of the small model (6 KDA and 2 Gated MLA layers) at a context:",
            "",
            table(
                ["context", "token, ms", "KDA layers, ms", "MLA layers, ms"],
                [[f"{d.context:,}", f"{d.total:.1f}", f"{d.kda:.1f}", f"{d.mla:.1f}"] for d in decode],
            ),
            "",
        ]
    )
    (Path(__file__).parent / "RESULTS.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
