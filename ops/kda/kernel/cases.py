"""Calls on which the kernels of KDA are tried."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ascend_k3.ops.kda import cost, kda, kda_decode
from ascend_k3.ops.kernel_cases import Case
from ascend_k3.ops.tolerances import KDA_GRADIENT_RMS, KDA_STATE_RMS, RELATIVE_RMS

NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
BOUND = -5.0
# One for o and the states: what o has to keep in bf16, what the states have to keep in float32.
TOLERANCES = RELATIVE_RMS | {torch.float32: KDA_STATE_RMS[torch.float32]}
# lengths of packed sequences, heads, width
SHAPES = (
    ((1,), 1, 64),
    ((64, 64), 2, 128),
    ((0, 17, 0, 130), 3, 64),
    ((300,), 3, 128),
)
REPORTED = ((2048,), 4, 128)  # docs/kda.md has its figures
REPORTED_GRADIENT = ((512,), 2, 128)
MUTATED = ((0, 17, 0, 130), 3, 64)  # two blocks' worth of pairs of heads, an idle vector core, tails
# of the decode: sequences, tokens, heads, width
STEPS = ((1, 1, 1, 64), (5, 1, 2, 64), (4, 3, 2, 128), (3, 8, 1, 128))
MUTATED_STEPS = STEPS[1:]  # several heads and parts of heads a core, odd and most tokens
JUDGED_STEPS = ((1, 1, 6, 128), (1, 1, 96, 128), (4, 1, 96, 128), (2, 8, 96, 128))


def _arguments(
    lengths: Sequence[int], heads: int, width: int, dtype: torch.dtype, initial: bool = True
) -> tuple[list[Tensor], dict[str, Any]]:
    """q, k, v, g and beta, and what else `kda` takes."""
    source = torch.Generator().manual_seed(sum(lengths) * 1000 + width)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source)

    tokens = [normal(1, sum(lengths), heads, width).to(dtype) for _ in range(4)]
    tokens.append(normal(1, sum(lengths), heads).to(dtype))
    return tokens, {
        "A_log": normal(heads) / 2,
        "dt_bias": normal(heads * width) - 2,
        "initial_state": normal(len(lengths), heads, width, width) if initial else None,
        "cu_seqlens": torch.tensor([0, *torch.tensor(lengths).cumsum(0)]),
    }


def kda_call(
    lengths: Sequence[int], heads: int, width: int, dtype: torch.dtype, initial: bool = True
) -> tuple[Tensor, Tensor]:
    tokens, options = _arguments(lengths, heads, width, dtype, initial)
    return kda(*tokens, lower_bound=BOUND, **options)


def _backward(lengths: Sequence[int], heads: int, width: int, dtype: torch.dtype) -> list[Tensor]:
    """The gradients alone, as the backward pass calls them."""
    tokens, options = _arguments(lengths, heads, width, dtype)
    source = torch.Generator().manual_seed(width)
    state = options["initial_state"]
    grads = [torch.randn(x.shape, generator=source).to(x.dtype) for x in (tokens[2], state)]
    found: list[Tensor] = torch.ops.ascend_k3.kda_backward(
        grads,
        [True] * 8,
        *tokens,
        options["A_log"],
        options["dt_bias"],
        BOUND,
        width**-0.5,
        state,
        options["cu_seqlens"],
        64,
    )
    return found


def _decode(
    sequences: int, tokens: int, heads: int, width: int, partly: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """o and the pool, in which the slots are in falling order and one is free.

    partly: one of the rows is padding, and of the tokens of the others only some stay in the state.
    """
    source = torch.Generator().manual_seed(sequences * 1000 + tokens * 100 + width)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source)

    q, k, v, g = (normal(sequences, tokens, heads, width).to(dtype) for _ in range(4))
    pool = normal(sequences + 1, heads, width, width)
    slots = torch.arange(sequences, 0, -1)
    if partly:
        slots[1] = -1
    o = kda_decode(
        q,
        k,
        v,
        g,
        normal(sequences, tokens, heads).to(dtype),
        pool,
        slots,
        A_log=normal(heads) / 2,
        dt_bias=normal(heads * width) - 2,
        lower_bound=BOUND,
        num_accepted=torch.arange(sequences) % (tokens + 1) if partly else None,
    )
    return o, pool


CHUNKS = [
    Case(
        name=f"kda {'+'.join(map(str, lengths))} x {heads} heads of {width} {NAMES[dtype]}",
        call=partial(kda_call, lengths, heads, width, dtype),
        dtype=dtype,
        cost=cost.kda(
            lengths=lengths,
            heads=heads,
            key=width,
            value=width,
            dtype=NAMES[dtype],
            initial_state=True,
            index_dtype="int64",
        ),
        reported=(lengths, heads, width) == REPORTED,
        mutated=(lengths, heads, width) == MUTATED,
        tolerances=TOLERANCES,
    )
    for lengths, heads, width, dtypes in (*((*shape, tuple(NAMES)) for shape in SHAPES), (*REPORTED, (torch.bfloat16,)))
    for dtype in dtypes
]

DECODE = [
    Case(
        name=f"kda_decode {sequences} x {tokens} tokens x {heads} heads of {width} {NAMES[dtype]}"
        + (", some accepted" if partly else ""),
        call=partial(_decode, sequences, tokens, heads, width, partly, dtype),
        dtype=dtype,
        cost=cost.kda_decode(
            lengths=[tokens] * (sequences - partly),
            heads=heads,
            key=width,
            value=width,
            dtype=NAMES[dtype],
            num_accepted=partly,
        ),
        judged=judged,
        mutated=(sequences, tokens, heads, width) in MUTATED_STEPS,
    )
    for steps, dtypes, judged in ((STEPS, tuple(NAMES), False), (JUDGED_STEPS, (torch.bfloat16,), True))
    for sequences, tokens, heads, width in steps
    for dtype in dtypes
    if width == 128 or dtype == torch.bfloat16
    for partly in ([False, True] if tokens > 1 and not judged else [False])
]
GRADIENTS = [
    Case(
        name=f"kda_backward {'+'.join(map(str, lengths))} x {heads} heads of {width} {NAMES[dtype]}",
        call=partial(_backward, lengths, heads, width, dtype),
        dtype=dtype,
        cost=cost.kda_backward(
            lengths=lengths,
            heads=heads,
            key=width,
            value=width,
            dtype=NAMES[dtype],
            initial_state=True,
            index_dtype="int64",
        ),
        reported=(lengths, heads, width) == REPORTED_GRADIENT,
        mutated=(lengths, heads, width) == MUTATED,
        tolerances=KDA_GRADIENT_RMS,
    )
    for lengths, heads, width, dtypes in (
        *((*shape, tuple(NAMES)) for shape in SHAPES[1:3]),
        (*REPORTED_GRADIENT, (torch.bfloat16,)),
    )
    for dtype in dtypes
]
CASES = [*CHUNKS, *DECODE, *GRADIENTS]

_IN_ORDER = "FIX_M of a part of L0C: fixpipe is in order; a later store is waited for before the part is written again"
EQUIVALENT = {
    "event 89": "V_MTE2 of the squares: the gradient brings nothing to UB before the vector pipe is through",
    **{
        f"event {event}": "M_MTE1 and FIX_M of the gradient: a product is stored before the next one's operands come"
        for event in (136, 137, 352)
    },
    "event 253": "MTE2_MTE1 of the values: on dav-2201 what MTE2 brings after them is waited for before that",
    "event 353": "FIX_M of the second part of L0C that the state takes: the flag of the first stands for both",
    **{f"event {event}": _IN_ORDER for event in (354, 355, 356, 357)},
    **{f"event {event}": "FIX_M of a part of L0C that no sum is in" for event in (358, 359)},
}
