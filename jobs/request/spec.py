"""A user's request, for the command line and the API: ``TranscodeSpec`` and ``BatchSpec``, validated and frozen."""

from os import PathLike
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field

from ...actors.media.location import absolute
from .carried import Carried
from .options import NAMES, Option
from .parts import (
    BATCH,
    PATH,
    RULES,
    BatchRules,
    JobRequest,
    Overwrite,
    Part,
    Source,
    SourceRange,
    Strict,
    VideoOptions,
)
from .picture import Picture
from .running import Journaling, Reaching, Restarting, RunOptions, Segmenting, WaitOptions

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    fragmented: Annotated[bool, Field(description="Write a fragmented mp4 or mov."), Option("--fragmented", RULES)] = (
        False
    )
    overwrite: Overwrite = False
    if_smaller: Annotated[
        bool,
        Field(
            description="Keep the result only if it is smaller than the input. Otherwise batch copies the input, and "
            "transcode fails with exit code 4."
        ),
        Option("--if-smaller", RULES),
    ] = False
    strict: Strict = False
    force: Annotated[
        bool,
        Field(description="Encode Dolby Vision profile 5 although the colours will be wrong without its metadata."),
        Option("--force", RULES, default="refuse"),
    ] = False


# The fields of a later base class come first.
class JobOptions(
    JobRequest,
    _Rules,
    Restarting,
    Journaling,
    WaitOptions,
    Reaching,
    RunOptions,
    Segmenting,
    Carried,
    SourceRange,
    Picture,
    VideoOptions,
):
    """The options of a job, apart from its files."""

    def _beside(self) -> dict[str, str | None]:
        """Return the job's other files, with local paths made absolute."""
        named = {"overlay": self.overlay, "subtitle_font": self.subtitle_font}
        return {field: None if place is None else absolute(place) for field, place in named.items()}


class TranscodeSpec(JobOptions, _Files):
    """A request to transcode one input to one output. docs/config.md lists the fields, with their defaults.

    Text is read as on the command line: ``scale="720p"``, ``bitrate_bps="4M"``, ``start_s="1:30"``, ``codec="h265"``.
    """

    command: ClassVar[str] = "transcode"

    if TYPE_CHECKING:
        # Type checkers would require the types that the fields hold; the fields accept further types.
        def __init__(
            self, *, source: "str | PathLike[str]", output: "str | PathLike[str]", **options: object
        ) -> None: ...

    def resolved(self) -> Self:
        """Make local paths absolute, because workers may run in another folder; return the new spec."""
        work = None if self.work is None else absolute(self.work)
        places = {"source": absolute(self.source), "output": absolute(self.output), "work": work}
        return self.model_copy(update=places | self._beside())


def _listed(inputs: object) -> object:
    return (inputs,) if isinstance(inputs, str | PathLike) else inputs


class _BatchFiles(Part):
    inputs: Annotated[
        tuple[Annotated[str, PATH], ...],
        BeforeValidator(_listed),
        Field(
            min_length=1,
            description="Where the files come from: a folder, a pattern (quoted), a storage prefix such as "
            "s3://bucket/films/, a list (.csv, .jsonl, .txt, or - for stdin), or a file itself.",
        ),
        Option("INPUT...", kind=NAMES),
    ]
    output: Annotated[
        str,
        Field(min_length=1, description="Folder or fsspec URL below which all outputs are written."),
        Option("--output", BATCH, metavar="DIR"),
        PATH,
    ]


class BatchSpec(BatchRules, JobOptions, _BatchFiles):
    """A request for many inputs, each with an output. Options are the same for all, unless a list overrides them."""

    command: ClassVar[str] = "batch"

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            inputs: "str | PathLike[str] | Sequence[str | PathLike[str]]",
            output: "str | PathLike[str]",
            **options: object,
        ) -> None: ...

    def resolved(self) -> Self:
        """Make local paths absolute; return the new spec."""
        places = {"output": absolute(self.output), "work": None if self.work is None else absolute(self.work)}
        return self.model_copy(update=places | self._beside())
