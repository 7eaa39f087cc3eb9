"""Calls of one process by the other: what is asked over a channel, and its answers."""

import asyncio
import itertools
import pickle
from collections.abc import Callable, Coroutine
from typing import Any, Final

from ...errors import CodecfleetError, WorkError
from ..worker.outcome import Buffer, Outcome, failed, packed, unpacked
from .wire import MessageKind, WireChannel, WireMessage

_REPORT: Final = "Please report it, with the input and the options."


class Calls:
    """What was asked of the other process, and is not answered yet. Used from one event loop."""

    def __init__(self, channel: WireChannel) -> None:
        self._channel = channel
        self._numbers = itertools.count(1)
        self._awaited: dict[int, asyncio.Future[Outcome[Any]]] = {}
        self._over: Exception | None = None

    async def ask(self, method: str, *arguments: object) -> Outcome[Any]:
        """Call a method there; see ``send``."""
        return await self.send(MessageKind.ASK, pickle.dumps((method, arguments)))

    async def send(self, kind: MessageKind, *parts: Buffer) -> Outcome[Any]:
        """Send a call and return its outcome; it is cancelled there if it is cancelled here.

        Raises:
            Exception: what ``end`` was given, since the other process is gone.
        """
        if self._over is not None:
            raise self._over
        number = next(self._numbers)
        answer: asyncio.Future[Outcome[Any]] = asyncio.get_running_loop().create_future()
        self._awaited[number] = answer
        self._channel.send(kind, number, *parts)
        try:
            return await answer
        except asyncio.CancelledError:
            self._channel.send(MessageKind.CANCEL, number)
            raise
        finally:
            del self._awaited[number]

    def take(self, message: WireMessage) -> None:
        """Take an answer; large arrays in it are read-only."""
        content, *buffers = message.parts
        if (answer := self._awaited.get(message.number)) is not None and not answer.done():
            answer.set_result(unpacked(content, [memoryview(buffer).toreadonly() for buffer in buffers]))

    def end(self, why: Exception) -> None:
        """Have every call end with ``why``: nothing is answered any more."""
        self._over = why
        for answer in self._awaited.values():
            if not answer.done():
                answer.set_exception(why)


async def outcome_of(call: Callable[[], Coroutine[Any, Any, Any]], whose: str) -> Outcome[Any]:
    """Return how a call ended; a defect of the process ``whose`` it is becomes an error of work."""
    try:
        found = await call()
    except CodecfleetError as error:
        return failed(error)
    except Exception as error:  # noqa: BLE001 - the edge: a defect of ours is an answer too
        return failed(WorkError(f"{whose} failed with {type(error).__name__}: {error}", _REPORT))
    return found if isinstance(found, Outcome) else Outcome(found)


def send_answer(channel: WireChannel, number: int, outcome: Outcome[Any]) -> None:
    """Answer the call of this number; large buffers are sent from where they lie."""
    buffers: list[pickle.PickleBuffer] = []
    content = packed(outcome, buffers.append)
    channel.send(MessageKind.ANSWER, number, content, *buffers)
