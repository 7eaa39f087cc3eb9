"""Between decoder and encoder: every filter from deinterlacing to an overlay; frame rate and subtitles come after.

Filters keep a frame's time. Filters with memory (deinterlacing) get ``WARM_UP_FRAMES`` from before a segment and
``LOOK_AHEAD_FRAMES`` from after it, so that a segment's frames are those of an unsegmented run.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, Self, TypeAlias, TypeVar

import av.error
import av.filter
from av.filter.context import FilterContext
from av.video.frame import VideoFrame

from ...errors import StorageFailed, Unsupported
from ..encode.pix_fmt import is_rgb
from ..media.values import VideoFormat
from .burn import BurntSubtitles
from .frame_rate import FrameRate
from .overlay import Blend, Overlay, blends_of, lay
from .steps import PictureSteps, Size, blacken, chroma_step, pad_arguments, turn_filters, workable_format
from .tone import TABLE_FORMAT, ToneMap, cube

ResultT = TypeVar("ResultT")

FULL_RANGE = 2
_BT2020 = 9
_MATRICES = {1: "bt709", 6: "smpte170m", 9: "bt2020"}
"""The filter's names of H.273's matrices, for RGB."""

_FIELD_FLAGS: Final = {"top": "tff", "bottom": "bff"}

WARM_UP_FRAMES = 2
LOOK_AHEAD_FRAMES = 2
"""bwdif looks one frame back and one ahead; the second is a margin for its field history."""

SCALE_FLAGS = "bicubic+accurate_rnd+full_chroma_int+bitexact"
"""Bit-exact on every processor: swscale's fast paths round differently from one SIMD level to the next."""

Denoise: TypeAlias = Literal["off", "light", "medium", "strong"]
DENOISE: Final[Mapping[str, str]] = {
    "light": "sigmaS=1.5:sigmaR=0.03",
    "medium": "sigmaS=2:sigmaR=0.05",
    "strong": "sigmaS=3:sigmaR=0.1",
}
"""Options of FFmpeg's ``bilateral``, each for other noise: about 2, 4 and 8 steps of 255."""
DENOISE_SAMPLE_BYTES: Final = 16
"""The filter keeps four floats for each sample (vf_bilateral.c)."""


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """How every picture becomes ``output``; by default it is scaled and converted alone.

    ``on_device`` has the encoding device do it, for pictures that are encoded there: it only scales and converts, and
    its results differ from software's.
    """

    output: VideoFormat
    deinterlace: Literal["off", "auto", "on"] = "off"
    first_field: Literal["top", "bottom"] | None = None
    """The field that is shown first of pictures that do not say it themselves; None: they are left as they are."""
    on_device: bool = False
    steps: PictureSteps | None = None
    tone: ToneMap | None = None
    denoise: Denoise = "off"
    overlay: Overlay | None = None
    rate: FrameRate | None = None
    """At what rate pictures reach the encoder; None: each as it comes."""
    burn: BurntSubtitles | None = None
    """What is burnt into pictures as they reach the encoder, after all else."""

    @property
    def has_memory(self) -> bool:
        """Whether a frame's result depends on its neighbours."""
        return self.deinterlace != "off"

    @property
    def needs_software(self) -> bool:
        """Whether something is done that no device does."""
        return self.rate is not None or self.burn is not None or self.needs_graph

    @property
    def needs_graph(self) -> bool:
        """Whether more is done to a picture by itself than scaling and conversion."""
        changes = self.has_memory or self.has_steps or self.denoise != "off" or self.overlay is not None
        return changes or self.first_field is not None

    @property
    def has_steps(self) -> bool:
        """Whether pictures are cropped, turned, padded or tone mapped."""
        return self.steps is not None or self.tone is not None

    @property
    def keeps_colours(self) -> bool:
        """Whether what a source says of its pictures' place and light still holds."""
        return not self.has_steps and self.overlay is None and self.burn is None

    @property
    def names(self) -> tuple[str, ...]:
        """What the encoder kind says of the steps."""
        denoise = (f"bilateral={DENOISE[self.denoise]}",) if self.denoise != "off" else ()
        last = (each.name for each in (self.overlay, self.rate, self.burn) if each is not None)
        fields = () if self.first_field is None else (f"fields={self.first_field}-first",)
        return (*fields, *(each.name for each in (self.steps, self.tone) if each is not None), *denoise, *last)

    @property
    def words(self) -> str:
        """The steps for a person; "" for none."""
        denoised = [f"denoised ({self.denoise})"] if self.denoise != "off" else []
        last = [each.words for each in (self.overlay, self.rate, self.burn) if each is not None]
        return ", ".join([*(each.words for each in (self.steps, self.tone) if each is not None), *denoised, *last])

    def during(
        self, interval: tuple[int | None, int | None], numbers: tuple[int, int] | None, tick_s: Fraction
    ) -> Self:
        """Return the same for a segment, without subtitles that are not on screen in it.

        ``interval`` is [start, end) in ticks; with a rate ``numbers`` are the first of its pictures and the first that
        is not.
        """
        if self.burn is None:
            return self
        start, end = (None if each is None else each * tick_s for each in interval)
        if self.rate is not None and numbers is not None:
            start, end = (self.rate.shown_at(number) * tick_s for number in numbers)
        return replace(self, burn=self.burn.during(start, end))

    @property
    def kept_bytes(self) -> int:
        """What is in memory beside the pictures that pass through: denoising's values, an overlay's, a subtitle's."""
        output = self.output
        across, down = chroma_step(output.pix_fmt)
        samples = output.width * output.height * (1 + Fraction(2, across * down))
        denoise = ceil(samples) * DENOISE_SAMPLE_BYTES if self.denoise != "off" else 0
        overlay = 0 if self.overlay is None else self.overlay.kept_bytes((across, down))
        return denoise + overlay + (0 if self.burn is None else self.burn.kept_bytes)

    @property
    def size(self) -> Size:
        """The size that pictures are expected in; others are scaled to it."""
        return (self.output.width, self.output.height) if self.steps is None else self.steps.size


class FilterChain:
    """Turns decoded frames into the encoder's input, with a new graph for each change of the input format."""

    def __init__(self, settings: FilterSettings, time_base: Fraction) -> None:
        self._settings = settings
        self._time_base = time_base
        self._shape: tuple[int, int, str] | None = None
        self._graph: av.filter.Graph | None = None
        self._blends: Sequence[tuple[int, Blend]] | None = None
        self.resized: Counter[tuple[int, int]] = Counter()

    def push(self, ticks: int, frame: VideoFrame) -> Iterator[tuple[int, VideoFrame]]:
        """Take a source frame and yield the finished ones: (ticks, frame), in order.

        Raises:
            Unsupported: FFmpeg cannot convert this picture.
        """
        shape = (frame.width, frame.height, frame.format.name)
        if shape != self._shape:
            yield from self.finish()
            self._shape = shape
            is_needed = self._settings.needs_graph or self._converts(frame)
            self._graph = self._mapped(lambda: self._build(frame)) if is_needed else None
        if (frame.width, frame.height) != self._settings.size:
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
        self._graph, self._shape = None, None

    def _mapped(self, call: Callable[[], ResultT]) -> ResultT:
        try:
            return call()
        except (av.error.BlockingIOError, av.error.EOFError):
            raise
        except (av.error.FFmpegError, ValueError, NotImplementedError) as error:
            width, height, pix_fmt = self._shape or (0, 0, "")
            message = f"a picture of {width}x{height} {pix_fmt} cannot be converted: {error}"
            raise Unsupported(message, "Try another --pix-fmt or --scale, or leave them out.") from error

    def _converts(self, frame: VideoFrame) -> bool:
        output = self._settings.output
        shape = (frame.width, frame.height, frame.format.name)
        return shape != (output.width, output.height, output.pix_fmt)

    def _build(self, frame: VideoFrame) -> av.filter.Graph:
        graph = av.filter.Graph()
        # Slice threads inside a filter would only compete with the other segments.
        graph.threads = 1
        contexts = [graph.add("buffer", self._describe(frame))]
        contexts += self._filters(graph, frame)
        contexts += [graph.add("settb", str(self._time_base)), graph.add("buffersink")]
        graph.link_nodes(*contexts)
        graph.configure()
        return graph

    def _describe(self, frame: VideoFrame) -> str:
        colour = self._settings.output.colour
        coded = colour.matrix if self._settings.tone is None else _BT2020
        # RGB is its own matrix, at full range.
        matrix, levels = (0, FULL_RANGE) if is_rgb(frame.format.name) else (coded, colour.range)
        return (
            f"video_size={frame.width}x{frame.height}:pix_fmt={frame.format.name}:time_base={self._time_base}"
            f":pixel_aspect=1/1:colorspace={matrix}:range={levels}"
        )

    def _filters(self, graph: av.filter.Graph, frame: VideoFrame) -> list[FilterContext]:
        filters = []
        if self._settings.first_field is not None:
            filters.append(graph.add("setfield", _FIELD_FLAGS[self._settings.first_field]))
        if self._settings.has_memory:
            which = "interlaced" if self._settings.deinterlace == "auto" else "all"
            filters.append(graph.add("bwdif", f"mode=send_frame:parity=auto:deint={which}"))
        pix_fmt, steps, output = frame.format.name, self._settings.steps, self._settings.output
        size = (output.width, output.height) if steps is None else steps.scaled
        if steps is not None:
            pix_fmt = workable_format(pix_fmt, steps.turn)
            filters += self._framing(graph, frame, steps, pix_fmt)
        if self._settings.tone is not None:
            filters += self._toning(graph, pix_fmt, size, self._settings.tone)
            pix_fmt = TABLE_FORMAT
        if self._settings.has_steps or self._converts(frame):
            filters += self._conversion(graph, pix_fmt, size, output.pix_fmt, self._levels)
        if self._settings.denoise != "off":
            # All planes; in the encoder's format, which the filter takes as it is.
            filters.append(graph.add("bilateral", f"{DENOISE[self._settings.denoise]}:planes=15"))
        filters += [graph.add("pad", pad_arguments(steps))] if steps is not None and steps.is_padded else []
        # A picture of one's own: the decoder may still refer to the one that it gave.
        return filters + ([graph.add("copy")] if self._settings.overlay is not None else [])

    def _framing(
        self, graph: av.filter.Graph, frame: VideoFrame, steps: PictureSteps, pix_fmt: str
    ) -> list[FilterContext]:
        """Return what brings pictures to the size and format in which they are cropped and turned, and does that."""
        given, crop, filters = frame.format.name, steps.crop, []
        if (frame.width, frame.height, given) != (*steps.size, pix_fmt):
            levels = "full" if is_rgb(pix_fmt) else self._levels
            filters += self._conversion(graph, given, steps.size, pix_fmt, levels)
        if steps.is_cropped:
            filters.append(graph.add("crop", f"{crop.width}:{crop.height}:{crop.x}:{crop.y}:exact=1"))
        return filters + [graph.add(name, arguments) for name, arguments in turn_filters(steps.turn)]

    def _toning(self, graph: av.filter.Graph, given: str, size: Size, tone: ToneMap) -> list[FilterContext]:
        filters = self._conversion(graph, given, size, TABLE_FORMAT, "full")
        try:
            # The filter reads its table when it is added.
            with TemporaryDirectory() as folder:
                table = Path(folder) / "tone.cube"
                table.write_text(cube(tone), encoding="ascii")
                return [*filters, graph.add("lut3d", file=str(table), interp="tetrahedral")]
        except av.error.FFmpegError:
            raise
        except OSError as error:
            message = f"the table of --tonemap cannot be kept for a moment: {error.strerror}"
            raise StorageFailed(message, "Free some megabytes in the worker's TMPDIR.") from error

    @property
    def _levels(self) -> str:
        return "full" if self._settings.output.colour.range == FULL_RANGE else "limited"

    def _conversion(
        self, graph: av.filter.Graph, given: str, size: Size, pix_fmt: str, levels: str
    ) -> list[FilterContext]:
        """Return what brings pictures of format ``given`` to a size, a format and a range."""
        # The range is stated on both sides: a change of format must never stretch or squeeze the levels.
        rgb = is_rgb(given)
        arguments = f"w={size[0]}:h={size[1]}:flags={SCALE_FLAGS}"
        arguments += f":in_range={'full' if rgb else self._levels}:out_range={levels}"
        if rgb and (matrix := _MATRICES.get(self._settings.output.colour.matrix)) is not None:
            arguments += f":out_color_matrix={matrix}"
        return [graph.add("scale", arguments), graph.add("format", pix_fmt)]

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
                    # Kept while the chain is: another job's overlay may take its place in the cache.
                    if self._blends is None:
                        self._blends = blends_of(overlay, self._settings.output)
                    lay(self._blends, frame)
                yield frame.pts, frame
