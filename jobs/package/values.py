"""A package as values: its tracks, their segments, and where the bytes of each are."""

from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path

MICROSECONDS = 1_000_000  #: In a second
IDENTITY = "identity"  #: The KEYFORMAT if the key's 16 bytes are at its ``uri``


class PlayedKind(StrEnum):
    """The kind of a track of a package."""

    VIDEO = "video"
    AUDIO = "audio"
    TEXT = "text"


class PackageStage(StrEnum):
    """How much of the film a package has."""

    WHOLE = "whole"  #: All of it, from the beginning
    GROWING = "growing"  #: The film's beginning; segments will be added at its end
    GROWN = "grown"  #: All of it, after it grew


class Layout(StrEnum):
    """How a track's bytes are laid out."""

    RANGES = "ranges"  #: One file for each track; playlists name byte ranges of it
    FILES = "files"  #: One file for each segment, and one for the header


class Scheme(StrEnum):
    """How samples are encrypted (ISO/IEC 23001-7). Sizes and times stay the same in both schemes."""

    CBCS = "cbcs"  #: AES-CBC of every tenth block of video and of all sound; HLS names it SAMPLE-AES
    CENC = "cenc"  #: AES-CTR of all video and sound, except headers


@dataclass(frozen=True, slots=True)
class TrackKey:
    """The key of a track. Only ``key`` is secret."""

    scheme: Scheme
    kid: bytes  #: The key's ID, 16 bytes
    key: bytes = field(repr=False)  #: 16 bytes
    uri: str = ""  #: Where HLS players find the key; "" if they know it
    format: str = IDENTITY  #: What is at ``uri``, as HLS names it: KEYFORMAT


@dataclass(frozen=True, slots=True)
class LaterPart:
    """A proven file that continues a track: the same stream, with times that count from ``offset_ticks``."""

    path: Path
    offset_ticks: int  #: The time of its tick 0, in ticks of the track


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenTrack:
    """One track of a proven file, from which a track of the package is made."""

    name: str  #: Unique in the package; the tracks' files are named after it
    path: Path  #: The proven file (mp4)
    stream: int  #: The track's number in that file
    kind: PlayedKind
    language: str | None = None  #: BCP 47; None if unknown
    title: str = ""
    is_default: bool = False
    is_forced: bool = False  #: Subtitles to show even if the viewer wants none
    groups: tuple[str, ...] = ()  #: The groups of sound that have it; () for a group by codec and channels
    later: tuple[LaterPart, ...] = ()  #: The files that continue ``path``, in order


@dataclass(frozen=True, slots=True)
class PackagedSegment:
    """One segment of a track. Times are ticks of the track; positions are relative to the track's bytes."""

    start_ticks: int  #: The time of its first picture or sample
    duration_ticks: int
    offset_bytes: int  #: From the beginning of the track's bytes, including its header
    size_bytes: int
    keyframe_bytes: int = 0  #: How many of its first bytes suffice to show its first picture; 0 for sound and text


@dataclass(frozen=True, kw_only=True)
class PackagedTrack:
    """One track of a package, as playlists describe it."""

    given: GivenTrack
    codec: str  #: By RFC 6381, such as ``avc1.640028``; "" for text
    supplemental_codec: str = ""  #: A second codec string for players that know it, such as ``dvh1.08.07/db4h``
    time_base: Fraction  #: The duration of a tick, in seconds
    segments: tuple[PackagedSegment, ...]
    header_bytes: int = 0  #: The size of the header (``ftyp`` and ``moov``), with which the track's bytes begin
    index_bytes: int = 0  #: The size of the segment index (``sidx``) right after the header; 0 without one
    width: int = 0  #: In pixels, as a player shows the picture
    height: int = 0
    frame_rate: Fraction | None = None  #: The average rate; None for sound and text
    video_range: str = ""  #: ``SDR``, ``HLG`` or ``PQ``; "" for sound and text
    channels: int = 0
    dolby_channels: str = ""  #: The channel map of AC-3 and E-AC-3, such as ``F801`` for 5.1; "" for other codecs
    sample_rate_hz: int = 0
    key: TrackKey | None = None  #: None if the track is clear
    pssh: tuple[bytes, ...] = ()  #: The boxes of its header that tell key systems the key's ID

    @property
    def duration_s(self) -> Fraction:
        """The duration of all segments together."""
        return sum(each.duration_ticks for each in self.segments) * self.time_base

    @property
    def mean_bps(self) -> int:
        """The average bitrate of the segments."""
        return _rate_bps(sum(each.size_bytes for each in self.segments), sum(self.durations_us))

    @cached_property
    def durations_us(self) -> tuple[int, ...]:
        """The segments' durations in microseconds. Only the ends are rounded, so the sum is off by at most 0.5 µs."""
        ticks = accumulate((each.duration_ticks for each in self.segments), initial=0)
        ends = [round(each * self.time_base * MICROSECONDS) for each in ticks]
        return tuple(end - begin for begin, end in pairwise(ends))

    @cached_property
    def longest_s(self) -> int:
        """The longest duration of a segment, rounded to seconds as HLS requires; at least 1."""
        return max(1, (max(self.durations_us) + MICROSECONDS // 2) // MICROSECONDS)

    def peak_bps(self, target_s: int) -> int:
        """Return the peak segment bitrate as HLS defines it.

        That is the largest bitrate of a run of adjoining segments that together last 0.5 to 1.5 times ``target_s``, so
        a very short segment counts with its neighbours. Without such a run it is the average bitrate.
        """
        shortest_us, longest_us = target_s * MICROSECONDS // 2, target_s * MICROSECONDS * 3 // 2
        ends_us = tuple(accumulate(self.durations_us, initial=0))
        ends_bytes = tuple(accumulate((each.size_bytes for each in self.segments), initial=0))
        rates = [0]
        for first in range(len(self.segments)):
            for end in range(first + 1, len(ends_us)):
                duration_us = ends_us[end] - ends_us[first]
                if duration_us > longest_us:
                    break
                if duration_us >= shortest_us:
                    rates.append(_rate_bps(ends_bytes[end] - ends_bytes[first], duration_us))
        return max(rates) or self.mean_bps


def _rate_bps(size_bytes: int, duration_us: int) -> int:
    """Return a bitrate, rounded up, so that no player measures more than the stated one."""
    return -(-size_bytes * 8 * MICROSECONDS // duration_us)


@dataclass(frozen=True, kw_only=True)
class Package:
    """All tracks of a package. The video tracks show the same pictures at the same times, with the same segments."""

    tracks: tuple[PackagedTrack, ...]
    layout: Layout
    segment_s: Fraction  #: A segment begins with the first keyframe at or after each multiple of this time
    stage: PackageStage = PackageStage.WHOLE
    promised_s: int | None = None  #: The target duration that was stated before all segments were known

    def of(self, kind: PlayedKind) -> tuple[PackagedTrack, ...]:
        """Return the tracks of one kind, in their order."""
        return tuple(track for track in self.tracks if track.given.kind is kind)

    def target_s(self, track: PackagedTrack) -> int:
        """Return the target duration of a track's HLS playlist in seconds, the same for all video and sound."""
        if self.promised_s is not None:
            return self.promised_s
        alike = (
            (track,)
            if track.given.kind is PlayedKind.TEXT
            else (*self.of(PlayedKind.VIDEO), *self.of(PlayedKind.AUDIO))
        )
        return max(each.longest_s for each in alike)

    def peak_bps(self, track: PackagedTrack) -> int:
        """Return a track's peak segment bitrate as HLS defines it."""
        return track.peak_bps(self.target_s(track))
