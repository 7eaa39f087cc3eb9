"""Plans the conversion of pictures whose format changes in mid-stream, and finds the losses. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Final

from ...actors.encode.pix_fmt import is_rgb
from ...actors.media.values import UNSPECIFIED, Colour, HdrStatic, VideoFormat
from ...actors.segment.filtering import FULL_RANGE, can_convert, same_matrix
from ...actors.segment.tone import TRANSFERS, ToneMap
from ..report.report import Warning_
from ..source.index import TrackIndex
from ..source.life import PictureLife, PictureRun
from ..source.one_format import base_run

_KEEPS_SHAPE: Final = Fraction(1, 200)
_ALIKE: Final = {"primaries": {7: 6}, "transfer": {6: 1, 14: 1, 15: 1}, "matrix": {5: 6}}
"""For each field: H.273 values, each with the value to which it is equivalent."""
_BT709: Final = 1
_NAMED_SPANS: Final = 3


def hdr_picture(source: VideoFormat, life: PictureLife) -> VideoFormat:
    """Return the format for tone mapping: the source's, but if it is not HDR, with the values of the first HDR run."""
    if source.colour.transfer in TRANSFERS:
        return source
    found = next((run for run in life.runs if run.colour.transfer in TRANSFERS), None)
    return source if found is None else replace(source, colour=found.colour, hdr=found.picture.hdr)


def conversions(life: PictureLife, source: VideoFormat, index: TrackIndex) -> tuple[Warning_, ...]:
    """Return a warning for pictures that are converted to the track's format, ``source``."""
    found = [
        f"their {what} differs {when}"
        for what, differs in (
            ("range", lambda run: _is_full(run) != (source.colour.range == FULL_RANGE)),
            ("matrix", lambda run: not same_matrix(run.colour.matrix, source.colour.matrix)),
            ("pixel format", lambda run: _layout(run.picture.pix_fmt) != _layout(source.pix_fmt)),
        )
        if (when := _when(life, index, differs))
    ]
    if not found:
        return ()
    message = f"pictures are converted to one format: {'; '.join(found)}"
    first = life.runs[0]
    # The input's header may state the first picture's values; ``verify`` may complain where the output's values differ.
    differing = [name for name in _ALIKE if not _is_alike(name, first.colour, source.colour)]
    differing += ["range"] if _is_full(first) != (source.colour.range == FULL_RANGE) else []
    differing += ["pixel-format"] if _layout(first.picture.pix_fmt) != _layout(source.pix_fmt) else []
    checks = tuple(f"metadata.{name}" for name in differing)
    return (Warning_(code="pictures-converted", message=message, checks=checks),)


def change_losses(
    life: PictureLife,
    source: VideoFormat,
    index: TrackIndex,
    tone: ToneMap | None,
    *,
    codes_fields: bool,
) -> tuple[Warning_, ...]:
    """Return a warning for each change that the output cannot show.

    ``codes_fields`` says whether the output is coded as interlaced.
    """
    found = [*_colours_lost(life, source, index, tone), *_shapes_lost(life, index)]
    found += _scans_lost(life, index) if codes_fields else ()
    return tuple(Warning_(code=code, message=message, checks=tuple(checks)) for code, message, *checks in found)


def _colours_lost(
    life: PictureLife, source: VideoFormat, index: TrackIndex, tone: ToneMap | None
) -> Iterator[tuple[str, ...]]:
    target = source.colour if tone is None else replace(source.colour, primaries=_BT709, transfer=_BT709, matrix=_BT709)

    def is_kept(run: PictureRun) -> bool:
        """Return whether tone mapping leaves a run unchanged."""
        return tone is None or TRANSFERS.get(run.colour.transfer) is not tone.transfer

    def differs(name: str, run: PictureRun) -> bool:
        return is_kept(run) and not _is_alike(name, run.colour, target)

    for name, words in (("primaries", "primaries"), ("transfer", "transfer functions")):
        if when := _when(life, index, partial(differs, name)):
            message = f"colours are wrong {when}: these pictures and the output have different {words}"
            yield f"{name}-changes", message, f"metadata.{name}", f"pictures.{name}"
    if when := _when(life, index, lambda run: is_kept(run) and _is_stuck(run, source, target)):
        message = f"colours are wrong {when}: these pictures have another matrix, which is not converted"
        yield "matrix-changes", message, "metadata.matrix", "pictures.matrix"
    stated = {run.picture.hdr for run in life.runs} - {HdrStatic()}
    if len(stated) > 1 and tone is None:
        kept = base_run(life.runs, index).picture.hdr
        when = _when(life, index, lambda run: run.picture.hdr not in (HdrStatic(), kept))
        yield (
            "hdr-changes",
            f"other HDR values are lost {when}: the output states one set",
            "hdr.container",
            "hdr.bitstream",
        )


def _is_stuck(run: PictureRun, source: VideoFormat, target: Colour) -> bool:
    """Return whether a run's matrix differs from the output's matrix and cannot be converted to that matrix."""
    if is_rgb(run.picture.pix_fmt) or is_rgb(source.pix_fmt):
        return False
    return not _is_alike("matrix", run.colour, target) and not can_convert(run.colour.matrix, target.matrix)


def _shapes_lost(life: PictureLife, index: TrackIndex) -> Iterator[tuple[str, ...]]:
    if not life.runs:
        return
    # if a part is encoded, it has the size of the whole track
    wanted = _shape(base_run(life.whole or life.runs, index))
    if when := _when(life, index, lambda run: abs(_shape(run) / wanted - 1) > _KEEPS_SHAPE):
        message = f"pictures of another shape are stretched {when} to {float(wanted):.3f}:1"
        yield "aspect-changes", message, "metadata.aspect", "pictures.aspect"


def _scans_lost(life: PictureLife, index: TrackIndex) -> Iterator[tuple[str, ...]]:
    if when := _when(life, index, lambda run: not run.picture.interlaced):
        message = f"progressive pictures {when} are coded as interlaced, like the track's other pictures"
        yield "scan-changes", f"{message}; --deinterlace auto makes all pictures progressive", "pictures.interlaced"
    orders = {run.picture.top_first for run in life.runs if run.picture.interlaced}
    if len(orders) > 1:
        first = next(run.picture.top_first for run in life.runs if run.picture.interlaced)
        when = _when(life, index, lambda run: run.picture.interlaced and run.picture.top_first != first)
        message = f"the order of fields changes {when}: pictures near a change state the wrong order"
        message += "; --deinterlace auto makes all pictures progressive"
        yield "field-order-changes", message, "pictures.interlaced"


def _when(life: PictureLife, index: TrackIndex, differs: Callable[[PictureRun], bool]) -> str:
    """Return when the runs that differ are shown, in seconds after the first picture; "" if none differs."""
    spans: list[tuple[int, int]] = []
    ends = [*(run.ticks for run in life.runs[1:]), index.end_ticks]
    for run, end in zip(life.runs, ends, strict=bool(life.runs)):
        if differs(run):
            begin = spans.pop()[0] if spans and spans[-1][1] == run.ticks else run.ticks
            spans.append((begin, end))
    named = [f"{_seconds(index, begin):.3f} to {_seconds(index, end):.3f} s" for begin, end in spans]
    more = f" and at {len(named) - _NAMED_SPANS} more times" if len(named) > _NAMED_SPANS else ""
    return f"from {', '.join(named[:_NAMED_SPANS])}{more}" if named else ""


def _seconds(index: TrackIndex, ticks: int) -> float:
    return float((ticks - index.first_ticks) * index.time_base)


def _is_full(run: PictureRun) -> bool:
    return run.colour.range == FULL_RANGE and not is_rgb(run.picture.pix_fmt)


def _layout(pix_fmt: str) -> str:
    return pix_fmt.replace("yuvj", "yuv")


def _is_alike(name: str, first: Colour, second: Colour) -> bool:
    alike = _ALIKE[name]
    values = [alike.get(value, value) for value in (getattr(first, name), getattr(second, name))]
    return UNSPECIFIED in values or values[0] == values[1]


def _shape(run: PictureRun) -> Fraction:
    picture = run.picture
    return Fraction(picture.width, picture.height) * (picture.sample_aspect_ratio or 1)
