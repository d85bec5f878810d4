"""`chunk_kda` and `fused_recurrent_kda` of flash-linear-attention (fla) by our operators, and as a backend of fla.

    import ascend_k3.fla

    print(ascend_k3.fla.install())  # from here on both of fla.ops.kda run on ascend_k3, whoever imported them

Nothing is put in place by an import. Without `install`, and without fla, the two functions of this module can be called
themselves. They take what the operators compute: q, k, gate and beta raw, and a gate with a lower bound. All else is
refused: once installed, no call on a cpu or npu tensor falls through to another backend.
"""

from __future__ import annotations

import importlib
import os
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

from ascend_k3 import ops
from ascend_k3.ops import checks
from ascend_k3.ops.errors import BackendError
from ascend_k3.ops.kda import MAX_DECODE_TOKENS
from ascend_k3.ops.library import compute_dtype

DEVICES = ("cpu", "npu", "meta")
NAME = "ascend_k3"  # what fla's log calls the backend
PRIORITY = -1  # before the backends of fla itself, of which the first has 0

# argument of fla -> the one value that the operator computes, and what to do instead of another
FIXED: dict[str, tuple[object, str]] = {
    "use_qk_l2norm_in_kernel": (True, "give q and k as they are before their L2 norm"),
    "use_gate_in_kernel": (True, "give the raw gate as g, with A_log, dt_bias and lower_bound"),
    "use_beta_sigmoid_in_kernel": (True, "give beta as logits"),
    "allow_neg_eigval": (False, "the operator's beta lies between 0 and 1"),
    "return_intermediate_states": (False, "the operator returns the states at the ends of sequences only"),
    "cp_context": (None, "the operator computes whole sequences"),
    "use_graph": (False, "the operator reads cu_seqlens on the host"),
    "max_num_seqs": (None, "it belongs to use_graph"),
    "inplace_final_state": (False, "ascend_k3.ops.kda_decode updates a pool of states in place"),
    "ssm_state_indices": (None, "ascend_k3.ops.kda_decode works on a pool of states"),
    "num_accepted_tokens": (None, "ascend_k3.ops.kda_decode takes it, for a pool of states"),
    "out": (None, "the operator returns its output"),
}


def chunk_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    disable_recompute: bool = False,
    return_intermediate_states: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    cp_context: object = None,
    use_graph: bool = False,
    max_num_seqs: int | None = None,
    *,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    chunk_size: int = 64,
    transpose_state_layout: bool | None = None,
) -> tuple[Tensor, Tensor | None]:
    """`ops.kda` with the signature of `fla.ops.kda.chunk_kda`; differentiable.

    Args:
        q, k: [B, T, H, K] raw.  v: [B, T, H, V].  g: [B, T, H, K] raw gate.  beta: [B, T, H] logits.
        scale: of q; K ** -0.5 when None.
        initial_state: [N, H, K, V], or [N, H, V, K] with `state_v_first`; zeros when None.
        output_final_state: whether the final states are returned.
        use_qk_l2norm_in_kernel, use_gate_in_kernel, use_beta_sigmoid_in_kernel: must be True; fla's default is False.
        lower_bound: of the log decay of one token, in [-5, 0); must be given, the gate is
            lower_bound * sigmoid(exp(A_log) (g + dt_bias)).
        A_log: H values, zeros when None.  dt_bias: H * K values, zeros when None.
        cu_seqlens: [N + 1] packs N sequences into the T tokens of B = 1.
        safe_gate, disable_recompute, cu_seqlens_cpu: say how fla computes, not what; they change nothing here.
        chunk_size: as for `ops.kda`.
        transpose_state_layout: the former name of `state_v_first`.
        all others: must have fla's default (`FIXED`).
    Returns: o [B, T, H, V] of v's dtype; the final states in the layout of `initial_state`, float32 (float64 if q, k
        or v is), or None without `output_final_state`.
    Raises: ValueError for an argument that the operator does not compute, and as `ops.kda`.
    Source: fla-core 0.6.0, `fla/ops/kda/chunk.py`.
    """
    op = "chunk_kda"
    _check_fixed(
        op,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        use_gate_in_kernel=use_gate_in_kernel,
        use_beta_sigmoid_in_kernel=use_beta_sigmoid_in_kernel,
        allow_neg_eigval=allow_neg_eigval,
        return_intermediate_states=return_intermediate_states,
        cp_context=cp_context,
        use_graph=use_graph,
        max_num_seqs=max_num_seqs,
    )
    if cu_seqlens is None and cu_seqlens_cpu is not None:
        raise ValueError(
            f"{op}: cu_seqlens_cpu is given without cu_seqlens, which says where sequences end; give both."
        )
    v_first = _v_first(op, state_v_first, transpose_state_layout)
    weights = _weights(op, q, A_log, dt_bias, lower_bound, scale)
    state = _initial_state(op, q, v, initial_state, v_first, cu_seqlens)
    o, state = ops.kda(q, k, v, g, beta, **weights, initial_state=state, cu_seqlens=cu_seqlens, chunk_size=chunk_size)
    return o, _final_state(state, v_first) if output_final_state else None


def fused_recurrent_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    transpose_state_layout: bool | None = None,
) -> tuple[Tensor, Tensor | None]:
    """`ops.kda_decode`, or `ops.kda`, with the signature of `fla.ops.kda.fused_recurrent_kda`; differentiable.

    Sequences of at most 8 tokens without a gradient go through `ops.kda_decode`, all others through `ops.kda`.

    Args, Returns, Raises: as `chunk_kda`. `initial_state` is not written to.
    Source: fla-core 0.6.0, `fla/ops/kda/fused_recurrent.py`. There it has no gradient.
    """
    op = "fused_recurrent_kda"
    _check_fixed(
        op,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        use_gate_in_kernel=use_gate_in_kernel,
        use_beta_sigmoid_in_kernel=use_beta_sigmoid_in_kernel,
        allow_neg_eigval=allow_neg_eigval,
    )
    v_first = _v_first(op, state_v_first, transpose_state_layout)
    weights = _weights(op, q, A_log, dt_bias, lower_bound, scale)
    state = _initial_state(op, q, v, initial_state, v_first, cu_seqlens)
    inputs = (q, k, v, g, beta)
    differentiable = (*inputs, weights["A_log"], weights["dt_bias"], state)
    has_gradient = torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in differentiable)
    if not has_gradient and _longest(op, q, cu_seqlens) <= MAX_DECODE_TOKENS:
        pool = _pool(q, k, v, state, _sequences(op, q, cu_seqlens))
        slots = torch.arange(pool.shape[0], device=q.device)
        o, state = ops.kda_decode(*inputs, pool, slots, **weights, cu_seqlens=cu_seqlens), pool
    else:
        o, state = ops.kda(*inputs, **weights, initial_state=state, cu_seqlens=cu_seqlens)
    return o, _final_state(state, v_first) if output_final_state else None


def install() -> str:
    """Register both functions as a backend of fla, which then runs them wherever its own names are called.

    The backend comes before those of fla and takes every call on a cpu or npu tensor; tensors on other devices go where
    they went before. fla logs the backend of each function once, at level INFO:
    `[FLA Backend] fla.ops.kda.chunk.chunk_kda -> ascend_k3`. Of ours, the reference or the kernels compute it, as
    `ops.backend` says. Calling it again changes nothing. Tried on CPU tensors; not run on an NPU.

    Returns: the sentence that says what runs where from now on.
    Raises: BackendError if flash-linear-attention is missing, is older than 0.6, or was told to ignore backends.
    """
    try:
        version = metadata.version("fla-core")
        kda = importlib.import_module("fla.ops.kda")
    except (metadata.PackageNotFoundError, ImportError) as error:
        raise BackendError(
            f"flash-linear-attention cannot be imported ({error}); install it, pip install flash-linear-attention "
            "triton, or call ascend_k3.fla.chunk_kda and fused_recurrent_kda themselves."
        ) from error
    try:
        backends = importlib.import_module("fla.backends")
    except ModuleNotFoundError as error:
        raise BackendError(
            f"fla-core {version} has no fla.backends, where operators are registered; 0.6 or later is needed: "
            "pip install -U flash-linear-attention."
        ) from error
    # fla looks at the variable once, when it is imported
    if getattr(backends, "_DISPATCH_DISABLED", os.environ.get("FLA_DISABLE_BACKEND_DISPATCH") == "1"):
        raise BackendError(
            "FLA_DISABLE_BACKEND_DISPATCH is 1, so fla calls no backend; unset it before fla is imported, or call "
            "ascend_k3.fla.chunk_kda and fused_recurrent_kda themselves."
        )
    attributes: dict[str, Any] = {
        "backend_type": NAME,
        "priority": PRIORITY,
        "chunk_kda_verifier": staticmethod(_takes),
        "chunk_kda": staticmethod(chunk_kda),
        "fused_recurrent_kda_fwd_verifier": staticmethod(_takes),
        "fused_recurrent_kda_fwd": staticmethod(_fused_recurrent_kda_fwd),
    }
    backend = type("AscendK3Backend", (backends.BaseBackend,), attributes)
    backends.register(kda.chunk_kda)(backend)
    # fla dispatches not fused_recurrent_kda but what it calls, and by the name of the operation
    backends.register("kda")(backend)
    return f"chunk_kda and fused_recurrent_kda of fla-core {version} run on {NAME} for cpu and npu tensors."


def _takes(q: Tensor, *_: object, **__: object) -> tuple[bool, str | None]:
    """Whether a call of fla is for this backend, and if not, why, for fla's log."""
    device = q.device.type
    return device in DEVICES, f"{NAME} computes cpu and npu tensors, q is on {device}"


def _fused_recurrent_kda_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_state: Tensor | None = None,
    scale: float | None = None,
    output_final_state: bool = False,
    inplace_final_state: bool = True,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    ssm_state_indices: Tensor | None = None,
    num_accepted_tokens: Tensor | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """What fla's `fused_recurrent_kda` calls, with the signature of that."""
    _check_fixed(
        "fused_recurrent_kda_fwd",
        inplace_final_state=inplace_final_state,
        ssm_state_indices=ssm_state_indices,
        num_accepted_tokens=num_accepted_tokens,
        out=out,
    )
    return fused_recurrent_kda(
        q,
        k,
        v,
        g,
        beta,
        A_log,
        dt_bias,
        scale,
        initial_state,
        output_final_state,
        use_qk_l2norm_in_kernel,
        use_gate_in_kernel,
        use_beta_sigmoid_in_kernel,
        allow_neg_eigval,
        lower_bound,
        state_v_first,
        cu_seqlens,
    )


def _check_fixed(op: str, **arguments: object) -> None:
    """Refuse each argument that is not the one value the operator computes."""
    for name, value in arguments.items():
        wanted, advice = FIXED[name]
        if value is not wanted:
            got = list(value.shape) if isinstance(value, Tensor) else value
            raise ValueError(f"{op}: {name} must be {wanted} for {NAME}, got {got}; {advice}.")


def _v_first(op: str, state_v_first: bool, transpose_state_layout: bool | None) -> bool:
    if transpose_state_layout is None:
        return state_v_first
    if state_v_first:
        raise ValueError(f"{op}: state_v_first and its former name transpose_state_layout are both given; give one.")
    return transpose_state_layout


def _weights(
    op: str, q: Tensor, A_log: Tensor | None, dt_bias: Tensor | None, lower_bound: float | None, scale: float | None
) -> dict[str, Any]:
    """What `ops.kda` and `ops.kda_decode` take by name, with the zeros that fla leaves out."""
    checks.shape(op, "q", q, ("B", "T", "H", "K"))
    heads, width = q.shape[2:]
    if lower_bound is None:
        raise ValueError(
            f"{op}: lower_bound must be a number in [-5, 0) for {NAME}, got None; the gate without a bound, "
            "-exp(A_log) softplus(g + dt_bias), is not computed."
        )
    A_log = q.new_zeros(heads, dtype=torch.float32) if A_log is None else A_log.flatten()
    dt_bias = q.new_zeros(heads * width, dtype=torch.float32) if dt_bias is None else dt_bias.flatten()
    return {"A_log": A_log, "dt_bias": dt_bias, "lower_bound": lower_bound, "scale": scale}


def _initial_state(
    op: str, q: Tensor, v: Tensor, state: Tensor | None, v_first: bool, cu_seqlens: Tensor | None
) -> Tensor | None:
    """The states as [N, H, V, K]."""
    if state is None:
        return None
    checks.shape(op, "v", v, ("B", "T", "H", "V"))
    sequences = _sequences(op, q, cu_seqlens)
    last = (v.shape[3], q.shape[3]) if v_first else (q.shape[3], v.shape[3])
    checks.shape(op, "initial_state", state, (sequences, q.shape[2], *last))
    return state if v_first else state.mT


def _final_state(state: Tensor, v_first: bool) -> Tensor:
    return state if v_first else state.mT.contiguous()


def _sequences(op: str, q: Tensor, cu_seqlens: Tensor | None) -> int:
    if cu_seqlens is None:
        return q.shape[0]
    checks.is_tensor(op, "cu_seqlens", cu_seqlens)
    return cu_seqlens.numel() - 1


def _longest(op: str, q: Tensor, cu_seqlens: Tensor | None) -> int:
    """Tokens of the longest sequence; all of them where the values of cu_seqlens cannot be looked at."""
    if cu_seqlens is None:
        return q.shape[1]
    checks.cu_seqlens(op, "cu_seqlens", cu_seqlens, q.shape[1])
    if not checks.values_known(cu_seqlens):
        return q.shape[1]
    return max(cu_seqlens.diff().tolist(), default=0)


def _pool(q: Tensor, k: Tensor, v: Tensor, state: Tensor | None, sequences: int) -> Tensor:
    """A pool of states for `ops.kda_decode` that belongs to this call."""
    if state is not None:
        return state.to(compute_dtype(q, k, v), copy=True).contiguous()
    return q.new_zeros((sequences, q.shape[2], v.shape[3], q.shape[3]), dtype=compute_dtype(q, k, v))
