"""The Kimi Delta Attention layer: projections, short convolutions, the gated delta rule, the output gate."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ascend_k3 import ops
from ascend_k3.config import TextConfig
from ascend_k3.norm import RMSNorm, small_parameter_dtype
from ascend_k3.sequences import Sequences


class ShortConvolution(nn.Module):
    """The weight [channels, 1, kernel] of a depthwise causal convolution."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, kernel, dtype=small_parameter_dtype()))


class KimiDeltaAttention(nn.Module):
    """x [T, D] -> [T, D]; a sequence leaves one matrix [H, V, K] and the last raw inputs of the convolutions.

    `A_log` has one value a head. Checkpoints pad it with zeros to the head dimension; `state_dict` writes and
    `load_state_dict` accepts that form.

    Source: docs/spec.md 1.3; `linear_attn_config`.
    """

    def __init__(self, config: TextConfig, layer: int) -> None:
        super().__init__()
        kda, hidden = config.kda, config.hidden_size
        self.config = kda
        self.layer = layer
        self.q_proj = nn.Linear(hidden, kda.width, bias=False)
        self.k_proj = nn.Linear(hidden, kda.width, bias=False)
        self.v_proj = nn.Linear(hidden, kda.width, bias=False)
        self.q_conv1d = ShortConvolution(kda.width, kda.short_conv_kernel_size)
        self.k_conv1d = ShortConvolution(kda.width, kda.short_conv_kernel_size)
        self.v_conv1d = ShortConvolution(kda.width, kda.short_conv_kernel_size)
        self.A_log = nn.Parameter(torch.empty(kda.num_heads, dtype=small_parameter_dtype()))
        self.dt_bias = nn.Parameter(torch.empty(kda.width, dtype=small_parameter_dtype()))
        self.f_a_proj = nn.Linear(hidden, kda.head_dim, bias=False)
        self.f_b_proj = nn.Linear(kda.head_dim, kda.width, bias=False)
        self.b_proj = nn.Linear(hidden, kda.num_heads, bias=False)
        self.g_proj = nn.Linear(hidden, kda.width, bias=False)
        self.o_norm = RMSNorm(kda.head_dim, config.rms_norm_eps, dtype=small_parameter_dtype())
        self.o_proj = nn.Linear(kda.width, hidden, bias=False)
        self.register_state_dict_post_hook(_pad_a_log)
        self.register_load_state_dict_pre_hook(_slice_a_log)

    def forward(self, x: Tensor, sequences: Sequences) -> Tensor:
        heads = (-1, self.config.num_heads, self.config.head_dim)
        raw = torch.cat((self.q_proj(x), self.k_proj(x), self.v_proj(x)), -1)
        gate = self.f_b_proj(self.f_a_proj(x)).view(heads)
        output = self._recurrence(raw, gate, self.b_proj(x), sequences)
        output = ops.rms_norm_gated(output, self.g_proj(x).view(heads), self.o_norm.weight, eps=self.o_norm.eps)
        return self.o_proj(output.flatten(1))

    def _recurrence(self, raw: Tensor, gate: Tensor, beta: Tensor, sequences: Sequences) -> Tensor:
        """Convolution and delta rule on raw [T, q|k|v]: [T, H, V]. Reads and writes the cache when there is one."""
        convolution = torch.cat((self.q_conv1d.weight, self.k_conv1d.weight, self.v_conv1d.weight))
        step, bound = sequences.step, self.config.gate_lower_bound
        if step is not None and sequences.is_decode:
            windows, states = step.cache.windows[self.layer], step.cache.states[self.layer]
            q, k, v = self._split(ops.causal_conv1d_update(raw, convolution, windows, step.slots))
            q, k, v, gate, beta = (y[:, None] for y in (q, k, v, gate, beta))
            output = ops.kda_decode(
                q, k, v, gate, beta, states, step.slots, A_log=self.A_log, dt_bias=self.dt_bias, lower_bound=bound
            )
            return output[:, 0]

        window = None if step is None else step.cache.windows[self.layer][step.slots]
        state = None if step is None else step.cache.states[self.layer][step.slots]
        mixed, window = ops.causal_conv1d(raw[None], convolution, window, sequences.cu_seqlens)
        q, k, v, gate, beta = (y[None] for y in (*self._split(mixed[0]), gate, beta))
        output, state = ops.kda(
            q,
            k,
            v,
            gate,
            beta,
            A_log=self.A_log,
            dt_bias=self.dt_bias,
            lower_bound=bound,
            initial_state=state,
            cu_seqlens=sequences.cu_seqlens,
        )
        if step is not None:
            step.cache.windows[self.layer][step.slots] = window.detach()
            step.cache.states[self.layer][step.slots] = state.detach()
        return output[0]

    def _split(self, mixed: Tensor) -> tuple[Tensor, ...]:
        return mixed.view(-1, 3, self.config.num_heads, self.config.head_dim).unbind(1)


def _pad_a_log(module: KimiDeltaAttention, state_dict: dict[str, Any], prefix: str, _: Any) -> None:
    kda = module.config
    value = state_dict[prefix + "A_log"]
    if value.shape[0] < kda.stored_heads:
        state_dict[prefix + "A_log"] = nn.functional.pad(value, (0, kda.stored_heads - value.shape[0]))


def _slice_a_log(module: KimiDeltaAttention, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    value = state_dict.get(prefix + "A_log")
    if value is not None and value.dim() == 1 and value.shape[0] == module.config.stored_heads:
        state_dict[prefix + "A_log"] = value[: module.config.num_heads]
