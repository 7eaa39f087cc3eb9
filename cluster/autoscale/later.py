"""The demand of each batch's waiting jobs, as a client reports it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..placement.model.demand import PLAIN_FRAMES, Demand


@dataclass(frozen=True, slots=True)
class LaterDemand:
    """The demand of a batch's waiting jobs."""

    like: str  # the name of a running or finished job of the same kind
    segments: int  # how many segments of waiting jobs could run at the same time
    frames: int  # the number of frames in all waiting jobs


class LaterDemands:
    """The demands of waiting jobs, by the name of their batch."""

    def __init__(self) -> None:
        self._later: dict[str, LaterDemand] = {}
        self._kinds: dict[str, Demand] = {}  # the last known demand of a job of each batch

    def set(self, batch: str, later: LaterDemand) -> None:
        """Set or replace the demand of a batch's waiting jobs."""
        self._later[batch] = later

    def clear(self, batch: str) -> None:
        """Forget the waiting jobs of a batch."""
        self._later.pop(batch, None)
        self._kinds.pop(batch, None)

    def reported(self, demands: Mapping[str, Demand], workers_max: int | None) -> Iterator[Demand]:
        """Yield the demand of each batch's waiting jobs.

        A batch is left out until ``demands`` contains one of its jobs. ``workers_max`` is the most slots that one job
        of this client may have.
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
