"""The parts that specs are made of: each option with its type, bounds and words, shared by every job that has it."""

from fractions import Fraction
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...actors.encode.settings import Codec
from .options import COUNTS, RATE, SIZE, Option

__all__ = [
    "RULES",
    "RUN",
    "AudioTracks",
    "Carried",
    "Overwrite",
    "Part",
    "Picture",
    "RunOptions",
    "Segmenting",
    "Source",
    "SourceRange",
    "VideoOptions",
]

VIDEO: Final = "Video"
PICTURE: Final = "Picture"
TRACKS: Final = "What is carried"
RUN: Final = "How the work is done"
RULES: Final = "Output and rules"


class Part(BaseModel):
    """Some options. Times are in seconds as ``Fraction``, rates in bit/s."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Source = Annotated[str, Option("INPUT", "The file to read: a path, or an fsspec URL such as s3://bucket/film.mkv.")]
AudioTracks = Annotated[
    tuple[Annotated[int, Field(ge=0)], ...] | None,
    Option(
        "--audio-track",
        "Audio tracks to carry, counted from 0.",
        TRACKS,
        default="all",
        example="[0]",
        key="audio_tracks",
        kind=COUNTS,
    ),
]
Overwrite = Annotated[bool, Option("--overwrite", "Replace the output if it exists.", RULES, default="refuse")]


class VideoOptions(Part):
    """What the video is encoded with. A codec of None follows the container, a quality of None the codec."""

    codec: Annotated[
        Codec | None, Option("--codec", "Video codec.", VIDEO, default="h264; vp9 into webm", example='"hevc"')
    ] = None
    quality: Annotated[
        int | None,
        Field(ge=0, le=63),
        Option(
            "--quality",
            "Constant quality on the encoder's own CRF scale, 0 to 63, lower is better.",
            VIDEO,
            default="the codec's, see docs/encoders.md",
            example="26",
        ),
    ] = None
    bitrate_bps: Annotated[
        int | None,
        Field(gt=0),
        Option(
            "--bitrate",
            "Average bitrate instead of a quality: 4M is 4,000,000 bit/s, 800k.",
            VIDEO,
            example='"4M"',
            kind=RATE,
        ),
    ] = None
    maxrate_bps: Annotated[
        int | None,
        Field(gt=0),
        Option(
            "--maxrate",
            "Highest bitrate, in bit/s, over --bufsize; checked over the whole joined track.",
            VIDEO,
            default="no limit",
            example='"6M"',
            kind=RATE,
        ),
    ] = None
    bufsize_bits: Annotated[
        int | None,
        Field(gt=0),
        Option(
            "--bufsize",
            "Buffer of the rate limit, in bits: 8M. Goes with --maxrate.",
            VIDEO,
            example='"8M"',
            metavar="SIZE",
            kind=RATE,
        ),
    ] = None
    preset: Annotated[
        int,
        Field(ge=1, le=7),
        Option("--preset", "1 is fastest, 7 slowest and smallest: docs/encoders.md.", VIDEO, metavar="1..7"),
    ] = 4
    encoder_options: Annotated[
        tuple[tuple[str, str], ...],
        Option(
            "--encoder-option",
            "More options of the encoder, by FFmpeg's names: docs/encoders.md; with --encoder nvenc by NVENC's: "
            "docs/nvenc.md.",
            VIDEO,
            example='{ tune = "film" }',
            key="encoder_options",
        ),
    ] = ()

    @model_validator(mode="after")
    def _check_rates(self) -> Self:
        if self.quality is not None and self.bitrate_bps is not None:
            message = "`quality` and `bitrate_bps` exclude each other: give one of them"
            raise ValueError(message)
        if (self.maxrate_bps is None) != (self.bufsize_bits is None):
            message = "`maxrate_bps` and `bufsize_bits` belong together: give both or neither"
            raise ValueError(message)
        return self


class Picture(Part):
    """What becomes of each picture."""

    scale: Annotated[
        tuple[int | None, int] | None,
        Option(
            "--scale",
            "Picture size in pixels, or a height.",
            PICTURE,
            default="the source's, the largest where it changes: docs/timeline.md",
            example='"720p"',
            kind=SIZE,
        ),
    ] = None
    """(width, height); width None keeps the display shape."""
    pix_fmt: Annotated[
        str | None,
        Option(
            "--pix-fmt",
            "Pixel format, by FFmpeg's name: yuv420p10le.",
            PICTURE,
            default="the source's",
            example='"yuv420p10le"',
        ),
    ] = None
    deinterlace: Annotated[
        Literal["off", "auto", "on"],
        Option(
            "--deinterlace", "Make whole frames of fields: never, only where the source says so, or always.", PICTURE
        ),
    ] = "off"

    @model_validator(mode="after")
    def _check_scale(self) -> Self:
        if self.scale is not None and any(side is not None and side <= 0 for side in self.scale):
            message = f"the size of `scale` must be positive: {self.scale}"
            raise ValueError(message)
        return self


class SourceRange(Part):
    """The part of a video track that is used; times count from the first presented frame."""

    start_s: Annotated[
        Fraction | None,
        Field(ge=0),
        Option(
            "--start",
            "Begin with the first frame at or after this time: seconds (90.5) or a clock time (1:30.5).",
            PICTURE,
            default="the first frame",
            example='"1:30"',
        ),
    ] = None
    end_s: Annotated[
        Fraction | None,
        Field(gt=0),
        Option(
            "--end",
            "Stop before the first frame at or after this time.",
            PICTURE,
            default="the end",
            example='"2:00.5"',
        ),
    ] = None
    video_track: Annotated[
        int, Field(ge=0, le=1000), Option("--video-track", "Which video track, counted from 0.", TRACKS)
    ] = 0

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if self.start_s is not None and self.end_s is not None and self.end_s <= self.start_s:
            message = f"`end_s` must come after `start_s`: {self.start_s} .. {self.end_s} s"
            raise ValueError(message)
        return self


class Carried(Part):
    """What goes along with the video."""

    audio_tracks: AudioTracks = None
    audio: Annotated[
        Literal["copy", "aac", "opus", "none"],
        Option("--audio", "Copy the audio bit for bit, encode it, or leave it out.", TRACKS),
    ] = "copy"
    subtitles: Annotated[
        Literal["copy", "none"],
        Option("--subtitles", "Carry subtitles, converted where the container needs it, or not.", TRACKS),
    ] = "copy"


class Segmenting(Part):
    """How the source is cut, and how much of it is worked on at once."""

    segment_s: Annotated[
        Fraction | None,
        Field(gt=0),
        Option(
            "--segment-seconds",
            "Length to aim for when cutting, in seconds.",
            RUN,
            default="about 10",
            example="5",
            metavar="S",
        ),
    ] = None
    workers: Annotated[
        int | None,
        Field(ge=1, le=10_000),
        Option(
            "--workers",
            "Segments in flight at the same time; the output's bytes do not depend on it.",
            RUN,
            default="what the machines have room for",
            example="4",
        ),
    ] = None


class RunOptions(Part):
    """Which machines do the work, and before whose."""

    priority: Annotated[
        int,
        Field(ge=0, le=100),
        Option(
            "--priority",
            "0 to 100: on a shared cluster, jobs with a higher one get workers first: docs/supervisor.md.",
            RUN,
        ),
    ] = 0
    weight: Annotated[
        int,
        Field(ge=1, le=100),
        Option("--weight", "1 to 100: the job's part in a fair share among jobs of its priority.", RUN),
    ] = 1
    device: Annotated[
        Literal["auto", "cpu", "gpu"],
        Option("--device", "GPUs: where they are faster, never, or required: docs/fleet.md.", RUN),
    ] = "auto"
    encoder: Annotated[
        Literal["auto", "software", "nvenc"],
        Option(
            "--encoder",
            "What encodes: whichever finishes first, software, or a GPU's NVENC: docs/nvenc.md. It decides the "
            "output's bytes.",
            RUN,
        ),
    ] = "auto"

    @model_validator(mode="after")
    def _check_encoder(self) -> Self:
        if self.device == "cpu" and self.encoder == "nvenc":
            message = "`device` cpu and `encoder` nvenc exclude each other: NVENC is a GPU's"
            raise ValueError(message)
        return self
