"""Reads the headers of VP9 frames: whether a frame is shown, its coded size and its colours.

Source: VP9 Bitstream & Decoding Process Specification, sections 6.2 and 7.2, and annex B.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .access_points import BitReader

_MARKER, _PROFILE_3, _SUPERFRAME = 2, 3, 0b110
_SRGB = 7
_SYNC_CODE: Final = 0x498342
_HEAD_BYTES = 16
"""How many bytes of a frame are read; any header states the frame size within them."""
_FOUR_FOUR_FOUR_PROFILES = (1, 3)
_MATRICES: Final = (2, 5, 1, 6, 7, 9, 3, 0)
"""H.273's matrix number for each ``color_space`` (VP9 specification 7.2.2)."""
_LIMITED, _FULL = 1, 2


@dataclass(frozen=True, slots=True)
class Vp9Colours:
    """The colours of a frame: the matrix as a number of ITU-T H.273, the range as a number of FFmpeg (2 is full)."""

    matrix: int
    range: int


@dataclass(frozen=True, slots=True)
class Vp9Frame:
    """The headers of one frame.

    ``size`` is (width, height), or None if the size is copied from a reference. Only key frames have ``colours``.
    """

    is_shown: bool
    size: tuple[int, int] | None
    colours: Vp9Colours | None = None


def vp9_frames(data: bytes) -> Iterator[Vp9Frame]:
    """Yield the frames of a packet, which may be a superframe; a truncated or damaged frame counts as not shown."""
    for frame in _split(data):
        try:
            yield _read(BitReader(frame[:_HEAD_BYTES], is_escaped=False))
        except EOFError:
            yield Vp9Frame(is_shown=False, size=None)


def _split(data: bytes) -> Iterator[bytes]:
    marker = data[-1] if data else 0
    size_bytes, count = (marker >> 3 & 3) + 1, (marker & 7) + 1
    index_bytes = 2 + size_bytes * count
    if marker >> 5 != _SUPERFRAME or len(data) < index_bytes or data[-index_bytes] != marker:
        yield data
        return
    at, sizes = 0, data[-index_bytes + 1 : -1]
    for number in range(count):
        size = int.from_bytes(sizes[number * size_bytes : (number + 1) * size_bytes], "little")
        yield data[at : at + size]
        at += size


def _read(reader: BitReader) -> Vp9Frame:
    if reader.bits(2) != _MARKER:
        return Vp9Frame(is_shown=False, size=None)
    profile = reader.bits(1) | reader.bits(1) << 1
    if profile == _PROFILE_3:
        reader.skip(1)
    if reader.flag():  # show_existing_frame
        return Vp9Frame(is_shown=True, size=None)
    is_inter, is_shown, is_resilient = reader.flag(), reader.flag(), reader.flag()
    if is_inter:
        return Vp9Frame(is_shown, _inter_size(reader, profile, is_shown=is_shown, is_resilient=is_resilient))
    if reader.bits(24) != _SYNC_CODE:
        return Vp9Frame(is_shown=False, size=None)
    colours = _colours(reader, profile)
    return Vp9Frame(is_shown, _size(reader), colours)


def _inter_size(reader: BitReader, profile: int, *, is_shown: bool, is_resilient: bool) -> tuple[int, int] | None:
    is_intra = False if is_shown else reader.flag()
    if not is_resilient:
        reader.skip(2)  # reset_frame_context
    if is_intra:
        reader.skip(24)
        if profile:
            _colours(reader, profile)
        reader.skip(8)  # refresh_frame_flags
        return _size(reader)
    reader.skip(8 + 3 * 4)  # refresh_frame_flags, then three references, each with a sign bias
    if any(reader.flag() for _ in range(3)):  # found_ref
        return None
    return _size(reader)


def _colours(reader: BitReader, profile: int) -> Vp9Colours:
    if profile > 1:  # profiles 2 and 3 have more than 8 bits
        reader.skip(1)
    space = reader.bits(3)
    if space == _SRGB:
        reader.skip(int(profile in _FOUR_FOUR_FOUR_PROFILES))
        return Vp9Colours(_MATRICES[space], _FULL)
    is_full = reader.flag()
    reader.skip(3 if profile in _FOUR_FOUR_FOUR_PROFILES else 0)
    return Vp9Colours(_MATRICES[space], _FULL if is_full else _LIMITED)


def _size(reader: BitReader) -> tuple[int, int]:
    width, height = reader.bits(16), reader.bits(16)
    return width + 1, height + 1
