"""What waits behind a client's jobs, as its supervisor is told of it: pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..placement.model.demand import PLAIN_FRAMES, Demand


@dataclass(slots=True)
class _Waiting:
    """``kind`` is what a job of the batch asked for last, None before any has."""

    like: str
    segments: int
    frames: int
    kind: Demand | None


class WorkBehind:
    """What batches will ask for when some of their jobs are done, by their names."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}

    def set(self, batch: str, like: str, segments: int, frames: int) -> None:
        """Take what ``Pool.set_behind`` is told."""
        before = self._waiting.pop(batch, None)
        if frames:
            self._waiting[batch] = _Waiting(like, segments, frames, None if before is None else before.kind)

    def told(self, demands: Mapping[str, Demand], workers_max: int | None) -> Iterator[Demand]:
        """Yield it as a report has it; ``demands`` are those of jobs, and the client's slots ``workers_max``.

        Nothing is told of a batch before one of its jobs has said what it asks for.
        """
        for batch, waiting in self._waiting.items():
            waiting.kind = kind = demands.get(waiting.like, waiting.kind)
            if kind is not None:
                yield replace(
                    kind,
                    job=batch,
                    segments=(max(kind.segments, default=PLAIN_FRAMES),),
                    renditions=tuple(replace(each, kind=None) for each in kind.renditions),
                    frames_total=waiting.frames,
                    workers_max=min(waiting.segments, workers_max or waiting.segments),
                )
