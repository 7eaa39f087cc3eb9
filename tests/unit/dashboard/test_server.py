"""The socket of the dashboard: what is sent over it, and who may listen on which address."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import pytest

from codecfleet.dashboard.answers import Gate
from codecfleet.dashboard.looking import Looking
from codecfleet.dashboard.server import (
    CONNECTIONS_MAX,
    HEAD_MAX,
    LINGER_MAX,
    SEND_S,
    gate_for,
    listening_socket,
    serve,
    url_of,
)
from codecfleet.errors import FleetUnavailable, UsageError

from .hostile_fleet import FakeFleet, hostile_status

TOKEN = "s3cret-token"  # noqa: S105 - a value of this test


class LookingAtMuch(Looking):
    """The answer is larger than what a socket holds."""

    async def data(self) -> bytes:
        """Return 32 MiB."""
        return bytes(1 << 25)


@asynccontextmanager
async def served(gate: Gate | None = None, kind: type[Looking] = Looking, send_s: float = SEND_S) -> AsyncIterator[int]:
    """Serve a hostile fleet on a free port, and yield the port."""
    bound = listening_socket("127.0.0.1", 0)
    ready = asyncio.Event()
    looking = kind(FakeFleet(hostile_status()).desk)
    running = asyncio.create_task(serve(bound, gate or Gate(), looking, ready.set, send_s=send_s))
    try:
        await ready.wait()
        yield bound.getsockname()[1]
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        bound.close()


async def sent(port: int, head: str, host: str = "localhost") -> tuple[int, dict[str, str], bytes]:
    """Send the head of a request, and return the answer's status, headers and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{head}\r\nHost: {host}:{port}\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    top, _, body = answer.partition(b"\r\n\r\n")
    line, *fields = top.decode().split("\r\n")
    return int(line.split()[1]), dict(each.split(": ", 1) for each in fields), body


async def test_page_and_data() -> None:
    """Page and data arrive whole, HEAD gets only GET's headers, and clients that hung up do no harm."""
    async with served() as port:
        for beginning in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(beginning)
            writer.close()
        status, headers, page = await sent(port, "GET / HTTP/1.1")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert int(headers["Content-Length"]) == len(page)
        status, headers, body = await sent(port, "HEAD / HTTP/1.1")
        assert (status, body, int(headers["Content-Length"])) == (200, b"", len(page))
        status, headers, body = await sent(port, "GET /fleet.json HTTP/1.0")
        assert (status, headers["Content-Type"], headers["Connection"]) == (200, "application/json", "close")
        assert json.loads(body)["document"]["fleet"]["sums"]["jobs"] == 60


async def test_the_token_is_asked_for() -> None:
    """Without the token the status is 401, with it 200; the token is not in the answer."""
    async with served(Gate(TOKEN)) as port:
        assert (await sent(port, "GET /fleet.json HTTP/1.1"))[0] == 401
        right = await sent(port, f"GET /fleet.json HTTP/1.1\r\nAuthorization: Bearer {TOKEN}", "fleet.example")
        assert right[0] == 200
        assert TOKEN.encode() not in right[2]


MUCH = "x" * (LINGER_MAX // 2)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (f"GET / HTTP/1.1\r\nX: {'x' * HEAD_MAX}", 431),
        (f"GET / HTTP/1.1\r\nX: {MUCH}", 431),
        (f"nonsense\r\n\r\n{MUCH}", 400),
        (f"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n{MUCH}", 405),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
    ],
)
async def test_a_refusal_arrives_however_much_was_sent(head: str, status: int) -> None:
    """Unread bytes of a request do not reset the connection before the client has read the answer."""
    async with served() as port:
        assert (await sent(port, head))[0] == status


async def test_who_sends_without_end_is_cut_off() -> None:
    """How much the server reads and discards after an answer is limited."""
    async with served() as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)

        async def send_on() -> None:
            while True:
                writer.write(MUCH.encode())
                await writer.drain()

        with pytest.raises(ConnectionError):
            await send_on()
        writer.close()


Connection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def filled(port: int) -> list[Connection]:
    """Open as many connections as are served, and return them once the next one is refused."""
    waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
    while (answer := await sent(port, f"GET / HTTP/1.1\r\nX: {MUCH}"))[0] != 503:
        pass  # the server has not accepted all of them yet
    assert answer[1]["Retry-After"]
    return waiting


async def closed(connection: Connection) -> None:
    """Close a connection, and wait until the server has closed it too."""
    reader, writer = connection
    writer.write_eof()
    with suppress(ConnectionError):
        await reader.read()
    writer.close()


async def test_connections_are_bounded_and_those_that_are_turned_away_too() -> None:
    """Beyond ``CONNECTIONS_MAX``, further connections are refused at once, and even more are cut off."""
    async with served() as port:
        waiting = await filled(port)
        refused: list[Connection] = []
        line = b"HTTP"
        # each refused connection is read for a while, and takes one of the places for refusals
        while line.startswith(b"HTTP"):
            refused.append(await asyncio.open_connection("127.0.0.1", port))
            line = b""
            with suppress(ConnectionError):
                line = await refused[-1][0].readline()
            assert line in {b"HTTP/1.1 503 Service Unavailable\r\n", b""}
        for connection in waiting:
            await closed(connection)
        assert (await sent(port, "GET / HTTP/1.1"))[0] == 200
        for connection in refused:
            await closed(connection)


async def test_an_answer_that_is_not_taken_in_time_is_given_up() -> None:
    """If a client does not read its answer, the connection is closed and its memory released."""
    async with served(kind=LookingAtMuch, send_s=0.0) as port:
        status, headers, body = await sent(port, "GET /fleet.json HTTP/1.1")
        assert status == 200
        assert len(body) < int(headers["Content-Length"])


async def test_its_end_ends_connections() -> None:
    """A connection without a request ends with the server, and nothing is logged about it."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await sent(port, "GET / HTTP/1.1")  # this later connection was answered, so the first one is being served
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert await reader.read() == b""
    assert complaints == []
    writer.close()


async def test_a_fleet_out_of_reach_is_not_served() -> None:
    """An error of the fleet ends the server before it answers any request."""
    fleet = FakeFleet(None)
    fleet.lost = FleetUnavailable("no Ray answers at head:1", "Check.")
    with listening_socket("127.0.0.1", 0) as bound, pytest.raises(FleetUnavailable, match="no Ray answers"):
        await serve(bound, Gate(), Looking(fleet.desk), lambda: pytest.fail("it is not ready"))


def test_elsewhere_than_on_loopback_the_token_is_asked_for() -> None:
    """On loopback the token is required only on request; on other addresses always, or the server does not start."""
    with listening_socket("127.0.0.1", 0) as bound:
        assert gate_for(bound, TOKEN, asks_token=False) == Gate()
        assert gate_for(bound, TOKEN, asks_token=True) == Gate(TOKEN)
        with pytest.raises(UsageError, match="--ask-token requires the cluster's token, but there is none"):
            gate_for(bound, "", asks_token=True)
    with listening_socket("0.0.0.0", 0) as bound:  # noqa: S104 - the address to be refused
        assert gate_for(bound, TOKEN, asks_token=False) == Gate(TOKEN)
        assert url_of(bound) == f"http://{socket.gethostname()}:{bound.getsockname()[1]}/"
        with pytest.raises(UsageError, match=r"0\.0\.0\.0 can be reached from elsewhere"):
            gate_for(bound, "", asks_token=False)


def test_a_port_that_is_taken_is_one_line() -> None:
    """A port in use, and a host that is no address of this machine, are usage errors with the next step."""
    with listening_socket("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen at 127.0.0.1, port {port}: Address already in use"):
            listening_socket("127.0.0.1", port)
    with pytest.raises(UsageError, match=r"cannot listen at 192\.0\.2\.1"):
        listening_socket("192.0.2.1", 0)
    with pytest.raises(UsageError, match="is not an address"):
        listening_socket("no host at all", 0)
