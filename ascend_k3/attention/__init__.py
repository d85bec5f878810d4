"""The two attention layers of Kimi K3."""

from ascend_k3.attention.gated_mla import GatedMLA
from ascend_k3.attention.kda import KimiDeltaAttention

__all__ = ["GatedMLA", "KimiDeltaAttention"]
