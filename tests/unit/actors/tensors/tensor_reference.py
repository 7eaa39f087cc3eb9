"""A slow, separate reading of the formula for tensors in actors/tensors/plan.py, and pictures to try it on."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from codecfleet.actors.media.values import Colour, VideoFormat
from codecfleet.actors.surfaces.frames import Frame
from codecfleet.actors.surfaces.host_pictures import plane_rows
from codecfleet.actors.surfaces.scaling import ScaleFilter

PLANAR = {
    f"{kind}{bits}": (kind, int(bits.strip("ple") or 8))
    for kind in ("yuv420", "yuv422", "yuv444", "yuv440")
    for bits in ("p", "p10le", "p12le", "p16le")
    if (kind, bits) != ("yuv440", "p16le")
}
KR_KB = {
    1: (0.2126, 0.0722),
    4: (0.30, 0.11),
    5: (0.299, 0.114),
    6: (0.299, 0.114),
    7: (0.212, 0.087),
    9: (0.2627, 0.0593),
}
SITED = {0: (0.5, 1.0), 1: (0.5, 1.0), 2: (1.0, 1.0), 3: (0.5, 0.5), 4: (1.0, 0.5), 5: (0.5, 1.5), 6: (1.0, 1.5)}
"""Where the first sample of halved chroma is, (across, down), in luma samples."""


def noise(pix_fmt: str, size: tuple[int, int], seed: int, bits: int = 8) -> VideoFrame:
    """Return a picture in which every significant bit is anything; every second one has extremes only."""
    picture, random = VideoFrame(*size, pix_fmt), np.random.default_rng(seed)
    kind = np.dtype(np.uint8 if bits == 8 else np.uint16)
    for plane in picture.planes:
        rows = plane_rows(plane, kind)
        samples = random.integers(0, 1 << bits, rows.shape)
        rows[:] = np.where(samples < 1 << bits >> 1, 0, (1 << bits) - 1) if seed % 2 else samples
    return picture


def frame_of(picture: VideoFrame, colour: Colour) -> Frame:
    """Return a frame on the host."""
    format_ = VideoFormat(picture.width, picture.height, picture.format.name, Fraction(25), colour=colour)
    return Frame(index=0, ticks=0, time_base=Fraction(1, 25), start_ticks=0, format=format_, _picture=picture)


def kernel(filter_: ScaleFilter, distance: float) -> float:
    """Return a filter's value."""
    x = abs(distance)
    if filter_ is ScaleFilter.BILINEAR:
        return max(0.0, 1 - x)
    if filter_ is ScaleFilter.LANCZOS:
        return float(np.sinc(x) * np.sinc(x / 3)) if x < 3 else 0.0
    a = -0.6
    if x < 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def resized_rows(
    samples: NDArray[np.float64], window: tuple[int, int], count: int, filter_: ScaleFilter, lattice: tuple[int, float]
) -> NDArray[np.float64]:
    """Resize the first axis, without rounding: targets show ``window`` (begin, extent), in luma samples."""
    (begin, extent), (spacing, first) = window, lattice
    least, most = begin // spacing, -(-(begin + extent) // spacing) - 1
    scale = max(1.0, extent / count / spacing)
    reach = {ScaleFilter.BILINEAR: 1, ScaleFilter.BICUBIC: 2, ScaleFilter.LANCZOS: 3}[filter_] * scale
    found = []
    for target in range(count):
        middle = (begin + extent * (target + 0.5) / count - first) / spacing
        places = range(int(np.floor(middle - reach)), int(np.ceil(middle + reach)) + 1)
        weights = np.array([kernel(filter_, (place - middle) / scale) for place in places])
        rows = samples[[min(max(place, least), most) for place in places]]
        found.append(np.tensordot(weights / weights.sum(), rows, 1))
    return np.array(found)


def reference(
    planes: Sequence[NDArray[np.float64]],
    size: tuple[int, int],
    crop: tuple[int, int, int, int],
    target: tuple[int, int],
    *,
    filter_: ScaleFilter,
    bits: int,
    colour: Colour,
    is_rgb: bool = False,
) -> NDArray[np.float64]:
    """Return R'G'B' (3, rows, columns) of 0 to 1, clipped, from whole channels, in floating point."""
    left, top, wide, high = crop
    made = []
    for number, plane in enumerate(planes):
        halved = [
            full // 2 + full % 2 == found and full > 1 for full, found in zip(size[::-1], plane.shape, strict=True)
        ]
        sited = SITED[colour.chroma_location]
        halved = [each and number > 0 for each in halved]
        down = (2, sited[1]) if halved[0] else (1, 0.5)
        across = (2, sited[0]) if halved[1] else (1, 0.5)
        rows = resized_rows(plane, (top, high), target[1], filter_, down)
        made.append(resized_rows(rows.T, (left, wide), target[0], filter_, across).T)
    largest = (1 << bits) - 1
    if is_rgb:
        return np.clip(np.array(made) / largest, 0, 1)
    step = 1 << (bits - 8)
    black, luma_span, chroma_span = (0, largest, largest) if colour.range == 2 else (16 * step, 219 * step, 224 * step)
    y = (made[0] - black) / luma_span
    if len(made) == 1:
        return np.clip(np.array([y, y, y]), 0, 1)
    cb, cr = ((each - 128 * step) / chroma_span for each in made[1:])
    red, blue = KR_KB.get(colour.matrix) or KR_KB[1 if size[1] >= 720 else 6]
    green = 1 - red - blue
    r, b = y + 2 * (1 - red) * cr, y + 2 * (1 - blue) * cb
    return np.clip(np.array([r, (y - red * r - blue * b) / green, b]), 0, 1)
