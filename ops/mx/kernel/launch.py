"""Launches of the kernels of MX formats."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ascend_k3.ops.kernels import TYPES, KernelLaunch, for_dtypes, one_dtype
from ascend_k3.ops.mx.formats import BLOCK, FORMATS

HERE = Path(__file__).parent
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
NUMBERS = {format: number for number, format in enumerate(FORMATS)}  # of the formats, in kernel/formats.h
MX_QUANTIZE = KernelLaunch(folder=HERE, source="mx_quantize.cpp", entry="mx_quantize", variants=for_dtypes(*DTYPES))
MX_DEQUANTIZE = KernelLaunch(
    folder=HERE, source="mx_dequantize.cpp", entry="mx_dequantize", variants=for_dtypes(*DTYPES)
)


def mx_quantize(x: Tensor, format: str, rule: str) -> tuple[Tensor, Tensor]:
    dtype = one_dtype("mx_quantize", DTYPES, x=x)
    element = FORMATS[format]
    x = x.contiguous()
    data = x.new_empty((*x.shape[:-1], x.shape[-1] // element.per_byte), dtype=element.dtype)
    scale = x.new_empty((*x.shape[:-1], x.shape[-1] // BLOCK), dtype=torch.uint8)
    if x.numel():
        MX_QUANTIZE.run(
            inputs=(x,),
            outputs=(data.view(torch.uint8), scale),
            sizes=(scale.numel(), x.element_size(), NUMBERS[format], element.mantissa_bits, rule == "even"),
            defines={"DTYPE": TYPES[dtype]},
        )
    return data, scale


def mx_dequantize(data: Tensor, scale: Tensor, format: str, dtype: torch.dtype) -> Tensor:
    if dtype not in DTYPES:
        raise ValueError(
            f"mx_dequantize: dtype is {dtype}; its kernel gives float32, bfloat16, float16. Convert, or use the "
            "reference."
        )
    data, scale = data.contiguous(), scale.contiguous()
    x = data.new_empty((*data.shape[:-1], data.shape[-1] * FORMATS[format].per_byte), dtype=dtype)
    if x.numel():
        MX_DEQUANTIZE.run(
            inputs=(data.view(torch.uint8), scale),
            outputs=(x,),
            sizes=(scale.numel(), x.element_size(), NUMBERS[format]),
            defines={"DTYPE": TYPES[dtype]},
        )
    return x
