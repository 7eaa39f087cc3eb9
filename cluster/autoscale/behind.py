"""What batches report that they will ask for when some of their jobs are done: pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..placement.model.demand import PLAIN_FRAMES, Demand


@dataclass(frozen=True, slots=True)
class LaterDemand:
    """What waits behind the jobs of a batch that are under way."""

    like: str  # one of its jobs, of the kind that waits; one that is over stands for those that follow too
    segments: int  # how many segments of it could run at once beside those that are asked for
    frames: int  # those of all that waits


@dataclass(slots=True)
class _Waiting:
    later: LaterDemand
    kind: Demand | None  # what a job of the batch asked for last, None before any has


class WorkBehind:
    """The later demands of batches, by their names."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}

    def set(self, batch: str, later: LaterDemand) -> None:
        """Set what a batch will ask for."""
        before = self._waiting.pop(batch, None)
        self._waiting[batch] = _Waiting(later, None if before is None else before.kind)

    def clear(self, batch: str) -> None:
        """Forget a batch, if it is known."""
        self._waiting.pop(batch, None)

    def told(self, demands: Mapping[str, Demand], workers_max: int | None) -> Iterator[Demand]:
        """Yield it as a report has it; ``demands`` are those of jobs, and the client's slots ``workers_max``.

        Nothing is told of a batch before one of its jobs has said what it asks for.
        """
        for batch, waiting in self._waiting.items():
            later = waiting.later
            waiting.kind = kind = demands.get(later.like, waiting.kind)
            if kind is not None:
                yield replace(
                    kind,
                    job=batch,
                    segments=(max(kind.segments, default=PLAIN_FRAMES),),
                    renditions=tuple(replace(each, kind=None) for each in kind.renditions),
                    frames_total=later.frames,
                    workers_max=min(later.segments, workers_max or later.segments),
                )
