"""Reads everything for a plan before any decision is made: ``plan_of`` opens no file.

An error is kept as a value (``ReadResult``) and raised in the step that needs the file. So errors come in the order of
the steps: for example, a bad crop is reported before a missing overlay.
"""

from dataclasses import dataclass
from functools import partial

from ...actors.media.opening import refuse_folder
from ...actors.segment.steps import turned_size
from ..request.spec import TranscodeSpec
from ..source.drawn.burnt_track import ReadBitmaps, ReadText, burnt_track, read_burnt
from ..source.drawn.overlay_file import OverlayFile
from ..source.drawn.read_result import ReadResult
from ..source.source import SourceReading, read_source
from .asked import asked_of
from .borders import NO_BORDER, FoundPicture, find_picture
from .steps import asked_turn, row_step, stated_region
from .track_ranges import TrackRanges


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """Everything that was read for one job."""

    source: SourceReading
    picture: ReadResult[FoundPicture]  #: The result of ``--crop auto``
    overlay: ReadResult[OverlayFile] | None  #: The file of ``--overlay``, if any
    #: The track to burn in, and its font; None if no track is burnt in
    subtitles: ReadResult[ReadBitmaps | ReadText | None]
    grows: bool = False  #: Whether the source may still grow, so that its length is unknown


def read_for(spec: TranscodeSpec) -> Reads:
    """Read a job's source and the files that its options name. The request itself is checked first.

    Raises InputError: the source cannot be read; RequestError: no source could satisfy the request, or the track does
    not exist.
    """
    refuse_folder(spec.source)
    asked_of(spec)
    return reads_beside(spec, read_source(spec.source, spec.video_track))


def reads_beside(spec: TranscodeSpec, source: SourceReading, *, grows: bool = False) -> Reads:
    """Read the files that a job's options name; ``source`` has been read already."""
    return Reads(
        source=source,
        picture=ReadResult.of(partial(_picture, source, spec)),
        overlay=None if spec.overlay is None else ReadResult.of(partial(OverlayFile.read, spec.overlay)),
        subtitles=ReadResult.of(partial(_subtitles, source, spec)),
        grows=grows,
    )


def _picture(source: SourceReading, spec: TranscodeSpec) -> FoundPicture:
    if spec.crop != "auto":
        return NO_BORDER
    described, extras = source.in_part(spec.start_s, spec.end_s).described()
    ranges = TrackRanges.cut(source.index, start_s=spec.start_s, end_s=spec.end_s, segment_s=spec.segment_s)
    rows = row_step(described, spec)
    return find_picture(ranges, described, stated_region(described, extras, rows=rows), row_step=rows)


def _subtitles(source: SourceReading, spec: TranscodeSpec) -> ReadBitmaps | ReadText | None:
    track = burnt_track(source.tracks, spec.burn_subtitles)
    if track is None:
        return None
    described, extras = source.in_part(spec.start_s, spec.end_s).described()
    size = turned_size((described.width, described.height), asked_turn(extras, spec))
    return read_burnt(spec.source, track, size, spec.subtitle_font)
