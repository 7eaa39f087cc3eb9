"""Writes the tracks of a package: CMAF (ISO/IEC 23000-19) from proven files, whose packets stay as they are.

Each track is read twice: first the times and sizes of its packets, which decide the cuts of all tracks, then the
packets themselves, one at a time.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Final

from ...errors import ProofFailed
from ..join.spool import storage_error
from .boxes.codec_strings import codec_string, supplemental_codec
from .boxes.dolby import dolby_channels
from .boxes.fragments import SEGMENT_TYPE, Reference, SampleCipher, SampleRun, fragment_head, index_size, segment_index
from .boxes.header import cmaf_header, protected
from .names import header_file, segment_file, track_file
from .proven import ProvenTrack, packets_in, packets_of, read_proven
from .samples import SampleCut, Samples, cut_at, cut_on_grid, sound_cuts_s
from .sealing import Sealed, seal
from .text import MILLISECOND, webvtt_of
from .values import GivenTrack, Layout, Package, PackagedSegment, PackagedTrack, PlayedKind, TrackKey

if TYPE_CHECKING:
    from av.packet import Packet
    from av.stream import Stream

_ADVICE: Final = "Nothing was published. Please report this error together with the input and the options."


def write_tracks(
    given: Sequence[GivenTrack],
    folder: Path,
    *,
    segment_s: Fraction,
    layout: Layout,
    keys: Mapping[str, TrackKey] | None = None,
) -> Package:
    """Write the tracks of proven files into an existing folder, and return the package that they form.

    With ``keys``, by the tracks' names, pictures and sound are encrypted; temporary files then appear beside
    ``folder``.

    Raises ProofFailed: a track cannot become a CMAF track, or two video tracks do not have the same segments;
    Unsupported: a codec has no codec string, there are too many segments, or one is too large; StorageFailed.
    """
    proven = {each.name: read_proven(each) for each in given if each.kind is not PlayedKind.TEXT}
    cuts = _cuts(list(proven.values()), segment_s)
    span_s = _span_s(list(proven.values()))
    tracks = tuple(
        _write_text(each, folder, span_s)
        if each.kind is PlayedKind.TEXT
        else _write_track(proven[each.name], cuts[each.name], folder, layout)
        if keys is None
        else _write_sealed(proven[each.name], cuts[each.name], folder, layout, keys[each.name])
        for each in given
    )
    return Package(tracks=tracks, layout=layout, segment_s=segment_s)


def _cuts(proven: Sequence[ProvenTrack], segment_s: Fraction) -> dict[str, list[SampleCut]]:
    """Return each track's segments. Sound is cut where video is cut, or without video every ``segment_s``."""
    videos = [each for each in proven if each.given.kind is PlayedKind.VIDEO]
    cuts = {each.given.name: cut_on_grid(each.samples, segment_s) for each in videos}
    starts = [starts_s(each.samples, cuts[each.given.name]) for each in videos]
    for each, found in zip(videos, starts, strict=True):
        check_aligned(videos[0], each, starts[0], found)
    for each in proven:
        if each.given.kind is PlayedKind.AUDIO:
            end_s = each.samples.end * each.samples.time_base
            boundaries_s = (
                sound_cuts_s(starts[0], end_s, segment_s) if videos else _multiples_s(each.samples, segment_s)
            )
            cuts[each.given.name] = cut_at(each.samples, boundaries_s)
    return cuts


def _multiples_s(samples: Samples, segment_s: Fraction) -> list[Fraction]:
    """Return the times at which sound without video is cut: every ``segment_s`` after its beginning."""
    begin_s, end_s = max(Fraction(0), samples.time_s(0)), samples.end * samples.time_base
    return [begin_s + number * segment_s for number in range(1, ceil((end_s - begin_s) / segment_s))]


def starts_s(samples: Samples, cuts: Sequence[SampleCut]) -> list[Fraction]:
    """Return the time at which each segment begins, and the time at which the last one ends."""
    return [*(samples.time_s(cut.fragments[0]) for cut in cuts), samples.end * samples.time_base]


def check_aligned(one: ProvenTrack, other: ProvenTrack, ones: Sequence[Fraction], others: Sequence[Fraction]) -> None:
    """Check that two tracks have segments at the same times. Raises ProofFailed."""
    pair = f"{one.given.name} and {other.given.name}"
    for number, (a, b) in enumerate(zip(ones, others, strict=False), start=1):
        if a != b:
            message = f"{pair}: segment {number} begins, or the track ends, at {_words(a)} and at {_words(b)}"
            raise ProofFailed(message, _ADVICE)
    if len(ones) != len(others):
        raise ProofFailed(f"{pair} have {len(ones) - 1} and {len(others) - 1} segments", _ADVICE)


def _words(time_s: Fraction) -> str:
    return f"{float(time_s):.6f} s"


def _span_s(proven: Sequence[ProvenTrack]) -> tuple[Fraction, Fraction]:
    """Return the times at which the video, or without video all tracks together, begin and end."""
    shown = [each for each in proven if each.given.kind is PlayedKind.VIDEO] or proven
    begins = [each.samples.time_s(0) for each in shown]
    ends = [each.samples.end * each.samples.time_base for each in shown]
    return max(Fraction(0), min(begins, default=Fraction(0))), max(ends, default=MILLISECOND)


def _write_text(given: GivenTrack, folder: Path, span_s: tuple[Fraction, Fraction]) -> PackagedTrack:
    data = webvtt_of(given).encode()
    with written(folder / track_file(given)) as file:
        file.write(data)
    begin, end = (round(each / MILLISECOND) for each in span_s)
    segment = PackagedSegment(begin, max(1, end - begin), 0, len(data))
    return PackagedTrack(given=given, codec="", time_base=MILLISECOND, segments=(segment,))


def _write_sealed(
    proven: ProvenTrack, cuts: Sequence[SampleCut], folder: Path, layout: Layout, key: TrackKey
) -> PackagedTrack:
    with TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as beside:
        clear = Path(beside) / track_file(_write_track(proven, cuts, Path(beside), Layout.RANGES).given)
        return _write_track(proven, cuts, folder, layout, seal(clear, key))


def _write_track(
    proven: ProvenTrack, cuts: Sequence[SampleCut], folder: Path, layout: Layout, sealed: Sealed | None = None
) -> PackagedTrack:
    given, samples, ciphers = proven.given, proven.samples, () if sealed is None else sealed.ciphers
    codec_string(proven.header.sample_entry)  # raises an error, if any, before anything is written
    described = proven.header if sealed is None else protected(proven.header, sealed.information)
    pssh = () if sealed is None else sealed.pssh
    header = cmaf_header(described, end=samples.end, edit=samples.hidden + samples.delay, pssh=pssh)
    with packets_of(given) if sealed is None else packets_in(str(sealed.path), parsed=False) as (_, packets):
        writer = TrackWriter(proven, packets, ciphers)
        if layout is Layout.RANGES:
            index_bytes, segments = _write_ranges(writer, cuts, folder / track_file(given), header)
        else:
            index_bytes, segments = 0, _write_files(writer, cuts, folder, header)
    made = packaged(proven, segments, header_bytes=len(header), index_bytes=index_bytes)
    return made if sealed is None else replace(made, key=sealed.key, pssh=pssh)


def packaged(
    proven: ProvenTrack, segments: Sequence[PackagedSegment], *, header_bytes: int, index_bytes: int = 0
) -> PackagedTrack:
    """Return a track of a package whose segments were written. Raises Unsupported: its codec has no codec string."""
    given, samples, entry = proven.given, proven.samples, proven.header.sample_entry
    is_video = given.kind is PlayedKind.VIDEO
    width, height = proven.header.shown_size
    return PackagedTrack(
        given=given,
        codec=codec_string(entry),
        supplemental_codec=supplemental_codec(entry) if is_video else "",
        time_base=samples.time_base,
        segments=tuple(segments),
        header_bytes=header_bytes,
        index_bytes=index_bytes,
        width=width if is_video else 0,
        height=height if is_video else 0,
        frame_rate=_frame_rate(samples) if is_video else None,
        video_range=proven.video_range,
        channels=proven.channels,
        dolby_channels=dolby_channels(entry, proven.channels),
        sample_rate_hz=proven.sample_rate_hz,
    )


def _frame_rate(samples: Samples) -> Fraction:
    """Return the average rate, without the last of several pictures, which may be shown for any time."""
    count, end = (len(samples.pts) - 1, samples.decode[-1]) if len(samples.pts) > 1 else (1, samples.end)
    return count / (int(end - samples.decode[0]) * samples.time_base)


def _write_ranges(
    writer: "TrackWriter", cuts: Sequence[SampleCut], path: Path, header: bytes
) -> tuple[int, list[PackagedSegment]]:
    """Write the only file of a track. It first gets an empty segment index, which is filled in at the end."""
    with written(path) as file:
        index_bytes = index_size(len(cuts))
        file.write(header + bytes(index_bytes))
        segments = [writer.segment(file, cut, file.tell()) for cut in cuts]
        references = [Reference(each.size_bytes, each.duration_ticks) for each in segments]
        file.seek(len(header))
        timescale = writer.proven.header.timescale
        file.write(segment_index(timescale, segments[0].start_ticks, references))
    return index_bytes, segments


def _write_files(
    writer: "TrackWriter", cuts: Sequence[SampleCut], folder: Path, header: bytes
) -> list[PackagedSegment]:
    given, place, segments = writer.proven.given, len(header), list[PackagedSegment]()
    with written(folder / header_file(given)) as file:
        file.write(header)
    for number, cut in enumerate(cuts, start=1):
        with written(folder / segment_file(given, number)) as file:
            segments.append(writer.segment(file, cut, place, begins_with=SEGMENT_TYPE))
        place += segments[-1].size_bytes
    return segments


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing, and make its folder if needed. Raises StorageFailed."""
    try:
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            yield file
    except OSError as error:
        raise storage_error(error, path) from error


class TrackWriter:
    """Writes the segments of a track in order, with one packet in memory."""

    def __init__(
        self, proven: ProvenTrack, packets: "Iterator[Packet[Stream]]", ciphers: Sequence[SampleCipher] = ()
    ) -> None:
        self.proven = proven
        self._ciphers = ciphers
        self._packets = packets
        self._fragments = 0

    def segment(self, file: IO[bytes], cut: SampleCut, offset: int, *, begins_with: bytes = b"") -> PackagedSegment:
        """Write the next segment; ``offset`` is its position in the track's bytes.

        Raises ProofFailed: the proven file has changed since it was first read.
        """
        samples, (first, *_), end = self.proven.samples, cut.fragments, cut.end
        file.write(begins_with)
        size_bytes, keyframe_bytes = len(begins_with), 0
        for span in cut.spans:
            head = self._head(*span)
            file.write(head)
            size_bytes += len(head)
            if span[0] == first and self.proven.given.kind is PlayedKind.VIDEO:
                keyframe_bytes = size_bytes + int(samples.sizes_bytes[first])
            size_bytes += self._payloads(file, *span)
        start = max(0, int(samples.decode[first]))
        after = int(samples.decode[end]) if end < len(samples.pts) else samples.end
        return PackagedSegment(start, after - start, offset, size_bytes, keyframe_bytes)

    def _head(self, first: int, end: int) -> bytes:
        samples, given = self.proven.samples, self.proven.given
        self._fragments += 1
        decode = samples.decode[first:end]
        run = SampleRun(
            decode=int(decode[0]) + samples.hidden,
            durations=samples.durations[first:end].tolist(),
            sizes_bytes=samples.sizes_bytes[first:end].tolist(),
            offsets=(samples.pts[first:end] - decode + samples.delay).tolist(),
            is_video=given.kind is PlayedKind.VIDEO,
        )
        rolls, ciphers = bool(self.proven.header.rolls), self._ciphers[first:end]
        return fragment_head(self._fragments, run, rolls=rolls, ciphers=ciphers)

    def _payloads(self, file: IO[bytes], first: int, end: int) -> int:
        """Write the packets of a fragment, and return how many bytes they have."""
        samples, written = self.proven.samples, 0
        for number, packet in zip(range(first, end), islice(self._packets, end - first), strict=True):
            if (packet.pts, packet.size) != (int(samples.pts[number]), int(samples.sizes_bytes[number])):
                raise ProofFailed(f"{self.proven.given.path} changed while it was packaged", _ADVICE)
            written += file.write(packet)
        return written
