"""The independent proof: is OUTPUT exactly INPUT, encoded again?

``verify`` decodes both files once, in lock step, in one thread each, and checks them by the rules of docs/timeline.md.
It shares no code with segments, plans or the gather step. docs/verify.md lists the checks and their thresholds.
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
from .container_checks import Containers, ExpectedTimes, check_containers, check_crop
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
from .stated.reading import read_stated
from .steps import Stepwise, cropped, stepwise
from .streams import Alignment
from .subtitles import check_subtitles
from .verdict import Check, Verdict, check, with_declared
from .video import OutputScan, check_access, check_stream, check_times, picture_digest, scan_output, wanted_digests

ItemT = TypeVar("ItemT")


@dataclass(slots=True, kw_only=True)
class _Compared:
    """What one run over both files found."""

    steps: Stepwise | None = None
    comparison: PictureComparison = field(default_factory=PictureComparison)
    life: StatedPictures = field(default_factory=StatedPictures)
    digests_wanted: frozenset[int] = frozenset()
    digests: dict[int, int] = field(default_factory=dict)
    emitted: list[int] = field(default_factory=list)
    output_pts: list[int | None] = field(default_factory=list)
    timeline: Timeline = field(default_factory=lambda: Timeline(order=(), times=()))
    time_base: Fraction = Fraction(1)
    damaged_packets: int = 0
    output_damaged_packets: int = 0
    source_facts: Facts | None = None
    source_size: tuple[int, int] = (0, 0)
    """Of the largest picture of the source: what the output's pictures should be."""
    output_facts: Facts | None = None

    def begin(self, was: Facts, now: Facts, files: Containers) -> None:
        """Take what the two tracks and their first pictures say."""
        self.source_facts, self.output_facts = was, now
        self.life.state(was.format.colour, now.format.colour)
        crop, kept = files.crops
        whole, visible = (abs(was.shape(each) / now.shape(None) - 1) for each in (None, crop))
        if crop and not kept and self.steps is None and visible < whole:
            self.steps = cropped(was.format, crop, now.format)
            self.comparison.identical = False

    def take(
        self,
        number: int,
        expected: tuple[int, VideoFrame] | None,
        frame: VideoFrame | None,
        time_s: Fraction | None,
    ) -> None:
        """Take frame ``number`` of both files, None where one has ended; ``time_s`` is the source's, if known."""
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
        """Return what ``output`` should show."""
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
    """Prove that ``output`` holds every frame of a video track of ``source``, and all that belongs to it.

    Args:
        source: path or URL of what was transcoded.
        output: path or URL of the result.
        video_track: which video track of the source was encoded, from 0; the output's first one is compared.
        audio_tracks: which audio tracks were to be carried, from 0; None means all.
        start_s: start of the part that was asked for, in seconds after the first presented frame.
        end_s: its end; the interval is half-open.
        report: path of the transcode's report. Differences that its warnings declare are not failures; pictures are
            compared after the steps that it names (docs/filters.md); and the part and the video track are its own
            where none are given here.
        progress: called with the number of frames compared so far.

    Raises:
        InputError: one of the files cannot be read.
        NoVideoTrack: one of them has no such video track.
        UsageError: the report cannot be read, or a name is not a path.
    """
    began = time.monotonic()
    source, output = location("source", source), location("output", output)
    report_ = None if report is None else _read_report(location("report", report))
    if report_ is not None and start_s is None and end_s is None:
        start_s, end_s = report_.part_s
    with blocks_held(source, output):
        pair = _pair(source, output, report_, video_track, progress)
        compared, chosen = _compare(pair, _select(pair, start_s, end_s))
        checks = _checks(pair, chosen, compared, _alignment(pair, chosen, compared, report_, audio_tracks))
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


def _pair(
    source: str, output: str, report: Report | None, video_track: int, progress: Callable[[int], None] | None
) -> "_Pair":
    track = video_track or (0 if report is None else report.video_track)
    return _Pair(
        source=source,
        output=output,
        files=Containers(source=read_stated(source), output=read_stated(output), video_track=track),
        video_track=track,
        scan=scan_output(output),
        steps=stepwise(source, report),
        progress=progress,
        fps=None if report is None or report.frame_rate is None else Fraction(report.frame_rate),
    )


def _alignment(
    pair: "_Pair",
    chosen: ComparedPart,
    compared: _Compared,
    report: Report | None,
    audio_tracks: Sequence[int] | None,
) -> Alignment:
    """Return how the tracks beside the video lie on its times, and what the report says that became of them."""
    tracks = () if report is None else report.tracks
    return Alignment(
        source_zero_s=chosen.zero_s,
        output_zero_s=next((pts for pts in compared.output_pts if pts is not None), 0) * pair.scan.time_base,
        tracks=None if audio_tracks is None else tuple(audio_tracks),
        part_s=chosen.length_s,
        begin_s=chosen.begin_s,
        muxer=pair.scan.muxer,
        dropped=frozenset(each.source_index for each in tracks if each.action == "dropped"),
        encoded=frozenset(each.source_index for each in tracks if each.action == "encoded"),
        loudness={each.source_index: each.lufs for each in (() if report is None else report.loudness)},
    )


def _whole(timeline: Timeline, time_base: Fraction) -> ComparedPart:
    zero_s = (timeline.times[0] if timeline.times else 0) * time_base
    return ComparedPart(timeline.order, timeline.times, time_base, zero_s, None)


def _checks(pair: "_Pair", chosen: ComparedPart, compared: _Compared, alignment: Alignment) -> list[Check]:
    checks = [
        check("frames.count", len(chosen.order), len(compared.output_pts)),
        check(
            "frames.undamaged",
            "no packets that fail to decode",
            compared.output_damaged_packets,
            passed=not compared.output_damaged_packets,
            held="every packet decodes",
        ),
        *check_times(chosen.times, chosen.time_base, compared.output_pts, pair.scan),
        *compared.comparison.checks(),
        *check_stream(pair.scan, len(compared.output_pts)),
        check_access(pair.output, pair.scan, compared.digests),
        *check_containers(pair.files, _showing(pair, chosen, compared)),
        *compared.life.checks(pair.files.top_first, is_damaged=bool(compared.damaged_packets)),
        *check_audio(pair.source, pair.output, alignment),
        *check_subtitles(pair.source, pair.output, alignment),
    ]
    was, now = compared.source_facts, compared.output_facts
    if was is None or now is None:
        return checks
    checks += _crop_checks(pair, compared, was, now)
    width, height = compared.source_size
    largest = replace(was.format, width=width, height=height)
    was = replace(was, format=largest if compared.steps is None else compared.steps.format(largest))
    life = compared.life.source
    alignment = replace(alignment, files=pair.files, pix_fmts=tuple(life.formats), seen=life.seen)
    return [*checks, *check_metadata(pair.source, pair.output, was, now, alignment)]


def _showing(pair: "_Pair", chosen: ComparedPart, compared: _Compared) -> ExpectedTimes:
    last_s = pair.files.source_last_s if chosen.length_s is None else chosen.last_s
    nominal_s = compared.timeline.nominal * compared.time_base
    return ExpectedTimes(
        times_s=[ticks * chosen.time_base for ticks in chosen.times],
        last_s=last_s if pair.fps is None else 1 / pair.fps,
        nominal_s=nominal_s if pair.fps is None else 1 / pair.fps,
        is_whole=len(compared.timeline.packets) == len(compared.timeline.times),
    )


def _crop_checks(pair: "_Pair", compared: _Compared, was: Facts, now: Facts) -> list[Check]:
    steps = None if compared.steps is None else compared.steps.steps
    kept = None if steps is None else (steps.crop[2], steps.crop[3], *steps.crop[:2])
    return check_crop(*pair.files.crops, kept, (was.shape(pair.files.crops[0]), now.shape(None)))


def _read_report(report: str) -> Report:
    try:
        return Report.model_validate_json(Path(report).read_bytes())
    except OSError as error:
        message = f"the report {report} cannot be read: {error.strerror}"
        raise UsageError(message, "Name the file that --report wrote.") from None
    except ValidationError as error:
        message = f"{report} is not a report of codecfleet: {error.error_count()} fields do not fit"
        raise UsageError(message, "Name the file that --report wrote, of this version.") from None


def last_shown_s(
    timeline: Timeline, last: int, time_base: Fraction, end_s: Fraction | None, stated_s: Fraction | None
) -> Fraction | None:
    """Return how long the last picture of a part is shown; None where its container does not say.

    Args:
        timeline: when the source's pictures are shown.
        last: the place of the last picture.
        time_base: the timeline's tick, in seconds.
        end_s: where the part ends; None where the source does.
        stated_s: how long the source's own last picture is shown.
    """
    shown = timeline.times[last]
    left_s = None if end_s is None else max(end_s - (shown - timeline.zero) * time_base, timeline.nominal * time_base)
    if last + 1 < len(timeline.times):
        following_s = (timeline.times[last + 1] - shown) * time_base
        return following_s if left_s is None else min(following_s, left_s)
    promised_s = (timeline.packets[-1] - timeline.zero + timeline.nominal) * time_base
    if shown < timeline.packets[-1] and end_s is not None and end_s < promised_s:
        return left_s  # the pictures behind it do not decode: it stays
    return stated_s if stated_s is None or left_s is None else min(stated_s, left_s)


def _select(pair: "_Pair", start_s: Fraction | None, end_s: Fraction | None) -> ComparedPart | None:
    """Return the part asked for, at its own times or at a rate; it costs a decode of its own.

    None for the whole, where its pictures do not depend on their times, as with subtitles.
    """
    source, video_track, fps = pair.source, pair.video_track, pair.fps
    is_timed = pair.steps is not None and pair.steps.burn is not None
    if start_s is None and end_s is None and fps is None and not is_timed:
        return None
    timeline = read_timeline(source, video_track)
    with open_track(source, video_track) as track:
        time_base = track.time_base / timeline.divisor
    whole = _whole(timeline, time_base)
    kept = [
        place
        for place, ticks in enumerate(timeline.times)
        if (not start_s or start_s <= (ticks - timeline.zero) * time_base)
        and (end_s is None or (ticks - timeline.zero) * time_base < end_s)
    ]
    if not kept:
        return replace(whole, order=(), times=(), length_s=Fraction(0))
    times = tuple(timeline.times[n] for n in kept)
    length_s = None if start_s is None and end_s is None else (times[-1] - times[0]) * time_base
    part = ComparedPart(
        order=tuple(timeline.order[n] for n in kept),
        times=times,
        time_base=time_base,
        zero_s=times[0] * time_base,
        length_s=length_s,
        begin_s=(times[0] - timeline.times[0]) * time_base,
        last_s=last_shown_s(timeline, kept[-1], time_base, end_s, pair.files.source_last_s),
    )
    if fps is None:
        return part
    return at_rate(timeline, replace(part, last_s=pair.files.source_last_s), fps, start_s, end_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """The two files to compare, and what is known of the output."""

    source: str
    output: str
    files: Containers
    """What their containers say."""
    video_track: int
    scan: OutputScan
    steps: Stepwise | None
    progress: Callable[[int], None] | None
    fps: Fraction | None = None


def _compare(pair: _Pair, part: ComparedPart | None) -> tuple[_Compared, ComparedPart]:
    """Return what was found, and of which part: ``part``, or the whole."""
    compared = _run(pair, part)
    if part is None and tuple(compared.emitted) != compared.timeline.order:
        # The track is more disordered than the window sorts; its order is known now.
        compared = _run(pair, _whole(compared.timeline, compared.time_base))
    return compared, part or _whole(compared.timeline, compared.time_base)


def _run(pair: _Pair, part: ComparedPart | None) -> _Compared:
    # What was cropped or turned is another picture, however exactly it was coded; another rate has others.
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
        compared.time_base = reference.time_base / compared.timeline.divisor
        compared.damaged_packets, compared.output_damaged_packets = reference.damaged_packets, shown.damaged_packets
        compared.output_pts = [stamp.pts for stamp in shown.stamps]
    return compared


@contextmanager
def _ahead(items: Iterator[ItemT]) -> Iterator[Iterator[ItemT]]:
    """Iterate over ``items`` in a thread, one item ahead of the caller: decoders work while pictures are compared."""
    end = object()

    def pulled(pool: ThreadPoolExecutor) -> Iterator[ItemT]:
        coming = pool.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, items, end)
            yield item  # type: ignore[misc] # anything but the end marker came from items

    with ThreadPoolExecutor(max_workers=1) as pool:
        yield pulled(pool)
