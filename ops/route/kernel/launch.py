"""Launch of the routing kernel."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ascend_k3.ops.kernels import TYPES, KernelLaunch, for_dtypes, one_dtype

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ROUTE = KernelLaunch(folder=Path(__file__).parent, source="route.cpp", entry="route", variants=for_dtypes(*DTYPES))


def route(logits: Tensor, bias: Tensor, top_k: int, renormalize: bool, scaling_factor: float) -> tuple[Tensor, Tensor]:
    dtype = one_dtype("route", DTYPES, logits=logits)
    tokens, experts = logits.shape
    weights = logits.new_empty(tokens, top_k)
    ids = logits.new_empty(tokens, top_k, dtype=torch.int64)
    if tokens:
        ROUTE.run(
            inputs=(logits.contiguous(), bias.float().contiguous()),
            outputs=(weights, ids),
            sizes=(tokens, experts, top_k, logits.element_size(), renormalize),
            numbers=(scaling_factor,),
            defines={"DTYPE": TYPES[dtype]},
        )
    return weights, ids
