"""Encodes a segment's renditions; a rendition with a target quality is encoded as often as its search requires."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from av.video.format import VideoFormat as PixelFormat

from ...errors import EncoderFailed
from ..bitstream.picture_messages import Messages
from ..closing import Closing
from ..encode.profiles import NVENC_PROFILES, PROFILES, EncoderProfile
from ..encode.settings import EncoderSettings, crf_text, with_crf
from ..encode.target import QualityMetric, QualityTarget
from ..media.values import VideoFormat
from ..quality.measuring import DecodedBack, PairMeter, above_usual_mdb, goal_of, level_mdb
from ..quality.search import (
    MOST_SAMPLED,
    MOST_TRIES,
    CrfScale,
    NextTry,
    Try,
    chosen,
    next_try,
    sample_bytes,
    sample_of,
)
from ..quality.vmaf import VmafMeter, checked_tool
from .filtering import FilterChain, FilterSettings
from .passes import SegmentPasses, SegmentProgress, Taken
from .rendition import RenditionEncoding, RenditionSettings

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

Opened: TypeAlias = Callable[[RenditionSettings], RenditionEncoding]
"""Opens an encoding of a rendition."""
_BITS: Final = 8
_REPORT: Final = "Please report this with the input and the options."


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedQuality:
    """What the search for a segment's quality found."""

    crf: str
    encodes: int  # how many times the segment or a sample of it was encoded
    values: tuple[int, ...]  # the metric's value of each picture, in order of presentation, in ``measuring.UNITS``


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRendition:
    """A finished rendition; ``encode_s`` is the time that all its encodings took."""

    encoding: RenditionEncoding
    taken: Taken
    encode_s: float = 0.0
    quality: ReachedQuality | None = None


def sample_memory_bytes(settings: EncoderSettings) -> int:
    """Return the most memory that the pictures of a sample take; 0 without a target."""
    return 0 if settings.target is None else sample_bytes(_picture_bytes(settings))


def share_of(renditions: Sequence[RenditionSettings]) -> Fraction:
    """Return the fraction of a picture that progress counts each time that a picture is encoded or measured.

    The fraction assumes that every search for a quality takes the most tries; without a target it is 1.
    """
    targeted = [each for each in renditions if each.encoder.target is not None]
    frames = renditions[0].frames
    if not targeted or not frames:
        return Fraction(1)
    samples = [sum(map(len, sample_of(each.frames, _picture_bytes(each.encoder)))) for each in targeted]
    whole_tries = MOST_TRIES - bool(all(samples))  # one sample may be enough
    worked = MOST_SAMPLED * sum(samples) + (frames if any(samples) else 0) + 2 * frames * whole_tries
    return Fraction(frames, worked)


def encode_all(
    renditions: Sequence[RenditionSettings],
    passes: SegmentPasses[Any],
    opened: Opened,
    stack: ExitStack,
) -> list[EncodedRendition]:
    """Encode each rendition; ``stack`` closes the encodings.

    The renditions share the passes: one for all samples, one for each time that whole segments are encoded or measured.
    """
    parts = [_part_of(made, lambda made: stack.enter_context(opened(made)), passes.progress) for made in renditions]
    samplers = [(each, _Sampler(each.runs)) for each in parts if isinstance(each, _Search) and each.runs]
    if samplers:
        passes.walk([(search.made, sampler) for search, sampler in samplers])
        for search, sampler in samplers:
            search.try_sample(sampler.pictures)
            sampler.pictures.clear()
    left: Sequence[_Once] = parts
    while left:
        encodings = [each.begun() for each in left]
        walked = passes.walk([(each.made, encoding) for each, encoding in zip(left, encodings, strict=True)])
        for each, encoding, taken in zip(left, encodings, walked, strict=True):
            each.ended(encoding, taken)
        meters = [(each, stack.enter_context(each.meter())) for each in left if isinstance(each, _Search)]
        if meters:
            passes.walk([(search.made.original, meter) for search, meter in meters])
        left = [search for search, meter in meters if search.measured(meter.values)]
    return [each.result() for each in parts]


def _part_of(made: RenditionSettings, opened: Opened, progress: SegmentProgress) -> "_Once":
    target = made.encoder.target
    return _Once(made, opened) if target is None else _Search(made, opened, target, progress)


class _Sampler:
    """Keeps the pictures whose numbers are in ``runs``."""

    def __init__(self, runs: Sequence[range]) -> None:
        self._runs = runs
        self.done = 0
        self.pictures: list[VideoFrame] = []

    def take(self, _ticks: int, picture: Any, _messages: Messages = (), /) -> None:  # noqa: ANN401 - in host memory
        if any(self.done in run for run in self._runs):
            self.pictures.append(picture)
        self.done += 1

    def follow(self, _pictures: Sequence[Any], /) -> None:
        """Ignore the seam."""

    def drain(self) -> bool:
        return False


class _Meter(Closing):
    """Compares an encoding, scaled if ``made.measured`` is set, with the pictures that ``made.original`` describes."""

    def __init__(self, target: QualityTarget, made: RenditionSettings, encoding: RenditionEncoding) -> None:
        encoding.close()  # so that the encoder's memory is free while the decoder needs some
        settings = made.encoder
        picture = settings.format if made.measured is None else made.measured.output
        self._scale = None if made.measured is None else FilterChain(FilterSettings(picture), Fraction(1))
        self._decoded = DecodedBack(settings, encoding.extradata, encoding.packets)
        self._pictures: Iterator[tuple[int, VideoFrame]] = self._decoded.pictures()
        self._meter = _meter(target, picture, settings.threads)
        self._first_ticks: int | None = None

    @property
    def done(self) -> int:
        return self._meter.taken

    @property
    def values(self) -> Sequence[int]:
        """The metric's value of each picture; complete when there is nothing to drain."""
        return self._meter.values

    def close(self) -> None:
        self._decoded.close()
        if self._scale is not None:
            self._scale.close()
        self._meter.close()

    def take(self, ticks: int, picture: Any, _messages: Messages = (), /) -> None:  # noqa: ANN401 - in host memory
        self._first_ticks = ticks if self._first_ticks is None else self._first_ticks
        at, shown = next(self._pictures, (None, None))
        if shown is None or at != ticks - self._first_ticks:
            raise EncoderFailed(f"the encoded picture {self.done} of a segment does not decode", _REPORT)
        if self._scale is not None:
            ((_, shown),) = self._scale.push(self.done, shown)
        self._meter.take(shown, picture)

    def follow(self, _pictures: Sequence[Any], /) -> None:
        """Ignore the seam."""

    def drain(self) -> bool:
        return self._meter.drain()


def _meter(target: QualityTarget, picture: VideoFormat, threads: int) -> PairMeter | VmafMeter:
    if target.metric is QualityMetric.VMAF:
        return VmafMeter(picture, target.tool, threads)
    return PairMeter(target.metric, picture)


class _Once:
    """A rendition that is encoded once."""

    def __init__(self, made: RenditionSettings, opened: Opened) -> None:
        self.made = made
        self._opened = opened
        self._whole: list[EncodedRendition] = []

    def begun(self) -> RenditionEncoding:
        """Open the next encoding of the whole segment."""
        return self._opened(self.made)

    def ended(self, encoding: RenditionEncoding, taken: Taken) -> None:
        """Check and keep an encoding of the whole segment."""
        encoding.check(taken.due)
        self._whole.append(EncodedRendition(encoding=encoding, taken=taken, encode_s=encoding.encode_s))

    def result(self) -> EncodedRendition:
        """Return the encoding to keep."""
        return self._whole[0]


class _Search(_Once):
    """A rendition that is encoded until it is near enough to its target, or until the search gives up."""

    def __init__(
        self, made: RenditionSettings, opened: Opened, target: QualityTarget, progress: SegmentProgress
    ) -> None:
        super().__init__(made, opened)
        is_open = target.crfs is None or target.crfs[0] < target.crfs[1]
        self.runs = sample_of(made.frames, _picture_bytes(made.encoder)) if is_open else ()
        if target.metric is QualityMetric.VMAF:
            checked_tool(target.tool)  # raises before any work
        self._target = target
        self._goal = goal_of(target)
        self._scale = _scale(made.encoder, target)
        self._progress = progress
        self._tries: list[Try] = []
        self._values: list[tuple[int, ...]] = []  # the values of each whole encoding
        self._sample_s = 0.0
        self._has_sample = False

    def try_sample(self, pictures: "Sequence[VideoFrame]") -> None:
        """Encode the pictures of the sample as often as the search wants."""
        self._has_sample = bool(pictures)
        while pictures and (step := self._next()) is not None and not step.is_whole:
            values = self._sample_values(step.crf, pictures)
            self._tries.append(Try(step.crf, level_mdb(self._target, values), is_whole=False))

    def begun(self) -> RenditionEncoding:
        return self._opened(self._at(self._crf()))

    def meter(self) -> _Meter:
        """Return a meter for the last encoding."""
        return _Meter(self._target, self.made, self._whole[-1].encoding)

    def measured(self, values: Sequence[int]) -> bool:
        """Take the values of the last encoding; return whether the segment is encoded again."""
        crf = self._crf()
        self._values.append(tuple(values))
        if values:
            self._tries.append(Try(crf, level_mdb(self._target, values), is_whole=True))
        return bool(values) and self._next() is not None

    def result(self) -> EncodedRendition:
        """Return the encoding that is nearest to the target."""
        crfs = [each.crf for each in self._tries if each.is_whole]
        best = chosen(self._tries, self._goal) if crfs else 0
        crf = crfs[best] if crfs else self._crf()
        encode_s = self._sample_s + sum(each.encode_s for each in self._whole)
        encodes = max(1, len(self._tries))
        quality = ReachedQuality(crf=crf_text(crf), encodes=encodes, values=self._values[best])
        return replace(self._whole[best], encode_s=encode_s, quality=quality)

    def _next(self) -> NextTry | None:
        return next_try(self._tries, self._goal, self._scale, has_sample=self._has_sample)

    def _crf(self) -> Fraction:
        """Return the CRF of the next encoding; if the search is over, the CRF with which it began."""
        step = self._next()
        return self._scale.start if step is None else step.crf

    def _at(self, crf: Fraction) -> RenditionSettings:
        return replace(self.made, encoder=with_crf(self.made.encoder, crf))

    def _sample_values(self, crf: Fraction, pictures: "Sequence[VideoFrame]") -> Sequence[int]:
        """Encode the sample as if its pictures followed one another, and measure it."""
        made = replace(self._at(crf), keyframes=None)
        settings = made.encoder
        step_ticks = max(1, round(1 / (settings.format.frame_rate * settings.time_base)))
        with ExitStack() as stack:
            encoding = self._opened(made)
            for number, picture in enumerate(pictures):
                encoding.take(number * step_ticks, picture)
                self._progress.count(1)
            while encoding.drain():
                self._progress.seen()
            encoding.check([number * step_ticks for number in range(len(pictures))])
            self._sample_s += encoding.encode_s
            meter = stack.enter_context(_Meter(self._target, made, encoding))
            for number, picture in enumerate(pictures):
                meter.take(number * step_ticks, picture)
                self._progress.seen()
            while meter.drain():
                self._progress.seen()
            return meter.values


def _scale(settings: EncoderSettings, target: QualityTarget) -> CrfScale:
    profile: EncoderProfile = (NVENC_PROFILES if settings.on_device else PROFILES)[settings.codec]
    best, worst = target.crfs or profile.usual_crfs
    start = profile.even_crf - Fraction(above_usual_mdb(target), profile.mdb_per_crf)
    return CrfScale(
        start=start,
        best=Fraction(best),
        worst=Fraction(worst),
        step=profile.crf_step,
        mdb_per_crf=profile.mdb_per_crf,
    )


def _picture_bytes(settings: EncoderSettings) -> int:
    picture = settings.format
    return picture.width * picture.height * PixelFormat(picture.pix_fmt).padded_bits_per_pixel // _BITS
