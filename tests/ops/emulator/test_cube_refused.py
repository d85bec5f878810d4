"""What the cube core does not have: refused by the compiler, or reported and not done."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from ascend_k3.ops import emulator

KERNELS = Path(__file__).parent / "kernels"
# Case of cube_refused.cpp, SoC, what the compiler says. Each type and form is missing from the page of its call.
COMPILE = (
    (0, "a3", "Mmad: this combination of element types does not exist"),
    (1, "950pr", "Mmad: this combination of element types does not exist"),
    (2, "a3", "DataCopy with Nd2NzParams: this element type does not exist"),
    (3, "950pr", "Fill: this element type does not exist"),
    (4, "950pr", "MmadMx: this combination of element types does not exist"),
    (5, "950pr", "Fixpipe to L1 with FixpipeParamsV220 takes CFG_NZ on dav-3510"),
    (6, "a3", "LoadData with LoadData2DParamsV2 exists on dav-3510 only"),
    (7, "a3", "DataCopy with Dn2NzParams exists on dav-3510 only"),
    (8, "a3", "DataCopyL1ToUB exists on dav-3510 only"),
    (9, "a3", "Mmad: this combination of element types does not exist"),
    (10, "a3", "Fixpipe on dav-2201 takes FixpipeParamsV220"),
    (11, "a3", "Fixpipe to L1: this combination of element types does not exist"),
    (12, "950pr", "MmadMx: this combination of element types does not exist"),
)
BOTH, NEW, OLD = ("a3", "950pr"), ("950pr",), ("a3",)
# Case of cube_arguments.cpp, SoCs, kind and text of the hazard.
RUN = (
    (0, BOTH, "argument", "ndNum is 4096"),
    (1, BOTH, "argument", "nValue is 16385"),
    (2, BOTH, "argument", "srcDValue is 0"),
    (3, BOTH, "argument", "column groups would overlap"),
    (4, BOTH, "wrong_core", "dst has to be at A1, B1 or C1"),
    (5, BOTH, "alignment", "multiple of 32"),
    (6, BOTH, "argument", "ifTranspose turns 16-bit types only"),
    (7, BOTH, "wrong_core", "dst has to be at A2 or B2"),
    (8, BOTH, "alignment", "multiple of 512"),
    (9, BOTH, "argument", "m is 4096"),
    (10, BOTH, "argument", "unitFlag is 1"),
    (11, BOTH, "alignment", "multiple of 1024"),
    (12, BOTH, "wrong_core", "fm has to be at A2"),
    (13, BOTH, "argument", "channelSize is 20"),
    (14, BOTH, "argument", "kStartPt + kExtension is 32"),
    (15, BOTH, "argument", "mStartPt + mExtension is 32"),
    (16, BOTH, "argument", "kStartPt is 8"),
    (17, NEW, "argument", "dstStride has to be set"),
    (18, OLD, "out_of_bounds", "BT"),
    (18, NEW, "argument", "it has to be even"),
    (19, BOTH, "wrong_core", "there is no path between these two local memories"),
    (20, BOTH, "uninitialised", "Mmad (fm) reads"),
    (22, NEW, "wrong_core", "dst has to be at A1 or B1"),
    (23, OLD, "wrong_core", "no path from UB to L1"),
    (23, NEW, "wrong_core", "which this core does not have"),
    (24, BOTH, "uninitialised", "Mmad (fm) reads"),
    (24, BOTH, "uninitialised", "Mmad (filter) reads"),
    (25, BOTH, "uninitialised", "Mmad (fm) reads"),
    (30, NEW, "argument", "mStep is 1"),
    (31, NEW, "wrong_core", "dst has to be at B2"),
    (32, NEW, "argument", "no kDirectionAlign"),
    (33, NEW, "wrong_core", "one cube core with two vector cores"),
    (34, NEW, "alignment", "multiple of 1024"),
    (35, NEW, "argument", "k is 32"),
)


@pytest.mark.parametrize("case, soc, text", COMPILE)
def test_refused_by_the_compiler(case: int, soc: str, text: str) -> None:
    with pytest.raises(emulator.KernelBuildError) as error:
        emulator.build(KERNELS / "cube_refused.cpp", entry="cube_refused", soc=soc, defines={"CASE": case})
    assert text in str(error.value)


@cache
def kernel(soc: str) -> emulator.Kernel:
    return emulator.build(KERNELS / "cube_arguments.cpp", entry="cube_arguments", soc=soc)


@pytest.mark.parametrize(
    "case, soc, kind, text", [(case, soc, kind, text) for case, socs, kind, text in RUN for soc in socs]
)
def test_reported(case: int, soc: str, kind: str, text: str) -> None:
    report = kernel(soc).launch(1, np.zeros(1 << 20, np.uint8), case)
    assert any(h.kind == kind and text in h.message for h in report.hazards), report.hazards
    assert all("cube_arguments.cpp:" in h.location for h in report.hazards)


@pytest.mark.parametrize("soc", BOTH)
def test_empty_products_do_nothing(soc: str) -> None:
    """Page Mmad: with m, n or k of 0 the instruction is not executed."""
    report = kernel(soc).launch(1, np.zeros(1 << 20, np.uint8), 21)
    assert report.hazards == ()
    assert report.data["cores"][0]["counters"] == {}
