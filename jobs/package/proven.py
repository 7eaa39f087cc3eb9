"""Reads the tracks of proven mp4 files: their headers and their packets."""

from array import array
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import av.error
import numpy as np

from ...actors.limits import NO_LIMITS
from ...actors.media.av_abi import structures
from ...actors.media.headers import TrackEnd, track_end
from ...actors.media.opening import open_bytes, open_source
from ...actors.media.structure import Read, reader_of
from ...errors import InputError, ProofFailed
from .boxes.header import ProvenHeader, proven_header
from .samples import Samples
from .values import GivenTrack, LaterPart, PlayedKind, TrackKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.packet import Packet
    from av.stream import Stream

    _Opened: TypeAlias = tuple[Stream, Iterator[Packet[Stream]]]

_ADVICE: Final = "Please report this error together with the file."
_READ_BACK: Final = "Nothing was published. Please report this error together with the input and the options."
_RANGES: Final = {16: "PQ", 18: "HLG"}  # transfer characteristics of H.273 that are HDR


@dataclass(frozen=True, slots=True)
class ProvenTrack:
    """A track of a proven file: its header, its samples, and the values that manifests state about it."""

    given: GivenTrack
    header: ProvenHeader
    samples: Samples
    video_range: str = ""
    channels: int = 0
    sample_rate_hz: int = 0


@contextmanager
def packets_of(given: GivenTrack) -> "Iterator[_Opened]":
    """Open a proven file, and yield a track's stream and its packets in decoding order, with those of later parts.

    Raises ProofFailed: a file cannot be read, or has no such track.
    """
    with _part(given, given.path) as (stream, packets):
        yield stream, chain(packets, *(_moved(given, each) for each in given.later))


def _moved(given: GivenTrack, part: LaterPart) -> "Iterator[Packet[Stream]]":
    with _part(given, part.path) as (_, packets):
        for packet in packets:
            if packet.pts is not None:
                packet.pts += part.offset_ticks
            yield packet


def _part(given: GivenTrack, path: Path) -> AbstractContextManager["_Opened"]:
    return _opened(str(path), given.stream, f"{path}, for {given.name},", _ADVICE)


def packets_in(source: str, key: TrackKey | None = None, *, parsed: bool = True) -> AbstractContextManager["_Opened"]:
    """Open a written track, and yield its stream and its packets, decrypted with ``key``.

    Unless ``parsed``, packets are as the boxes state them; no parser reads their content. Raises ProofFailed: the track
    cannot be read.
    """
    return _opened(source, 0, "the track", _READ_BACK, key=None if key is None else key.key, parsed=parsed)


@contextmanager
def _opened(
    source: str, number: int, words: str, advice: str, *, key: bytes | None = None, parsed: bool = True
) -> "Iterator[_Opened]":
    try:
        with open_source(source, limits=NO_LIMITS, key=key, parsed=parsed) as opened:
            if number >= len(opened.streams):
                raise ProofFailed(f"{words} has no track {number}", advice)
            stream = opened.streams[number]
            yield stream, (packet for packet in opened.demux(stream) if packet.size)
    except (InputError, av.error.FFmpegError) as error:
        raise ProofFailed(f"{words} cannot be read back: {error}", advice) from error


def last_part(given: GivenTrack) -> tuple[GivenTrack, int]:
    """Return the track with only its last file, and the time at which that file begins, in ticks."""
    if not given.later:
        return given, 0
    return replace(given, path=given.later[-1].path, later=()), given.later[-1].offset_ticks


def read_proven(given: GivenTrack) -> ProvenTrack:
    """Read a track's header and its packets' times and sizes. Raises ProofFailed: the track cannot be packaged."""
    with open_bytes(str(given.path)) as file, packets_of(given) as (stream, packets):
        read = reader_of(file)
        samples = _samples(given, stream, packets, track_end(read, stream.id))
        parameters = structures(stream)[1]
        return ProvenTrack(
            given,
            _header(given, read, stream.id),
            samples,
            video_range=_RANGES.get(parameters.transfer, "SDR") if given.kind is PlayedKind.VIDEO else "",
            channels=parameters.channel_layout.channels if given.kind is PlayedKind.AUDIO else 0,
            sample_rate_hz=parameters.sample_rate if given.kind is PlayedKind.AUDIO else 0,
        )


def _header(given: GivenTrack, read: Read, track_id: int) -> ProvenHeader:
    try:
        return proven_header(read, track_id)
    except ProofFailed as error:
        raise ProofFailed(f"{given.name} in {given.path}: {error.message}", error.next_step) from error


def _samples(
    given: GivenTrack, stream: "Stream", packets: "Iterator[Packet[Stream]]", stated: TrackEnd | None
) -> Samples:
    rows, last = array("q"), None
    for packet in packets:
        if packet.pts is None:
            raise ProofFailed(f"a packet of {given.name} in {given.path} has no time", _ADVICE)
        if packet.is_discard and given.kind is PlayedKind.VIDEO:
            raise ProofFailed(f"{given.path} hides a picture of {given.name} at tick {packet.pts}", _ADVICE)
        rows.extend((packet.pts, packet.size, packet.is_keyframe))
        last = packet
    if last is None:
        raise ProofFailed(f"track {given.name} in {given.path} has no packets", _ADVICE)
    pts, sizes_bytes, is_key = np.frombuffer(rows, dtype=np.int64).reshape(-1, 3).T
    time_base = Fraction(stream.time_base or 1)
    end = int(pts[-1]) + (last.duration or 0)
    if given.kind is PlayedKind.VIDEO:
        # An edit list ends where the last picture does; a fragmented file has only the sum of its samples' durations.
        end = (stream.start_time or 0) + (stream.duration or 0)
        if stated is not None and stated.tick_s <= time_base:
            end = round(stated.end_s / time_base)
    samples = Samples(time_base, pts, sizes_bytes, is_key.astype(np.bool_), end)
    _check(given, samples)
    return samples


def _check(given: GivenTrack, samples: Samples) -> None:
    """Raise ProofFailed if a CMAF track cannot hold these samples with their times."""
    if (samples.durations <= 0).any():
        at = int(samples.decode[int(np.argmin(samples.durations))])
        raise ProofFailed(f"two samples of {given.name} are shown at tick {at}, or the last one has no end", _ADVICE)
    if given.kind is not PlayedKind.VIDEO and (samples.pts != samples.decode).any():
        raise ProofFailed(f"samples of {given.name} are not in the order of their times", _ADVICE)
    if given.kind is PlayedKind.VIDEO and samples.hidden:
        raise ProofFailed(f"{given.name} shows pictures before time 0", _ADVICE)
    if given.kind is PlayedKind.VIDEO:
        _check_keyframes(given, samples)


def _check_keyframes(given: GivenTrack, samples: Samples) -> None:
    if not samples.is_key[0]:
        raise ProofFailed(f"{given.name} does not begin with a keyframe", _ADVICE)
    is_mixed = samples.is_key & ~samples.is_start
    if is_mixed.any():
        at = int(samples.pts[int(np.argmax(is_mixed))])
        message = f"{given.name}: the keyframe at tick {at} lies between the decoding and the display of a picture"
        raise ProofFailed(message, "Encode with closed GOPs.")
