"""Checks, before a package is published, that players read the packets of the proven files from it."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from fractions import Fraction
from itertools import accumulate, chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...actors.bitstream.access_points import RandomAccess, random_access_kind
from ...actors.media.av_stream import extradata
from ...actors.media.location import HeldSource
from ...actors.media.structure import Read, reader_of
from ...errors import ProofFailed
from ..join.spool import storage_error
from .boxes.codec_strings import codec_string
from .boxes.protection import stated_protection
from .boxes.reading import StatedFragment, StatedHeader, StatedSample, stated_fragments, stated_header, stated_index
from .files import JoinedFiles
from .names import track_files
from .proven import last_part, packets_in, packets_of
from .samples import sound_cuts_s
from .text import check_text
from .values import GivenTrack, Layout, Package, PackagedSegment, PackagedTrack, PlayedKind

if TYPE_CHECKING:
    from av.packet import Packet
    from av.stream import Stream

_ADVICE: Final = "Nothing was published. Please report this error together with the input and the options."
_SURELY_SEALED_BYTES: Final = {PlayedKind.VIDEO: 4096, PlayedKind.AUDIO: 16}
"""A packet of at least this size has encrypted bytes. A smaller one may be only headers, or less than an AES block."""
_BEGINNINGS: Final = frozenset({RandomAccess.IDR, RandomAccess.CRA, RandomAccess.FLAGGED})


def check_package(folder: Path, package: Package) -> None:
    """Read a written package back, and compare it with ``package`` and with the proven files.

    Every packet must have the bytes and the time of its packet in the proven file. Segments must have the positions and
    times in ``package``, begin with keyframes, and adjoin. All video tracks must have the same segments. Raises
    ProofFailed, which names the track and the segment; StorageFailed.
    """
    for track in package.tracks:
        with _naming(track.given.name):
            _check_files(folder, package.layout, track)
            if track.given.kind is PlayedKind.TEXT:
                check_text(folder / track_files(track.given, package.layout, 1)[0], track.given)
            else:
                _check_track(folder, package, track)
    _check_aligned(package)


def _check_track(folder: Path, package: Package, track: PackagedTrack) -> None:
    names = track_files(track.given, package.layout, len(track.segments))
    with JoinedFiles([folder / name for name in names]) as file:
        read = reader_of(file)
        header = stated_header(read)
        _check_header(track, header)
        _check_index(read, track)
        fragments = [_fragments(read, track, number, package.layout) for number in range(len(track.segments))]
        _check_times(track, header, fragments)
        _check_cuts(package, track, header, fragments)
        source = HeldSource.of(file) or ""
        _check_packets(track, header, fragments, source)
        if track.key is not None:
            _check_sealed(track.given, source)


@contextmanager
def _naming(place: str) -> Iterator[None]:
    """Put ``place``, a track or a segment, before the message of an error."""
    try:
        yield
    except ProofFailed as error:
        raise ProofFailed(f"{place}: {error.message}", error.next_step) from error
    except OSError as error:
        raise storage_error(error, place) from error


def _segment(number: int) -> AbstractContextManager[None]:
    """Put a segment before the message of an error; ``number`` counts from 0, the message from 1."""
    return _naming(f"segment {number + 1}")


def _require(holds: object, message: str) -> None:
    if not holds:
        raise ProofFailed(message, _ADVICE)


def _check_files(folder: Path, layout: Layout, track: PackagedTrack) -> None:
    """Check that the track has its files with the sizes in ``track``, and no others, and that its segments adjoin."""
    names = track_files(track.given, layout, len(track.segments))
    sizes_bytes = [(folder / name).stat().st_size if (folder / name).is_file() else -1 for name in names]
    parts = [track.header_bytes + track.index_bytes, *(each.size_bytes for each in track.segments)]
    stated = parts if len(names) > 1 else [sum(parts)]
    for name, size_bytes, due in zip(names, sizes_bytes, stated, strict=True):
        _require(size_bytes == due, f"{name} has {size_bytes} bytes instead of {due}")
    if layout is Layout.FILES and track.given.kind is not PlayedKind.TEXT:
        others = {f"{track.given.name}/{each.name}" for each in (folder / track.given.name).iterdir()} - set(names)
        _require(not others, f"the folder holds {', '.join(sorted(others))}, which is no file of the track")
    ends = accumulate(parts)
    for number, (segment, begin) in enumerate(zip(track.segments, ends, strict=False)):
        with _segment(number):
            _require(segment.offset_bytes == begin, f"it begins at byte {begin}, not {segment.offset_bytes}")


def _check_header(track: PackagedTrack, header: StatedHeader) -> None:
    _require(b"cmfc" in header.brands, f"the header lacks the brand cmfc: {b' '.join(header.brands).decode('latin-1')}")
    _require(header.size_bytes == track.header_bytes, f"the header ends at byte {header.size_bytes}")
    _require(header.tracks == 1, f"the header has {header.tracks} tracks")
    _require(Fraction(1, header.timescale) == track.time_base, f"a tick is 1/{header.timescale} s")
    entry = header.sample_entry
    if track.key is not None:
        entry, *stated = stated_protection(entry)
        _require(stated == [track.key.scheme, track.key.kid], "the header states another scheme or key")
    found = codec_string(entry)
    _require(found == track.codec, f"the codec is {found}, not {track.codec}")


def _check_index(read: Read, track: PackagedTrack) -> None:
    if not track.index_bytes:
        return
    index = stated_index(read, track.header_bytes)
    _require(Fraction(1, index.timescale) == track.time_base, f"the segment index has ticks of 1/{index.timescale} s")
    first = track.segments[0]
    _require(index.start == first.start_ticks, f"the segment index begins at {index.start}, not {first.start_ticks}")
    _require(not index.first_offset, f"the segment index skips {index.first_offset} bytes")
    _require(index.size_bytes == track.index_bytes, f"the segment index has {index.size_bytes} bytes")
    for number, (stated, segment) in enumerate(zip_longest(index.segments, track.segments)):
        with _segment(number):
            _require(
                stated is not None and segment is not None, "it is missing from the segment index or from the package"
            )
            due = segment.size_bytes, segment.duration_ticks, True
            _require(stated == due, f"the index states bytes, ticks and keyframe {tuple(stated)} instead of {due}")


def _fragments(read: Read, track: PackagedTrack, number: int, layout: Layout) -> list[StatedFragment]:
    segment = track.segments[number]
    with _segment(number):
        brands, found = stated_fragments(read, segment.offset_bytes, segment.offset_bytes + segment.size_bytes)
        _require(found, "it has no fragment")
        due = layout is Layout.FILES
        _require((b"cmfs" in brands) is due, f"its brands are {b' '.join(brands).decode('latin-1') or 'missing'}")
        if track.given.kind is not PlayedKind.VIDEO:
            return found
        keyframe_bytes = found[0].first_sample_end - segment.offset_bytes
        _require(segment.keyframe_bytes == keyframe_bytes, f"its keyframe ends at byte {keyframe_bytes}")
        for each in found:
            keys = [sample.is_key for sample in each.samples]
            _require(keys[0], f"the fragment at tick {each.decode} does not begin with a keyframe")
        return found


def _check_times(track: PackagedTrack, header: StatedHeader, fragments: Sequence[Sequence[StatedFragment]]) -> None:
    """Check that fragments are numbered from 1 and adjoin, and that segments have the times of their fragments."""
    due, count, lead = fragments[0][0].decode, 0, _lead(track, header)
    for number, (segment, found) in enumerate(zip(track.segments, fragments, strict=True)):
        with _segment(number):
            for each in found:
                count += 1
                _require(each.number == count, f"a fragment has the number {each.number} instead of {count}")
                _require(each.decode == due, f"a fragment begins at tick {each.decode} instead of {due}")
                due += sum(sample.duration for sample in each.samples)
            begin = max(0, found[0].decode - lead)
            _require(begin == segment.start_ticks, f"it begins at tick {begin}, not {segment.start_ticks}")
            ticks = due - lead - begin
            _require(ticks == segment.duration_ticks, f"it lasts {ticks} ticks, not {segment.duration_ticks}")


def _check_cuts(
    package: Package, track: PackagedTrack, header: StatedHeader, fragments: Sequence[Sequence[StatedFragment]]
) -> None:
    """Check that video segments begin at the first keyframe at or after each multiple of ``package.segment_s``.

    Segments of sound must begin at the first sample at or after each of ``sound_cuts_s``.
    """
    videos = package.of(PlayedKind.VIDEO)
    if track.given.kind is PlayedKind.VIDEO:
        times = [each.decode for found in fragments for each in found]
        step = package.segment_s / track.time_base
        wanted = [times[0] + number * step for number in range(int((times[-1] - times[0]) // step) + 1)]
    elif videos:
        times = [decode for decode, _ in _stated_times(track, header, fragments)]
        cuts_s = sound_cuts_s(_begins_s(videos[0]), _begins_s(track)[-1], package.segment_s)
        wanted = [each / track.time_base for each in cuts_s]
    else:
        return
    places = {bisect_left(times, each) for each in wanted} | {0}
    due = [max(0, times[place]) for place in sorted(places) if place < len(times)]
    starts = [each.start_ticks for each in track.segments]
    for number, (start, expected) in enumerate(zip_longest(starts, due)):
        with _segment(number):
            _require(start == expected, f"it begins at tick {start}, but is due at {expected}")


def _begins_s(track: PackagedTrack) -> list[Fraction]:
    """Return the times at which segments begin, and the time at which the last one ends."""
    last = track.segments[-1]
    ticks = [*(each.start_ticks for each in track.segments), last.start_ticks + last.duration_ticks]
    return [each * track.time_base for each in ticks]


def _check_packets(
    track: PackagedTrack, header: StatedHeader, fragments: Sequence[Sequence[StatedFragment]], source: str
) -> None:
    """Compare each packet, as the boxes state it and as a demuxer yields it, with that of the proven file."""
    ends = list(accumulate(sum(len(each.samples) for each in found) for found in fragments))
    stated = _stated_times(track, header, fragments)
    delay = header.edit - _lead(track, header)
    shown, decoded, end = array("q"), array("q"), 0
    with packets_of(track.given) as (_, proven), packets_in(source, track.key) as (stream, packaged):
        for number, (one, other, each) in enumerate(zip_longest(proven, packaged, stated)):
            with _segment(min(bisect_right(ends, number), len(ends) - 1)):
                if one is None or other is None or each is None:
                    raise ProofFailed(f"packet {number} is missing from the proven file or from the package", _ADVICE)
                decode, sample = each
                pts = decode + sample.offset - delay
                _compare(one, other, pts, sample)
                if number in (0, *ends) and track.given.kind is PlayedKind.VIDEO:
                    kind = random_access_kind(stream.codec_context.name, bytes(other), extradata(stream))
                    _require(kind in _BEGINNINGS, f"its first picture is not a keyframe: {kind.value}")
                shown.append(pts)
                decoded.append(decode)
                end = (one.pts or 0) + (one.duration or 0)
    if track.given.kind is PlayedKind.VIDEO:
        end = _stated_end(track.given)
    last = track.segments[-1]
    _require(sorted(shown) == list(decoded), "decoding times are not the presentation times in ascending order")
    if end:
        ticks = last.start_ticks + last.duration_ticks
        _require(ticks == end, f"the track ends at tick {ticks}, but the proven file at {end}")


def _check_sealed(given: GivenTrack, source: str) -> None:
    """Check that a reader without the key does not get the packets of the proven file."""
    with packets_of(given) as (_, proven), packets_in(source, parsed=False) as (_, sealed):
        for one, other in zip(proven, sealed, strict=True):
            is_sealed = one.size < _SURELY_SEALED_BYTES[given.kind] or bytes(one) != bytes(other)
            _require(is_sealed, f"the packet at tick {one.pts} is not encrypted")


def _stated_end(given: GivenTrack) -> int:
    """Return when the video ends, in ticks, as the proven file or its last part states; 0 if the file does not."""
    part, offset = last_part(given)
    with packets_of(part) as (stream, _):
        if stream.start_time is None or stream.duration is None:
            return 0
        return offset + stream.start_time + stream.duration


def _lead(track: PackagedTrack, header: StatedHeader) -> int:
    """Return how many ticks of sound an edit list hides; decoding times in boxes are that much later. 0 for video."""
    return header.edit if track.given.kind is PlayedKind.AUDIO else 0


def _stated_times(
    track: PackagedTrack, header: StatedHeader, fragments: Sequence[Sequence[StatedFragment]]
) -> Iterator[tuple[int, StatedSample]]:
    """Yield the decoding time of each sample, in ticks after time 0 of the package, and the sample."""
    for each in chain.from_iterable(fragments):
        decode = each.decode - _lead(track, header)
        for sample in each.samples:
            yield decode, sample
            decode += sample.duration


def _compare(one: "Packet[Stream]", other: "Packet[Stream]", pts: int, sample: StatedSample) -> None:
    at = f"the packet at tick {one.pts}"
    _require(bytes(one) == bytes(other), f"{at} has other bytes than in the proven file")
    _require(one.pts == other.pts == pts, f"{at} is shown at tick {other.pts}, or {pts} by its boxes")
    keys = one.is_keyframe, other.is_keyframe, sample.is_key
    _require(
        len(set(keys)) == 1, f"the proven file, the package and its boxes disagree whether {at} is a keyframe: {keys}"
    )


def _check_aligned(package: Package) -> None:
    """Check that all video tracks have the same segments at the same times."""
    videos = package.of(PlayedKind.VIDEO)
    for track in videos[1:]:
        for number, (one, other) in enumerate(zip_longest(videos[0].segments, track.segments)):
            place = f"segment {number + 1} differs between {videos[0].given.name} and {track.given.name}"
            _require(_span_s(videos[0], one) == _span_s(track, other), place)


def _span_s(track: PackagedTrack, segment: PackagedSegment | None) -> tuple[Fraction, Fraction] | None:
    if segment is None:
        return None
    return segment.start_ticks * track.time_base, segment.duration_ticks * track.time_base
