"""A channel between two processes: each end calls what the other serves."""

import asyncio
import itertools
import socket
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from ...errors import CodecfleetError, WorkError
from .messages import LENGTH, Buffer, FrameKind, Request, WireFrame, framed, header_of, lost_result, portable

ServerT = TypeVar("ServerT")
ReplyT = TypeVar("ReplyT")

_REPORT: Final = "Please report it, with the input and the options."


class Channel(Generic[ServerT]):
    """One end of a pair of sockets, which it owns; the other side serves ``ServerT``. Used from one event loop.

    ``serves`` is what the other side's requests are for; ``me`` names this process in the errors of its defects.
    """

    def __init__(self, end: socket.socket, serves: object = None, *, me: str = "the process") -> None:
        end.settimeout(0)
        self._end = end
        self.serves = serves
        self._me = me
        self._numbers = itertools.count(1)
        self._awaited: dict[int, asyncio.Future[Any]] = {}
        self._serving: dict[int, asyncio.Task[None]] = {}
        self._telling = itertools.count(-1, -1)
        self._outbox: asyncio.Queue[Sequence[Buffer]] = asyncio.Queue()
        self._over: Exception | None = None
        self.trouble = ""

    @property
    def is_behind(self) -> bool:
        """Whether messages wait to be sent: the other side does not read, or not fast enough."""
        return not self._outbox.empty()

    async def call(self, request: Request[ServerT, ReplyT]) -> ReplyT:
        """Have the other side serve a request, and return its reply; cancelled there if it is cancelled here.

        Raises:
            CodecfleetError: what the request raised there; ``WorkError`` for its other errors.
            Exception: what ``over`` was given, since the other side is gone.
        """
        if self._over is not None:
            raise self._over
        number = next(self._numbers)
        answer: asyncio.Future[ReplyT] = asyncio.get_running_loop().create_future()
        self._awaited[number] = answer
        try:
            self._outbox.put_nowait(framed(FrameKind.CALL, number, request))
            return await answer
        except asyncio.CancelledError:
            self._outbox.put_nowait(framed(FrameKind.CANCEL, number))
            raise
        finally:
            del self._awaited[number]

    def tell(self, request: Request[ServerT, None]) -> None:
        """Have the other side serve a request, without waiting; nothing happens if it is gone."""
        self._outbox.put_nowait(framed(FrameKind.TELL, 0, request))

    async def flushed(self) -> None:
        """Wait until everything is sent; for ever if the other side does not read."""
        await self._outbox.join()

    async def run(self) -> str:
        """Send, receive and serve until the other side is gone or ``hang_up``; what is served then is cancelled.

        Returns:
            Why that was a defect, "" if it was none.
        """
        writing = asyncio.create_task(self._write())
        try:
            while (frame := await self._read()) is not None:
                self._take(frame)
        except Exception as error:  # noqa: BLE001 - a process that cannot be understood is of no use
            self.trouble = f"what it said cannot be read: {type(error).__name__}: {error}"
        finally:
            for task in (writing, *self._serving.values()):
                task.cancel()
        return self.trouble

    def over(self, why: Exception) -> None:
        """End every call with ``why``: nothing is answered any more."""
        self._over = why
        for answer in self._awaited.values():
            if not answer.done():
                answer.set_exception(why)

    def hang_up(self) -> None:
        """Receive what was sent until now, and no more."""
        with suppress(OSError):  # it was closed before
            self._end.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Close this end: the other side reads no more."""
        self._end.close()

    def _take(self, frame: WireFrame) -> None:
        number = frame.number
        match frame.kind:
            case FrameKind.CALL:
                self._begin(number, self._answer(number, frame.value()))
            case FrameKind.TELL:
                self._begin(next(self._telling), self._hear(frame.value()))
            case FrameKind.CANCEL:
                if number in self._serving:
                    self._serving[number].cancel()
            case FrameKind.REPLY | FrameKind.ERROR:
                self._settle(frame)

    def _begin(self, number: int, serving: Coroutine[Any, Any, None]) -> None:
        task = self._serving[number] = asyncio.create_task(serving)
        task.add_done_callback(lambda _: self._serving.pop(number))

    async def _answer(self, number: int, request: Request[Any, Any]) -> None:
        try:
            reply = await request.serve(self.serves)
        except CodecfleetError as error:
            frame = framed(FrameKind.ERROR, number, portable(error))
        except Exception as error:  # noqa: BLE001 - the edge: a defect of ours is an answer too
            defect = WorkError(f"{self._me} failed with {type(error).__name__}: {error}", _REPORT)
            frame = framed(FrameKind.ERROR, number, defect)
        else:
            try:
                frame = framed(FrameKind.REPLY, number, reply)
            except Exception as error:  # noqa: BLE001 - whatever pickling a user's result raises
                frame = framed(FrameKind.ERROR, number, lost_result("pickle", error))
        self._outbox.put_nowait(frame)

    async def _hear(self, request: Request[Any, None]) -> None:
        try:
            await request.serve(self.serves)
        except Exception as error:  # noqa: BLE001 - nothing awaits it
            self.trouble = f"{type(request).__name__} failed with {type(error).__name__}: {error}"
            self.hang_up()

    def _settle(self, frame: WireFrame) -> None:
        answer = self._awaited.get(frame.number)
        if answer is None or answer.done():
            return
        try:
            value = frame.value()
        except Exception as error:  # noqa: BLE001 - whatever unpickling a user's result raises
            answer.set_exception(lost_result("unpickle", error))
            return
        if frame.kind is FrameKind.ERROR:
            answer.set_exception(value)
        else:
            answer.set_result(value)

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while True:
                for piece in await self._outbox.get():
                    await loop.sock_sendall(self._end, piece)
                self._outbox.task_done()

    async def _read(self) -> WireFrame | None:
        """Return the next frame; None once the other side is gone."""
        try:
            (size,) = LENGTH.unpack(await self._exactly(LENGTH.size))
            kind, number, sizes = header_of(await self._exactly(size))
            return WireFrame(kind, number, [await self._exactly(size) for size in sizes])
        except (EOFError, OSError):
            return None

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
