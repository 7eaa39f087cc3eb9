"""Plans the output's chapters. Pure.

In mp4 and mov, chapters are a text track without holes, so gaps become untitled chapters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from ...cluster.grouping import counted
from ..report.report import Warning_
from ..source.tracks import Chapter
from .containers import Container

_SAME_S = Fraction(1, 1000)  #: Times that differ by no more than this count as equal, because containers round times


def chapters_of_part(
    chapters: Sequence[Chapter], begin_s: Fraction | None, end_s: Fraction | None
) -> tuple[Chapter, ...]:
    """Return the chapters of a part of the film, clipped to that part; without limits, all chapters."""
    return tuple(_cut(chapters, begin_s, end_s))


def _cut(chapters: Sequence[Chapter], begin_s: Fraction | None, end_s: Fraction | None) -> Iterator[Chapter]:
    for chapter in chapters:
        start_s = chapter.start_s if begin_s is None else max(chapter.start_s, begin_s)
        stop_s = chapter.end_s if end_s is None else min(chapter.end_s, end_s)
        if start_s < stop_s or (start_s == stop_s and chapter.start_s == chapter.end_s):
            yield replace(chapter, start_s=start_s, end_s=stop_s)


def chapters_in_a_row(chapters: Sequence[Chapter], begin_s: Fraction, end_s: Fraction | None) -> tuple[Chapter, ...]:
    """Return chapters without gaps from ``begin_s`` on; none ends after ``end_s``, the end of the film.

    A chapter that overlaps the next one, or has no length, ends where the next one begins.
    """
    found: list[Chapter] = []
    at_s = begin_s
    inside = [chapter for chapter in chapters if not _is_late(chapter, end_s)]
    for chapter, following in pairwise([*sorted(inside, key=lambda each: each.start_s), None]):
        if chapter is None:
            break
        if chapter.start_s - at_s > _SAME_S:
            found.append(Chapter(at_s, chapter.start_s))
        limits = [limit for limit in (end_s, None if following is None else following.start_s) if limit is not None]
        ends = limits if chapter.end_s == chapter.start_s and limits else [*limits, chapter.end_s]
        at_s = max(chapter.start_s, min(ends))
        found.append(replace(chapter, end_s=at_s))
    return tuple(found)


def row_losses(chapters: Sequence[Chapter], container: Container, end_s: Fraction | None) -> Iterator[Warning_]:
    """Yield warnings for the chapters that ``chapters_in_a_row`` changes or drops."""
    name = f".{container.name}"
    if count := sum(_is_late(chapter, end_s) for chapter in chapters):
        message = f"{counted(count, 'chapter')} that would begin after the end of the film cannot be in {name}"
        yield Warning_(code="chapters-dropped", message=message, checks=("metadata.chapters",))
    ordered = sorted(chapters, key=lambda each: each.start_s)
    crowded = sum(one.end_s - following.start_s > _SAME_S for one, following in pairwise(ordered))
    if count := crowded + sum(chapter.end_s <= chapter.start_s for chapter in ordered):
        which = f"{counted(count, 'chapter')} with no length or overlapping the next"
        message = f"{which}: in {name} each ends where the next begins"
        yield Warning_(code="chapters-changed", message=message, checks=("metadata.chapters",))


def _is_late(chapter: Chapter, end_s: Fraction | None) -> bool:
    return end_s is not None and chapter.start_s >= end_s
