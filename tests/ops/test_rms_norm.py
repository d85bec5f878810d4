"""RMSNorm and its gated form: the release's rounding, the definition in float64, hard inputs, gradients, refusals."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from ascend_k3.ops.rms_norm import rms_norm, rms_norm_gated
from tests.paths import FIXTURES
from tests.tolerances import FIXTURE_ATOL, FIXTURE_RTOL, RELATIVE_RMS, assert_close_rms

EPS = 1e-5


def inputs(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """x, gate, weight."""
    make = torch.Generator().manual_seed(seed)
    x, gate = (torch.randn(shape, generator=make, dtype=torch.float64).to(dtype) for _ in range(2))
    return x, gate, (1 + torch.randn(shape[-1], generator=make, dtype=torch.float64) / 4).to(dtype)


def definition(x: Tensor, weight: Tensor, gate: Tensor | None = None, eps: float = EPS) -> Tensor:
    """One row at a time, in float64."""
    rows = x.double().reshape(-1, x.shape[-1])
    result = torch.empty_like(rows)
    for index, row in enumerate(rows):
        result[index] = row / math.sqrt(float((row * row).sum()) / len(row) + eps) * weight.double()
    result = result.reshape(x.shape)
    return result if gate is None else result / (1 + torch.exp(-gate.double()))


@pytest.mark.parametrize("case", range(5))
def test_released_rounding_in_bfloat16_bit_for_bit(case: int) -> None:
    """The normalized value is rounded before the weight multiplies it: stored by the released code."""
    stored = load_file(FIXTURES / "layers" / "attn_res_op.safetensors")
    assert json.loads((FIXTURES / "layers" / "attn_res_op.json").read_text())["eps"] == EPS
    x, weight = stored[f"{case}_bf16.out"], stored[f"{case}_bf16.out_norm_w"]
    assert torch.equal(rms_norm(x, weight, eps=EPS), stored[f"{case}_bf16.out_normed"])


@pytest.mark.parametrize("case", range(5))
def test_released_values_in_float32(case: int) -> None:
    stored = load_file(FIXTURES / "layers" / "attn_res_op.safetensors")
    y = rms_norm(stored[f"{case}_fp32.out"], stored[f"{case}_fp32.out_norm_w"], eps=EPS)
    torch.testing.assert_close(y, stored[f"{case}_fp32.out_normed"], atol=FIXTURE_ATOL, rtol=FIXTURE_RTOL)


def test_bfloat16_is_rounded_twice_and_the_gated_form_once() -> None:
    x, gate, weight = inputs((64, 96), torch.bfloat16)
    normalized = x.float() / (x.float().square().mean(-1, keepdim=True) + EPS).sqrt()
    twice = (normalized.bfloat16().float() * weight.float()).bfloat16()
    once = (normalized * weight.float()).bfloat16()
    y = rms_norm(x, weight, eps=EPS)
    assert torch.equal(y, twice) and not torch.equal(y, once)
    # A shut gate changes the result by a power of two only: rounding must be that of the single product.
    gated = rms_norm_gated(x, torch.zeros_like(gate), weight, eps=EPS)
    assert torch.equal(gated, once / 2) and not torch.equal(gated, twice / 2)


def test_a_float32_weight_on_bfloat16_gives_the_dtype_of_x() -> None:
    x, gate, weight = inputs((7, 32), torch.bfloat16)
    for y in (rms_norm(x, weight.float(), eps=EPS), rms_norm_gated(x, gate, weight.float(), eps=EPS)):
        assert y.dtype == torch.bfloat16
    assert_close_rms(rms_norm(x, weight.float(), eps=EPS), definition(x, weight), "y", RELATIVE_RMS[torch.bfloat16])


@pytest.mark.parametrize("dtype", RELATIVE_RMS, ids=str)
@pytest.mark.parametrize("shape", [(5,), (3, 16), (2, 3, 4, 128), (1, 7168)], ids=str)
def test_matches_the_definition(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x, gate, weight = inputs(shape, dtype)
    y = rms_norm(x, weight, eps=EPS)
    gated = rms_norm_gated(x, gate, weight, eps=EPS)
    assert y.dtype == gated.dtype == dtype and y.shape == gated.shape == shape
    assert_close_rms(y, definition(x, weight), "y", RELATIVE_RMS[dtype])
    assert_close_rms(gated, definition(x, weight, gate), "gated y", RELATIVE_RMS[dtype])


@settings(max_examples=50, deadline=None)
@given(
    rows=st.sampled_from([0, 1, 2, 7, 15, 16, 17, 63, 64, 65]),
    width=st.sampled_from([1, 2, 15, 16, 17, 65]),
    eps=st.sampled_from([0.0, 1e-6, 1e-5, 1.0]),
    seed=st.integers(0, 2**16),
)
def test_any_length_and_width(rows: int, width: int, eps: float, seed: int) -> None:
    x, gate, weight = inputs((rows, width), torch.float64, seed)
    bound = RELATIVE_RMS[torch.float64]
    assert_close_rms(rms_norm(x, weight, eps=eps), definition(x, weight, eps=eps), "y", bound)
    assert_close_rms(rms_norm_gated(x, gate, weight, eps=eps), definition(x, weight, gate, eps), "gated y", bound)


def test_rows_are_independent_of_each_other_and_of_strides() -> None:
    x, gate, weight = inputs((65, 48))
    y, gated = rms_norm(x, weight, eps=EPS), rms_norm_gated(x, gate, weight, eps=EPS)
    for cut in (1, 17, 64):
        parts = [slice(cut), slice(cut, None)]
        assert torch.equal(torch.cat([rms_norm(x[part], weight, eps=EPS) for part in parts]), y)
        # On processors with AVX-512 torch.sigmoid rounds an element differently in a vector and in a loop's tail.
        apart = torch.cat([rms_norm_gated(x[p], gate[p], weight, eps=EPS) for p in parts])
        torch.testing.assert_close(apart, gated, rtol=2 * torch.finfo(torch.float32).eps, atol=0)
    wide = torch.cat([x, torch.full_like(x, torch.nan)], 1)
    assert torch.equal(rms_norm(wide[:, :48], weight, eps=EPS), y)
    assert rms_norm(wide[:, :48], weight, eps=EPS).is_contiguous()


def test_poisoned_rows_and_unwritten_memory_change_nothing() -> None:
    x, gate, weight = inputs((9, 24))
    clean, clean_gated = rms_norm(x, weight, eps=EPS), rms_norm_gated(x, gate, weight, eps=EPS)
    x[[0, 4, 8]] = torch.nan
    kept = [1, 2, 3, 5, 6, 7]
    torch.use_deterministic_algorithms(True)  # torch.empty is then filled with NaN
    try:
        y, gated = rms_norm(x, weight, eps=EPS), rms_norm_gated(x, gate, weight, eps=EPS)
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(y[kept], clean[kept]) and torch.equal(gated[kept], clean_gated[kept])
    assert bool(y[[0, 4, 8]].isnan().all())


@pytest.mark.parametrize("size", [1e-20, 1e-3, 1e4, 1e18], ids=lambda size: f"{size:.0e}")
def test_rows_of_every_magnitude(size: float) -> None:
    x, gate, weight = inputs((6, 32))
    x = x * size
    assert_close_rms(rms_norm(x, weight, eps=EPS), definition(x, weight), "y", RELATIVE_RMS[torch.float32])
    gated = rms_norm_gated(x, gate, weight, eps=EPS)
    assert_close_rms(gated, definition(x, weight, gate), "gated y", RELATIVE_RMS[torch.float32])


def test_a_zero_row_is_zero_unless_eps_is() -> None:
    """With eps = 0 a zero row is 0/0: it gives NaN, which the caller sees, and spares its neighbours."""
    x, gate, weight = inputs((3, 8))
    x[1] = 0
    assert torch.equal(rms_norm(x, weight, eps=EPS)[1], torch.zeros(8))
    assert torch.equal(rms_norm_gated(x, gate, weight, eps=EPS)[1], torch.zeros(8))
    for y in (rms_norm(x, weight, eps=0.0), rms_norm_gated(x, gate, weight, eps=0.0)):
        assert bool(y[1].isnan().all()) and bool(y[[0, 2]].isfinite().all())


@pytest.mark.parametrize("logit", [1e4, -1e4], ids=["open", "shut"])
def test_a_saturated_gate(logit: float) -> None:
    x, gate, weight = inputs((4, 16))
    gated = rms_norm_gated(x, torch.full_like(gate, logit), weight, eps=EPS)
    assert torch.equal(gated, rms_norm(x, weight, eps=EPS) if logit > 0 else torch.zeros_like(x))


@pytest.mark.parametrize("eps", [EPS, 0.5])
def test_gradients(eps: float) -> None:
    x, gate, weight = (item.requires_grad_() for item in inputs((3, 2, 5), torch.float64))
    assert torch.autograd.gradcheck(lambda a, w: rms_norm(a, w, eps=eps), (x, weight))
    assert torch.autograd.gradcheck(lambda a, g, w: rms_norm_gated(a, g, w, eps=eps), (x, gate, weight))


def test_registration_is_sound() -> None:
    x, gate, weight = (item.requires_grad_() for item in inputs((3, 2, 5)))
    torch.library.opcheck(torch.ops.ascend_k3.rms_norm.default, (x, weight, EPS))
    torch.library.opcheck(torch.ops.ascend_k3.rms_norm.default, (x.detach().bfloat16(), weight.detach(), EPS))
    torch.library.opcheck(torch.ops.ascend_k3.rms_norm_gated.default, (x, gate, weight, EPS))


def test_compiles_and_has_shapes_on_meta() -> None:
    def both(x: Tensor, gate: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return rms_norm(x, weight, eps=EPS), rms_norm_gated(x, gate, weight, eps=EPS)

    arguments = inputs((4, 8), torch.bfloat16)
    expected = both(*arguments)
    compiled = torch.compile(both, backend="aot_eager", fullgraph=True)(*arguments)
    on_meta = both(*[item.to("meta") for item in arguments])
    for found, meta, wanted in zip(compiled, on_meta, expected, strict=True):
        assert torch.equal(found, wanted)
        assert (meta.shape, meta.dtype) == (wanted.shape, wanted.dtype)


REFUSALS = {
    "x-dtype": ({"x": torch.ones(3, 8, dtype=torch.int64)}, "x must be of dtype .* got int64"),
    "x-scalar": ({"x": torch.tensor(1.0)}, "x must have at least one axis, got a scalar"),
    "weight-shape": ({"weight": torch.ones(7)}, r"weight must have the shape \[8\], got \[7\]"),
    "weight-dtype": ({"weight": torch.ones(8, dtype=torch.bool)}, "weight must be of dtype .* got bool"),
    "eps": ({"eps": -1e-5}, "eps must not be negative, got -1e-05"),
    "eps-nan": ({"eps": math.nan}, "eps must not be negative, got nan"),
    "device": ({"weight": torch.ones(8, device="meta")}, "weight is on meta and x on cpu; move them to one device"),
}
GATED_REFUSALS = {
    **REFUSALS,
    "gate-shape": ({"gate": torch.ones(3, 7)}, r"gate must have the shape \[3, 8\], got \[3, 7\]"),
    "gate-dtype": ({"gate": torch.ones(3, 8, dtype=torch.int32)}, "gate must be of dtype .* got int32"),
    "gate-device": ({"gate": torch.ones(3, 8, device="meta")}, "gate is on meta and x on cpu; move them to one device"),
}


@pytest.mark.parametrize(("change", "message"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(change: dict, message: str) -> None:
    arguments = {"x": torch.ones(3, 8), "weight": torch.ones(8), "eps": EPS}
    rms_norm(**arguments)
    with pytest.raises(ValueError, match=f"^rms_norm: {message}"):
        rms_norm(**{**arguments, **change})


@pytest.mark.parametrize(("change", "message"), GATED_REFUSALS.values(), ids=GATED_REFUSALS)
def test_refusals_of_the_gated_form(change: dict, message: str) -> None:
    arguments = {"x": torch.ones(3, 8), "gate": torch.ones(3, 8), "weight": torch.ones(8), "eps": EPS}
    rms_norm_gated(**arguments)
    with pytest.raises(ValueError, match=f"^rms_norm_gated: {message}"):
        rms_norm_gated(**{**arguments, **change})
