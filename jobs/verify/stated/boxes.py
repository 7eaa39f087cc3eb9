"""Reads mp4 and mov headers by ISO/IEC 14496-12; ``fiel`` and ``clap`` are in QuickTime's file format."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from struct import Struct, unpack_from
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .facts import TOP_FIRST, FileBytes, Spread, StatedCrop, StatedFile, StatedKind, StatedTrack

_Ticks: TypeAlias = NDArray[np.int64]

MOST_HEADER_BYTES: Final = 256 << 20  # the largest index: ten hours of a film with sound need about 20 MB
MOST_BOXES: Final = 1 << 21
MOST_SAMPLES: Final = 1 << 26
# by how many samples a header's duration may be off: with reordering, FFmpeg's muxer counts one too many
_NEAR_SAMPLES: Final = Fraction(3, 2)
# if one of these reaches past the end of the file, the film is incomplete; another box may only state a wrong size
_NEEDED: Final = (b"moov", b"moof", b"mdat")
_HEAD_BYTES: Final = 8
_LONG_HEAD_BYTES: Final = 16
_FIRST: Final = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp", b"moof")
_HANDLERS: Final = {b"vide": StatedKind.VIDEO, b"soun": StatedKind.AUDIO} | dict.fromkeys(
    (b"sbtl", b"subt", b"text", b"clcp"), StatedKind.SUBTITLES
)
# a run's first chunk, the number of samples in each of its chunks, and the description of these samples
_STSC_FIELDS: Final = 3
_SIZES_HEAD_BYTES: Final = 12
_VISUAL_ENTRY_BYTES: Final = 86  # a visual sample entry, up to the boxes in it
_HAS_OFFSET, _HAS_FIRST_FLAGS = 0x1, 0x4
_HAS_DURATION, _HAS_SIZE, _HAS_FLAGS, _HAS_COMPOSITION = 0x100, 0x200, 0x400, 0x800
# the optional fields before the default duration, as {flag: bytes}
_TFHD_OPTIONS: Final = ((0x1, 8), (0x2, 4))
_TFHD_DURATION: Final = 0x8


def boxes_in(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the kind and payload of each box in ``data``, up to a box that reaches past the end of ``data``."""
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


def _child(data: memoryview, *path: bytes) -> memoryview:
    """Return the payload of the first box at a path of kinds; empty if there is no such box."""
    for kind in path:
        data = next((payload for name, payload in boxes_in(data) if name == kind), memoryview(b""))
    return data


@dataclass
class _Samples:
    """The times of a track's samples.

    Each list has one array for the table of the whole track, and one for each run of samples in a fragment.
    """

    starts: list[_Ticks] = field(default_factory=list)
    durations: list[_Ticks] = field(default_factory=list)
    offsets: list[_Ticks] = field(default_factory=list)  # the time from each sample's decoding to its presentation
    next_ticks: int = 0  # the start of the next fragment, unless the fragment states a start
    is_fragmented: bool = False

    def add(self, begin: int, durations: _Ticks, offsets: _Ticks) -> None:
        ends = begin + np.cumsum(durations)
        self.starts.append(ends - durations)
        self.durations.append(durations)
        self.offsets.append(offsets)
        self.next_ticks = int(ends[-1]) if len(ends) else begin

    def spread(self, scale: int, edited_s: Fraction | None, near_s: Fraction) -> Spread | None:
        """Return the samples' times; ``edited_s`` is the edit list's end on the media's clock, exact to ``near_s``."""
        if not sum(map(len, self.starts)):
            return None
        durations = np.concatenate(self.durations)
        shown = np.concatenate(self.starts) + np.concatenate(self.offsets)
        # Samples that start at or after the end of the edit list are not shown.
        visible = shown < (shown.max() + 1 if edited_s is None else ceil(edited_s * scale))
        ranked = np.where(visible if visible.any() else True, shown, shown.min() - 1)
        last = len(shown) - 1 - int(np.argmax(ranked[::-1]))
        by_samples = [Fraction(int(durations[last]), scale)]
        if last < len(shown) - 1 and shown[last] == shown.max():
            # The sample shown last is not decoded last: its own duration only leads to the next decoding time.
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
    """Return the duration of the last sample (docs/timeline.md): from the samples if they agree with the edit list."""
    if by_edit is None:
        return by_samples[0]
    exact = next((each for each in by_samples if abs(each - by_edit) <= near_s), None)
    if exact is not None:
        return exact
    return by_edit if by_edit > 0 and (len(by_samples) > 1 or by_edit < by_samples[0]) else by_samples[0]


@dataclass(kw_only=True)
class _Track:
    """The facts in one ``trak`` box."""

    stated: StatedTrack
    scale: int
    media_ticks: int  # ``mdhd``'s duration
    shown_ticks: int  # the duration in ``tkhd``, in the movie's ticks
    # the duration of each edit in the movie's ticks, and its media time, which is -1 for an empty edit
    edits: list[tuple[int, int]]
    samples: _Samples
    samples_end: int = 0  # the end of the last sample in the file, as an offset; 0 if unknown
    damage: str = ""  # how the track's tables contradict each other; "" for no contradiction
    default_ticks: int = 0  # the default duration of a fragment's samples, from ``trex``

    def edit_end_s(self, movie_scale: int) -> Fraction | None:
        """Return the end of the only non-empty edit, on the media's clock; None unless there is exactly one."""
        shown = [(duration, begin) for duration, begin in self.edits if begin >= 0]
        if len(shown) != 1:
            return None
        return Fraction(shown[0][1], self.scale) + Fraction(shown[0][0], movie_scale)


def read_boxes(file: FileBytes) -> StatedFile | None:
    """Return the facts that an mp4 or mov file states; None for other files, or if the header cannot be read."""
    movie: memoryview | None = None
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
    scale, duration = _scale_and_duration(_child(movie, b"mvhd"))
    is_fragmented = any(track.samples.is_fragmented for track in tracks.values())
    if not is_fragmented and all(0 < track.samples_end <= file.size for track in tracks.values()):
        missing = 0  # the last box states too large a size, but no sample is missing
    longest = max((track.shown_ticks for track in tracks.values()), default=0)
    wrong: tuple[str, ...] = ()
    if not is_fragmented and abs(longest - duration) > 1:
        wrong = (f"mvhd says {duration} ticks, its longest track {longest}",)
    stated = tuple(_stated(track, scale, edited=not missing) for track in tracks.values())
    return StatedFile(tracks=stated, missing_bytes=missing, disagreements=wrong)


def _top_boxes(file: FileBytes) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield the kind, the offsets of box and payload, and the stated length of each box in the file."""
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


def _payload(file: FileBytes, begin: int, end: int) -> memoryview | None:
    if not begin <= end <= min(file.size, begin + MOST_HEADER_BYTES):
        return None
    return memoryview(file.read(begin, end - begin))


def _tracks(movie: memoryview) -> Iterator[tuple[int, _Track]]:
    extends = boxes_in(_child(movie, b"mvex"))
    durations = {_u32(payload, 4): _u32(payload, 12) for kind, payload in extends if kind == b"trex"}
    for kind, payload in boxes_in(movie):
        header, media = _child(payload, b"tkhd"), _child(payload, b"mdia", b"mdhd")
        if kind != b"trak" or not header or not media:
            continue
        number = _u32(header, 20 if header[0] else 12)
        handler, language = (_child(payload, b"mdia", each) for each in (b"hdlr", b"elng"))
        scale, ticks = _scale_and_duration(media)
        track = _Track(
            stated=StatedTrack(
                kind=_HANDLERS.get(bytes(handler[8:12]), StatedKind.OTHER),
                language_tag=bytes(language[4:]).split(b"\0")[0].decode("ascii", "replace"),
            ),
            scale=scale,
            media_ticks=ticks,
            shown_ticks=_number(header, *((">Q", 28) if header[0] else (">I", 20))),
            edits=_edits(_child(payload, b"edts", b"elst")),
            samples=_Samples(),
            default_ticks=durations.get(number, 0),
        )
        if table := _child(payload, b"mdia", b"minf", b"stbl"):
            _read_table(table, track)
        yield number, track


def _samples_end(tables: Mapping[bytes, memoryview]) -> int:
    """Return the end, in the file, of the track's last sample, according to its tables; 0 if unknown."""
    kind, form = (b"co64", ">u8") if b"co64" in tables else (b"stco", ">u4")
    chunks = _numbers(tables.get(kind, b""), form)
    runs = _numbers(tables.get(b"stsc", b""), ">u4")
    firsts, counts = runs[: len(runs) // _STSC_FIELDS * _STSC_FIELDS].reshape(-1, _STSC_FIELDS)[:, :2].T
    lengths = np.diff([*firsts, len(chunks) + 1])
    if not len(chunks) or not len(firsts) or firsts[0] != 1 or lengths.min() < 1:
        return 0
    last = np.cumsum(np.repeat(counts, lengths))
    places = _places(tables.get(b"stsz", b""), last)
    return 0 if places is None else int((chunks + np.diff([0, *places])).max())


def _places(sizes: bytes | memoryview, counts: NDArray[np.int64]) -> NDArray[np.int64] | None:
    if len(sizes) < _SIZES_HEAD_BYTES:
        return None
    each, count = unpack_from(">2I", sizes, 4)
    listed = np.array([], np.int64) if each else _numbers(sizes[4:], ">u4")
    if counts[-1] != count or (not each and len(listed) < count):
        return None
    return counts * each if each else np.concatenate([[0], np.cumsum(listed)])[counts]


def _numbers(payload: bytes | memoryview, kind: str) -> NDArray[np.int64]:
    width = np.dtype(kind).itemsize
    data = payload[8 : 8 + (len(payload) - 8) // width * width]
    return np.frombuffer(data, kind).astype(np.int64)


def _read_table(table: memoryview, track: _Track) -> None:
    kind, entry = next(boxes_in(_child(table, b"stsd")[8:]), (b"", memoryview(b"")))
    if track.stated.kind is StatedKind.VIDEO:
        _read_visual_entry(entry, track)
    if kind == b"tmcd" and (seconds := _u32(entry, 20)):
        track.stated = replace(track.stated, timecode_rate=Fraction(_u32(entry, 16), seconds) or None)
    track.samples_end = _samples_end(dict(boxes_in(table)))
    times, shifts = _child(table, b"stts"), _child(table, b"ctts")
    if times:
        durations = _runs(times)
        offsets = _runs(shifts) if shifts else np.zeros(0, np.int64)
        if shifts and len(offsets) != len(durations):
            track.damage = f"its stts lists {len(durations)} samples, its ctts {len(offsets)}"
        elif len(durations):
            track.samples.add(0, durations, offsets if len(offsets) else np.zeros_like(durations))


def _read_visual_entry(entry: memoryview, track: _Track) -> None:
    if len(entry) < _VISUAL_ENTRY_BYTES - _HEAD_BYTES:
        return
    width, height = unpack_from(">2H", entry, 24)
    for kind, payload in boxes_in(entry[_VISUAL_ENTRY_BYTES - _HEAD_BYTES :]):
        if kind == b"clap" and len(payload) >= Struct(">8i").size:
            track.stated = replace(track.stated, crop=_aperture(unpack_from(">8i", payload), width, height))
        if kind == b"fiel" and len(payload) > 1 and payload[0] > 1:
            track.stated = replace(track.stated, top_field_first=TOP_FIRST.get(payload[1]))


def _aperture(values: tuple[int, ...], width: int, height: int) -> StatedCrop:
    """Return the crop of a clean aperture, whose offset goes from the picture's centre to the aperture's centre."""
    if not all(values[1::2]):
        return StatedCrop()
    wide, high, right, down = (Fraction(a, b) for a, b in zip(values[::2], values[1::2], strict=True))
    left, top = (width - wide) / 2 + right, (height - high) / 2 + down
    sides = left, top, width - wide - left, height - high - top
    return StatedCrop(*map(int, sides)) if min(sides) >= 0 else StatedCrop()


def _runs(table: memoryview) -> _Ticks:
    pairs = np.frombuffer(table[8 : 8 + 8 * min(_u32(table, 4), (len(table) - 8) // 8)], ">u4").reshape(-1, 2)
    counts, values = pairs[:, 0].astype(np.int64), np.ascontiguousarray(pairs[:, 1]).view(">i4").astype(np.int64)
    return np.repeat(values, counts) if 0 < counts.sum() <= MOST_SAMPLES else np.zeros(0, np.int64)


def _edits(table: memoryview) -> list[tuple[int, int]]:
    entry = Struct(">QqI") if table and table[0] else Struct(">IiI")
    count = min(_u32(table, 4), (len(table) - 8) // entry.size)
    return [entry.unpack_from(table, 8 + n * entry.size)[:2] for n in range(count)]


def _add_fragment(fragment: memoryview, tracks: Mapping[int, _Track]) -> None:
    for kind, traf in boxes_in(fragment):
        header, start = _child(traf, b"tfhd"), _child(traf, b"tfdt")
        if kind != b"traf" or not header or (track := tracks.get(_u32(header, 4))) is None:
            continue
        begin = _number(start, ">Q" if start[0] else ">I", 4) if start else track.samples.next_ticks
        track.samples.is_fragmented = True
        default, flags = track.default_ticks, _u32(header, 0)
        if flags & _TFHD_DURATION:
            default = _u32(header, 8 + sum(size for flag, size in _TFHD_OPTIONS if flags & flag))
        for name, run in boxes_in(traf):
            if name == b"trun" and (found := _run(run, default)) is not None:
                track.samples.add(begin, *found)
                begin = track.samples.next_ticks


def _run(run: memoryview, default: int) -> tuple[_Ticks, _Ticks] | None:
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
    has_end = edited and any(duration for duration, begin in track.edits if begin >= 0)
    edited_s = track.edit_end_s(movie_scale) if has_end else None
    spread = track.samples.spread(track.scale, edited_s, Fraction(1, movie_scale))
    return replace(track.stated, spread=spread, disagreements=tuple(_disagreements(track, spread, movie_scale)))


def _disagreements(track: _Track, spread: Spread | None, movie_scale: int) -> Iterator[str]:
    kind = track.stated.kind
    if track.damage:
        yield f"{kind}: {track.damage}"
    if spread is None or spread.total_s is None or track.samples.is_fragmented:
        return
    near_s = _NEAR_SAMPLES * spread.total_s / spread.samples + Fraction(2, movie_scale)
    media_s, shown_s = Fraction(track.media_ticks, track.scale), Fraction(track.shown_ticks, movie_scale)
    edited_s = Fraction(sum(duration for duration, _ in track.edits), movie_scale)
    if abs(media_s - spread.total_s) > near_s:
        yield f"{kind}: mdhd says {float(media_s):.3f} s, its samples {float(spread.total_s):.3f} s"
    if track.edits and abs(edited_s - shown_s) > near_s:
        yield f"{kind}: tkhd says {float(shown_s):.3f} s, its edits {float(edited_s):.3f} s"
    ends_s = track.edit_end_s(movie_scale)
    if kind is StatedKind.VIDEO and ends_s is not None and abs(ends_s - spread.end_s) > near_s:
        yield f"video: its edit ends at {float(ends_s):.3f} s, its last sample at {float(spread.end_s):.3f} s"


def _scale_and_duration(header: memoryview) -> tuple[int, int]:
    scale, form, place = (20, ">Q", 24) if header and header[0] else (12, ">I", 16)
    return _number(header, ">I", scale) or 1, _number(header, form, place)


def _number(data: memoryview, form: str, place: int) -> int:
    """Return the number at an offset; 0 past the end of the box."""
    return int(unpack_from(form, data, place)[0]) if place + Struct(form).size <= len(data) else 0


def _u32(data: memoryview, place: int) -> int:
    return _number(data, ">I", place)
