"""The commands ``probe`` and ``verify``."""

from typing import Annotated, Final

from pydantic import Field

from ..jobs.request.options import Option
from ..jobs.request.parts import AudioTracks, Source, SourceRange
from ..jobs.request.values import parse_path
from .params import JsonFlag, SourceArgument, with_options
from .question import Question
from .services import Commands


class VerifyRequest(SourceRange):
    """What ``verify`` is to compare: an output with the part of the input that was asked for."""

    source: Source
    output: Annotated[str, Field(description="The file that was made from it."), Option("OUTPUT")]
    audio_tracks: AudioTracks = None
    report_path: Annotated[
        str | None,
        Field(
            description="The report that transcode wrote: the part that it took is compared, "
            "and what it declared as lost is not a difference."
        ),
        Option("--report", metavar="FILE.json"),
    ] = None


def _probe(source: SourceArgument, *, as_json: JsonFlag = False) -> Question:
    checked = parse_path("INPUT", source)
    return Question(ask=lambda services, _progress: services.probe(checked), as_json=as_json)


def _verify(request: VerifyRequest, *, as_json: JsonFlag = False) -> Question:
    return Question(ask=lambda services, progress: services.verify(request, progress), as_json=as_json)


COMMANDS: Final[Commands] = {
    "probe": (_probe, ["probe film.mkv --json | jq .tracks"]),
    "verify": (
        with_options(_verify, VerifyRequest),
        ["verify film.mkv film.mp4 && echo complete", "verify film.ts part.mkv --report part.json"],
    ),
}
