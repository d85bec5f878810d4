"""Ascend C kernels of quantization to MX formats and of its inverse."""
