"""The client's side of one host: what was asked of it, and what it last said."""

import asyncio
import itertools
import pickle
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from ...actors.device.work import Work
from ...errors import Cancelled
from ..process.forked import keep_from_children
from ..process.process import StartedProcess
from ..worker.blobs import BlobCache
from ..worker.outcome import Outcome
from ..worker.packed_work import base_fields
from .calls import Calls
from .serving import BEAT_S, CLOSING_S, PoolState
from .wire import MessageKind, WireChannel, WireMessage

ResultT = TypeVar("ResultT")

SILENT_BEATS: Final = round(30 / BEAT_S)
"""After how many beats without a word a host is given up: importing Ray alone takes seconds on a busy machine. They are
counted, not timed: a program that was stopped, or slept with its machine, has heard nothing meanwhile."""


class HostLost(Exception):
    """The host is gone, and what was asked of it is lost."""


class HostLink:
    """One host, over its whole life; ``on_end`` is called with the reason when it is gone. Used from one event loop."""

    def __init__(self, process: StartedProcess, on_end: Callable[["HostLink", str], None]) -> None:
        self.state = PoolState()
        self._process = process
        self._on_end = on_end
        self._channel = WireChannel(process.end)
        keep_from_children(process.end)
        self._blobs = BlobCache(self._send_blob)
        self._blob_numbers = itertools.count()
        self._calls = Calls(self._channel)
        self._is_closing = False
        self._lost = ""
        self._silent_beats = 0
        self._living = asyncio.create_task(self._live())

    async def ask(self, method: str, *arguments: object) -> object:
        """Call a method of the host's pool; cancelled if this call is.

        Raises:
            HostLost: the host is gone.
            CodecfleetError: the method's own.
        """
        return _result(await self._calls.ask(method, *arguments))

    def tell(self, method: str, *arguments: object) -> None:
        """Call a method that neither waits nor answers."""
        self._channel.send(MessageKind.TELL, 0, pickle.dumps((method, arguments)))

    async def submit(self, work: Work[ResultT]) -> ResultT:
        """Run work, as ``Pool.submit`` does.

        Raises:
            HostLost: the host is gone.
            UsageError: the work does not pickle.
            CodecfleetError: the work's own.
        """
        packed, blobs = self._blobs.pack(work)
        described = pickle.dumps((base_fields(work), blobs))
        return cast("ResultT", _result(await self._calls.send(MessageKind.SUBMIT, packed, described)))

    async def close(self, *, at_once: bool) -> None:
        """End the host: in good order, which takes half a second, or ``at_once``. What it was asked is cancelled."""
        self._is_closing = True
        if at_once:
            self._process.kill()
        else:
            self._channel.send(MessageKind.CLOSE)
        await asyncio.wait({self._living}, timeout=CLOSING_S)
        self._process.kill()
        await self._living

    def _send_blob(self, content: bytes) -> int:
        number = next(self._blob_numbers)
        self._channel.send(MessageKind.BLOB, number, content)
        return number

    async def _live(self) -> None:
        """Take messages until the host is gone."""
        others = asyncio.create_task(self._channel.write()), asyncio.create_task(self._watch())
        try:
            while (message := await self._channel.read()) is not None:
                self._silent_beats = 0
                self._take(message)
        except Exception as error:  # noqa: BLE001 - a host that cannot be understood is of no use
            self._lost = f"what it said cannot be read: {type(error).__name__}: {error}"
        finally:
            for task in others:
                task.cancel()
            self._channel.close()
            self._process.kill()
        ended = await asyncio.to_thread(self._process.ended)
        self._end(self._lost or ended)

    def _take(self, message: WireMessage) -> None:
        if message.kind is MessageKind.STATE:
            self.state = pickle.loads(message.parts[0])  # noqa: S301 - from our own host
        else:
            self._calls.take(message)

    async def _watch(self) -> None:
        while self._silent_beats < SILENT_BEATS:
            await asyncio.sleep(BEAT_S)
            self._silent_beats += 1
        self._lost = f"it said nothing for {SILENT_BEATS * BEAT_S:g} s"
        self._process.kill()

    def _end(self, reason: str) -> None:
        self._calls.end(Cancelled("the pool was closed") if self._is_closing else HostLost(reason))
        self._on_end(self, reason)


def _result(outcome: Outcome[Any]) -> object:
    if outcome.error is not None:
        raise outcome.error
    return outcome.result
