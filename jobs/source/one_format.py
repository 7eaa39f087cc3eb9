"""Chooses one format for a track whose pictures change, by the rules in docs/timeline.md. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from ...actors.encode.pix_fmt import finest_pix_fmt
from ...actors.media.values import UNSPECIFIED, PictureSize, StatedPicture, VideoFormat
from .index import TrackIndex
from .life import PictureLife, PictureRun

UNSTATED: Final = {"range": 0, "primaries": UNSPECIFIED, "transfer": UNSPECIFIED, "matrix": UNSPECIFIED}
"""The values of a colour's fields that mean "not stated"."""
_LIMITED, _FULL = 1, 2


def with_life(index: TrackIndex, life: PictureLife) -> TrackIndex:
    """Return a copy of the index that has the runs' colours, and the sizes and shapes that headers did not state."""
    sizes = dict(index.sizes)
    packets = [point.packet for point in index.access_points] if life.runs else []
    for begin, end, picture in _stretches(index, life):
        for packet in packets:
            if begin <= packet < end:
                sizes[packet] = _completed(sizes.get(packet), picture)
    colours = tuple((run.packet, run.colour) for run in life.runs)
    changes = len({colour for _, colour in colours}) > 1
    return replace(index, sizes=dict(sorted(sizes.items())), colours=colours if changes else ())


def _completed(size: PictureSize | None, picture: StatedPicture) -> PictureSize:
    if size is None:
        return PictureSize(picture.width, picture.height, picture.sample_aspect_ratio)
    return replace(size, sample_aspect_ratio=size.sample_aspect_ratio or picture.sample_aspect_ratio)


def _stretches(index: TrackIndex, life: PictureLife) -> list[tuple[int, int, StatedPicture]]:
    ends = [*(run.packet for run in life.runs[1:]), index.packets]
    return [(run.packet, end, run.picture) for run, end in zip(life.runs, ends, strict=bool(life.runs))]


def with_colours(life: PictureLife, first: VideoFormat) -> PictureLife:
    """Return a copy of ``life`` in which every run's colours are complete; ``first`` is the container's format."""
    columns = {
        name: _meant([getattr(run.picture.colour, name) for run in life.runs], name, getattr(first.colour, name))
        for name in UNSTATED
    }
    runs = tuple(
        replace(run, colour=replace(first.colour, **{name: column[place] for name, column in columns.items()}))
        for place, run in enumerate(life.runs)
    )
    return PictureLife(runs)


def _meant(own: Sequence[int], name: str, first: int) -> list[int]:
    """Return the effective value of a field for each run.

    If all pictures agree, the container's value applies to them; otherwise each picture has its own value. If any
    picture has full range, an absent range counts as limited (H.264 and H.265, annex E). Other missing values come from
    the run before, or from the first run with a value.
    """
    unstated = UNSTATED[name]
    if name == "range" and _FULL in own:
        own = [value or _LIMITED for value in own]
    stated = {value for value in own if value != unstated}
    if len(stated) <= 1:
        value = first if first != unstated else next(iter(stated), unstated)
        return [value] * len(own)
    found: list[int] = []
    last = next(value for value in own if value != unstated)
    for value in own:
        last = value if value != unstated else last
        found.append(last)
    if first != unstated and first not in stated:
        # No picture states the container's value, which was written for the first pictures and replaces their own.
        found = [first if value == own[0] else value for value in found]
    return found


def one_format(first: VideoFormat, life: PictureLife, index: TrackIndex) -> VideoFormat:
    """Return the format of a whole track; ``first`` is the format of the first picture.

    It has the largest size, deepest samples and finest chroma of any picture, and the colours and HDR values of the
    first picture of that size. It is interlaced if any picture is.
    """
    sized = _resized(first, index)
    if not life.runs:
        return sized
    base = base_run(life.runs, index)
    return replace(
        sized,
        pix_fmt=finest_pix_fmt([base.picture.pix_fmt, *(run.picture.pix_fmt for run in life.runs)]),
        colour=base.colour,
        # The container may state values that no picture states.
        hdr=first.hdr if base.picture.hdr == life.runs[0].picture.hdr else base.picture.hdr,
        interlaced=first.interlaced or any(run.picture.interlaced for run in life.runs),
    )


def part_format(whole: VideoFormat, life: PictureLife, part: PictureLife, index: TrackIndex) -> VideoFormat:
    """Return the format of a part of a track: the format of the part's runs, in the size of the whole track."""
    if part.runs in ((), life.runs):
        return whole
    base = base_run(part.runs, index)
    interlaced = [run.picture for run in part.runs if run.picture.interlaced]
    return replace(
        whole,
        pix_fmt=finest_pix_fmt([base.picture.pix_fmt, *(run.picture.pix_fmt for run in part.runs)]),
        colour=base.colour,
        hdr=whole.hdr if base.picture.hdr == base_run(life.runs, index).picture.hdr else base.picture.hdr,
        interlaced=bool(interlaced),
        bottom_first=bool(interlaced) and _is_bottom_first(interlaced[0], whole),
    )


def _is_bottom_first(picture: StatedPicture, whole: VideoFormat) -> bool:
    return whole.bottom_first if picture.top_first is None else not picture.top_first


def base_run(runs: Sequence[PictureRun], index: TrackIndex) -> PictureRun:
    """Return the run whose colours apply to the track: the first run with the largest pictures."""
    largest = index.largest_size
    if largest is None:
        return runs[0]
    packet = next(packet for packet, size in index.sizes.items() if size == largest)
    return next((run for run, after in pairwise(runs) if packet < after.packet), runs[-1])


def _resized(format_: VideoFormat, index: TrackIndex) -> VideoFormat:
    """Return the format with the track's largest size.

    The container's shape applies unless the shape changes in the bitstream.
    """
    largest = index.largest_size
    if largest is None:
        return format_
    shape, first = largest.sample_aspect_ratio, next(iter(index.sizes.values())).sample_aspect_ratio
    return replace(
        format_,
        width=largest.width,
        height=largest.height,
        sample_aspect_ratio=format_.sample_aspect_ratio if shape is None or shape == first else shape,
    )
