"""Ascend C kernels of the norms."""
