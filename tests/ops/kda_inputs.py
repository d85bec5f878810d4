"""Inputs of KDA that its tests share: fixtures, random ones, hard ones."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.paths import FIXTURES

LENGTHS = (1, 2, 7, 15, 16, 17, 63, 64, 65)
HARD = ("collinear", "floor", "half-floor", "one-channel", "huge", "zero-rows")
BOUND = -5.0
INPUTS = ("q", "k", "v", "g", "beta")
WEIGHTS = ("A_log", "dt_bias")


def fixture_names(pattern: str, exclude: str = "\0") -> list[str]:
    names = sorted(str(p.relative_to(FIXTURES)) for p in FIXTURES.glob(pattern) if exclude not in p.name)
    assert names, f"no fixture matches {pattern}"
    return names


def call(function, x: dict[str, Tensor], **options):
    return function(
        *(x[name] for name in INPUTS),
        A_log=x["A_log"],
        dt_bias=x["dt_bias"],
        lower_bound=BOUND,
        initial_state=x.get("initial_state"),
        cu_seqlens=x.get("cu_seqlens"),
        **options,
    )


def random_inputs(
    length: int, *, batch: int = 1, heads: int = 2, width: int = 32, value: int = 32, dtype=torch.float32, seed: int = 0
) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    return {
        "q": normal(batch, length, heads, width),
        "k": normal(batch, length, heads, width),
        "v": normal(batch, length, heads, value),
        "g": normal(batch, length, heads, width),
        "beta": normal(batch, length, heads),
        "A_log": normal(heads) * 0.5,
        "dt_bias": normal(heads * width) - 2,
        "initial_state": normal(batch, heads, value, width).to(torch.promote_types(dtype, torch.float32)),
    }


def hard_inputs(kind: str, length: int = 130, width: int = 64, dtype=torch.float32) -> dict[str, Tensor]:
    """What KDA kernels were wrong on: nearly equal keys without decay, gates at the floor, saturated strengths."""
    x = random_inputs(length, width=width, value=width, dtype=dtype)
    if kind == "collinear":
        direction = torch.randn(width, generator=torch.Generator().manual_seed(1)).to(dtype)
        x["k"] = direction + 0.1 * x["k"]
        x["beta"] = torch.full_like(x["beta"], 6.0)
        x["g"] = torch.full_like(x["g"], -30.0)
    elif kind == "floor":
        x["g"] = torch.full_like(x["g"], 30.0)
    elif kind == "half-floor":  # a sub-chunk that decays fully beside one that does not
        x["g"] = (
            torch.where(torch.arange(length)[None, :, None, None] % 32 < 16, 30.0, -30.0)
            .to(dtype)
            .expand_as(x["g"])
            .clone()
        )
    elif kind == "one-channel":
        x["g"][..., 1:] = -30.0
        x["g"][..., 0] = 30.0
    elif kind == "huge":
        x["k"], x["q"], x["v"] = x["k"] * 1e4, x["q"] * 1e4, x["v"] * 1e3
    elif kind == "zero-rows":
        x["k"][:, ::3] = 0
        x["q"][:, ::5] = 0
    return x
