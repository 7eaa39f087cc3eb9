"""The contract of encoder sessions on all engines."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

from ...errors import EncoderFailed, EngineFailed
from ..closing import Closing
from ..media.values import SeiMessage
from .settings import RateChange

RETRY_ADVICE: Final = "Try another --preset or --codec, and please report this with the input."

PictureT_contra = TypeVar("PictureT_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class EncodedPacket:
    """One encoded picture. ``pts_ticks`` counts in the time base of the settings."""

    pts_ticks: int
    is_keyframe: bool
    payload: bytes


class SessionState(Enum):
    """The state of an encoder session. Transitions: OPEN -> FINISHED; any -> CLOSED."""

    OPEN = "open"
    FINISHED = "finished"
    """``finish`` was called: the encoder is drained."""
    CLOSED = "closed"


class EncoderSession(Closing, Generic[PictureT_contra]):
    """An encoder for one segment that returns exactly one packet for each picture.

    Use it as a context manager: call ``encode`` in presentation order, then ``finish``. After the ``with`` block the
    encoder holds no engine, memory or thread. Not thread-safe.

    Packets come in decoding order, with the exact ``pts_ticks`` of their pictures. The first packet is a keyframe, and
    no packet refers to pictures outside the session. The same settings and pictures give the same packets and
    ``extradata`` on every engine of one encoder kind.
    """

    name: str
    """The encoder's name, for errors."""
    extradata: bytes
    """The parameter sets (Annex B, or AV1's sequence header OBU), known before the first picture; empty for VP9."""
    reorder_frames: int
    """The largest difference between decoding and presentation order, in pictures; the same in every segment."""
    _state = SessionState.OPEN
    _last_pts_ticks: int | None = None
    _packets_out = 0

    @abstractmethod
    def encode(
        self, picture: PictureT_contra, *, keyframe: bool = False, sei_messages: Sequence[SeiMessage] = ()
    ) -> list[EncodedPacket]:
        """Encode one picture and return the packets that are ready.

        ``picture`` must fit the settings and be later than the previous picture. It may be overwritten after this call.
        ``keyframe`` forces an IDR picture. ``sei_messages`` are written with the picture.

        Raises:
            Unsupported: the engine does not write such messages.
            EncoderFailed: the picture does not fit, the session is not open, or the encoder's output is impossible.
            DeviceError: the device failed.
        """

    @abstractmethod
    def reconfigure(self, change: RateChange) -> None:
        """Change the rate control, from the next picture on.

        Raises:
            Unsupported: the engine cannot make this change, or the values contradict each other.
            DeviceError: the driver refuses the values; the session continues with the old values.
        """

    @abstractmethod
    def finish(self) -> list[EncodedPacket]:
        """Return the remaining packets, after checking that no picture is missing; raises as ``encode`` does."""

    def remaining(self) -> Iterator[EncodedPacket]:
        """Yield the packets of ``finish`` as they become ready, since encoding the last pictures takes long."""
        yield from self.finish()

    @abstractmethod
    def close(self) -> None:
        """Release the engine, its memory and its threads, whatever the state. Never raises."""

    def _require_open(self) -> None:
        if self._state is not SessionState.OPEN:
            message = f"{self.name}: the session is {self._state.value}, not {SessionState.OPEN.value}"
            raise EncoderFailed(message, "Open a new one.")

    def _later_pts(self, pts_ticks: int | None) -> int:
        last = self._last_pts_ticks
        if pts_ticks is None or (last is not None and pts_ticks <= last):
            raise EncoderFailed(f"{self.name} got a picture at {pts_ticks} after a picture at {last}")
        return pts_ticks

    def _count_packet(self, failure: type[EncoderFailed | EngineFailed], *, is_keyframe: bool) -> None:
        if not self._packets_out and not is_keyframe:
            raise failure(f"{self.name} began with a picture that is not a keyframe", RETRY_ADVICE)
        self._packets_out += 1

    def _end(self, missing_ticks: Sequence[int], failure: type[EncoderFailed | EngineFailed]) -> None:
        self._state = SessionState.FINISHED
        if missing_ticks:
            message = f"{self.name} lost {len(missing_ticks)} pictures, the first at {missing_ticks[0]}"
            raise failure(message, RETRY_ADVICE)
