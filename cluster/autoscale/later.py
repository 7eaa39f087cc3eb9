"""The demand of each batch's waiting jobs, as a client reports it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..placement.model.demand import PLAIN_FRAMES, Demand


@dataclass(frozen=True, slots=True)
class LaterDemand:
    """The demand of a batch's waiting jobs."""

    like: str  # a running or finished job of the same kind
    segments: int  # how many segments could run at once, besides segments of running jobs
    frames: int  # of all waiting jobs


class LaterDemands:
    """The demands of the waiting jobs, by the name of the batch."""

    def __init__(self) -> None:
        self._later: dict[str, LaterDemand] = {}
        self._kinds: dict[str, Demand] = {}  # the last demand of a job of each batch

    def set(self, batch: str, later: LaterDemand) -> None:
        """Set the demand of a batch's waiting jobs."""
        self._later[batch] = later

    def clear(self, batch: str) -> None:
        """Forget a batch."""
        self._later.pop(batch, None)
        self._kinds.pop(batch, None)

    def reported(self, demands: Mapping[str, Demand], workers_max: int | None) -> Iterator[Demand]:
        """Yield the demand of each batch's waiting jobs, once ``demands`` has a job of the batch.

        ``workers_max`` limits the client.
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
