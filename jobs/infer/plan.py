"""The plan of an inference job: the segments of the source, and the work of each segment."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...actors.decode.decoding import DecodeRange
from ...actors.device.memory_choice import Waiting
from ...actors.device.work import Blob
from ...actors.dla.engine import DlaMode
from ...actors.dla.inference import InferSegment, NetworkSettings, PixelRule, WarmNetworks
from ...actors.media.location import name_of
from ...actors.media.values import Colour
from ...cluster.placement.model import Demand, plain_demand
from ...errors import redacted
from ..board.events import Run
from ..plan.track_ranges import TrackRanges
from ..source.source import read_source
from .spec import InferSpec

NetworksOf = Callable[[], WarmNetworks]  #: Returns the networks of the current process


@dataclass(frozen=True, slots=True)
class InferPlan:
    """The segments of a track, and the work of each segment."""

    spec: InferSpec
    ranges: TrackRanges
    loadable: Blob
    colour: Colour | None = None  #: the colour of every picture; None if the colour changes

    def decode(self, run: Run) -> DecodeRange:
        """Return the range that a run decodes."""
        segments = self.ranges.segments
        return self.ranges.decode(segments[run.segment], run.entry_moves, until=segments[run.until])

    def demand(self, job: str) -> Demand:
        """Return the job's demand: DLAs, and cores that decode for them."""
        return replace(
            plain_demand(job, 0),
            segments=tuple(segment.frames for segment in self.ranges.segments),
            renditions=(),
            dlas=self.spec.devices or (),
            workers_max=self.spec.workers,
            title=name_of(redacted(self.spec.source)),
        )

    def work(self, job: str, run: Run, networks: NetworksOf) -> InferSegment:
        """Return the work that decodes a run's range and runs the network over its pictures."""
        return InferSegment(
            job=job,
            label=run.label,
            apart_from=run.apart_from,
            constraints=run.constraints,
            segment=run.segment,
            decode=self.decode(run),
            start_ticks=self.ranges.segments[run.segment].start_ticks,
            end_ticks=self.ranges.segments[run.until].end_ticks,
            network=NetworkSettings(
                loadable=self.loadable,
                tasks_at_once=self.spec.tasks_at_once,
                task_limit_s=float(self.spec.task_limit_s),
                mode=DlaMode[self.spec.mode.upper()],
                waiting=Waiting[self.spec.waiting.upper()],
            ),
            dlas=self.spec.devices,
            rule=PixelRule(self.spec.mean, self.spec.scale, self.spec.channels),
            on_device=self.spec.dla_input == "device",
            colour=self.colour,
            networks=networks,
        )


def plan_inference(spec: InferSpec, loadable: Blob) -> InferPlan:
    """Read the source's index and cut the track into segments.

    Raises InputError; RequestError: there is no such track; UsageError: the part is empty.
    """
    reading = read_source(spec.source, spec.video_track)
    described, _ = reading.described()  # raises an error if no picture decodes
    colour = None if reading.index.colours else described.colour
    ranges = TrackRanges.cut(reading.index, start_s=spec.start_s, end_s=spec.end_s, segment_s=spec.segment_s)
    return InferPlan(spec, ranges, loadable, colour)
