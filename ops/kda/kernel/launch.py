"""Launches of the kernels of Kimi Delta Attention."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ascend_k3.ops.errors import NoKernelError
from ascend_k3.ops.kernels import TYPES, KernelLaunch, one_dtype

HERE = Path(__file__).parent
DTYPES = (torch.float32, torch.bfloat16)
WIDTHS = (64, 128)
VARIANTS = tuple(
    {"DTYPE": TYPES[dtype], "BETA": TYPES[beta], "WIDTH": width}
    for dtype, beta in (
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.bfloat16),
        (torch.bfloat16, torch.float32),
    )
    for width in WIDTHS
)
KDA = KernelLaunch(folder=HERE, source="kda.cpp", entry="kda", variants=VARIANTS)


def kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float,
    scale: float,
    initial_state: Tensor | None,
    cu_seqlens: Tensor | None,
    chunk_size: int,
) -> tuple[Tensor, Tensor]:
    """The kernel works in chunks of 64 whatever `chunk_size` is: it changes no result beyond rounding."""
    dtype = one_dtype("kda", DTYPES, q=q, k=k, v=v, g=g)
    if beta.dtype != torch.float32:
        one_dtype("kda", DTYPES, q=q, beta=beta)
    batch, length, heads, width = q.shape
    if v.shape[3] != width or width not in WIDTHS:
        raise NoKernelError(
            f"kda: its kernel takes keys and values of one width, 64 or 128; they have {width} and {v.shape[3]}. "
            "Use the reference."
        )
    if cu_seqlens is None:
        cu_seqlens = torch.arange(batch + 1, device=q.device) * length
    sequences = cu_seqlens.shape[0] - 1
    o = torch.empty_like(v, memory_format=torch.contiguous_format)
    states = q.new_empty(sequences, heads, width, width, dtype=torch.float32)
    if not sequences:
        return o, states
    initial = states.new_empty(0) if initial_state is None else initial_state.float().contiguous()
    KDA.run(
        inputs=(
            *(x.contiguous() for x in (q, k, v, g, beta)),
            A_log.float().contiguous(),
            dt_bias.float().contiguous(),
            cu_seqlens.long().contiguous(),
            initial,
        ),
        outputs=(o, states),
        sizes=(sequences, batch * length, heads, width, q.element_size(), initial_state is not None),
        numbers=(lower_bound, scale),
        defines={"DTYPE": TYPES[dtype], "BETA": TYPES[beta.dtype], "WIDTH": width},
    )
    return o, states
