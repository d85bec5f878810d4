"""Facts of the SoCs: the figures of docs/contract.md, their sources, how they are looked up, replaced and refused."""

from __future__ import annotations

import ast
import dataclasses
import pickle
import sys

import pytest

from ascend_k3.ops.soc import NAMES, SoC, figures, soc
from tests.paths import ROOT

KIB = 1024


@pytest.mark.parametrize(
    ("name", "arch", "cube", "vector", "bandwidth"),
    [
        ("a2", 2201, 24, 48, 1.6e12),
        ("a3", 2201, 24, 48, 1.6e12),
        ("950pr", 3510, 32, 64, 1.6e12),
        ("950dt", 3510, 36, 72, 4.0e12),
    ],
)
def test_the_contract_s_figures(name: str, arch: int, cube: int, vector: int, bandwidth: float) -> None:
    facts = soc(name)
    assert (facts.name, facts.arch) == (name, arch)
    assert (facts.cube_cores, facts.vector_cores, facts.gm_bytes_per_second) == (cube, vector, bandwidth)


def test_950_alone_is_the_950pr() -> None:
    assert soc("950") == soc("950pr")


@pytest.mark.parametrize("name", ["", "A3", "910b", "950PR", "atlas-a3", None, 950])
def test_another_name_is_refused(name: str) -> None:
    message = f"^soc: {name!r} is no SoC; it must be one of a2, a3, 950pr, 950dt, or 950, which means 950pr\\.$"
    with pytest.raises(ValueError, match=message):
        soc(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_a_source(name: str) -> None:
    facts = soc(name)
    assert set(facts.sources) == set(figures())
    assert len(figures()) == len(dataclasses.fields(SoC)) - 3
    assert all(len(source) >= 10 for source in facts.sources.values())


@pytest.mark.parametrize(
    ("name", "type", "tera"),
    [
        ("a2", "bf16", 364),
        ("a2", "int8", 728),
        ("a2", "fp32", 91),
        ("950pr", "fp16", 432),
        ("950pr", "mxfp8", 865),
        ("950pr", "mxfp4", 1730),
    ],
)
def test_peaks_are_those_that_the_readmes_print(name: str, type: str, tera: float) -> None:
    assert 2 * soc(name).macs_per_second(type) / 1e12 == pytest.approx(tera, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "type", "tera"), [("a3", "bf16", 376), ("950dt", "fp8", 1000), ("950dt", "mxfp4", 2000)]
)
def test_peaks_are_near_the_announced_ones(name: str, type: str, tera: float) -> None:
    assert 2 * soc(name).macs_per_second(type) / 1e12 == pytest.approx(tera, rel=0.04)


@pytest.mark.parametrize("name", NAMES)
def test_multiply_adds_of_a_cycle(name: str) -> None:
    plain = {"fp16": 4096, "bf16": 4096, "int8": 8192, "fp32": 1024}
    assert soc(name).macs_per_cycle == plain | ({"fp8": 8192, "mxfp8": 8192, "mxfp4": 16384} if "950" in name else {})


def test_a_type_that_the_cube_cores_lack_is_refused() -> None:
    message = (
        r"^soc: the cube cores of a3 \(dav-2201\) do not multiply 'mxfp4'; they multiply fp16, bf16, int8, fp32, "
        r"and the cost of a product can be asked for in one of these\.$"
    )
    with pytest.raises(ValueError, match=message):
        soc("a3").macs_per_second("mxfp4")


def test_vector_rates() -> None:
    assert soc("a3").vector_elements_per_second() == pytest.approx(64 * 48 * 1.85e9)
    assert soc("950dt").vector_elements_per_second() == pytest.approx(64 * 2 * 72 * 1.65e9)


LOCAL = {
    2201: {"UB": 192, "L1": 512, "L0A": 64, "L0B": 64, "L0C": 128, "BT": 1, "FB": 2},
    3510: {"UB": 248, "L1": 512, "L0A": 64, "L0B": 64, "L0C": 256, "BT": 4, "FB": 4, "L0A_MX": 4, "L0B_MX": 4},
}

ALIGNMENT = {"GM": 1, "UB": 32, "L1": 32, "L0A": 512, "L0B": 512, "L0C": 64, "BT": 64, "FB": 64}
ALIGNMENT |= {"L0A_MX": 32, "L0B_MX": 32}


@pytest.mark.parametrize("name", NAMES)
def test_memories(name: str) -> None:
    facts = soc(name)
    assert facts.capacity == {memory: size * KIB for memory, size in LOCAL[facts.arch].items()}
    assert facts.usable_ub == {2201: 184, 3510: 248}[facts.arch] * KIB <= facts.capacity["UB"]
    assert facts.alignment == {memory: ALIGNMENT[memory] for memory in ("GM", *facts.capacity)}
    assert facts.mmad_alignment == KIB
    assert all(facts.capacity[memory] % facts.alignment[memory] == 0 for memory in facts.capacity)
    assert facts.gm_granularity == {2201: 512, 3510: 128}[facts.arch]
    assert facts.l2_bytes == {2201: 192, 3510: 128}[facts.arch] << 20
    assert facts.l2_bytes_per_second == {2201: 5e12, 3510: 5.2e12}[facts.arch]
    assert facts.memory_bytes == {"a2": 64, "a3": 64, "950pr": 128, "950dt": 144}[name] << 30


@pytest.mark.parametrize("name", NAMES)
def test_path_rates(name: str) -> None:
    facts = soc(name)
    giga = {"GM->UB": 101, "GM->L1": 135, "UB->GM": 188, "L0C->GM": 70, "L0C->L1": 128, "L1->L0A": 441}
    assert {path: facts.path_rate(path) for path in giga} == {path: rate * 1e9 for path, rate in giga.items()}
    assert facts.path_rate("L1->L0B") == {2201: 220e9, 3510: 440e9}[facts.arch]
    if facts.arch == 3510:
        assert facts.path_rate("L0C->UB") == facts.path_rate("L1->UB") == facts.path_rate("UB->L1") == 128 * 1.65e9


@pytest.mark.parametrize("path", ["L0C->UB", "UB->L1", "GM->ub", "GM"])
def test_a_path_without_a_known_rate_is_refused(path: str) -> None:
    with pytest.raises(
        ValueError, match=f"^soc: no rate of the path '{path}' is known on a3; known are GM->UB, GM->L1"
    ):
        soc("a3").path_rate(path)


def test_figures_can_be_replaced_and_say_so() -> None:
    original = soc("950pr")
    changed = original.with_(clock_hz=1.5e9, path_bytes_per_second={"GM->UB": 90e9}, cube_cores=28)
    assert (changed.clock_hz, changed.cube_cores, changed.name) == (1.5e9, 28, "950pr")
    assert changed.path_rate("GM->UB") == 90e9 and changed.path_rate("GM->L1") == 135e9
    assert changed.path_rate("L0C->UB") == 128 * 1.5e9
    assert changed.macs_per_second("bf16") == 4096 * 28 * 1.5e9
    assert changed.sources["clock_hz"] == changed.sources["cube_cores"] == "given by the caller"
    assert changed.sources["path_bytes_per_second"].endswith("; GM->UB: given by the caller")
    assert changed.sources["vector_cores"] == original.sources["vector_cores"]
    assert original == soc("950pr") != changed
    assert dataclasses.replace(original, clock_hz=1.5e9).clock_hz == 1.5e9


@pytest.mark.parametrize("figure", ["clock", "name", "arch", "sources"])
def test_what_is_no_figure_cannot_be_replaced(figure: str) -> None:
    with pytest.raises(
        ValueError, match=f"^soc: there is no figure '{figure}'; the figures are cube_cores, vector_cores"
    ):
        soc("a2").with_(**{figure: 1})


def test_a_table_takes_entries() -> None:
    message = "^soc: capacity is a table and takes a mapping of its entries, got 4096.$"
    with pytest.raises(ValueError, match=message):
        soc("a2").with_(capacity=4096)


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), "24", None, True])
def test_a_figure_is_a_positive_number(value: object) -> None:
    with pytest.raises(ValueError, match="^soc: cube_cores of a2 must be a positive number, got "):
        soc("a2").with_(cube_cores=value)
    with pytest.raises(ValueError, match=r"^soc: capacity\['UB'\] of a2 must be a positive number, got "):
        soc("a2").with_(capacity={"UB": value})


def test_a_soc_is_frozen_and_shares_nothing() -> None:
    facts = soc("a2")
    with pytest.raises(dataclasses.FrozenInstanceError):
        facts.clock_hz = 1.0
    for value in (facts.capacity, facts.alignment, facts.sources, facts.path_bytes_per_second):
        value.clear()
    assert soc("a2").capacity["UB"] == 192 * KIB and soc("a3").path_rate("GM->UB") == 101e9
    assert pickle.loads(pickle.dumps(soc("a3"))) == soc("a3")


def test_it_imports_the_standard_library_only() -> None:
    tree = ast.parse((ROOT / "ops" / "soc.py").read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
