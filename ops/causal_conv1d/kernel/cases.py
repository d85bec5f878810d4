"""Calls on which the kernels of the causal convolution are tried."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from ascend_k3.ops.causal_conv1d import causal_conv1d, causal_conv1d_update, cost
from ascend_k3.ops.kernel_cases import Case

NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
K3_CHANNELS = 36864  # queries, keys and values of 96 heads of 128
# lengths of the packed sequences, channels, taps, whether there is an initial window, whether mutation tests take it
PREFILL = (
    ((1,), 1, 2, False, False),
    ((5, 0, 1, 2, 70), 17, 4, True, False),
    ((0, 300, 3, 260), 100, 4, False, True),
    ((33,), 600, 7, True, True),
    ((150, 0, 7, 1), 600, 4, True, True),
)
# sequences, channels, taps, which rows are padding, whether mutation tests take it
STEP = (
    (1, 1, 2, (), False),
    (5, 17, 4, (0, 3), False),
    (40, 100, 4, (), False),
    (9, 600, 7, (8,), True),
    (70, 600, 4, (2, 11), True),
)


def _random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def prefill(
    lengths: Sequence[int], channels: int, taps: int, window: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Packed sequences of `lengths`; the weight is float32, as K3's."""
    x = _random(channels, 1, sum(lengths), channels).to(dtype)
    initial = _random(taps, len(lengths), channels, taps - 1).to(dtype) if window else None
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0)
    return causal_conv1d(x, _random(1, channels, 1, taps), initial, cu_seqlens)


def step(sequences: int, channels: int, taps: int, padding: Sequence[int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """One token of each sequence; y and the pool, in which the slots are in falling order and one is free."""
    windows = _random(taps, sequences + 1, channels, taps - 1).to(dtype)
    slots = torch.arange(sequences, 0, -1)
    slots[list(padding)] = -1
    y = causal_conv1d_update(
        _random(channels, sequences, channels).to(dtype), _random(1, channels, 1, taps), windows, slots
    )
    return y, windows


def _prefill_case(
    lengths: Sequence[int],
    channels: int,
    taps: int,
    window: bool,
    mutated: bool,
    dtype: torch.dtype,
    judged: bool = False,
) -> Case:
    return Case(
        name=f"causal_conv1d {'+'.join(map(str, lengths))} x {channels}, {taps} taps {NAMES[dtype]}",
        call=partial(prefill, lengths, channels, taps, window, dtype),
        dtype=dtype,
        cost=cost.causal_conv1d(
            tokens=sum(lengths),
            channels=channels,
            taps=taps,
            sequences=len(lengths),
            dtype=NAMES[dtype],
            weight_dtype="fp32",
            initial_window=window,
            index_dtype="int64",
        ),
        judged=judged,
        mutated=mutated and dtype != torch.float16,
    )


def _step_case(
    sequences: int,
    channels: int,
    taps: int,
    padding: Sequence[int],
    mutated: bool,
    dtype: torch.dtype,
    judged: bool = False,
) -> Case:
    return Case(
        name=f"causal_conv1d_update {sequences} x {channels}, {taps} taps {NAMES[dtype]}",
        call=partial(step, sequences, channels, taps, padding, dtype),
        dtype=dtype,
        cost=cost.causal_conv1d_update(
            sequences=sequences - len(padding), channels=channels, taps=taps, dtype=NAMES[dtype], weight_dtype="fp32"
        ),
        judged=judged,
        mutated=mutated and dtype != torch.float16,
    )


CASES = [
    *(
        _prefill_case(lengths, channels, taps, window, mutated, dtype)
        for lengths, channels, taps, window, mutated in PREFILL
        for dtype in NAMES
    ),
    *(
        _step_case(sequences, channels, taps, padding, mutated, dtype)
        for sequences, channels, taps, padding, mutated in STEP
        for dtype in NAMES
    ),
    _prefill_case((256,), K3_CHANNELS, 4, True, False, torch.bfloat16, judged=True),
    _prefill_case((100, 156), K3_CHANNELS, 4, True, False, torch.bfloat16, judged=True),
    _step_case(1, K3_CHANNELS, 4, (), False, torch.bfloat16, judged=True),
    _step_case(16, K3_CHANNELS, 4, (), False, torch.bfloat16, judged=True),
]
