"""Probes the sizes of a ladder with a few CRFs in a sample of the film, and makes the rungs that suit the film."""

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from threading import Lock
from typing import Final, TypeAlias

from ...actors.encode.profiles import PROFILES
from ...actors.encode.settings import Codec
from ...actors.encode.target import QualityMetric, QualityTarget
from ...actors.media.whole_file import write_whole
from ...actors.quality.measuring import UNITS
from ...actors.quality.vmaf import vmaf_tool
from ...actors.segment.encoding import EncodedSegment, EncodeSegment
from ...actors.segment.filtering import FilterSettings
from ...actors.task_owner import TaskOwner
from ...cluster.fleet.pool import Pool
from ...cluster.placement.model import Demand
from ...errors import Unsupported
from ..board.events import Finished, Run
from ..board.fan_out import fan_out
from ..board.loop import finished
from ..board.reach import SourceReach
from ..board.threads import in_thread
from ..join.spool import storage_error
from ..journal.header import header_of
from ..plan.placing import settled_demand
from ..plan.plan import Plan
from ..rate.goal import sampled, source_weights
from ..rate.hull import RatePoint, Slot, titled
from .demands import place_ladder
from .per_title import CodecTitle, PerTitle
from .plan import LadderRead, MadeRung, naming
from .report import LeftOut
from .rungs import Rung
from .together import DecodeOnce

RECORD: Final = "per-title.json"
_HALVINGS: Final = (-1, 0, 1, 2)
"""The probed CRFs: that of the preset, and those with about twice, half and a quarter of its bits."""
_LEAST_SAMPLED: Final = 4
_ANY_BPS: Final = 1_000_000
_PROBED: Final = {
    "encoder": "software",
    "quality": None,
    "bitrate_bps": _ANY_BPS,  # so that the settings have no CRF
    "maxrate_bps": None,
    "bufsize_bits": None,
}
_BITS: Final = 8
Size: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A rung of the preset: its plan for probes, and what it may have."""

    made: MadeRung
    plan: Plan
    slot: Slot

    @property
    def codec(self) -> Codec:
        return self.plan.encoder.codec

    @property
    def crfs(self) -> tuple[int, ...]:
        profile = PROFILES[self.codec]
        usual = profile.default_quality if self.slot.crf is None else self.slot.crf
        best, worst = (min(profile.usual_crfs[0], usual), max(profile.usual_crfs[1], usual))
        return tuple(sorted({min(max(usual + n * profile.halving_crfs, best), worst) for n in _HALVINGS}))


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """A size that is probed, with the first rung that has it."""

    asked: _Asked
    sample: tuple[int, ...]

    @property
    def units(self) -> tuple[tuple[int, int], ...]:
        """The CRF and the segment of each encoding."""
        return tuple((crf, segment) for crf in self.asked.crfs for segment in self.sample)

    def name(self, crf: int, segment: int) -> str:
        """Return the key of an encoding in the record."""
        width, height = self.asked.slot.size
        return f"{self.asked.codec} {width}x{height} crf{crf} segment {segment}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """Everything that decides the probes of a ladder, and what is made of them."""

    read: LadderRead
    asked: tuple[_Asked, ...]
    probes: tuple[Probe, ...]
    target: QualityTarget
    has_goal: bool  # whether the target's value was asked for
    reference: FilterSettings  # of the largest rendition

    @property
    def key(self) -> str:
        """A digest of everything on which the results depend."""
        headers = [header_of(each.asked.plan) for each in self.probes]
        measured = (self.target.metric, self.target.tool, self.reference)
        facts = [(each.job, each.encoder) for each in headers], [each.units for each in self.probes], measured
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def left(self, probe: Probe, found: "Mapping[str, Measured]") -> Sequence[tuple[int, int]]:
        """Return the encodings of a probe that were not ``found``."""
        return [unit for unit in probe.units if probe.name(*unit) not in found]

    def work(self, probe: Probe, job: str, unit: tuple[int, int], entry_moves: int) -> EncodeSegment:
        """Return the work of one encoding, which measures it at the size of the largest rung."""
        (crf, segment), plan = unit, probe.asked.plan
        work = plan.work(job, segment, segment, entry_moves)
        target = replace(self.target, crfs=(crf, crf))
        encoder = replace(work.encoder, target=target, chosen_crf=False)
        times = (work.start_ticks, work.end_ticks)
        measured = self.reference.during(times, work.numbers, plan.index.time_base)
        return replace(work, encoder=encoder, measured=measured)

    def title(self, codec: Codec, found: "Mapping[str, Measured] | None") -> CodecTitle:
        """Return what is probed for a codec, and if all of it was ``found``, what was chosen."""
        asked = [each for each in self.asked if each.codec is codec]
        probes = [each for each in self.probes if each.asked.codec is codec]
        crfs = {each.asked.slot.size: each.asked.crfs for each in probes}
        if found is None:
            return CodecTitle(codec=codec, crfs=crfs, names={})
        points = [point for each in probes for point in _points(each, found)]
        goal = self.target.value if self.has_goal else None
        made = titled([each.slot for each in asked], points, goal)
        named = {each.asked.slot.size: each.asked.slot.name for each in probes}
        names = dict[str, str]()
        taken = {each.slot.name for each in self.asked}
        for slot, point in made.chosen.items():
            own = named[point.size]
            names[slot] = next(
                each for each in _names(own) if each not in names.values() and (each == own or each not in taken)
            )
        return CodecTitle(codec=codec, crfs=crfs, found=made, names=names)

    def made(self, found: "Mapping[str, Measured] | None") -> LadderRead:
        """Return the ladder with the rungs for the film; with the preset's if not all of it was ``found``."""
        titles = [self.title(codec, found) for codec in dict.fromkeys(each.codec for each in self.asked)]
        largest = self.reference.output
        per_title = PerTitle(
            asked=self.read.spec.per_title or "",
            measured=(largest.width, largest.height),
            sample=self.probes[0].sample,
            parts=len(self.asked[0].plan.segments),
            codecs=tuple(titles),
        )
        read = replace(self.read, per_title=per_title)
        if found is None:
            return read
        rungs = [rung for title in titles for rung in self._rungs(title)]
        names = {each.rung.name for each in rungs}
        unused = [each.slot.name for each in self.asked if each.slot.name not in names]
        reason = "this film looks as good in other sizes, or with fewer bitrates"
        left_out = tuple(LeftOut(name=name, reason=reason) for name in unused)
        return replace(read, rungs=tuple(rungs), left_out=(*read.left_out, *left_out))

    def _rungs(self, title: CodecTitle) -> Iterator[MadeRung]:
        by_name = {each.slot.name: each for each in self.asked}
        scales = {each.asked.slot.size: each.asked.made.scale for each in self.probes}
        for slot, point in () if title.found is None else title.found.chosen.items():
            is_rated = by_name[slot].slot.crf is None
            rate = {"quality": None, "bitrate_bps": point.bps} if is_rated else {"quality": point.crf}
            rung = Rung(title.names[slot], by_name[slot].made.rung.layers)
            yield MadeRung(rung, scales[point.size], {"encoder": "software", **rate})


def _names(first: str) -> Iterator[str]:
    """Yield names for renditions of one size."""
    yield first
    yield from (f"{first}-{number}" for number in itertools.count(2))


def probing_of(read: LadderRead) -> Probing:
    """Return what to probe for a ladder.

    Raises UsageError: the size cannot be measured; Unsupported: a rendition has NVENC or a target quality.
    """
    asked = tuple(_asked(read, made) for made in read.rungs)
    probes = {(each.codec, each.slot.size): each for each in reversed(asked)}
    largest = max(asked, key=lambda each: each.slot.size[0] * each.slot.size[1]).plan
    sample = sampled(len(largest.segments), _LEAST_SAMPLED)
    metric, _, value = (read.spec.per_title or "").partition(":")
    target = QualityTarget(metric=QualityMetric(metric), value=Fraction(value or 0))
    tool = vmaf_tool() if target.metric is QualityMetric.VMAF else None
    picture = largest.filters.output
    return Probing(
        read=read,
        asked=asked,
        probes=tuple(Probe(each, sample) for each in asked if each in probes.values()),
        target=target.settled(PROFILES[largest.encoder.codec], picture, None if tool is None else tool.version),
        has_goal=bool(value),
        reference=largest.filters,
    )


def _asked(read: LadderRead, made: MadeRung) -> _Asked:
    name, spec = made.rung.name, read.request(made, carries=False)
    for option, is_set in (("NVENC", spec.encoder == "nvenc"), ("a target quality", spec.target_quality is not None)):
        if is_set:
            message = f"--per-title chooses the CRF of software encoders, but the rendition {name} has {option}"
            raise Unsupported(message, f"Leave out {option}, or --per-title.")
    plan = read.planned(replace(made, fields=_PROBED), carries=False)
    picture = plan.encoder.format
    stated_bps, crf = spec.bitrate_bps, None
    if stated_bps is None:
        crf = PROFILES[plan.encoder.codec].default_quality if spec.quality is None else spec.quality
        stated_bps = spec.maxrate_bps
    slot = Slot(name=name, size=(picture.width, picture.height), stated_bps=stated_bps, crf=crf)
    return _Asked(made, plan, slot)


def _points(probe: Probe, found: "Mapping[str, Measured]") -> Iterator[RatePoint]:
    """Yield a size's points, as the whole film would have them."""
    plan = probe.asked.plan
    weights = source_weights([(each.start_ticks, each.end_ticks) for each in plan.segments], plan.index)
    part = Fraction(sum(weights[segment] for segment in probe.sample), sum(weights))
    for crf in probe.asked.crfs:
        made = [found[probe.name(crf, segment)] for segment in probe.sample]
        size_bytes, frames, total = (sum(each[number] for each in made) for number in range(3))
        bps = max(1, int(size_bytes * _BITS / part / plan.duration_s))
        yield RatePoint(bps, Fraction(total, max(1, frames) * UNITS), probe.asked.slot.size, crf)


Measured: TypeAlias = tuple[int, int, int]
"""The bytes and the pictures of one encoding, and the sum of what was measured, in ``UNITS``."""


@dataclass(slots=True)
class ProbeRecord:
    """The results of probes, in a file, so that no killed ladder probes twice."""

    path: Path
    key: str
    found: dict[str, Measured] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def read(cls, path: Path, key: str) -> "ProbeRecord":
        """Return the record of these probes; an empty one if the file is missing, damaged or of other probes."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            stored = json.loads(path.read_bytes())
            if stored["key"] == key:
                return cls(
                    path, key, {name: (size, frames, sum_) for name, (size, frames, sum_) in stored["found"].items()}
                )
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


def probed_before(read: LadderRead) -> LadderRead:
    """Return the ladder as an earlier run of it has chosen; with the preset's rungs if none has."""
    probing = probing_of(read)
    found = ProbeRecord.read(read.folder / RECORD, probing.key).found
    return probing.made(found if all(not probing.left(each, found) for each in probing.probes) else None)


async def made_for_film(read: LadderRead, pool: Pool, ladder: str) -> LadderRead:
    """Probe what no earlier run has, and return the ladder with the rungs for its film. Raises CodecfleetError."""
    probing = await in_thread(probing_of, read)
    record = await in_thread(lambda: ProbeRecord.read(read.folder / RECORD, probing.key))
    left = {each: units for each in probing.probes if (units := probing.left(each, record.found))}
    rounds = [_Round(probing, record, f"{ladder}-{number}", *each) for number, each in enumerate(left.items())]
    place = await place_ladder(pool.preview, ladder, [each.demand for each in rounds])
    async with TaskOwner() as owner:
        once = DecodeOnce(pool, ladder, [each.job for each in rounds], owner)
        for each in [owner.start(each.run(pool if place.apart else once), f"probes {each.job}") for each in rounds]:
            await each
    return probing.made(record.found)


@dataclass(frozen=True, slots=True)
class _Round:
    """The probes of one size that are left."""

    probing: Probing
    record: ProbeRecord
    job: str
    probe: Probe
    units: Sequence[tuple[int, int]]

    @property
    def demand(self) -> Demand:
        plan = self.probe.asked.plan
        frames = tuple(plan.segments[segment].frames for _, segment in self.units)
        return replace(settled_demand(plan, self.job), segments=frames, frames_total=sum(frames))

    async def run(self, pool: Pool) -> None:
        """Run them. Raises CodecfleetError."""
        spec, stamp = self.probing.read.spec, self.probing.read.stamp
        with naming(self.probe.asked.slot.name):
            await fan_out(
                SourceReach(pool, stamp, spec.ship),
                self.demand,
                spec,
                work=self._work,
                end=self._end,
                take=self._take,
                frames=lambda result: result.frames_out,
                progress=lambda _: None,
            )

    def _work(self, run: Run) -> EncodeSegment:
        work = self.probing.work(self.probe, self.job, self.units[run.segment], run.entry_moves)
        return replace(work, label=run.label, apart_from=run.apart_from, constraints=run.constraints, cores=run.cores)

    def _end(self, run: Run, result: EncodedSegment) -> Finished:
        event = finished(run, result.tally, self._work(run).decode.entry, self.probe.asked.plan.index)
        return replace(event, seam_before=(), seam_after=())  # the next probe may be of another part

    def _take(self, result: EncodedSegment) -> None:
        if result.quality is not None:
            values = result.quality.values
            name = self.probe.name(int(Fraction(result.quality.crf)), result.segment)
            self.record.add(name, (int(result.sizes_bytes.sum()), len(values), sum(values)))
