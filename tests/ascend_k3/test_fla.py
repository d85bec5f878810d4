"""KDA as flash-linear-attention calls it: against the definition, refusals, and inside the package itself (slow)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ascend_k3 import fla, ops
from ascend_k3.ops.errors import BackendError
from tests.ops.kda_inputs import BOUND, INPUTS, WEIGHTS, random_inputs
from tests.ops.kda_oracle import recurrence
from tests.paths import ROOT
from tests.tolerances import FIXTURE_GRADIENT, KDA_STATE_RMS, RELATIVE_RMS, assert_close_rms, largest

FUNCTIONS = {"chunk": fla.chunk_kda, "fused": fla.fused_recurrent_kda}
RAW = dict(use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, lower_bound=BOUND)
LENGTHS = {"decode": [5, 0, 8, 1], "chunks": [70, 0, 3, 17]}
both = pytest.mark.parametrize("name", FUNCTIONS)


def inputs(lengths: list[int] | None = None, **options) -> dict[str, Any]:
    """Random inputs with V != K, so that a state the wrong way round cannot pass."""
    x: dict[str, Any] = random_inputs(sum(lengths) if lengths else 7, value=48, **options)
    if lengths:
        x["cu_seqlens"] = torch.tensor([0, *lengths]).cumsum(0)
        x["initial_state"] = torch.randn(
            len(lengths), 2, 48, 32, generator=torch.Generator().manual_seed(1), dtype=x["initial_state"].dtype
        )
    return x


def call(name: str, x: dict[str, Any], *, v_first: bool = True, **options) -> tuple[Tensor, Tensor | None]:
    """Call a function of fla on inputs as `ops.kda` has them: its states are [N, K, V] unless `v_first`."""
    state = x.get("initial_state")
    settings = RAW | {key: x.get(key) for key in (*WEIGHTS, "cu_seqlens")}
    settings |= {"initial_state": state if state is None or v_first else state.mT, "state_v_first": v_first}
    return FUNCTIONS[name](*(x[key] for key in INPUTS), **settings | options)


def wanted(x: dict[str, Any], **options) -> tuple[Tensor, Tensor]:
    weights = {
        "A_log": x.get("A_log", torch.zeros(2)),
        "dt_bias": x.get("dt_bias", torch.zeros(64)),
        "initial_state": x.get("initial_state"),
        "cu_seqlens": x.get("cu_seqlens"),
    }
    return recurrence(*(x[key] for key in INPUTS), **weights, lower_bound=BOUND, **options)


def check(found: tuple[Tensor, Tensor | None], x: dict[str, Any], *, v_first: bool = True, **options) -> None:
    o, state = found
    dtype = x["q"].dtype
    expected, expected_state = wanted(x, **options)
    assert o.dtype == dtype and state is not None and state.is_contiguous()
    assert state.dtype == torch.promote_types(dtype, torch.float32)
    assert_close_rms(o, expected, "o", RELATIVE_RMS[dtype])
    if not v_first:
        expected_state = expected_state.mT
    assert state.shape == expected_state.shape
    # `kda` and `kda_decode` keep a bf16 call's states in float32
    assert_close_rms(state, expected_state, "state", KDA_STATE_RMS[state.dtype])


@both
@pytest.mark.parametrize("v_first", [True, False], ids=["VK", "KV"])
@pytest.mark.parametrize("lengths", [None, *LENGTHS.values()], ids=["batch", *LENGTHS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_equals_the_definition(name: str, v_first: bool, lengths: list[int] | None, dtype: torch.dtype) -> None:
    x = inputs(lengths, dtype=dtype, batch=1 if lengths else 3)
    before = {key: value.clone() for key, value in x.items()}
    check(call(name, x, v_first=v_first, output_final_state=True), x, v_first=v_first)
    assert all(torch.equal(x[key], value) for key, value in before.items()), "an argument was written to"


@both
@pytest.mark.parametrize("left_out", ["A_log", "dt_bias", "initial_state"])
def test_what_is_left_out_is_zero(name: str, left_out: str) -> None:
    x = inputs(batch=2)
    del x[left_out]
    check(call(name, x, output_final_state=True), x)


@both
def test_weights_may_have_any_shape_of_their_values(name: str) -> None:
    x = inputs()
    shaped = {"A_log": x["A_log"].view(1, 1, 2, 1), "dt_bias": x["dt_bias"].view(2, 32)}
    check(call(name, x | shaped, output_final_state=True), x)


@both
def test_no_final_state_unless_asked_for(name: str) -> None:
    x = inputs(batch=2)
    o, state = call(name, x)
    assert state is None
    assert torch.equal(o, call(name, x, output_final_state=True)[0])


@both
def test_scale_and_the_former_name_of_state_v_first(name: str) -> None:
    x = inputs(batch=2)
    found = call(name, x, scale=0.3, state_v_first=False, transpose_state_layout=True, output_final_state=True)
    check(found, x, scale=0.3)


@pytest.mark.parametrize(
    "options",
    [{"safe_gate": True}, {"disable_recompute": True}, {"cu_seqlens_cpu": torch.tensor([0, 5, 5, 13, 14])}],
    ids=lambda options: next(iter(options)),
)
def test_options_of_fla_that_change_nothing(options: dict[str, Any]) -> None:
    x = inputs(LENGTHS["decode"])
    for found, plain in zip(call("chunk", x, **options), call("chunk", x), strict=True):
        assert found is plain is None or torch.equal(found, plain)


def test_chunk_sizes() -> None:
    x = inputs([70, 40])
    check(call("chunk", x, chunk_size=32, output_final_state=True), x)


@both
@pytest.mark.parametrize("v_first", [True, False], ids=["VK", "KV"])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_gradients_equal_those_of_the_definition(name: str, v_first: bool, lengths: list[int]) -> None:
    x = inputs(lengths)
    names = [*INPUTS, *WEIGHTS, "initial_state"]
    leaves = {key: x[key].clone().requires_grad_() for key in names}

    def gradients(o: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(o.double().square().sum() + state.double().pow(3).sum(), list(leaves.values()))

    o, state = call(name, x | leaves, v_first=v_first, output_final_state=True)
    assert state is not None
    found = gradients(o, state)
    for key, grad, expected in zip(names, found, gradients(*wanted(x | leaves)), strict=True):
        assert largest(grad, expected) <= FIXTURE_GRADIENT, key


def test_only_short_sequences_without_a_gradient_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    for operator in ("kda", "kda_decode"):
        function = getattr(ops, operator)

        def watched(*arguments, operator=operator, function=function, **options):
            called.append(operator)
            return function(*arguments, **options)

        monkeypatch.setattr(ops, operator, watched)
    short, long = inputs(LENGTHS["decode"]), inputs([9, 1])
    call("fused", short)
    call("fused", long)
    call("fused", short | {"q": short["q"].clone().requires_grad_()})
    with torch.no_grad():
        call("fused", short | {"q": short["q"].clone().requires_grad_()})
    assert called == ["kda_decode", "kda", "kda", "kda_decode"]


# --- refusals --------------------

REFUSED_BY_BOTH = {
    "no-norm": (
        dict(use_qk_l2norm_in_kernel=False),
        "use_qk_l2norm_in_kernel must be True for ascend_k3, got False; g",
    ),
    "no-gate": (dict(use_gate_in_kernel=False), "use_gate_in_kernel must be True for ascend_k3, got False; give the"),
    "no-sigmoid": (dict(use_beta_sigmoid_in_kernel=False), "use_beta_sigmoid_in_kernel must be True .* beta as logits"),
    "negative": (dict(allow_neg_eigval=True), "allow_neg_eigval must be False for ascend_k3, got True; the operator's"),
    "no-bound": (dict(lower_bound=None), r"lower_bound must be a number in \[-5, 0\) for ascend_k3, got None"),
    "low-bound": (dict(lower_bound=-6.0), r"lower_bound must lie in \[-5, 0\), got -6.0"),
    "both-names": (dict(transpose_state_layout=False), "state_v_first and its former name transpose_state_layout are"),
    "state": (
        dict(initial_state=torch.zeros(1, 2, 32, 48)),
        r"initial_state must have the shape \[1, 2, 48, 32\], got \[1,",
    ),
    "states": (dict(initial_state=torch.zeros(3, 2, 48, 32)), r"must have the shape \[1, 2, 48, 32\], got \[3,"),
    "offsets": (dict(cu_seqlens=torch.tensor([0, 3])), "cu_seqlens must rise from 0 to the number of tokens, 7"),
    "weights": (dict(A_log=torch.zeros(3)), r"A_log must have the shape \[2\], got \[3\]"),
}
REFUSED_BY_CHUNK = {
    "intermediate": (dict(return_intermediate_states=True), "return_intermediate_states must be False for ascend_k3"),
    "parallel": (dict(cp_context=object()), "cp_context must be None for ascend_k3, got <object"),
    "graph": (dict(use_graph=True), "use_graph must be False for ascend_k3, got True"),
    "max-seqs": (dict(max_num_seqs=3), "max_num_seqs must be None for ascend_k3, got 3"),
    "cpu-offsets": (dict(cu_seqlens_cpu=torch.tensor([0, 7])), "cu_seqlens_cpu is given without cu_seqlens"),
    "chunk-size": (dict(chunk_size=48), "chunk_size must be a power of two from 16 on, got 48"),
}


@both
@pytest.mark.parametrize("case", REFUSED_BY_BOTH)
def test_refuses(name: str, case: str) -> None:
    change, message = REFUSED_BY_BOTH[case]
    with pytest.raises(ValueError, match=message):
        call(name, inputs(), **change)


@pytest.mark.parametrize("case", REFUSED_BY_CHUNK)
def test_chunk_kda_refuses(case: str) -> None:
    change, message = REFUSED_BY_CHUNK[case]
    with pytest.raises(ValueError, match=f"^(chunk_)?kda: {message}"):
        call("chunk", inputs(), **change)


@both
def test_refuses_more_value_heads_than_key_heads(name: str) -> None:
    x = inputs()
    x["v"] = torch.cat((x["v"], x["v"]), 2)
    with pytest.raises(ValueError, match=r"v must have the shape \[1, 7, 2, V\], got \[1, 7, 4, 48\]"):
        call(name, x, initial_state=None)


@both
def test_an_unknown_argument_is_an_error(name: str) -> None:
    with pytest.raises(TypeError, match="head_first"):
        call(name, inputs(), head_first=True)


@pytest.mark.parametrize(
    "change",
    [
        dict(inplace_final_state=True),
        dict(ssm_state_indices=torch.tensor([0])),
        dict(num_accepted_tokens=torch.tensor([1])),
        dict(out=torch.zeros(1, 7, 2, 48)),
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_inner_function_refuses_pools(change: dict[str, Any]) -> None:
    x = inputs()
    settings = {**RAW, **{key: x[key] for key in WEIGHTS}, "inplace_final_state": False, **change}
    with pytest.raises(ValueError, match=rf"fused_recurrent_kda_fwd: {next(iter(change))} must be .* for ascend_k3"):
        fla._fused_recurrent_kda_fwd(*(x[key] for key in INPUTS), **settings)


# --- the package itself --------------------

PACKAGES = {"fla": ("flash-linear-attention", "fla-core"), "einops": ("einops",), "triton": ("triton",)}


def test_install_says_that_the_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fla", None)  # so that it is missing where it is installed, too
    with pytest.raises(BackendError, match="flash-linear-attention cannot be imported .*; install it, pip install"):
        fla.install()


def test_install_says_that_the_package_is_too_old(tmp_path: Path) -> None:
    """With a package that has the functions and, as before 0.6, not the module `fla.backends`."""
    for name in ("fla/__init__.py", "fla/ops/__init__.py", "fla/ops/kda.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    information = tmp_path / "fla_core-0.5.2.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: fla-core\nVersion: 0.5.2\n")
    result = run("-c", "import ascend_k3.fla; ascend_k3.fla.install()", path=tmp_path)
    assert "BackendError: fla-core 0.5.2 has no fla.backends, where operators are registered; 0.6" in result.stderr


@pytest.mark.slow
def test_the_package_runs_on_ours(tmp_path: Path) -> None:
    """In processes of their own; what of the package is not installed goes into a temporary folder."""
    missing = [name for module, names in PACKAGES.items() if importlib.util.find_spec(module) is None for name in names]
    if missing:
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path)
        subprocess.run([*pip, "--constraint", ROOT / "constraints.txt", *missing], check=True)
    script = str(Path(__file__).with_name("fla_package.py"))
    disabled = run(script, path=tmp_path, FLA_DISABLE_BACKEND_DISPATCH="1")
    assert disabled.stdout == "install refuses\n", disabled.stdout + disabled.stderr
    result = run(script, path=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith("flash-linear-attention runs on ascend_k3\n")
    print(result.stdout)


def run(*words: str, path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, with `path` first on its search path."""
    environment = os.environ | variables
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(path), environment.get("PYTHONPATH")]))
    return subprocess.run([sys.executable, "-P", *words], env=environment, capture_output=True, text=True, timeout=600)
