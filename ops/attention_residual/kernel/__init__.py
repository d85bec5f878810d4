"""Ascend C kernels of Attention Residuals."""
