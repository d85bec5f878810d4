"""MX formats: bit for bit against the fixtures and an independent quantizer; registration and refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from ascend_k3.ops.errors import BackendError
from ascend_k3.ops.mx import MXTensor, mx_dequantize, mx_matmul, mx_quantize, reference
from tests.ops.mx_oracle import (
    EMAX,
    FLOATS,
    FORMATS,
    MAGNITUDES,
    RULES,
    codes_of,
    from_codes,
    quantized_by_definition,
    random_blocks,
)
from tests.paths import FIXTURES

MX = FIXTURES / "mx"


def assert_quantized_by_definition(x: Tensor, format: str, rule: str) -> None:
    q = mx_quantize(x, format=format, rule=rule)
    codes, scales = quantized_by_definition(x, format, rule)
    np.testing.assert_array_equal(q.scale.numpy(), scales)
    np.testing.assert_array_equal(codes_of(q), codes)


# Quantization


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("file", "format", "codes"), [("mxfp4", "mxfp4", "packed"), ("mxfp8", "mxfp8_e4m3", "codes")])
def test_quantization_equals_the_fixture_bit_for_bit(file: str, format: str, codes: str, dtype: str, rule: str) -> None:
    golden = load_file(MX / f"{file}_quant_{dtype}.safetensors")
    q = mx_quantize(golden["x"], format=format, rule=rule)
    assert torch.equal(q.scale, golden[f"{rule}.scale"])
    assert torch.equal(q.data.view(torch.uint8), golden[f"{rule}.{codes}"])
    assert torch.equal(mx_dequantize(q, dtype=torch.float32), golden[f"{rule}.dequant"])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("file", "format"), [("mxfp4", "mxfp4"), ("mxfp8", "mxfp8_e4m3")])
def test_special_inputs_have_the_scales_of_the_fixture(file: str, format: str, rule: str) -> None:
    golden = load_file(MX / "special_inputs.safetensors")
    q = mx_quantize(golden["x"], format=format, rule=rule)
    assert torch.equal(q.scale, golden[f"{file}.{rule}.torchao_scale"])
    nan = golden["x"].isnan().any(-1)
    assert nan.sum() == 3
    assert torch.equal(q.data.view(torch.uint8)[~nan], golden[f"{file}.{rule}.torchao_codes"][~nan])
    assert not q.data.view(torch.uint8)[nan].any()
    assert mx_dequantize(q)[nan].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("format", FORMATS)
def test_every_number_between_two_elements_rounds_half_to_even(format: str, dtype: torch.dtype) -> None:
    grid = MAGNITUDES[format]
    middles = torch.tensor((grid[1:] + grid[:-1]) / 2, dtype=dtype)
    infinity = torch.tensor(torch.inf, dtype=dtype)
    values = torch.cat(
        [torch.tensor(grid, dtype=dtype), middles, middles.nextafter(infinity), middles.nextafter(-infinity)]
    )
    values = torch.nn.functional.pad(torch.cat([values, -values]), (0, -2 * len(values) % 31)).view(-1, 31)
    x = torch.cat([torch.full((len(values), 1), 2.0 ** EMAX[format], dtype=dtype), values], dim=1)  # every scale is 1
    q = mx_quantize(x, format=format)
    assert (q.scale == 127).all()
    assert_quantized_by_definition(x, format, "floor")


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    shape=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    low=st.integers(-160, 127),
    spread=st.integers(0, 40),
    dtype=st.sampled_from(FLOATS),
    format=st.sampled_from(FORMATS),
    rule=st.sampled_from(RULES),
    special=st.lists(
        st.tuples(st.integers(0, 287), st.sampled_from([0.0, -0.0, 1e-45, torch.nan, torch.inf, -torch.inf]))
    ),
)
def test_quantization_follows_its_definition(
    seed: int, shape: tuple, low: int, spread: int, dtype: torch.dtype, format: str, rule: str, special: list
) -> None:
    x = random_blocks(seed, (shape[0], 32 * shape[1]), low, min(low + spread, 127), dtype)
    for position, value in special:
        if x.numel():
            x.view(-1)[position % x.numel()] = value
    assert_quantized_by_definition(x, format, rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "amax",
    [
        2.0**-149,
        2.0**-130,
        1.75 * 2.0**-126,
        2.0**-125,
        1.0,
        1.75,
        1.875,
        1.9375,
        3.4e38,
        torch.finfo(torch.float32).max,
    ],
)
def test_scales_at_the_ends_of_float32(amax: float, format: str, rule: str) -> None:
    x = torch.linspace(-1, 1, 32).mul(amax).unsqueeze(0)
    assert x.abs().max() == torch.tensor(amax)
    assert_quantized_by_definition(x, format, rule)


@pytest.mark.parametrize(
    ("amax", "byte", "code"),
    [
        (1e-320, 0, 0),
        (2.0**128, 253, 6),
        (2.0**129 - 2.0**90, 253, 7),
        (2.0**129, 254, 6),
        (1e300, 254, 7),
        (torch.inf, 253, 7),
    ],
)
def test_float64_beyond_float32_saturates_at_scale_254(amax: float, byte: int, code: int) -> None:
    x = torch.zeros(1, 32, dtype=torch.float64)
    x[0, 5] = -amax
    q = mx_quantize(x, format="mxfp4")
    assert q.scale.item() == byte
    assert codes_of(q)[0, 5] == code + 8


def test_float64_is_not_rounded_through_float32() -> None:
    x = torch.zeros(1, 32, dtype=torch.float64)
    x[0, 0], x[0, 1] = 4.0, 2.5 + 2.0**-40  # float32 would make the second a tie, which goes down
    assert codes_of(mx_quantize(x, format="mxfp4"))[0, :2].tolist() == [6, 5]
    assert codes_of(mx_quantize(x.float(), format="mxfp4"))[0, :2].tolist() == [6, 4]


@pytest.mark.parametrize("format", FORMATS)
def test_float16_quantizes_as_the_same_numbers_in_float32(format: str) -> None:
    x = random_blocks(1, (8, 64), -20, 12, torch.float16)
    a, b = mx_quantize(x, format=format), mx_quantize(x.float(), format=format)
    assert torch.equal(a.data.view(torch.uint8), b.data.view(torch.uint8))
    assert torch.equal(a.scale, b.scale)


@pytest.mark.parametrize("format", FORMATS)
def test_zeros_have_scale_byte_0_and_keep_their_sign(format: str) -> None:
    x = torch.zeros(2, 64)
    x[1] = -0.0
    q = mx_quantize(x, format=format)
    assert not q.scale.any()
    assert torch.equal(mx_dequantize(q, dtype=torch.float32).signbit(), x.signbit())


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    low=st.integers(-100, 126),
    format=st.sampled_from(FORMATS),
    rule=st.sampled_from(RULES),
)
def test_error_of_a_round_trip_is_bounded_by_the_format(seed: int, low: int, format: str, rule: str) -> None:
    x = random_blocks(seed, (3, 96), low, min(low + 5, 126), torch.float32).double()
    back = mx_dequantize(mx_quantize(x, format=format, rule=rule), dtype=torch.float64)
    error = (back - x).abs().view(3, 3, 32).amax(-1)
    # Half a step at the largest element, or with rule "floor" the saturation of what lies above it: 8 -> 6 in E2M1,
    # 512 -> 448 in E4M3, 2^16 -> 57344 in E5M2.
    bound = {"mxfp4": 1 / 4, "mxfp8_e4m3": 1 / 8, "mxfp8_e5m2": 1 / 8}[format]
    assert (error <= bound * x.abs().view(3, 3, 32).amax(-1)).all()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    low=st.integers(-160, 117),
    format=st.sampled_from(FORMATS),
    rule=st.sampled_from(RULES),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_quantizing_what_was_dequantized_changes_nothing(
    seed: int, low: int, format: str, rule: str, dtype: torch.dtype
) -> None:
    if dtype == torch.bfloat16:  # it does not hold every element below 2^-126
        low = max(low, -90)
    x = random_blocks(seed, (3, 64), low, low + 8, torch.float32)
    x[0, 3], x[1, 7], x[2] = torch.nan, torch.inf, 0.0
    x[1, 40] = -0.0
    q = mx_quantize(x, format=format, rule=rule)
    again = mx_quantize(mx_dequantize(q, dtype=dtype), format=format, rule="floor")
    assert torch.equal(again.scale, q.scale)
    assert torch.equal(again.data.view(torch.uint8), q.data.view(torch.uint8))


def test_blocks_whose_largest_code_is_small_come_back_with_another_scale() -> None:
    q = from_codes([[1] * 32, [0] * 32], [[130], [130]], "mxfp4")
    again = mx_quantize(mx_dequantize(q), format="mxfp4")
    assert again.scale.flatten().tolist() == [127, 0]
    assert torch.equal(mx_dequantize(again), mx_dequantize(q))


def test_rule_even_rounded_up_to_the_end_of_float32_dequantizes_to_infinity() -> None:
    x = torch.full((1, 32), torch.finfo(torch.float32).max)
    assert mx_dequantize(mx_quantize(x, format="mxfp4", rule="even"), dtype=torch.float32).isinf().all()
    assert mx_dequantize(mx_quantize(x, format="mxfp4", rule="floor"), dtype=torch.float32).isfinite().all()


@pytest.mark.parametrize("format", FORMATS)
def test_strided_and_large_inputs_quantize_row_by_row(format: str) -> None:
    x = random_blocks(2, (2 * reference.QUANTIZE_TILE + 3, 64), -3, 3, torch.float32)
    whole = mx_quantize(x, format=format)
    strided = mx_quantize(x.t().contiguous().t(), format=format)
    assert torch.equal(strided.data.view(torch.uint8), whole.data.view(torch.uint8))
    rows = slice(reference.QUANTIZE_TILE - 2, reference.QUANTIZE_TILE + 2)
    part = mx_quantize(x[rows], format=format)
    assert torch.equal(part.data.view(torch.uint8), whole.data[rows].view(torch.uint8))
    back = mx_dequantize(whole, dtype=torch.float32)
    assert torch.equal(mx_dequantize(part, dtype=torch.float32), back[rows])
    tail = MXTensor(whole.data[-3:], whole.scale[-3:], format)
    assert torch.equal(mx_dequantize(tail, dtype=torch.float32), back[-3:])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shape", [(0, 64), (3, 0), (2, 0, 32), (32,), (2, 3, 64)], ids=str)
def test_shapes_of_any_rank_and_without_elements(shape: tuple, format: str) -> None:
    q = mx_quantize(torch.ones(shape), format=format)
    assert q.shape == torch.Size(shape)
    assert q.scale.shape == (*shape[:-1], shape[-1] // 32)
    assert torch.equal(mx_dequantize(q, dtype=torch.float32), torch.ones(shape))


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("format", FORMATS)
def test_transposed_inputs_equal_their_copies(format: str, width: int) -> None:
    x = torch.randn(width, 3, generator=torch.Generator().manual_seed(0)).t()
    q, copy = mx_quantize(x, format=format), mx_quantize(x.contiguous(), format=format)
    assert torch.equal(codes(q), codes(copy)) and torch.equal(q.scale, copy.scale)
    transposed = MXTensor(q.data.t().contiguous().t(), q.scale.t().contiguous().t(), format)
    assert not transposed.data.is_contiguous()
    assert torch.equal(mx_dequantize(transposed), mx_dequantize(q))
    assert torch.equal(mx_matmul(transposed, transposed), mx_matmul(q, q))
    a, wide = x.clone(memory_format=torch.preserve_format).requires_grad_(), x.contiguous().requires_grad_()
    assert not a.is_contiguous()
    y, expected = mx_matmul(a, transposed), mx_matmul(wide, q)
    assert torch.equal(y, expected)
    y.sum().backward()
    expected.sum().backward()
    assert torch.equal(a.grad, wide.grad)


def codes(q: MXTensor) -> Tensor:
    return q.data.view(torch.uint8)


def test_quantization_carries_no_gradient() -> None:
    q = mx_quantize(torch.ones(1, 32, requires_grad=True), format="mxfp8_e4m3")
    assert not q.data.requires_grad


# Dequantization


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_mxfp4_decodes_every_byte_at_every_scale_as_the_fixture(dtype: torch.dtype) -> None:
    golden = load_file(MX / "decode_tables.safetensors")
    q = MXTensor(golden["packed"], golden["scale"], "mxfp4")
    expected = golden["dequant_fp32" if dtype == torch.float32 else "dequant_bf16"]
    found = mx_dequantize(q, dtype=dtype)
    assert found.dtype == dtype
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.nan_to_num(7), expected.nan_to_num(7))


def test_the_order_of_two_codes_in_a_byte_is_low_nibble_first() -> None:
    golden = load_file(MX / "decode_tables.safetensors")
    data = torch.arange(256, dtype=torch.uint8).view(16, 16)
    q = MXTensor(data, torch.full((16, 1), 127, dtype=torch.uint8), "mxfp4")
    assert torch.equal(mx_dequantize(q, dtype=torch.float32).view(256, 2), golden["fp4_pair_of_byte"])


def test_e4m3_and_scale_bytes_decode_as_the_fixture() -> None:
    golden = load_file(MX / "decode_tables.safetensors")
    codes = np.arange(256).reshape(8, 32)
    values = mx_dequantize(from_codes(codes, [[127]] * 8, "mxfp8_e4m3"), dtype=torch.float32).view(256)
    assert torch.equal(values.isnan(), golden["e4m3_values"].isnan())
    assert torch.equal(values.nan_to_num(), golden["e4m3_values"].nan_to_num())
    ones = mx_dequantize(from_codes(np.full((256, 32), 2), np.arange(256)[:, None], "mxfp4"), dtype=torch.float32)
    assert torch.equal(ones[:255, 9], golden["e8m0_values"][:255])
    assert ones[255].isnan().all()
    assert golden["e8m0_values"][255].isnan()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("format", FORMATS)
def test_dequantization_is_the_exact_product_rounded_once(format: str, dtype: torch.dtype) -> None:
    magnitudes = MAGNITUDES[format]
    codes = np.resize(np.arange(len(magnitudes)), (256, 128))
    q = from_codes(codes, np.repeat(np.arange(256)[:, None], 4, axis=1), format)
    exact = torch.from_numpy(magnitudes[codes] * np.ldexp(1.0, np.arange(256) - 127)[:, None])
    expected = exact.to(dtype)
    expected[255] = torch.nan
    torch.testing.assert_close(mx_dequantize(q, dtype=dtype), expected, rtol=0, atol=0, equal_nan=True)


def test_infinity_and_nan_elements_stay_what_they_are() -> None:
    q = from_codes([[0x7C, 0xFC, 0x7D] + [0] * 29], [[0]], "mxfp8_e5m2")
    values = mx_dequantize(q, dtype=torch.float32)[0]
    assert values[0] == torch.inf and values[1] == -torch.inf and values[2].isnan() and not values[3:].any()


def test_dequantization_is_bf16_by_default() -> None:
    assert mx_dequantize(from_codes([[2] * 32], [[127]], "mxfp4")).dtype == torch.bfloat16


# Registration


def samples() -> dict[str, tuple[object, tuple]]:
    ops = torch.ops.ascend_k3
    x = random_blocks(19, (3, 64), -2, 2, torch.float32)
    four, eight = mx_quantize(x, format="mxfp4"), mx_quantize(x, format="mxfp8_e4m3")
    plain = x.bfloat16().requires_grad_()
    weight, codes = (four.data, four.scale, "mxfp4"), eight.data.view(torch.uint8)
    return {
        "quantize-mxfp4": (ops.mx_quantize.default, (x, "mxfp4", "floor")),
        "quantize-mxfp8": (ops.mx_quantize.default, (x.bfloat16(), "mxfp8_e5m2", "even")),
        "dequantize-mxfp4": (ops.mx_dequantize.default, (*weight, torch.bfloat16)),
        "dequantize-mxfp8": (ops.mx_dequantize.default, (eight.data, eight.scale, "mxfp8_e4m3", torch.float32)),
        "dequantize-mxfp8-bytes": (ops.mx_dequantize.default, (codes, eight.scale, "mxfp8_e4m3", torch.float32)),
        "matmul-plain": (ops.mx_matmul.default, (plain, None, None, *weight, torch.bfloat16)),
        "matmul-mxfp8": (ops.mx_matmul.default, (eight.data, eight.scale, "mxfp8_e4m3", *weight, torch.float32)),
        "matmul-mxfp8-bytes": (ops.mx_matmul.default, (codes, eight.scale, "mxfp8_e4m3", *weight, torch.float32)),
    }


@pytest.mark.parametrize("name", list(samples()))
def test_registration_is_complete(name: str) -> None:
    operator, arguments = samples()[name]
    if any(
        isinstance(value, Tensor) and value.dtype.itemsize == 1 and value.is_floating_point() for value in arguments
    ):
        # opcheck compares inputs before and after in its first check, and cannot for float8; "-bytes" makes up for it.
        checks = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
        torch.library.opcheck(operator, arguments, test_utils=checks)
    else:
        torch.library.opcheck(operator, arguments)


def test_shapes_are_known_on_the_meta_device() -> None:
    for format in FORMATS:
        q = mx_quantize(torch.empty(5, 64, device="meta"), format=format)
        real = mx_quantize(torch.ones(5, 64), format=format)
        assert (q.data.shape, q.data.dtype, q.scale.shape) == (real.data.shape, real.data.dtype, real.scale.shape)
        assert q.data.device.type == "meta"
        assert mx_dequantize(q).shape == (5, 64)
        assert mx_matmul(torch.empty(2, 3, 64, device="meta"), q).shape == (2, 3, 5)


def test_functions_compile_without_a_graph_break() -> None:
    b = mx_quantize(random_blocks(20, (4, 64), -2, 2, torch.float32), format="mxfp4")

    def block(x: Tensor) -> Tensor:
        return mx_matmul(mx_quantize(x, format="mxfp8_e4m3"), b) + mx_matmul(x, b)

    x = random_blocks(21, (3, 64), -2, 2, torch.bfloat16)
    assert torch.equal(torch.compile(block, backend="aot_eager", fullgraph=True)(x), block(x))


# Refusals

X, B = torch.ones(2, 64), mx_quantize(torch.ones(3, 64), format="mxfp4")
FP8 = mx_quantize(torch.ones(3, 64), format="mxfp8_e5m2")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: mx_quantize(X, format="fp4"),
            "mx_quantize: format must be one of mxfp4, mxfp8_e4m3, mxfp8_e5m2, got 'fp4'.",
        ),
        (
            lambda: mx_quantize(X, format="mxfp4", rule="ceil"),
            "mx_quantize: rule must be one of floor, even, got 'ceil'.",
        ),
        (
            lambda: mx_quantize(X.int(), format="mxfp4"),
            "mx_quantize: x must be of dtype float32, bfloat16, float16, float64, got int32.",
        ),
        (
            lambda: mx_quantize(X[:, :40], format="mxfp4"),
            "mx_quantize: the last axis of x must be a multiple of 32, the numbers of a block, got the shape [2, 40].",
        ),
        (
            lambda: mx_quantize(torch.tensor(1.0), format="mxfp4"),
            "mx_quantize: the last axis of x must be a multiple of 32, the numbers of a block, got the shape [].",
        ),
        (
            lambda: MXTensor(B.data, B.scale, "mxfp6"),
            "MXTensor: format must be one of mxfp4, mxfp8_e4m3, mxfp8_e5m2, got 'mxfp6'.",
        ),
        (lambda: MXTensor(X, B.scale, "mxfp4"), "MXTensor: data must be of dtype uint8, got float32."),
        (lambda: MXTensor(B.data, B.scale, "mxfp8_e4m3"), "MXTensor: data must be of dtype float8_e4m3fn, got uint8."),
        (lambda: MXTensor(B.data, B.scale.int(), "mxfp4"), "MXTensor: scale must be of dtype uint8, got int32."),
        (
            lambda: MXTensor(B.data[:, :20], B.scale, "mxfp4"),
            "MXTensor: the last axis of data must be a multiple of 32, the numbers of a block, got the shape [3, 40].",
        ),
        (
            lambda: MXTensor(B.data[0, 0], B.scale, "mxfp4"),
            "MXTensor: the last axis of data must be a multiple of 32, the numbers of a block, got the shape [].",
        ),
        (lambda: MXTensor(B.data, B.scale[:2], "mxfp4"), "MXTensor: scale must have the shape [3, 2], got [2, 2]."),
        (lambda: mx_dequantize(X), "mx_dequantize: q must be an MXTensor, got Tensor; mx_quantize makes one."),
        (
            lambda: mx_dequantize(B, dtype=torch.int32),
            "mx_dequantize: dtype must be float32, bfloat16, float16, float64, got int32.",
        ),
        (lambda: mx_matmul(X, X), "mx_matmul: b must be an MXTensor, got Tensor; mx_quantize makes one."),
        (
            lambda: mx_matmul(X, mx_quantize(torch.ones(1, 3, 64), format="mxfp4")),
            "mx_matmul: b must have the shape [N, K], got [1, 3, 64].",
        ),
        (
            lambda: mx_matmul(B, FP8),
            "mx_matmul: a in mxfp4 goes with b in mxfp4 only, got b in mxfp8_e5m2; exchange a and b.",
        ),
        (lambda: mx_matmul(X.half(), B), "mx_matmul: a must be of dtype bfloat16, float32, float64, got float16."),
        (lambda: mx_matmul(X[:, :32], B), "mx_matmul: a must have the shape [..., 64] for b [3, 64], got [2, 32]."),
        (lambda: mx_matmul(torch.tensor(1.0), B), "mx_matmul: a must have the shape [..., 64] for b [3, 64], got []."),
        (
            lambda: mx_matmul(X, B, torch.int8),
            "mx_matmul: out_dtype must be float32, bfloat16, float16, float64, got int8.",
        ),
        (
            lambda: mx_matmul(X.to("meta"), B),
            "mx_matmul: b is on cpu and a on meta; move them to one device.",
        ),
    ],
)
def test_wrong_calls_are_refused_with_one_sentence(call, message: str) -> None:
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value) == message


def test_a_device_without_an_implementation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnAnotherDevice(Tensor):
        device = torch.device("cuda")

    with pytest.raises(BackendError, match="mx_quantize: no implementation for tensors on cuda"):
        mx_quantize(torch.ones(2, 32).as_subclass(OnAnotherDevice), format="mxfp4")


def test_an_mx_tensor_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        B.format = "mxfp8_e4m3"
