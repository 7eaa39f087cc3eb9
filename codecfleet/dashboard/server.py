"""The HTTP server of the dashboard; ``answers`` decides the responses."""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from ..actors.task_owner import TaskOwner
from ..cluster.logs.actions import LogAction
from ..cluster.logs.writing import log
from ..errors import UsageError
from .answers import BadRequest, Gate, WebAnswer, answer_to, load_page, packed, parsed, refusal
from .looking import Looking

HEAD_MAX: Final = 16 * 1024  # the most bytes in the head of a request; a body is never read
HEAD_S: Final = 10.0  # how long a request may take to arrive
SEND_S: Final = 30.0  # how long a client may take to read an answer
# how many connections are served at the same time; 64 more are refused, and further ones closed at once
CONNECTIONS_MAX: Final = 64
LINGER_S: Final = 2.0
LINGER_MAX: Final = 1 << 20
"""How long, and how many bytes, the server reads and discards after an answer. If a connection were closed with unread
bytes, it would be reset, and the client might lose the answer."""
_NEXT_STEP: Final = (
    "Copy the head's ~/.ray/auth_token here, or set RAY_AUTH_TOKEN; or listen on 127.0.0.1, and forward the "
    "port with ssh -L."
)


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a bound socket that does not listen yet; port 0 picks a free port.

    Raises UsageError: the host is no address of this machine, or the port is taken or forbidden.
    """
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(family, kind)
    except OSError as error:
        message = f"--host {host} is not an address: {error.strerror}"
        raise UsageError(message, "Give an address of this machine.") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(where)
    except OSError as error:
        bound.close()
        message = f"the dashboard cannot listen at {host}, port {port}: {error.strerror}"
        raise UsageError(message, "Give another --port, or 0 for a free one, and an address of this machine.") from None
    return bound


def gate_for(bound: socket.socket, token: str, *, asks_token: bool) -> Gate:
    """Return a gate that requires the cluster's token, unless the socket is on loopback.

    ``asks_token`` requires the token on loopback too. Raises UsageError if a token is required but ``token`` is "".
    """
    address = str(bound.getsockname()[0]).partition("%")[0]
    if not asks_token and ipaddress.ip_address(address).is_loopback:
        return Gate()
    if not token:
        why = "--ask-token" if asks_token else f"{address} can be reached from elsewhere, so the dashboard"
        raise UsageError(f"{why} requires the cluster's token, but there is none", _NEXT_STEP)
    return Gate(token)


def url_of(bound: socket.socket) -> str:
    """Return the URL to open; if the host is 0.0.0.0, the URL has the name of this machine."""
    host, port, *_ = bound.getsockname()
    if ipaddress.ip_address(host.partition("%")[0]).is_unspecified:
        host = socket.gethostname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


async def serve(
    bound: socket.socket, gate: Gate, looking: Looking, on_ready: Callable[[], object], *, send_s: float = SEND_S
) -> None:
    """Serve until cancelled, then close all connections; call ``on_ready`` once requests are answered.

    A client that does not read an answer within ``send_s`` is disconnected. Raises CodecfleetError if the fleet cannot
    be reached.
    """
    async with TaskOwner() as owner:
        look = owner.start(looking.run(), "look at the fleet")
        await looking.reached.wait()
        connections = _Connections(owner, gate, looking.data, send_s)
        server = await asyncio.start_server(connections.begin, sock=bound, limit=HEAD_MAX)
        try:
            on_ready()
            await look
        finally:
            server.close()


class _Connections:
    """The open connections, including spare connections on which browsers send no request."""

    def __init__(self, owner: TaskOwner, gate: Gate, data: Callable[[], Awaitable[bytes]], send_s: float) -> None:
        self._owner = owner
        self._gate = gate
        self._data = data
        self._send_s = send_s
        self._served: set[asyncio.Task[None]] = set()
        self._refused: set[asyncio.Task[None]] = set()

    def begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection, or refuse it if there are too many. Call this in the event loop."""
        is_full = len(self._served) >= CONNECTIONS_MAX
        if is_full and len(self._refused) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        # Runs in a separate task, because Python 3.11 prints a traceback when the task of a stream is cancelled.
        serving = self._owner.start(self._serve(reader, writer, is_full=is_full), "connection")
        group = self._refused if is_full else self._served
        group.add(serving)
        serving.add_done_callback(group.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_full: bool) -> None:
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):  # the client is gone, or does not read
                answer, method = await self._answer(reader, is_full=is_full)
                writer.write(packed(answer, with_body=method != "HEAD"))
                await asyncio.wait_for(writer.drain(), self._send_s)
                writer.write_eof()
                await _read_out(reader)
                writer.close()
                await asyncio.wait_for(writer.wait_closed(), self._send_s)
        except Exception as error:  # noqa: BLE001 - a defect costs only this connection
            log(LogAction.DEFECT, f"a connection of the dashboard: {type(error).__name__}: {error}", error=error)
        finally:
            writer.transport.abort()  # without this, an unread answer would keep the connection and its memory for ever

    async def _answer(self, reader: asyncio.StreamReader, *, is_full: bool) -> tuple[WebAnswer, str]:
        if is_full:
            return refusal(HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": "5"}), ""
        try:
            request = parsed((await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S))[:-4])
        except asyncio.LimitOverrunError:
            return refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), ""
        except BadRequest:
            return refusal(HTTPStatus.BAD_REQUEST), ""
        answer = answer_to(request, self._gate, load_page())
        return replace(answer, body=await self._data()) if answer.wants_data else answer, request.method


async def _read_out(reader: asyncio.StreamReader) -> None:
    left_bytes = LINGER_MAX
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while left_bytes > 0 and (dropped := await reader.read(HEAD_MAX)):
                left_bytes -= len(dropped)
