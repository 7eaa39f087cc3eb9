"""Runs the trial encodes (probes) from which a film's ladder is chosen, and keeps their results."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from threading import Lock

from ...actors.media.whole_file import write_whole
from ...actors.quality.measuring import summary
from ...actors.segment.encoding import EncodedSegment, EncodeSegment
from ...cluster.placement.model import Demand
from ..board.events import Finished, Run
from ..board.fan_out import fan_out
from ..board.loop import finished
from ..board.reach import SourceReach
from ..join.spool import storage_error
from ..plan.placing import settled_demand
from .probes import Measured, ProbedSlot, Probing


@dataclass(slots=True)
class ProbeRecord:
    """The results of probes, in a file, so that a ladder that was killed does not probe twice."""

    path: Path
    key: str
    found: dict[str, Measured] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def read(cls, path: Path, key: str) -> "ProbeRecord":
        """Return the record of these probes; an empty one if the file is missing, damaged or of other probes."""
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            stored = json.loads(path.read_bytes())
            if stored["key"] == key:
                return cls(path, key, {name: (int(a), int(b), int(c)) for name, (a, b, c) in stored["found"].items()})
        return cls(path, key)

    def add(self, name: str, measured: Measured) -> None:
        """Add a result. Raises StorageFailed."""
        with self._lock:
            self.found[name] = measured
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(self.path, json.dumps({"key": self.key, "found": self.found}).encode())
            except OSError as error:
                raise storage_error(error, self.path) from error


@dataclass(frozen=True, slots=True)
class ProbeRound:
    """The probes of one size that are left: the CRF and the segment of each."""

    probing: Probing
    record: ProbeRecord
    job: str
    size: ProbedSlot
    units: Sequence[tuple[int, int]]

    @property
    def demand(self) -> Demand:
        """The demand of all probes in the round."""
        plan = self.size.plan
        frames = tuple(plan.segments[segment].frames for _, segment in self.units)
        return replace(settled_demand(plan, self.job), segments=frames, frames_total=sum(frames))

    async def run(self, reach: SourceReach) -> None:
        """Run the probes. Raises CodecfleetError."""
        await fan_out(
            reach,
            self.demand,
            self.size.plan.spec,
            work=self._work,
            end=self._end,
            take=self._take,
            frames=lambda result: result.frames_out,
            progress=lambda _: None,
        )

    def _work(self, run: Run) -> EncodeSegment:
        work = self.probing.work(self.size, self.job, self.units[run.segment], run.entry_moves)
        return replace(work, label=run.label, apart_from=run.apart_from, constraints=run.constraints, cores=run.cores)

    def _end(self, run: Run, result: EncodedSegment) -> Finished:
        event = finished(run, result.tally, self._work(run).decode.entry, self.size.plan.index)
        return replace(event, seam_before=(), seam_after=())  # successive probes need not be neighbours

    def _take(self, result: EncodedSegment) -> None:
        if result.quality is not None:
            values = result.quality.values
            name = self.size.name(int(Fraction(result.quality.crf)), result.segment)
            average = round(summary(self.probing.target.metric, values, None))
            self.record.add(name, (int(result.sizes_bytes.sum()), len(values), average))
