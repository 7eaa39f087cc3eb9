"""The result of ``probe``, as JSON and as text: a few lines for each track, and then the oddities."""

from collections.abc import Iterator
from fractions import Fraction

from pydantic import Field

from ..report.report import ShownName
from .values import (
    RIDER_WORDS,
    ChapterFacts,
    ColourFacts,
    CropFacts,
    HdrFacts,
    Oddity,
    PictureFacts,
    Seconds,
    TimelineFacts,
    TrackFacts,
    Value,
)

_SHOWN_POINTS = 10
_SHOWN_FOR_ALL = frozenset({"DISPLAYMATRIX", "DOVI_RPU_BUFFER", "STEREO3D"})
_PRIMARIES = {1: "bt709", 5: "bt470bg", 6: "smpte170m", 9: "bt2020", 11: "dci-p3", 12: "display-p3"}
_TRANSFERS = {1: "bt709", 6: "smpte170m", 8: "linear", 13: "srgb", 14: "bt2020-10", 15: "bt2020-12"}
_TRANSFERS |= {16: "pq", 18: "hlg"}
_MATRICES = {0: "rgb", 1: "bt709", 5: "bt470bg", 6: "smpte170m", 9: "bt2020nc", 10: "bt2020c", 15: "ipt-c2"}
_RANGES = {0: "unspecified", 1: "limited", 2: "full"}
_UNSPECIFIED = 2


class ProbeReport(Value, serialize_by_alias=True, validate_by_name=True):
    """The result of ``probe``; ``model_dump(mode="json")`` is the document that docs/probe.md describes."""

    schema_version: int = Field(default=1, alias="schema")
    source: ShownName
    container: str  # FFmpeg's name of the format
    size_bytes: int
    duration_s: Seconds | None  # the duration of pictures and sound according to the packets' times; None if unknown
    header_duration_s: Seconds | None
    tags: dict[str, str]
    timecode: str | None
    chapters: tuple[ChapterFacts, ...]
    tracks: tuple[TrackFacts, ...]
    oddities: tuple[Oddity, ...]

    def lines(self) -> tuple[str, ...]:
        """Return the result as lines of text."""
        return tuple(self._lines())

    def oddity(self, code: str) -> Oddity | None:
        """Return the first oddity with that code; None if there is none."""
        return next((oddity for oddity in self.oddities if oddity.code == code), None)

    def _lines(self) -> Iterator[str]:
        yield f"{self.source}: {self.container}, {_seconds(self.duration_s)}, {self.size_bytes:,} bytes"
        if _seconds(self.header_duration_s) != _seconds(self.duration_s):
            yield f"  the header says {_seconds(self.header_duration_s)}"
        if self.timecode is not None:
            yield f"  timecode {self.timecode}"
        for chapter in self.chapters:
            yield f"  chapter {_seconds(chapter.start_s)} to {_seconds(chapter.end_s)}: {chapter.title}"
        for track in self.tracks:
            yield from _track(track)
        yield "oddities:" if self.oddities else "oddities: none"
        for oddity in self.oddities:
            where = "" if oddity.track is None else f"track {oddity.track}: "
            yield f"  {oddity.code}: {where}{oddity.message}"


def _track(track: TrackFacts) -> Iterator[str]:
    spoken = track.language_tag or track.language
    details = [track.codec or track.tag or "unknown codec", spoken, track.title, *track.dispositions]
    start = None if track.start_s is None else f"from {_seconds(track.start_s)}"
    size = f"{track.packets} packets, {track.size_bytes:,} bytes" if track.packets else track.attachment
    yield f"track {track.index} ({track.kind}): {', '.join(filter(None, (*details, start, size)))}"
    if (audio := track.audio) is not None:
        priming = f", {audio.priming_samples} samples of priming" if audio.priming_samples else ""
        yield f"  {audio.sample_rate} Hz, {audio.channels} channels ({audio.layout}){priming}"
    if track.video is None:
        return
    if track.video.picture is not None:
        yield from _picture(track.video.picture)
    if track.video.timeline is not None:
        yield from _timeline(track.video.timeline)
        yield f"  segments: {track.video.segments} by default"


def _picture(picture: PictureFacts) -> Iterator[str]:
    shape = f", samples {picture.sample_aspect_ratio}" if picture.sample_aspect_ratio != 1 else ""
    scan = "interlaced" if picture.interlaced else "progressive"
    trust = "" if picture.decoded else " (by the header alone)"
    size = f"{picture.width}x{picture.height}"
    yield f"  {size}, {picture.pix_fmt or 'unknown pixel format'}{shape}, {scan}{trust}"
    yield f"  colour: {_colour(picture.colour)}"
    if picture.hdr is not None:
        yield f"  HDR10: {_hdr(picture.hdr)}"
    extras = [
        f"rotation {picture.rotation_degrees}" if picture.rotation_degrees else None,
        "mirrored" if picture.mirrored else None,
        None if picture.dolby_vision_profile is None else f"Dolby Vision profile {picture.dolby_vision_profile}",
        None if picture.spherical is None else f"spherical ({picture.spherical})",
        "stereo" if picture.stereo3d else None,
        *_riders(picture),
        None if picture.crop is None else f"cropped by {_crop(picture.crop)}",
    ]
    if shown := list(filter(None, extras)):
        yield f"  {', '.join(shown)}"


def _riders(picture: PictureFacts) -> Iterator[str]:
    """Yield the kinds of side data that are not already shown for the whole track."""
    begins_s = {rider.kind: rider.first_s for rider in reversed(picture.riders)}
    for kind, words in RIDER_WORDS.items():
        begins = begins_s.get(kind)
        if kind in picture.side_data and (begins or kind not in _SHOWN_FOR_ALL):
            yield f"{words} from {float(begins):.3f} s on" if begins else words


def _crop(crop: CropFacts) -> str:
    edges = ((name, getattr(crop, name)) for name in ("top", "bottom", "left", "right"))
    return ", ".join(f"{samples} at the {name}" for name, samples in edges if samples)


def _colour(colour: ColourFacts) -> str:
    named = ("primaries", _PRIMARIES), ("transfer", _TRANSFERS), ("matrix", _MATRICES)
    points = ((word, names, getattr(colour, word)) for word, names in named)
    stated = [f"{word} {names.get(value, value)}" for word, names, value in points if value != _UNSPECIFIED]
    return ", ".join([f"range {_RANGES.get(colour.range, colour.range)}", *stated])


def _hdr(hdr: HdrFacts) -> str:
    parts = []
    if hdr.max_luminance is not None and hdr.min_luminance is not None:
        parts.append(f"mastered at {float(hdr.min_luminance):g} to {float(hdr.max_luminance):g} cd/m²")
    if hdr.max_cll is not None:
        parts.append(f"MaxCLL {hdr.max_cll}, MaxFALL {hdr.max_fall}")
    return "; ".join(parts) or "only chromaticities"


def _timeline(timeline: TimelineFacts) -> Iterator[str]:
    rate = timeline.rate
    kind = "constant" if rate.constant else "variable"
    measured = "" if rate.measured_fps is None else f", measured {float(rate.measured_fps):.3f}"
    yield f"  {timeline.pictures} pictures in {timeline.packets} packets, {_seconds(timeline.duration_s)}"
    yield f"  frame rate: {rate.nominal_fps} nominal{measured}, {kind}{_steps(timeline)}"
    kinds = ", ".join(f"{count} {kind}" for kind, count in timeline.access_point_kinds.items())
    yield f"  random access points: {len(timeline.access_points)}" + (f" ({kinds})" if kinds else "") + _first(timeline)
    gop = timeline.gop
    if gop.median_frames is not None:
        yield f"  GOP: {gop.structure}, {gop.shortest_frames} / {gop.median_frames} / {gop.longest_frames} pictures"
    if timeline.unreliable_spans:
        spans = ", ".join(f"{first} to {last}" for first, last in timeline.unreliable_spans[:_SHOWN_POINTS])
        yield f"  unreliable packets: {spans}{' ...' if len(timeline.unreliable_spans) > _SHOWN_POINTS else ''}"


def _steps(timeline: TimelineFacts) -> str:
    rate = timeline.rate
    if rate.shortest_s is None or rate.typical_s is None or rate.longest_s is None:
        return ""
    steps = " / ".join(f"{float(step) * 1000:.2f}" for step in (rate.shortest_s, rate.typical_s, rate.longest_s))
    return f" ({steps} ms a picture: shortest, usual, longest)"


def _first(timeline: TimelineFacts) -> str:
    times = [point.time_s for point in timeline.access_points[:_SHOWN_POINTS] if point.time_s is not None]
    if not times:
        return ""
    more = " ..." if len(timeline.access_points) > _SHOWN_POINTS else ""
    return " at " + ", ".join(f"{float(time):.3f}" for time in times) + f" s{more}"


def _seconds(seconds: Fraction | None) -> str:
    return "unknown duration" if seconds is None else f"{float(seconds):.3f} s"
