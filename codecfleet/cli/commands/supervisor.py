"""The commands about a fleet's supervisor: ``status``, ``top``, ``drain``, ``cordon``, ``uncordon``."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO, TypeAlias

import typer

from ...console.output import Output, ReaderGone, is_terminal, json_line
from ...console.quit_key import QuitKey
from ...jobs.request.values import parse_path
from ..interrupts import Interrupts
from ..params import JSON, flag, named, usual_address_of
from ..question import Question, safe_line
from ..services import Answer, Commands, Services

if TYPE_CHECKING:
    from ...cluster.operate.desk import Seen

    Show: TypeAlias = Callable[[Seen], None]

_TOP: Final = "\x1b[H"  # moves to the first line of the screen
# These two codes clear the line or the screen from the cursor on. Each line is cleared just before it is written; the
# screen would flicker if all of it were cleared.
_CLEAR_LINE: Final = "\x1b[K"
_CLEAR_REST: Final = "\x1b[J"
_CONNECTING: Final = "connecting to the fleet ..."
WATCH_EVERY_S: Final = 1.0
PRINTED_COLUMNS: Final = 110  # the width of ``top`` if there is no terminal

_Node = Annotated[
    str, typer.Argument(metavar="NODE", help="Host name, Ray id, or the beginning of a Ray id; status lists them.")
]
_CLUSTER: Final = (
    "The Ray cluster: host:port, or auto for the one on this machine. Default: the environment's RAY_ADDRESS or the "
    "configuration's"
)
_ADDRESS = usual_address_of(f"{_CLUSTER}.")
FLEET_ADDRESS = usual_address_of(f"{_CLUSTER}, else this machine's warm fleet.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Shows the status every second: for ``status --watch`` and, on a terminal, for ``top``."""

    address: str | None
    as_json: bool

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Show the status until the user stops it; return exit code 0."""
        del stderr
        output, on_screen = Output(stdout), is_terminal(stdout) and not self.as_json
        if on_screen:
            output.line(_TOP + _CLEAR_REST + _CONNECTING)
        show = _always(_show_screen(output) if on_screen else _shower(output, as_json=self.as_json))
        with contextlib.ExitStack() as terminal:
            key = terminal.enter_context(QuitKey()) if on_screen else None

            def exit_now(code: int) -> None:
                terminal.close()
                services.exit_now(code)

            async def watch(interrupts: Interrupts) -> None:
                cancel = interrupts.attach_to_task()
                if key is not None:
                    key.attach(cancel)
                await services.watch(self.address, show, WATCH_EVERY_S)

            until_stopped(exit_now, watch)
        return 0


def until_stopped(exit_now: Callable[[int], None], work: Callable[[Interrupts], Coroutine[None, None, None]]) -> None:
    """Run endless work until a signal or a key stops it. The work must register itself with the interrupts."""
    with Interrupts(exit_now) as interrupts:
        with contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt):
            asyncio.run(work(interrupts))
        interrupts.disarm()  # the connection is closed by now


@dataclass(frozen=True, slots=True, kw_only=True)
class Top:
    """A parsed ``top``: shows the status on one screen, every second; without a terminal, prints the status once."""

    address: str | None

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Show the screen until the user stops it, or only once; return the exit code."""
        once = Question(ask=lambda asked, _progress: _printed(asked.status(self.address)), as_json=False)
        request = Watch(address=self.address, as_json=False) if is_terminal(stdout) else once
        return request.run(services, stdout, stderr)


def _status(
    *,
    address: str | None = FLEET_ADDRESS,
    as_json: bool = JSON,
    watch: bool = flag(
        "--watch", "Refresh every second until Ctrl-C: like top on a terminal; one line per second with --json."
    ),
    events: str | None = named(
        "--events", "FILE", "Write the supervisor's recent events to this file, to replay its decisions."
    ),
) -> Question | Watch:
    if events is not None:
        return Question(ask=lambda services, _progress: services.keep_events(address, events), as_json=as_json)
    if watch:
        return Watch(address=address, as_json=as_json)
    return Question(ask=lambda services, _progress: status_answer(services.status(address)), as_json=as_json)


def _top(*, address: str | None = FLEET_ADDRESS) -> Top:
    return Top(address=address)


def _order(order: str) -> Callable[..., Question]:
    def command(node: _Node, *, address: str | None = _ADDRESS, as_json: bool = JSON) -> Question:
        name = parse_path("NODE", node)
        return Question(ask=lambda services, _progress: services.order(address, order, name), as_json=as_json)

    return command


COMMANDS: Final[Commands] = {
    "status": (_status, ["status", "status --json --address head:6379"]),
    "top": (_top, ["top", "top --address head:6379"]),
    **{
        order: (_order(order), [f"{order} gpu-node-3 --address head:6379"]) for order in ("drain", "cordon", "uncordon")
    },
}


def status_answer(seen: "Seen") -> Answer:
    """Return a fleet's status as the answer of ``status``."""
    from ...cluster.supervisor.status import NO_SUPERVISOR, STATUS_SCHEMA, status_lines
    from ...errors import FleetUnavailable

    document: dict[str, Any] = {"schema": STATUS_SCHEMA, "supervisor": None}
    if seen is None:
        return Answer([NO_SUPERVISOR], document)
    if isinstance(seen, FleetUnavailable):
        return Answer([str(seen)], document | {"trouble": seen.message})
    return Answer(list(status_lines(seen)), document | {"supervisor": seen.to_json()})


def _printed(seen: "Seen") -> Answer:
    return Answer(_screen(seen, PRINTED_COLUMNS, None, colour=False), {})


def _screen(seen: "Seen", width: int, height: int | None, *, colour: bool) -> list[str]:
    from ...cluster.supervisor.status import Status
    from ...console.top import screen_lines

    if isinstance(seen, Status):
        return screen_lines(seen, width=width, height=height, colour=colour)
    return [safe_line(line) for line in status_answer(seen).lines]


def _always(show: "Show") -> "Show":
    """Return a function that calls ``show`` and shows errors instead of raising them."""

    def shown(seen: "Seen") -> None:
        try:
            show(seen)
        except ReaderGone:
            raise
        except Exception as error:  # noqa: BLE001 - a status may contain anything; the next one may be valid
            from ...cluster.operate.desk import as_unavailable

            show(as_unavailable(error))

    return shown


def _show_screen(output: Output) -> "Show":
    def show(seen: "Seen") -> None:
        width, height = get_terminal_size()
        # One line less, because the cursor goes to the line below the text.
        *lines, last = _screen(seen, width, max(1, height - 1), colour=True)
        output.line(_TOP + "\n".join([*(_CLEAR_LINE + line for line in lines), _CLEAR_REST + last]))

    return show


def _shower(output: Output, *, as_json: bool) -> "Show":
    def show(seen: "Seen") -> None:
        answer = status_answer(seen)
        if as_json:
            output.line(json_line(answer.document))
            return
        for line in answer.lines:
            output.line(safe_line(line))
        output.line("")

    return show
