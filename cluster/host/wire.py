"""Messages between a process and one that it started, over a pair of Unix sockets.

A message is the length of its header (4 bytes), the header (msgpack: kind, number, and the length of each part), and
the parts themselves. Large parts are sent from, and received into, the memory where they lie.
"""

import asyncio
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from pickle import PickleBuffer
from typing import Final, NamedTuple

import msgpack

from ..worker.outcome import Buffer

_LENGTH: Final = struct.Struct(">I")
_JOINED_BYTES: Final = 1 << 16
"""Up to this size the parts of a message are copied together: one call of the kernel costs more."""


class MessageKind(Enum):
    """What a message is for, and its parts."""

    # From the client, or from the host to a worker. Those with an answer are numbered.
    ASK = "ask"  #: call a method: its name and arguments, pickled
    BLOB = "blob"  #: keep a blob, whose number is its place: its content
    SUBMIT = "submit"  #: run work: the work, pickled, and the numbers of its blobs
    TELL = "tell"  #: as ASK, for a method that neither waits nor answers
    CANCEL = "cancel"  #: stop what was asked or submitted by this number
    CLOSE = "close"  #: close the pool, and end
    # From the process that was started.
    ANSWER = "answer"  #: how what was asked by this number ended: an outcome, pickled, and its buffers
    STATE = "state"  #: what the pool's synchronous methods return, pickled; also shows that the host is alive


class WireMessage(NamedTuple):
    """One message."""

    kind: MessageKind
    number: int
    parts: Sequence[Buffer]


class WireChannel:
    """One end of the pair, which it owns. Used from one event loop."""

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(0)
        self._end = end
        self._outbox: asyncio.Queue[Sequence[Buffer]] = asyncio.Queue()

    @property
    def is_behind(self) -> bool:
        """Whether messages wait to be sent: the other side does not read, or not fast enough."""
        return not self._outbox.empty()

    def send(self, kind: MessageKind, number: int = 0, *parts: Buffer | PickleBuffer) -> None:
        """Send a message after those before it, without waiting; nothing happens if the other side is gone."""
        raw = [part.raw() if isinstance(part, PickleBuffer) else part for part in parts]
        header = msgpack.packb((kind.value, number, [memoryview(part).nbytes for part in raw]))
        self._outbox.put_nowait((_LENGTH.pack(len(header)) + header, *raw))

    async def write(self) -> None:
        """Send what is to be sent, until cancelled or the other side is gone."""
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while True:
                parts = await self._outbox.get()
                joined = sum(memoryview(part).nbytes for part in parts) <= _JOINED_BYTES
                for part in (b"".join(parts),) if joined else parts:
                    await loop.sock_sendall(self._end, part)
                self._outbox.task_done()

    async def flushed(self) -> None:
        """Wait until everything is sent."""
        await self._outbox.join()

    async def read(self) -> WireMessage | None:
        """Return the next message; None once the other side is gone."""
        try:
            (size,) = _LENGTH.unpack(await self._exactly(_LENGTH.size))
            kind, number, sizes = msgpack.unpackb(await self._exactly(size))
            return WireMessage(MessageKind(kind), number, [await self._exactly(size) for size in sizes])
        except (EOFError, OSError):
            return None

    def close(self) -> None:
        """Close this end: the other side reads no more."""
        self._end.close()

    async def _exactly(self, size: int) -> bytearray:
        loop = asyncio.get_running_loop()
        content = bytearray(size)
        left = memoryview(content)
        while left:
            received = await loop.sock_recv_into(self._end, left)
            if received == 0:
                raise EOFError
            left = left[received:]
        return content
