"""The ``codecfleet`` program.

typer only turns the command line into a request. The request runs outside typer, which would rewrite output, errors or
exit codes. The module of a command is imported only when the command is named; ``--version`` does not even import
typer.
"""

import atexit
import gc
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO, cast

from ..console.output import ReaderGone
from ..console.streams import drop_unwritten, install_streams
from ..errors import UsageError
from .failures import PAGE, READER_GONE_CODE, failure_of, print_failure
from .interrupts import FastEnd, end_at_once_on_signals
from .sandbox import confine_command
from .services import CommandRequest, Commands, Services

if TYPE_CHECKING:
    import typer

    from ..jobs.request.config import Settings


SUMMARIES: Final = {
    "transcode": "Encode INPUT into OUTPUT on many workers at once, and prove that nothing is missing.",
    "batch": "Encode many files: folders, lists, patterns or URL prefixes. Run again to continue a stopped batch.",
    "resume": "Continue a job that was killed, interrupted or failed, from its finished segments.",
    "jobs": "List, show, cancel and retry submitted jobs, in a queue or on a cluster; find and remove unfinished work.",
    "probe": "Show what is in a file: tracks, timeline, random access points, colour, and oddities.",
    "plan": "Show the segments, what would be lost or changed, and where the job would run and why. Runs nothing.",
    "verify": "Compare OUTPUT with INPUT: frames, times, order, picture similarity, sound, metadata.",
    "ladder": "Write several renditions of INPUT into the folder DIR, with HLS and DASH, for players.",
    "stills": "Write thumbnails of INPUT into the folder DIR, at given times or scene changes; single or in sheets.",
    "presets": "List the presets for --preset, built-in and your own, or show one of them.",
    "config": "Show the options that the configuration file and the environment set for all jobs.",
    "docs": "Show a page of the installed documentation, or list the pages.",
    "infer": "Run a neural network over every frame of INPUT on DLAs, and write its output tensors in order.",
    "submit": "Put a command into this machine's queue, or run it on a Ray cluster. The job outlives this program.",
    "driver": "Run the jobs of a queue on this machine, until Ctrl-C. `submit` starts a driver in the background.",
    "tenants": "List a queue's tenants; give the queue a policy; make and revoke the tenants' tokens.",
    "usage": "Show what tenants or jobs of a queue have used, and the cost.",
    "up": "Start a warm fleet: workers that stay up on this machine, so that later commands start at once.",
    "down": "Stop this user's warm fleets. Jobs that run on a warm fleet start their own workers and continue.",
    "node": "Start and stop this machine as a node of a Ray cluster; list and drain the cluster's nodes.",
    "doctor": "Show what a machine can do, what is wrong, and how to fix it. Exit code 1: something needs fixing.",
    "nodes": "List the machines with their cores, memory, driver and devices; identical machines share a row.",
    "devices": "List the devices with their engines, memory and utilization.",
    "status": "Show a cluster's workers, jobs, queue, quarantine, speed and recent events.",
    "top": "Show a running fleet on one screen, updated every second, with problems first.",
    "dashboard": "Serve a read-only web page about a running fleet: jobs, a timeline, devices, health.",
    "drain": "Give NODE no new work, and stop its workers when they finish.",
    "cordon": "Give NODE no new work; its workers stay until they have been idle for a while.",
    "uncordon": "Give NODE work again after cordon or drain.",
}
"""A summary of each command; the other help texts are in the command's own module."""
GROUPS: Final = {
    "node": {
        "start": "Start this machine as a node of a Ray cluster, with the devices that its probes find.",
        "stop": "Stop the nodes that `codecfleet node start` started on this machine, when their work is done.",
        "list": "List the cluster's machines, as `codecfleet nodes` does.",
        "drain": "Give NODE no new work, as `codecfleet drain` does.",
        "env": "Print environment variables for a `ray start` that you run yourself, such as in a pod.",
    }
}
"""A summary of each command in a group."""
MODULES: Final = {
    "commands.transcode": ("transcode", "resume"),
    "commands.batch": ("batch",),
    "commands.jobs": ("jobs",),
    "commands.driver": ("driver",),
    "commands.tenants": ("tenants", "usage"),
    "files": ("probe", "verify"),
    "plan": ("plan",),
    "commands.folders": ("ladder", "stills"),
    "commands.settings": ("presets", "config", "docs"),
    "commands.infer": ("infer",),
    "commands.submit": ("submit",),
    "commands.fleets": ("up", "down", "dashboard"),
    "commands.node": ("node",),
    "commands.cluster": ("doctor", "nodes", "devices"),
    "commands.supervisor": ("status", "top", "drain", "cordon", "uncordon"),
}
"""The commands that each module declares."""


def _commands(name: str) -> Commands:
    (module,) = (module for module, names in MODULES.items() if name in names)
    commands: Commands = import_module(f".{module}", __package__).COMMANDS
    return commands


def program(named: Collection[str] = tuple(SUMMARIES)) -> "typer.Typer":
    """Return the program. Only the commands in ``named`` are loaded; the others only appear in the help."""
    import typer

    app = typer.Typer(
        name="codecfleet",
        add_completion=False,
        no_args_is_help=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Exit codes: 0 done; 1 verify found a difference, or doctor found a problem; 2 usage; 3 input; "
        "4 request; 5 work failed; 130 interrupted. More: codecfleet docs cli",
    )

    @app.callback(invoke_without_command=True)
    def root(
        context: typer.Context,
        *,
        show_version: Annotated[bool, typer.Option("--version", metavar="", help="Print versions and exit.")] = False,
    ) -> None:
        """Encode video segments in parallel and join them into one exact file, with proof."""
        if show_version:
            _print_version()
            raise typer.Exit
        if context.invoked_subcommand is None:
            *others, last = SUMMARIES
            raise UsageError(f"a command is missing: {', '.join(others)} or {last}", "See codecfleet --help.")

    for name, summary in SUMMARIES.items():
        if name in GROUPS and name in named:
            group = typer.Typer(rich_markup_mode="rich")
            for each, its_summary in GROUPS[name].items():
                _add(group, each, its_summary, _commands(name)[each])
            app.add_typer(group, name=name, help=summary)
        else:
            _add(app, name, summary, _commands(name)[name] if name in named else (root, ()))
    return app


def _add(app: "typer.Typer", name: str, summary: str, command: "tuple[Callable[..., object], Sequence[str]]") -> None:
    function, examples = command
    shown = [f"[bold]Example{'s' * (len(examples) > 1)}[/bold]"]
    shown += [each if each.startswith("(") else f"codecfleet {each}" for each in examples]
    if name not in ("docs", *GROUPS):
        shown.append("To read a page that is named above, such as docs cli, type: codecfleet docs cli.")
    # Everything after the name of a submitted command belongs to that command.
    settings = {"allow_interspersed_args": name != "submit"}
    app.command(name, help=summary, epilog="\n\n".join(shown), context_settings=settings)(function)


def _print_version() -> None:
    """Print the versions of codecfleet and of the packages that determine an output's bytes."""
    from platform import python_version

    from ..cluster.version import installed

    ours, ray, av = (f"{package} {installed(package) or 'unknown'}" for package in ("codecfleet", "ray", "av"))
    print(f"{ours} (Python {python_version()}, {ray}, {av})")  # noqa: T201 - the versions are the output


def parse(arguments: Sequence[str]) -> CommandRequest | int:
    """Return the request, or the exit code if nothing is left to do (``--help``, ``--version``).

    Raises UsageError: the arguments are invalid; ReaderGone: stdout was closed while the help was printed.
    """
    if list(arguments) == ["--version"]:
        _print_version()
        return 0
    import typer

    first = next((each for each in arguments if not each.startswith("-")), "")
    command = _command(first if first in SUMMARIES else "")
    try:
        request = command(list(arguments), prog_name="codecfleet", standalone_mode=False)
    except typer.TyperException as error:
        raise _usage_error(error, arguments) from None
    except SystemExit:
        raise ReaderGone from None  # typer raises this if stdout is closed
    return cast("CommandRequest | int", request or 0)


@cache
def _command(named: str) -> Any:  # noqa: ANN401 - typer has its own types of commands and parameters
    """Return the program with only the command ``named`` loaded, or with none for ""."""
    import typer

    command = typer.main.get_command(program([named]))
    _name_pages(command)
    return command


def _name_pages(command: Any) -> None:  # noqa: ANN401 - typer has its own types of commands and parameters
    """Turn names of files in docs/ into arguments of the command ``docs``, which needs no checkout."""
    for parameter in command.params:
        if text := getattr(parameter, "help", None):
            parameter.help = PAGE.sub(r"docs \1", text)
    for each in getattr(command, "commands", {}).values():
        _name_pages(each)


def _usage_error(error: "typer.TyperException", arguments: Sequence[str]) -> UsageError:
    message = " ".join(error.format_message().split()).rstrip(".")
    context: typer.Context | None = getattr(error, "ctx", None)
    step = f"See {'codecfleet' if context is None else context.command_path} --help."
    if context is not None and message.startswith("No such option"):
        return _unknown_option(error, context, arguments, step)
    return UsageError(f"{message[:1].lower()}{message[1:]}", step)


def _unknown_option(
    error: "typer.TyperException", context: "typer.Context", arguments: Sequence[str], otherwise: str
) -> UsageError:
    """Return the error about an unknown option; ``otherwise`` is the advice if no option has a similar name."""
    from ..jobs.request.spellings import MISSING, near_to, option_for

    flags = {flag for parameter in context.command.params for flag in parameter.opts}
    # typer would read -c:v as -c, and -crf as -c -r -f.
    theirs, ours = option_for(arguments, flags)
    if theirs:
        return UsageError(f"no such option: {theirs}", f"Write {ours} instead.")
    name = str(getattr(error, "option_name", ""))
    near = near_to(name, flags)
    step = f"Did you mean {' or '.join(near)}?" if near else MISSING.get(name, otherwise)
    return UsageError(f"no such option: {name}", step)


def run(arguments: Sequence[str], services: Services | None = None) -> int:
    """Run a command line, given without the program's name, and return the exit code; never raises.

    ``services`` are the calls that commands make; by default, the real calls.
    """
    stdout, stderr = sys.stdout, sys.stderr
    with ExitStack() as configured:
        try:
            request = parse(arguments)
            if isinstance(request, int):
                return request
            services = services or Services()
            settings = configured.enter_context(_configured())
            services.confine(request, settings.sandbox)
            configured.enter_context(_logged(settings.log, stderr))
            return request.run(services, stdout, stderr)
        except ReaderGone:
            return READER_GONE_CODE
        except BaseException as error:  # noqa: BLE001 - outermost level: every error becomes a line and an exit code
            return print_failure(failure_of(error), error, stderr)


@contextmanager
def _configured() -> "Iterator[Settings]":
    """Put the configuration's variables into the environment while a command runs; yield the settings.

    Raises UsageError if the configuration is invalid.
    """
    from ..cluster.ray.ray_environment import environment
    from ..jobs.request.config import load_config

    config = load_config()
    with environment(config.variables()):
        yield config.settings


def _logged(style: str | None, stderr: TextIO) -> AbstractContextManager[None]:
    if style in (None, "off"):
        return nullcontext()
    from ..cluster.logs.entry import LogStyle
    from ..cluster.logs.writing import logged_to

    return logged_to(stderr, LogStyle(style), "command")


def main() -> int:
    """Run ``sys.argv`` and return the exit code."""
    gc.set_threshold(10_000)  # imports create many lasting objects; garbage collection would slow the start by 5 %
    # Without this, NumPy's threads would spin for 0.06 s, in this process and in each child process.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    install_streams()
    ending = FastEnd()
    atexit.register(ending)  # exit functions run in reverse order, so this one runs last
    code = run(sys.argv[1:], Services(confine=confine_command))
    end_at_once_on_signals(code)
    drop_unwritten()
    ending.exit_code = code
    return code
