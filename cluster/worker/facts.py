"""A worker process's identity: a frozen, picklable value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What a worker process reports once it is up.

    ``device`` is the identity of its GPU or slice (``gpu_identity``), "" for none; ``cores`` are those of its
    reservation.
    """

    pid: int
    slots: int
    device: str = ""
    cores: int = 0
