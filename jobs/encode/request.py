"""The request and the report of ``encode``."""

from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Annotated, Literal, Self, TypeAlias, TypedDict

from pydantic import AfterValidator, Field, model_validator

from ...actors.encode.settings import RateChange, RateControl, check_rate
from ...actors.media.location import absolute
from ...actors.media.values import Colour, SeiMessage
from ...errors import UsageError
from ..request.parts import CodecAndRate, CudaPlace, EncoderTuning, PixelSize
from ..request.values import is_ffmpeg_ratio

EncoderChoice: TypeAlias = Literal["auto", "software", "nvenc"]
Matrix: TypeAlias = Literal["bt709", "bt601", "bt2020"]

_COLOURS = {"bt709": Colour(1, 1, 1, 1), "bt601": Colour(1, 6, 6, 6), "bt2020": Colour(1, 9, 14, 9)}
"""Limited range; primaries, transfer and matrix of ITU-R BT.709, BT.601 (525 lines) and BT.2020 (10 bits)."""


@dataclass(frozen=True, slots=True, eq=False)
class EncodeFrame:
    """One frame for ``encode``, with requests to the encoder.

    Args:
        picture: anything ``encode`` accepts as a picture.
        time_s: the presentation time in seconds; by default the picture's own time, if it has one.
        keyframe: make the frame an IDR picture.
        sei_messages: messages to write with the picture; VP9 cannot hold them.
        rates: the rates from this frame on; software supports some of them, and only with x264.

    Raises:
        UsageError: ``time_s`` is not a number, ``sei_messages`` are not messages, or ``rates`` is not a change.
    """

    picture: object
    _: KW_ONLY
    time_s: Fraction | None = None
    keyframe: bool = False
    sei_messages: tuple[SeiMessage, ...] = ()
    rates: RateChange | None = None

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "time_s", None if self.time_s is None else Fraction(self.time_s))
        except (TypeError, ValueError, ArithmeticError):
            message = f"time_s is not a number: {self.time_s!r}"
            raise UsageError(message, "Give a Fraction, such as Fraction(1001, 30000).") from None
        object.__setattr__(self, "sei_messages", tuple(self.sei_messages))
        wrong: list[object] = [each for each in self.sei_messages if not isinstance(each, SeiMessage)]
        wrong += [self.rates] if not isinstance(self.rates, RateChange | None) else []
        if wrong:
            message = f"{wrong[0]!r} is neither an SEI message nor a change of rates"
            raise UsageError(message, "Give SeiMessage(kind, payload) and RateChange(bitrate=...).")


class PictureOptions(TypedDict, total=False):
    """The options of a ``PictureRequest``, before they are checked."""

    quality: int | None
    bitrate_bps: int | str | None
    preset: int | str
    encoder: EncoderChoice
    encoder_options: tuple[tuple[str, str], ...]
    time_base: Fraction | None
    input_pix_fmt: str | None
    size: tuple[int, int] | str | None
    pix_fmt: str | None
    matrix: Matrix
    sample_aspect_ratio: Fraction | None
    device: int | str | None
    context: int | None
    stream: int | None


class EncodeOptions(PictureOptions, total=False):
    """The options of ``encode``, before ``EncodeRequest`` checks them."""

    overwrite: bool


def _checked_ratio(value: Fraction) -> Fraction:
    if not is_ffmpeg_ratio(value):
        raise ValueError(
            f"{value} needs numbers of more than 31 bits: write 29.97 frames a second as Fraction(30000, 1001)"
        )
    return value


Ratio = Annotated[Fraction, Field(gt=0), AfterValidator(_checked_ratio)]


class PictureRequest(EncoderTuning, CodecAndRate, CudaPlace):
    """How a caller's pictures should be encoded. Raises UsageError: the rates are invalid."""

    encoder: EncoderChoice = "auto"
    fps: Ratio | None = None  #: frame n is shown at n / ``fps``; None uses the frames' own times
    time_base: Ratio | None = None  #: the time base of the frames' own times; if None, a time base is found
    input_pix_fmt: str | None = None  #: the layout of arrays that state no layout
    size: PixelSize | None = None  #: (width, height) of raw bytes
    pix_fmt: str | None = None  #: the format to encode
    matrix: Matrix = "bt709"  #: converts RGB to YUV
    sample_aspect_ratio: Ratio | None = None

    @model_validator(mode="after")
    def _check_rates(self) -> Self:
        if self.rate is not None:
            check_rate(self.rate)
        return self

    @property
    def rate(self) -> RateControl | None:
        """The rate control; None for the codec's default quality."""
        if self.quality is None and self.bitrate_bps is None:
            return None
        return RateControl(quality=self.quality, bitrate_bps=self.bitrate_bps)

    @property
    def colour_of_rgb(self) -> Colour:
        """The colour of YUV made from RGB: ``matrix``, its usual primaries and transfer, limited range."""
        return _COLOURS[self.matrix]


class EncodeRequest(PictureRequest):
    """A ``PictureRequest`` with an output. Raises UsageError: also if ``fps`` and ``time_base`` are both given."""

    output: str
    overwrite: bool = False

    @model_validator(mode="after")
    def _check_clock(self) -> Self:
        if self.fps is not None and self.time_base is not None:
            raise ValueError("`fps` and `time_base` exclude each other: with a constant rate, frames need no times")
        return self

    @property
    def absolute_output(self) -> str:
        """The output with an absolute path."""
        return absolute(self.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeReport:
    """The result of ``encode``."""

    output: str
    codec: str
    encoder: str  #: FFmpeg's name of the software encoder, or ``h264_nvenc`` and so on
    from_device: bool  #: whether the encoder read frames from GPU memory, without a copy through the host
    fallback: str  #: why software encoded frames that were on a GPU; "" if software encoded none
    width: int
    height: int
    pix_fmt: str
    frames_in: int
    frames_out: int  #: frames counted by reading the file back
    duration_s: Fraction  #: the time from the first frame to the end of the last frame
    output_bytes: int
    output_sha256: str
    wall_s: float
    #: why the file's pixel format is not that of the pictures (yuv420p for RGB); "" if the formats are the same
    substitute: str = ""
