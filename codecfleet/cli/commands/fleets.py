"""The commands ``up`` and ``down`` for this machine's warm fleet, and ``dashboard`` for any running fleet."""

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TextIO

from ...console.output import Output
from ...jobs.request.values import parse_count
from ..interrupts import Interrupts
from ..params import JSON, flag, named, valued
from ..question import Question
from ..services import Commands, Services
from .supervisor import FLEET_ADDRESS, until_stopped

if TYPE_CHECKING:
    import socket

    from ...dashboard.answers import Gate

HOST: Final = "127.0.0.1"
PORT: Final = 8266
_PORT_MAX: Final = 65535
_IDLE_MINUTES: Final = 30
_IDLE_MINUTES_MAX: Final = 60 * 24 * 365
_SLOTS_MAX: Final = 1024


def _up(
    *,
    workers: str | None = valued(
        "--workers", "N", "Most segments to encode at the same time, for all programs together. Default: one per core."
    ),
    idle_minutes: str | None = valued(
        "--idle-minutes",
        "N",
        f"End the fleet when no program has been connected for this long. Default: {_IDLE_MINUTES}.",
    ),
    as_json: bool = JSON,
) -> Question:
    slots = None if workers is None else parse_count("--workers", workers, least=1, most=_SLOTS_MAX)
    idle = str(_IDLE_MINUTES) if idle_minutes is None else idle_minutes
    minutes = parse_count("--idle-minutes", idle, least=1, most=_IDLE_MINUTES_MAX)
    return Question(ask=lambda services, _progress: services.up(slots, minutes), as_json=as_json)


def _down(*, as_json: bool = JSON) -> Question:
    return Question(ask=lambda services, _progress: services.down(), as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A parsed ``dashboard`` command, which serves the page until it is interrupted."""

    address: str | None
    host: str
    port: int
    asks_token: bool

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Serve the page until the user stops it; return exit code 0."""
        from ...cluster.ray.token import read_token
        from ...dashboard.server import gate_for, listening_socket

        del stderr
        with listening_socket(self.host, self.port) as bound:
            gate = gate_for(bound, read_token(os.environ), asks_token=self.asks_token)
            until_stopped(services.exit_now, partial(self._serve, services, bound, gate, Output(stdout)))
        return 0

    async def _serve(
        self, services: Services, bound: "socket.socket", gate: "Gate", output: Output, interrupts: Interrupts
    ) -> None:
        from ...dashboard.looking import Looking
        from ...dashboard.server import serve, url_of

        def say() -> None:
            output.line(f"dashboard  {url_of(bound)} {'(asks for the token) ' * bool(gate.token)}until Ctrl-C")

        looking = Looking(partial(services.open_desk, self.address))
        interrupts.attach_to_task()
        await serve(bound, gate, looking, say)


def _dashboard(
    *,
    address: str | None = FLEET_ADDRESS,
    host: str | None = named(
        "--host", "ADDRESS", f"Listen on this address. If it is not loopback, ask for the token. Default: {HOST}."
    ),
    port: str | None = valued("--port", "N", f"Listen on this port; 0 picks a free one. Default: {PORT}."),
    ask_token: bool = flag(
        "--ask-token", "Ask for the token on loopback too. Needed behind a proxy, or on a machine with other users."
    ),
) -> Dashboard:
    number = PORT if port is None else parse_count("--port", port, least=0, most=_PORT_MAX)
    return Dashboard(address=address, host=HOST if host is None else host, port=number, asks_token=ask_token)


COMMANDS: Final[Commands] = {
    "up": (_up, ["up", "up --idle-minutes 120"]),
    "down": (_down, ["down"]),
    "dashboard": (_dashboard, ["dashboard", "dashboard --address head:6379 --port 9000"]),
}
