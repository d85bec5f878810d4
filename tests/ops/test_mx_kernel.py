"""The kernels of MX formats on the emulator: every code and scale, special blocks, schedules, tilings, refusals."""

from __future__ import annotations

import math
import struct

import pytest
import torch
from torch import Tensor

from ascend_k3 import ops
from ascend_k3.ops import kernel_cases
from ascend_k3.ops.mx import MXTensor, mx_dequantize, mx_quantize
from ascend_k3.ops.mx.formats import FORMATS, RULES
from ascend_k3.ops.mx.kernel.launch import DTYPES, MX_DEQUANTIZE, MX_QUANTIZE, NUMBERS
from ascend_k3.ops.soc import NAMES, soc
from tests.ops.kernel_checks import SOCS, assert_case, assert_repeatable, bits, mutated, on_emulator
from tests.ops.mx_oracle import codes_of, quantized_by_definition

INTEGER = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("case", kernel_cases.cases("mx"), ids=lambda case: case.name)
def test_cases(case: kernel_cases.Case, chip: str) -> None:
    assert_case(case, chip)


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("case", mutated("mx"), ids=lambda case: case.name)
def test_runs_and_schedules_give_the_same_bits(case: kernel_cases.Case, chip: str) -> None:
    assert_repeatable(case, chip)


def any_bits(blocks: int, dtype: torch.dtype) -> Tensor:
    """Random bits: every exponent, subnormal numbers, infinities and NaN."""
    source = torch.Generator().manual_seed(blocks)
    integer = INTEGER[dtype]
    low, high = torch.iinfo(integer).min, torch.iinfo(integer).max
    return torch.randint(low, high + 1, (blocks, 32), generator=source, dtype=torch.int64).to(integer).view(dtype)


def near_ties(blocks: int, dtype: torch.dtype) -> Tensor:
    """Numbers on the grid of 64ths of their block's largest, and beside it: halfway between elements, and just not."""
    source = torch.Generator().manual_seed(blocks + 1)
    exponents = (-23, 15) if dtype == torch.float16 else (-149, 127)
    size = torch.randint(*exponents, (blocks, 1), generator=source).double().exp2()
    steps = torch.randint(-64, 65, (blocks, 32), generator=source).double() / 64
    beside = 1 + torch.randint(-1, 2, (blocks, 32), generator=source) * torch.finfo(dtype).eps
    return (steps * size * beside).to(dtype)


def special_blocks(dtype: torch.dtype) -> Tensor:
    """Blocks that the docstring of mx_quantize names."""
    largest, least = torch.finfo(dtype).max, torch.finfo(dtype).smallest_normal
    x = torch.randn(12, 32, generator=torch.Generator().manual_seed(7))
    x[0], x[1] = 0.0, -0.0
    x[2, 3], x[2, 5] = math.nan, -1.0
    x[3] = math.nan
    x[4, 1] = math.inf
    x[5] = -math.inf
    x[6, 0], x[6, 1] = -math.inf, math.nan
    x[7], x[8, 9] = -largest, largest
    x[9] *= least / 8
    x[10] = least
    x[11] *= largest / 8
    return x.to(dtype)


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("format", FORMATS)
def test_codes_and_scales_of_all_numbers_are_those_of_the_reference(
    format: str, rule: str, dtype: torch.dtype, chip: str
) -> None:
    x = torch.cat((special_blocks(dtype), any_bits(600, dtype), near_ties(600, dtype)))
    expected = mx_quantize(x, format=format, rule=rule)
    data, scale = on_emulator(lambda: _parts(mx_quantize(x, format=format, rule=rule)), chip)
    assert torch.equal(scale, expected.scale)
    assert torch.equal(bits(data), bits(expected.data))
    assert len(expected.scale.unique()) > 30 and 255 in expected.scale


def _parts(q: MXTensor) -> list[Tensor]:
    return [q.data, q.scale]


@pytest.mark.parametrize("format", FORMATS)
def test_codes_and_scales_follow_the_definition(format: str) -> None:
    x = torch.cat((special_blocks(torch.float32), near_ties(60, torch.float32)))
    codes, scales = quantized_by_definition(x, format, "even")
    data, scale = on_emulator(lambda: _parts(mx_quantize(x, format=format, rule="even")))
    assert scale.tolist() == scales.tolist()
    assert codes_of(MXTensor(data, scale, format)).tolist() == codes.tolist()


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("format", FORMATS)
def test_every_code_at_every_scale_dequantizes_as_the_reference(format: str, dtype: torch.dtype, chip: str) -> None:
    scale = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8).repeat(256, 1)
    a_row = 256 * FORMATS[format].per_byte // 32
    q = MXTensor(codes.view(FORMATS[format].dtype), scale.unsqueeze(1).repeat(1, a_row), format)
    expected, (found,) = mx_dequantize(q, dtype=dtype), on_emulator(lambda: mx_dequantize(q, dtype=dtype), chip)
    same = found.view(INTEGER[dtype]) == expected.view(INTEGER[dtype])
    assert bool((same | found.isnan() & expected.isnan()).all())
    assert expected[0].count_nonzero() > 0 or dtype == torch.float16
    assert expected[255].isnan().all() and expected[254].isinf().any()


def test_shapes_of_any_rank_strides_and_no_elements() -> None:
    x = torch.randn(3, 64, 5, 2, generator=torch.Generator().manual_seed(2)).permute(3, 0, 2, 1)
    expected = mx_quantize(x, format="mxfp4")
    data, scale = on_emulator(lambda: _parts(mx_quantize(x, format="mxfp4")))
    assert data.shape == (2, 3, 5, 32) and scale.shape == (2, 3, 5, 2)
    assert torch.equal(data, expected.data) and torch.equal(scale, expected.scale)
    turned = MXTensor(data.transpose(0, 2), scale.transpose(0, 2), "mxfp4")
    (y,) = on_emulator(lambda: mx_dequantize(turned, dtype=torch.float32))
    assert y.is_contiguous() and torch.equal(y, mx_dequantize(turned, dtype=torch.float32))
    for shape in ((0, 32), (4, 0), (2, 0, 64)):
        for format in FORMATS:
            q = mx_quantize(torch.zeros(shape), format=format)
            data, scale = on_emulator(lambda: _parts(mx_quantize(torch.zeros(shape), format=format)))  # noqa: B023
            assert data.shape == q.data.shape and scale.shape == q.scale.shape
            assert on_emulator(lambda: mx_dequantize(q))[0].shape == shape  # noqa: B023


# ---- Tilings ----


def buffer_bytes(kernel, tile: int, element: int, format: str) -> int:
    """UB that the kernel's InitBuffer calls take for `tile` blocks."""
    a_block = 16 if format == "mxfp4" else 32
    sizes = [tile * 32 * element] * 2 + [tile * (a_block + 1)] * 2 + ([tile * 128] if element == 2 else []) + [32]
    sizes += [tile * 128, 2 * tile * 32, 16 * tile] if kernel is MX_QUANTIZE else [tile * 128, tile * 32, 12 * tile]
    return sum(-(-size // 32) * 32 for size in sizes)


@pytest.mark.parametrize("chip", NAMES)
@pytest.mark.parametrize("kernel", [MX_QUANTIZE, MX_DEQUANTIZE], ids=lambda kernel: kernel.entry)
def test_tilings_cover_the_blocks_and_fit(kernel, chip: str) -> None:
    cores, room = soc(chip).vector_cores, soc(chip).usable_ub
    for element in (2, 4):
        for format, number in NUMBERS.items():
            for blocks in (*range(1, 20), 47, 48, 49, 383, 384, 385, 5000, 10**5, 10**6 + 1, 2**35):
                found = kernel.tile_for((blocks, element, number, 3, 1), chip=soc(chip))
                total, a_core, tile, carry, chosen, _ = struct.unpack("qqIiii", found.data)
                assert (total, chosen) == (blocks, number) and carry == (1 << 19 if kernel is MX_QUANTIZE else 0)
                assert a_core % 8 == 0 and tile % 8 == 0 and 8 <= tile <= min(a_core, 2040)
                assert 1 <= found.block_dim <= cores
                assert (found.block_dim - 1) * a_core < blocks <= found.block_dim * a_core
                assert buffer_bytes(kernel, tile, element, format) <= room
                # Larger tensors fill the memory, so that the sweep is one of its limit.
                assert blocks < 10**5 or buffer_bytes(kernel, tile, element, format) > room / 2


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_largest_tiles_are_computed(dtype: torch.dtype, chip: str) -> None:
    """On one core, so that few numbers are enough."""
    one = soc(chip).with_(cube_cores=1, vector_cores=1)
    x = near_ties(4 * 800 + 3, dtype)
    expected = mx_quantize(x, format="mxfp8_e4m3")
    data, scale = on_emulator(lambda: _parts(mx_quantize(x, format="mxfp8_e4m3")), one)
    assert torch.equal(bits(data), bits(expected.data)) and torch.equal(scale, expected.scale)
    (y,) = on_emulator(lambda: mx_dequantize(expected, dtype=dtype), one)
    assert torch.equal(y, mx_dequantize(expected, dtype=dtype))


# ---- Refusals ----


def test_refuses_float64() -> None:
    x = torch.zeros(1, 32)
    q = mx_quantize(x, format="mxfp4")
    with ops.backend("emulator"):
        with pytest.raises(ValueError, match="mx_quantize: x is torch.float64; its kernel takes float32, bfloat16"):
            mx_quantize(x.double(), format="mxfp4")
        with pytest.raises(ValueError, match="mx_dequantize: dtype is torch.float64; its kernel gives float32"):
            mx_dequantize(q, dtype=torch.float64)
