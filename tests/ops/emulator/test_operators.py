"""dst = src0 + src1 and the like, on whole tensors, and operator() of a LocalTensor.

Sentences are of the forms "whole tensor" on the pages Add, Sub, Mul, Div, And, Or, Compare.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascend_k3.ops import emulator

N = 256
SOCS = ("a3", "950pr")
ARITHMETIC = {0: np.add, 1: np.subtract, 2: np.multiply, 3: np.divide, 4: np.bitwise_and, 5: np.bitwise_or}
COMPARISONS = {6: np.less, 7: np.greater, 8: np.less_equal, 9: np.greater_equal, 10: np.equal, 11: np.not_equal}


def run(source: Any, soc: str, op: int, count: int = N) -> tuple[Any, Any, Any, emulator.Report]:
    random, dtype = np.random.default_rng(4), np.int16 if op in (4, 5) else np.float32
    x, z = (random.integers(1, 9, N).astype(dtype) for _ in range(2))
    y = np.full(N, 77, dtype)
    return x, z, y, source("operators.cpp").build(soc).launch(1, x, z, y, op, count)


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("op", ARITHMETIC)
def test_as_many_elements_as_dst_has(source: Any, soc: str, op: int) -> None:
    """ "The number of elements is the whole length of the destination"."""
    for count in (N, 100):
        x, z, y, report = run(source, soc, op, count)
        assert report.hazards == ()
        assert np.array_equal(y[:count], ARITHMETIC[op](x[:count], z[:count])) and (y[count:] == 77).all()


@pytest.mark.parametrize("soc", SOCS)
@pytest.mark.parametrize("op", COMPARISONS)
def test_a_bit_for_each_element_of_the_sources(source: Any, soc: str, op: int) -> None:
    x, z, y, report = run(source, soc, op)
    assert report.hazards == ()
    bits = np.packbits(COMPARISONS[op](x, z), bitorder="little")
    assert np.array_equal(y.view(np.uint8)[: N // 8], bits) and (y[N // 32 :] == 77).all()


@pytest.mark.parametrize("soc", SOCS)
def test_elements(source: Any, soc: str) -> None:
    """operator(): "on the left like SetValue, on the right like GetValue"."""
    x, z, y, report = run(source, soc, 12)
    assert report.hazards == () and y[3] == x[2] and y[4] == x[2] + z[2] and (y[5:] == 77).all()


@pytest.mark.parametrize("soc", SOCS)
def test_words_of_32_bits_as_two_of_16(source: Any, soc: str) -> None:
    """Page And: "ReinterpretCast to uint16_t or int16_t", twice as many elements."""
    x, z, y, report = run(source, soc, 13)
    assert report.hazards == () and np.array_equal(y.view(np.int32), x.view(np.int32) & z.view(np.int32))


def test_a_report_has_the_line_of_the_operator(source: Any) -> None:
    _, _, _, report = run(source, "a3", 0, N + 64)
    assert [hazard.kind for hazard in report.hazards] == ["out_of_bounds", "out_of_bounds"]  # src0, src1
    line = str(source("operators.cpp").lines["plus"])
    assert {hazard.location.rsplit(":", 1)[1] for hazard in report.hazards} == {line}


def test_types_that_the_form_does_not_have(tmp_path: Path) -> None:
    """And: "int8_t, uint8_t, int64_t, uint64_t in the form with a count alone"; Add: as with a count."""
    path = tmp_path / "one.cpp"
    for soc, type, op, said in (
        ("a3", "bfloat16_t", "+", "Add: dav-2201 does not have it"),
        ("a3", "int32_t", "&", "And: dav-2201 does not have it"),
        ("950pr", "int8_t", "&", "And: dav-3510 does not have it"),
        ("a3", "int32_t", "/", "Div: dav-2201 does not have it"),
    ):
        path.write_text(
            '#include "kernel_operator.h"\nusing namespace AscendC;\n'
            'extern "C" __global__ __aicore__ void one(GM_ADDR x) {\n'
            f"    LocalTensor<{type}> a, b;\n    a = a {op} b;\n}}\n"
        )
        with pytest.raises(emulator.KernelBuildError, match=said):
            emulator.build(path, entry="one", soc=soc)
