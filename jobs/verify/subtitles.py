"""What is said at a time: every subtitle's cue, in whatever form the container keeps it; chapters; the timecode."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from av.container import InputContainer

from ...actors.media.opening import open_source
from ...actors.tracks.subtitles import plain_cue, read_cue
from ..carry.timecode import Timecode
from ..source.tracks import TIMECODE_TAG, container_tag, timecode_rate
from .streams import Alignment, only, subtitle_tracks, video_tracks
from .verdict import Check, check, not_applicable

TIME_S = Fraction(1, 500)
"""Two roundings to a millisecond, one for each file."""
CHAPTER_S = Fraction(1, 500)
"""The same."""

_TEXT = frozenset({"mov_text", "subrip", "srt", "text", "ass", "ssa", "webvtt"})
_CANONICAL = {"srt": "subrip", "ssa": "ass"}


@dataclass(frozen=True, slots=True)
class _Cue:
    time_s: Fraction
    content: str | int


def check_subtitles(source: str, output: str, alignment: Alignment) -> list[Check]:
    """Check that every subtitle track is there, with every cue.

    Raises:
        InputError: one of the files cannot be read.
    """
    with open_source(source) as container:
        # A cue that is on before anything is seen or heard begins with the output's clock.
        begin_s = min(Fraction(0), -alignment.output_zero_s)
        wanted = {
            index: [replace(cue, time_s=max(cue.time_s, begin_s)) for cue in cues]
            for index, cues in _read(container, alignment.source_zero_s).items()
        }
    if not wanted:
        return []
    if not alignment.output_holds_tracks:
        return [not_applicable("tracks.subtitles", "the container holds one video track")]
    with open_source(output) as container:
        found = _read(container, alignment.output_zero_s)
    checks = [check("tracks.subtitles", len(wanted), len(found))]
    kept = [(number, cues) for number, (index, cues) in enumerate(wanted.items()) if index not in alignment.dropped]
    for (number, left), right in zip(kept, found.values(), strict=False):
        checks.append(_check_cues(f"subtitles.{number}", left, right, trimmed=alignment.trimmed))
    return checks


def _check_cues(name: str, left: list[_Cue], right: list[_Cue], *, trimmed: bool) -> Check:
    if trimmed:
        return not_applicable(name, "a part was asked for")
    pairs = enumerate(zip(left, right, strict=False))
    wrong = next((n for n, (a, b) in pairs if a.content != b.content or abs(a.time_s - b.time_s) > TIME_S), None)
    differs = "" if wrong is None else f", cue {wrong} differs: {left[wrong]} became {right[wrong]}"
    found = f"{len(right)} cues{differs}"
    return check(name, f"{len(left)} cues", found, passed=wrong is None and len(left) == len(right))


def _read(container: InputContainer, zero_s: Fraction) -> dict[int, list[_Cue]]:
    streams = subtitle_tracks(container)
    cues: dict[int, list[_Cue]] = {stream.index: [] for stream in streams}
    for packet in only(container, *streams):
        codec, payload = packet.stream.codec_context.codec.canonical_name, bytes(packet)
        content = plain_text(codec, payload) if codec in _TEXT else zlib.crc32(payload)
        if packet.pts is not None and content not in ("", None):
            time_s = packet.pts * Fraction(packet.time_base or 1) - zero_s
            cues[packet.stream.index].append(_Cue(time_s, content))
    return cues


def plain_text(codec: str, payload: bytes) -> str:
    """Return what a cue says, without styling, so that one format's cue can be held against another's."""
    lines = plain_cue(read_cue(_CANONICAL.get(codec, codec), payload)).split("\n")
    return "\n".join(line.strip() for line in lines if line.strip())


def check_timecode(left: InputContainer, right: InputContainer, alignment: Alignment) -> Iterator[Check]:
    """Check that the output's first picture has the timecode that it has in the source, if that states one."""
    if (expected := _moved_timecode(left, alignment)) is not None:
        nowhere = "a transport stream has no place for it" if alignment.output_is_ts else ""
        yield check("metadata.timecode", expected, _timecode(right), unless=nowhere)


def _timecode(container: InputContainer) -> str | None:
    # Matroska writes its keys in capitals.
    places = (container.metadata, *(stream.metadata for stream in container.streams))
    return next((value for tags in places for key, value in tags.items() if key.lower() == "timecode"), None)


def _moved_timecode(container: InputContainer, alignment: Alignment) -> str | None:
    """Return the source's timecode, moved on to the first picture of the part that was asked for."""
    stated, videos = _timecode(container), video_tracks(container)
    if stated is None or not videos or not alignment.trimmed:
        return stated
    counting = next((stream for stream in container.streams.data if container_tag(stream) == TIMECODE_TAG), None)
    rate = Fraction(videos[0].average_rate or 0)
    own = rate if counting is None else timecode_rate(counting) or rate
    first = Timecode.parse(stated, own)
    counted = None if first is None else first.counted_at(rate)
    if counted is None:
        return stated
    skipped_s = alignment.source_zero_s - (videos[0].start_time or 0) * Fraction(videos[0].time_base or 1)
    return str(counted.moved(round(skipped_s * rate)))


def check_chapters(left: InputContainer, right: InputContainer, alignment: Alignment) -> Check:
    """Check that every chapter is there, with its title and its time."""
    before = _chapters(left, alignment.source_zero_s)
    after = _chapters(right, alignment.output_zero_s)
    if alignment.output_is_isobmff:
        # Where the source has no chapter there is one without a title.
        starts_s = [start_s for start_s, _ in before]
        after = [
            (at_s, title) for at_s, title in after if title or any(abs(at_s - each) <= CHAPTER_S for each in starts_s)
        ]
    nowhere = "a transport stream has no place for chapters" if before and alignment.output_is_ts else ""
    # A chapter that would begin before the output does begins with it.
    same = len(before) == len(after) and all(
        a[1] == b[1] and (abs(a[0] - b[0]) <= CHAPTER_S or a[0] + alignment.output_zero_s < 0)
        for a, b in zip(before, after, strict=True)
    )
    texts = ["; ".join(f"{float(start):.3f} s {title}" for start, title in chapters) for chapters in (before, after)]
    unless = "a part was asked for" if alignment.trimmed else nowhere
    return check("metadata.chapters", *texts, passed=same, unless=unless)


def _chapters(container: InputContainer, zero_s: Fraction) -> list[tuple[Fraction, str]]:
    return [
        (chapter["start"] * Fraction(chapter["time_base"] or 1) - zero_s, chapter["metadata"].get("title", ""))
        for chapter in container.chapters()
    ]
