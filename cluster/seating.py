"""How many worker processes a fleet has, on which nodes, and how many slots each: arithmetic, no Ray.

One process serves up to 8 cores: codecs release the GIL, and a process more costs 80 MiB and a start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["CORES_PER_PROCESS", "NodeCores", "Seat", "seat_workers"]

CORES_PER_PROCESS = 8


@dataclass(frozen=True, slots=True)
class NodeCores:
    """A machine of the cluster: its id, the CPUs it has, and how many of them nobody has reserved."""

    node: str
    cores: int
    free_cores: int


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of one worker process: its node, the work it runs at once, and the CPUs it reserves there.

    ``reserved_cores`` is below ``slots`` where more slots were asked for than the node has CPUs free: then slots share
    CPUs, because a reservation that cannot be met would wait for ever.
    """

    node: str
    slots: int
    reserved_cores: int


def seat_workers(nodes: Sequence[NodeCores], slots: int | None) -> tuple[Seat, ...]:
    """Spread ``slots`` (None: one a core) over ``nodes`` in proportion to their cores.

    Nodes without cores get nothing. The result is empty only if no node has any.
    """
    able = [node for node in nodes if node.cores > 0]
    shares = [node.cores for node in able] if slots is None else _share(slots, [node.cores for node in able])
    return tuple(seat for node, share in zip(able, shares, strict=True) for seat in _seats_of(node, share))


def _share(total: int, weights: Sequence[int]) -> list[int]:
    """Split ``total`` by ``weights``: each gets the whole part of its quota, the largest remainders one more."""
    if not weights:
        return []
    quotas = [Fraction(total * weight, sum(weights)) for weight in weights]
    shares = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(weights)), key=lambda i: (shares[i] - quotas[i], i))
    for i in by_remainder[: total - sum(shares)]:
        shares[i] += 1
    return shares


def _seats_of(node: NodeCores, slots: int) -> list[Seat]:
    if slots == 0:
        return []
    processes = -(-min(slots, node.cores) // CORES_PER_PROCESS)
    even = [1] * processes
    reserved = _share(min(slots, node.cores, node.free_cores), even)
    return [Seat(node.node, own, cores) for own, cores in zip(_share(slots, even), reserved, strict=True)]
