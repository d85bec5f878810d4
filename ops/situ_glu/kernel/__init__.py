"""Ascend C kernels of SiTU-GLU, alone and with its output in an MX format."""
