"""The commands ``probe`` and ``verify``."""

from typing import Annotated, Final

import typer

from ..errors import UsageError
from .options import parse_count, parse_counts, parse_path, parse_time
from .params import AudioTracks, EndTime, JsonFlag, Source, StartTime, VideoTrack
from .question import Question
from .services import Commands, VerifyRequest

__all__ = ["COMMANDS"]


def _probe(source: Source, *, as_json: JsonFlag = False) -> Question:
    checked = parse_path("INPUT", source)
    return Question(ask=lambda services, _progress: services.probe(checked), as_json=as_json)


def _verify(
    source: Source,
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="The file that was made from it.")],
    *,
    start: StartTime = None,
    end: EndTime = None,
    video_track: VideoTrack = "0",
    audio_track: AudioTracks = None,
    report: Annotated[
        str | None,
        typer.Option(
            "--report",
            metavar="FILE.json",
            help="The report that transcode wrote: what it declared as lost is then no difference.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> Question:
    request = VerifyRequest(
        source=parse_path("INPUT", source),
        output=parse_path("OUTPUT", output),
        video_track=parse_count("--video-track", video_track, most=1_000),
        audio_tracks=parse_counts("--audio-track", audio_track) if audio_track else None,
        start_s=None if start is None else parse_time("--start", start),
        end_s=None if end is None else parse_time("--end", end, positive=True),
        report_path=None if report is None else parse_path("--report", report),
    )
    if request.start_s is not None and request.end_s is not None and request.end_s <= request.start_s:
        message = f"--end must come after --start: {start} .. {end}"
        raise UsageError(message, "See codecfleet verify --help.")
    return Question(ask=lambda services, progress: services.verify(request, progress), as_json=as_json)


COMMANDS: Final[Commands] = {
    "probe": (_probe, ["probe film.mkv --json | jq .tracks"]),
    "verify": (_verify, ["verify film.mkv film.mp4 && echo exact"]),
}
