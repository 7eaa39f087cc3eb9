"""What an encoder session promises, whatever engine runs it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Generic, Self, TypeVar

from ...errors import EncoderFailed, Unsupported
from ..media.values import SeiMessage
from .settings import RateChange

__all__ = ["EncodedPacket", "EncoderSession", "SessionState"]

PictureT_contra = TypeVar("PictureT_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class EncodedPacket:
    """One encoded picture, in decoding order. ``pts_ticks`` is in the settings' time base."""

    pts_ticks: int
    is_keyframe: bool
    payload: bytes


class SessionState(Enum):
    """Edges: OPEN -> FINISHED; any -> CLOSED."""

    OPEN = "open"
    FINISHED = "finished"
    """``finish`` was called: the encoder has given all it had."""
    CLOSED = "closed"


class EncoderSession(ABC, Generic[PictureT_contra]):
    """One encoder, for one segment: pictures in, packets out, exactly one for each.

    Use it as a context manager, feed it with ``encode`` in presentation order and end it with ``finish``. A session
    encodes once: after ``finish`` it takes no more pictures, and after the ``with`` block it holds no engine, memory
    or thread any more. Not thread-safe: one thread feeds one session.

    Whatever the engine:

    - The packets come in decoding order. The first is a keyframe that nothing before it is needed for, and nothing
      in the session's output refers to anything outside it.
    - A packet carries the ``pts_ticks`` of its picture, exactly as it was given.
    - The engine may hold pictures back for as long as it likes; ``finish`` returns what it held.
    - The same settings and the same pictures give the same packets and the same ``extradata`` on every engine of the
      same encoder kind. A session therefore starts from nothing: no rate control state of another segment reaches it.

    ``name`` is the encoder's, for errors.
    """

    name: str
    _state = SessionState.OPEN

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    @abstractmethod
    def extradata(self) -> bytes:
        """The parameter sets (Annex B, or AV1's sequence header OBU), known before the first picture; VP9 has none."""

    @property
    @abstractmethod
    def reorder_frames(self) -> int:
        """By how many pictures, at most, decoding order differs from presentation order; equal in every segment."""

    @abstractmethod
    def encode(
        self, picture: PictureT_contra, *, keyframe: bool = False, sei_messages: Sequence[SeiMessage] = ()
    ) -> list[EncodedPacket]:
        """Encode one picture and return the packets that are ready.

        ``picture`` must fit the settings, and be presented later than the one before it. It may be changed or
        overwritten as soon as this returns. With ``keyframe`` it is one that nothing before it is needed for.
        ``sei_messages`` are written beside it.

        Raises:
            Unsupported: the engine writes no such messages.
            EncoderFailed: the picture does not fit, the session is not open, or the encoder gave something impossible.
            DeviceError: the device that encodes failed.
        """

    def reconfigure(self, change: RateChange) -> None:
        """Change what steers the bitrate, from the next picture on.

        Raises:
            Unsupported: the engine cannot, or the values contradict each other.
            DeviceError: the driver refuses them; the session goes on with the old ones.
        """
        del change
        message = f"{self.name} cannot change its rates while it encodes"
        raise Unsupported(message, 'Use encoder="nvenc".')

    @abstractmethod
    def finish(self) -> list[EncodedPacket]:
        """Return the packets the encoder still held, having checked that every picture came out.

        Raises:
            EncoderFailed: pictures are missing, the session is not open, or the encoder gave something impossible.
            DeviceError: the device that encodes failed.
        """

    @abstractmethod
    def close(self) -> None:
        """Give up the engine, its memory and its threads, whatever state the session is in. Never raises."""

    def _require_open(self) -> None:
        if self._state is not SessionState.OPEN:
            message = f"{self.name}: the session is {self._state.value}, not {SessionState.OPEN.value}"
            raise EncoderFailed(message)
