"""How Kimi K3 is computed: its operators, registered with torch as `ascend_k3::*`.

Each takes and returns plain tensors. Calculation inside is float32, or float64 where an input that decides is float64:
the docstring of an operator names those inputs. Outputs have the dtype of the input that the docstring names.
"""

from ascend_k3.ops.attention_residual import (
    AttentionResidualStats,
    attention_residual,
    attention_residual_prepare,
    attention_residual_update,
)
from ascend_k3.ops.backends import backend
from ascend_k3.ops.causal_conv1d import causal_conv1d, causal_conv1d_update
from ascend_k3.ops.errors import BackendError, CheckpointError, NonFiniteError
from ascend_k3.ops.fused_experts import fused_experts
from ascend_k3.ops.kda import kda, kda_decode
from ascend_k3.ops.kda.fragment import kda_fragment
from ascend_k3.ops.mla import latent_write, mla_decode, mla_prefill
from ascend_k3.ops.mx import MXTensor, mx_dequantize, mx_matmul, mx_quantize
from ascend_k3.ops.rms_norm import rms_norm, rms_norm_gated
from ascend_k3.ops.route import route
from ascend_k3.ops.situ_glu import situ_glu, situ_glu_mx_quantize

__all__ = [
    "AttentionResidualStats",
    "BackendError",
    "CheckpointError",
    "MXTensor",
    "NonFiniteError",
    "attention_residual",
    "attention_residual_prepare",
    "attention_residual_update",
    "backend",
    "causal_conv1d",
    "causal_conv1d_update",
    "fused_experts",
    "kda",
    "kda_decode",
    "kda_fragment",
    "latent_write",
    "mla_decode",
    "mla_prefill",
    "mx_dequantize",
    "mx_matmul",
    "mx_quantize",
    "rms_norm",
    "rms_norm_gated",
    "route",
    "situ_glu",
    "situ_glu_mx_quantize",
]
