"""The filters between decoder and encoder, from deinterlacing to an overlay.

Filters with memory also get the pictures around a segment, so its frames equal those of an unsegmented run.
``rendition.py`` changes the frame rate and burns subtitles in afterwards.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, NamedTuple, Self, TypeAlias, TypeVar

import av.error
import av.filter
from av.filter.context import FilterContext
from av.video.frame import VideoFrame

from ...errors import StorageFailed, Unsupported
from ..encode.pix_fmt import is_rgb
from ..media.values import UNSPECIFIED, VideoFormat
from .burn import BurntSubtitles
from .frame_rate import FrameRate
from .overlay import Blend, Overlay, blends_of, lay
from .steps import PictureSteps, Size, blacken, chroma_step, pad_arguments, turn_filters, workable_format
from .tone import TABLE_FORMAT, TRANSFERS, ToneMap, cube

ResultT = TypeVar("ResultT")

FULL_RANGE = 2
_RGB = 0
_BT2020 = 9
_MATRICES = {1: "bt709", 4: "fcc", 5: "smpte170m", 6: "smpte170m", 7: "smpte240m", 9: "bt2020"}
"""FFmpeg's names of H.273's matrices; numbers 5 and 6 mean the same matrix."""

_BY_SAMPLE = frozenset(f"yuv{chroma}p{depth}" for chroma in ("420", "422", "444") for depth in ("", "10le", "12le"))
_BY_SAMPLE |= {"yuvj420p", "yuvj422p", "yuvj444p"}
"""Formats that FFmpeg's ``colorspace`` takes."""
_ONLY_MATRIX = "iprimaries=bt709:primaries=bt709:itrc=bt709:trc=bt709:fast=1"

_FIELD_FLAGS: Final = {"top": "tff", "bottom": "bff"}

WARM_UP_FRAMES = 2
LOOK_AHEAD_FRAMES = 2
"""How many frames a filter looks ahead.

bwdif looks one frame ahead; a further frame is a margin for its field history.
"""

SCALE_FLAGS = "bicubic+accurate_rnd+full_chroma_int+bitexact"
"""Flags that make swscale bit-exact on every processor: its fast paths round differently at each SIMD level."""

Denoise: TypeAlias = Literal["off", "light", "medium", "strong"]
DENOISE: Final[Mapping[str, str]] = {
    "light": "sigmaS=1.5:sigmaR=0.03",
    "medium": "sigmaS=2:sigmaR=0.05",
    "strong": "sigmaS=3:sigmaR=0.1",
}
"""Options of FFmpeg's ``bilateral`` for three strengths of noise: about 2, 4 and 8 steps of 255."""
DENOISE_SAMPLE_BYTES: Final = 16
"""The memory that ``bilateral`` needs for each sample: four floats (vf_bilateral.c)."""


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """How every picture becomes ``output``; by default pictures are only scaled and converted.

    ``on_device`` lets the encoding device scale and convert; its results differ from those of software.
    """

    output: VideoFormat
    deinterlace: Literal["off", "auto", "on"] = "off"
    first_field: Literal["top", "bottom"] | None = None
    """The field shown first, for a track whose pictures do not state it; None if they do, or if it is unknown."""
    on_device: bool = False
    steps: PictureSteps | None = None
    tone: ToneMap | None = None
    denoise: Denoise = "off"
    overlay: Overlay | None = None
    rate: FrameRate | None = None
    """The rate at which pictures reach the encoder; None means each source picture once."""
    burn: BurntSubtitles | None = None
    """The subtitles burnt into the pictures after everything else."""
    by_picture: bool = False
    """Whether pictures are converted by their own colours, in a track whose colours change."""

    @property
    def has_memory(self) -> bool:
        """Whether a frame's result depends on its neighbours."""
        return self.deinterlace != "off"

    @property
    def needs_software(self) -> bool:
        """Whether a step exists only in software."""
        return self.rate is not None or self.burn is not None or self.by_picture or self.needs_graph

    @property
    def needs_graph(self) -> bool:
        """Whether more than scaling and conversion is needed, apart from a rate and burnt subtitles."""
        changes = self.has_memory or self.has_steps or self.denoise != "off" or self.overlay is not None
        return changes or self.first_field is not None

    @property
    def has_steps(self) -> bool:
        """Whether pictures are cropped, turned, padded or tone mapped."""
        return self.steps is not None or self.tone is not None

    @property
    def keeps_colours(self) -> bool:
        """Whether the source's metadata about colours and places in pictures, such as Dolby Vision, still applies."""
        return not self.has_steps and self.overlay is None and self.burn is None

    @property
    def names(self) -> tuple[str, ...]:
        """The steps' names in the encoder kind."""
        denoise = (f"bilateral={DENOISE[self.denoise]}",) if self.denoise != "off" else ()
        last = (each.name for each in (self.overlay, self.rate, self.burn) if each is not None)
        fields = () if self.first_field is None else (f"fields={self.first_field}-first",)
        return (*fields, *(each.name for each in (self.steps, self.tone) if each is not None), *denoise, *last)

    @property
    def words(self) -> str:
        """The description of the steps for the user; "" if there are none."""
        denoised = [f"denoised ({self.denoise})"] if self.denoise != "off" else []
        last = [each.words for each in (self.overlay, self.rate, self.burn) if each is not None]
        return ", ".join([*(each.words for each in (self.steps, self.tone) if each is not None), *denoised, *last])

    def during(
        self, interval: tuple[int | None, int | None], numbers: tuple[int, int] | None, tick_s: Fraction
    ) -> Self:
        """Return a copy for a segment ([start, end) in ticks), with only the subtitles on screen in it.

        With a rate, ``numbers`` are [first, end) of the segment's picture numbers.
        """
        if self.burn is None:
            return self
        start, end = (None if each is None else each * tick_s for each in interval)
        if self.rate is not None and numbers is not None:
            start, end = (self.rate.shown_at(number) * tick_s for number in numbers)
        return replace(self, burn=self.burn.during(start, end))

    @property
    def kept_bytes(self) -> int:
        """The memory needed in addition to the pictures: for denoising, an overlay and a subtitle."""
        output = self.output
        across, down = chroma_step(output.pix_fmt)
        samples = output.width * output.height * (1 + Fraction(2, across * down))
        denoise = ceil(samples) * DENOISE_SAMPLE_BYTES if self.denoise != "off" else 0
        overlay = 0 if self.overlay is None else self.overlay.kept_bytes((across, down))
        return denoise + overlay + (0 if self.burn is None else self.burn.kept_bytes)

    @property
    def size(self) -> Size:
        """The size to which source pictures of other sizes are scaled first: that of ``steps``, else the output's."""
        return (self.output.width, self.output.height) if self.steps is None else self.steps.size


def can_convert(first: int, second: int) -> bool:
    """Return whether pictures can be converted between these two matrices of H.273."""
    return first in _MATRICES and second in _MATRICES


def same_matrix(first: int, second: int) -> bool:
    """Return whether two matrices need no conversion: they are equal, or conversion between them is impossible."""
    return not can_convert(first, second) or _MATRICES[first] == _MATRICES[second]


class _Given(NamedTuple):
    """The properties of pictures before the filters; a change needs a new graph."""

    width: int
    height: int
    pix_fmt: str
    range: int
    matrix: int
    transfer: int

    @property
    def levels(self) -> str:
        """FFmpeg's name of the range: ``full`` or ``limited``."""
        return "full" if self.range == FULL_RANGE else "limited"


class FilterChain:
    """Turns decoded frames into the encoder's input, with a new graph for each change of the input format.

    The segment is shown during ``interval``, in ticks: filters with memory also get the pictures around it, which
    ``resized`` does not count. With ``own_pictures``, the chain never yields a frame that was pushed, even if nothing
    is filtered: it yields a new frame, which may have the same pixels in memory.
    """

    def __init__(
        self,
        settings: FilterSettings,
        time_base: Fraction,
        interval: tuple[int | None, int | None] = (None, None),
        *,
        own_pictures: bool = False,
    ) -> None:
        self._settings = settings
        self._own_pictures = own_pictures
        self._start, self._end = interval
        self._time_base = time_base
        self._given: _Given | None = None
        self._graph: av.filter.Graph | None = None
        self._blends: Sequence[tuple[int, Blend]] | None = None
        self.resized: Counter[tuple[int, int]] = Counter()

    def push(self, ticks: int, frame: VideoFrame) -> Iterator[tuple[int, VideoFrame]]:
        """Take a source frame and yield the finished (ticks, frame), in order; ``Unsupported`` if FFmpeg refuses."""
        given = self._described(frame)
        if given != self._given:
            yield from self.finish()
            self._given = given
            is_needed = self._own_pictures or self._settings.needs_graph or self._converts(given)
            self._graph = self._mapped(lambda: self._build(given)) if is_needed else None
        is_own = (self._start is None or ticks >= self._start) and (self._end is None or ticks < self._end)
        if is_own and (frame.width, frame.height) != self._settings.size:
            self.resized[frame.width, frame.height] += 1
        frame.pts, frame.time_base = ticks, self._time_base
        if self._graph is None:
            yield ticks, frame
            return
        graph = self._graph
        self._mapped(lambda: graph.push(frame))
        yield from self._pull()

    def finish(self) -> Iterator[tuple[int, VideoFrame]]:
        """Yield the frames that the filters still hold."""
        if self._graph is not None:
            graph = self._graph
            self._mapped(lambda: graph.push(None))
            yield from self._pull()
        self.close()

    def close(self) -> None:
        """Drop the graph and its frames. Idempotent."""
        self._graph, self._given = None, None

    def _mapped(self, call: Callable[[], ResultT]) -> ResultT:
        try:
            return call()
        except (av.error.BlockingIOError, av.error.EOFError):
            raise
        except (av.error.FFmpegError, ValueError, NotImplementedError) as error:
            width, height, pix_fmt = (self._given or (0, 0, ""))[:3]
            message = f"a picture of {width}x{height} {pix_fmt} cannot be converted: {error}"
            raise Unsupported(message, "Try another --pix-fmt or --scale, or leave them out.") from error

    def _described(self, frame: VideoFrame) -> _Given:
        pix_fmt, colour = frame.format.name, self._settings.output.colour
        shape = frame.width, frame.height, pix_fmt
        if is_rgb(pix_fmt):
            return _Given(*shape, FULL_RANGE, _RGB, colour.transfer)  # the matrix of RGB, at full range
        if self._settings.by_picture:
            levels, matrix = int(frame.color_range) or colour.range, int(frame.colorspace)
            matrix = colour.matrix if matrix == UNSPECIFIED else matrix
            return _Given(*shape, levels, matrix, int(frame.color_trc))
        return _Given(*shape, colour.range, self._working_matrix(self._settings.tone), colour.transfer)

    def _tone(self, given: _Given) -> ToneMap | None:
        """Return the tone mapping for pictures like these; in a mixed track only HDR pictures are tone mapped."""
        tone = self._settings.tone
        if tone is None or (self._settings.by_picture and TRANSFERS.get(given.transfer) is not tone.transfer):
            return None
        return tone

    def _working_matrix(self, tone: ToneMap | None) -> int:
        return self._settings.output.colour.matrix if tone is None else _BT2020

    def _recolours(self, given: _Given) -> bool:
        """Return whether pictures like these have another range or matrix than the output."""
        if not self._settings.by_picture or is_rgb(given.pix_fmt):
            return False
        return given.levels != self._levels or not same_matrix(given.matrix, self._working_matrix(self._tone(given)))

    def _converts(self, given: _Given) -> bool:
        output = self._settings.output
        return given[:3] != (output.width, output.height, output.pix_fmt) or self._recolours(given)

    def _build(self, given: _Given) -> av.filter.Graph:
        graph = av.filter.Graph()
        # Slice threads in a filter would only compete with other segments.
        graph.threads = 1
        description = (
            f"video_size={given.width}x{given.height}:pix_fmt={given.pix_fmt}:time_base={self._time_base}"
            f":pixel_aspect=1/1:colorspace={given.matrix}:range={given.range}"
        )
        contexts = [graph.add("buffer", description), *self._filters(graph, given)]
        contexts += [graph.add("settb", str(self._time_base)), graph.add("buffersink")]
        graph.link_nodes(*contexts)
        graph.configure()
        return graph

    def _filters(self, graph: av.filter.Graph, given: _Given) -> list[FilterContext]:
        filters = []
        if self._settings.first_field is not None:
            filters.append(graph.add("setfield", _FIELD_FLAGS[self._settings.first_field]))
        if self._settings.has_memory:
            which = "interlaced" if self._settings.deinterlace == "auto" else "all"
            filters.append(graph.add("bwdif", f"mode=send_frame:parity=auto:deint={which}"))
        steps, output, tone = self._settings.steps, self._settings.output, self._tone(given)
        size = (output.width, output.height) if steps is None else steps.scaled
        now = given
        if steps is not None:
            framing, now = self._framing(graph, given, steps)
            filters += framing
        if tone is not None:
            filters += self._toning(graph, now, size, tone)
            now = now._replace(pix_fmt=TABLE_FORMAT)
        if steps is not None or tone is not None or self._converts(given):
            filters += self._conversion(graph, now, size, output.pix_fmt, self._levels)
        if self._settings.denoise != "off":
            # Filter all planes, in the encoder's format, which the filter accepts.
            filters.append(graph.add("bilateral", f"{DENOISE[self._settings.denoise]}:planes=15"))
        filters += [graph.add("pad", pad_arguments(steps))] if steps is not None and steps.is_padded else []
        # Draw on a copy, because the decoder may still refer to the picture.
        return filters + ([graph.add("copy")] if self._settings.overlay is not None else [])

    def _framing(
        self, graph: av.filter.Graph, given: _Given, steps: PictureSteps
    ) -> tuple[list[FilterContext], _Given]:
        """Return the filters that convert (if needed), crop and turn pictures, and the properties of their output."""
        crop, filters = steps.crop, []
        width, height = steps.size
        now = given._replace(width=width, height=height, pix_fmt=workable_format(given.pix_fmt, steps.turn))
        if now != given or self._recolours(given):
            levels = "full" if is_rgb(now.pix_fmt) else self._levels
            filters += self._conversion(graph, given, steps.size, now.pix_fmt, levels)
            if not is_rgb(now.pix_fmt):
                output = self._settings.output.colour
                now = now._replace(range=output.range, matrix=self._working_matrix(self._tone(given)))
        if steps.is_cropped:
            filters.append(graph.add("crop", f"{crop.width}:{crop.height}:{crop.x}:{crop.y}:exact=1"))
        return filters + [graph.add(name, arguments) for name, arguments in turn_filters(steps.turn)], now

    def _toning(self, graph: av.filter.Graph, given: _Given, size: Size, tone: ToneMap) -> list[FilterContext]:
        filters = self._conversion(graph, given, size, TABLE_FORMAT, "full")
        try:
            # The filter reads its table when it is created.
            with TemporaryDirectory() as folder:
                table = Path(folder) / "tone.cube"
                table.write_text(cube(tone), encoding="ascii")
                return [*filters, graph.add("lut3d", file=str(table), interp="tetrahedral")]
        except av.error.FFmpegError:
            raise
        except OSError as error:
            message = f"the table for --tonemap cannot be written: {error.strerror}"
            raise StorageFailed(message, "Free some megabytes in the worker's TMPDIR.") from error

    @property
    def _levels(self) -> str:
        return "full" if self._settings.output.colour.range == FULL_RANGE else "limited"

    def _conversion(
        self, graph: av.filter.Graph, given: _Given, size: Size, pix_fmt: str, levels: str
    ) -> list[FilterContext]:
        """Return the filters that convert pictures to a size, format and range, and to the working matrix."""
        # Both ranges are given: a change of format must never stretch or compress the levels.
        rgb = is_rgb(given.pix_fmt)
        output = self._settings.output
        # Each field of an interlaced picture is converted separately (interl).
        arguments = f"w={size[0]}:h={size[1]}:flags={SCALE_FLAGS}:interl=-1"
        arguments += f":in_range={'full' if rgb else given.levels}:out_range={levels}"
        if rgb and (matrix := _MATRICES.get(output.colour.matrix)) is not None:
            arguments += f":out_color_matrix={matrix}"
        filters = []
        working = self._working_matrix(self._tone(given))
        to_yuv = not rgb and not is_rgb(pix_fmt)  # for RGB output the buffer states the source's matrix
        if to_yuv and self._settings.by_picture and not same_matrix(given.matrix, working):
            if given.pix_fmt in _BY_SAMPLE:
                # Chroma is converted sample by sample; through RGB it would be blurred.
                spaces = f"ispace={_MATRICES[given.matrix]}:space={_MATRICES[working]}".replace("bt2020", "bt2020ncl")
                kept = f"irange={given.range or 1}:range={given.range or 1}:{_ONLY_MATRIX}"
                filters.append(graph.add("colorspace", f"{spaces}:{kept}"))
            else:
                arguments += f":in_color_matrix={_MATRICES[given.matrix]}:out_color_matrix={_MATRICES[working]}"
        return [*filters, graph.add("scale", arguments), graph.add("format", pix_fmt)]

    def _pull(self) -> Iterator[tuple[int, VideoFrame]]:
        while self._graph is not None:
            try:
                frame = self._mapped(self._graph.pull)
            except (av.error.BlockingIOError, av.error.EOFError):
                return
            if isinstance(frame, VideoFrame) and frame.pts is not None:
                if (steps := self._settings.steps) is not None and steps.is_padded:
                    blacken(frame, steps, full_range=self._settings.output.colour.range == FULL_RANGE)
                if (overlay := self._settings.overlay) is not None:
                    # The chain keeps the blends: another job's overlay may replace them in the cache.
                    if self._blends is None:
                        self._blends = blends_of(overlay, self._settings.output)
                    lay(self._blends, frame)
                yield frame.pts, frame
