"""Layouts and numbers of the cube core as numpy has them: definitions written from the formulas of the pages.

Pages: "Key fractal formats" (ND, DN, Nz, Zn), "Auxiliary matrix formats" (MX scales), "On-the-fly quantization".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]


def padded(matrix: Array, rows: int, columns: int) -> Array:
    """The matrix with zeros below and to the right, to multiples of `rows` and `columns`."""
    return np.pad(matrix, ((0, -matrix.shape[0] % rows), (0, -matrix.shape[1] % columns)))


def nz(matrix: Array, columns: int, rows: int = 16) -> Array:
    """(M, N) -> pad -> (M1 M0, N1 N0) -> (M1, M0, N1, N0) -> (N1, M1, M0, N0), M0 = `rows`, N0 = `columns`."""
    p = padded(matrix, rows, columns)
    return p.reshape(p.shape[0] // rows, rows, p.shape[1] // columns, columns).transpose(2, 0, 1, 3).copy()


def zn(matrix: Array, k: int) -> Array:
    """(K, N) -> (K1 K0, N1 N0) -> (K1, K0, N1, N0) -> (K1, N1, N0, K0), K0 = `k`, N0 = 16."""
    p = padded(matrix, k, 16)
    return p.reshape(p.shape[0] // k, k, p.shape[1] // 16, 16).transpose(0, 2, 3, 1).copy()


def from_bfloat16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bfloat16(values: Array) -> Array:
    """Nearest, ties to even."""
    return (
        torch.from_numpy(np.ascontiguousarray(values, np.float32)).bfloat16().view(torch.int16).numpy().view(np.uint16)
    )


TORCH_FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def to_fp8(values: Array, format: str) -> Array:
    return torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(TORCH_FP8[format]).view(torch.uint8).numpy()


def from_fp8(bits: Array, format: str) -> Array:
    return torch.from_numpy(np.ascontiguousarray(bits)).view(TORCH_FP8[format]).float().numpy()


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)  # OCP Microscaling 1.0
E1M2 = np.array([0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75], np.float32)  # "Built-in data types": bias 1, largest 1.75


def from_fp4(codes: Array, format: str) -> Array:
    table = E2M1 if format == "e2m1" else E1M2
    return np.where(codes & 8, -table[codes & 7], table[codes & 7]).astype(np.float32)


def packed_fp4(codes: Array) -> Array:
    """Two codes of a row in a byte, the first in its low bits."""
    return (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)


def hifloat8() -> Array:
    """Value of each code of HiFloat8, from the format's own table: dot field, exponent of sign and magnitude, mantissa.

    arXiv:2409.16626, table 1: a prefix code "dot" says how many bits the exponent has (11: 4, 10: 3, 01: 2, 001: 1,
    0001: 0, 0000: denormal numbers 2^(mantissa - 23)); its first bit is the sign, a leading one of its magnitude is
    left out; what remains are 3 to 1 bits of mantissa.
    """
    out = np.zeros(256, np.float32)
    for code in range(256):
        sign, rest = -1.0 if code & 0x80 else 1.0, code & 0x7F
        bits = f"{rest:07b}"
        for prefix, width in (("11", 4), ("10", 3), ("01", 2), ("001", 1), ("0001", 0)):
            if bits.startswith(prefix):
                tail = bits[len(prefix) :]
                exponent = 0
                if width:
                    magnitude = int("1" + tail[1:width], 2)
                    exponent = -magnitude if tail[0] == "1" else magnitude
                fraction = tail[width:]
                value = (1 + int(fraction, 2) / 2 ** len(fraction)) * 2.0**exponent
                break
        else:
            value = 0.0 if rest == 0 else 2.0 ** (rest - 23)
        out[code] = sign * value
    out[0x80] = np.nan
    out[0x6F], out[0xEF] = np.inf, -np.inf
    return out


def factor_bits(factor: float, offset: int = 0, signed: bool = True, shift: int | None = None) -> int:
    """A quantization parameter: M1 in bits 31 to 13, N in 32 to 35, MCB 36, offset 37 to 45, sign 46."""
    bits = int(np.float32(factor).view(np.uint32)) | (offset & 0x1FF) << 37 | int(signed) << 46
    return bits | ((shift - 1) << 32 | 1 << 36 if shift else 0)


def quantized(
    values: Array, parameters: Array | np.uint64, relu: bool, to: str, product_of_int: bool, shifts: bool
) -> Array:
    """QUANT modes, "on-the-fly quantization and ReLU": times M1 (0 for negative numbers with ReLU), then to `to`."""
    parameters = np.broadcast_to(np.asarray(parameters, np.uint64), values.shape)
    factor = (parameters & np.uint64(0xFFFFE000)).astype(np.uint32).view(np.float32)
    x = values
    if product_of_int:
        if shifts:
            n = ((parameters >> np.uint64(32)) & np.uint64(15)).astype(np.int64) + 1
            on = (parameters >> np.uint64(36)) & np.uint64(1)
            x = np.where(on == 1, np.clip(values >> n, -32768, 32767), values)
        x = x.astype(np.float32)
    x = x * np.where(relu & (x < 0), np.float32(0), factor)
    if to in ("int8", "uint8"):
        offset = ((parameters >> np.uint64(37)) & np.uint64(0x1FF)).astype(np.int64)
        offset = np.where(offset >= 256, offset - 512, offset)
        whole = np.clip(np.rint(x.astype(np.float64)), -256, 255).astype(np.int64) + offset
        signed = ((parameters >> np.uint64(46)) & np.uint64(1)).astype(bool)
        low, high = np.where(signed, -128, 0), np.where(signed, 127, 255)
        return np.clip(whole, low, high).astype(np.int8 if to == "int8" else np.uint8)
    if to == "half":
        return np.clip(x, -65504, 65504).astype(np.float16)
    return x
