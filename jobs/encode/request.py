"""What ``encode`` is asked for, checked; and what came of it."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Literal, TypeAlias, TypedDict

from ...actors.encode.settings import Codec, RateChange, RateControl, check_rate
from ...actors.media.location import absolute
from ...actors.media.values import Colour, SeiMessage
from ...errors import UsageError
from ..request.api_values import check_ratio, check_size, check_text, check_whole, exact

__all__ = ["EncodeFrame", "EncodeOptions", "EncodeReport", "EncodeRequest", "EncoderChoice", "Matrix", "codec_named"]

EncoderChoice: TypeAlias = Literal["auto", "software", "nvenc"]
Matrix: TypeAlias = Literal["bt709", "bt601", "bt2020"]

_COLOURS = {"bt709": Colour(1, 1, 1, 1), "bt601": Colour(1, 6, 6, 6), "bt2020": Colour(1, 9, 14, 9)}
"""Limited range, and the primaries, transfer and matrix of ITU-R BT.709, BT.601 (525 lines) and BT.2020 in 10 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class EncodeFrame:
    """One frame for ``encode``, and what is asked of the encoder with it.

    Args:
        picture: whatever ``encode`` takes for a picture.
        time_s: when it is shown, in seconds; None is the picture's own time, if it has one.
        keyframe: make it one that nothing before it is needed for: an IDR picture.
        sei_messages: written beside it; NVENC alone does.
        rates: what steers the bitrate from this frame on; NVENC alone changes it while it encodes.

    Raises:
        UsageError: ``time_s`` is no number, or what should be messages or rates is none.
    """

    picture: object
    _: KW_ONLY
    time_s: Fraction | None = None
    keyframe: bool = False
    sei_messages: tuple[SeiMessage, ...] = ()
    rates: RateChange | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "time_s", exact("time_s", self.time_s))
        object.__setattr__(self, "sei_messages", tuple(self.sei_messages))
        wrong: list[object] = [each for each in self.sei_messages if not isinstance(each, SeiMessage)]
        wrong += [self.rates] if not isinstance(self.rates, RateChange | None) else []
        if wrong:
            message = f"{wrong[0]!r} is neither an SEI message nor a change of rates"
            raise UsageError(message, "Give SeiMessage(kind, payload) and RateChange(bitrate=...).")


class EncodeOptions(TypedDict, total=False):
    """The options of ``encode`` that go into an ``EncodeRequest`` as they are."""

    quality: int | None
    bitrate_bps: int | None
    preset: int
    encoder: EncoderChoice
    encoder_options: tuple[tuple[str, str], ...]
    time_base: Fraction | None
    input_pix_fmt: str | None
    size: tuple[int, int] | None
    pix_fmt: str | None
    matrix: Matrix
    sample_aspect_ratio: Fraction | None
    overwrite: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeRequest:
    """Frames into a file.

    ``fps`` shows frame n at n / ``fps``; None takes the frames' own times. ``input_pix_fmt`` is how arrays without a
    format of their own are read, and ``size`` the (width, height) of raw bytes; ``pix_fmt`` is what is encoded,
    ``matrix`` what RGB is turned into YUV by.

    Raises:
        UsageError: it makes no sense.
    """

    output: str
    codec: Codec | None = None
    quality: int | None = None
    bitrate_bps: int | None = None
    preset: int = 4
    encoder: EncoderChoice = "auto"
    fps: Fraction | None = None
    time_base: Fraction | None = None
    input_pix_fmt: str | None = None
    size: tuple[int, int] | None = None
    pix_fmt: str | None = None
    matrix: Matrix = "bt709"
    sample_aspect_ratio: Fraction | None = None
    encoder_options: tuple[tuple[str, str], ...] = ()
    overwrite: bool = False

    def __post_init__(self) -> None:
        for name, known in (("encoder", ("auto", "software", "nvenc")), ("matrix", tuple(_COLOURS))):
            if (value := getattr(self, name)) not in known:
                message = f"{name} {value!r} is none of {', '.join(known)}"
                raise UsageError(message, f"Leave it out for {known[0]}.")
        for name in ("fps", "time_base", "sample_aspect_ratio"):
            ratio = exact(name, getattr(self, name))
            check_ratio(name, ratio)
            object.__setattr__(self, name, ratio)
        for name in ("quality", "bitrate_bps", "preset"):
            check_whole(name, getattr(self, name))
        for name in ("output", "input_pix_fmt", "pix_fmt"):
            check_text(name, getattr(self, name))
        check_size("size", self.size)
        _check_options(self.encoder_options)
        if self.fps is not None and self.time_base is not None:
            message = "fps and time_base exclude each other: a constant rate counts its frames"
            raise UsageError(message, "Give one of them.")
        if self.rate is not None:
            check_rate(self.rate)

    @property
    def absolute_output(self) -> str:
        """The output by a name that holds in any folder."""
        return absolute(self.output)

    @property
    def rate(self) -> RateControl | None:
        """What steers the bitrate; None is the codec's default quality."""
        if self.quality is None and self.bitrate_bps is None:
            return None
        return RateControl(quality=self.quality, bitrate_bps=self.bitrate_bps)

    @property
    def colour_of_rgb(self) -> Colour:
        """What RGB becomes."""
        return _COLOURS[self.matrix]


def codec_named(codec: Codec | str | None) -> Codec | None:
    """Return the codec.

    Raises:
        UsageError: there is none of that name.
    """
    try:
        return None if codec is None else Codec(codec)
    except ValueError:
        message = f"codec {codec!r} is none of {', '.join(Codec)}"
        raise UsageError(message, "Leave it out for the container's usual one.") from None


def _check_options(options: object) -> None:
    pairs = options if isinstance(options, Sequence) else [options]
    for pair in pairs:
        if not isinstance(pair, tuple) or [type(part) for part in pair] != [str, str]:
            message = f"an encoder option is no pair of texts: {pair!r}"
            raise UsageError(message, 'Give encoder_options=(("tune", "film"),).')


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeReport:
    """What was written. ``fallback`` says why software encoded what lay on a GPU, "" where there is nothing to say."""

    output: str
    codec: str
    encoder: str
    """FFmpeg's name of the software encoder, or ``h264_nvenc`` and its kin."""
    from_device: bool
    """Whether the encoder took frames from the GPU's memory, without a copy through the host's."""
    fallback: str
    width: int
    height: int
    pix_fmt: str
    frames_in: int
    frames_out: int
    """Counted by reading the file back."""
    duration_s: Fraction
    """From the first frame to the end of the last."""
    output_bytes: int
    output_sha256: str
    wall_s: float
