"""The result of a ladder: its renditions, its package, and how often the source was decoded."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...cluster.grouping import counted
from ...errors import redacted
from ..package.values import Package, PackagedTrack, PlayedKind
from ..report.report import Report, Warning_

if TYPE_CHECKING:
    from ..title.per_title import PerTitle  # imports NumPy, whose threads keep a process from being confined

SCHEMA: Final = 1
INDEX: Final = "ladder.json"  #: The file of the report in the ladder's folder
_BPS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A rendition of the preset that was not made."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderReport:
    """The result of a ladder."""

    source: str
    output: str  #: The folder
    renditions: tuple[tuple[str, Report], ...]  #: The name and the report of each rendition
    left_out: tuple[LeftOut, ...]
    per_title: "PerTitle | None" = None
    package: Package
    files: tuple[str, ...]  #: The names of all files in the folder, including the report
    output_bytes: int  #: The size of all files but the report
    encoded: int  #: How many segments of all renditions were encoded, each pass counted
    decoded: int  #: How many times a segment of the source was decoded for ``encoded``
    apart: str = ""  #: Why each rendition decoded the source by itself; "" if they shared their decoding
    wall_s: float
    behind_s: float | None = None  #: With ``follow``, the longest time between a part's last bytes and its playlists

    @property
    def warnings(self) -> tuple[tuple[str, Warning_], ...]:
        """The warnings of all renditions, each once, with the name of the first rendition that has it."""
        found: dict[str, tuple[str, Warning_]] = {}
        for name, report in self.renditions:
            for warning in report.warnings:
                found.setdefault(warning.message, (name, warning))
        return tuple(found.values())

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        frames, segments = self.renditions[0][1].frames, len(self.package.tracks[0].segments)
        made = f"{counted(len(self.renditions), 'rendition')} in {redacted(self.output)}"
        return [
            f"ladder    {made}, {counted(frames, 'frame')} each",
            *(f"track     {_line(self.package, track)}" for track in self.package.tracks),
            *([] if self.per_title is None else self.per_title.lines()),
            *(f"left out  {each.name}: {each.reason}" for each in self.left_out),
            f"segments  {segments} of about {float(self.package.segment_s):g} s in each rendition",
            f"decoded   {counted(self.decoded, 'time')} for {counted(self.encoded, 'encoded segment')}",
            *([f"apart     each rendition decodes by itself: {self.apart}"] if self.apart else []),
            f"time      {self.wall_s:.1f} s",
            *([] if self.behind_s is None else [f"behind    {self.behind_s:.1f} s at most"]),
            *(f"warning: {name}: {warning.message}" for name, warning in self.warnings),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values (docs/ladder.md)."""
        names = ("output_bytes", "encoded", "decoded", "apart", "wall_s", "behind_s")
        return {
            "schema": SCHEMA,
            "source": redacted(self.source),
            "output": redacted(self.output),
            **{name: getattr(self, name) for name in names},
            "files": list(self.files),
            "layout": self.package.layout.value,
            "segment_s": str(self.package.segment_s),
            "renditions": {
                # without the renditions' own files, which are not published
                name: report.model_dump(mode="json", exclude={"output"})
                for name, report in self.renditions
            },
            "per_title": None if self.per_title is None else self.per_title.to_json(),
            "left_out": [{"name": each.name, "reason": each.reason} for each in self.left_out],
            "tracks": [_track_json(self.package, track) for track in self.package.tracks],
        }


def _line(package: Package, track: PackagedTrack) -> str:
    given = track.given
    match given.kind:
        case PlayedKind.VIDEO:
            shown = f"{track.width}x{track.height} {track.video_range}"
        case PlayedKind.AUDIO:
            shown = f"{track.channels} channels, {given.language or 'und'}"
        case PlayedKind.TEXT:
            shown = given.language or "und"
    rate = f", {round(track.mean_bps / _BPS)} kbit/s ({round(package.peak_bps(track) / _BPS)} at most)"
    sealed = "" if track.key is None else f", {track.key.scheme} with the key {track.key.kid.hex()}"
    return f"{given.name}: {track.codec}, {shown}{rate if given.kind is not PlayedKind.TEXT else ''}{sealed}"


def _track_json(package: Package, track: PackagedTrack) -> dict[str, Any]:
    given = track.given
    return {
        "name": given.name,
        "kind": given.kind.value,
        "codec": track.codec,
        "language": given.language,
        "segments": len(track.segments),
        "duration_s": str(track.duration_s),
        "mean_bps": track.mean_bps,
        "peak_bps": package.peak_bps(track),
        "width": track.width,
        "height": track.height,
        "frame_rate": None if track.frame_rate is None else str(track.frame_rate),
        "video_range": track.video_range,
        "channels": track.channels,
        "sample_rate_hz": track.sample_rate_hz,
        "encryption": None if track.key is None else {"scheme": track.key.scheme.value, "kid": track.key.kid.hex()},
    }
