"""Ascend C kernels around the grouped product of the experts."""
