"""Compares output frames with source frames: how alike they are (PSNR, SSIM), and whether one shows a neighbour.

Neighbours are compared in luma averaged to at most 320 samples per line, which cancels coding noise (docs/verify.md).
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, lru_cache
from statistics import fmean, median
from typing import Any, cast

import av.filter
import numpy as np
from av.video.format import VideoFormat
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, Colorspace, Interpolation, VideoReformatter
from numpy.typing import NDArray

from .verdict import Check, PictureNumbers, check

IDENTICAL_DB = 100.0  # replaces an infinite PSNR
NEIGHBOURS = 3  # an output frame is compared with this many source frames before the expected one, and as many after
MOVED = 16.0  # a tile has changed if the mean squared difference of two source frames is at least this (8-bit steps)
# a neighbour matches clearly better if its squared error is below this fraction of the expected frame's
CLEARLY = 0.4
FAITHFULLY = 1 / 6
"""The neighbour's error must also be below this share of the difference between the two source frames: when an encoder
skips small changes, its pictures may resemble a neighbour slightly more, but match neither well."""
FOREIGN_DB = 18.0  # a frame with a PSNR of averaged luma below this shows something else
OUTLIER_DB, OUTLIER_BELOW_MEDIAN_DB = 25.0, 15.0
"""A frame is damaged if its PSNR is below the first number, and below the track's median by more than the second."""
_COARSE_WIDTH = 320
_FIELDS = ("top", "bottom")
_VIEWS = ("", *_FIELDS)  # the whole picture, and each field of it
_YUV = 3  # components
_TILE = 8
_WORST = 5

_Plane = NDArray[np.float32]


class _Filters:
    """FFmpeg's filters for one picture format: for PSNR and SSIM of a pair of pictures, and for averages of luma."""

    def __init__(self, width: int, height: int, pix_fmt: str) -> None:
        self._pair = av.filter.Graph()
        self._pair.threads = 1
        picture = {"video_size": f"{width}x{height}", "pix_fmt": pix_fmt, "time_base": "1/1", "pixel_aspect": "1/1"}
        self._reference, self._output = (self._pair.add("buffer", **picture) for _ in range(2))
        split, psnr, ssim, self._measured = (self._pair.add(name) for name in ("split", "psnr", "ssim", "buffersink"))
        self._reference.link_to(split)
        self._output.link_to(psnr, 0, 0)
        split.link_to(psnr, 0, 1)
        psnr.link_to(ssim, 0, 0)
        split.link_to(ssim, 1, 1)
        ssim.link_to(self._measured)
        self._pair.configure()
        self._averages = {view: _averager(view, width, height, picture) for view in _VIEWS}

    def measure(self, reference: VideoFrame, output: VideoFrame) -> dict[str, float]:
        self._reference.push(reference)
        self._output.push(output)
        measured = cast("VideoFrame", self._measured.pull())
        return {key: float(value) for key, value in measured.metadata.items() if key.startswith("lavfi.")}

    def average(self, frame: VideoFrame, view: str = "") -> _Plane:
        graph = self._averages[view]
        graph.push(frame)
        return cast("VideoFrame", graph.pull()).to_ndarray().astype(np.float32) / np.float32(257)


def _averager(view: str, width: int, height: int, picture: dict[str, str]) -> av.filter.Graph:
    graph = av.filter.Graph()
    graph.threads = 1
    factor = max(2, math.ceil(width / _COARSE_WIDTH))
    size = f"{max(1, width // factor)}:{max(1, height // factor)}"
    steps = [("extractplanes", "y"), ("scale", f"{size}:flags=area"), ("format", "gray16le")]
    fields = [("field", f"type={view}")] if view else []
    filters = [graph.add(*each) for each in [*fields, *steps]]
    graph.link_nodes(graph.add("buffer", **picture), *filters, graph.add("buffersink")).configure()
    return graph


def is_rgb(pixel: VideoFormat) -> bool:
    """Return whether a format's samples are red, green and blue, or a palette of them."""
    return bool(pixel.is_rgb or pixel.has_palette)


@cache
def comparable_format(pix_fmt: str) -> str:
    """Return the planar YUV format, without alpha, for comparing pictures of ``pix_fmt``."""
    luma_only = pix_fmt.startswith("gray")
    described = VideoFormat(pix_fmt)
    bits = max(component.bits for component in described.components)
    depth = next((name for most, name in ((8, ""), (10, "10le")) if bits <= most), "12le")
    if is_rgb(described) or luma_only or len(described.components) < _YUV:
        return f"yuv444p{depth}"
    chroma = (described.chroma_width(16), described.chroma_height(16))
    sampling = {(8, 8): "420", (8, 16): "422", (4, 16): "411", (16, 8): "440"}.get(chroma, "444")
    return f"yuv{sampling}p{depth}"


@dataclass(slots=True)
class _Held:
    number: int
    source: dict[str, _Plane]  # averaged down, by view
    output: dict[str, _Plane]
    is_deinterlaced: bool  # whether the output shows one of the source's two fields

    @property
    def view(self) -> str:
        """The view of the source's picture that the output shows."""
        return min(_FIELDS, key=lambda each: _error(self, each)) if self.is_deinterlaced else ""


def _error(held: _Held, view: str) -> float:
    return float(np.mean((held.source[view] - held.output[view]) ** 2))


@dataclass(slots=True)
class PictureComparison:
    """Compares frame after frame in presentation order. ``add`` each pair once, and then ask for numbers and checks."""

    psnr_y_db: list[float] = field(default_factory=list)
    psnr_u_db: list[float] = field(default_factory=list)
    psnr_v_db: list[float] = field(default_factory=list)
    ssim_y: list[float] = field(default_factory=list)
    coarse_db: list[float] = field(default_factory=list)
    identical: bool = True  # whether every sample so far equals the source's
    misplaced: list[tuple[int, int]] = field(default_factory=list)  # (frame, the source frame that it shows)
    _held: deque[_Held] = field(default_factory=deque)
    _filters: dict[tuple[int, int, str], _Filters] = field(default_factory=dict)
    _to_reference: VideoReformatter = field(default_factory=VideoReformatter)
    _to_comparable: VideoReformatter = field(default_factory=VideoReformatter)

    def add(self, source: VideoFrame, output: VideoFrame, *, deinterlaced: bool = False) -> None:
        """Compare the next source frame with the next output frame. The frames must not be used afterwards."""
        pix_fmt = comparable_format(output.format.name)
        number, kind = len(self.psnr_y_db), (output.width, output.height, pix_fmt)
        self.identical = self.identical and _is_same(source, output)
        size = output.width, output.height
        shown = conformed(self._to_comparable, output, output, size, pix_fmt)
        wanted = conformed(self._to_reference, source, output, size, pix_fmt)
        for frame in (shown, wanted):
            frame.pts, frame.time_base = number, Fraction(1)
        if kind not in self._filters:
            self._filters[kind] = _Filters(*kind)
        filters = self._filters[kind]
        found = filters.measure(wanted, shown)
        for values, key in ((self.psnr_y_db, "y"), (self.psnr_u_db, "u"), (self.psnr_v_db, "v")):
            values.append(min(IDENTICAL_DB, found[f"lavfi.psnr.psnr.{key}"]))
        self.ssim_y.append(found["lavfi.ssim.Y"])
        views = _VIEWS if deinterlaced else _VIEWS[:1]
        sides = [{view: filters.average(frame, view) for view in views} for frame in (wanted, shown)]
        self._place(_Held(number, sides[0], sides[1], deinterlaced))

    def finish(self) -> None:
        """Judge the last frames. Call this once, after the last ``add``."""
        held = list(self._held)
        for place in range(max(0, len(held) - NEIGHBOURS), len(held)):
            self._judge(held, place)

    def _place(self, held: _Held) -> None:
        error = _error(held, "")
        self.coarse_db.append(min(IDENTICAL_DB, 10 * math.log10(255**2 / error)) if error else IDENTICAL_DB)
        self._held.append(held)
        if len(self._held) > 2 * NEIGHBOURS + 1:
            self._held.popleft()
        place = len(self._held) - 1 - NEIGHBOURS
        if place >= 0:
            self._judge(list(self._held), place)

    def _judge(self, held: list[_Held], place: int) -> None:
        """Record whether the output frame at ``place`` shows another source frame than it should."""
        own, view = held[place], held[place].view
        source, output = own.source[view], own.output[view]
        near = [
            other
            for other in held[max(0, place - NEIGHBOURS) : place + NEIGHBOURS + 1]
            # Frames of another size were averaged in other blocks, and cannot be compared.
            if other is not own and view in other.source and other.source[view].shape == output.shape == source.shape
        ]
        mine = _tile_errors(output, source)
        best, best_ratio = own.number, CLEARLY
        for other in near:
            apart = _tile_errors(other.source[view], source)
            theirs = _tile_errors(output, other.source[view])
            moved = apart >= MOVED
            # The whole picture is checked too: an encoder that skips a few tiles keeps a neighbour's content only
            # there.
            if not (moved.any() and _resembles(theirs, mine, apart)):
                continue
            ratio = _ratio(theirs[moved], mine[moved])
            if ratio < best_ratio and _resembles(theirs[moved], mine[moved], apart[moved]):
                best, best_ratio = other.number, ratio
        if best != own.number:
            self.misplaced.append((own.number, best))

    def numbers(self) -> PictureNumbers | None:
        """Return the likeness of the whole track; None if nothing was compared."""
        if not self.psnr_y_db:
            return None
        worst = sorted(range(len(self.psnr_y_db)), key=self.psnr_y_db.__getitem__)[:_WORST]
        return PictureNumbers(
            psnr_y_mean_db=fmean(self.psnr_y_db),
            psnr_y_min_db=min(self.psnr_y_db),
            psnr_u_mean_db=fmean(self.psnr_u_db),
            psnr_v_mean_db=fmean(self.psnr_v_db),
            ssim_y_mean=fmean(self.ssim_y),
            ssim_y_min=min(self.ssim_y),
            worst_frames=tuple((n, self.psnr_y_db[n], self.ssim_y[n]) for n in worst),
            identical=self.identical,
        )

    def checks(self) -> list[Check]:
        """Return the checks of order and likeness."""
        shown = ", ".join(f"frame {n} shows {m}" for n, m in self.misplaced[:8]) or "every frame its own"
        outlier = min(OUTLIER_DB, median(self.coarse_db or [0]) - OUTLIER_BELOW_MEDIAN_DB)
        foreign = [number for number, db in enumerate(self.coarse_db) if db < max(FOREIGN_DB, outlier)]
        unlike = ", ".join(f"frame {n} ({self.coarse_db[n]:.1f} dB)" for n in foreign[:8]) or "none"
        none, held = "no frame that shows something else", "no frame shows something else"
        return [
            check("pictures.order", "every frame its own", shown, passed=not self.misplaced),
            check("pictures.alike", none, unlike, passed=not foreign, held=held),
        ]


def _is_same(source: VideoFrame, output: VideoFrame) -> bool:
    """Return whether two pictures have the same size, format (yuvj420p counts as yuv420p) and samples."""
    layouts = [(f.width, f.height, f.format.name.replace("yuvj", "yuv")) for f in (source, output)]
    planar = len(output.planes) == len(output.format.components)
    return planar and layouts[0] == layouts[1] and all(map(np.array_equal, plane_bytes(source), plane_bytes(output)))


def plane_bytes(frame: VideoFrame) -> Iterator[NDArray[np.uint8]]:
    """Yield the bytes of each plane, without the padding of its lines."""
    for plane, component in zip(frame.planes, frame.format.components, strict=False):
        lines = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)[: plane.height]
        yield lines[:, : plane.width * ((component.bits + 7) // 8)]


def _ratio(theirs: _Plane, mine: _Plane) -> float:
    return float(theirs.sum()) / max(float(mine.sum()), 1e-9)


def _resembles(theirs: _Plane, mine: _Plane, apart: _Plane) -> bool:
    return _ratio(theirs, mine) < CLEARLY and float(theirs.sum()) < FAITHFULLY * float(apart.sum())


MATRICES = {1: Colorspace.ITU709, 5: Colorspace.ITU601, 6: Colorspace.ITU601, 9: Colorspace.BT2020}


def conformed(
    reformatter: VideoReformatter,
    frame: VideoFrame,
    output: VideoFrame,
    size: tuple[int, int],
    pix_fmt: str,
    *,
    keeps_matrix: bool = False,
) -> VideoFrame:
    """Return the frame in this size and format, with the output's range, and its matrix unless ``keeps_matrix``."""
    colour_range = int(output.color_range)
    rgb = is_rgb(frame.format)
    given = int(ColorRange.JPEG) if rgb else int(frame.color_range) or colour_range
    from_matrix, to_matrix = (MATRICES.get(int(each.colorspace)) for each in (frame, output))
    recoloured = not (rgb or keeps_matrix) and None not in (from_matrix, to_matrix) and from_matrix != to_matrix
    same = (frame.width, frame.height) == size and frame.format.name == pix_fmt and not recoloured
    if same and given == (colour_range or given):
        return frame
    return reformatter.reformat(
        frame,
        *size,
        format=pix_fmt,
        interpolation=Interpolation.BICUBIC,
        src_color_range=given or None,
        dst_color_range=colour_range or given or None,
        # RGB and YUV with another matrix are converted with the output's matrix.
        src_colorspace=from_matrix if recoloured else None,
        dst_colorspace=to_matrix if rgb or recoloured else None,
        # With several threads, FFmpeg 8's scaler overwrites lines of 10-bit chroma.
        threads=1,
    )


def _tile_errors(first: _Plane, second: _Plane) -> _Plane:
    return block_means((first - second) ** 2, _TILE, _TILE).astype(np.float32)


def block_means(samples: NDArray[Any], across: int, down: int) -> NDArray[np.float64]:
    """Return the mean of each block of samples; blocks at the far edges may be smaller."""
    rows, columns, counts = _blocks(*samples.shape, across, down)
    sums = np.add.reduceat(np.add.reduceat(samples, rows, axis=0), columns, axis=1)
    return np.asarray(sums / counts, np.float64)


@lru_cache(maxsize=16)
def _blocks(
    height: int, width: int, across: int, down: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return where blocks begin, in rows and in columns, and how many samples each of them has."""
    rows, columns = np.arange(0, height, down), np.arange(0, width, across)
    return rows, columns, np.outer(np.diff([*rows, height]), np.diff([*columns, width]))
