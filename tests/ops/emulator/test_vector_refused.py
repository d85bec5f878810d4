"""Types that the documentation does not list for a SoC are compile errors that name the call, the type and the SoC."""

from __future__ import annotations

import pytest

from ascend_k3.ops import emulator
from tests.ops.emulator.vector_oracle import KERNELS

# Pages Add, Muls, Duplicate, Exp, Adds, Mul and Cast, their sections on types.
REFUSED = {
    "a3": (
        "Add: dav-2201 does not have it for this element type. dav-2201: (half, float, int16_t, int32_t), dav-3510:",
        "Muls: dav-2201 does not have it",
        "Duplicate: dav-2201 does not have it",
        "Cast: dav-2201 does not convert between these types",
        "bfloat16_t",
        "long int",
        "signed char",
    ),
    "950pr": (
        "Exp: dav-3510 does not have it for this element type.",
        "Adds: dav-3510 does not have it for this element type.",
        "with a count: also (int8_t, uint8_t, int64_t, uint64_t).",
        "Mul: dav-3510 does not have it",
        "Cast: dav-3510 does not convert between these types",
        "bfloat16_t",
        "long int",
        "signed char, float",
    ),
}


@pytest.mark.parametrize("soc", sorted(REFUSED))
def test_an_element_type_that_the_soc_does_not_have(soc: str) -> None:
    with pytest.raises(emulator.KernelBuildError) as refused:
        emulator.build(KERNELS / "vector_refused.cpp", entry="vector_refused", soc=soc)
    for text in REFUSED[soc]:
        assert text in str(refused.value)
