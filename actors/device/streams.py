"""The interfaces through which jobs use picture streams between programs, and pictures that other APIs hold."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from av.video.frame import VideoFrame
    from numpy.typing import NDArray

    from ..media.values import Colour
    from ..surfaces.device_frame import DevicePicture


@dataclass(frozen=True, slots=True, eq=False)
class StreamPicture:
    """A picture that a stream's consumer took. ``pixels`` is a copy; None if the copy was not wanted."""

    number: int  #: the picture's number in the order of presentation, counted from 1
    is_new: bool  #: False if the consumer has taken this picture before
    pixels: "VideoFrame | DevicePicture | None"
    pix_fmt: str  #: FFmpeg's name of the copy's format
    width: int  #: in samples
    height: int  #: in samples
    colour: "Colour"  #: the colours that the stream states
    size_bytes: int  #: size of the copy


class StreamConsumer(ABC):
    """The consuming end of a stream. Used by one thread at a time."""

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether the producer is gone, so that no more pictures come."""

    @abstractmethod
    def take(self, timeout_s: float, is_wanted: Callable[[int, bool], bool]) -> StreamPicture | None:
        """Take the next picture; None if no picture came in time, or the producer is gone.

        ``is_wanted(number, is_new)`` decides whether a picture is copied. ``Unsupported`` if pictures of this format
        cannot be copied to the chosen place, ``DeviceError`` if the driver failed.
        """

    @abstractmethod
    def to_host(self, picture: "DevicePicture") -> "VideoFrame":
        """Copy a picture from the device to the host, in any thread; ``DeviceError`` if the copy failed."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect from the stream. Idempotent."""


class StreamProducer(ABC):
    """The producing end of a stream, which connects at the first picture. Used by one thread at a time."""

    @abstractmethod
    def present(self, picture: "VideoFrame | DevicePicture", streams: Iterable[int]) -> bool:
        """Copy and present a picture; return False if the consumer is gone.

        The picture is complete once the work in the CUDA ``streams`` is done.

        Raises:
            UsageError: the size or format differs from that of the first picture.
            Unsupported: no stream carries such pictures.
            DeadlineMissed: the consumer did not connect, or took no picture in time.
            DeviceError: the driver failed.
        """

    @abstractmethod
    def fetch(self, address: int, size_bytes: int, streams: Iterable[int]) -> "NDArray[np.uint8]":
        """Return a copy of device memory, whose content is complete once the work in the CUDA ``streams`` is done."""

    @abstractmethod
    def drain(self) -> bool:
        """Wait until the consumer has taken every picture; return whether it has. Raises as ``present`` does."""

    @abstractmethod
    def described(self) -> tuple[int, int, str]:
        """Return the width, height and format (FFmpeg's name) of the stream's pictures."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect from the stream. Idempotent."""


class PictureStream(ABC):
    """A stream of pictures from one producer to one consumer. Times are in seconds."""

    fps: Fraction | None  #: picture n is shown at n / ``fps``; if None, each picture keeps the time when it was taken
    wait_s: float  #: how long one end of the stream waits for the other end
    repeat_s: float | None  #: the time without a new picture after which the last picture is returned again

    @abstractmethod
    def open_consumer(self, place: str) -> StreamConsumer:
        """Open the consumer; copies go to the ``"host"``, the ``"device"``, or wherever the format allows (``"auto"``).

        ``UsageError`` if the stream already has a consumer, ``DeviceError`` if the driver refused.
        """

    @abstractmethod
    def open_producer(self, memory: str) -> StreamProducer:
        """Return the producer; its frames are pitched memory (``"pitch"``) or arrays (``"array"``).

        Raises:
            UsageError: the kind of memory is unknown.
            DeviceError: there is no driver.
        """


class HeldPicture(ABC):
    """A picture that another API holds."""

    @abstractmethod
    def read(self) -> "DevicePicture | VideoFrame":
        """Return a copy of the picture; ``EngineUnfit`` or ``DeviceError`` if the picture cannot be copied."""
