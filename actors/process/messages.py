"""Messages between two processes, as frames of bytes.

A frame is the length of its header (4 bytes), the header (msgpack: kind, number, and the length of each part), and the
parts: a pickled value, and its large buffers, which are sent without a copy.
"""

import pickle
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgpack

from ...errors import CodecfleetError, WorkError

ServerT_contra = TypeVar("ServerT_contra", contravariant=True)
ReplyT_co = TypeVar("ReplyT_co", covariant=True)
Buffer: TypeAlias = bytes | bytearray | memoryview | pickle.PickleBuffer

LENGTH: Final = struct.Struct(">I")
_JOINED_BYTES: Final = 1 << 16
"""The largest frame that is copied so that one system call sends it: a system call costs more than the copy."""


class Request(ABC, Generic[ServerT_contra, ReplyT_co]):
    """A call to the process at the other end: a frozen dataclass whose fields are the arguments."""

    __slots__ = ()

    @abstractmethod
    async def serve(self, server: ServerT_contra) -> ReplyT_co:
        """Serve the request at the other end. Raises CodecfleetError: the caller gets the same error."""


class FrameKind(Enum):
    """The purpose of a frame; a call, its cancellation and its answer have the same number."""

    CALL = "call"  #: serve a request, and answer it
    TELL = "tell"  #: serve a request without an answer
    CANCEL = "cancel"  #: cancel a call
    REPLY = "reply"  #: a call's return value
    ERROR = "error"  #: a call's error


class WireFrame(NamedTuple):
    """A message of a channel, as received: its head and its parts, still pickled."""

    kind: FrameKind
    number: int
    parts: Sequence[bytearray]

    def value(self) -> Any:  # noqa: ANN401 - a request, or whatever a request returns
        """Return the value; its large buffers are read-only."""
        content, *buffers = self.parts
        return pickle.loads(content, buffers=[memoryview(each).toreadonly() for each in buffers])  # noqa: S301 - sent by our own process


def beside(content: Buffer) -> Buffer:
    """Wrap bytes for a field of a request, so that they are sent without a copy; they arrive as a ``memoryview``."""
    return pickle.PickleBuffer(content)


def framed(kind: FrameKind, number: int, *value: object) -> Sequence[Buffer]:
    """Return a frame, with or without a value, as pieces to send; raises any error of pickling the value."""
    buffers: list[pickle.PickleBuffer] = []
    contents = [pickle.dumps(each, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append) for each in value]
    parts = [*contents, *(buffer.raw() for buffer in buffers)]
    sizes = [len(part) for part in parts]
    header = msgpack.packb((kind.value, number, sizes))
    pieces = (LENGTH.pack(len(header)) + header, *parts)
    return (b"".join(pieces),) if sum(sizes) <= _JOINED_BYTES else pieces


def header_of(content: bytearray) -> tuple[FrameKind, int, list[int]]:
    """Return a header's kind, number, and sizes of parts. Raises ValueError: the bytes are not a header."""
    kind, number, sizes = msgpack.unpackb(content)
    return FrameKind(kind), number, sizes


def portable(error: CodecfleetError) -> CodecfleetError:
    """Return the error, or a substitute if the error cannot be pickled."""
    try:
        survives = type(pickle.loads(pickle.dumps(error))) is type(error)  # noqa: S301 - pickled one line before
    except Exception:  # noqa: BLE001 - a subclass's own pickling may raise any error
        survives = False
    return error if survives else WorkError(f"{type(error).__name__}: {error.message}", error.next_step)


def lost_result(what: str, error: Exception) -> WorkError:
    """Return the error of a call whose result cannot be pickled or unpickled, as ``what`` says."""
    message = f"the result does not {what}: {type(error).__name__}: {error}"
    return WorkError(message, "Return a value of importable classes.")
