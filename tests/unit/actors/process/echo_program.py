"""A program that echoes, and the requests that it serves."""

import asyncio
import subprocess
import threading
from dataclasses import dataclass
from typing import Any, Protocol

from codecfleet.actors.process.channel import Channel
from codecfleet.actors.process.messages import Request, beside
from codecfleet.actors.process.program import begin, run_to_the_end, serve_parent


class Listener(Protocol):
    """The interface that the program's parent serves to it."""

    async def say(self, word: str) -> None:
        """Hear a word."""


@dataclass(frozen=True, slots=True)
class Said(Request[Listener, None]):
    """A word that the program sends without being asked."""

    word: str

    async def serve(self, server: Listener) -> None:
        """Let the parent hear the word."""
        await server.say(self.word)


class EchoServer:
    """Echoes."""

    def __init__(self, parent: Channel[Any]) -> None:
        self.parent: Channel[Listener] = parent
        self.noted: list[str] = []


@dataclass(frozen=True, slots=True)
class Echo(Request[EchoServer, object]):
    """Asks the program to send a value back."""

    what: object

    async def serve(self, server: EchoServer) -> object:
        """Return the value."""
        del server
        return beside(self.what) if isinstance(self.what, memoryview) else self.what


@dataclass(frozen=True, slots=True)
class Raise(Request[EchoServer, None]):
    """Asks the program to raise an error."""

    error: Exception

    async def serve(self, server: EchoServer) -> None:
        """Raise the error."""
        del server
        raise self.error


class _Unreadable:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return int, ("no number",)


@dataclass(frozen=True, slots=True)
class Hide(Request[EchoServer, object]):
    """Asks for a result that cannot arrive, because it cannot be pickled, or else cannot be unpickled."""

    unpickles: bool

    async def serve(self, server: EchoServer) -> object:
        """Return such a result."""
        del server
        return threading.Lock() if self.unpickles else _Unreadable()


@dataclass(frozen=True, slots=True)
class Hang(Request[EchoServer, None]):
    """Hangs until it is cancelled."""

    async def serve(self, server: EchoServer) -> None:
        """Hang."""
        server.parent.tell(Said("hangs"))
        try:
            await asyncio.Event().wait()
        finally:
            server.parent.tell(Said("cancelled"))


@dataclass(frozen=True, slots=True)
class Note(Request[EchoServer, None]):
    """Notes a word."""

    word: str

    async def serve(self, server: EchoServer) -> None:
        """Note the word."""
        server.noted.append(self.word)


@dataclass(frozen=True, slots=True)
class Headcount(Request[EchoServer, tuple[str, ...]]):
    """Returns the words noted."""

    async def serve(self, server: EchoServer) -> tuple[str, ...]:
        """Return the words."""
        return tuple(server.noted)


@dataclass(frozen=True, slots=True)
class LeaveOrphan(Request[EchoServer, int]):
    """Starts a process that keeps the program's end of the channel open, and returns the process's id."""

    async def serve(self, server: EchoServer) -> int:
        """Start the process."""
        end = server.parent._end
        return subprocess.Popen(["sleep", "600"], pass_fds=[end.fileno()]).pid  # noqa: ASYNC220 - it returns at once


def _server(parent: Channel[Any], hello: str) -> EchoServer:
    parent.tell(Said(hello))
    return EchoServer(parent)


def main() -> None:
    """Echo for the process that started this one."""
    end, (hello,) = begin()
    run_to_the_end(serve_parent(end, lambda parent: _server(parent, hello)))
