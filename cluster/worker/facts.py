"""What a worker process says of itself: a frozen, picklable value."""

from dataclasses import dataclass

__all__ = ["WorkerFacts"]


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What a worker process says of itself once it is up.

    ``device`` is the identity of the GPU or slice it took (``gpu_identity``), "" for none; ``cores`` are those that its
    reservation holds.
    """

    pid: int
    slots: int
    device: str = ""
    cores: int = 0
