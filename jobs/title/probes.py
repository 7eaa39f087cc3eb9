"""The trial encodes (probes) from which a film's ladder is chosen: each size at a few CRFs, in a sample of segments."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, TypeAlias

from ...actors.encode.profiles import PROFILES
from ...actors.encode.settings import Codec
from ...actors.encode.target import QualityMetric, QualityTarget
from ...actors.quality.measuring import UNITS, summary
from ...actors.quality.vmaf import vmaf_tool
from ...actors.segment.encoding import EncodeSegment
from ...actors.segment.filtering import FilterSettings
from ..journal.header import header_of
from ..plan.plan import Plan
from ..rate.goal import sampled, source_weights
from .hull import RatePoint, Slot

_HALVINGS: Final = (-1, 0, 1, 2)
"""The probed CRFs, as steps from the preset's CRF; each step up about halves the bits."""
_LEAST_SAMPLED: Final = 4
_BITS: Final = 8
PROBED: Final = {
    "encoder": "software",
    "quality": None,
    "bitrate_bps": 1_000_000,  # any value: a bitrate keeps a CRF out of the settings
    "maxrate_bps": None,
    "bufsize_bits": None,
}
"""The fields of a rendition's request that differ in its probes."""
Measured: TypeAlias = tuple[int, int, int]
"""The bytes and the pictures of one encoding, and the average quality of these pictures, in ``UNITS``."""


@dataclass(frozen=True, slots=True, eq=False)
class ProbedSlot:
    """A rendition of the preset, and the plan of its probes, whose request has the values of ``PROBED``."""

    plan: Plan
    slot: Slot

    @property
    def codec(self) -> Codec:
        """The rendition's codec."""
        return self.plan.encoder.codec

    @property
    def crfs(self) -> tuple[int, ...]:
        """The CRFs at which the rendition's size is probed."""
        profile = PROFILES[self.codec]
        usual = profile.default_quality if self.slot.crf is None else self.slot.crf
        best, worst = min(profile.usual_crfs[0], usual), max(profile.usual_crfs[1], usual)
        return tuple(sorted({min(max(usual + n * profile.halving_crfs, best), worst) for n in _HALVINGS}))

    def name(self, crf: int, segment: int) -> str:
        """Return the name of an encoding in a ``ProbeRecord``."""
        width, height = self.slot.size
        return f"{self.codec} {width}x{height} crf {crf} segment {segment}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """Everything that decides the probes of a film."""

    asked: str  # the metric, with or without a goal: ``vmaf`` or ``vmaf:93``
    slots: tuple[ProbedSlot, ...]
    target: QualityTarget
    reference: FilterSettings  # the filters of the largest rendition, at whose size pictures are compared
    sample: tuple[int, ...]  # the numbers of the probed segments

    @property
    def goal(self) -> Fraction | None:
        """The requested quality; None if only a metric was requested."""
        return self.target.value if ":" in self.asked else None

    @property
    def sizes(self) -> tuple[ProbedSlot, ...]:
        """The first slot of each codec and size."""
        found: dict[tuple[Codec, tuple[int, int]], ProbedSlot] = {}
        for each in self.slots:
            found.setdefault((each.codec, each.slot.size), each)
        return tuple(found.values())

    @property
    def key(self) -> str:
        """A digest of everything on which the probes' results depend."""
        headers = [header_of(each.plan) for each in self.sizes]
        probed = [(each.job, each.encoder) for each in headers], [each.crfs for each in self.sizes], self.sample
        measured = (self.target.metric, self.target.tool, self.reference)
        return hashlib.sha256(repr((probed, measured)).encode()).hexdigest()

    def left(self, size: ProbedSlot, found: Mapping[str, Measured]) -> Sequence[tuple[int, int]]:
        """Return (CRF, segment) of each encoding of a size that is not in ``found``."""
        units = ((crf, segment) for crf in size.crfs for segment in self.sample)
        return [unit for unit in units if size.name(*unit) not in found]

    def work(self, size: ProbedSlot, job: str, unit: tuple[int, int], entry_moves: int) -> EncodeSegment:
        """Return the work that encodes a segment at a CRF, and compares it at the size of the largest rendition."""
        crf, segment = unit
        work = size.plan.work(job, segment, segment, entry_moves)
        encoder = replace(work.encoder, target=replace(self.target, crfs=(crf, crf)), chosen_crf=False)
        measured = self.reference.during(work.interval, work.numbers, size.plan.index.time_base)
        return replace(work, encoder=encoder, measured=measured)

    def points(self, codec: Codec, found: Mapping[str, Measured]) -> Iterator[RatePoint]:
        """Yield a codec's points, with bitrates estimated for the whole film; ``found`` must have all their results."""
        for size in (each for each in self.sizes if each.codec is codec):
            plan = size.plan
            weights = source_weights([(each.start_ticks, each.end_ticks) for each in plan.segments], plan.index)
            part = Fraction(sum(weights[segment] for segment in self.sample), sum(weights))
            for crf in size.crfs:
                made = [found[size.name(crf, segment)] for segment in self.sample]
                bps = max(1, int(sum(size_bytes for size_bytes, _, _ in made) * _BITS / part / plan.duration_s))
                averages = [average for _, frames, average in made for _ in range(frames)]
                quality = summary(self.target.metric, averages, None) / UNITS if averages else Fraction(0)
                yield RatePoint(bps, quality, size.slot.size, crf)


def probing_of(asked: str, slots: Sequence[ProbedSlot]) -> Probing:
    """Return the probes for the slots of a preset.

    Raises UsageError or Unsupported: pictures of the largest size cannot be measured.
    """
    largest = max(slots, key=lambda each: each.slot.size[0] * each.slot.size[1]).plan
    metric, _, value = asked.partition(":")
    target = QualityTarget(metric=QualityMetric(metric), value=Fraction(value or 0))
    tool = vmaf_tool() if target.metric is QualityMetric.VMAF else None
    picture = largest.filters.output
    return Probing(
        asked=asked,
        slots=tuple(slots),
        target=target.settled(PROFILES[largest.encoder.codec], picture, None if tool is None else tool.version),
        reference=largest.filters,
        sample=sampled(len(largest.segments), _LEAST_SAMPLED),
    )
