"""Describes how the properties of pictures change within a track. Pure.

A *run* is a sequence of packets whose pictures have the same properties. One picture of each distinct run is decoded
while the packets are read (``jobs/source/runs.py``). A track that never changes has no runs.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from ...actors.media.av_stream import FieldOrder
from ...actors.media.values import UNSPECIFIED, Colour, MasteringDisplay, StatedPicture
from .index import MISSING, TrackIndex

_RANGES = ("unspecified", "limited", "full")
_COLOURS = ("primaries", "transfer", "matrix")
_TOP_FIRST = {FieldOrder.TOP_FIRST: True, FieldOrder.BOTTOM_FIRST: False}


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureRun:
    """Packets whose pictures have the same properties, from ``packet`` to the next run."""

    packet: int  #: The first packet, in demux order
    ticks: int  #: The time of the run's first picture, in the index's ticks
    picture: StatedPicture
    colour: Colour  #: The stated colour, completed from the container and other runs (``one_format.py``)


@dataclass(frozen=True, slots=True)
class PictureChange:
    """A property of the pictures that changes in mid-stream, with both values in words."""

    ticks: int  #: The time of the first picture with the new value, in the index's ticks
    what: str  #: The property, in words
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class PictureLife:
    """The runs of a track, in demux order; none if its pictures never change."""

    runs: tuple[PictureRun, ...] = ()
    whole: tuple[PictureRun, ...] = ()  #: all runs of the track, if ``runs`` has only the runs of a part

    @property
    def changes(self) -> tuple[PictureChange, ...]:
        """Every change of a property from one run to the next, in order."""
        return tuple(change for before, after in pairwise(self.runs) for change in _changes(before, after))

    def during(self, start: int | None, end: int | None) -> "PictureLife":
        """Return the runs visible in [``start``, ``end``), in ticks; None means the track's own start or end."""
        ends = [*(run.ticks for run in self.runs[1:]), None]
        return PictureLife(
            tuple(
                run
                for run, stop in zip(self.runs, ends, strict=bool(self.runs))
                if (start is None or stop is None or stop > start) and (end is None or run.ticks < end)
            ),
            self.runs,
        )


UNCHANGING: Final = PictureLife()


def picture_life(
    index: TrackIndex,
    marks: Sequence[tuple[int, Hashable]],
    pictures: Mapping[Hashable, StatedPicture],
    orders: Sequence[tuple[int, FieldOrder]],
) -> PictureLife:
    """Return the visible runs, each different from the previous one.

    ``marks`` and ``orders`` are pairs (first packet, value) in demux order. ``pictures`` has a picture for each mark.
    """
    found: list[PictureRun] = []
    for begin, end, picture in _stretches(index.packets, marks, pictures, orders):
        ticks = _first_shown(index, begin, end)
        if ticks is not None and (not found or found[-1].picture != picture):
            found.append(PictureRun(packet=begin, ticks=ticks, picture=picture, colour=picture.colour))
    return PictureLife(tuple(found) if len(found) > 1 else ())


def _stretches(
    packets: int,
    marks: Sequence[tuple[int, Hashable]],
    pictures: Mapping[Hashable, StatedPicture],
    orders: Sequence[tuple[int, FieldOrder]],
) -> Iterator[tuple[int, int, StatedPicture]]:
    """Yield ranges of packets, as [begin, end), and the properties of their pictures."""
    known = dict(marks)
    fields = dict(orders)
    begins = sorted({*known, *fields})
    mark, order = marks[0][1] if marks else None, orders[0][1] if orders else None
    for begin, end in pairwise([*begins, packets]):
        mark, order = known.get(begin, mark), fields.get(begin, order)
        if (picture := pictures.get(mark)) is not None:
            if order is not None:
                interlaced = order is not FieldOrder.PROGRESSIVE
                picture = replace(picture, interlaced=interlaced, top_first=_TOP_FIRST.get(order))
            yield begin, end, picture


def _first_shown(index: TrackIndex, begin: int, end: int) -> int | None:
    """Return the time of the first visible picture of packets [begin, end); None if no picture is visible."""
    shown = index.presented[begin:end]
    if index.untimed:
        return int(index.times[index.presented[:begin].sum()]) if shown.any() else None
    times = index.pts[begin:end][shown & (index.pts[begin:end] != MISSING)]
    return int(times.min()) if len(times) else None


def _changes(before: PictureRun, after: PictureRun) -> Iterator[PictureChange]:
    for (what, old), (_, new) in zip(_words(before.picture), _words(after.picture), strict=True):
        if old != new:
            yield PictureChange(after.ticks, what, old, new)


def _words(picture: StatedPicture) -> Iterator[tuple[str, str]]:
    """Yield each property and its value in words; colours are numbers of H.273."""
    yield "size", f"{picture.width}x{picture.height}"
    yield "sample aspect ratio", _stated(picture.sample_aspect_ratio)
    yield "pixel format", picture.pix_fmt
    yield "range", _RANGES[picture.colour.range]
    for name in _COLOURS:
        number = getattr(picture.colour, name)
        yield name, "unspecified" if number == UNSPECIFIED else str(number)
    mastering, light = picture.hdr.mastering, picture.hdr.light
    yield "mastering display", _stated(mastering and _display_words(mastering))
    yield "content light level", _stated(light and f"{light.max_cll} and {light.max_fall} cd/m²")
    yield "scan", scan_words(picture)
    yield "frame rate", _stated(picture.frame_rate)


def scan_words(picture: StatedPicture) -> str:
    """Return a picture's scan type and field order in words."""
    if not picture.interlaced:
        return "progressive"
    if picture.top_first is None:
        return "interlaced"
    return f"interlaced, {'top' if picture.top_first else 'bottom'} field first"


def _display_words(display: MasteringDisplay) -> str:
    points = (display.red, display.green, display.blue, display.white)
    named = " ".join(f"({float(across):.4f}, {float(down):.4f})" for across, down in points)
    return f"{named}, {float(display.min_luminance):g} to {float(display.max_luminance):g} cd/m²"


def _stated(value: object) -> str:
    return str(value) if value else "unspecified"
