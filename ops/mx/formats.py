"""The element formats of OCP Microscaling (MX) v1.0, and the tables that decode a byte of elements or of scales.

A block is 32 elements along the last axis with one scale byte s (E8M0): 2^(s - 127) for s = 0 to 254, NaN for s = 255.

Source: OCP Microscaling Formats (MX) Specification v1.0, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 32  # elements that share a scale
SCALE_BIAS = 127  # exponent bias of E8M0
SCALE_NAN = 255


@dataclass(frozen=True, kw_only=True)
class ElementFormat:
    """One element format: sign, exponent, mantissa.

    emax: exponent of the largest finite number; emin: of the smallest normal one, below it the steps stay equal.
    """

    emax: int
    emin: int
    mantissa_bits: int
    largest: float
    dtype: torch.dtype  # of `MXTensor.data`
    per_byte: int  # elements in one entry of `MXTensor.data`


FORMATS = {
    "mxfp4": ElementFormat(emax=2, emin=0, mantissa_bits=1, largest=6.0, dtype=torch.uint8, per_byte=2),
    "mxfp8_e4m3": ElementFormat(emax=8, emin=-6, mantissa_bits=3, largest=448.0, dtype=torch.float8_e4m3fn, per_byte=1),
    "mxfp8_e5m2": ElementFormat(
        emax=15, emin=-14, mantissa_bits=2, largest=57344.0, dtype=torch.float8_e5m2, per_byte=1
    ),
}
RULES = ("floor", "even")


def _decode_scales() -> Tensor:
    # The bit patterns of the powers of two in float64: exact, and 2^-127 is an ordinary number there.
    exponents = torch.arange(256, dtype=torch.int64, device="cpu") - SCALE_BIAS
    values = ((exponents + 1023) << 52).view(torch.float64)
    values[SCALE_NAN] = torch.nan
    return values


def _decode_elements(format: str) -> Tensor:
    codes = torch.arange(256, dtype=torch.int64, device="cpu")
    if format != "mxfp4":
        return codes.to(torch.uint8).view(FORMATS[format].dtype).to(torch.float64).unsqueeze(1)
    magnitudes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    values = torch.tensor(magnitudes + [-value for value in magnitudes], dtype=torch.float64, device="cpu")
    return torch.stack([values[codes & 15], values[codes >> 4]], dim=1)  # the low nibble is the earlier element


# Float64 masters; every entry is exact in float32 and bf16 too.
SCALES: Tensor = _decode_scales()  # [256]: byte -> 2^(byte - 127)
ELEMENTS: dict[str, Tensor] = {format: _decode_elements(format) for format in FORMATS}  # [256, per_byte]
