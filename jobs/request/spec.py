"""What a user asks for: ``TranscodeSpec``, validated, frozen, and equal for the CLI, the API and batches."""

from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ...actors.encode.settings import Codec
from ...actors.media.location import is_local, local_path

__all__ = ["TranscodeSpec", "first_objection"]

Positive = Annotated[int, Field(gt=0)]


class TranscodeSpec(BaseModel):
    """One input to one output.

    Times are in seconds as ``Fraction``; rates in bit/s. ``None`` means "as documented by default": the codec follows
    the container (h264; vp9 in webm), quality the codec's default, the pixel format the source.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    source: str
    """Path or fsspec URL of the input."""
    output: str
    """Path or fsspec URL of the output; its extension names the container."""
    codec: Codec | None = None
    quality: Annotated[int, Field(ge=0, le=63)] | None = None
    """The encoder's own CRF scale, lower is better."""
    bitrate_bps: Positive | None = None
    maxrate_bps: Positive | None = None
    bufsize_bits: Positive | None = None
    preset: Annotated[int, Field(ge=1, le=7)] = 4
    """1 is fastest, 7 slowest; docs/encoders.md has the table per encoder."""
    encoder_options: tuple[tuple[str, str], ...] = ()
    """Extra options of the encoder, by FFmpeg's names; with ``encoder="nvenc"`` by NVENC's (docs/nvenc.md)."""
    scale: tuple[int | None, int] | None = None
    """(width, height); width None keeps the display shape."""
    pix_fmt: str | None = None
    deinterlace: Literal["off", "auto", "on"] = "off"
    start_s: Annotated[Fraction, Field(ge=0)] | None = None
    end_s: Annotated[Fraction, Field(gt=0)] | None = None
    """Presentation times relative to the first presented frame; the interval is half-open."""
    video_track: Annotated[int, Field(ge=0)] = 0
    """Counted among the video tracks, from 0."""
    audio_tracks: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """Counted among the audio tracks, from 0; None carries all of them."""
    audio: Literal["copy", "aac", "opus", "none"] = "copy"
    subtitles: Literal["copy", "none"] = "copy"
    segment_s: Annotated[Fraction, Field(gt=0)] | None = None
    """Target length of a segment; None lets the plan choose from the length alone (never from the machines)."""
    workers: Positive | None = None
    """Segments in flight; None means as many as the fleet has slots for."""
    priority: Annotated[int, Field(ge=0, le=100)] = 0
    """Jobs of a higher priority get workers first; those of the same share them."""
    weight: Annotated[int, Field(ge=1, le=100)] = 1
    """The job's part in a fair share against others of its priority."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    encoder: Literal["auto", "software", "nvenc"] = "auto"
    """Who encodes: whoever finishes first, or one of the two. It decides the output's bytes; ``device`` does not."""
    fragmented: bool = False
    """Write a fragmented mp4 / mov."""
    overwrite: bool = False
    strict: bool = False
    """Refuse damage and losses instead of reporting them."""
    force: bool = False
    """Encode Dolby Vision profile 5 although its colours cannot be right without its metadata."""

    def resolved(self) -> Self:
        """Return the same with local paths made absolute: a worker may stand in another folder, today or tomorrow."""
        paths = {"source": self.source, "output": self.output}
        local = {name: str(local_path(url).absolute()) for name, url in paths.items() if is_local(url)}
        return self.model_copy(update=local)

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.quality is not None and self.bitrate_bps is not None:
            message = "quality and bitrate exclude each other: give one of them"
            raise ValueError(message)
        if (self.maxrate_bps is None) != (self.bufsize_bits is None):
            message = "maxrate and bufsize belong together: give both or neither"
            raise ValueError(message)
        if self.device == "cpu" and self.encoder == "nvenc":
            message = "device cpu and encoder nvenc exclude each other: NVENC is a GPU's"
            raise ValueError(message)
        if self.start_s is not None and self.end_s is not None and self.end_s <= self.start_s:
            message = f"the end must come after the start: {self.start_s} .. {self.end_s} s"
            raise ValueError(message)
        if self.scale is not None and (self.scale[1] <= 0 or (self.scale[0] is not None and self.scale[0] <= 0)):
            message = f"the size to scale to must be positive: {self.scale}"
            raise ValueError(message)
        return self


def first_objection(error: ValidationError) -> str:
    """Return the first thing that validation objected to, as one line that begins with the field's name."""
    first = error.errors()[0]
    message = str(first["msg"]).removeprefix("Value error, ")
    return ": ".join([*(str(part) for part in first["loc"][:1]), f"{message[:1].lower()}{message[1:]}"])
