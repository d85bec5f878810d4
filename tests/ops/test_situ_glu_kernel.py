"""SiTU-GLU's kernels on the emulator: cases, hard inputs, small numbers, the MX form, schedules, tilings, refusals."""

from __future__ import annotations

import math
import struct

import pytest
import torch
from torch import Tensor

from ascend_k3 import ops
from ascend_k3.ops import kernel_cases
from ascend_k3.ops.errors import BackendError
from ascend_k3.ops.mx import mx_quantize
from ascend_k3.ops.mx.formats import FORMATS, RULES
from ascend_k3.ops.mx.kernel.launch import NUMBERS
from ascend_k3.ops.situ_glu import situ_glu, situ_glu_mx_quantize
from ascend_k3.ops.situ_glu.kernel.launch import DTYPES, SITU_GLU, SITU_GLU_MX_QUANTIZE
from ascend_k3.ops.soc import NAMES, soc
from tests.ops.kernel_checks import SOCS, assert_case, assert_repeatable, bits, mutated, on_emulator
from tests.tolerances import RELATIVE_RMS, assert_close_rms


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("case", kernel_cases.cases("situ_glu"), ids=lambda case: case.name)
def test_cases(case: kernel_cases.Case, chip: str) -> None:
    assert_case(case, chip)


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("case", mutated("situ_glu"), ids=lambda case: case.name)
def test_runs_and_schedules_give_the_same_bits(case: kernel_cases.Case, chip: str) -> None:
    assert_repeatable(case, chip)


def hard_pairs(dtype: torch.dtype) -> Tensor:
    """Every pair of zeros, small, large and huge numbers, infinities and NaN."""
    huge = 6e4 if dtype == torch.float16 else 3e38
    values = [0.0, -0.0, 1e-4, -1e-4, 0.5, -1.0, 9.0, -9.0, 40.0, -40.0, 100.0, -100.0, huge, -huge]
    column = torch.tensor([*values, math.inf, -math.inf, math.nan]).to(dtype)
    gate, up = torch.meshgrid(column, column, indexing="ij")
    return torch.cat((gate, up), dim=-1)


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("linear_beta", [25.0, None])
def test_hard_inputs_are_those_of_the_reference(linear_beta: float | None, dtype: torch.dtype, chip: str) -> None:
    gate_up = hard_pairs(dtype)
    expected = situ_glu(gate_up, beta=4.0, linear_beta=linear_beta)
    (found,) = on_emulator(lambda: situ_glu(gate_up, beta=4.0, linear_beta=linear_beta), chip)
    close = {"rtol": 4 * max(torch.finfo(dtype).eps, 2e-7), "atol": 1e-37, "equal_nan": True}
    torch.testing.assert_close(found, expected, **close)
    assert expected.isnan().any() and (linear_beta is not None or expected.isinf().any())


@pytest.mark.parametrize("beta", [4.0, 1.0, 0.3])
def test_small_numbers_keep_their_precision(beta: float) -> None:
    """tanh from an exponential loses them without the correction: 1e-7 / 4 would be a quarter off."""
    size = torch.logspace(-12, 1, 400)
    gate_up = torch.cat((size, size.flip(0) * torch.tensor([1.0, -1.0]).repeat(200))).view(1, -1)
    (found,) = on_emulator(lambda: situ_glu(gate_up, beta=beta, linear_beta=25.0))
    gate, up = gate_up.double().chunk(2, dim=-1)
    exact = beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * 25 * torch.tanh(up / 25)
    assert ((found.double() - exact) / exact).abs().max() < 1e-6


def test_the_bound_is_reached() -> None:
    gate_up = torch.tensor([[50.0, 90.0, 1e30, 600.0, -600.0, 1e30]])
    (y,) = on_emulator(lambda: situ_glu(gate_up, beta=4.0, linear_beta=25.0))
    assert y.tolist() == [[100.0, -100.0, 100.0]]


def test_shapes_of_any_rank_strides_and_no_elements() -> None:
    gate_up = torch.randn(2, 128, 5, 3, generator=torch.Generator().manual_seed(1)).transpose(1, 3)
    expected = situ_glu(gate_up, beta=4.0, linear_beta=25.0)
    (y,) = on_emulator(lambda: situ_glu(gate_up, beta=4.0, linear_beta=25.0))
    assert y.shape == (2, 3, 5, 64) and y.is_contiguous()
    assert_close_rms(y, expected, "y", RELATIVE_RMS[torch.float32])
    data, scale = on_emulator(lambda: quantized(gate_up, "mxfp4"))
    q = mx_quantize(y, format="mxfp4")
    assert torch.equal(data, q.data) and torch.equal(scale, q.scale)
    for shape in ((0, 64), (4, 0), (2, 0, 128)):
        empty = torch.zeros(shape)
        (y,) = on_emulator(lambda: situ_glu(empty, beta=4.0, linear_beta=None))  # noqa: B023
        data, scale = on_emulator(lambda: quantized(empty, "mxfp4"))  # noqa: B023
        q = mx_quantize(y, format="mxfp4")
        assert y.shape == (*shape[:-1], shape[-1] // 2)
        assert data.shape == q.data.shape and scale.shape == q.scale.shape


# ---- The MX form ----


def quantized(gate_up: Tensor, format: str, rule: str = "floor", linear_beta: float | None = 25.0) -> list[Tensor]:
    q = situ_glu_mx_quantize(gate_up, beta=4.0, linear_beta=linear_beta, format=format, rule=rule)
    return [q.data, q.scale]


@pytest.mark.parametrize("chip", SOCS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("format", FORMATS)
def test_it_is_the_quantization_of_what_the_kernel_gives(format: str, dtype: torch.dtype, chip: str) -> None:
    ordinary = 6 * torch.randn(50, 2 * 352, generator=torch.Generator().manual_seed(2))
    hard = torch.zeros(17, 2 * 352)
    hard[:, :17], hard[:, 352 : 352 + 17] = hard_pairs(torch.float32).clamp(-6e4, 6e4).chunk(2, dim=-1)
    gate_up = torch.cat((ordinary, hard, ordinary * 1e-3)).to(dtype)
    for rule in RULES:
        for linear_beta in (25.0, None):
            (y,) = on_emulator(lambda: situ_glu(gate_up, beta=4.0, linear_beta=linear_beta), chip)  # noqa: B023
            expected = mx_quantize(y, format=format, rule=rule)
            data, scale = on_emulator(lambda: quantized(gate_up, format, rule, linear_beta), chip)  # noqa: B023
            assert torch.equal(scale, expected.scale) and torch.equal(bits(data), bits(expected.data))
            assert 255 in scale


def test_the_output_before_quantization_stays_on_the_core() -> None:
    gate_up = torch.randn(70, 2 * 3072, generator=torch.Generator().manual_seed(3)).bfloat16()
    with ops.backend("emulator") as run:
        data, scale = quantized(gate_up, "mxfp8_e4m3")
    (call,) = run.calls
    counters = call.report.counters
    assert counters.written == {"tensors": data.nbytes + scale.nbytes, "workspace": 0}
    assert counters.read == {"tensors": gate_up.nbytes, "workspace": 0}


# ---- Tilings ----


def tiling(kernel, rows: int, width: int, element: int, chip: str, linear_beta: float = 25.0) -> tuple[int, ...]:
    """tiles, tiles_a_core, tiles_a_row, columns, rows_a_tile and blocks, the fields of the C++ struct."""
    found = kernel.tile_for((rows, width, element, NUMBERS["mxfp8_e4m3"], 3, 1), (4.0, linear_beta), soc(chip))
    total, columns, *parts, to_gate, to_up, product, bounded, format, carry = struct.unpack("qqqqqIIfffiii", found.data)
    assert (total, columns, to_gate) == (rows, width, 0.5) and bounded == (linear_beta != 0)
    assert (to_up, product) == (pytest.approx(2 / 25), 100.0) if bounded else (to_up, product) == (0.0, 4.0)
    assert (format, carry) == ((NUMBERS["mxfp8_e4m3"], 1 << 19) if kernel is SITU_GLU_MX_QUANTIZE else (0, 0))
    return (*parts, found.block_dim)


def buffer_bytes(kernel, columns: int, rows: int, element: int) -> int:
    """UB that the kernel's InitBuffer calls take."""
    block = 32 // element
    most = rows * (-(-columns // block) * block)
    sizes = [2 * most * element] * 2 + ([2 * most * 4] if element == 2 else []) + [2 * most * 4] * 2 + [most * 4]
    if kernel is SITU_GLU:
        sizes += [most * element] * 2
    else:
        blocks = -(-most // 32 // 8) * 8
        sizes += [blocks * 33] * 2 + [blocks * 128, 2 * blocks * 32, 16 * blocks, 32]
    return sum(-(-size // 32) * 32 for size in sizes)


@pytest.mark.parametrize("chip", NAMES)
@pytest.mark.parametrize("kernel", [SITU_GLU, SITU_GLU_MX_QUANTIZE], ids=lambda kernel: kernel.entry)
def test_tilings_cover_the_output_and_fit(kernel, chip: str) -> None:
    cores, room = soc(chip).vector_cores, soc(chip).usable_ub
    widths = (32, 96, 128, 3072, 6144, 8192, 33792, 10**6 * 32)
    for element in (2, 4):
        for width in (*widths, *((1, 17, 1000, 4097) if kernel is SITU_GLU else ())):
            for rows in (1, 2, 7, 47, 48, 49, 191, 192, 193, 1000, 65536, 2**31):
                tiles, a_core, a_row, columns, a_tile, blocks = tiling(kernel, rows, width, element, chip)
                assert a_row == -(-width // columns) and tiles == a_row * -(-rows // a_tile)
                assert a_row == 1 or (a_tile == 1 and columns % 256 == 0)
                assert 1 <= columns <= width and 1 <= a_tile <= 4095
                assert 1 <= blocks <= cores and (blocks - 1) * a_core < tiles <= blocks * a_core
                assert buffer_bytes(kernel, columns, a_tile, element) <= room
                # No core waits while there are two parts of 256 numbers for each.
                assert blocks >= 0.9 * cores or rows * -(-width // 256) < 2 * cores or blocks == -(-tiles // a_core)
                # The memory is used where there is enough to do.
                assert width * rows < 10**8 or buffer_bytes(kernel, columns, a_tile, element) > room / 3


def test_a_tiling_without_linear_beta() -> None:
    assert tiling(SITU_GLU, 3, 100, 4, "a3", 0.0)


@pytest.mark.parametrize("chip", SOCS)
def test_long_rows_in_parts_are_computed(chip: str) -> None:
    """On one core, whose tiles are as large as they can be."""
    one = soc(chip).with_(cube_cores=1, vector_cores=1)
    for dtype in DTYPES[:2]:
        for width in (33792, 9999):
            gate_up = torch.randn(2, 2 * width, generator=torch.Generator().manual_seed(4)).mul(5).to(dtype)
            expected = situ_glu(gate_up, beta=4.0, linear_beta=25.0)
            (y,) = on_emulator(lambda: situ_glu(gate_up, beta=4.0, linear_beta=25.0), one)  # noqa: B023
            assert_close_rms(y, expected, "y", RELATIVE_RMS[dtype])
            if width % 32 == 0:
                data, scale = on_emulator(lambda: quantized(gate_up, "mxfp8_e5m2"), one)  # noqa: B023
                q = mx_quantize(y, format="mxfp8_e5m2")
                assert torch.equal(bits(data), bits(q.data)) and torch.equal(scale, q.scale)


# ---- Gradients and refusals ----


def test_gradients_come_from_the_reference_where_that_is_allowed() -> None:
    gate_up = torch.randn(5, 80, generator=torch.Generator().manual_seed(5), requires_grad=True)
    (expected,) = torch.autograd.grad(situ_glu(gate_up, beta=4.0, linear_beta=25.0).square().sum(), gate_up)
    with ops.backend("emulator", missing="reference") as run:
        (found,) = torch.autograd.grad(situ_glu(gate_up, beta=4.0, linear_beta=25.0).square().sum(), gate_up)
    assert [(call.name, call.backend) for call in run.calls] == [
        ("situ_glu", "emulator"),
        ("situ_glu_backward", "reference"),
    ]
    assert_close_rms(found, expected, "gradient", RELATIVE_RMS[torch.float32])
    with ops.backend("emulator"), pytest.raises(BackendError, match="situ_glu_backward has no Ascend C kernel"):
        situ_glu(gate_up, beta=4.0, linear_beta=25.0).sum().backward()


def test_refuses_float64_and_rows_that_are_no_blocks() -> None:
    gate_up = torch.zeros(1, 64, dtype=torch.float64)
    with ops.backend("emulator"):
        with pytest.raises(ValueError, match="situ_glu: gate_up is torch.float64; its kernel takes float32, bfloat16"):
            situ_glu(gate_up, beta=4.0, linear_beta=25.0)
        with pytest.raises(ValueError, match="situ_glu_mx_quantize: gate_up is torch.float64; its kernel takes"):
            quantized(gate_up, "mxfp4")
    with pytest.raises(ValueError, match="situ_glu_mx_quantize on a3: rows of 33 elements are not blocks of 32"):
        tiling(SITU_GLU_MX_QUANTIZE, 1, 33, 4, "a3")
    with pytest.raises(
        ValueError, match="situ_glu on a3: gate_up has 0 rows of 2 x 8 elements; both have to be at least 1"
    ):
        tiling(SITU_GLU, 0, 8, 4, "a3")
