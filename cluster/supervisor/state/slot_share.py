"""Shares slots among worker processes."""

from collections.abc import Sequence
from fractions import Fraction

CORES_PER_PROCESS = 8
"""One process serves up to 8 cores: codecs release the GIL, and another process costs 80 MiB and a start."""


def share_out(total: int, weights: Sequence[int]) -> list[int]:
    """Split ``total`` by ``weights``: each gets the whole part of its quota, the largest remainders one more."""
    if not weights:
        return []
    quotas = [Fraction(total * weight, sum(weights)) for weight in weights]
    shares = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(weights)), key=lambda i: (shares[i] - quotas[i], i))
    for i in by_remainder[: total - sum(shares)]:
        shares[i] += 1
    return shares
