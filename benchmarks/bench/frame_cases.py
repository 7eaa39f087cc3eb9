"""The cases in which frame readers are compared."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

__all__ = ["MEAN", "STD", "Case", "Clip", "Job"]

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
"""ImageNet's mean and standard deviation, by which most networks expect values of 0 to 1 to be normalised."""


class Case(StrEnum):
    """A kind of work."""

    RANDOM = "random"
    RANDOM_KEPT = "random, kept open"
    BATCHES = "batches"
    SEQUENTIAL = "sequential"
    EVERY = "every"
    FILMS = "films at once"
    CLIPS = "clips"


@dataclass(frozen=True, slots=True)
class Clip:
    """A part of a film."""

    film: str
    first: int
    """The number of the first picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job for a reader; each case uses only the fields that it needs."""

    case: Case
    films: tuple[str, ...] = ()
    indices: tuple[int, ...] = ()
    pictures: int = 0
    """Number of pictures in a batch or clip."""
    side: int = 0
    """Side of the square to which batches are resized."""
    step: int = 0
    clips: tuple[Clip, ...] = ()
    workers: int = 1
    """How many threads read clips."""
    looks: bool = False
    """Whether to return small pictures instead of times."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the job with the values from ``to_dict``."""
        clips = tuple(Clip(**clip) for clip in values["clips"])
        lists = {name: tuple(values[name]) for name in ("films", "indices")}
        return cls(**{**values, **lists, "case": Case(values["case"]), "clips": clips})
