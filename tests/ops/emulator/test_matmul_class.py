"""The part of the high-level Matmul class that is provided: global memory, row-major, called by vector cores.

Sentences are of the pages Matmul (use), REGIST_MATMUL_OBJ, Init, SetOrgShape, SetSingleShape, SetTensorA, Iterate,
GetTensorC, IterateAll and the struct TCubeTiling.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ascend_k3.ops import emulator
from tests.tolerances import RELATIVE_RMS, relative_rms

SOCS = ("a3", "950pr")
FIELDS = (
    "usedCoreNum M N Ka Kb singleCoreM singleCoreN singleCoreK baseM baseN baseK depthA1 depthB1 stepM stepN isBias "
    "transLength iterateOrder shareMode shareL1Size shareL0CSize shareUbSize batchM batchN singleBatchM singleBatchN "
    "stepKa stepKb depthAL1CacheUB depthBL1CacheUB dbL0A dbL0B dbL0C mxTypePara"
).split()
TYPES = {
    "half": ("float", "float", np.float16, np.float32, np.float32),
    "int8_t": ("int32_t", "int32_t", np.int8, np.int32, np.int32),
}
BLOCKS = 2  # four vector cores


def run(
    source: Any, soc: str, op: str, m: int, n: int, k: int, fixed: int = 1, type: str = "half", **given: Any
) -> tuple[Any, Any, emulator.Report]:
    kernel = source("matmul_class.cpp")
    result, bias_type, stored, out, bias_stored = TYPES[type]
    options = {name: given.pop(name) for name in ("seed", "outputs") if name in given}
    turned, part_k, dirty = given.pop("turned", 0), given.pop("part_k", 0), given.pop("dirty", 0)
    rows = -(-m // (2 * BLOCKS))
    fields = dict(M=m, N=n, Ka=k, Kb=k, singleCoreM=rows, singleCoreN=n, singleCoreK=k, baseM=16, baseN=32, baseK=32)
    fields |= dict(depthA1=1, depthB1=1, stepM=1, stepN=1, stepKa=1, stepKb=1, dbL0A=2, dbL0B=2, dbL0C=1) | given
    packed = struct.pack(f"<{len(FIELDS)}i", *(fields.get(name, 0) for name in FIELDS))
    random = np.random.default_rng(m * 100 + n + k)
    a, b = (random.integers(-4, 5, shape).astype(stored) for shape in ((m, k), (k, n)))
    bias = random.integers(-9, 9, n).astype(bias_stored)
    c = np.full((m, n), dirty, out)
    report = kernel.build(soc, ELEMENT=type, OUTPUT=result, OFFSETS=bias_type).launch(
        BLOCKS,
        np.ascontiguousarray(a.T) if turned else a,
        np.ascontiguousarray(b.T) if turned else b,
        c,
        bias,
        packed + struct.pack("<4i", kernel.opcodes[op], fixed, turned, part_k),
        workspace=a.nbytes,
        **options,
    )
    expected = a.astype(np.float64) @ b.astype(np.float64) + (bias if fields.get("isBias") else 0)
    return c, expected.astype(out), report


@pytest.mark.parametrize(("soc", "type"), [("a3", "half"), ("950pr", "half"), ("a3", "int8_t")])
@pytest.mark.parametrize("op", ["all", "tiles"])
@pytest.mark.parametrize(("isBias", "turned", "iterateOrder"), [(0, 0, 0), (1, 1, 1)])
def test_products(source: Any, soc: str, type: str, op: str, isBias: int, turned: int, iterateOrder: int) -> None:
    """ "C = A * B + Bias"; "A is [K, M] and B [N, K] when they are transposed"; "a last tile has what is left";
    SetSingleShape for the last core's rows; IterateAll, and Iterate with GetTensorC until it is false."""
    for seed in (None, 3):
        c, expected, report = run(
            source,
            soc,
            op,
            70,
            80,
            48,
            type=type,
            isBias=isBias,
            turned=turned,
            iterateOrder=iterateOrder,
            seed=seed,
            outputs=[2],
        )
        assert report.hazards == (), [str(hazard) for hazard in report.hazards]
        assert np.array_equal(c, expected)


def test_sequential_tiles(source: Any) -> None:
    """enSequentialWrite: "[baseM, baseN] one behind the other", along m first."""
    c, expected, report = run(source, "a3", "sequential", 128, 64, 32)
    assert report.hazards == ()
    for core in range(4):
        part = expected[core * 32 :][:32]
        want = [part[i : i + 16, j : j + 32].ravel() for j in (0, 32) for i in (0, 16)]
        assert np.array_equal(c[core * 32 :][:32].ravel(), np.concatenate(want))


def test_partial_sums_and_atomic_adds(source: Any) -> None:
    """enPartialSum: "onto what L0C has"; enAtomic 1: "AtomicAdd"."""
    c, expected, report = run(source, "a3", "partial_sums", 64, 32, 96, part_k=32)
    assert report.hazards == () and np.array_equal(c, expected)
    c, expected, report = run(source, "a3", "adds", 64, 64, 32)
    assert report.hazards == () and np.array_equal(c, 2 * expected)


@pytest.mark.parametrize("soc", SOCS)
def test_order_against_the_vector_core(source: Any, soc: str) -> None:
    """The call waits: C can be read behind it. What the vector core has not waited for, the cube core does not see."""
    for seed in (None, *range(5)):
        c, expected, report = run(source, soc, "after_vector", 4, 32, 32, seed=seed)
        assert report.hazards == (), [str(hazard) for hazard in report.hazards]
        assert np.array_equal(c, 2 * expected)
        hazards = run(source, soc, "after_vector", 4, 32, 32, 0, seed=seed)[2].hazards
        assert {hazard.kind for hazard in hazards} <= {"race", "uninitialised"} and hazards
        line = source("matmul_class.cpp").lines["after_vector"]
        assert any(hazard.kind == "race" and hazard.location.endswith(f":{line}") for hazard in hazards)


def test_cost(source: Any) -> None:
    """Multiply-adds, and the bytes of tiles of baseM x baseN over all of k."""
    _, _, report = run(source, "a3", "all", 128, 64, 32)
    assert report.counters.macs == {"fp16": 128 * 64 * 32}
    assert report.counters.paths["GM->L1"] == 4 * 4 * (16 + 32) * 32 * 2
    assert report.counters.paths["L0C->GM"] == 128 * 64 * 4
    c, expected, report = run(source, "a3", "all", 512, 256, 256, baseM=128, baseN=128, baseK=64)
    assert report.ok and np.array_equal(c, expected)
    pipes = report.estimate().pipes
    assert report.estimate().critical_path < pipes["MTE2"] + pipes["MTE1"] + pipes["M"] + pipes["FIX"]


def test_real_numbers(source: Any) -> None:
    kernel = source("matmul_class.cpp")
    random = np.random.default_rng(1)
    a, b = (random.standard_normal((64, 64)).astype(np.float16) for _ in range(2))
    fields = dict(
        M=64, N=64, Ka=64, Kb=64, singleCoreM=16, singleCoreN=64, singleCoreK=64, baseM=16, baseN=64, baseK=64
    )
    packed = struct.pack(f"<{len(FIELDS)}i", *(fields.get(name, 0) for name in FIELDS)) + struct.pack("<4i", 0, 1, 0, 0)
    c = np.zeros((64, 64), np.float32)
    built = kernel.build("a3", ELEMENT="half", OUTPUT="float", OFFSETS="float")
    assert built.launch(BLOCKS, a, b, c, np.zeros(64, np.float32), packed, workspace=64).hazards == ()
    expected = torch.from_numpy(a.astype(np.float64) @ b.astype(np.float64))
    assert relative_rms(torch.from_numpy(c), expected) < RELATIVE_RMS[torch.float32]


MISTAKES = {
    "no_end": ("deadlock", "serves its vector cores until End of each of their Matmul objects", {}),
    "not_given": ("argument", "A or B is missing", {}),
    "early_read": ("argument", "there is no tile; Iterate comes first", {}),
    "wrong_turn": ("argument", "isTransposeA is true and the MatmulType's ISTRANS is not", {}),
    "too_large": ("capacity", "tiles of A in L0A need 131072 bytes and there are 65536", {"baseM": 128, "baseK": 256}),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(source: Any, name: str) -> None:
    kind, said, fields = MISTAKES[name]
    hazards = run(source, "a3", name, 64, 64, 32, 0, **fields)[2].hazards
    assert hazards[0].kind == kind and said in hazards[0].message, [str(hazard) for hazard in hazards]
    lines = source("matmul_class.cpp").lines
    line = lines.get(name, lines["regist"])
    assert hazards[0].location.endswith(f":{line}")
    assert run(source, "a3", name, 64, 64, 32)[2].hazards == ()


def test_what_is_not_provided(tmp_path: Path) -> None:
    path = tmp_path / "one.cpp"
    types = {
        "TPosition::VECIN, CubeFormat::ND, half": "matrices in global memory",
        "TPosition::GM, CubeFormat::NZ, half": "CubeFormat::ND alone",
        "TPosition::GM, CubeFormat::ND, half, false, LayoutMode::NORMAL": "no batches",
        "TPosition::GM, CubeFormat::ND, int16_t": "both half, bfloat16_t, float or int8_t",
    }
    for type, said in types.items():
        path.write_text(
            '#include "kernel_operator.h"\n#include "lib/matmul/matmul_intf.h"\nusing namespace AscendC;\n'
            f"using X = MatmulType<{type}>;\nusing Y = MatmulType<TPosition::GM, CubeFormat::ND, float>;\n"
            'extern "C" __global__ __aicore__ void one(GM_ADDR x) {\n    Matmul<X, X, Y> mm;\n    mm.End();\n}\n'
        )
        with pytest.raises(emulator.KernelBuildError, match=said):
            emulator.build(path, entry="one")


def test_a_kernel_without_a_cube_core(tmp_path: Path) -> None:
    path = tmp_path / "one.cpp"
    path.write_text(
        """#include "kernel_operator.h"
#include "lib/matmul_intf.h"
using namespace AscendC;
using X = MatmulType<TPosition::GM, CubeFormat::ND, half>;
using Y = MatmulType<TPosition::GM, CubeFormat::ND, float>;
extern "C" __global__ __aicore__ void one(GM_ADDR x, TCubeTiling tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    GlobalTensor<half> a;
    GlobalTensor<float> c;
    a.SetGlobalBuffer((__gm__ half*)x);
    c.SetGlobalBuffer((__gm__ float*)x);
    Matmul<X, X, Y> mm;
    REGIST_MATMUL_OBJ(&pipe, nullptr, mm);
    mm.Init(&tiling);
    mm.SetTensorA(a);
    mm.SetTensorB(a);
    mm.IterateAll(c);
    mm.End();
}
"""
    )
    sizes = dict(M=16, N=16, Ka=16, Kb=16, singleCoreM=16, singleCoreN=16, singleCoreK=16, baseM=16, baseN=16, baseK=16)
    packed = struct.pack(f"<{len(FIELDS)}i", *(sizes.get(name, 0) for name in FIELDS))
    report = emulator.build(path, entry="one").launch(1, np.zeros(1024, np.float32), packed)
    assert [hazard.kind for hazard in report.hazards] == ["cross_core"]
