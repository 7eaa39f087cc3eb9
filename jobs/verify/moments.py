"""What names a moment: chapters, and the timecode of the first picture."""

from collections.abc import Iterator
from fractions import Fraction

from av.container import InputContainer

from ..carry.timecode import Timecode
from ..source.tracks import TIMECODE_TAG, container_tag, timecode_rate
from .streams import Alignment, video_tracks
from .verdict import Check, check

CHAPTER_S = Fraction(1, 500)
"""Two roundings to a millisecond, one for each file."""


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
