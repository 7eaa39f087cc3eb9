"""A channel between two processes: each end calls the other end's server."""

import asyncio
import itertools
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ...errors import CodecfleetError, WorkError
from ..task_owner import TaskOwner
from .messages import LENGTH, Buffer, FrameKind, Request, WireFrame, framed, header_of, lost_result, portable

if TYPE_CHECKING:
    from collections.abc import Sequence

ServerT = TypeVar("ServerT")
ReplyT = TypeVar("ReplyT")

_REPORT: Final = "Please report this, with the input and the options."


class Channel(Generic[ServerT]):
    """One end of a pair of sockets, which it owns; the other side serves ``ServerT``. Used from one event loop.

    ``serves`` answers the other side's requests; ``me`` names this process in errors that report its defects.
    """

    def __init__(self, end: socket.socket, serves: object = None, *, me: str = "the process") -> None:
        end.settimeout(0)
        self._end = end
        self.serves = serves
        self._me = me
        self._numbers = itertools.count(1)
        self._awaited: dict[int, asyncio.Future[Any]] = {}
        self._serving: dict[int, asyncio.Task[None]] = {}
        self._outbox: asyncio.Queue[Sequence[Buffer]] = asyncio.Queue()
        self._over: BaseException | None = None
        self.trouble = ""

    @property
    def is_behind(self) -> bool:
        """Whether messages wait to be sent because the other side reads too slowly."""
        return not self._outbox.empty()

    async def call(self, request: Request[ServerT, ReplyT]) -> ReplyT:
        """Send a request, and return its reply; cancelling the call cancels the request.

        Raises the CodecfleetError of the other side, or the error given to ``over`` if the other side is gone.
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
        """Send a request without waiting for it; ignored if the other side is gone."""
        self._outbox.put_nowait(framed(FrameKind.TELL, 0, request))

    async def run(self) -> str:
        """Send, receive and serve until ``hang_up``, a defect or the other side's end; return the defect, or ""."""
        try:
            async with TaskOwner() as owner:
                owner.start(self._write(), "a channel's sending")
                while (frame := await self._read()) is not None:
                    self._take(frame, owner)
        except Exception as error:  # noqa: BLE001 - a process whose messages cannot be read is useless
            self.trouble = f"its message cannot be read: {type(error).__name__}: {error}"
        return self.trouble

    def over(self, why: BaseException) -> None:
        """End every pending call with ``why``."""
        self._over = why
        for answer in self._awaited.values():
            if not answer.done():
                answer.set_exception(why)

    def hang_up(self) -> None:
        """From now on receive only messages that have already been sent."""
        with suppress(OSError):  # the socket is already closed
            self._end.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Close this end's socket."""
        self._end.close()

    def _take(self, frame: WireFrame, owner: TaskOwner) -> None:
        number = frame.number
        match frame.kind:
            case FrameKind.CALL:
                serving = self._serving[number] = owner.start(self._answer(number, frame.value()), "a request")
                serving.add_done_callback(lambda _: self._serving.pop(number))
            case FrameKind.TELL:
                owner.start(self._serve(frame.value()), "a request without a reply")
            case FrameKind.CANCEL:
                if number in self._serving:
                    self._serving[number].cancel()
            case FrameKind.REPLY | FrameKind.ERROR:
                self._return(frame)

    async def _answer(self, number: int, request: Request[Any, Any]) -> None:
        try:
            reply = await request.serve(self.serves)
        except CodecfleetError as error:
            frame = framed(FrameKind.ERROR, number, portable(error))
        except Exception as error:  # noqa: BLE001 - the edge of the process: a defect is sent to the caller
            defect = WorkError(f"{self._me} failed with {type(error).__name__}: {error}", _REPORT)
            frame = framed(FrameKind.ERROR, number, defect)
        else:
            try:
                frame = framed(FrameKind.REPLY, number, reply)
            except Exception as error:  # noqa: BLE001 - pickling a user's result may raise any error
                frame = framed(FrameKind.ERROR, number, lost_result("pickle", error))
        self._outbox.put_nowait(frame)

    async def _serve(self, request: Request[Any, None]) -> None:
        try:
            await request.serve(self.serves)
        except Exception as error:  # noqa: BLE001 - nobody awaits the request
            self.trouble = f"{type(request).__name__} failed with {type(error).__name__}: {error}"
            self.hang_up()

    def _return(self, frame: WireFrame) -> None:
        answer = self._awaited.get(frame.number)
        if answer is None or answer.done():
            return
        try:
            value = frame.value()
        except Exception as error:  # noqa: BLE001 - unpickling a user's result may raise any error
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
