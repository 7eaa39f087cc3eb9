"""The host's side: serves a pool to the one client at the other end of a channel."""

import asyncio
import pickle
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ...actors.device.work import Blob
from ..client.pool import Pool
from ..worker.outcome import Buffer
from ..worker.packed_work import packed_work
from .calls import outcome_of, send_answer
from .wire import MessageKind, WireChannel, WireMessage

BEAT_S: Final = 0.25
"""How often a host reports its state, which also shows that it is alive."""
CLOSING_S: Final = 5.0
"""How long closing the pool may take: a cluster may be out of reach."""


class JobState(NamedTuple):
    """What a pool says of a job without waiting: ``slots_for``, ``waits_for`` and ``cores_for``."""

    slots: int
    waits_for: str
    cores: int = 0


class PoolState(NamedTuple):
    """What a pool says without waiting."""

    slots: int = 0
    notes: tuple[str, ...] = ()
    jobs: Mapping[str, JobState] = {}


class PoolServer:
    """Serves ``pool``, which it closes at the end.

    ``lost`` says why the pool's Ray is gone, "" while it is there: then errors are not answered, as the process ends.
    """

    def __init__(self, channel: WireChannel, pool: Pool, lost: Callable[[], str]) -> None:
        self._channel = channel
        self._pool = pool
        self._lost = lost
        self._started = False
        self._jobs: set[str] = set()
        self._blobs: list[Blob] = []
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Serve until the client closes the pool or is gone; the process is to end then."""
        writing = asyncio.create_task(self._channel.write())
        beating = asyncio.create_task(self._beat())
        try:
            while (message := await self._channel.read()) is not None and message.kind is not MessageKind.CLOSE:
                self._take(message)
            async with asyncio.timeout(CLOSING_S):
                await self._close(writing)
        except TimeoutError:
            pass  # what does not end by itself ends with this process
        finally:
            for task in (beating, writing, *self._tasks.values()):
                task.cancel()

    async def _close(self, writing: asyncio.Task[None]) -> None:
        """Close the pool, and send what that answers, unless the client is gone."""
        self._started = False
        await self._pool.aclose()
        submitted = [task for task in self._tasks.values() if task.get_name() == MessageKind.SUBMIT.value]
        await asyncio.gather(*submitted, return_exceptions=True)
        flushing = asyncio.create_task(self._channel.flushed())
        await asyncio.wait({flushing, writing}, return_when=asyncio.FIRST_COMPLETED)
        flushing.cancel()

    def _take(self, message: WireMessage) -> None:
        match message.kind:
            case MessageKind.ASK:
                self._begin(message, partial(self._ask, message.parts[0]))
            case MessageKind.SUBMIT:
                self._begin(message, partial(self._submit, message.parts))
            case MessageKind.BLOB:
                self._blobs.append(Blob.of(bytes(message.parts[0])))
            case MessageKind.TELL:
                self._tell(message.parts[0])
            case MessageKind.CANCEL if message.number in self._tasks:
                self._tasks[message.number].cancel()

    def _begin(self, message: WireMessage, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        number = message.number
        task = self._tasks[number] = asyncio.create_task(self._answer(number, call), name=message.kind.value)
        task.add_done_callback(lambda _: self._tasks.pop(number))

    async def _answer(self, number: int, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        outcome = await outcome_of(call, "the fleet's host")
        if outcome.error is not None and self._lost():
            return  # whatever Ray's end looked like to this call: the client will hear of the end itself
        self._send_state()
        send_answer(self._channel, number, outcome)

    async def _ask(self, content: Buffer) -> object:
        method, arguments = pickle.loads(content)  # noqa: S301 - from our own client
        if method == "more_slots":
            self._jobs.add(arguments[0])
        answer: object = await getattr(self._pool, method)(*arguments)
        self._started = self._started or method == "start"
        return answer

    async def _submit(self, parts: Sequence[Buffer]) -> object:
        packed_, described = parts
        base, numbers = pickle.loads(described)  # noqa: S301 - from our own client
        return await self._pool.submit(packed_work(base, bytes(packed_), [self._blobs[number] for number in numbers]))

    def _tell(self, content: Buffer) -> None:
        method, arguments = pickle.loads(content)  # noqa: S301 - from our own client
        if method == "set_demand":
            self._jobs.add(arguments[0].job)
        elif method == "clear_demand":
            self._jobs.discard(arguments[0])
        getattr(self._pool, method)(*arguments)

    async def _beat(self) -> None:
        while True:
            if not self._channel.is_behind:
                self._send_state()
            await asyncio.sleep(BEAT_S)

    def _send_state(self) -> None:
        self._channel.send(MessageKind.STATE, 0, pickle.dumps(self._state()))

    def _state(self) -> PoolState:
        if not self._started:
            return PoolState()
        pool = self._pool
        jobs = {job: JobState(pool.slots_for(job), pool.waits_for(job), pool.cores_for(job)) for job in self._jobs}
        return PoolState(pool.slots, pool.notes, jobs)
