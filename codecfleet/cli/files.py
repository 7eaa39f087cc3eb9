"""The commands ``probe`` and ``verify``."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from ..jobs.request.options import Option
from ..jobs.request.parts import AudioTracks, Source, SourceRange
from ..jobs.request.values import parse_path
from .params import JSON, SourceArgument, with_options
from .question import Question
from .sandbox import FileUse
from .services import Commands


class VerifyRequest(SourceRange):
    """The two files to compare: an output, and the requested part of the input."""

    source: Source
    output: Annotated[str, Field(description="The file that was made from INPUT."), Option("OUTPUT")]
    audio_tracks: AudioTracks = None
    report_path: Annotated[
        str | None,
        Field(
            description="A report of transcode: only the part that it names is compared, and its losses are accepted."
        ),
        Option("--report", metavar="FILE.json"),
    ] = None


def _probe(source: SourceArgument, *, as_json: bool = JSON) -> Question:
    checked = parse_path("INPUT", source)
    files = FileUse(reads=(checked,))
    return Question(ask=lambda services, _progress: services.probe(checked), as_json=as_json, files=files)


def _verify(request: VerifyRequest, *, as_json: bool = JSON) -> Question:
    read = (request.source, request.output, request.report_path, *_named_in(request.report_path))
    files = FileUse(reads=tuple(each for each in read if each is not None))
    return Question(ask=lambda services, progress: services.verify(request, progress), as_json=as_json, files=files)


def _named_in(report_path: str | None) -> Iterator[str]:
    """Yield the picture and the font that a report names. Errors in the report itself are raised later."""
    if report_path is None:
        return
    with suppress(OSError, ValueError, TypeError, AttributeError):
        report = json.loads(Path(report_path).read_bytes())
        named = ((report.get("overlay") or {}).get("picture"), (report.get("burnt") or {}).get("font"))
        yield from (str(each) for each in named if each is not None)


COMMANDS: Final[Commands] = {
    "probe": (_probe, ["probe film.mkv --json | jq .tracks"]),
    "verify": (
        with_options(_verify, VerifyRequest),
        ["verify film.mkv film.mp4 && echo complete", "verify film.ts part.mkv --report part.json"],
    ),
}
