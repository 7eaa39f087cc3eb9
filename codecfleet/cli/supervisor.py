"""The commands about a cluster's supervisor: ``status``, ``drain``, ``cordon``, ``uncordon``."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, TextIO

import typer

from ..console.output import Output, is_terminal, json_line
from ..jobs.request.values import parse_path
from .interrupts import Interrupts
from .params import JsonFlag, flag, usual_address_of
from .question import Question, safe_line
from .services import Answer, Commands, Services

_CLEAR: Final = "\x1b[H\x1b[2J"
WATCH_EVERY_S: Final = 1.0

_Node = Annotated[
    str, typer.Argument(metavar="NODE", help="Its host name, or its Ray id or the beginning of that: see status.")
]
_Address = Annotated[
    str | None,
    usual_address_of(
        "The Ray cluster: host:port, or auto for the one on this machine. Default: the environment's RAY_ADDRESS "
        "or the configuration's.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """``status --watch``: the status every second."""

    address: str | None
    as_json: bool

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Show the status until the user stops it, with exit code 0.

        Raises:
            CodecfleetError: the cluster cannot be asked.
            ReaderGone: stdout was closed.
        """
        del stderr
        show = _shower(Output(stdout), redraw=is_terminal(stdout), as_json=self.as_json)
        with Interrupts(services.exit_now) as interrupts:
            with contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt):
                asyncio.run(_watch(services, self.address, show, interrupts))
            interrupts.disarm()  # the connection is closed already
        return 0


def _status(
    *,
    address: _Address = None,
    as_json: JsonFlag = False,
    watch: Annotated[bool, flag("--watch", "Show it again every second, until Ctrl-C; with --json, a line.")] = False,
) -> Question | Watch:
    if watch:
        return Watch(address=address, as_json=as_json)
    return Question(ask=lambda services, _progress: services.status(address), as_json=as_json)


def _order(order: str) -> Callable[..., Question]:
    def command(node: _Node, *, address: _Address = None, as_json: JsonFlag = False) -> Question:
        name = parse_path("NODE", node)
        return Question(ask=lambda services, _progress: services.order(address, order, name), as_json=as_json)

    return command


COMMANDS: Final[Commands] = {
    "status": (_status, ["status --watch --address head:6379"]),
    **{
        order: (_order(order), [f"{order} gpu-node-3 --address head:6379"]) for order in ("drain", "cordon", "uncordon")
    },
}


async def _watch(
    services: Services, address: str | None, show: Callable[[Answer], None], interrupts: Interrupts
) -> None:
    watching = asyncio.ensure_future(services.watch(address, show, WATCH_EVERY_S))
    interrupts.attach(watching.cancel)
    await watching


def _shower(output: Output, *, redraw: bool, as_json: bool) -> Callable[[Answer], None]:
    def show(answer: Answer) -> None:
        if as_json:
            output.line(json_line(answer.document))
            return
        lines = [safe_line(line) for line in answer.lines]
        output.line("\n".join([_CLEAR * redraw + lines[0], *lines[1:]]))
        if not redraw:
            output.line("")

    return show
