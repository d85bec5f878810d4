"""Facts of the SoCs that kernels are written for: cores, memories, alignments and peak rates, each with its source.

`soc("a3").clock_hz` is a figure and `soc("a3").sources["clock_hz"]` says where it comes from. All of them are
second-hand and none was measured by this project; `soc("a3").with_(clock_hz=1.8e9)` replaces what is known better.

A2 is the Ascend 910B and A3 the 910C, whose package holds two dies; everything here is of one die, which is one device.
Both are dav-2201. 950PR and 950DT are dav-3510. Capacities and rates of a core's memories are of one core, GM is global
memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NAMES = ("a2", "a3", "950pr", "950dt")
ALIASES = {"950": "950pr"}

KIB, GIB = 1 << 10, 1 << 30
FLOAT32_BYTES = 4  # the vector units calculate in float32


@dataclass(frozen=True, slots=True, kw_only=True)
class SoC:
    """One SoC. Every field but the first two is a figure with an entry in `sources`.

    name, arch: one of `NAMES`; 2201 or 3510.
    cube_cores, vector_cores: of the SoC; a block is one cube and two vector cores.
    clock_hz: of both.
    capacity: bytes of each local memory, "UB", "L1", "L0A", "L0B", "L0C", "BT", "FB", on dav-3510 "L0A_MX", "L0B_MX".
    usable_ub: bytes of UB that a kernel may allocate.
    alignment: bytes that an address in each memory is a multiple of.
    mmad_alignment: bytes that the destination of a matrix product in L0C is a multiple of.
    macs_per_cycle: multiply-adds of one cube core, by the type of the operands; a type that is missing it lacks.
    vector_bytes_per_cycle: bytes of results that one vector instruction makes in a cycle of one core.
    vector_issue: vector instructions that a core starts in a cycle at most.
    gm_bytes_per_second: global memory, both directions together.
    gm_granularity: bytes of global memory that one access fetches at least.
    l2_bytes, l2_bytes_per_second: the cache before it that all cores share, both directions together.
    memory_bytes: size of global memory.
    path_bytes_per_second, path_bytes_per_cycle: what one core moves from memory to memory, "GM->UB"; each path is in
        one of the two, as its source states it, and `path_rate` reads both.
    """

    name: str
    arch: int
    cube_cores: int
    vector_cores: int
    clock_hz: float
    capacity: Mapping[str, int]
    usable_ub: int
    alignment: Mapping[str, int]
    mmad_alignment: int
    macs_per_cycle: Mapping[str, int]
    vector_bytes_per_cycle: int
    vector_issue: int
    gm_bytes_per_second: float
    gm_granularity: int
    l2_bytes: int
    l2_bytes_per_second: float
    memory_bytes: int
    path_bytes_per_second: Mapping[str, float]
    path_bytes_per_cycle: Mapping[str, float]
    sources: Mapping[str, str]

    def __post_init__(self) -> None:
        for figure in figures():
            value = getattr(self, figure)
            entries = value.items() if isinstance(value, Mapping) else [("", value)]
            for key, number in entries:
                if isinstance(number, bool) or not isinstance(number, (int, float)) or not number > 0:
                    where = f"{figure}[{key!r}]" if key else figure
                    raise ValueError(f"soc: {where} of {self.name} must be a positive number, got {number!r}.")

    def with_(self, **changes: Any) -> SoC:
        """This SoC with other figures: a number replaces, the entries of a table are merged into it.

        Raises: ValueError for a name that is no figure, and a value that is not a positive number.
        """
        sources = dict(self.sources)
        for figure, value in changes.items():
            if figure not in figures():
                raise ValueError(f"soc: there is no figure {figure!r}; the figures are {', '.join(figures())}.")
            if isinstance(getattr(self, figure), Mapping):
                if not isinstance(value, Mapping):
                    raise ValueError(f"soc: {figure} is a table and takes a mapping of its entries, got {value!r}.")
                changes[figure] = {**getattr(self, figure), **value}
                sources[figure] += f"; {', '.join(value)}: given by the caller"
            else:
                sources[figure] = "given by the caller"
        return dataclasses.replace(self, **changes, sources=sources)

    def path_rate(self, path: str) -> float:
        """Bytes per second that one core moves along `path`, such as "GM->UB".

        Raises: ValueError for a path whose rate is not known.
        """
        if path in self.path_bytes_per_cycle:
            return self.path_bytes_per_cycle[path] * self.clock_hz
        if path in self.path_bytes_per_second:
            return self.path_bytes_per_second[path]
        known = ", ".join([*self.path_bytes_per_second, *self.path_bytes_per_cycle])
        raise ValueError(f"soc: no rate of the path {path!r} is known on {self.name}; known are {known}.")

    def macs_per_second(self, type: str) -> float:
        """Multiply-adds per second of all cube cores on operands of `type`.

        Raises: ValueError for a type that the cube cores lack.
        """
        if type not in self.macs_per_cycle:
            known = ", ".join(self.macs_per_cycle)
            raise ValueError(
                f"soc: the cube cores of {self.name} (dav-{self.arch}) do not multiply {type!r}; they multiply "
                f"{known}, and the cost of a product can be asked for in one of these."
            )
        return self.macs_per_cycle[type] * self.cube_cores * self.clock_hz

    def vector_elements_per_second(self) -> float:
        """Float32 results per second of all vector cores."""
        lanes = self.vector_bytes_per_cycle / FLOAT32_BYTES
        return lanes * self.vector_issue * self.vector_cores * self.clock_hz


def figures() -> tuple[str, ...]:
    """Names of the fields of `SoC` that are figures."""
    return tuple(field.name for field in dataclasses.fields(SoC) if field.name not in ("name", "arch", "sources"))


def soc(name: str) -> SoC:
    """The SoC of that name: one of `NAMES`, or 950 for 950pr.

    Raises: ValueError for another name.
    """
    known = ALIASES.get(name, name)
    if known not in _FACTS:
        raise ValueError(f"soc: {name!r} is no SoC; it must be one of {', '.join(NAMES)}, or 950, which means 950pr.")
    arch, facts = _FACTS[known]
    # Tables are copied: a caller that changes one changes its own.
    values: dict[str, Any] = {
        figure: dict(value) if isinstance(value, Mapping) else value for figure, (value, _) in facts.items()
    }
    return SoC(name=known, arch=arch, **values, sources={figure: source for figure, (_, source) in facts.items()})


# Figures are (value, source). What all SoCs of an architecture share comes first.
_Facts = dict[str, tuple[Any, str]]

_PATHS = {
    "GM->UB": 101e9,
    "GM->L1": 135e9,
    "UB->GM": 188e9,
    "L0C->GM": 70e9,
    "L0C->L1": 128e9,
    "L1->L0A": 441e9,
    "L1->L0B": 220e9,
}
_ALIGNMENT = {"GM": 1, "UB": 32, "L1": 32, "L0A": 512, "L0B": 512, "L0C": 64, "BT": 64, "FB": 64}

_DAV_2201: _Facts = {
    "capacity": (
        {
            "UB": 192 * KIB,
            "L1": 512 * KIB,
            "L0A": 64 * KIB,
            "L0B": 64 * KIB,
            "L0C": 128 * KIB,
            "BT": 1 * KIB,
            "FB": 2 * KIB,
        },
        "target specs of ascendnpu-ir 1.2.0; BT and FB: Ascend C documentation",
    ),
    "usable_ub": (184 * KIB, "Ascend C documentation: Select and its like use the last 8 KiB of 192"),
    "alignment": (_ALIGNMENT, "Ascend C documentation, address alignment of the memories"),
    "mmad_alignment": (1 * KIB, "Ascend C documentation, Mmad"),
    "macs_per_cycle": (
        {"fp16": 16 * 16 * 16, "bf16": 16 * 16 * 16, "int8": 16 * 32 * 16, "fp32": 16 * 4 * 16},
        "asc-devkit READMEs: 16 x 16 x 16 in 16 bits, int8 twice, float32 a quarter",
    ),
    "vector_bytes_per_cycle": (256, "asc-devkit: 128 lanes of 16 bits or 64 of 32 in a cycle"),
    "vector_issue": (1, "Ascend C documentation: the vector pipe runs its instructions in order, one at a time"),
    "gm_granularity": (512, "Huawei Connect 2025"),
    "l2_bytes": (192 << 20, "asc-devkit READMEs; of a die"),
    "l2_bytes_per_second": (5e12, "asc-devkit READMEs, about"),
    "path_bytes_per_second": (_PATHS, "cost model of pto-isa, effective rates of one core; asc-devkit"),
    "path_bytes_per_cycle": ({}, "no path of dav-2201 is stated by the cycle"),
}

_DAV_3510: _Facts = {
    "capacity": (
        {
            "UB": 248 * KIB,
            "L1": 512 * KIB,
            "L0A": 64 * KIB,
            "L0B": 64 * KIB,
            "L0C": 256 * KIB,
            "BT": 4 * KIB,
            "FB": 4 * KIB,
            "L0A_MX": 4 * KIB,
            "L0B_MX": 4 * KIB,
        },
        "target specs of ascendnpu-ir 1.2.0; BT, FB and the MX scales: Ascend C documentation",
    ),
    "usable_ub": (248 * KIB, "Ascend C documentation: of 256 KiB the system keeps 8"),
    "alignment": (
        {**_ALIGNMENT, "L0A_MX": 32, "L0B_MX": 32},
        "Ascend C documentation, address alignment of the memories; MX: a fractal of scales has 32 bytes",
    ),
    "mmad_alignment": (1 * KIB, "Ascend C documentation, Mmad"),
    "macs_per_cycle": (
        {
            "fp16": 16 * 16 * 16,
            "bf16": 16 * 16 * 16,
            "int8": 16 * 32 * 16,
            "fp32": 16 * 4 * 16,
            "fp8": 16 * 32 * 16,
            "mxfp8": 16 * 32 * 16,
            "mxfp4": 16 * 64 * 16,
        },
        "asc-devkit READMEs: 16 x 16 x 16 fp16, 16 x 32 x 16 fp8, 16 x 64 x 16 mxfp4; int8 and fp32 are not published, "
        "those of dav-2201 are taken",
    ),
    "vector_bytes_per_cycle": (256, "asc-devkit: a vector register has 256 bytes"),
    "vector_issue": (
        2,
        "CANN 9.0 best practices, Instruction Dual-Issue: two independent instructions of a vector function in a cycle",
    ),
    "gm_granularity": (128, "Huawei Connect 2025"),
    "l2_bytes": (128 << 20, "asc-devkit READMEs, 950PR; the 950DT's is not published, the same is taken"),
    "l2_bytes_per_second": (5.2e12, "asc-devkit READMEs, 950PR, about; 950DT: not published, the same is taken"),
    "path_bytes_per_second": (
        {**_PATHS, "L1->L0B": 2 * _PATHS["L1->L0B"]},
        "cost model of pto-isa, of dav-2201; asc-devkit: L1->L0B is twice as fast on dav-3510",
    ),
    "path_bytes_per_cycle": ({"L1->UB": 128, "UB->L1": 128, "L0C->UB": 128}, "asc-devkit"),
}

_FACTS: dict[str, tuple[int, _Facts]] = {
    "a2": (
        2201,
        {
            **_DAV_2201,
            "cube_cores": (24, "target specs of ascendnpu-ir 1.2.0: 910B1 and 910B2; B3 and B4 have 20"),
            "vector_cores": (48, "target specs of ascendnpu-ir 1.2.0: 910B1 and 910B2; B3 and B4 have 40"),
            "clock_hz": (1.85e9, "A2A3.ini of pypto: 910B1; the others run at 1.5 to 1.8 GHz"),
            "gm_bytes_per_second": (1.6e12, "asc-devkit READMEs give 1.6 to 1.8 TB/s; the lower one is the plan"),
            "memory_bytes": (64 * GIB, "asc-devkit READMEs"),
        },
    ),
    "a3": (
        2201,
        {
            **_DAV_2201,
            "cube_cores": (24, "target specs of ascendnpu-ir 1.2.0, one die: 9382 and 9392; 9362 and 9372 have 20"),
            "vector_cores": (48, "target specs of ascendnpu-ir 1.2.0, one die: 9382 and 9392; 9362 and 9372 have 40"),
            "clock_hz": (1.85e9, "A2A3.ini of pypto, about"),
            "gm_bytes_per_second": (1.6e12, "CloudMatrix384, arXiv:2506.12708: 3.2 TB/s a package of two dies"),
            "memory_bytes": (64 * GIB, "CloudMatrix384, arXiv:2506.12708: 128 GB a package of two dies"),
        },
    ),
    "950pr": (
        3510,
        {
            **_DAV_3510,
            "cube_cores": (32, "target specs of ascendnpu-ir 1.2.0: 28, 32 or 36 by product"),
            "vector_cores": (64, "target specs of ascendnpu-ir 1.2.0: 56, 64 or 72 by product"),
            "clock_hz": (1.65e9, "asc-devkit best-practice READMEs"),
            "gm_bytes_per_second": (1.6e12, "announced, Huawei Connect 2025"),
            "memory_bytes": (
                128 * GIB,
                "announced, Huawei Connect 2025; the Atlas 350 card, 28 cube cores, has 112 GiB (CANN platform file)",
            ),
        },
    ),
    "950dt": (
        3510,
        {
            **_DAV_3510,
            "cube_cores": (36, "target specs of ascendnpu-ir 1.2.0: 32 or 36 by product"),
            "vector_cores": (72, "target specs of ascendnpu-ir 1.2.0: 64 or 72 by product"),
            "clock_hz": (1.65e9, "not published; that of the 950PR, with which 36 cores come near the announced peaks"),
            "gm_bytes_per_second": (4.0e12, "announced, Huawei Connect 2025"),
            "memory_bytes": (144 * GIB, "announced, Huawei Connect 2025"),
        },
    ),
}
