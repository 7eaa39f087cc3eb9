"""Makes every picture of a decoder begin black, instead of with the remains of an earlier picture.

FFmpeg reuses buffers: without this module, lost parts of pictures, which are mostly not flagged, would depend on where
decoding began (docs/timeline.md). The two lowest bits of each sample in a buffer's first plane get a pattern; a block
that still has the pattern was never decoded. H.264's tables are reused too, so the concealment steps that read them
(guessed motion, deblocking) are off; later pictures can still take an earlier picture's motion from a lost block.
"""

import hashlib
from collections.abc import Sequence
from ctypes import c_uint8
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import av
import numpy as np
from numpy.typing import NDArray

from ..media.av_abi import BufferReference, FrameHead, GetBuffer, ffmpeg, frame_structure, set_get_buffer
from ..media.values import BYTE_BITS
from .picture_buffers import give_buffers

if TYPE_CHECKING:
    from av.video.codeccontext import VideoCodecContext
    from av.video.format import VideoFormat
    from av.video.frame import VideoFrame


BLOCK: Final = 8
"""The side of a checked block, in samples: HEVC's smallest block has the same side, a macroblock twice this side."""
_PERIOD_COLUMNS: Final = 64
_MARK_BITS: Final = 3
_FIELD_LINES: Final = ((2, 4, 6), (3, 5, 7))
"""The rows of a block that are compared, by field; deblocking beside a decoded block may change the other rows."""
_BLACK_8BIT: Final = 16
_CONCEALMENT: Final = "1024"
"""A bit that only turns FFmpeg's concealment on; the default, ``guess_mvs+deblock``, adds two steps."""
_DEEPEST_BITS: Final = 16
_FEW_SAMPLES: Final = 64 << 10
"""Pictures with fewer samples get FFmpeg's own memory: the system keeps such small blocks for reuse by itself."""


@dataclass(frozen=True, slots=True)
class _Blank:
    """A plane's content before decoding: one sample value, with or without the mark.

    None in place of a ``_Blank`` means that the plane is filled with zero bytes.
    """

    value: int
    sample: str
    marked: bool


def forget_remains(context: "VideoCodecContext") -> None:
    """Make an unopened decoder begin every picture black and marked.

    An H.264 decoder then also conceals damage without the tables of earlier pictures.
    """
    set_get_buffer(context, _BLACK_BUFFERS)
    if context.name == "h264":
        context.options = {**context.options, "ec": _CONCEALMENT}


def is_incomplete(frame: "VideoFrame") -> bool:
    """Return whether a picture has blocks that were never decoded, or were predicted unmoved from such blocks."""
    head = frame_structure(frame)
    blank = _blanks(head.format)[0]
    pitch_bytes, origin = head.line_size[0], head.buffers[0]
    if blank is None or not blank.marked or pitch_bytes <= 0 or not origin:
        return False
    # Cropping moves the first sample of the picture away from the start of the buffer.
    top, left_bytes = divmod(head.data[0] - origin.contents.data, pitch_bytes)
    sample_bytes = np.dtype(blank.sample).itemsize
    block_bytes = BLOCK * sample_bytes
    first_byte = -left_bytes % block_bytes
    blocks = (head.width * sample_bytes - first_byte) // block_bytes
    if blocks <= 0:
        return False
    columns = slice(first_byte, first_byte + blocks * block_bytes)
    rows = _bytes_at(head.data[0], head.height * pitch_bytes).reshape(head.height, pitch_bytes)[:, columns]
    mark = _marked_rows(blank, pitch_bytes + left_bytes)[:, left_bytes:][:, columns]
    if top:
        mark = np.roll(mark, -top, axis=0)
    return any(_has_marked_field(rows, mark, [line - top for line in lines], sample_bytes) for lines in _FIELD_LINES)


def _has_marked_field(
    rows: NDArray[np.uint8], mark: NDArray[np.uint8], lines: Sequence[int], sample_bytes: int
) -> bool:
    """Return whether any block of ``rows`` is marked in all visible ``lines``; most blocks fail in the first line."""
    first = lines[0] % BLOCK
    compared = rows[first::BLOCK]
    if not len(compared):
        return False
    same = compared.view(np.uint64) == mark[first].view(np.uint64)
    if sample_bytes > 1:
        same = same.reshape(len(same), -1, sample_bytes).all(axis=-1)
    if not same.any():
        return False
    blocks = np.argwhere(same)
    columns = blocks[:, 1:] * BLOCK * sample_bytes + np.arange(BLOCK * sample_bytes)
    whole = np.ones(len(blocks), dtype=bool)
    for line in lines[1:]:
        places = first + blocks[:, :1] * BLOCK + (line - lines[0])
        seen = np.minimum(places, len(rows) - 1)
        whole &= ((rows[seen, columns] == mark[line % BLOCK, columns]) | (seen != places)).all(axis=1)
    return bool(whole.any())


def _give_black_buffer(context: int, frame: Any, flags: int) -> int:  # noqa: ANN401 - ctypes has no type for a pointer
    head = frame.contents
    if _blanks(head.format)[0] is None or head.width * head.height < _FEW_SAMPLES:
        given = int(ffmpeg().avcodec_default_get_buffer2(context, frame, flags))
    else:
        given = give_buffers(context, head)
    if given >= 0:
        _blacken(head)
    return given


_BLACK_BUFFERS = GetBuffer(_give_black_buffer)


def _blacken(frame: FrameHead) -> None:
    blanks = _blanks(frame.format)
    for plane, reference in enumerate(frame.buffers):
        if reference:
            blank = blanks[plane] if plane < len(blanks) else None
            _fill(reference.contents, frame.line_size[plane], blank)


def _fill(buffer: BufferReference, pitch_bytes: int, blank: _Blank | None) -> None:
    memory = _bytes_at(buffer.data, buffer.size)
    if blank is None or pitch_bytes <= 0:
        memory.fill(0)
    elif blank.marked:
        band = _marked_rows(blank, pitch_bytes).reshape(-1)
        whole = len(memory) // len(band) * len(band)
        memory[:whole].reshape(-1, len(band))[:] = band
        memory[whole:] = band[: len(memory) - whole]
    else:
        sample = np.dtype(blank.sample)
        memory[: len(memory) // sample.itemsize * sample.itemsize].view(sample).fill(blank.value)


def _bytes_at(address: int, size_bytes: int) -> NDArray[np.uint8]:
    return np.frombuffer(memoryview((c_uint8 * size_bytes).from_address(address)), np.uint8)


@lru_cache(maxsize=64)
def _marked_rows(blank: _Blank, width_bytes: int) -> NDArray[np.uint8]:
    """Return the rows of a block before decoding. They depend on columns, not on addresses, because pitches differ."""
    noise = np.frombuffer(hashlib.shake_128(b"never decoded").digest(BLOCK * _PERIOD_COLUMNS), np.uint8) & _MARK_BITS
    sample = np.dtype(blank.sample)
    columns = -(-width_bytes // sample.itemsize)
    tiled = np.tile(noise.reshape(BLOCK, _PERIOD_COLUMNS), -(-columns // _PERIOD_COLUMNS))[:, :columns]
    rows = (blank.value + tiled.astype(np.uint16)).astype(sample)
    return np.ascontiguousarray(np.ascontiguousarray(rows).view(np.uint8)[:, :width_bytes])


@lru_cache(maxsize=64)
def _blanks(number: int) -> tuple[_Blank | None, ...]:
    name = ffmpeg().av_get_pix_fmt_name(number)
    pix_fmt = av.VideoFormat(name.decode()) if name else None
    return (None,) if pix_fmt is None else _blanks_of(pix_fmt)


def _blanks_of(pix_fmt: "VideoFormat") -> tuple[_Blank | None, ...]:
    components = pix_fmt.components
    planes = [component.plane for component in components]
    bits = components[0].bits
    is_planar = len(set(planes)) == len(planes) and not pix_fmt.has_palette and not pix_fmt.is_bit_stream
    if not is_planar or not BYTE_BITS <= bits <= _DEEPEST_BITS:
        return (None,)  # zero bytes, as in new buffers of FFmpeg
    sample = "u1" if bits == BYTE_BITS else ">u2" if pix_fmt.is_big_endian else "<u2"
    luma, chroma = _BLACK_8BIT << (bits - BYTE_BITS), 1 << (bits - 1)
    found = []
    for number, component in sorted(enumerate(components), key=lambda pair: pair[1].plane):
        is_zero = pix_fmt.is_rgb or component.is_alpha
        # PyAV calls a plane chroma only if the plane is subsampled.
        found.append(_Blank(0 if is_zero else chroma if number else luma, sample, component.plane == 0))
    return tuple(found)


def can_allocate(size_bytes: int) -> bool:
    """Return whether this process can still allocate ``size_bytes`` of memory."""
    try:
        np.empty(size_bytes, dtype=np.uint8)
    except MemoryError:
        return False
    return True
