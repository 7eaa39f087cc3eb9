"""The groups of options of which specs consist.

Each option's type, bounds and help are stated once, for all jobs that have the option.
"""

import os
from fractions import Fraction
from typing import Annotated, ClassVar, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from ...actors.encode.settings import Codec
from .options import (
    BYTES,
    CODEC,
    COUNTS,
    PRESET,
    RATE,
    SIZE,
    TARGET,
    Option,
    as_written,
    command_line,
    options_of,
    with_own_names,
)
from .spellings import name_for
from .values import SIDE_MAX

VIDEO: Final = "Video"
PICTURE: Final = "Picture"
TRACKS: Final = "What is kept"
RUN: Final = "How the work is done"
RULES: Final = "Output and rules"
BATCH: Final = "The batch"


class Part(BaseModel):
    """A group of options. Times are in seconds as ``Fraction``, rates in bit/s."""

    # Validators are built on first use, since most of these models are only base classes.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        given = with_own_names(given, {alias: field for field, each in options_of(cls).items() for alias in each.also})
        if unknown := [name for name in given if name not in cls.model_fields]:
            flags = {option.flag.removeprefix("--").replace("-", "_"): each for each, option in options_of(cls).items()}
            near = name_for(str(unknown[0]), cls.model_fields, flags)
            raise ValueError(f"there is no option {unknown[0]}" + (f": did you mean {near}?" if near else ""))
        return given

    @field_validator("*", mode="before")
    @classmethod
    def _read_text(cls, value: object, info: ValidationInfo) -> object:
        option = options_of(cls).get(info.field_name or "")
        return value if option is None else as_written(option.kind, value)


class JobRequest(Part):
    """A request that a command of codecfleet can carry out."""

    command: ClassVar[str]  #: The command's name

    def command_line(self) -> tuple[str, ...]:
        """Return the command line of this request, for a queue.

        Raises UsageError: the command would refuse an option, or cannot express it.
        """
        return command_line(self.command, self)


def _path_text(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _both_sides(value: object) -> object:
    size = as_written(SIZE, value)
    if not isinstance(size, tuple | list) or not all(isinstance(side, int) for side in size):
        raise ValueError(f"{value!r} is not (width, height). Write (1280, 720)")
    return size


PATH: Final = BeforeValidator(_path_text)  #: For fields that take text or a ``pathlib.Path``
Side = Annotated[int, Field(ge=1, le=SIDE_MAX)]
PixelSize = Annotated[tuple[Side, Side], BeforeValidator(_both_sides)]  #: (width, height)
Source = Annotated[
    str,
    Field(description="The file to read: a path, or an fsspec URL such as s3://bucket/film.mkv."),
    Option("INPUT"),
    PATH,
]
AudioTracks = Annotated[
    tuple[Annotated[int, Field(ge=0)], ...] | None,
    Field(description="Audio tracks to keep, counted from 0."),
    Option("--audio-track", TRACKS, default="all", example="[0]", key="audio_tracks", kind=COUNTS),
]
Overwrite = Annotated[
    bool, Field(description="Replace the output if it exists."), Option("--overwrite", RULES, default="refuse")
]
Strict = Annotated[
    bool,
    Field(description="Fail if the input is damaged or anything would be lost."),
    Option("--strict", RULES, default="warn"),
]


class CodecAndRate(Part):
    """Codec and rate; by default, the container decides the codec, and the codec decides the quality."""

    codec: Annotated[
        Codec | None,
        Field(description="Video codec."),
        Option("--codec", VIDEO, default="h264; vp9 into webm", example='"hevc"', kind=CODEC),
    ] = None
    quality: Annotated[
        int | None,
        Field(ge=0, le=63, description="Constant quality on the encoder's own CRF scale, 0 to 63; lower is better."),
        Option("--quality", VIDEO, default="depends on the codec: docs/encoders.md", example="26", aliases=("--crf",)),
    ] = None
    bitrate_bps: Annotated[
        int | None,
        Field(gt=0, description="Average bitrate, instead of a quality: 4M (4,000,000 bit/s), 800k."),
        Option("--bitrate", VIDEO, example='"4M"', kind=RATE),
    ] = None

    @model_validator(mode="after")
    def _check_rate(self) -> Self:
        if self.quality is not None and self.bitrate_bps is not None:
            raise ValueError("`quality` and `bitrate_bps` exclude each other: give one of them")
        return self


class TargetQuality(Part):
    """A quality to reach, instead of one that the encoder defines."""

    target_quality: Annotated[
        str | None,
        Field(
            description="Quality that each segment reaches, instead of --quality or --bitrate: xpsnr:42, vmaf:94, "
            "psnr:42 or ssim:0.98: docs/encoders.md."
        ),
        Option("--target-quality", VIDEO, example='"xpsnr:42"', kind=TARGET),
    ] = None


class OutputSize(Part):
    """A size for the output, instead of a rate."""

    size_bytes: Annotated[
        int | None,
        Field(
            gt=0,
            description="The most bytes of the whole output file, with sound, subtitles and container: 700M "
            "(700,000,000 bytes), 4G.",
        ),
        Option("--size", VIDEO, example='"700M"', kind=BYTES),
    ] = None


class RateLimit(Part):
    """A peak bitrate, and the buffer over which it is measured."""

    maxrate_bps: Annotated[
        int | None,
        Field(
            gt=0, description="Highest bitrate in bit/s, measured over --bufsize and checked on the whole joined track."
        ),
        Option("--maxrate", VIDEO, default="no limit", example='"6M"', kind=RATE),
    ] = None
    bufsize_bits: Annotated[
        int | None,
        Field(gt=0, description="Buffer size in bits for --maxrate: 8M."),
        Option("--bufsize", VIDEO, example='"8M"', metavar="SIZE", kind=RATE),
    ] = None

    @model_validator(mode="after")
    def _check_limit(self) -> Self:
        if (self.maxrate_bps is None) != (self.bufsize_bits is None):
            raise ValueError("`maxrate_bps` and `bufsize_bits` belong together: give both or neither")
        return self


class Keyframes(Part):
    """Where keyframes are."""

    keyframe_interval_s: Annotated[
        Fraction | None,
        Field(
            gt=0,
            description="Place a keyframe (IDR) at the first frame at or after each multiple of this time, and nowhere "
            "else: docs/timeline.md.",
        ),
        Option(
            "--keyframe-interval",
            VIDEO,
            default="the encoder's choice, at most 10 s apart",
            example="2",
            key="keyframe_interval",
        ),
    ] = None


class EncoderTuning(Part):
    """Speed, and other options of the encoder."""

    preset: Annotated[
        int,
        Field(
            ge=1,
            le=7,
            description="1 is fastest; 7 is slowest and gives the smallest files; or x264's name: docs/encoders.md.",
        ),
        Option("--preset", VIDEO, kind=PRESET),
    ] = 4
    encoder_options: Annotated[
        tuple[tuple[str, str], ...],
        Field(
            description="Another encoder option, by FFmpeg's name for it: docs/encoders.md; with --encoder nvenc, by "
            "NVENC's name: docs/nvenc.md."
        ),
        Option("--encoder-option", VIDEO, example='{ tune = "film" }', key="encoder_options"),
    ] = ()


# The fields of a later base class come first.
class VideoOptions(EncoderTuning, Keyframes, RateLimit, OutputSize, TargetQuality, CodecAndRate):
    """The options for encoding the video."""

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        rates = ("target_quality", "size_bytes", "quality", "bitrate_bps")
        given = [name for name in rates if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"`{given[0]}` and `{given[1]}` exclude each other: give one of them")
        return self


class CudaPlace(Part):
    """A GPU, context and stream of a caller that uses CUDA itself."""

    #: The GPU's ordinal or UUID; by default the context's GPU, or the first GPU if there is no context
    device: Annotated[int, Field(ge=0)] | str | None = None
    #: The handle of a context that stays valid; by default the primary context
    context: Annotated[int, Field(ge=1)] | None = None
    #: The handle of a stream; 1 is the legacy default stream, 2 the per-thread default stream
    stream: Annotated[int, Field(ge=1)] | None = None

    @property
    def names_cuda(self) -> bool:
        """Whether any field is set."""
        return (self.device, self.context, self.stream) != (None, None, None)


class SourceRange(Part):
    """The part of a video track to use; times count from the first visible frame."""

    start_s: Annotated[
        Fraction | None,
        Field(
            ge=0,
            description="Start at the first frame at or after this time: seconds (90.5) or a clock time (1:30.5).",
        ),
        Option("--start", PICTURE, default="the first frame", example='"1:30"'),
    ] = None
    end_s: Annotated[
        Fraction | None,
        Field(gt=0, description="Stop before the first frame at or after this time."),
        Option("--end", PICTURE, default="the end", example='"2:00.5"'),
    ] = None
    video_track: Annotated[
        int,
        Field(ge=0, le=1000, description="The video track to use, counted from 0."),
        Option("--video-track", TRACKS),
    ] = 0

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if self.start_s is not None and self.end_s is not None and self.end_s <= self.start_s:
            raise ValueError(f"`end_s` must come after `start_s`: {self.start_s} .. {self.end_s} s")
        return self


class BatchRules(Part):
    """The rules of a batch: which files it processes, and how it names the outputs."""

    output_template: Annotated[
        str,
        Field(
            min_length=1,
            description="Name of each output below --output. {dir} is the input's folder, relative to the folder that "
            "you named. {stem} is the input's name without the extension. {ext} is the extension if "
            "codecfleet can write that container, otherwise mp4.",
        ),
        Option("--output-template", BATCH, metavar="TEMPLATE"),
    ] = "{dir}/{stem}.{ext}"
    files_at_once: Annotated[
        int,
        Field(
            ge=1,
            le=10_000,
            description="The most files to work on at the same time. Fewer run if they keep all workers busy.",
        ),
        Option("--files-at-once", BATCH, metavar="N"),
    ] = 64
    mirror: Annotated[
        bool,
        Field(description="Also copy files that are not video, byte for byte, under their own names: docs/batch.md."),
        Option("--mirror", BATCH),
    ] = False
    retry_failed: Annotated[
        bool, Field(description="Retry the files that failed in an earlier run."), Option("--retry-failed", BATCH)
    ] = False
    hash_inputs: Annotated[
        bool,
        Field(description="Detect changed inputs by SHA-256 instead of size and modification time."),
        Option("--hash", BATCH, key="hash"),
    ] = False
    database: Annotated[
        str | None,
        Field(min_length=1, description="File on a local disk that stores the state of each input: docs/batch.md."),
        Option(
            "--database",
            BATCH,
            default="codecfleet-batch.sqlite in --output; in the current folder if --output is a URL",
            metavar="FILE",
        ),
        PATH,
    ] = None
