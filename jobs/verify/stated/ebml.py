"""Reads the facts that a Matroska or WebM file states, by RFC 8794 (EBML) and RFC 9559 (Matroska)."""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from struct import unpack
from typing import Final, NamedTuple

from .facts import TOP_FIRST, FileBytes, Spread, StatedCrop, StatedFile, StatedKind, StatedTrack

MOST_HEADER_BYTES: Final = 64 << 20
MOST_ELEMENTS: Final = 1 << 27
_EBML, _SEGMENT, _INFO, _TRACKS, _CLUSTER = 0x1A45DFA3, 0x18538067, 0x1549A966, 0x1654AE6B, 0x1F43B675
_TOP: Final = (_INFO, _TRACKS, _CLUSTER, 0x114D9B74, 0x1C53BB6B, 0x1043A770, 0x1254C367, 0x1941A469, _SEGMENT)
"""The elements that end a cluster of unknown size."""
_LEVEL_1: Final = frozenset({*_TOP, 0xEC, 0xBF})  # everything that a segment may hold, including void and checksums
_SCALE, _DURATION, _ENTRY = 0x2AD7B1, 0x4489, 0xAE
_NUMBER, _TYPE, _LANGUAGE, _LANGUAGE_TAG = 0xD7, 0x83, 0x22B59C, 0x22B59D
_DEFAULT_DURATION, _VIDEO = 0x23E383, 0xE0
_CROPS: Final = (0x54CC, 0x54BB, 0x54DD, 0x54AA)  # PixelCropLeft, Top, Right, Bottom
_INTERLACED, _FIELD_ORDER, _IS_INTERLACED = 0x9A, 0x9D, 1
_TIMESTAMP, _SIMPLE_BLOCK, _GROUP, _BLOCK, _BLOCK_DURATION = 0xE7, 0xA3, 0xA0, 0xA1, 0x9B
_ADDITIONS, _MORE, _ADD_ID, _ALPHA_ID = 0x75A1, 0xA6, 0xEE, 1
_CODEC_DELAY, _DISCARD_PADDING = 0x56AA, 0x75A2
_KINDS: Final = {1: StatedKind.VIDEO, 2: StatedKind.AUDIO, 17: StatedKind.SUBTITLES}
_HEAD_BYTES: Final = 12
_LACED: Final = 0x06
_NANOSECOND: Final = Fraction(1, 10**9)


class _Element(NamedTuple):
    number: int
    begin: int  # where the payload begins
    size: int | None  # None if unknown

    def end(self, parent: int) -> int:
        return parent if self.size is None else self.begin + self.size


@dataclass
class _Track:
    """The facts in a track's entry and blocks."""

    stated: StatedTrack
    default_s: Fraction | None  # ``DefaultDuration``
    # ``CodecDelay``: the length of the inaudible beginning, by which the times of all blocks are late
    delay_s: Fraction
    times: "array[int]" = field(default_factory=lambda: array("q"))
    # ``BlockDuration`` in ticks; -1 if it is not stated
    durations: "array[int]" = field(default_factory=lambda: array("q"))
    hidden_s: dict[int, Fraction] = field(default_factory=dict)  # ``DiscardPadding``, by a block's time in ticks
    alpha: bool = False  # whether a block has alpha

    def spread(self, tick_s: Fraction) -> Spread | None:
        if not self.times:
            return None
        last = max(range(len(self.times)), key=self.times.__getitem__)
        duration = self.durations[last]
        last_s = self.default_s if duration < 0 else duration * tick_s
        return Spread(
            samples=len(self.times),
            shortest_s=self.default_s or Fraction(0),
            total_s=None,
            end_s=self.times[last] * tick_s + (last_s or 0),
            last_s=last_s,
        )


def read_elements(file: FileBytes) -> StatedFile | None:
    """Return the facts that a Matroska or WebM file states; None for other files."""
    first = _element(file, 0)
    if first is None or first.number != _EBML:
        return None
    segment = _element(file, first.end(file.size))
    if segment is None or segment.number != _SEGMENT:
        return None
    reading = _Reading(file)
    end = reading.read(segment)
    return StatedFile(
        tracks=tuple(
            replace(track.stated, alpha=track.alpha, spread=track.spread(reading.tick_s))
            for track in reading.tracks.values()
        ),
        missing_bytes=max(0, end - file.size),
        disagreements=tuple(_disagreements(reading)),
    )


@dataclass
class _Reading:
    file: FileBytes
    tick_s: Fraction = Fraction(1, 1000)
    duration_s: Fraction = Fraction(0)
    tracks: dict[int, _Track] = field(default_factory=dict)
    _elements: int = 0

    def read(self, segment: _Element) -> int:
        """Read the whole segment; return its stated end, or the end of its last element if no end is stated."""
        end = segment.end(self.file.size)
        place = segment.begin
        while place < min(end, self.file.size) and (element := self._next(place)) is not None:
            if element.number not in _LEVEL_1:
                break  # damage, after which nothing can be read
            place = self._cluster(element, end) if element.number == _CLUSTER else element.end(self.file.size)
            held = _children(self.file, element) if element.number in (_INFO, _TRACKS) else []
            if element.number == _INFO and held:
                self.tick_s = _unsigned(dict(held).get(_SCALE, b"\x0f\x42\x40")) * _NANOSECOND
                self.duration_s = _float(dict(held).get(_DURATION, b"")) * self.tick_s
            elif element.number == _TRACKS:
                entries = [dict(_inside(payload)) for number, payload in held if number == _ENTRY]
                self.tracks |= {_unsigned(each.get(_NUMBER, b"")): _track(each) for each in entries}
        return end if segment.size is not None else max(place, end)

    def _next(self, place: int) -> _Element | None:
        self._elements += 1
        return _element(self.file, place) if self._elements < MOST_ELEMENTS else None

    def _cluster(self, cluster: _Element, parent: int) -> int:
        end, place, start = cluster.end(parent), cluster.begin, 0
        while place < min(end, self.file.size) and (element := self._next(place)) is not None:
            if cluster.size is None and element.number in _TOP:
                return place
            if element.number == _TIMESTAMP:
                start = _unsigned(self.file.read(element.begin, element.size or 0))
            elif element.number == _SIMPLE_BLOCK:
                self._block(element, start)
            elif element.number == _GROUP:
                self._group(element, start)
            place = element.end(end)
        return end if cluster.size is not None else place

    def _group(self, group: _Element, start: int) -> None:
        place, end = group.begin, min(group.end(self.file.size), self.file.size)
        track, duration = None, -1
        while place < end and (element := self._next(place)) is not None:
            if element.number == _BLOCK:
                track = self._block(element, start)
            elif element.number == _BLOCK_DURATION:
                duration = _unsigned(self.file.read(element.begin, element.size or 0))
            elif element.number == _DISCARD_PADDING and track is not None:
                hidden_ns = int.from_bytes(self.file.read(element.begin, element.size or 0), signed=True)
                track.hidden_s[track.times[-1]] = hidden_ns * _NANOSECOND
            elif element.number == _ADDITIONS and track is not None:
                mores = (dict(_inside(data)) for number, data in _children(self.file, element) if number == _MORE)
                track.alpha |= any(_unsigned(more.get(_ADD_ID, b"\x01")) == _ALPHA_ID for more in mores)
            place = element.end(end)
        if track is not None:
            track.durations[-1] = duration

    def _block(self, block: _Element, start: int) -> _Track | None:
        head = self.file.read(block.begin, _HEAD_BYTES)
        number, length = _variable(head, 0, marked=False)
        track = self.tracks.get(number)
        if track is None or len(head) < length + 4:
            return None
        track.times.append(start + int.from_bytes(head[length : length + 2], signed=True))
        track.durations.append(-1)
        if head[length + 2] & _LACED and track.default_s is not None:
            track.durations[-1] = round((head[length + 3] + 1) * track.default_s / self.tick_s)
        return track


def _element(file: FileBytes, place: int) -> _Element | None:
    head = file.read(place, _HEAD_BYTES)
    number, first = _variable(head, 0, marked=True)
    size, second = _variable(head, first, marked=False) if first else (0, 0)
    if not second:
        return None
    unknown = size == (1 << 7 * second) - 1
    return _Element(number, place + first + second, None if unknown else size)


def _variable(data: bytes, place: int, *, marked: bool) -> tuple[int, int]:
    """Return a variable-length number and its size in bytes; the size is 0 if there is no number."""
    if place >= len(data) or not data[place]:
        return 0, 0
    length = 9 - data[place].bit_length()
    value = int.from_bytes(data[place : place + length])
    return value if marked else value & (1 << 7 * length) - 1, length if place + length <= len(data) else 0


def _children(file: FileBytes, element: _Element) -> list[tuple[int, bytes]]:
    if element.size is None or element.size > MOST_HEADER_BYTES:
        return []
    return list(_inside(file.read(element.begin, element.size)))


def _inside(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and payload of each element in ``data``, up to the first that reaches past the end."""
    place = 0
    while place < len(data):
        number, first = _variable(data, place, marked=True)
        size, second = _variable(data, place + first, marked=False) if first else (0, 0)
        begin = place + first + second
        if not second or begin + size > len(data):
            return
        yield number, data[begin : begin + size]
        place = begin + size


def _track(values: Mapping[int, bytes]) -> _Track:
    video = dict(_inside(values.get(_VIDEO, b"")))
    default_ns = _unsigned(values.get(_DEFAULT_DURATION, b""))
    is_interlaced = _unsigned(video.get(_INTERLACED, b"")) == _IS_INTERLACED
    return _Track(
        stated=StatedTrack(
            kind=_KINDS.get(_unsigned(values.get(_TYPE, b"")), StatedKind.OTHER),
            language_tag=_language_tag(values),
            crop=StatedCrop(*(_unsigned(video.get(number, b"")) for number in _CROPS)),
            top_field_first=TOP_FIRST.get(_unsigned(video.get(_FIELD_ORDER, b""))) if is_interlaced else None,
        ),
        default_s=default_ns * _NANOSECOND if default_ns else None,
        delay_s=_unsigned(values.get(_CODEC_DELAY, b"")) * _NANOSECOND,
    )


def _language_tag(values: Mapping[int, bytes]) -> str:
    """Return a track's BCP 47 language, which some writers put into the field for ISO 639-2."""
    stated = (values.get(kind, b"").split(b"\0")[0] for kind in (_LANGUAGE_TAG, _LANGUAGE))
    tag, code = (text.decode("ascii", "replace") for text in stated)
    return tag or (code if "-" in code else "")


def _disagreements(reading: _Reading) -> Iterator[str]:
    ends: list[Fraction] = []
    near_s = 2 * reading.tick_s
    for track in reading.tracks.values():
        if track.times:
            shown = sorted(track.times)[-2:]
            step_s = (shown[-1] - shown[0]) * reading.tick_s
            # If no duration is stated, the previous step is assumed; subtitles stay until the screen is cleared.
            step_s = Fraction(0) if track.stated.kind is StatedKind.SUBTITLES else step_s
            stated_s = track.durations[track.times.index(shown[-1])] * reading.tick_s
            end_s = shown[-1] * reading.tick_s + (stated_s if stated_s >= 0 else track.default_s or step_s)
            ends.append(end_s - track.delay_s - max(Fraction(0), track.hidden_s.get(shown[-1], Fraction(0))))
            near_s = max(near_s, step_s)
    if ends and reading.duration_s and abs(max(ends) - reading.duration_s) > near_s:
        yield f"the header says {float(reading.duration_s):.3f} s, its blocks end at {float(max(ends)):.3f} s"


def _unsigned(data: bytes) -> int:
    return int.from_bytes(data)


def _float(data: bytes) -> Fraction:
    """Return a float as a fraction; 0 if the value is no float or cannot be a duration."""
    form = {4: ">f", 8: ">d"}.get(len(data))
    value = 0.0 if form is None else unpack(form, data)[0]
    return Fraction(value) if 0 <= value < 1 << 53 else Fraction(0)
