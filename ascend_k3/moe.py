"""Stable LatentMoE: a router at full width, routed experts in a latent space, shared experts at full width."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ascend_k3 import ops
from ascend_k3.config import MX_GROUP, TextConfig
from ascend_k3.mlp import FeedForward
from ascend_k3.norm import RMSNorm, small_parameter_dtype


class Router(nn.Module):
    """The weight of the router's logits and the bias that takes part in the selection only."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))
        self.e_score_correction_bias = nn.Parameter(
            torch.zeros(config.num_experts, dtype=small_parameter_dtype()), requires_grad=False
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [T, D] -> weights [T, top_k] and ids [T, top_k]; logits in float32 at least."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        logits = functional.linear(x.to(dtype), self.weight.to(dtype))
        return ops.route(
            logits,
            self.e_score_correction_bias,
            top_k=self.config.num_experts_per_token,
            renormalize=True,
            scaling_factor=self.config.routed_scaling_factor,
        )


class Experts(nn.Module):
    """The routed experts of a layer, stacked: `w13` [E, 2I, L] (gate rows, then up rows) and `w2` [E, L, I].

    Packed experts are buffers, `w13_codes` [E, 2I, L/2] with `w13_scale` [E, 2I, L/32] and so for `w2`: MXFP4 as
    checkpoints have it. `state_dict` gives and `load_state_dict` takes the released names, `7.w1.weight_packed` and so
    on, as views of the stacks; distributed tensors cannot be cut like that, so their stacks keep their own names.
    """

    def __init__(self, config: TextConfig, packed: bool) -> None:
        super().__init__()
        self.config = config
        self.packed = packed
        self.w13: nn.Parameter
        self.w2: nn.Parameter
        self.w13_codes: Tensor
        self.w13_scale: Tensor
        self.w2_codes: Tensor
        self.w2_scale: Tensor
        latent, inner = config.routed_expert_hidden_size, config.moe_intermediate_size
        for name, rows, columns in (("w13", 2 * inner, latent), ("w2", latent, inner)):
            if packed:
                codes = torch.empty(config.num_experts, rows, columns // 2, dtype=torch.uint8)
                scale = torch.empty(config.num_experts, rows, columns // MX_GROUP, dtype=torch.uint8)
                self.register_buffer(f"{name}_codes", codes)
                self.register_buffer(f"{name}_scale", scale)
            else:
                self.register_parameter(name, nn.Parameter(torch.empty(config.num_experts, rows, columns)))
        self.register_state_dict_post_hook(_split_experts)
        self.register_load_state_dict_pre_hook(_stack_experts)

    def forward(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        return ops.fused_experts(
            x,
            weights,
            ids,
            self._weight("w13"),
            self._weight("w2"),
            beta=self.config.activation_situ_beta,
            linear_beta=self.config.activation_situ_linear_beta,
        )

    def _weight(self, name: str) -> Tensor | ops.MXTensor:
        if self.packed:
            return ops.MXTensor(getattr(self, f"{name}_codes"), getattr(self, f"{name}_scale"), "mxfp4")
        return getattr(self, name)

    def stacks(self) -> list[tuple[str, str]]:
        """The names of this module's tensors and, for each, the suffix that it has in a checkpoint."""
        kinds = [("_codes", ".weight_packed"), ("_scale", ".weight_scale")] if self.packed else [("", ".weight")]
        return [(stack + ending, suffix) for stack in ("w13", "w2") for ending, suffix in kinds]

    def cut(self, name: str, stack: Tensor, suffix: str) -> Iterator[tuple[str, Tensor]]:
        """The released names of one stack, each with its view of it."""
        inner = self.config.moe_intermediate_size
        parts = {"w1": slice(0, inner), "w3": slice(inner, None)} if name.startswith("w13") else {"w2": slice(None)}
        for expert in range(self.config.num_experts):
            for part, rows in parts.items():
                yield f"{expert}.{part}{suffix}", stack[expert, rows]


class StableLatentMoE(nn.Module):
    """y = up(rms(sum_i w_i expert_i(down(x)))) + shared(x), for x [T, D].

    Source: docs/spec.md 1.6; `routed_expert_hidden_size`, `latent_moe_use_norm`.
    """

    def __init__(self, config: TextConfig, packed_experts: bool) -> None:
        super().__init__()
        hidden, latent = config.hidden_size, config.routed_expert_hidden_size
        self.gate = Router(config)
        self.routed_expert_down_proj = nn.Linear(hidden, latent, bias=False)
        self.experts = Experts(config, packed_experts)
        self.routed_expert_norm = RMSNorm(latent, config.rms_norm_eps)
        self.routed_expert_up_proj = nn.Linear(latent, hidden, bias=False)
        self.shared_experts = FeedForward(config, config.shared_intermediate_size)

    def forward(self, x: Tensor) -> Tensor:
        weights, ids = self.gate(x)
        routed = self.experts(self.routed_expert_down_proj(x), weights, ids)
        return self.routed_expert_up_proj(self.routed_expert_norm(routed)) + self.shared_experts(x)


def _split_experts(module: Experts, state_dict: dict[str, Any], prefix: str, _: Any) -> None:
    for name, suffix in module.stacks():
        if type(state_dict[prefix + name]) in (Tensor, nn.Parameter):
            stack = state_dict.pop(prefix + name)
            state_dict.update((prefix + key, view) for key, view in module.cut(name, stack, suffix))


def _stack_experts(
    module: Experts,
    state_dict: dict[str, Any],
    prefix: str,
    _: Any,
    __: bool,
    missing: list[str],
    ___: list[str],
    errors: list[str],
) -> None:
    for name, suffix in module.stacks():
        if prefix + name in state_dict:
            continue
        current = getattr(module, name).detach()
        stack = torch.empty_like(current, device="cpu") if current.is_meta else current.clone()
        found = 0
        for key, view in module.cut(name, stack, suffix):
            value = state_dict.pop(prefix + key, None)
            if value is None:
                missing.append(prefix + key)
                continue
            found += 1
            if value.shape != view.shape or value.is_floating_point() != view.is_floating_point():
                errors.append(
                    f"{prefix + key}: the module has {view.dtype} {list(view.shape)}, "
                    f"the state dict {value.dtype} {list(value.shape)}."
                )
            else:
                view.copy_(value)
        if found:
            state_dict[prefix + name] = stack
