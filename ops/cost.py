"""What an operator costs at least, and the time that a SoC needs for it at least.

Each `ops/<operator>/cost.py` counts its operator's definition, from shapes and types alone:

    bytes             each input and output once, in the type that it is passed in; of pools, tables and stacks of
                      experts only what is used; what is updated in place is an input and an output
    multiply-adds     matrix products, by the type that is multiplied: that of the operands unless the caller says
                      otherwise
    vector elements   one for each element of each elementwise operation and of each sum or maximum along a row. A
                      multiply-add into a running sum counts once, and so does a function such as exp or sigmoid.
                      Casts are not counted, nor is what exists once a row or block: a mean, a root, a scale.

These are properties of the operator, not of a kernel: no kernel can do with fewer bytes, and one that casts, pads or
goes through workspace does more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ascend_k3.ops.soc import SoC

# Bytes of 32 elements; an MX format has one byte of scale for them.
_BYTES_OF_32 = {
    "fp32": 128,
    "fp16": 64,
    "bf16": 64,
    "int32": 128,
    "int64": 256,
    "mxfp8_e4m3": 33,
    "mxfp8_e5m2": 33,
    "mxfp4": 17,
}
MX_BLOCK = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The least time of a cost on a SoC, in seconds.

    seconds: of each resource, "memory", "cube" and "vector"; they can work at the same time.
    name: the resource that needs longest.
    """

    seconds: Mapping[str, float]
    name: str

    @property
    def time(self) -> float:
        """Seconds of the resource that needs longest."""
        return self.seconds[self.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Least work of one call.

    bytes_in, bytes_out: of global memory.
    macs: multiply-adds by type of the operands, "fp32", "fp16", "bf16", "mxfp8" or "mxfp4".
    vector_elements: float32 elements, see the head of this file.
    """

    bytes_in: int
    bytes_out: int
    macs: Mapping[str, int] = field(default_factory=dict)
    vector_elements: int = 0

    @property
    def bytes(self) -> int:
        """bytes_in + bytes_out."""
        return self.bytes_in + self.bytes_out

    def bound(self, soc: SoC) -> Bound:
        """memory = bytes / rate of global memory; cube = sum over types of macs / rate; vector = elements / rate.

        The rates are those of the whole SoC at its peak.

        Raises: ValueError when the SoC does not multiply one of the types.
        """
        seconds = {
            "memory": self.bytes / soc.gm_bytes_per_second,
            "cube": sum((count / soc.macs_per_second(type) for type, count in self.macs.items()), 0.0),
            "vector": self.vector_elements / soc.vector_elements_per_second(),
        }
        return Bound(seconds=seconds, name=max(seconds, key=lambda resource: seconds[resource]))


def nbytes(count: int, dtype: str) -> int:
    """Bytes of `count` elements; in an MX format with their scales, one byte for 32.

    Raises: ValueError for an unknown type, a negative count, and MX elements that fill no whole blocks.
    """
    if dtype not in _BYTES_OF_32:
        raise ValueError(f"cost: the type must be one of {', '.join(_BYTES_OF_32)}, got {dtype!r}.")
    if count < 0:
        raise ValueError(f"cost: the number of elements must not be negative, got {count}.")
    if is_mx(dtype) and count % MX_BLOCK:
        raise ValueError(f"cost: elements in {dtype} must fill blocks of {MX_BLOCK}, got {count}.")
    return count * _BYTES_OF_32[dtype] // 32


def is_mx(dtype: str) -> bool:
    """Whether `dtype` is an MX format."""
    return dtype.startswith("mx")


def mac_type(dtype: str) -> str:
    """The type that the cube cores multiply for operands of `dtype`: the MX formats in 8 bits are one type there."""
    return dtype.partition("_")[0]
