"""What is done to a job, and when: a pure function of a seed, so that a seed repeats its round."""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SEGMENTS: Final = 20
"""Of the film that every round encodes."""
STRIKES: Final = (1, 1, 1, 2, 2, 3)
DELAY_MAX_S: Final = 0.3


class Shape(StrEnum):
    """Where the job runs."""

    PRIVATE = "private"
    TWO_NODES = "two nodes"
    SMALL_NODES = "small nodes"

    @property
    def node_cpus(self) -> tuple[int, ...]:
        """The number of CPUs of each node of the cluster; none is a private Ray."""
        return {Shape.PRIVATE: (), Shape.TWO_NODES: (2, 2), Shape.SMALL_NODES: (1, 1, 1, 1)}[self]


class Fault(StrEnum):
    """What is done. A node has a raylet, and workers below it."""

    WORKER_KILLED = "worker SIGKILL"
    WORKER_TERMINATED = "worker SIGTERM"
    WORKER_STOPPED = "worker SIGSTOP"
    RAYLET_KILLED = "private raylet SIGKILL"
    GCS_KILLED = "private GCS SIGKILL"
    HOST_KILLED = "host process SIGKILL"
    NODE_KILLED = "node SIGKILL"
    NODE_STOPPED = "node SIGSTOP"
    SUPERVISOR_KILLED = "supervisor SIGKILL"
    DRIVER_KILLED = "driver SIGKILL, then the same command"
    DRIVER_TERMINATED = "driver SIGTERM, then the same command"
    JOURNAL_CUT = "driver SIGKILL, the journal's last bytes cut, then the same command"
    JOURNAL_DAMAGED = "driver SIGKILL, a byte of the journal's end flipped, then the same command"
    PAYLOAD_DAMAGED = "driver SIGKILL, a byte of a segment's payload flipped, then the same command"
    DISK_FULL = "the output's disk fills, is freed, then the same command"


NODE_LOSSES: Final = frozenset({Fault.NODE_KILLED, Fault.NODE_STOPPED})
ENDS_THE_DRIVER: Final = frozenset(
    {
        Fault.DRIVER_KILLED,
        Fault.DRIVER_TERMINATED,
        Fault.JOURNAL_CUT,
        Fault.JOURNAL_DAMAGED,
        Fault.PAYLOAD_DAMAGED,
        Fault.DISK_FULL,
    }
)
OF_A_PRIVATE_RAY: Final = frozenset({Fault.RAYLET_KILLED, Fault.GCS_KILLED})
OF_A_CLUSTER: Final = NODE_LOSSES | {Fault.SUPERVISOR_KILLED}


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault, ``delay_s`` after ``after_segments`` are finished in all; ``choice`` picks a victim among several."""

    fault: Fault
    after_segments: int
    delay_s: float
    choice: float


@dataclass(frozen=True, slots=True)
class Round:
    """One job and its faults, in order; ``beside`` tells whether a second job runs that nothing is done to."""

    seed: int
    shape: Shape
    strikes: tuple[Strike, ...]
    beside: bool


def possible(shape: Shape) -> list[Fault]:
    """Return the faults that can happen in a cluster of this shape."""
    other = OF_A_CLUSTER if shape is Shape.PRIVATE else OF_A_PRIVATE_RAY
    return [fault for fault in Fault if fault not in other]


def round_of(seed: int) -> Round:
    """Return the round of a seed. Consecutive seeds go through shapes and first faults in turn."""
    generator = random.Random(seed)  # noqa: S311 - no secret
    shape = list(Shape)[seed % len(Shape)]
    faults = [possible(shape)[seed // len(Shape) % len(possible(shape))]]
    faults += generator.choices(possible(shape), k=generator.choice(STRIKES) - 1)
    nodes_left = len(shape.node_cpus) - 1
    strikes = []
    for fault in faults:
        if fault in NODE_LOSSES:
            nodes_left -= 1
        if nodes_left < 0 and fault in NODE_LOSSES:
            continue
        after = generator.randrange(SEGMENTS - 2)
        strikes.append(Strike(fault, after, generator.uniform(0, DELAY_MAX_S), generator.random()))
    strikes.sort(key=lambda strike: strike.after_segments)
    return Round(seed, shape, tuple(strikes), beside=shape is not Shape.PRIVATE and generator.random() < 1 / 4)
