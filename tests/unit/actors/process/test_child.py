"""Calls between a process and one that it started, and the end of either."""

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codecfleet.actors.process.channel import Channel
from codecfleet.actors.process.child import Child, ChildDied
from codecfleet.actors.process.messages import beside, portable
from codecfleet.actors.process.process import StartedProcess, start_program
from codecfleet.errors import CodecfleetError, InputError, WorkError

sys.path.append(str(Path(__file__).parent))  # requests are pickled by module name, which must be the program's

from echo_program import Echo, EchoServer, Hang, Headcount, Hide, LeaveOrphan, Note, Raise, Said

PATIENCE_S = 20.0
LARGE_BYTES = 3 << 20
"""More than a socket's buffer holds."""


class Heard:
    """Serves the parent's side, and collects the words that the child sends without being asked."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[str] = asyncio.Queue()

    async def say(self, word: str) -> None:
        """Collect a word."""
        self.said.put_nowait(word)


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Channel[EchoServer], Heard]]:
    """Yield a channel to a server in this process, and the object that hears the server."""
    ours, theirs = socket.socketpair()
    heard = Heard()
    here: Channel[EchoServer] = Channel(ours, heard)
    there: Channel[Heard] = Channel(theirs, me="the server")
    there.serves = EchoServer(there)
    running = [asyncio.create_task(each.run()) for each in (here, there)]
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield here, heard
    finally:
        here.hang_up()
        await running[0]
        here.close()
        await running[1]
        there.close()


async def test_a_call_returns_what_its_request_is_answered_with() -> None:
    """Several calls at a time, small and large; arrays and bytes arrive uncopied and read-only."""
    async with pair() as (channel, _):
        picture = np.arange(LARGE_BYTES, dtype=np.uint8)
        word, found, raw = await asyncio.gather(
            channel.call(Echo("word")), channel.call(Echo(picture)), channel.call(Echo(beside(picture.tobytes())))
        )
        assert word == "word"
        assert isinstance(found, np.ndarray)
        assert np.array_equal(found, picture)
        assert not found.flags.writeable
        assert bytes(raw) == picture.tobytes()  # type: ignore[arg-type]


async def test_errors_are_raised_where_the_call_was_made() -> None:
    """Our errors arrive unchanged; a defect, or a result that cannot be pickled, becomes a ``WorkError``.

    After either, the next call is served.
    """
    async with pair() as (channel, _):
        with pytest.raises(InputError, match="no picture"):
            await channel.call(Raise(InputError("no picture", "Look at it.")))
        with pytest.raises(WorkError, match="the server failed with KeyError"):
            await channel.call(Raise(KeyError("a")))
        with pytest.raises(WorkError, match="the result does not pickle"):
            await channel.call(Hide(unpickles=True))
        with pytest.raises(WorkError, match="the result does not unpickle: ValueError"):
            await channel.call(Hide(unpickles=False))
        assert await channel.call(Echo(1)) == 1


async def test_a_cancelled_call_is_cancelled_there() -> None:
    """A cancelled call gets no answer."""
    async with pair() as (channel, heard):
        hanging = asyncio.create_task(channel.call(Hang()))
        assert await heard.said.get() == "hangs"
        hanging.cancel()
        assert await heard.said.get() == "cancelled"
        with pytest.raises(asyncio.CancelledError):
            await hanging


async def test_what_is_told_comes_before_what_is_asked_later() -> None:
    """Requests begin in the order in which they were sent."""
    async with pair() as (channel, _):
        for word in "abc":
            channel.tell(Note(word))
        assert await channel.call(Headcount()) == ("a", "b", "c")


async def test_an_error_in_what_was_told_ends_the_channel() -> None:
    """Nobody waits for the call, so only the channel's end reports the error."""
    ours, theirs = socket.socketpair()
    here: Channel[EchoServer] = Channel(ours)
    there: Channel[Heard] = Channel(theirs, object())
    here.tell(Note("a"))
    running = asyncio.create_task(here.run())
    async with asyncio.timeout(PATIENCE_S):
        assert (await there.run()).startswith("Note failed with AttributeError")
    there.close()
    assert await running == ""
    here.close()


@pytest.mark.parametrize(
    "sent", [b"\0\0\0\1\xc1", b"\0\0\0\x0b\x93\xa5reply\x01\x91\x01", b"\0\0\0\x0a\x93\xa4call\x01\x91\x01x"]
)
async def test_what_cannot_be_read_is_a_defect_and_half_a_message_is_an_end(sent: bytes) -> None:
    """Unreadable data is a defect; half a message is the end of the process."""
    ours, theirs = socket.socketpair()
    channel: Channel[object] = Channel(ours)
    with theirs:
        theirs.sendall(sent)
    trouble = await channel.run()
    assert trouble.startswith("its message cannot be read: ") is (b"reply" not in sent)
    channel.tell(Said("too late"))  # type: ignore[arg-type]
    channel.close()


class Stubborn(CodecfleetError):
    """An error that does not pickle."""

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle")


def test_an_error_that_does_not_pickle_has_a_substitute() -> None:
    """The substitute has the error's message and next step."""
    found = portable(Stubborn("it sticks", "Pull."))
    assert (type(found), found.message, found.next_step) == (WorkError, "Stubborn: it sticks", "Pull.")


def start_echo(*settings: object, outlives: bool = False) -> StartedProcess:
    """Start the program that echoes."""
    return start_program("echo_program", *settings, outlives=outlives)


async def test_a_program_gets_its_settings_and_serves() -> None:
    """A real process answers calls and sends words of its own, and its end is waited for."""
    heard = Heard()
    child: Child[EchoServer] = Child(start_echo("hello"), heard)
    async with asyncio.timeout(PATIENCE_S):
        assert await heard.said.get() == "hello"
        assert await child.call(Echo(os.getpid())) == os.getpid()
        await child.end()
    assert await child.death() == "it was killed by SIGKILL"
    with pytest.raises(ChildDied, match="SIGKILL"):
        await child.call(Echo(1))


async def test_a_death_is_seen_at_once() -> None:
    """A death is seen even while another process keeps the dead one's end of the channel open.

    Unanswered calls raise an error that says how the process ended.
    """
    heard = Heard()
    child: Child[EchoServer] = Child(start_echo("hello"), heard)
    async with asyncio.timeout(PATIENCE_S):
        orphan = await child.call(LeaveOrphan())
        hanging = asyncio.create_task(child.call(Hang()))
        while await heard.said.get() != "hangs":
            pass
        child.kill()
        assert await child.death() == "it was killed by SIGKILL"
        os.kill(orphan, signal.SIGKILL)  # the orphan has kept the channel open until now
        with pytest.raises(ChildDied, match="SIGKILL"):
            await hanging


async def test_last_words() -> None:
    """The death of a failed program has the program's error; that of a killed one has the reason for the kill."""
    child: Child[EchoServer] = Child(start_echo())
    async with asyncio.timeout(PATIENCE_S):
        assert (await child.death()).startswith("ValueError: not enough values")
        silent: Child[EchoServer] = Child(start_echo("hello"))
        silent.kill("it said nothing for 3 s")
        assert await silent.death() == "it said nothing for 3 s"


@pytest.mark.parametrize("outlives", [False, True])
async def test_a_child_ends_with_the_thread_that_started_it(*, outlives: bool) -> None:
    """The kernel ends the child with the thread; a child started with ``outlives`` goes on."""
    is_up, heard, started = threading.Event(), Heard(), list[StartedProcess]()

    def start() -> None:
        started.append(start_echo("hello", outlives=outlives))
        is_up.wait(PATIENCE_S)

    thread = threading.Thread(target=start)
    thread.start()
    async with asyncio.timeout(PATIENCE_S):
        while not started:  # noqa: ASYNC110 - a thread sends no event
            await asyncio.sleep(0.01)
        child: Child[EchoServer] = Child(started[0], heard)
        assert await heard.said.get() == "hello"
        is_up.set()
        if outlives:
            await asyncio.to_thread(thread.join)
            assert await child.call(Echo(1)) == 1
            await child.end()
        assert await child.death() == "it was killed by SIGKILL"


async def test_another_build_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child of another build would not understand this process."""
    monkeypatch.setattr("codecfleet.actors.process.process.BUILD", [0, 0, 0])
    child: Child[EchoServer] = Child(start_echo("hello"))
    async with asyncio.timeout(PATIENCE_S):
        assert await child.death() == "codecfleet was replaced while this process ran: start it again"
