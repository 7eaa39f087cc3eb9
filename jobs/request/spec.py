"""What a user asks for: ``TranscodeSpec``, validated, frozen, and equal for the CLI, the API and batches."""

from typing import Annotated, Self

from ...actors.media.location import absolute
from .options import Option
from .parts import (
    RULES,
    Carried,
    Overwrite,
    Part,
    Picture,
    RunOptions,
    Segmenting,
    Source,
    SourceRange,
    VideoOptions,
)

__all__ = ["TranscodeSpec"]


class _Files(Part):
    source: Source
    output: Annotated[
        str,
        Option(
            "OUTPUT",
            "The file to write: a path or an fsspec URL. Its extension names the container: "
            "mp4, mov, mkv, webm, ts, or a raw stream (h264, hevc, ivf, obu).",
        ),
    ]


class _Rules(Part):
    fragmented: Annotated[bool, Option("--fragmented", "Write mp4 or mov in fragments.", RULES)] = False
    overwrite: Overwrite = False
    strict: Annotated[
        bool,
        Option("--strict", "Fail on damage and on anything that would be lost.", RULES, default="warn"),
    ] = False
    force: Annotated[
        bool,
        Option(
            "--force",
            "Encode Dolby Vision profile 5 too, whose colours come out wrong without its metadata.",
            RULES,
            default="refuse",
        ),
    ] = False


# The fields of a later base come first.
class TranscodeSpec(_Rules, RunOptions, Segmenting, Carried, SourceRange, Picture, VideoOptions, _Files):
    """One input to one output. docs/config.md lists the fields, with their defaults."""

    def resolved(self) -> Self:
        """Return the same with local paths made absolute: a worker may stand in another folder, today or tomorrow."""
        return self.model_copy(update={"source": absolute(self.source), "output": absolute(self.output)})
