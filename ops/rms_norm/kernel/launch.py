"""Launches of the norms' kernels."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ascend_k3.ops.kernels import TYPES, KernelLaunch, for_dtypes, one_dtype

HERE = Path(__file__).parent
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
RMS_NORM = KernelLaunch(folder=HERE, source="rms_norm.cpp", entry="rms_norm", variants=for_dtypes(*DTYPES))
RMS_NORM_GATED = KernelLaunch(
    folder=HERE, source="rms_norm_gated.cpp", entry="rms_norm_gated", variants=for_dtypes(*DTYPES)
)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    dtype = one_dtype("rms_norm", DTYPES, x=x, weight=weight)
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        width = x.shape[-1]
        RMS_NORM.run(
            inputs=(x, weight.contiguous()),
            outputs=(y,),
            sizes=(x.numel() // width, width, x.element_size(), 2),
            numbers=(eps,),
            defines={"DTYPE": TYPES[dtype]},
        )
    return y


def rms_norm_gated(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    dtype = one_dtype("rms_norm_gated", DTYPES, x=x, gate=gate, weight=weight)
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        width = x.shape[-1]
        RMS_NORM_GATED.run(
            inputs=(x, gate.contiguous(), weight.contiguous()),
            outputs=(y,),
            sizes=(x.numel() // width, width, x.element_size(), 3),
            numbers=(eps,),
            defines={"DTYPE": TYPES[dtype]},
        )
    return y
