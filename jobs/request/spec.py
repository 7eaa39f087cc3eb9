"""What a user asks for: ``TranscodeSpec``, validated, frozen, and equal for the CLI, the API and batches."""

from typing import Annotated, Self

from pydantic import Field

from ...actors.media.location import absolute
from .options import Option
from .parts import (
    RULES,
    Carried,
    Journaling,
    Overwrite,
    Part,
    Picture,
    RunOptions,
    Segmenting,
    Source,
    SourceRange,
    VideoOptions,
    WaitOptions,
)


class _Files(Part):
    source: Source
    output: Annotated[
        str,
        Field(
            description="The file to write: a path or an fsspec URL. Its extension names the container: "
            "mp4, mov, mkv, webm, ts, or a raw stream (h264, hevc, ivf, obu)."
        ),
        Option("OUTPUT"),
    ]


class _Rules(Part):
    fragmented: Annotated[bool, Field(description="Write mp4 or mov in fragments."), Option("--fragmented", RULES)] = (
        False
    )
    overwrite: Overwrite = False
    strict: Annotated[
        bool,
        Field(description="Fail on damage and on anything that would be lost."),
        Option("--strict", RULES, default="warn"),
    ] = False
    force: Annotated[
        bool,
        Field(description="Encode Dolby Vision profile 5 too, whose colours come out wrong without its metadata."),
        Option("--force", RULES, default="refuse"),
    ] = False


# The fields of a later base come first.
class TranscodeSpec(
    _Rules, Journaling, WaitOptions, RunOptions, Segmenting, Carried, SourceRange, Picture, VideoOptions, _Files
):
    """One input to one output. docs/config.md lists the fields, with their defaults."""

    def resolved(self) -> Self:
        """Return the same with local paths made absolute: workers may run in another folder."""
        work = None if self.work is None else absolute(self.work)
        return self.model_copy(update={"source": absolute(self.source), "output": absolute(self.output), "work": work})
