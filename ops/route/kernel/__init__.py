"""Ascend C kernels of routing."""
