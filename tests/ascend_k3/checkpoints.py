"""The tiny checkpoints of the fixtures, loaded once a session."""

from __future__ import annotations

import functools
from typing import Literal

import torch
from safetensors.torch import load_file
from torch import Tensor

from ascend_k3 import K3ForConditionalGeneration, load_model
from tests.paths import FIXTURES

NAMES = ("ckpt_bf16", "ckpt_mxfp4", "ckpt_kernel")


@functools.cache
def tiny(
    name: str, dtype: torch.dtype = torch.float32, experts: Literal["keep"] | torch.dtype = "keep"
) -> K3ForConditionalGeneration:
    """Do not change what this returns: other tests use the same model."""
    return load_model(FIXTURES / name, dtype=dtype, experts=experts)


@functools.cache
def expected(name: str) -> dict[str, Tensor]:
    return load_file(FIXTURES / f"{name}_expected.safetensors")
