"""The commands ``transcode`` and ``plan``."""

from pathlib import PurePosixPath
from typing import Annotated, Final

import typer

from ..errors import UsageError
from ..jobs.request.spec import TranscodeSpec
from .options import parse_path
from .params import JsonFlag, with_spec_options
from .plan import FleetOption, PlanAddressOption, PolicyOption, plan_on
from .question import Question
from .run import Transcode
from .services import Commands

__all__ = ["COMMANDS"]


def _transcode(
    spec: TranscodeSpec,
    *,
    report: Annotated[
        str | None,
        typer.Option(
            "--report",
            metavar="FILE.json",
            help="Write the whole report here; an older one is replaced. Default: none.",
            rich_help_panel="Output and rules",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            metavar="",
            help="Print one JSON event a line on stdout, for programs: docs/events.md.",
            rich_help_panel="Output and rules",
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            metavar="",
            help="Print nothing but an error; warnings are in the report.",
            rich_help_panel="Output and rules",
        ),
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="RAY_ADDRESS",
            help="Use this Ray cluster (host:port). Default: the environment's RAY_ADDRESS, else a private Ray.",
            rich_help_panel="How the work is done",
        ),
    ] = None,
) -> Transcode:
    if as_json and quiet:
        message = "--json and --quiet exclude each other"
        raise UsageError(message, "Give one of them.")
    return Transcode(
        spec=spec,
        address=None if address is None else parse_path("--address", address),
        report_path=None if report is None else parse_path("--report", report),
        as_json=as_json,
        quiet=quiet,
    )


def _plan(
    spec: TranscodeSpec,
    *,
    fleet: FleetOption = None,
    address: PlanAddressOption = None,
    policy: PolicyOption = None,
    as_json: JsonFlag = False,
) -> Question:
    on = plan_on(fleet, address, policy)
    return Question(ask=lambda services, _progress: services.plan(spec, on), as_json=as_json)


def _default_output(source: str) -> str:
    return f"{PurePosixPath(source).stem or 'output'}-codecfleet.mp4"


COMMANDS: Final[Commands] = {
    "transcode": (
        with_spec_options(_transcode),
        [
            "transcode film.mkv film.mp4",
            "transcode film.mkv small.mp4 --codec hevc --scale 720p --quality 26",
            "transcode film.mov web.webm --bitrate 2.5M --audio opus --workers 4",
            "transcode film.ts part.mkv --start 1:30 --end 2:00 --report part.json",
        ],
    ),
    "plan": (
        with_spec_options(_plan, default_output=_default_output),
        [
            "plan film.mkv film.mp4 --segment-seconds 5",
            "plan film.mkv film.mp4 --codec hevc --fleet h200-l40s",
        ],
    ),
}
