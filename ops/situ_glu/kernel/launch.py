"""Launches of SiTU-GLU's kernels."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ascend_k3.ops.kernels import TYPES, KernelLaunch, for_dtypes, one_dtype
from ascend_k3.ops.mx.formats import BLOCK, FORMATS
from ascend_k3.ops.mx.kernel.launch import NUMBERS

HERE = Path(__file__).parent
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SITU_GLU = KernelLaunch(folder=HERE, source="situ_glu.cpp", entry="situ_glu", variants=for_dtypes(*DTYPES))
SITU_GLU_MX_QUANTIZE = KernelLaunch(
    folder=HERE, source="situ_glu_mx_quantize.cpp", entry="situ_glu_mx_quantize", variants=for_dtypes(*DTYPES)
)


def situ_glu(gate_up: Tensor, beta: float, linear_beta: float | None) -> Tensor:
    dtype = one_dtype("situ_glu", DTYPES, gate_up=gate_up)
    gate_up = gate_up.contiguous()
    width = gate_up.shape[-1] // 2
    y = gate_up.new_empty((*gate_up.shape[:-1], width))
    if y.numel():
        SITU_GLU.run(
            inputs=(gate_up,),
            outputs=(y,),
            sizes=(y.numel() // width, width, y.element_size()),
            numbers=(beta, linear_beta or 0.0),
            defines={"DTYPE": TYPES[dtype]},
        )
    return y


def situ_glu_mx_quantize(
    gate_up: Tensor, beta: float, linear_beta: float | None, format: str, rule: str
) -> tuple[Tensor, Tensor]:
    dtype = one_dtype("situ_glu_mx_quantize", DTYPES, gate_up=gate_up)
    element = FORMATS[format]
    gate_up = gate_up.contiguous()
    lead, width = gate_up.shape[:-1], gate_up.shape[-1] // 2
    data = gate_up.new_empty((*lead, width // element.per_byte), dtype=element.dtype)
    scale = gate_up.new_empty((*lead, width // BLOCK), dtype=torch.uint8)
    if scale.numel():
        SITU_GLU_MX_QUANTIZE.run(
            inputs=(gate_up,),
            outputs=(data.view(torch.uint8), scale),
            sizes=(
                gate_up.numel() // (2 * width),
                width,
                gate_up.element_size(),
                NUMBERS[format],
                element.mantissa_bits,
                rule == "even",
            ),
            numbers=(beta, linear_beta or 0.0),
            defines={"DTYPE": TYPES[dtype]},
        )
    return data, scale
