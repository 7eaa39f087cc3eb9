"""ISO BMFF (mp4, mov) as its boxes say: ISO/IEC 14496-12, and QuickTime's file format for ``fiel`` and ``clap``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from struct import Struct, unpack_from
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .chunks import samples_end
from .facts import Spread, StatedCrop, StatedFile, StatedKind, StatedTrack
from .file_bytes import FileBytes

_Ticks: TypeAlias = NDArray[np.int64]
_Payload: TypeAlias = memoryview

MOST_HEADER_BYTES: Final = 256 << 20
"""Ten hours of a film with sound have an index of about 20 MB."""
MOST_BOXES: Final = 1 << 21
MOST_SAMPLES: Final = 1 << 26
_NEAR_SAMPLES: Final = Fraction(3, 2)
"""How far a header's duration may be off, in samples: FFmpeg's muxer counts one more where pictures are reordered."""
_NEEDED: Final = (b"moov", b"moof", b"mdat")
"""The boxes without which something of the film is missing; what else a file ends in may be damage."""
_HEAD_BYTES: Final = 8
_LONG_HEAD_BYTES: Final = 16
_FIRST: Final = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp", b"moof")
_HANDLERS: Final = {b"vide": StatedKind.VIDEO, b"soun": StatedKind.AUDIO} | dict.fromkeys(
    (b"sbtl", b"subt", b"text", b"clcp"), StatedKind.SUBTITLES
)
_TOP_FIRST: Final = {1: True, 9: True, 6: False, 14: False}
"""The second byte of ``fiel``: which field is shown first. 9 and 14 are interleaved lines, by QuickTime's headers."""
_VISUAL_ENTRY_BYTES: Final = 86
"""A visual sample entry up to the boxes in it."""
_HAS_OFFSET, _HAS_FIRST_FLAGS = 0x1, 0x4
_HAS_DURATION, _HAS_SIZE, _HAS_FLAGS, _HAS_COMPOSITION = 0x100, 0x200, 0x400, 0x800
_TFHD_OPTIONS: Final = ((0x1, 8), (0x2, 4))
"""What may precede the default duration in ``tfhd``, by flag: its bytes."""
_TFHD_DURATION: Final = 0x8


def boxes_in(data: _Payload) -> Iterator[tuple[bytes, _Payload]]:
    """Yield the boxes of a payload: kind and payload of each. What does not fit ends it."""
    place = 0
    while place + _HEAD_BYTES <= len(data):
        length, kind = unpack_from(">I4s", data, place)
        head = _HEAD_BYTES
        if length == 1 and place + _LONG_HEAD_BYTES <= len(data):
            length, head = unpack_from(">Q", data, place + _HEAD_BYTES)[0], _LONG_HEAD_BYTES
        end = len(data) if length == 0 else place + length
        if end < place + head or end > len(data):
            return
        yield kind, data[place + head : end]
        place = end


def _child(data: _Payload, *path: bytes) -> _Payload | None:
    """Return the payload of the first box at a path of kinds; None where there is none."""
    for kind in path:
        found = next((payload for name, payload in boxes_in(data) if name == kind), None)
        if found is None:
            return None
        data = found
    return data


@dataclass
class _Samples:
    """A track's samples, a piece for each table that lists some of them."""

    starts: list[_Ticks] = field(default_factory=list)
    durations: list[_Ticks] = field(default_factory=list)
    offsets: list[_Ticks] = field(default_factory=list)
    """From the decoding time of each to when it is shown."""
    next_ticks: int = 0
    """Where the next piece begins if it does not say so."""
    is_fragmented: bool = False

    def add(self, begin: int, durations: _Ticks, offsets: _Ticks) -> None:
        ends = begin + np.cumsum(durations)
        self.starts.append(ends - durations)
        self.durations.append(durations)
        self.offsets.append(offsets)
        self.next_ticks = int(ends[-1]) if len(ends) else begin

    def spread(self, scale: int, edited_s: Fraction | None, near_s: Fraction) -> Spread | None:
        """Return how they lie; ``edited_s`` is when the edit list ends, on the media's clock, within ``near_s``."""
        if not sum(map(len, self.starts)):
            return None
        durations = np.concatenate(self.durations)
        shown = np.concatenate(self.starts) + np.concatenate(self.offsets)
        # What begins behind the edit list's end is not shown.
        visible = shown < (shown.max() + 1 if edited_s is None else ceil(edited_s * scale))
        ranked = np.where(visible if visible.any() else True, shown, shown.min() - 1)
        last = len(shown) - 1 - int(np.argmax(ranked[::-1]))
        by_samples = [Fraction(int(durations[last]), scale)]
        if last < len(shown) - 1 and shown[last] == shown.max():
            # The last one shown is not the last one decoded: its duration is to the next decoding time.
            by_samples.insert(0, Fraction(int(durations.sum() - (shown[last] - shown.min())), scale))
        begin_s = Fraction(int(shown[last]), scale)
        by_edit = None if edited_s is None else edited_s - begin_s
        last_s = _last_s(by_samples, by_edit, near_s)
        return Spread(
            samples=len(durations),
            shortest_s=Fraction(int(durations[:-1].min() if len(durations) > 1 else durations[0]), scale),
            total_s=Fraction(int(durations.sum()), scale),
            end_s=max(begin_s + last_s, Fraction(int(shown.max()), scale)),
            last_s=last_s,
        )


def _last_s(by_samples: list[Fraction], by_edit: Fraction | None, near_s: Fraction) -> Fraction:
    """Return how long the last one shown is shown, by the rules of docs/timeline.md.

    The edit list's ticks are coarser than a sample's: what agrees with it is exact. Where samples are reordered, or
    last longer than it, it counts.
    """
    if by_edit is None:
        return by_samples[0]
    exact = next((each for each in by_samples if abs(each - by_edit) <= near_s), None)
    if exact is not None:
        return exact
    return by_edit if by_edit > 0 and (len(by_samples) > 1 or by_edit < by_samples[0]) else by_samples[0]


@dataclass(kw_only=True)
class _Track:
    """What the boxes of one ``trak`` say."""

    kind: StatedKind
    scale: int
    language_tag: str
    media_ticks: int
    """``mdhd``'s duration."""
    shown_ticks: int
    """``tkhd``'s duration, in the movie's ticks."""
    edits: list[tuple[int, int]]
    """Duration in the movie's ticks and media time of each edit; an empty one has -1."""
    samples: _Samples
    samples_end: int = 0
    """Where in the file the sample ends that lies last; 0 where that is not known."""
    damage: str = ""
    """How its tables contradict each other; "" where they do not."""
    crop: StatedCrop = field(default_factory=StatedCrop)
    top_field_first: bool | None = None
    timecode_rate: Fraction | None = None
    default_ticks: int = 0
    """``trex``'s default duration of a fragment's samples."""


def read_boxes(file: FileBytes) -> StatedFile | None:
    """Return what an mp4 or mov file states; None if it is none, or if its header cannot be read."""
    movie: _Payload | None = None
    tracks: dict[int, _Track] = {}
    missing = 0
    for kind, place, payload_at, length in _top_boxes(file):
        end = place + length
        missing = max(0, end - file.size) if kind in _NEEDED else 0
        if kind == b"moov" and movie is None:
            movie = _payload(file, payload_at, end)
            tracks = {} if movie is None else dict(_tracks(movie))
        elif kind == b"moof" and (fragment := _payload(file, payload_at, end)) is not None:
            _add_fragment(fragment, tracks)
    if movie is None:
        return None
    header = _child(movie, b"mvhd")
    scale, duration = (1, 0) if header is None else _scale_and_duration(header)
    is_fragmented = any(track.samples.is_fragmented for track in tracks.values())
    if not is_fragmented and all(0 < track.samples_end <= file.size for track in tracks.values()):
        missing = 0  # the box says that it is longer, but no sample is missing
    return StatedFile(
        tracks=tuple(_stated(track, scale, edited=not missing) for track in tracks.values()),
        missing_bytes=missing,
        disagreements=tuple(_movie_disagreements(duration, tracks.values())),
    )


def _top_boxes(file: FileBytes) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield the file's boxes: kind, where they and their payloads begin, and how long they say they are."""
    place, count = 0, 0
    while place + _HEAD_BYTES <= file.size and count < MOST_BOXES:
        head = file.read(place, _LONG_HEAD_BYTES)
        length, kind = unpack_from(">I4s", head)
        head_bytes = _HEAD_BYTES
        if length == 1 and len(head) == _LONG_HEAD_BYTES:
            length, head_bytes = unpack_from(">Q", head, _HEAD_BYTES)[0], _LONG_HEAD_BYTES
        length = file.size - place if length == 0 else length
        if length < head_bytes or (place == 0 and kind not in _FIRST):
            return
        yield kind, place, place + head_bytes, length
        place, count = place + length, count + 1


def _payload(file: FileBytes, begin: int, end: int) -> _Payload | None:
    if not begin <= end <= min(file.size, begin + MOST_HEADER_BYTES):
        return None
    return memoryview(file.read(begin, end - begin))


def _tracks(movie: _Payload) -> Iterator[tuple[int, _Track]]:
    defaults = _child(movie, b"mvex")
    durations = {
        number: duration
        for kind, payload in (() if defaults is None else boxes_in(defaults))
        if kind == b"trex"
        for number, duration in [(_u32(payload, 4), _u32(payload, 12))]
    }
    for kind, payload in boxes_in(movie):
        header, media = _child(payload, b"tkhd"), _child(payload, b"mdia", b"mdhd")
        if kind == b"trak" and header is not None and media is not None:
            number = _u32(header, 20 if header[0] else 12)
            track = _track(payload, header, media)
            track.default_ticks = durations.get(number, 0)
            yield number, track


def _track(payload: _Payload, header: _Payload, media: _Payload) -> _Track:
    handler = _child(payload, b"mdia", b"hdlr")
    scale, ticks = _scale_and_duration(media)
    language = _child(payload, b"mdia", b"elng")
    track = _Track(
        kind=_HANDLERS.get(b"" if handler is None else bytes(handler[8:12]), StatedKind.OTHER),
        scale=scale,
        language_tag="" if language is None else bytes(language[4:]).split(b"\0")[0].decode("ascii", "replace"),
        media_ticks=ticks,
        shown_ticks=_number(header, *((">Q", 28) if header[0] else (">I", 20))),
        edits=_edits(_child(payload, b"edts", b"elst")),
        samples=_Samples(),
    )
    table = _child(payload, b"mdia", b"minf", b"stbl")
    if table is not None:
        _read_table(table, track)
    return track


def _read_table(table: _Payload, track: _Track) -> None:
    entries = _child(table, b"stsd")
    for kind, entry in () if entries is None else boxes_in(entries[8:]):
        if track.kind is StatedKind.VIDEO:
            _read_visual_entry(entry, track)
        if kind == b"tmcd" and (seconds := _u32(entry, 20)):
            track.timecode_rate = Fraction(_u32(entry, 16), seconds) or None
        break
    track.samples_end = samples_end(dict(boxes_in(table)))
    times, shifts = _child(table, b"stts"), _child(table, b"ctts")
    if times is not None:
        durations = _runs(times, ">i4")
        offsets = np.zeros(0, np.int64) if shifts is None else _runs(shifts, ">i4")
        if shifts is not None and len(offsets) != len(durations):
            track.damage = f"its stts lists {len(durations)} samples, its ctts {len(offsets)}"
        elif len(durations):
            track.samples.add(0, durations, offsets if len(offsets) else np.zeros_like(durations))


def _read_visual_entry(entry: _Payload, track: _Track) -> None:
    if len(entry) < _VISUAL_ENTRY_BYTES - _HEAD_BYTES:
        return
    width, height = unpack_from(">2H", entry, 24)
    for kind, payload in boxes_in(entry[_VISUAL_ENTRY_BYTES - _HEAD_BYTES :]):
        if kind == b"clap" and len(payload) >= Struct(">8i").size:
            track.crop = _aperture(unpack_from(">8i", payload), width, height)
        if kind == b"fiel" and len(payload) > 1 and payload[0] > 1:
            track.top_field_first = _TOP_FIRST.get(payload[1])


def _aperture(values: tuple[int, ...], width: int, height: int) -> StatedCrop:
    """Return what lies outside a clean aperture, whose offset is that of its middle from the picture's."""
    if not all(values[1::2]):
        return StatedCrop()
    wide, high, right, down = (Fraction(a, b) for a, b in zip(values[::2], values[1::2], strict=True))
    left, top = (width - wide) / 2 + right, (height - high) / 2 + down
    sides = left, top, width - wide - left, height - high - top
    return StatedCrop(*map(int, sides)) if min(sides) >= 0 else StatedCrop()


def _runs(table: _Payload, kind: str) -> _Ticks:
    """Return the values of a table of runs (count, value)."""
    pairs = np.frombuffer(table[8 : 8 + 8 * min(_u32(table, 4), (len(table) - 8) // 8)], ">u4").reshape(-1, 2)
    counts, values = pairs[:, 0].astype(np.int64), np.ascontiguousarray(pairs[:, 1]).view(kind).astype(np.int64)
    return np.repeat(values, counts) if 0 < counts.sum() <= MOST_SAMPLES else np.zeros(0, np.int64)


def _edits(table: _Payload | None) -> list[tuple[int, int]]:
    if table is None:
        return []
    entry = Struct(">QqI") if table[0] else Struct(">IiI")
    count = min(_u32(table, 4), (len(table) - 8) // entry.size)
    return [entry.unpack_from(table, 8 + n * entry.size)[:2] for n in range(count)]


def _add_fragment(fragment: _Payload, tracks: Mapping[int, _Track]) -> None:
    for kind, traf in boxes_in(fragment):
        header = _child(traf, b"tfhd") if kind == b"traf" else None
        track = None if header is None else tracks.get(_u32(header, 4))
        if header is None or track is None:
            continue
        start = _child(traf, b"tfdt")
        begin = track.samples.next_ticks
        if start is not None:
            begin = _number(start, ">Q" if start[0] else ">I", 4)
        track.samples.is_fragmented = True
        default = _default_ticks(header, track.default_ticks)
        for name, run in boxes_in(traf):
            if name == b"trun" and (found := _run(run, default)) is not None:
                track.samples.add(begin, *found)
                begin = track.samples.next_ticks


def _default_ticks(header: _Payload, default: int) -> int:
    flags = _u32(header, 0) & 0xFFFFFF
    if not flags & _TFHD_DURATION:
        return default
    return _u32(header, 8 + sum(size for flag, size in _TFHD_OPTIONS if flags & flag))


def _run(run: _Payload, default: int) -> tuple[_Ticks, _Ticks] | None:
    """Return the durations of a ``trun``'s samples, and how long after decoding each is shown."""
    flags, count = _u32(run, 0) & 0xFFFFFF, _u32(run, 4)
    begin = 8 + 4 * bool(flags & _HAS_OFFSET) + 4 * bool(flags & _HAS_FIRST_FLAGS)
    fields = [flag for flag in (_HAS_DURATION, _HAS_SIZE, _HAS_FLAGS, _HAS_COMPOSITION) if flags & flag]
    if not 0 < count <= MOST_SAMPLES or len(run) < begin + 4 * count * len(fields):
        return None
    values: Any = np.frombuffer(run[begin : begin + 4 * count * len(fields)], ">i4").reshape(count, len(fields))
    columns = {flag: values[:, place].astype(np.int64) for place, flag in enumerate(fields)}
    same = np.full(count, default, np.int64)
    return columns.get(_HAS_DURATION, same), columns.get(_HAS_COMPOSITION, np.zeros(count, np.int64))


def _stated(track: _Track, movie_scale: int, *, edited: bool) -> StatedTrack:
    shown = [(duration, begin) for duration, begin in track.edits if begin >= 0]
    edited_s = None
    if edited and len(shown) == 1 and shown[0][0]:
        edited_s = Fraction(shown[0][1], track.scale) + Fraction(shown[0][0], movie_scale)
    spread = track.samples.spread(track.scale, edited_s, Fraction(1, movie_scale))
    return StatedTrack(
        kind=track.kind,
        language_tag=track.language_tag,
        crop=track.crop,
        top_field_first=track.top_field_first,
        timecode_rate=track.timecode_rate,
        spread=spread,
        disagreements=tuple(_disagreements(track, spread, movie_scale)),
    )


def _disagreements(track: _Track, spread: Spread | None, movie_scale: int) -> Iterator[str]:
    if track.damage:
        yield f"{track.kind}: {track.damage}"
    if spread is None or spread.total_s is None or track.samples.is_fragmented:
        return
    near_s = _NEAR_SAMPLES * spread.total_s / spread.samples + Fraction(2, movie_scale)
    media_s, shown_s = Fraction(track.media_ticks, track.scale), Fraction(track.shown_ticks, movie_scale)
    edited_s = Fraction(sum(duration for duration, _ in track.edits), movie_scale)
    if abs(media_s - spread.total_s) > near_s:
        yield f"{track.kind}: mdhd says {float(media_s):.3f} s, its samples {float(spread.total_s):.3f} s"
    if track.edits and abs(edited_s - shown_s) > near_s:
        yield f"{track.kind}: tkhd says {float(shown_s):.3f} s, its edits {float(edited_s):.3f} s"
    shown = [(duration, begin) for duration, begin in track.edits if begin >= 0]
    if track.kind is StatedKind.VIDEO and len(shown) == 1:
        ends_s = Fraction(shown[0][1], track.scale) + Fraction(shown[0][0], movie_scale)
        if abs(ends_s - spread.end_s) > near_s:
            yield f"video: its edit ends at {float(ends_s):.3f} s, its last sample at {float(spread.end_s):.3f} s"


def _movie_disagreements(duration: int, tracks: Any) -> Iterator[str]:  # noqa: ANN401 - a view of a mapping's values
    whole = [track.shown_ticks for track in tracks if not track.samples.is_fragmented]
    longest = max(whole, default=0)
    if len(whole) == len(list(tracks)) and abs(longest - duration) > 1:
        yield f"mvhd says {duration} ticks, its longest track {longest}"


def _scale_and_duration(header: _Payload) -> tuple[int, int]:
    """Return the time scale and duration of ``mvhd`` or ``mdhd``."""
    scale, form, place = (20, ">Q", 24) if header[0] else (12, ">I", 16)
    return _number(header, ">I", scale) or 1, _number(header, form, place)


def _number(data: _Payload, form: str, place: int) -> int:
    """Return the number at a place; 0 where the box ends before it."""
    return int(unpack_from(form, data, place)[0]) if place + Struct(form).size <= len(data) else 0


def _u32(data: _Payload, place: int) -> int:
    return _number(data, ">I", place)
