"""Every tolerance of the tests, by dtype. They are never loosened to make a test pass.

`rms(error) / rms(expected)` is what `relative_rms` measures; absolute and relative bounds are those of
tests/fixtures/README.md.
"""

from __future__ import annotations

from torch import Tensor

from ascend_k3.ops.tolerances import KDA_STATE_RMS, RELATIVE_RMS, relative_rms

__all__ = [
    "KDA_STATE_RMS",
    "RELATIVE_RMS",
    "relative_rms",
]  # an operator's own tolerances are the package's: `kernels test` uses them too

# Operators and layers against the fixtures in float32.
FIXTURE_ATOL, FIXTURE_RTOL = 2e-5, 1e-4
# Logits of whole models against the fixtures in float32 (their standard deviation is about 3).
LOGITS_ATOL = 5e-4
KERNEL_LOGITS_ATOL = 1e-3  # ckpt_kernel, logit std 4
# Logits of the same tokens fed in another way (padded, packed, in pieces, one by one), float32.
SPLIT_ATOL = 2e-4
# Gradients against the fixtures: largest error over the largest magnitude of the tensor.
FIXTURE_GRADIENT = 1e-4
# bf16 against an exact golden: multiple of the error that the released code shows, which the fixture states.
BF16_MULTIPLE = 3.0


def largest(value: Tensor, expected: Tensor) -> float:
    """Largest error over the largest magnitude of `expected`, in float64."""
    scale = expected.double().abs().max()
    return float((value.double() - expected.double()).abs().max() / scale)


def assert_close_rms(value: Tensor, expected: Tensor, name: str, bound: float) -> None:
    """Require `relative_rms(value, expected) <= bound`, naming the tensor; NaN fails."""
    found = relative_rms(value, expected)
    assert found <= bound, f"{name}: relative RMS error {found:.3e} is above {bound:.1e}"
