"""What batches will ask for when some of their jobs are done, as clients report it: pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..placement.model.demand import PLAIN_FRAMES, Demand


@dataclass(frozen=True, slots=True)
class LaterDemand:
    """What a batch will ask for beside its running jobs."""

    like: str  # one of its jobs, of the kind that waits; one that is over stands for those that follow too
    segments: int  # how many segments of it could run at once beside those that are asked for
    frames: int  # those of all that waits


class LaterDemands:
    """The later demands of batches, by their names."""

    def __init__(self) -> None:
        self._later: dict[str, LaterDemand] = {}
        self._kinds: dict[str, Demand] = {}  # what a job of each batch asked for last, once one has

    def set(self, batch: str, later: LaterDemand) -> None:
        """Set what a batch will ask for."""
        self._later[batch] = later

    def clear(self, batch: str) -> None:
        """Forget a batch, if it is known."""
        self._later.pop(batch, None)
        self._kinds.pop(batch, None)

    def reported(self, demands: Mapping[str, Demand], workers_max: int | None) -> Iterator[Demand]:
        """Yield what a report has of each batch, once one of its jobs has said what it asks for.

        ``demands`` are those of jobs; ``workers_max`` bounds the client's slots.
        """
        for batch, later in self._later.items():
            kind = demands.get(later.like, self._kinds.get(batch))
            if kind is None:
                continue
            self._kinds[batch] = kind
            yield replace(
                kind,
                job=batch,
                segments=(max(kind.segments, default=PLAIN_FRAMES),),
                renditions=tuple(replace(each, kind=None) for each in kind.renditions),
                frames_total=later.frames,
                workers_max=min(later.segments, workers_max or later.segments),
            )
