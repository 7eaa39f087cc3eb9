"""Carries out the plans that are ``by_swscale`` with FFmpeg's swscale, directly from and into memory of pictures.

With ``_FLAGS`` swscale's bytes are those of ``plan`` on every processor; tests compare them. Three limits of swscale
are met here: it needs some rows and columns; it writes columns in groups of 8; and it stores sums in 32 bits, so that
a value of 512 or more, which is white, becomes black.
"""

import weakref
from collections import deque
from collections.abc import Sequence
from ctypes import byref, c_int, c_void_p
from fractions import Fraction
from itertools import product
from typing import Final

import numpy as np

from ..media.av_abi import ffmpeg
from ..surfaces.scaling import Lattice
from .host_memory import Array, scratch
from .plan import COLOUR_BITS, TensorPlan, Window
from .swscale_taps import site

_FLAGS: Final = "bilinear+accurate_rnd+full_chroma_int+bitexact"
_LEAST: Final = 16
"""The least width and height: swscale makes errors in chroma of fewer than 4 columns or rows."""
_GROUP: Final = 8
"""The columns that swscale writes at once."""
_STRIP_SAMPLES: Final = 1 << 15
"""How many values are handed on at once: few enough to stay in a core's cache until they are written."""
_CHROMA_SCALE: Final = Fraction(255, 224)
"""By this number swscale divides the weights of chroma if the range is full."""
_TOO_MUCH: Final = 512
_DIM: Final = 128
"""With this luma or less no sum is too large; if a sum is too large, its value with this luma is white too.

A sum is too large only if luma is 222 or more. Luma that is limited to 128 and then resized is at least 222 x 128 / 255
there, because weights are not negative. With chroma, which adds at least 234, that is white.
"""
_MIDDLE, _WHITE = 128, 255
_NOT_HALVED: Final = -513
_ONE: Final = 1 << 16


class SwscaleArithmetic:
    """Computes a plan for a window (left, top, width, height) of pictures. Thread-safe.

    ``across`` and ``down`` say where chroma's columns and rows are.
    """

    def __init__(self, plan: TensorPlan, window: Window, across: Lattice, down: Lattice) -> None:
        assert plan.by_swscale, "swscale has the formula"  # noqa: S101
        self.plan = plan
        self._sites = across, down
        left, top, wide, high = window
        rows, columns = _covering(top, high, down.spacing), _covering(left, wide, across.spacing)
        luma = tuple(
            slice(*(n * by.spacing for n in (of.start, of.stop))) for of, by in ((rows, down), (columns, across))
        )
        self._sources = luma, (rows, columns), (rows, columns)
        self._shape = tuple(of.stop - of.start for of in luma)
        self._made = plan.size[::-1]
        self._inside = tuple(slice(extent) for extent in self._made)
        if plan.size == (wide, high):
            self._shape = tuple(max(_LEAST, _up(each, to)) for each, to in zip(self._shape, (2, _GROUP), strict=True))
            self._made = self._shape
            self._inside = tuple(
                slice(begin - of.start, begin - of.start + extent)
                for of, begin, extent in zip(luma, (top, left), (high, wide), strict=True)
            )
        chroma = self._shape[0] // down.spacing, self._shape[1] // across.spacing
        self._shapes = self._shape, chroma, chroma
        (luma_weight, _, red), _, (_, blue, _) = plan.weights
        room = (_TOO_MUCH << COLOUR_BITS) - (1 << COLOUR_BITS >> 1) - luma_weight * (_WHITE - plan.offsets[0])
        self._chroma_most = [_MIDDLE + (room - 1) // weight for weight in (blue, red)]
        self._contexts: deque[int] = deque()
        weakref.finalize(self, _free, self._contexts)

    def write(self, samples: Sequence[Array], target: Array, table: Array | None) -> None:
        """Write values, or their numbers in ``table`` (3, 256), into ``target`` (3, rows, columns)."""
        pitch = _up(self._made[1], _GROUP)
        is_fit = target.shape[1:] == (self._made[0], pitch)
        if table is None and is_fit and target.strides[2] == 1 and target.strides[1] >= pitch:
            self._convert(samples, target)
            return
        made = scratch("made", (3, self._made[0], pitch), np.uint8)
        self._convert(samples, made)
        shown = made[:, *self._inside]
        step = max(1, _STRIP_SAMPLES // shown.shape[2])
        for channel, begin in product(range(3), range(0, shown.shape[1], step)):
            strip = channel, slice(begin, begin + step)
            if table is None:
                np.copyto(target[strip], shown[strip])
            else:
                np.take(table[channel], shown[strip], out=target[strip], mode="wrap")

    def _convert(self, samples: Sequence[Array], target: Array) -> None:
        planes = [self._plane(number, each) for number, each in enumerate(samples)]
        try:
            context = self._contexts.pop()
        except IndexError:
            context = self._open()
        try:
            _scale(context, planes, target)
            if any(plane.max() > most for plane, most in zip(planes[1:], self._chroma_most, strict=True)):
                dim = np.minimum(planes[0], _DIM, out=scratch("dim", self._shape, np.uint8))
                again = scratch("again", target.shape, np.uint8)
                _scale(context, [dim, *planes[1:]], again)
                np.maximum(target, again, out=target)
        finally:
            self._contexts.append(context)

    def _plane(self, number: int, samples: Array) -> Array:
        """Return a plane of the size to convert; beyond the window, and beyond the picture, samples are repeated."""
        found, shape = samples[self._sources[number]], self._shapes[number]
        if found.shape == shape and found.strides[1] == 1 and found.strides[0] >= shape[1]:
            return found
        held = scratch(f"plane {number}", shape, np.uint8)
        rows, columns = found.shape
        held[:rows, :columns] = found
        held[:rows, columns:] = found[:, -1:]
        held[rows:] = held[rows - 1]
        return held

    def _open(self) -> int:
        library = ffmpeg()
        context = library.sws_alloc_context()
        if not context:
            raise MemoryError
        across, down = self._sites
        (high, wide), (rows, columns) = self._shape, self._made
        options = {
            "srcw": wide,
            "srch": high,
            "src_format": "yuv420p" if down.spacing > 1 else "yuv422p",
            "src_h_chr_pos": _site(across),
            "src_v_chr_pos": _site(down),
            "dstw": columns,
            "dsth": rows,
            "dst_format": "gbrp",
            "sws_flags": _FLAGS,
            "sws_dither": "none",
        }
        failed = [
            name
            for name, value in options.items()
            if library.av_opt_set(context, name.encode(), str(value).encode(), 0) < 0
        ]
        assert not failed, f"swscale has no {failed}"  # noqa: S101
        is_full = self.plan.offsets[0] == 0
        (_, _, red), (_, *green), (_, blue, _) = self.plan.weights
        scale = _CHROMA_SCALE if is_full else Fraction(1)
        weights = (c_int * 4)(*(-int(-abs(each) * scale // 1) for each in (red, blue, *green)))
        if library.sws_init_context(context, None, None) < 0:
            library.sws_free_context(byref(c_void_p(context)))
            raise MemoryError
        library.sws_setColorspaceDetails(context, weights, is_full, weights, 1, 0, _ONE, _ONE)
        return int(context)


def _scale(context: int, planes: Sequence[Array], target: Array) -> None:
    source, pitches = (
        (c_void_p * 4)(*(each.ctypes.data for each in planes)),
        (c_int * 4)(*(each.strides[0] for each in planes)),
    )
    red, green, blue = (each.ctypes.data for each in target)
    into, steps = (c_void_p * 4)(green, blue, red), (c_int * 4)(*[target.strides[1]] * 3)
    rows = ffmpeg().sws_scale(context, source, pitches, 0, len(planes[0]), into, steps)
    assert rows == target.shape[1], "swscale writes every row"  # noqa: S101


def _free(contexts: deque[int]) -> None:
    while contexts:
        ffmpeg().sws_free_context(byref(c_void_p(contexts.pop())))


def _up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def _covering(begin: int, extent: int, spacing: int) -> slice:
    """Return the samples whose area is at least partly inside a window."""
    return slice(begin // spacing, -(-(begin + extent) // spacing))


def _site(lattice: Lattice) -> int:
    """Return where the first chroma sample is, in units of 1/256 luma sample after the first luma sample."""
    return site(lattice) if lattice.spacing > 1 else _NOT_HALVED
