"""Least cost of the short causal convolution, over whole sequences and one token at a time."""

from __future__ import annotations

from ascend_k3.ops.cost import Cost, nbytes


def causal_conv1d(
    *,
    tokens: int,
    channels: int,
    taps: int,
    sequences: int,
    dtype: str,
    weight_dtype: str | None = None,
    initial_window: bool = False,
    index_dtype: str | None = None,
    activation: bool = True,
) -> Cost:
    """x [tokens, channels], weight [channels, taps] -> y, and the windows [sequences, channels, taps - 1].

    `tokens` counts those of all sequences; `index_dtype` is that of cu_seqlens, None without it. Vector elements of one
    output: `taps` multiply-adds; with SiLU, sigmoid and product.
    """
    size = tokens * channels
    windows = nbytes(sequences * channels * (taps - 1), dtype)
    return Cost(
        bytes_in=nbytes(size, dtype)
        + nbytes(channels * taps, weight_dtype or dtype)
        + (windows if initial_window else 0)
        + (nbytes(sequences + 1, index_dtype) if index_dtype else 0),
        bytes_out=nbytes(size, dtype) + windows,
        vector_elements=(taps + (2 if activation else 0)) * size,
    )


def causal_conv1d_update(
    *,
    sequences: int,
    channels: int,
    taps: int,
    dtype: str,
    weight_dtype: str | None = None,
    window_dtype: str | None = None,
    index_dtype: str = "int64",
    activation: bool = True,
) -> Cost:
    """x [sequences, channels], weight [channels, taps], a window for each sequence, read and written -> y.

    Vector elements of one output as in `causal_conv1d`. Padding rows are not among the `sequences`.
    """
    size = sequences * channels
    windows = nbytes(size * (taps - 1), window_dtype or dtype)
    return Cost(
        bytes_in=nbytes(size, dtype)
        + nbytes(channels * taps, weight_dtype or dtype)
        + windows
        + nbytes(sequences, index_dtype),
        bytes_out=nbytes(size, dtype) + windows,
        vector_elements=(taps + (2 if activation else 0)) * size,
    )
