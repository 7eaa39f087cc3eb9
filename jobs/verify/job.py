"""Proves that an output is its source, encoded again. It shares no code with planning, encoding and joining.

Both files are decoded once, in step, and compared by the rules in docs/timeline.md and docs/verify.md.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import zip_longest
from math import prod
from os import PathLike
from pathlib import Path
from typing import TypeVar

from av.video.frame import VideoFrame
from pydantic import ValidationError

from ...actors.media.shared_blocks import blocks_held
from ...errors import UsageError
from ..report.report import Report
from ..request.values import location
from .audio import check_audio
from .container_checks import Containers, ExpectedTimes, check_containers, check_crop, read_stated
from .metadata import Facts, check_metadata, video_facts
from .picture_life import StatedPictures
from .pictures import PictureComparison
from .reference.reference_decode import (
    ComparedPart,
    Timeline,
    at_rate,
    in_known_order,
    in_presentation_order,
    open_track,
    read_timeline,
)
from .steps import Stepwise, cropped, stepwise
from .streams import Alignment
from .subtitles import check_subtitles
from .verdict import Check, Verdict, check, with_declared
from .video import OutputScan, check_access, check_stream, check_times, picture_digest, scan_output, wanted_digests

ItemT = TypeVar("ItemT")


@dataclass(kw_only=True)
class _Pair:
    """The two files to compare, with the facts that are known without decoding."""

    source: str
    output: str
    report: Report | None
    video_track: int
    progress: Callable[[int], None] | None
    files: Containers = field(init=False)
    scan: OutputScan = field(init=False)
    steps: Stepwise | None = field(init=False)
    fps: Fraction | None = None  # the requested frame rate

    def __post_init__(self) -> None:
        if self.report is not None:
            self.video_track = self.video_track or self.report.video_track
            self.fps = None if self.report.frame_rate is None else Fraction(self.report.frame_rate)
        stated = read_stated(self.source), read_stated(self.output)
        self.files = Containers(source=stated[0], output=stated[1], video_track=self.video_track)
        self.scan = scan_output(self.output)
        self.steps = stepwise(self.source, self.report)


@dataclass(slots=True, kw_only=True)
class _Compared:
    steps: Stepwise | None
    comparison: PictureComparison
    digests_wanted: frozenset[int]
    life: StatedPictures = field(default_factory=StatedPictures)
    digests: dict[int, int] = field(default_factory=dict)
    emitted: list[int] = field(default_factory=list)
    output_pts: list[int | None] = field(default_factory=list)
    timeline: Timeline = field(default_factory=lambda: Timeline(order=(), times=()))
    damaged_packets: int = 0
    output_damaged_packets: int = 0
    facts: tuple[Facts, Facts] | None = None  # of source and output
    source_size: tuple[int, int] = (0, 0)  # the size of the source's largest picture, and of the output's pictures

    def begin(self, was: Facts, now: Facts, files: Containers) -> None:
        """Record the facts of both tracks, as read from their first pictures.

        If the output's shape shows that it was cropped as the source states, it is compared with the cropped source.
        """
        self.facts = was, now
        self.life.source.stated, self.life.output.stated = was.format.colour, now.format.colour
        crop, kept = files.crops
        whole, visible = (abs(was.shape(each) / now.shape(None) - 1) for each in (None, crop))
        if crop and not kept and self.steps is None and visible < whole:
            self.steps = cropped(was.format, crop, now.format)
            self.comparison.identical = False

    def take(
        self, number: int, expected: tuple[int, VideoFrame] | None, frame: VideoFrame | None, time_s: Fraction | None
    ) -> None:
        """Take frame ``number`` of both files; a file that has ended gives None.

        ``time_s`` is the source's time, if known.
        """
        if frame is not None and number in self.digests_wanted:
            self.digests[number] = picture_digest(frame)
        if expected is not None:
            self.emitted.append(expected[0])
            size = expected[1].width, expected[1].height
            self.source_size = max(self.source_size, size, key=prod)
            if frame is not None:
                deinterlaced = expected[1].interlaced_frame and not frame.interlaced_frame
                self.comparison.add(self._wanted(expected[1], frame, time_s), frame, deinterlaced=deinterlaced)

    def _wanted(self, source: VideoFrame, output: VideoFrame, time_s: Fraction | None) -> VideoFrame:
        if (steps := self.steps) is None:
            return self.life.take(source, output, None, toned=False) or source
        self.life.take(source, output, lambda frame: steps.picture(frame, output, time_s), toned=steps.tone is not None)
        return steps.picture(source, output, time_s)


def verify(
    source: str | PathLike[str],
    output: str | PathLike[str],
    *,
    video_track: int = 0,
    audio_tracks: Sequence[int] | None = None,
    start_s: Fraction | None = None,
    end_s: Fraction | None = None,
    report: str | PathLike[str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Verdict:
    """Prove that ``output`` holds every frame of a video track of ``source``, and all else that belongs to ``source``.

    Args:
        source: path or URL of the file that was transcoded.
        output: path or URL of the result.
        video_track: the source's video track that was encoded, from 0; the output's first video track is compared with
            it.
        audio_tracks: the audio tracks that the output should have, from 0; None means all.
        start_s: start of the requested part, in seconds after the first visible frame.
        end_s: end of the requested part (not included), in seconds after the same frame.
        report: path of the transcode's report. Differences that the report's warnings declare are not failures. The
            report's steps are applied before pictures are compared (docs/filters.md). The report's part and video
            track are the defaults.
        progress: called with the number of frames compared so far.

    Raises:
        InputError: one of the files cannot be read.
        NoVideoTrack: one of the files lacks the video track.
        UsageError: the report cannot be read, or an argument is not a path.
    """
    began = time.monotonic()
    source, output = location("source", source), location("output", output)
    report_ = None if report is None else _read_report(location("report", report))
    if report_ is not None and start_s is None and end_s is None:
        start_s, end_s = report_.part_s
    with blocks_held(source, output):
        pair = _Pair(source=source, output=output, report=report_, video_track=video_track, progress=progress)
        compared, chosen = _compare(pair, _select(pair, start_s, end_s))
        checks = _checks(pair, chosen, compared, _alignment(pair, chosen, compared, audio_tracks))
    return Verdict(
        source=source,
        output=output,
        source_frames=len(chosen.order),
        output_frames=len(compared.output_pts),
        repaired={name: getattr(compared.timeline, name) for name in ("resets", "missing", "disordered", "repeated")},
        damaged_packets=compared.damaged_packets,
        pictures=compared.comparison.numbers(),
        checks=with_declared(checks, () if report_ is None else (*report_.warnings, *report_.choices)),
        wall_s=round(time.monotonic() - began, 3),
    )


def _alignment(pair: _Pair, chosen: ComparedPart, compared: _Compared, audio_tracks: Sequence[int] | None) -> Alignment:
    tracks = () if pair.report is None else pair.report.tracks
    return Alignment(
        source_zero_s=chosen.zero_s,
        output_zero_s=next((pts for pts in compared.output_pts if pts is not None), 0) * pair.scan.time_base,
        tracks=None if audio_tracks is None else tuple(audio_tracks),
        part_s=chosen.length_s,
        begin_s=chosen.begin_s,
        muxer=pair.scan.muxer,
        dropped=frozenset(each.source_index for each in tracks if each.action == "dropped"),
        encoded=frozenset(each.source_index for each in tracks if each.action == "encoded"),
        loudness={} if pair.report is None else {each.source_index: each.lufs for each in pair.report.loudness},
    )


def _checks(pair: _Pair, chosen: ComparedPart, compared: _Compared, alignment: Alignment) -> list[Check]:
    videos = pair.files.source_video, pair.files.output_video
    fields = [None if each is None else each.top_field_first for each in videos]
    bad, no_bad = compared.output_damaged_packets, "no packets that fail to decode"
    checks = [
        check("frames.count", len(chosen.order), len(compared.output_pts)),
        check("frames.undamaged", no_bad, bad, passed=not bad, held="every packet decodes"),
        *check_times(chosen.times, chosen.time_base, compared.output_pts, pair.scan),
        *compared.comparison.checks(),
        *check_stream(pair.scan, len(compared.output_pts)),
        check_access(pair.output, pair.scan, compared.digests),
        *check_containers(pair.files, _showing(pair, chosen, compared)),
        *compared.life.checks(fields, is_damaged=bool(compared.damaged_packets)),
        *check_audio(pair.source, pair.output, alignment),
        *check_subtitles(pair.source, pair.output, alignment),
    ]
    if compared.facts is None:
        return checks
    was, now = compared.facts
    steps = None if compared.steps is None else compared.steps.steps
    kept = None if steps is None else (steps.crop[2], steps.crop[3], *steps.crop[:2])
    checks += check_crop(*pair.files.crops, kept, (was.shape(pair.files.crops[0]), now.shape(None)))
    width, height = compared.source_size
    largest = replace(was.format, width=width, height=height)
    was = replace(was, format=largest if compared.steps is None else compared.steps.format(largest))
    life = compared.life.source
    alignment = replace(alignment, files=pair.files, pix_fmts=tuple(life.formats), seen=life.seen)
    return [*checks, *check_metadata(pair.source, pair.output, was, now, alignment)]


def _showing(pair: _Pair, chosen: ComparedPart, compared: _Compared) -> ExpectedTimes:
    last_s = pair.files.source_last_s if chosen.length_s is None else chosen.last_s
    nominal_s = compared.timeline.nominal * compared.timeline.time_base
    return ExpectedTimes(
        times_s=[ticks * chosen.time_base for ticks in chosen.times],
        last_s=last_s if pair.fps is None else 1 / pair.fps,
        nominal_s=nominal_s if pair.fps is None else 1 / pair.fps,
        is_whole=len(compared.timeline.packets) == len(compared.timeline.times),
    )


def _read_report(report: str) -> Report:
    try:
        return Report.model_validate_json(Path(report).read_bytes())
    except OSError as error:
        message = f"the report {report} cannot be read: {error.strerror}"
        raise UsageError(message, "Name the file that --report wrote.") from None
    except ValidationError as error:
        message = f"{report} is not a codecfleet report: {error.error_count()} fields are missing or invalid"
        raise UsageError(message, "Name a report that this version wrote.") from None


def last_shown_s(timeline: Timeline, last: int, end_s: Fraction | None, stated_s: Fraction | None) -> Fraction | None:
    """Return the duration of the picture at place ``last``, the last picture of a part; None if it is not stated.

    The part ends at ``end_s``, None for the source's end. ``stated_s`` is the duration of the source's last picture.
    """
    shown, time_base = timeline.times[last], timeline.time_base
    left_s = None if end_s is None else max(end_s - (shown - timeline.zero) * time_base, timeline.nominal * time_base)
    if last + 1 < len(timeline.times):
        following_s = (timeline.times[last + 1] - shown) * time_base
        return following_s if left_s is None else min(following_s, left_s)
    promised_s = (timeline.packets[-1] - timeline.zero + timeline.nominal) * time_base
    if shown < timeline.packets[-1] and end_s is not None and end_s < promised_s:
        return left_s  # later pictures do not decode, so this picture stays on screen
    return stated_s if stated_s is None or left_s is None else min(stated_s, left_s)


def _select(pair: _Pair, start_s: Fraction | None, end_s: Fraction | None) -> ComparedPart | None:
    """Return the requested part, at its own times or at a fixed rate. This decodes the source once more.

    For a whole track at its own times, return None unless burnt-in subtitles make pictures depend on their times.
    """
    fps = pair.fps
    is_timed = pair.steps is not None and pair.steps.burn is not None
    if start_s is None and end_s is None and fps is None and not is_timed:
        return None
    timeline = read_timeline(pair.source, pair.video_track)
    time_base = timeline.time_base
    after_s = [(ticks - timeline.zero) * time_base for ticks in timeline.times]
    kept = [
        place
        for place, at_s in enumerate(after_s)
        if (not start_s or start_s <= at_s) and (end_s is None or at_s < end_s)
    ]
    if not kept:
        return replace(ComparedPart.whole(timeline), order=(), times=(), length_s=Fraction(0))
    times = tuple(timeline.times[n] for n in kept)
    part = ComparedPart(
        order=tuple(timeline.order[n] for n in kept),
        times=times,
        time_base=time_base,
        zero_s=times[0] * time_base,
        length_s=None if start_s is None and end_s is None else (times[-1] - times[0]) * time_base,
        begin_s=(times[0] - timeline.times[0]) * time_base,
        last_s=last_shown_s(timeline, kept[-1], end_s, pair.files.source_last_s),
    )
    if fps is None:
        return part
    return at_rate(timeline, replace(part, last_s=pair.files.source_last_s), fps, start_s, end_s)


def _compare(pair: _Pair, part: ComparedPart | None) -> tuple[_Compared, ComparedPart]:
    compared = _run(pair, part)
    if part is None and tuple(compared.emitted) != compared.timeline.order:
        # The track is more disordered than the window can sort, but by now the order is known.
        compared = _run(pair, ComparedPart.whole(compared.timeline))
    return compared, part or ComparedPart.whole(compared.timeline)


def _run(pair: _Pair, part: ComparedPart | None) -> _Compared:
    # Cropped, turned or retimed pictures never count as identical to the source's pictures.
    comparison = PictureComparison(identical=pair.steps is None and pair.fps is None)
    compared = _Compared(comparison=comparison, steps=pair.steps, digests_wanted=wanted_digests(pair.scan))
    with open_track(pair.source, pair.video_track) as reference, open_track(pair.output) as shown:
        wanted = in_presentation_order(reference) if part is None else in_known_order(reference, part.order)
        with _ahead(wanted) as left, _ahead(iter(shown)) as right:
            for number, (expected, frame) in enumerate(zip_longest(left, right)):
                if number == 0 and expected is not None and frame is not None:
                    was = video_facts(reference.stream, expected[1], reference.earliest)
                    now = video_facts(shown.stream, frame)
                    compared.begin(was, now, pair.files)
                compared.take(number, expected, frame, None if part is None else part.time_s(number))
                if pair.progress is not None:
                    pair.progress(number + 1)
        compared.comparison.finish()
        compared.timeline = reference.timeline()
        compared.damaged_packets, compared.output_damaged_packets = reference.damaged_packets, shown.damaged_packets
        compared.output_pts = shown.pts
    return compared


@contextmanager
def _ahead(items: Iterator[ItemT]) -> Iterator[Iterator[ItemT]]:
    """Iterate over ``items`` in a thread, one item ahead, so that decoding overlaps with comparing."""
    end = object()

    def pulled(pool: ThreadPoolExecutor) -> Iterator[ItemT]:
        coming = pool.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, items, end)
            yield item  # type: ignore[misc] # anything but the end marker came from items

    with ThreadPoolExecutor(max_workers=1) as pool:
        yield pulled(pool)
