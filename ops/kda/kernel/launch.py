"""Launches of the kernels of Kimi Delta Attention."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from ascend_k3.ops.errors import NoKernelError
from ascend_k3.ops.kernels import TYPES, KernelLaunch, one_dtype
from ascend_k3.ops.npu import device_soc
from ascend_k3.ops.soc import SoC

HERE = Path(__file__).parent
DTYPES = (torch.float32, torch.bfloat16)
WIDTHS = (64, 128)
CHUNK = 64  # of tiling.h
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
BACKWARD = KernelLaunch(
    folder=HERE, source="backward.cpp", entry="kda_backward", tiling="backward_tiling.h", variants=VARIANTS
)
DECODE = KernelLaunch(folder=HERE, source="decode.cpp", entry="kda_decode", tiling="decode_tiling.h", variants=VARIANTS)


def _defines(op: str, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> dict[str, object]:
    """The variant for these tensors.

    Raises: ValueError for a dtype that the kernels are not built for; NoKernelError for such a width.
    """
    dtype = one_dtype(op, DTYPES, q=q, k=k, v=v, g=g)
    if beta.dtype != torch.float32:
        one_dtype(op, DTYPES, q=q, beta=beta)
    width = q.shape[3]
    if v.shape[3] != width or width not in WIDTHS:
        raise NoKernelError(
            f"{op}: its kernel takes keys and values of one width, 64 or 128; they have {width} and {v.shape[3]}. "
            "Use the reference."
        )
    return {"DTYPE": TYPES[dtype], "BETA": TYPES[beta.dtype], "WIDTH": width}


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
    """The kernel works in chunks of 64 whatever `chunk_size` is: it changes no result beyond rounding.

    Few heads of long sequences of one length are cut into fragments, whose states are combined between two launches.
    """
    batch, length, heads, _ = q.shape
    A_log, dt_bias = A_log.float().contiguous(), dt_bias.float().reshape(heads, -1).contiguous()
    tokens, weights, numbers = (q, k, v, g, beta), (A_log, dt_bias), (lower_bound, scale)
    if cu_seqlens is not None:
        return _sequences(tokens, weights, numbers, initial_state, cu_seqlens)
    pieces = fragments(batch, length, heads, None if q.device.type == "cpu" else device_soc())
    cuts = [length * piece // pieces // CHUNK * CHUNK for piece in range(pieces)]
    offsets = torch.tensor([n * length + cut for n in range(batch) for cut in cuts] + [batch * length], device=q.device)
    if pieces == 1:
        return _sequences(tokens, weights, numbers, initial_state, offsets)
    states = _before_fragments(tokens, weights, lower_bound, initial_state, offsets)
    o, final = _sequences(tokens, weights, numbers, states, offsets)
    return o, final.unflatten(0, (batch, pieces))[:, -1].contiguous()


def fragments(sequences: int, length: int, heads: int, chip: SoC | None = None) -> int:
    """Into how many each sequence is cut on a SoC (the one of the backend in force when left out), as tiling.h says."""
    if not sequences or not heads:
        return 1
    tiling = replace(KDA, tile="kda_fragments").tile_for((sequences, length, heads), chip=chip)
    return int.from_bytes(tiling.data[:8], "little")


Tensors = tuple[Tensor, ...]


def _before_fragments(
    tokens: Tensors, weights: Tensors, lower_bound: float, initial: Tensor | None, offsets: Tensor
) -> Tensor:
    """The states before all fragments, one after the other from what each does to a state."""
    from ascend_k3.ops.kda.fragment import kda_fragment  # which calls the operator that this computes

    batch = tokens[0].shape[0]
    A_log, dt_bias = weights
    packed = (x.flatten(0, 1)[None] for x in tokens[1:])
    effects = kda_fragment(*packed, A_log=A_log, dt_bias=dt_bias, lower_bound=lower_bound, cu_seqlens=offsets)
    transition, local = (x.unflatten(0, (batch, -1)) for x in effects)
    state = torch.zeros_like(local[:, 0]) if initial is None else initial.float()
    before = []
    for piece in range(local.shape[1]):
        before.append(state)
        state = state @ transition[:, piece] + local[:, piece]
    return torch.stack(before, 1).flatten(0, 1)


def _sequences(
    tokens: Tensors, weights: Tensors, numbers: tuple[float, float], initial: Tensor | None, cu_seqlens: Tensor
) -> tuple[Tensor, Tensor]:
    """One launch."""
    q, k, v, g, beta = tokens
    defines = _defines("kda", q, k, v, g, beta)
    batch, length, heads, width = q.shape
    sequences = cu_seqlens.shape[0] - 1
    o = torch.empty_like(v, memory_format=torch.contiguous_format)
    states = q.new_empty(sequences, heads, width, width, dtype=torch.float32)
    if not sequences:
        return o, states
    KDA.run(
        inputs=(
            *(x.contiguous() for x in tokens),
            *weights,
            cu_seqlens.long().contiguous(),
            states.new_empty(0) if initial is None else initial.float().contiguous(),
        ),
        outputs=(o, states),
        sizes=(sequences, batch * length, heads, width, q.element_size(), initial is not None),
        numbers=numbers,
        defines=defines,
    )
    return o, states


def kda_backward(
    grads: list[Tensor],
    needs: list[bool],
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
) -> list[Tensor]:
    """All gradients, whatever `needs` says. Those of A_log and dt_bias are summed over channels and sequences here."""
    defines = _defines("kda", q, k, v, g, beta)
    batch, length, heads, width = q.shape
    if cu_seqlens is None:
        cu_seqlens = torch.arange(batch + 1, device=q.device) * length
    sequences = cu_seqlens.shape[0] - 1
    dq, dk, dv, dg, dbeta = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v, g, beta))
    dinitial = q.new_empty(sequences, heads, width, width, dtype=torch.float32)
    of_channels, of_biases = (dinitial.new_empty(sequences, heads, width) for _ in range(2))
    initial = dinitial.new_empty(0) if initial_state is None else initial_state.float().contiguous()
    if sequences:
        BACKWARD.run(
            inputs=(
                *(x.contiguous() for x in (q, k, v, g, beta)),
                A_log.float().contiguous(),
                dt_bias.float().contiguous(),
                cu_seqlens.long().contiguous(),
                initial,
                grads[0].contiguous(),
                grads[1].float().contiguous(),
            ),
            outputs=(dq, dk, dv, dg, dbeta, of_channels, of_biases, dinitial),
            sizes=(sequences, batch * length, heads, width, q.element_size(), initial_state is not None),
            numbers=(lower_bound, scale),
            defines=defines,
        )
    dA_log = of_channels.sum((0, 2)).to(A_log.dtype)
    ddt_bias = of_biases.sum(0).view(dt_bias.shape).to(dt_bias.dtype)
    if initial_state is not None:
        dinitial = dinitial.to(initial_state.dtype)
    found = [dq, dk, dv, dg, dbeta, dA_log, ddt_bias, dinitial]
    return [grad if needed else q.new_empty(0) for grad, needed in zip(found, needs, strict=True)]


def kda_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    states: Tensor,
    state_indices: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float,
    scale: float,
    num_accepted: Tensor | None,
) -> Tensor:
    defines = _defines("kda_decode", q, k, v, g, beta)
    one_dtype("kda_decode", (torch.float32,), states=states)
    o = torch.empty_like(v, memory_format=torch.contiguous_format)
    if not o.numel():
        return o
    pool = states.contiguous()
    slots = state_indices.long().contiguous()
    DECODE.run(
        inputs=(
            *(x.contiguous() for x in (q, k, v, g, beta)),
            A_log.float().contiguous(),
            dt_bias.float().contiguous(),
            slots,
            # What is absent is not read: the slots stand in its place.
            slots if num_accepted is None else num_accepted.long().contiguous(),
        ),
        updated=(pool,),
        outputs=(o,),
        sizes=(*q.shape, q.element_size(), num_accepted is not None),
        numbers=(lower_bound, scale),
        defines=defines,
    )
    if pool is not states:
        states.copy_(pool)
    return o
