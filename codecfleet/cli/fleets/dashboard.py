"""The command ``dashboard``: a running fleet on a web page."""

import asyncio
import contextlib
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from ...console.output import Output
from ...jobs.request.values import parse_count
from ..interrupts import Interrupts
from ..params import flag, named, usual_address_of
from ..services import Commands, Services

if TYPE_CHECKING:
    import socket

    from ...dashboard.answers import Gate

HOST: Final = "127.0.0.1"
PORT: Final = 8266
_PORT_MAX: Final = 65535

_Address = Annotated[
    str | None,
    usual_address_of(
        "The Ray cluster: host:port, or auto for the one on this machine. Default: the environment's RAY_ADDRESS "
        "or the configuration's, else this machine's warm fleet.",
    ),
]
_Host = Annotated[
    str | None,
    named(
        "--host", "ADDRESS", f"Listen on this address. Any address but loopback asks for the token. Default: {HOST}."
    ),
]
_Port = Annotated[
    str | None,
    typer.Option("--port", metavar="N", help=f"Listen on this port; 0 picks a free one. Default: {PORT}."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """``dashboard``: serves the page until it is interrupted."""

    address: str | None
    host: str
    port: int
    asks_token: bool

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Serve it until the user stops it, with exit code 0.

        Raises:
            CodecfleetError: it cannot listen, or the fleet cannot be reached.
            ReaderGone: stdout was closed.
        """
        from ...cluster.ray.token import read_token
        from ...dashboard.server import gate_for, listening_socket

        del stderr
        with listening_socket(self.host, self.port) as bound:
            gate = gate_for(bound, read_token(os.environ), asks_token=self.asks_token)
            with Interrupts(services.exit_now) as interrupts:
                with contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt):
                    asyncio.run(self._serve(services, bound, gate, interrupts, Output(stdout)))
                interrupts.disarm()  # the connection is closed already
        return 0

    async def _serve(
        self, services: Services, bound: "socket.socket", gate: "Gate", interrupts: Interrupts, output: Output
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
    address: _Address = None,
    host: _Host = None,
    port: _Port = None,
    ask_token: Annotated[
        bool,
        flag("--ask-token", "Ask for the token on loopback too: behind a proxy, or on a machine with other users."),
    ] = False,
) -> Dashboard:
    number = PORT if port is None else parse_count("--port", port, least=0, most=_PORT_MAX)
    return Dashboard(address=address, host=HOST if host is None else host, port=number, asks_token=ask_token)


COMMANDS: Final[Commands] = {"dashboard": (_dashboard, ["dashboard", "dashboard --address head:6379 --port 9000"])}
