"""Gives decoders memory that earlier pictures have used, including the pictures of other decoders.

FFmpeg keeps memory only as long as one decoder lives, and each group of pictures has its own decoder.
"""

import ctypes
import errno
import sys
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_ssize_t
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..media.av_abi import FrameHead, FreeBuffer, ffmpeg
from ..surfaces.idle_memory import IdleMemory

_MOST_IDLE_BYTES: Final = 64 << 20
"""How much unused memory this process keeps: enough for a few large pictures."""
_LEAST_IDLE_BYTES: Final = 64 << 10
"""Smaller planes get new memory each time, because mapping it costs little."""
_ALIGNED_BYTES: Final = 64
"""The largest alignment that FFmpeg's SIMD code needs."""
_PAST_BYTES: Final = 16 + _ALIGNED_BYTES - 1
"""How far FFmpeg's code may read past the end of a plane, as in libavcodec's own buffers (get_buffer.c)."""
_PLANES: Final = 4

_idle: Final = IdleMemory(_MOST_IDLE_BYTES, _LEAST_IDLE_BYTES)
_used: Final[dict[int, NDArray[np.uint8]]] = {}
"""The memory of each plane in use, by its address."""


def give_buffers(context: int, frame: FrameHead) -> int:
    """Give a picture of a planar format one buffer for each plane; return 0, or FFmpeg's number of an error."""
    library = ffmpeg()
    width, height, alignment = c_int(frame.width), c_int(frame.height), (c_int * len(frame.line_size))()
    library.avcodec_align_dimensions2(context, byref(width), byref(height), alignment)
    pitches, sizes = (c_int * _PLANES)(), (c_size_t * _PLANES)()
    columns = width.value
    while True:
        failed = library.av_image_fill_linesizes(pitches, frame.format, columns)
        if failed < 0 or not any(pitch % each for pitch, each in zip(pitches, alignment, strict=False) if each):
            break
        columns += columns & -columns
    if failed >= 0:
        failed = library.av_image_fill_plane_sizes(sizes, frame.format, height.value, (c_ssize_t * _PLANES)(*pitches))
    if failed < 0:
        return int(failed)
    for plane, size_bytes in enumerate(sizes):
        if size_bytes:
            try:
                memory = _idle.take(size_bytes + _PAST_BYTES + _ALIGNED_BYTES)
            except MemoryError:
                return -errno.ENOMEM
            address = memory.__array_interface__["data"][0]
            aligned = -(-address // _ALIGNED_BYTES) * _ALIGNED_BYTES
            _used[address] = memory
            buffer = library.av_buffer_create(aligned, size_bytes + _PAST_BYTES, _FREE, address, 0)
            if not buffer:
                del _used[address]
                return -errno.ENOMEM
            frame.buffers[plane], frame.data[plane], frame.line_size[plane] = buffer, aligned, pitches[plane]
    frame.extended_data = ctypes.addressof(frame)
    return 0


def _take_back(
    address: int,
    data: int,
    used: dict[int, NDArray[np.uint8]] = _used,
    keep: Callable[[NDArray[np.uint8]], None] = _idle.keep,
    is_ending: Callable[[], bool] = sys.is_finalizing,
) -> None:
    """Keep a plane's memory. At the interpreter's exit, pictures may outlive this module's names."""
    del data
    memory = used.pop(address)
    if not is_ending():
        keep(memory)


_FREE: Final[Any] = FreeBuffer(_take_back)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_FREE))  # pictures may also outlive this module
