"""The commands ``transcode`` and ``plan``."""

from pathlib import PurePosixPath
from typing import Annotated, Final

from ..errors import UsageError
from ..jobs.request.parts import RULES, RUN
from ..jobs.request.spec import TranscodeSpec
from .params import JsonFlag, flag, named, with_spec_options
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
        named(
            "--report",
            "FILE.json",
            "Write the whole report here, completely or not at all; an older one is replaced. Default: none.",
            RULES,
        ),
    ] = None,
    as_json: Annotated[
        bool, flag("--json", "Print one JSON event a line on stdout, for programs: docs/events.md.", RULES)
    ] = False,
    quiet: Annotated[bool, flag("--quiet", "Print nothing but an error; warnings are in the report.", RULES)] = False,
    address: Annotated[
        str | None,
        named(
            "--address",
            "RAY_ADDRESS",
            "Use this Ray cluster, host:port, or auto for the one on this machine: docs/fleet.md. Default: the "
            "environment's RAY_ADDRESS, else a private Ray.",
            RUN,
        ),
    ] = None,
) -> Transcode:
    if as_json and quiet:
        message = "--json and --quiet exclude each other"
        raise UsageError(message, "Give one of them.")
    return Transcode(spec=spec, address=address, report_path=report, as_json=as_json, quiet=quiet)


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
