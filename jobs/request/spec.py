"""What a user asks for: ``TranscodeSpec``, validated, frozen, and equal for the CLI, the API and batches."""

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field

from ...actors.media.location import absolute
from .options import Option
from .parts import (
    PATH,
    RULES,
    Carried,
    Journaling,
    Overwrite,
    Part,
    RunOptions,
    Segmenting,
    Source,
    SourceRange,
    VideoOptions,
    WaitOptions,
)
from .picture import Picture

if TYPE_CHECKING:
    from os import PathLike


class _Files(Part):
    source: Source
    output: Annotated[
        str,
        Field(
            description="The file to write: a path or an fsspec URL. Its extension names the container: "
            "mp4, mov, mkv, webm, ts, or a raw stream (h264, hevc, ivf, obu)."
        ),
        Option("OUTPUT"),
        PATH,
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
    """One input to one output. docs/config.md lists the fields, with their defaults.

    Text is read as on the command line: ``scale="720p"``, ``bitrate_bps="4M"``, ``start_s="1:30"``, ``codec="h265"``.
    """

    if TYPE_CHECKING:
        # What a field takes is more than what it holds.
        def __init__(
            self, *, source: "str | PathLike[str]", output: "str | PathLike[str]", **options: object
        ) -> None: ...

    def resolved(self) -> Self:
        """Return the same with local paths made absolute: workers may run in another folder."""
        work = None if self.work is None else absolute(self.work)
        return self.model_copy(update={"source": absolute(self.source), "output": absolute(self.output), "work": work})
