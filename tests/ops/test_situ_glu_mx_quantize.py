"""situ_glu_mx_quantize: it is mx_quantize(situ_glu(x)), its registration, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch

from ascend_k3.ops import MXTensor, mx_quantize, situ_glu, situ_glu_mx_quantize
from ascend_k3.ops.mx.formats import FORMATS, RULES

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
RELEASE = {"beta": 4.0, "linear_beta": 25.0}


def equal(a: MXTensor, b: MXTensor) -> bool:
    same = torch.equal(a.data.view(torch.uint8), b.data.view(torch.uint8)) and torch.equal(a.scale, b.scale)
    return same and a.format == b.format and a.shape == b.shape


def inputs(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return (6 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("bounds", [RELEASE, {"beta": None, "linear_beta": None}], ids=["release", "no bounds"])
def test_is_the_quantization_of_the_rounded_activation(
    format: str, rule: str, dtype: torch.dtype, bounds: dict
) -> None:
    gate_up = inputs(33, 192, dtype=dtype)
    gate_up[3, 7] = math.nan
    q = situ_glu_mx_quantize(gate_up, **bounds, format=format, rule=rule)
    assert equal(q, mx_quantize(situ_glu(gate_up, **bounds), format=format, rule=rule))
    assert 255 in q.scale


def test_the_activation_is_rounded_before_and_not_only_after() -> None:
    gate_up = inputs(2000, 64, dtype=torch.bfloat16)
    q = situ_glu_mx_quantize(gate_up, **RELEASE, format="mxfp8_e4m3")
    unrounded = mx_quantize(situ_glu(gate_up.float(), **RELEASE), format="mxfp8_e4m3")
    assert not equal(q, unrounded)


@pytest.mark.parametrize("shape", [(64,), (2, 3, 128), (0, 64), (5, 0)], ids=str)
@pytest.mark.parametrize("format", FORMATS)
def test_shapes_of_any_rank_and_without_elements(shape: tuple[int, ...], format: str) -> None:
    q = situ_glu_mx_quantize(inputs(*shape), **RELEASE, format=format)
    assert q.shape == (*shape[:-1], shape[-1] // 2)
    assert equal(q, mx_quantize(situ_glu(inputs(*shape), **RELEASE), format=format))


def test_strided_inputs_equal_their_copies() -> None:
    gate_up = inputs(128, 3, 5).transpose(0, 2)
    q = situ_glu_mx_quantize(gate_up, **RELEASE, format="mxfp4")
    assert equal(q, situ_glu_mx_quantize(gate_up.contiguous(), **RELEASE, format="mxfp4"))
    assert q.data.is_contiguous() and q.scale.is_contiguous()


def test_it_carries_no_gradient() -> None:
    q = situ_glu_mx_quantize(inputs(3, 64).requires_grad_(), **RELEASE, format="mxfp8_e5m2")
    assert not q.data.requires_grad and not q.scale.requires_grad


@pytest.mark.parametrize("format", FORMATS)
def test_registration_is_complete(format: str) -> None:
    operator = torch.ops.ascend_k3.situ_glu_mx_quantize.default
    for gate_up in (inputs(3, 64), inputs(64, 3).t(), inputs(0, 128), inputs(2, 64, dtype=torch.bfloat16)):
        torch.library.opcheck(operator, (gate_up, 4.0, 25.0, format, "even"))
        torch.library.opcheck(operator, (gate_up, 1.0, None, format, "floor"))


def test_compiled_equals_eager() -> None:
    def step(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q = situ_glu_mx_quantize(value * 2, **RELEASE, format="mxfp8_e4m3")
        return q.data, q.scale

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)(inputs(5, 128))
    for value, right in zip(compiled, step(inputs(5, 128)), strict=True):
        assert torch.equal(value.view(torch.uint8), right.view(torch.uint8))


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((2, 5), {}, r"gate_up must have an even last axis, gate then up; got \[2, 5\]"),
        ((), {}, r"gate_up must have an even last axis, gate then up; got \[\]"),
        ((2, 96), {}, r"the last axis of gate_up must be a multiple of 64, .* got the shape \[2, 96\]"),
        ((2, 64), {"format": "mxfp6"}, "format must be one of mxfp4, mxfp8_e4m3, mxfp8_e5m2, got 'mxfp6'"),
        ((2, 64), {"rule": "ceil"}, "rule must be one of floor, even, got 'ceil'"),
        ((2, 64), {"beta": -1.0}, r"beta must be positive \(None or 0 means 1.0\), got -1.0"),
        ((2, 64), {"linear_beta": 0.0}, "linear_beta must be positive, or None .*; got 0.0"),
    ],
    ids=["odd axis", "scalar", "no blocks", "format", "rule", "beta", "linear_beta"],
)
def test_refuses(shape: tuple[int, ...], options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"situ_glu_mx_quantize: {message}"):
        situ_glu_mx_quantize(torch.zeros(shape), **{**RELEASE, "format": "mxfp4", **options})


def test_refuses_integers() -> None:
    with pytest.raises(ValueError, match="situ_glu_mx_quantize: gate_up must be of dtype .*, got int32"):
        situ_glu_mx_quantize(torch.zeros(2, 64, dtype=torch.int32), **RELEASE, format="mxfp4")
