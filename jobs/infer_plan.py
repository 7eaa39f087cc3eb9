"""What an inference job is to do: its spec, and the segments of its source."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from typing import Self

from ..actors.decoding import AccessPoint, DecodeRange
from ..actors.dla.inference import InferSegment
from ..actors.dla.network import NetworkSettings, WarmNetworks
from ..actors.dla.pictures import PixelRule
from ..actors.location import is_local, local_path
from ..actors.parcel import Parcel
from ..actors.segment import SEAM_FRAMES
from ..actors.timeline import REORDER_FRAMES
from ..cluster.placement.assumed import plain_demand
from ..cluster.placement.demand import Demand
from ..errors import UsageError
from .board import Run
from .cuts import CutReason, choose_cuts
from .index import TrackIndex, index_track
from .plan import PACKET_MARGIN, PlannedSegment

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
        index, end_ticks = self.index, self.segments[run.until].end_ticks
        entry = self._entry(self.segments[run.segment], run.entry_moves)
        last_packet = None
        if end_ticks is not None:
            needed = index.last_packet_before(end_ticks, SEAM_FRAMES)
            margin = REORDER_FRAMES if index.is_troubled(needed) else PACKET_MARGIN
            last_packet = min(needed + margin, index.packets - 1)
        return DecodeRange(
            source=self.spec.source,
            stream_index=index.stream_index,
            time_base=index.time_base,
            nominal_ticks=index.nominal_ticks,
            entry=entry,
            last_packet=last_packet,
            shifts=index.shifts,
            expected_ticks=index.expected_from(entry, last_packet),
            expected_packets=index.packets_from(entry, last_packet),
            untimed=index.untimed,
        )

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

    def _entry(self, segment: PlannedSegment, moves: int) -> AccessPoint | None:
        if segment.start_ticks is None:
            return None
        points = self.index.access_points
        place = bisect_right(points, segment.cut_packet, key=lambda point: point.packet) - 1
        # Each move goes back twice as far as the one before, as in transcode.
        place -= 2**moves - 1
        return points[place] if place > 0 else None


def plan_inference(spec: InferSpec, loadable: Parcel) -> InferPlan:
    """Read the source's index and cut it.

    Args:
        spec: what is asked for.
        loadable: the network.

    Raises:
        InputError: the source cannot be read.
        RequestError: it has no such video track.
        UsageError: nothing is presented in the asked-for part.
    """
    index = index_track(spec.source, spec.video_track)
    start, end = (_ticks(index, moment_s) for moment_s in (spec.start_s, spec.end_s))
    if not index.frames_between(start, end):
        message = f"no picture of {spec.source} is presented in the asked-for part"
        raise UsageError(message, "Give a smaller --start or a larger --end.")
    asked_s = None if spec.segment_s is None else max(spec.segment_s, 2 * index.time_base)
    cuts = choose_cuts(index, asked_s, start, end)
    starts = [(start, _first_packet(index, start)), *((cut.ticks, cut.entry.packet) for cut in cuts)]
    reasons = [CutReason.START.value, *(cut.reason.value for cut in cuts)]
    ends = [*(cut.ticks for cut in cuts), end]
    segments = tuple(
        PlannedSegment(number, begin, stop, packet, index.frames_between(begin, stop), reason)
        for number, ((begin, packet), stop, reason) in enumerate(zip(starts, ends, reasons, strict=True))
    )
    return InferPlan(spec, index, segments, loadable)


def _absolute(path: str) -> str:
    return str(local_path(path).absolute()) if is_local(path) else path


def _ticks(index: TrackIndex, moment_s: Fraction | None) -> int | None:
    return None if not moment_s else index.first_ticks + ceil(moment_s / index.time_base)


def _first_packet(index: TrackIndex, start: int | None) -> int:
    """Return the access point for the frame at ``start``: one early, since no neighbour proves this seam."""
    if start is None:
        return 0
    before = [p.packet for p in index.access_points if index.timed[p.packet] and index.pts[p.packet] <= start]
    return before[-2] if len(before) > 1 else 0
