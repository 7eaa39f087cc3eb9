"""Lays a picture over the film by exact integer blending in the film's format; docs/filters.md has the formula."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias

import av.error
import numpy as np
from av.codec import CodecContext
from av.packet import Packet
from av.video.format import VideoFormat as PixelFormat
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ...errors import InputUnreadable
from ..encode.pix_fmt import is_rgb
from ..media.values import BYTE_BITS, Colour, VideoFormat
from .steps import Size, chroma_step
from .tone import HLG_PEAK_CD, LUMA_2020, WHITE_CD, Values, hlg_code, power, pq_code

_WHOLE_PERCENT: Final = 100
_OPAQUE: Final = 255 * _WHOLE_PERCENT
"""The largest alpha (8 bits) times the largest opacity (percent)."""
_DIGITS: Final = 16
_BAND_ROWS: Final = 64
"""Rows of luma that are blended at once, to save memory; divisible by any subsampling."""
_INT32_END: Final = 1 << 31

AS_PNG: Final = "Save the overlay as a PNG with 8 bits a channel; transparency is kept."
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_HEADER_CHUNK: Final = slice(12, 16)
_HEADER_BYTES: Final = 24
_ALIGNED_SAMPLES: Final = 64
"""FFmpeg rounds the number of samples in a row up to a multiple of this number."""

FULL_RANGE: Final = 2
_BYTE, _WORD = 255, 65535
_HD_LINES: Final = 720
"""YUV without a stated matrix counts as BT.709 from this height on."""
_BT709, _SMPTE170M, _BT2020, _PQ, _HLG = 1, 6, 9, 16, 18
_LUMA: Final = {_BT709: (2126, 7152, 722), 5: (2990, 5870, 1140), _SMPTE170M: (2990, 5870, 1140)} | {
    _BT2020: (2627, 6780, 593)
}
"""The weights of red, green and blue in luma, in 1/10000, for each matrix number of H.273."""
_UNSTATED: Final = frozenset({0, 2})
_TO_2020: Final = ((0.6274, 0.3293, 0.0433), (0.0691, 0.9195, 0.0114), (0.0164, 0.0880, 0.8956))
"""Converts linear BT.709 to linear BT.2020 (BT.2087, annex 2)."""
_SDR_GAMMA: Final = 2.4

Levels: TypeAlias = NDArray[np.int64]
Numbers: TypeAlias = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """A picture, and the position of its upper left corner in the film's pictures."""

    width: int
    height: int
    x: int
    y: int
    opacity: int  # in percent
    sha256: str  # the digest of ``png``
    png: bytes = field(repr=False)  # the content of the PNG file

    @property
    def name(self) -> str:
        """The overlay's name in the encoder kind."""
        return f"overlay={self.sha256[:_DIGITS]}:{self.x}:{self.y}:{self.opacity}"

    @property
    def words(self) -> str:
        """The overlay's description for the user."""
        opacity = "" if self.opacity == _WHOLE_PERCENT else f", {self.opacity} % opaque"
        return f"overlaid with a picture of {self.width}x{self.height} at {self.x}:{self.y}{opacity}"

    def kept_bytes(self, step: Size) -> int:
        """Return how many bytes the overlay takes if ``step`` luma samples, across and down, share a chroma sample."""
        across, down = step
        pixels, chroma = self.width * self.height, (self.width // across + 2) * (self.height // down + 2)
        return 8 * (pixels + 2 * chroma) + 4 * pixels

    def samples(self) -> NDArray[np.uint8]:
        """Return the overlay's rows of R, G, B and alpha: (height, width, 4)."""
        return png_samples(self.png, self.sha256[:_DIGITS])


@dataclass(frozen=True, slots=True, eq=False)
class Blend:
    """The blending of a part of a plane: (sample * ``kept`` + ``added``) / ``divisor``, rounded down."""

    rows: slice
    columns: slice
    kept: Numbers
    added: Numbers
    divisor: Numbers


def lay(blends: Sequence[tuple[int, Blend]], frame: VideoFrame) -> None:
    """Lay an overlay on a planar picture, in place; ``blends`` were made for the picture's format."""
    planes: list[NDArray[Any]] = []
    for plane, component in zip(frame.planes, frame.format.components, strict=False):
        kind = "u1" if component.bits <= BYTE_BITS else "<u2"
        planes.append(np.frombuffer(memoryview(plane), kind).reshape(plane.height, -1)[:, : plane.width])
    for number, blend in blends:
        under = planes[number][blend.rows, blend.columns]
        mixed = under * blend.kept
        mixed += blend.added
        mixed //= blend.divisor
        under[...] = mixed


@lru_cache(maxsize=1)  # all segments of a job share the result, which is no larger than eight pictures of the film
def blends_of(overlay: Overlay, output: VideoFormat) -> tuple[tuple[int, Blend], ...]:
    """Return the blends of an overlay by plane number; ``InputUnreadable`` if its file is not a readable PNG."""
    return blends_for(overlay.samples(), (overlay.x, overlay.y), overlay.opacity, output)


def blends_for(
    samples: NDArray[np.uint8], place: Size, opacity: int, output: VideoFormat
) -> tuple[tuple[int, Blend], ...]:
    """Return the blends of rows of R, G, B and alpha at ``place``, by plane number; ``opacity`` is in percent."""
    components = PixelFormat(output.pix_fmt).components
    bits, steps = components[0].bits, [(1, 1)]
    if components[2:]:  # the format has chroma
        steps += [chroma_step(output.pix_fmt)] * 2
    size, found = (output.width, output.height), []
    for corner, pixels in _bands(samples, place):
        alpha = pixels[..., 3].astype(np.int64) * opacity
        planes = coded(pixels[..., :3], output, bits)
        for number, (levels, step) in enumerate(zip(planes, steps, strict=False)):
            found.append((number, _compact(_blend(levels, alpha, corner, step, size), bits)))
    return tuple(found)


def _bands(pixels: NDArray[np.uint8], place: Size) -> Iterator[tuple[Size, NDArray[np.uint8]]]:
    """Yield the non-transparent part as bands of rows, each with the position of its upper left corner."""
    rows, columns = (np.flatnonzero(pixels[..., 3].any(axis=axis)) for axis in (1, 0))
    if not rows.size:
        return
    left, right, row, end = int(columns[0]), int(columns[-1]) + 1, int(rows[0]), int(rows[-1]) + 1
    while row < end:
        top = place[1] + row
        # No band ends within a sample of chroma.
        following = min(end, row + _BAND_ROWS - top % _BAND_ROWS)
        yield (place[0] + left, top), pixels[row:following, left:right]
        row = following


def _compact(blend: Blend, bits: int) -> Blend:
    """Return the blend in less memory: 32 bits hold all sums except those of subsampled chroma with 16 bits."""
    most = int(blend.divisor.max())
    kind: type[np.signedinteger[Any]] = np.int32 if most << bits < _INT32_END else np.int64
    divisor = blend.divisor[:1, :1] if (blend.divisor == most).all() else blend.divisor
    kept, added = (each.astype(kind) for each in (blend.kept, blend.added))
    return Blend(blend.rows, blend.columns, kept, added, divisor.astype(kind))


def _blend(levels: Levels, alpha: Levels, place: Size, step: Size, size: Size) -> Blend:
    """Return the blend of a plane whose samples cover ``step`` luma samples across and down."""
    (x, y), (across, down), (height, width) = place, step, alpha.shape
    left, top = x // across, y // down
    right, bottom = -(-(x + width) // across), -(-(y + height) // down)

    def summed(values: Levels) -> Levels:
        """Return the sum of the overlay's values under each sample of the plane."""
        whole = np.zeros(((bottom - top) * down, (right - left) * across), np.int64)
        inner = slice(y - top * down, y - top * down + height), slice(x - left * across, x - left * across + width)
        whole[inner] = values
        return _block_sums(whole, step)

    # A chroma sample at an odd edge covers fewer luma samples.
    inside = np.ones(((bottom - top) * down, (right - left) * across), np.int64)
    inside[size[1] - top * down :] = 0
    inside[:, size[0] - left * across :] = 0
    divisor = _block_sums(inside, step) * _OPAQUE
    added = summed(levels * alpha) + divisor // 2
    return Blend(slice(top, bottom), slice(left, right), divisor - summed(alpha), added, divisor)


def _block_sums(values: Levels, step: Size) -> Levels:
    across, down = step
    rows, columns = values.shape
    return np.asarray(values.reshape(rows // down, down, columns // across, across).sum(axis=(1, 3)))


def png_size(content: bytes, name: str) -> Size:
    """Return (width, height) from the header; ``InputUnreadable`` if this is not a PNG. ``name`` is for messages."""
    if not content.startswith(_SIGNATURE) or content[_HEADER_CHUNK] != b"IHDR" or len(content) < _HEADER_BYTES:
        raise InputUnreadable(f"the overlay picture {name} is not a PNG file", AS_PNG)
    width, height = struct.unpack(">II", content[_HEADER_CHUNK.stop : _HEADER_BYTES])
    return width, height


def png_samples(content: bytes, name: str) -> NDArray[np.uint8]:
    """Return rows of 8-bit R, G, B and alpha; ``InputUnreadable`` if a PNG is damaged, or has a wrong size or depth."""
    size = png_size(content, name)
    try:
        frame = next(_decoded(content, size))
    except (av.error.FFmpegError, StopIteration, ValueError) as error:
        message = f"the overlay picture {name} cannot be decoded: {getattr(error, 'strerror', None) or error}"
        raise InputUnreadable(message, AS_PNG) from error
    if (frame.width, frame.height) != size:
        message = f"the overlay picture {name} states {size[0]}x{size[1]}, but is {frame.width}x{frame.height}"
        raise InputUnreadable(message, AS_PNG)
    if (samples := _rgba(frame)) is None:
        message = f"the overlay picture {name} has an unsupported format: {frame.format.name}"
        raise InputUnreadable(message, AS_PNG)
    return samples


def _decoded(content: bytes, size: Size) -> Iterator[VideoFrame]:
    """Yield the file's one picture; no memory is allocated for a picture larger than ``size``."""
    decoder = CodecContext.create("png", "r")
    decoder.thread_count = 1
    # Without err_detect a chunk with a wrong checksum would be used.
    decoder.options = {"max_pixels": str((size[0] + _ALIGNED_SAMPLES) * size[1]), "err_detect": "crccheck+explode"}
    yield from decoder.decode(Packet(content))
    yield from decoder.decode(None)


def _rgba(frame: VideoFrame) -> NDArray[np.uint8] | None:
    """Return a picture's R, G, B and alpha, unconverted; None if samples do not have 8 bits."""
    kind, plane = frame.format.name, frame.planes[0]
    rows: NDArray[Any] = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)[: frame.height]
    if kind == "pal8":
        palette = np.frombuffer(memoryview(frame.planes[1]), "<u4")[:256]
        colours = np.stack([palette >> shift & 255 for shift in (16, 8, 0, 24)], axis=1).astype(np.uint8)
        return np.asarray(colours[rows[:, : frame.width]])
    channels = {"rgba": (0, 1, 2, 3), "rgb24": (0, 1, 2), "gray": (0, 0, 0), "ya8": (0, 0, 0, 1)}.get(kind)
    if channels is None:
        return None
    samples = rows[:, : frame.width * (max(channels) + 1)].reshape(frame.height, frame.width, -1)[..., channels]
    if kind in ("rgb24", "gray"):  # no alpha: opaque
        opaque = np.full((*samples.shape[:2], 1), 255, np.uint8)
        samples = np.concatenate([samples, opaque], axis=2)
    return np.asarray(samples)


def takes_overlay(output: VideoFormat) -> bool:
    """Return whether an overlay can be laid on pictures of this format: YUV with a known matrix, or grey."""
    return not is_rgb(output.pix_fmt) and (_matrix(output.colour, output.height) in _LUMA)


def _matrix(colour: Colour, height: int) -> int:
    if colour.matrix not in _UNSTATED:
        return colour.matrix
    if colour.transfer in (_PQ, _HLG) or colour.primaries == _BT2020:
        return _BT2020
    return _BT709 if height >= _HD_LINES else _SMPTE170M


def coded(rgb: NDArray[np.uint8], output: VideoFormat, bits: int) -> tuple[Levels, Levels, Levels]:
    """Return Y', Cb and Cr of sRGB's R'G'B' (rows, columns, 3), with ``bits`` bits in the film's range."""
    colour = output.colour
    if colour.transfer in (_PQ, _HLG):
        flat, places = np.unique(rgb.reshape(-1, 3), axis=0, return_inverse=True)
        levels = _in_hdr(flat, colour.transfer)[places.reshape(rgb.shape[:2])]
        top = _WORD
    else:
        levels, top = rgb.astype(np.int64), _BYTE
    red, green, blue = levels[..., 0], levels[..., 1], levels[..., 2]
    of_red, of_green, of_blue = _LUMA[_matrix(colour, output.height)]
    luma = of_red * red + of_green * green + of_blue * blue
    whole = of_red + of_green + of_blue
    full = colour.range == FULL_RANGE
    steps, chroma_steps, black = (
        ((1 << bits) - 1,) * 2 + (0,) if full else (219 << bits - 8, 224 << bits - 8, 16 << bits - 8)
    )
    most, middle = (1 << bits) - 1, 128 << bits - 8
    return (
        _scaled(luma, steps, whole * top, black, most),
        _scaled(whole * blue - luma, chroma_steps, 2 * (whole - of_blue) * top, middle, most),
        _scaled(whole * red - luma, chroma_steps, 2 * (whole - of_red) * top, middle, most),
    )


def _scaled(value: Levels, steps: int, unit: int, zero: int, most: int) -> Levels:
    return np.clip(zero + (2 * steps * value + unit) // (2 * unit), 0, most)


def _in_hdr(rgb: NDArray[np.uint8], transfer: int) -> Levels:
    """Return R'G'B' of HDR, in 16 bits, for R'G'B' of SDR: SDR's white becomes HDR's reference white."""
    linear = power(np.arange(_BYTE + 1) / _BYTE, _SDR_GAMMA)[rgb] * WHITE_CD
    light = [row[0] * linear[:, 0] + row[1] * linear[:, 1] + row[2] * linear[:, 2] for row in _TO_2020]
    codes = [pq_code(each) for each in light] if transfer == _PQ else _hlg_codes(light)
    return np.floor(np.stack(codes, axis=1) * _WORD + 1 / 2).astype(np.int64)


def _hlg_codes(light_cd: list[Values]) -> list[Values]:
    """Return the codes for which HLG's reference display shows this light: BT.2100's inverse OOTF, then the OETF."""
    shown = [each / HLG_PEAK_CD for each in light_cd]
    luma = LUMA_2020[0] * shown[0] + LUMA_2020[1] * shown[1] + LUMA_2020[2] * shown[2]
    # The exponent inverts HLG's system gamma, 1.2.
    gain = 1 / np.maximum(power(luma, 1 / 6), 1e-6)
    return [hlg_code(each * gain) for each in shown]
