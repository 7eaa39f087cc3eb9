"""The plan of a ladder, as text and as JSON: what would be made of a source, and what would be left out."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from ...cluster.grouping import counted
from ...errors import redacted
from ..plan.placing import PlacedPlan
from ..plan.plan import Plan
from ..report.report import TrackReport
from ..source.tracks import TrackKind
from .demands import LadderPlace
from .plan import Ladder
from .report import SCHEMA
from .tracks import SIDES

_BPS: Final = 1000


@dataclass(frozen=True, slots=True)
class PlannedLadder:
    """A planned ladder, and where it would run."""

    ladder: Ladder
    place: LadderPlace
    placed: PlacedPlan

    def lines(self) -> list[str]:
        """Return the plan as lines of text."""
        ladder, first = self.ladder, self._first
        warnings = dict.fromkeys(each.message for plan in ladder.plans.values() for each in plan.warnings)
        return [
            f"{redacted(ladder.spec.source)} -> {redacted(ladder.spec.output)}",
            f"{counted(first.frames, 'frame')}, {float(first.duration_s):.3f} s",
            *(f"rendition {name}: {_words(plan)}" for name, plan in ladder.plans.items()),
            *(f"{name}: {_track_words(track, groups)}" for name, track, groups in self._sides()),
            *([] if ladder.per_title is None else ladder.per_title.lines()),
            *(f"left out {each.name}: {each.reason}" for each in ladder.left_out),
            f"{counted(self._packaged, 'segment')} of about {float(ladder.spec.packaged_s):g} s in the package",
            f"{counted(len(first.segments), 'part')} of the film, {self._decoding}",
            *(f"warning: {each}" for each in warnings),
            self.placed.summary(),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values (docs/ladder.md)."""
        ladder = self.ladder
        return {
            "schema": SCHEMA,
            "source": redacted(ladder.spec.source),
            "output": redacted(ladder.spec.output),
            "segment_s": str(ladder.spec.packaged_s),
            "segments": self._packaged,
            "apart": self.place.apart,
            "renditions": {name: _plan_json(plan) for name, plan in ladder.plans.items()},
            "per_title": None if ladder.per_title is None else ladder.per_title.to_json(),
            "left_out": [{"name": each.name, "reason": each.reason} for each in ladder.left_out],
            "tracks": [
                {"name": name, "groups": list(groups), **track.model_dump(mode="json")}
                for name, track, groups in self._sides()
            ],
            "placement": self.placed.to_json(),
        }

    @property
    def _first(self) -> Plan:
        return next(iter(self.ladder.plans.values()))

    @property
    def _packaged(self) -> int:
        """How many segments the package has, if each keyframe is where it was asked for."""
        return ceil(self._first.duration_s / self.ladder.spec.packaged_s)

    @property
    def _decoding(self) -> str:
        if self.place.apart:
            return f"each decoded for each rendition: {self.place.apart}"
        is_rated = any(plan.rate_goal is not None for plan in self.ladder.plans.values())
        once = "once in each pass" if is_rated else "once"
        return f"each decoded {once} for {counted(len(self.ladder.plans), 'rendition')}"

    def _sides(self) -> Iterator[tuple[str, TrackReport, tuple[str, ...]]]:
        """Yield the name of each track of sound and text, how it is made, and its groups."""
        kept = [each for each in self._first.carry.tracks if each.kept]
        for kind, (_, word) in SIDES.items():
            groups = self.ladder.sound_groups if kind is TrackKind.AUDIO else ()
            for number, track in enumerate(each.report for each in kept if each.track.kind is kind):
                yield f"{word}-{number + 1}", track, groups[number] if groups else ()


def _plan_json(plan: Plan) -> dict[str, Any]:
    of_the_ladder = ("schema", "source", "output", "tracks")
    return {key: value for key, value in plan.to_json().items() if key not in of_the_ladder} | {"rate": _rate(plan)}


def _words(plan: Plan) -> str:
    picture = plan.encoder.format
    return f"{picture.width}x{picture.height} {picture.pix_fmt}, {plan.encoder.codec}, {_rate(plan)}"


def _rate(plan: Plan) -> str:
    rate = plan.encoder.rate
    wanted = plan.spec.target_quality or f"quality {rate.quality}"
    if plan.spec.bitrate_bps is not None:
        wanted = f"{plan.spec.bitrate_bps / _BPS:g} kbit/s"
    return wanted if rate.maxrate_bps is None else f"{wanted}, at most {rate.maxrate_bps / _BPS:g} kbit/s"


def _track_words(track: TrackReport, groups: tuple[str, ...]) -> str:
    made = track.reason if track.reason.startswith(track.action) else f"{track.action}, {track.reason}"
    named = f" (sound {', '.join(groups)})" if groups else ""
    return f"track {track.source_index} ({track.codec}) {made}{named}"
