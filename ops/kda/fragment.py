"""What a fragment of a sequence does to any state before it: the pieces of context parallelism.

The state goes through a fragment linearly, S' = S P + Z: P is the product of the fragment's transitions, Z the state
from a zero start. Fragments on different devices calculate theirs at the same time; their prefix combination gives each
its initial state.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ascend_k3.ops.kda import kda


def kda_fragment(
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    A_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Transition product and state from a zero start of each fragment, by `ops.kda` on the backend in force.

    The transition is the final state from the identity with v = 0. With keys and values of one width it is calculated
    in the same call, as so many heads more.

    Args: as of `kda`; a fragment is what a sequence is there.
    Returns: P [N, H, K, K] and Z [N, H, V, K], float32 (float64 if k or v is): S' = S P + Z for a state S [N, H, V, K]
        before the fragment. Of an empty fragment they are the identity and zero.
    Raises: as `kda`.
    """
    heads, width = k.shape[2:]
    fragments = k.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    dtype = torch.float64 if torch.float64 in (k.dtype, v.dtype) else torch.float32
    identity = torch.eye(width, dtype=dtype, device=k.device).expand(fragments, heads, width, width)
    dt_bias = dt_bias.reshape(heads, width)

    def states(v: Tensor, initial: Tensor | None, times: int) -> Tensor:
        def repeat(x: Tensor, dim: int) -> Tensor:
            return torch.cat([x] * times, dim)

        keys = repeat(k, 2)
        return kda(
            torch.zeros_like(keys),
            keys,
            v,
            repeat(g, 2),
            repeat(beta, 2),
            A_log=repeat(A_log, 0),
            dt_bias=repeat(dt_bias, 0),
            lower_bound=lower_bound,
            initial_state=initial,
            cu_seqlens=cu_seqlens,
        )[1]

    nothing = torch.zeros_like(k)
    if v.shape[3] != width:
        return states(nothing.to(v.dtype), identity, 1), states(v, None, 1)
    start = torch.cat((torch.zeros_like(identity), identity), 1)
    local, transition = states(torch.cat((v, nothing.to(v.dtype)), 2), start, 2).split(heads, 1)
    return transition, local
