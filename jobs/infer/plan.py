"""What an inference job is to do: its spec, and the segments of its source."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Self

from ...actors.decode.decoding import DecodeRange
from ...actors.device.blob import Parcel
from ...actors.dla.inference.network import NetworkSettings, WarmNetworks
from ...actors.dla.inference.pictures import PixelRule
from ...actors.dla.inference.segments import InferSegment
from ...actors.media.location import is_local, local_path
from ...cluster.placement.model.demand import Demand
from ...cluster.placement.nodes.assumed import plain_demand
from ..board.board import Run
from ..plan.track_ranges import PlannedSegment, TrackRanges
from ..source.index import TrackIndex
from ..source.source import read_source

__all__ = ["InferPlan", "InferSpec", "NetworksOf", "plan_inference"]

NetworksOf = Callable[[], WarmNetworks]
"""Gives the networks of the process in which it is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferSpec:
    """What is asked for: a network over the frames of one video track.

    ``devices`` are numbers of DLAs on each machine, None all of them; ``workers`` segments are in flight at most, None
    two for each DLA. ``tasks_at_once`` tasks are queued together, each of as many frames as the loadable's input takes.
    Times count from the first presented frame; the interval is half-open.
    """

    source: str
    loadable: str
    output: str
    rule: PixelRule = field(default_factory=PixelRule)
    devices: tuple[int, ...] | None = None
    tasks_at_once: int = 4
    task_limit_s: float = 10.0
    workers: int | None = None
    video_track: int = 0
    start_s: Fraction | None = None
    end_s: Fraction | None = None
    segment_s: Fraction | None = None
    overwrite: bool = False

    def resolved(self) -> Self:
        """Return the same with local paths made absolute: a worker may stand in another folder."""
        return replace(
            self, source=_absolute(self.source), loadable=_absolute(self.loadable), output=_absolute(self.output)
        )


@dataclass(frozen=True, slots=True)
class InferPlan:
    """Segments of a track, and the work of each."""

    spec: InferSpec
    index: TrackIndex
    segments: tuple[PlannedSegment, ...]
    loadable: Parcel

    @property
    def frames(self) -> int:
        """How many frames the index promises."""
        return sum(segment.frames for segment in self.segments)

    def decode(self, run: Run) -> DecodeRange:
        """Return what to decode for a run of a segment."""
        ranges = TrackRanges(self.index, self.segments)
        return ranges.decode(self.segments[run.segment], run.entry_moves, until=self.segments[run.until])

    def demand(self, job: str) -> Demand:
        """Return what the whole job asks of machines: DLAs, and cores to decode for them."""
        return replace(
            plain_demand(job, 0),
            segments=tuple(segment.frames for segment in self.segments),
            renditions=(),
            dlas=self.spec.devices or (),
            workers_max=self.spec.workers,
        )

    def work(self, job: str, run: Run, networks: NetworksOf) -> InferSegment:
        """Return the work of a run."""
        return InferSegment(
            job=job,
            label=f"segment {run.segment}",
            segment=run.segment,
            decode=self.decode(run),
            start_ticks=self.segments[run.segment].start_ticks,
            end_ticks=self.segments[run.until].end_ticks,
            network=NetworkSettings(
                loadable=self.loadable,
                tasks_at_once=self.spec.tasks_at_once,
                task_limit_s=self.spec.task_limit_s,
            ),
            dlas=self.spec.devices,
            rule=self.spec.rule,
            networks=networks,
        )


def plan_inference(spec: InferSpec, loadable: Parcel) -> InferPlan:
    """Read the source's index and cut it.

    Args:
        spec: what is asked for.
        loadable: the network.

    Raises:
        InputError: the source cannot be read, or nothing of it decodes.
        RequestError: it has no such video track.
        UsageError: nothing is presented in the asked-for part.
    """
    reading = read_source(spec.source, spec.video_track)
    reading.described()  # at least one picture decodes, or nothing is begun
    index = reading.index
    ranges = TrackRanges.cut(index, start_s=spec.start_s, end_s=spec.end_s, segment_s=spec.segment_s)
    return InferPlan(spec, index, ranges.segments, loadable)


def _absolute(path: str) -> str:
    return str(local_path(path).absolute()) if is_local(path) else path
