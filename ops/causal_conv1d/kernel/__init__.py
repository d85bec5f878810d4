"""Ascend C kernels of the causal convolution."""
