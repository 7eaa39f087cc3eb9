"""Where a pixel format's samples are, for every format in which each sample takes a whole byte or 16-bit word."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from av.video.format import VideoFormat as PixelFormat

from ..surfaces.formats import SurfaceFormat

_SIDE: Final = 16
_BYTE_BITS, _WORD_BITS = 8, 16
_COLOURS: Final = 3
_DEPTHS: Final = (9, 10, 12, 14)
_PACKED: Final = re.compile(r"(rgba|bgra|argb|abgr|rgb|bgr)(24|48|64)?(le|be)?")
_SWAPPED: Final = ("nv21", "nv42")
"""Formats with Cr before Cb."""
_HIGH: Final = re.compile(r"p[0-4]1[0-6](le|be)|.*msb(le|be)")
"""Formats whose samples are in the upper bits of 16."""
_FLOAT: Final = re.compile(r".*f(16|32)(le|be)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePlaces:
    """The samples of a picture: one channel of grey, or three of Y'CbCr or R'G'B'. Alpha is left out."""

    channels: tuple[tuple[int, int], ...]  # (plane, place among the samples that alternate in the plane)
    bits: int  # significant bits of a sample
    shift: int = 0  # padding bits below the significant bits
    halved_across: bool = False  # whether the second and third channel have half the columns
    halved_down: bool = False  # whether the second and third channel have half the rows
    is_rgb: bool = False
    is_full: bool = False  # whether the format implies full range


@cache
def sample_places(pix_fmt: str) -> SamplePlaces | None:
    """Return where the samples of FFmpeg's ``pix_fmt`` are; None if they must be repacked first (``stand_in``)."""
    layout = PixelFormat(pix_fmt, _SIDE, _SIDE)
    parts = [each for each in layout.components if not each.is_alpha]
    bits = {each.bits for each in parts}
    usable = len(parts) in (1, _COLOURS) and len(bits) == 1 and _BYTE_BITS <= min(bits) <= _WORD_BITS
    if not usable or layout.has_palette or _FLOAT.fullmatch(pix_fmt) or pix_fmt.startswith(("xyz", "bayer")):
        return None
    (depth,) = bits
    channels = _channels(pix_fmt, [each.plane for each in parts])
    across, down = (_SIDE // parts[-1].width, _SIDE // parts[-1].height)
    if channels is None or max(across, down) > 1 + 1:
        return None
    return SamplePlaces(
        channels=channels,
        bits=depth,
        shift=_WORD_BITS - depth if depth > _BYTE_BITS and _HIGH.fullmatch(pix_fmt) else 0,
        halved_across=across > 1,
        halved_down=down > 1,
        is_rgb=layout.is_rgb,
        is_full=pix_fmt.startswith("yuvj"),
    )


def _channels(pix_fmt: str, planes: list[int]) -> tuple[tuple[int, int], ...] | None:
    if len(set(planes)) == len(planes):
        return tuple((plane, 0) for plane in planes)
    if planes == [0, 1, 1]:
        order = (1, 0) if pix_fmt in _SWAPPED else (0, 1)
        return (0, 0), (1, order[0]), (1, order[1])
    packed = _PACKED.fullmatch(pix_fmt)
    return None if packed is None else tuple((0, packed[1].index(letter)) for letter in "rgb")


@cache
def stand_in(pix_fmt: str) -> str:
    """Return the format to which FFmpeg repacks pictures of a format without ``sample_places``."""
    layout = PixelFormat(pix_fmt, _SIDE, _SIDE)
    bits = max((each.bits for each in layout.components), default=_BYTE_BITS)
    depth = "" if bits <= _BYTE_BITS else f"{bits if bits in _DEPTHS else _WORD_BITS}le"
    if len(layout.components) == 1 and not layout.has_palette:
        return f"gray{depth}"
    if layout.is_rgb or layout.has_palette:
        return f"gbrp{depth}"
    chroma = layout.components[1]
    sampling = {(2, 1): "422", (2, 2): "420"}.get((_SIDE // chroma.width, _SIDE // chroma.height), "444")
    return f"yuv{sampling}p{depth}"


def surface_places(format_: SurfaceFormat) -> SamplePlaces:
    """Return where the samples of a surface are in its planes."""
    return SamplePlaces(
        channels=((0, 0), (1, 0), (1, 1)) if format_.halved_across else ((0, 0), (1, 0), (2, 0)),
        bits=format_.bits,
        shift=8 * format_.sample_bytes - format_.bits,
        halved_across=format_.halved_across,
        halved_down=format_.halved_down,
    )
