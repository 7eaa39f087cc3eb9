"""Writes a package whose tracks grow: the complete segments of each part, as ``write_tracks`` writes all segments.

Each part of the film is a proven file of its own. A segment is written once, when no later part can change it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from io import BytesIO
from math import ceil, floor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Self

import numpy as np

from ...errors import ProofFailed, Unsupported
from .boxes.fragments import SEGMENT_TYPE
from .boxes.header import cmaf_header, without_rates
from .cmaf import TrackWriter, check_aligned, packaged, starts_s, written
from .names import header_file, segment_file
from .proven import ProvenTrack, packets_of, read_proven
from .samples import SampleCut, Samples, cut_at, cut_on_grid, sound_cuts_s
from .values import MICROSECONDS, GivenTrack, LaterPart, Layout, Package, PackagedSegment, PackageStage, PlayedKind

if TYPE_CHECKING:
    from av.packet import Packet
    from av.stream import Stream

_ADVICE: Final = "Please report this error together with the input and the options."


@dataclass(frozen=True, slots=True)
class TrackPart:
    """The next part of a track."""

    given: GivenTrack  #: The track in the part's own file
    offset_s: Fraction  #: The time of the file's tick 0 in the package
    reorder_frames: int = 0  #: How many pictures its encoder may reorder

    def ticks(self, time_base: Fraction) -> int:
        """Return the time of the file's tick 0 in ticks."""
        return round(self.offset_s / time_base)


class GrowingPackage:
    """A package whose parts arrive in order; each segment is a file.

    Args:
        folder: where the files are written.
        segment_s: as in ``Package``.
        published: how many segments of each track an earlier run has published; they are not written again.
    """

    def __init__(self, folder: Path, *, segment_s: Fraction, published: Mapping[str, int] | None = None) -> None:
        self._folder = folder
        self._segment_s = segment_s
        self._promised_s = 0  # the target duration that playlists state from the beginning
        self._published = dict(published or {})
        self._tracks: dict[str, _Growing] = {}

    def add(self, parts: Sequence[TrackPart], *, is_last: bool) -> list[str]:
        """Take the next part of the tracks, write the segments that it completes, and return the new files.

        A track of sound without samples in a part is left out of ``parts``, but the first call must have all tracks.
        The video of the next part must begin with a keyframe where the video of this part ends.

        Raises ProofFailed: the part does not continue its track; Unsupported: a segment would be longer than promised;
        StorageFailed.
        """
        new: list[str] = []
        for part in parts:
            name = part.given.name
            if name in self._tracks:
                self._tracks[name].extend(part)
            else:
                self._tracks[name] = _Growing.of(part)
                new += self._write_header(self._tracks[name])
        if not self._promised_s:
            videos = [each.proven.samples for each in self._of(PlayedKind.VIDEO)]
            longest_s = max(int(each.durations.max()) * each.time_base for each in videos)
            self._promised_s = max(1, floor(self._segment_s + longest_s + Fraction(1, 2)))
        ends_s: list[Fraction] | None = None
        for track in self._of(PlayedKind.VIDEO):
            found = _complete(track.proven.samples, self._segment_s, is_last=is_last)
            starts = starts_s(track.proven.samples, found) if found else []
            if found and not is_last:
                starts[-1] = _end_s(track.proven.samples, found[-1])
            if ends_s is not None:
                check_aligned(self._of(PlayedKind.VIDEO)[0].proven, track.proven, ends_s, starts)
            ends_s = ends_s if ends_s is not None else starts
            new += self._write(track, found)
        for track in self._of(PlayedKind.AUDIO):
            cuts = _cut_sound(track.proven.samples, ends_s or [], self._segment_s, is_last=is_last)
            new += self._write(track, cuts)
        return new

    @property
    def segments(self) -> dict[str, int]:
        """How many segments each track has."""
        return {name: len(each.segments) for name, each in self._tracks.items()}

    def package(self, stage: PackageStage) -> Package:
        """Return the package of all segments that have been written."""
        tracks = (
            packaged(each.proven, each.segments, header_bytes=each.header_bytes)
            for each in self._tracks.values()
            if each.segments
        )
        return Package(
            tracks=tuple(tracks),
            layout=Layout.FILES,
            segment_s=self._segment_s,
            stage=stage,
            promised_s=self._promised_s,
        )

    def _of(self, kind: PlayedKind) -> "list[_Growing]":
        return [each for each in self._tracks.values() if each.proven.given.kind is kind]

    def _is_published(self, track: "_Growing", number: int) -> bool:
        return number <= self._published.get(track.proven.given.name, 0)

    def _write_header(self, track: "_Growing") -> list[str]:
        name = header_file(track.proven.given)
        if self._is_published(track, 1):
            return []
        with written(self._folder / name) as file:
            file.write(track.header)
        return [name]

    def _write(self, track: "_Growing", found: Sequence[SampleCut]) -> list[str]:
        new = []
        for number, cut in enumerate(found[len(track.segments) :], len(track.segments) + 1):
            name = segment_file(track.proven.given, number)
            if self._is_published(track, number):
                track.write(BytesIO(), cut)
            else:
                with written(self._folder / name) as file:
                    track.write(file, cut)
                new.append(name)
            self._check_length(track, track.segments[-1])
        return new

    def _check_length(self, track: "_Growing", segment: PackagedSegment) -> None:
        length_us = round(segment.duration_ticks * track.proven.samples.time_base * MICROSECONDS)
        if (length_us + MICROSECONDS // 2) // MICROSECONDS > self._promised_s:
            at_s = segment.start_ticks * track.proven.samples.time_base
            message = (
                f"the segment of {track.proven.given.name} at {float(at_s):.3f} s lasts "
                f"{length_us / MICROSECONDS:.3f} s, but the playlists promise "
                f"{self._promised_s} s at most: the recording has a gap there"
            )
            raise Unsupported(message, "Make the ladder of the finished file, without --follow.")


@dataclass(slots=True)
class _Growing:
    """A track, as far as its parts have arrived."""

    proven: ProvenTrack
    header: bytes
    writer: TrackWriter
    pending: "_Pending"
    segments: list[PackagedSegment] = field(default_factory=list)

    @classmethod
    def of(cls, part: TrackPart) -> Self:
        proven, pending = read_proven(part.given), _Pending()
        proven = replace(proven, header=without_rates(proven.header))
        samples = _moved(proven.samples, part)
        if part.given.kind is PlayedKind.VIDEO:
            step = int(samples.durations.max())
            samples = replace(samples, delay_least=max(samples.delay, part.reorder_frames * step))
        proven = replace(proven, samples=samples)
        pending.take(part)
        header = cmaf_header(proven.header, end=None, edit=samples.hidden + samples.delay)
        return cls(proven, header, TrackWriter(proven, pending), pending)

    @property
    def header_bytes(self) -> int:
        return len(self.header)

    def extend(self, part: TrackPart) -> None:
        found, samples = read_proven(part.given), self.proven.samples
        given = self.proven.given
        later = _moved(found.samples, part)
        if (without_rates(found.header).descriptions, later.time_base) != (
            self.proven.header.descriptions,
            samples.time_base,
        ):
            raise ProofFailed(f"a later part of {given.name} was encoded with other parameter sets", _ADVICE)
        if int(later.decode[0]) < samples.end:
            raise ProofFailed(f"a later part of {given.name} begins before the previous part ends", _ADVICE)
        joined = replace(
            samples,
            pts=np.concatenate([samples.pts, later.pts]),
            sizes_bytes=np.concatenate([samples.sizes_bytes, later.sizes_bytes]),
            is_key=np.concatenate([samples.is_key, later.is_key]),
            end=later.end,
        )
        if joined.delay > samples.delay:
            raise ProofFailed(f"a later part of {given.name} reorders more pictures than its header allows", _ADVICE)
        given = replace(given, later=(*given.later, LaterPart(part.given.path, part.ticks(samples.time_base))))
        self.proven = self.writer.proven = replace(self.proven, given=given, samples=joined)
        self.pending.take(part)

    def write(self, file: IO[bytes], cut: SampleCut) -> None:
        place = self.header_bytes + sum(each.size_bytes for each in self.segments)
        self.segments.append(self.writer.segment(file, cut, place, begins_with=SEGMENT_TYPE))


class _Pending:
    """Iterates over the packets that are not in a segment yet. At the end it stops; ``take`` lets it continue."""

    def __init__(self) -> None:
        self._packets: deque[Packet[Stream]] = deque()

    def take(self, part: TrackPart) -> None:
        with packets_of(part.given) as (_, packets):
            for packet in packets:
                if packet.pts is not None:
                    packet.pts += part.ticks(Fraction(packet.time_base or 1))
                self._packets.append(packet)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> "Packet[Stream]":
        if not self._packets:
            raise StopIteration
        return self._packets.popleft()


def _moved(samples: Samples, part: TrackPart) -> Samples:
    ticks = part.ticks(samples.time_base)
    return replace(samples, pts=samples.pts + ticks, end=samples.end + ticks)


def _end_s(samples: Samples, cut: SampleCut) -> Fraction:
    end = int(samples.decode[cut.end]) if cut.end < len(samples.pts) else samples.end
    return end * samples.time_base


def _complete(samples: Samples, segment_s: Fraction, *, is_last: bool) -> list[SampleCut]:
    """Return the segments of video that no later part changes; the next part begins with a keyframe."""
    cuts = cut_on_grid(samples, segment_s)
    begin, step = int(samples.pts[0]), segment_s / samples.time_base
    last = int(samples.pts[cuts[-1].fragments[0]])
    is_whole = is_last or (samples.end - begin) // step > (last - begin) // step
    return cuts if is_whole else cuts[:-1]


def _cut_sound(samples: Samples, video_s: Sequence[Fraction], segment_s: Fraction, *, is_last: bool) -> list[SampleCut]:
    """Return the complete segments of sound. ``video_s`` is where segments of video begin, and where the last ends."""
    if is_last:
        return cut_at(samples, sound_cuts_s(video_s, samples.end * samples.time_base, segment_s))
    if not video_s:
        return []
    limit = int(np.searchsorted(samples.pts, ceil(video_s[-1] / samples.time_base)))
    return [each for each in cut_at(samples, video_s[1:]) if each.end <= limit]
