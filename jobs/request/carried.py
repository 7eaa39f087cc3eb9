"""The options for sound and subtitles (docs/containers.md)."""

from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from .options import LOUDNESS, RATE, Option
from .parts import TRACKS, AudioTracks, Part
from .values import LOUDNESS_MAX, LOUDNESS_MIN


class SoundAndSubtitles(Part):
    """How a job treats sound and subtitle tracks."""

    audio_tracks: AudioTracks = None
    audio: Annotated[
        Literal["copy", "aac", "opus", "none"],
        Field(description="Copy the sound bit for bit, encode it, or leave it out."),
        Option("--audio", TRACKS),
    ] = "copy"
    audio_bitrate_bps: Annotated[
        int | None,
        Field(gt=0, description="Bitrate of each sound track that is encoded: 128k, 192k."),
        Option(
            "--audio-bitrate",
            TRACKS,
            default="80k per channel for aac, 64k for opus",
            example='"128k"',
            kind=RATE,
        ),
    ] = None
    audio_channels: Annotated[
        Literal["keep", "stereo", "mono"],
        Field(description="With --audio aac or opus: mix down to two channels or one: docs/containers.md."),
        Option("--audio-channels", TRACKS),
    ] = "keep"
    loudness_lufs: Annotated[
        Fraction | None,
        Field(
            ge=LOUDNESS_MIN,
            le=LOUDNESS_MAX,
            description="With --audio aac or opus: bring each track to this loudness (EBU R 128) with one gain: "
            "docs/filters.md.",
        ),
        Option("--loudness", TRACKS, default="as it is", example="-23", kind=LOUDNESS),
    ] = None
    subtitles: Annotated[
        Literal["copy", "none"],
        Field(description="Keep subtitles, converted if the container requires it, or leave them out."),
        Option("--subtitles", TRACKS),
    ] = "copy"


class Carried(SoundAndSubtitles):
    """``SoundAndSubtitles`` of one output: the options that depend on ``audio`` are checked."""

    @model_validator(mode="after")
    def _check_audio(self) -> Self:
        if self.audio in ("aac", "opus"):
            return self
        for field, asked in (
            ("audio_bitrate_bps", self.audio_bitrate_bps is not None),
            ("audio_channels", self.audio_channels != "keep"),
            ("loudness_lufs", self.loudness_lufs is not None),
        ):
            if asked:
                raise ValueError(f"`{field}` needs `audio` aac or opus: sound is not encoded with {self.audio}")
        return self
