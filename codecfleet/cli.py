"""The ``codecfleet`` program.

Parsing and running are apart: typer turns the command line into a request and does nothing else; then the request
runs, outside typer, so that nothing between us and the terminal rewrites our output, errors or exit codes.
"""

import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePosixPath
from platform import python_version
from typing import TYPE_CHECKING, Annotated, Final, TextIO, cast

import typer

from .cli_cluster import add_machine_commands
from .cli_failures import READER_GONE_CODE, failure_of, tell
from .cli_infer import add_infer_command
from .cli_interrupts import end_at_once_on_signals
from .cli_options import parse_count, parse_counts, parse_path, parse_time
from .cli_params import AudioTracks, EndTime, JsonFlag, Source, StartTime, VideoTrack, with_spec_options
from .cli_plan import FleetOption, PlanAddressOption, PolicyOption, plan_on
from .cli_run import Question, Transcode, detach_stdout, run_question, run_transcode
from .cli_services import Services, VerifyRequest
from .cli_supervisor import Watch, add_commands, run_watch
from .console import ReaderGone
from .errors import UsageError
from .jobs.spec import TranscodeSpec

if TYPE_CHECKING:
    from typer.core import TyperGroup

__all__ = ["app", "main", "parse", "run"]

Request = Transcode | Question | Watch

app = typer.Typer(
    name="codecfleet",
    add_completion=False,
    no_args_is_help=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 verify found a difference or doctor something to mend, 2 usage, 3 input, 4 request, "
    "5 work failed, 130 interrupted. All of it: docs/cli.md",
)

_TRANSCODE_EPILOG: Final = """[bold]Examples[/bold]

codecfleet transcode film.mkv film.mp4

codecfleet transcode film.mkv small.mp4 --codec hevc --scale 720p --quality 26

codecfleet transcode film.mov web.webm --bitrate 2.5M --audio opus --workers 4

codecfleet transcode film.ts part.mkv --start 1:30 --end 2:00 --report part.json
"""
_PLAN_EPILOG: Final = """[bold]Examples[/bold]

codecfleet plan film.mkv film.mp4 --segment-seconds 5

codecfleet plan film.mkv film.mp4 --codec hevc --fleet h200-l40s
"""
_PROBE_EPILOG: Final = "[bold]Example[/bold]\n\ncodecfleet probe film.mkv --json | jq .tracks"
_VERIFY_EPILOG: Final = "[bold]Example[/bold]\n\ncodecfleet verify film.mkv film.mp4 && echo exact"


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    *,
    show_version: Annotated[
        bool, typer.Option("--version", metavar="", help="Print the versions that matter, and exit.")
    ] = False,
) -> None:
    """Any video in, one exact file out: segments are encoded in parallel and joined with proof."""
    if show_version:
        print(version_text())  # noqa: T201 - this is the answer
        raise typer.Exit
    if context.invoked_subcommand is None:
        *others, last = cast("TyperGroup", context.command).commands
        message = f"a command is missing: {', '.join(others)} or {last}"
        raise UsageError(message, "See codecfleet --help.")


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
    """Encode INPUT into OUTPUT, segment by segment on many workers, and prove that nothing is missing."""
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
    """Show segments and cuts, what would be lost or changed, and where it would run and why. Runs nothing."""
    on = plan_on(fleet, address, policy)
    return Question(ask=lambda services, _progress: services.plan(spec, on), as_json=as_json)


def _default_output(source: str) -> str:
    return f"{PurePosixPath(source).stem or 'output'}-codecfleet.mp4"


app.command("transcode", epilog=_TRANSCODE_EPILOG)(with_spec_options(_transcode))


@app.command("probe", epilog=_PROBE_EPILOG)
def _probe(source: Source, *, as_json: JsonFlag = False) -> Question:
    """Show what is in a file: tracks, timeline, random access points, colour, and oddities found."""
    checked = parse_path("INPUT", source)
    return Question(ask=lambda services, _progress: services.probe(checked), as_json=as_json)


app.command("plan", epilog=_PLAN_EPILOG)(with_spec_options(_plan, default_output=_default_output))


@app.command("verify", epilog=_VERIFY_EPILOG)
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
    """Prove OUTPUT against INPUT: frames, times, order, picture similarity, audio, metadata."""
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


add_infer_command(app)


add_machine_commands(app)


add_commands(app)


def version_text() -> str:
    """Return our version and those of what decides about an output's bytes."""
    engines = ", ".join(f"{name} {_version(name)}" for name in ("ray", "av"))
    return f"codecfleet {_version('codecfleet')} (Python {python_version()}, {engines})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def parse(arguments: Sequence[str]) -> Request | int:
    """Return what ``arguments`` ask for; an exit code when that is done already (``--help``, ``--version``).

    Raises:
        UsageError: they make no sense.
        ReaderGone: the help text's reader closed the pipe.
    """
    try:
        request = app(list(arguments), prog_name="codecfleet", standalone_mode=False)
    except typer.TyperException as error:
        raise _usage_error(error) from None
    except SystemExit:
        raise ReaderGone from None  # how typer ends when stdout is closed
    if isinstance(request, Request):
        return request
    return request if isinstance(request, int) else 0


def _usage_error(error: typer.TyperException) -> UsageError:
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "codecfleet"
    return UsageError(f"{message[:1].lower()}{message[1:]}", f"See {command} --help.")


def run(arguments: Sequence[str], services: Services | None = None) -> int:
    """Do what ``arguments`` ask for and return the exit code; never raises.

    Args:
        arguments: the command line, without the program's name.
        services: what the commands call; the real things by default.
    """
    services = services or Services()
    stdout, stderr = sys.stdout, sys.stderr
    try:
        request = parse(arguments)
        if isinstance(request, int):
            return request
        return _run(request, services, stdout, stderr)
    except ReaderGone:
        return READER_GONE_CODE
    except BaseException as error:  # noqa: BLE001 - the outermost edge: every ending becomes a line and a code
        failure = failure_of(error)
        tell(failure, error, stderr)
        return failure.exit_code


def _run(request: Request, services: Services, stdout: TextIO, stderr: TextIO) -> int:
    if isinstance(request, Transcode):
        return run_transcode(request, services, stdout, stderr)
    if isinstance(request, Watch):
        return run_watch(request, services, stdout, stderr)
    return run_question(request, services, stdout, stderr)


def main() -> int:
    """Be the program: run ``sys.argv`` and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a file name need not be valid text
    code = run(sys.argv[1:])
    end_at_once_on_signals(code)
    detach_stdout()
    return code
