"""Checks the boxes and elements of the two files, without FFmpeg: durations, rates, crop, alpha, missing bytes."""

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from ...actors.media.opening import open_bytes
from .stated.boxes import read_boxes
from .stated.ebml import read_elements
from .stated.facts import FileBytes, StatedCrop, StatedFile, StatedKind, StatedTrack
from .verdict import ALPHA_CHECK, Check, check, not_applicable

LONGEST_S = 3600  # the longest plausible duration of the last picture
_HALF, _THIRD = Fraction(1, 2), Fraction(1, 3)
_SHAPE_NEAR = Fraction(1, 50)
_NO_BOXES = "the container is neither mp4, mov nor Matroska"


def read_stated(url: str) -> StatedFile | None:
    """Return the facts that an mp4, mov, Matroska or WebM file states; None for other or damaged files.

    Raises InputError.
    """
    with open_bytes(url) as stream:
        file = FileBytes(stream)
        for read in (read_boxes, read_elements):
            # Damaged tables may end anywhere.
            with suppress(struct.error, IndexError, ValueError):
                if (found := read(file)) is not None:
                    return found
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Containers:
    """The facts that the containers of the two files state; None for containers that only FFmpeg reads."""

    source: StatedFile | None
    output: StatedFile | None
    video_track: int

    @property
    def source_video(self) -> StatedTrack | None:
        """The video track that was encoded."""
        return _video(self.source, self.video_track)

    @property
    def output_video(self) -> StatedTrack | None:
        """The output's video track."""
        return _video(self.output, 0)

    @property
    def crops(self) -> tuple[StatedCrop, StatedCrop]:
        """The crop that each container states."""
        source, output = self.source_video, self.output_video
        return source.crop if source else StatedCrop(), output.crop if output else StatedCrop()

    @property
    def source_last_s(self) -> Fraction | None:
        """The duration that the source states for its last picture; None if it is missing or implausible."""
        track = self.source_video
        last_s = None if track is None or track.spread is None else track.spread.last_s
        return last_s if last_s is not None and 0 < last_s <= LONGEST_S else None

    @property
    def timecode_rate(self) -> Fraction | None:
        """The frame rate of the source's timecodes; None if it is not stated."""
        tracks = () if self.source is None else self.source.tracks
        return next((track.timecode_rate for track in tracks if track.timecode_rate is not None), None)

    def language_tags(self, audio_tracks: Sequence[int] | None) -> dict[str, tuple[str, str]]:
        """Return the languages (BCP 47) of source and output by labels such as "audio-0"."""
        found: dict[str, tuple[str, str]] = {}
        for kind in (StatedKind.AUDIO, StatedKind.SUBTITLES):
            before, after = ([] if file is None else file.of(kind) for file in (self.source, self.output))
            if kind is StatedKind.AUDIO and audio_tracks is not None:
                before = [before[n] for n in audio_tracks if n < len(before)]
            for number, track in enumerate(before):
                kept = after[number].language_tag if number < len(after) else ""
                found[f"{kind}-{number}"] = (track.language_tag, kept)
        return found


def _video(file: StatedFile | None, number: int) -> StatedTrack | None:
    tracks = [] if file is None else file.of(StatedKind.VIDEO)
    return tracks[number] if number < len(tracks) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTimes:
    """When the output's pictures should be shown, in seconds after the first picture."""

    times_s: Sequence[Fraction]
    last_s: Fraction | None  # the last picture's duration; None if unknown
    nominal_s: Fraction  # the nominal duration of a picture
    is_whole: bool = True  # whether every packet of the source that has a time decodes to a picture


def check_containers(files: Containers, showing: ExpectedTimes) -> Iterator[Check]:
    """Yield the checks that read boxes and elements: completeness, durations, rate and alpha."""
    yield _check_whole("source.whole", files.source)
    yield _check_whole("stream.whole", files.output)
    yield _check_durations(files.output)
    yield _check_last(files.output_video, showing)
    yield _check_rate(files.output_video, showing)
    source, output = files.source_video, files.output_video
    if source is not None and source.alpha:
        found = output is not None and output.alpha
        yield check(ALPHA_CHECK, "blocks with alpha", "some" if found else "none", passed=found)


def _check_whole(name: str, file: StatedFile | None) -> Check:
    if file is None:
        return not_applicable(name, _NO_BOXES)
    found = f"the last one lacks {file.missing_bytes} bytes" if file.missing_bytes else "all end in the file"
    return check(name, "every box or element ends in the file", found, passed=not file.missing_bytes)


def _check_durations(file: StatedFile | None) -> Check:
    if file is None:
        return not_applicable("stream.durations", _NO_BOXES)
    found = [*file.disagreements, *(each for track in file.tracks for each in track.disagreements)]
    return check("stream.durations", "headers match samples", "; ".join(found) or "they match", passed=not found)


def _check_last(track: StatedTrack | None, showing: ExpectedTimes) -> Check:
    name = "times.last"
    if track is None or track.spread is None:
        return not_applicable(name, _NO_BOXES)
    if showing.last_s is None:
        return not_applicable(name, "the source does not state its last picture's duration")
    found = track.spread.last_s
    if found is None and showing.last_s <= 2 * showing.nominal_s:
        return not_applicable(name, "the last picture has its nominal duration, and the container states none")
    # A part ends when the next picture starts, but its last picture is shown at least for the nominal duration.
    wanted = (showing.last_s, max(showing.last_s, showing.nominal_s))
    near = found is not None and any(abs(found - each) <= showing.nominal_s * _THIRD for each in wanted)
    shown = "none" if found is None else f"{float(found):.3f} s"
    return check(name, f"{float(showing.last_s):.3f} s", shown, passed=near)


def _check_rate(track: StatedTrack | None, showing: ExpectedTimes) -> Check:
    name = "times.rate"
    spread = None if track is None else track.spread
    if spread is None or spread.total_s is None or not showing.times_s:
        return not_applicable(name, "the output's container does not state picture durations")
    if spread.samples != len(showing.times_s):
        return not_applicable(name, "the output has a wrong number of pictures")
    if not showing.is_whole:
        return not_applicable(name, "some of the source's pictures do not decode, so durations are not compared")
    wanted_s = showing.times_s[-1] - showing.times_s[0] + (showing.last_s or showing.nominal_s)
    # A separate check covers the last picture's duration.
    late_s = abs(spread.total_s - wanted_s) - abs((spread.last_s or 0) - (showing.last_s or showing.nominal_s))
    least_s = min((b - a for a, b in pairwise(showing.times_s)), default=Fraction(0))
    passed = late_s <= showing.nominal_s / 2 and spread.shortest_s >= least_s * _HALF
    expected = f"{float(len(showing.times_s) / wanted_s):.3f} pictures a second"
    found = f"{float(spread.samples / spread.total_s) if spread.total_s else 0:.3f}"
    return check(name, expected, f"{found}, the shortest lasts {float(spread.shortest_s) * 1000:.3f} ms", passed=passed)


def check_crop(
    wanted: StatedCrop, found: StatedCrop, kept: tuple[int, int, int, int] | None, shapes: tuple[Fraction, Fraction]
) -> list[Check]:
    """Check that the source's crop (``wanted``) stays hidden; ``found`` is the output's crop.

    ``kept`` is the kept part of each source picture according to the report (left, top, width, height), None for the
    whole picture. ``shapes`` are the aspect ratios of the source's visible part and of the output's pictures.
    """
    if not wanted and not found:
        return []
    is_cut = kept is not None and kept[0] >= wanted.left - 1 and kept[1] >= wanted.top - 1  # rounded to whole chroma
    is_shaped = not found and abs(shapes[0] / shapes[1] - 1) <= _SHAPE_NEAR
    passed = wanted == found or is_cut or is_shaped
    return [check("metadata.crop", wanted, found or "nothing is cropped", passed=passed)]
