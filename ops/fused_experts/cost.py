"""Least cost of the routed experts, and of the steps around their grouped product: permutation and weighted return."""

from __future__ import annotations

from ascend_k3.ops.cost import Cost, is_mx, mac_type, nbytes
from ascend_k3.ops.mx.cost import conversion_elements
from ascend_k3.ops.situ_glu.cost import situ_elements


def expected_experts(*, tokens: int, top_k: int, experts: int) -> int:
    """Experts that at least one token goes to, when each token takes `top_k` different ones at random.

    E (1 - (1 - k / E)^T), rounded; a balanced router comes near it.
    """
    return round(experts * (1 - (1 - top_k / experts) ** tokens))


def fused_experts(
    *,
    tokens: int,
    top_k: int,
    experts: int,
    latent: int,
    width: int,
    dtype: str,
    weight_dtype: str,
    routing_dtype: str = "fp32",
    id_dtype: str = "int64",
    experts_hit: int | None = None,
    linear_beta: bool = True,
    multiplied_as: str | None = None,
) -> Cost:
    """x [tokens, latent], weights and ids [tokens, top_k], w13 [experts, 2 width, latent], w2 [experts, latent, width].

    Only the experts that are hit are read. Of each pair of a token and an expert there are 3 latent * width
    multiply-adds, situ_glu on `width`, and `latent` multiply-adds of the weighted return on the vector cores.

    Args:
        weight_dtype: of w13 and w2, a type or an MX format.
        routing_dtype, id_dtype: of weights and of ids.
        experts_hit: how many; `expected_experts` when None.
        multiplied_as: type that the cube cores multiply. By default that of plain expert weights, and with MX ones that
            of x, into which each weight that is hit is then converted (`conversion_elements`). With "mxfp8" x and the
            hidden values are quantized, once each.
    Returns: Cost; the output is [tokens, latent] of x's type.
    Raises: ValueError for more experts hit than there are, or than there are pairs.
    """
    pairs = tokens * top_k
    hit = expected_experts(tokens=tokens, top_k=top_k, experts=experts) if experts_hit is None else experts_hit
    if not 0 <= hit <= min(experts, pairs):
        raise ValueError(
            f"cost: experts_hit must be 0 to {min(experts, pairs)}, the smaller of experts and pairs; got {hit}."
        )
    multiplied = multiplied_as or (dtype if is_mx(weight_dtype) else mac_type(weight_dtype))
    matrices = hit * 3 * latent * width
    return Cost(
        bytes_in=nbytes(tokens * latent, dtype)
        + nbytes(pairs, routing_dtype)
        + nbytes(pairs, id_dtype)
        + nbytes(matrices, weight_dtype),
        bytes_out=nbytes(tokens * latent, dtype),
        macs={multiplied: pairs * 3 * latent * width},
        vector_elements=situ_elements(linear_beta) * pairs * width
        + pairs * latent
        + conversion_elements(weight_dtype, multiplied) * matrices
        + conversion_elements(dtype, multiplied) * (tokens * latent + pairs * width),
    )


def permute(
    *,
    tokens: int,
    top_k: int,
    experts: int,
    width: int,
    dtype: str,
    id_dtype: str = "int64",
    index_dtype: str = "int32",
) -> Cost:
    """rows [tokens, width], ids [tokens, top_k] -> the row of each pair, grouped by expert, [tokens * top_k, width].

    With them go the place of each pair, [tokens, top_k], and the number of pairs of each expert, [experts], both of
    `index_dtype`. Rows are moved, nothing is calculated on them; a row of an MX format moves with its scales.
    """
    pairs = tokens * top_k
    return Cost(
        bytes_in=nbytes(tokens * width, dtype) + nbytes(pairs, id_dtype),
        bytes_out=nbytes(pairs * width, dtype) + nbytes(pairs + experts, index_dtype),
    )


def unpermute(
    *,
    tokens: int,
    top_k: int,
    width: int,
    dtype: str,
    out_dtype: str | None = None,
    routing_dtype: str = "fp32",
    index_dtype: str = "int32",
) -> Cost:
    """y_t = sum_k weights[t, k] rows[place[t, k]]: rows [tokens * top_k, width] -> [tokens, width].

    weights and places are [tokens, top_k]. One multiply-add of the vector cores for each number of the rows.
    """
    pairs = tokens * top_k
    return Cost(
        bytes_in=nbytes(pairs * width, dtype) + nbytes(pairs, routing_dtype) + nbytes(pairs, index_dtype),
        bytes_out=nbytes(tokens * width, out_dtype or dtype),
        vector_elements=pairs * width,
    )
