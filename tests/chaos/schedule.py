"""The faults of a job and their times: a pure function of a seed, so that a seed repeats its round."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SEGMENTS: Final = 20
"""The number of segments of every round's film."""
STRIKES: Final = (1, 1, 1, 2, 2, 3)
DELAY_MAX_S: Final = 0.3
SEGMENT_FRAMES: Final = 24
SIZE: Final = (640, 352)
"""Whole macroblocks: what NVDEC decodes is as large as what the film shows."""
BATCH: Final = 10
"""How many rounds share a cluster at most."""


class Shape(StrEnum):
    """The kind of place where the job runs."""

    PRIVATE = "private"
    TWO_NODES = "two nodes"
    SMALL_NODES = "small nodes"
    SPLIT_NODES = "split nodes"
    SIMULATED_GPUS = "simulated GPUs"
    QUEUE = "queue"

    @property
    def node_cpus(self) -> tuple[int, ...]:
        """The number of CPUs of each node of the cluster; empty for a private Ray."""
        own = {Shape.TWO_NODES: (2, 2), Shape.SMALL_NODES: (1, 1, 1, 1), Shape.SPLIT_NODES: (2, 2)}
        own[Shape.QUEUE] = (1, 1)
        return own.get(self, ())


class Fault(StrEnum):
    """A fault. A node has a raylet, and workers below the raylet."""

    WORKER_KILLED = "worker SIGKILL"
    WORKER_TERMINATED = "worker SIGTERM"
    WORKER_STOPPED = "worker SIGSTOP"
    RAYLET_KILLED = "private raylet SIGKILL"
    GCS_KILLED = "private GCS SIGKILL"
    HOST_KILLED = "host process SIGKILL"
    NODE_KILLED = "node SIGKILL"
    NODE_STOPPED = "node SIGSTOP"
    NODE_CUT_OFF = "node cut off from the network, for 6 s"
    NODE_CUT_BRIEFLY = "node cut off from the network, for 0.5 s"
    GCS_RESTARTED = "cluster's GCS SIGKILL, started again after 1 s"
    SUPERVISOR_KILLED = "supervisor SIGKILL"
    NODE_TAKEN_BACK = "node drained with 8 s of notice, then SIGKILL"
    DRIVER_KILLED = "driver SIGKILL, then the same command"
    DRIVER_TERMINATED = "driver SIGTERM, then the same command"
    JOURNAL_CUT = "driver SIGKILL, the journal's last bytes cut, then the same command"
    JOURNAL_DAMAGED = "driver SIGKILL, a byte of the journal's end flipped, then the same command"
    PAYLOAD_DAMAGED = "driver SIGKILL, a byte of a segment's payload flipped, then the same command"
    DISK_FULL = "the output's disk fills, is freed, then the same command"
    STORAGE_SLOW = "the source's web server delays answers, and cuts every third"
    STORAGE_DOWN = "the source's web server answers 503 for 1 s"
    STORAGE_GONE = "the source's web server answers 503 until the job gives up, then the same command"
    NVDEC_HANGS = "a call of NVDEC's never returns (simulated)"
    NVDEC_FAILS = "NVDEC refuses a picture (simulated)"
    NVENC_FAILS = "NVENC refuses a picture (simulated)"
    CUDA_BREAKS = "CUDA fails with 999 in one process (simulated)"
    GPU_LOST = "a GPU is lost (simulated)"
    DRIVERS_NODE_KILLED = "node of the job's driver SIGKILL, then started again"
    OWN_DRIVER_KILLED = "node's driver SIGKILL"
    HEAD_KILLED = "head SIGKILL, then started again"
    DATABASE_KILLED = "database SIGKILL, started again after 2 s"
    DATABASE_STOPPED = "database shut down, started again after 5 s"
    DATABASE_FROZEN = "database SIGSTOP, for 5 s"
    SPOT_NOTICE = "spot notice of 15 s to a node, then SIGKILL"


NODE_LOSSES: Final = frozenset({Fault.NODE_KILLED, Fault.NODE_STOPPED, Fault.NODE_CUT_OFF, Fault.NODE_TAKEN_BACK})
OF_THE_STORE: Final = frozenset({Fault.STORAGE_SLOW, Fault.STORAGE_DOWN, Fault.STORAGE_GONE})
OF_A_DEVICE: Final = frozenset(
    {Fault.NVDEC_HANGS, Fault.NVDEC_FAILS, Fault.NVENC_FAILS, Fault.CUDA_BREAKS, Fault.GPU_LOST}
)
OF_A_DATABASE: Final = frozenset({Fault.DATABASE_KILLED, Fault.DATABASE_STOPPED, Fault.DATABASE_FROZEN})
OF_A_QUEUE: Final = OF_A_DATABASE | {
    Fault.DRIVERS_NODE_KILLED,
    Fault.OWN_DRIVER_KILLED,
    Fault.HEAD_KILLED,
    Fault.SPOT_NOTICE,
}
ENDS_THE_DRIVER: Final = frozenset(
    {
        Fault.DRIVER_KILLED,
        Fault.DRIVER_TERMINATED,
        Fault.JOURNAL_CUT,
        Fault.JOURNAL_DAMAGED,
        Fault.PAYLOAD_DAMAGED,
        Fault.DISK_FULL,
        Fault.STORAGE_GONE,
    }
)
_OF_ONE_SHAPE: Final = {
    Fault.RAYLET_KILLED: Shape.PRIVATE,
    Fault.GCS_KILLED: Shape.PRIVATE,
    Fault.GCS_RESTARTED: Shape.SMALL_NODES,
    Fault.NODE_CUT_OFF: Shape.SPLIT_NODES,
    Fault.NODE_CUT_BRIEFLY: Shape.SPLIT_NODES,
    **dict.fromkeys(OF_A_DEVICE, Shape.SIMULATED_GPUS),
    **dict.fromkeys(OF_A_QUEUE, Shape.QUEUE),
}
_OF_A_CLUSTER: Final = frozenset(
    {Fault.NODE_KILLED, Fault.NODE_STOPPED, Fault.SUPERVISOR_KILLED, Fault.NODE_TAKEN_BACK}
)
_WITH_A_STORE: Final = frozenset({Shape.PRIVATE, Shape.TWO_NODES, Shape.SMALL_NODES})


def possible(shape: Shape) -> list[Fault]:
    """Return the faults that can happen in a cluster of this shape."""
    return [fault for fault in Fault if _can_strike(fault, shape)]


def _can_strike(fault: Fault, shape: Shape) -> bool:
    if shape is Shape.QUEUE:
        return fault in OF_A_QUEUE or fault in (Fault.WORKER_KILLED, Fault.SUPERVISOR_KILLED)
    if fault in OF_THE_STORE:
        return shape in _WITH_A_STORE
    if fault in _OF_A_CLUSTER:
        return bool(shape.node_cpus)
    return _OF_ONE_SHAPE.get(fault, shape) is shape


COMMON: Final = frozenset.intersection(*(frozenset(possible(shape)) for shape in Shape if shape is not Shape.QUEUE))
"""What can happen to every program that a user has started."""


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault ``delay_s`` after ``after_segments`` are finished in all; ``choice`` picks one of several victims."""

    fault: Fault
    after_segments: int
    delay_s: float
    choice: float


@dataclass(frozen=True, slots=True)
class Round:
    """A job and its faults, in order; ``beside`` is whether a second job runs, at which no fault is aimed."""

    seed: int
    shape: Shape
    strikes: tuple[Strike, ...]
    beside: bool

    @property
    def is_remote(self) -> bool:
        return any(strike.fault in OF_THE_STORE for strike in self.strikes)


def round_of(seed: int) -> Round:
    """Return the round of a seed. Consecutive seeds cycle through the shapes, and through the first faults.

    Every second round of a shape begins with a fault that not every shape has.
    """
    generator = random.Random(seed)  # noqa: S311 - not a secret
    shape = list(Shape)[seed % len(Shape)]
    turn, is_own = divmod(seed // len(Shape), 2)
    kinds = [fault for fault in possible(shape) if fault not in COMMON] if is_own else possible(shape)
    faults = [kinds[turn % len(kinds)]]
    faults += generator.choices(possible(shape), k=generator.choice(STRIKES) - 1)
    strikes = []
    for fault in _bearable(faults, shape):
        after = generator.randrange(SEGMENTS - 2)
        strikes.append(Strike(fault, after, generator.uniform(0, DELAY_MAX_S), generator.random()))
    strikes.sort(key=lambda strike: strike.after_segments)
    # A full disk would also hit the other job.
    can_share = bool(shape.node_cpus) and Fault.DISK_FULL not in faults
    return Round(seed, shape, tuple(strikes), beside=can_share and generator.random() < 1 / 4)


def _bearable(faults: Sequence[Fault], shape: Shape) -> Iterator[Fault]:
    """Leave out faults that would take the last node or GPU, and a second fault of a device."""
    nodes_left, devices_left = len(shape.node_cpus) - 1, 1
    for fault in faults:
        nodes_left -= fault in NODE_LOSSES
        devices_left -= fault in OF_A_DEVICE
        if (nodes_left >= 0 or fault not in NODE_LOSSES) and (devices_left >= 0 or fault not in OF_A_DEVICE):
            yield fault


def batches(plans: Sequence[Round], at_once: int) -> list[tuple[Round, ...]]:
    """Divide rounds into batches of one shape each, small enough that ``at_once`` processes share them evenly.

    Those of a queue come first, since they take longest.
    """
    size = max(1, min(BATCH, -(-len(plans) // at_once)))
    shapes = sorted(Shape, key=lambda shape: shape is not Shape.QUEUE)
    by_shape = [[plan for plan in plans if plan.shape is shape] for shape in shapes]
    return [tuple(same[first : first + size]) for same in by_shape for first in range(0, len(same), size)]
