"""Readers take decoded surfaces to where their pictures belong."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic

from av.video.codeccontext import VideoCodecContext

from ...decode.decoding import PictureT
from .context import Stream


class SurfaceReader(ABC, Generic[PictureT]):
    """Makes pictures of one session's surfaces. Used by one thread at a time; ``close`` gives its memory back."""

    @abstractmethod
    def begin(self, surface: int, stream: Stream) -> Callable[[], PictureT]:
        """Begin to read the surface at this device address; return what gives its picture once the stream is done.

        Later work in the stream may overwrite the surface. Keep what this returns until the stream is done: it owns the
        memory that is written to.

        Raises:
            DeviceError: the driver refuses, or there is no memory for it.
        """

    def apply_colour(self, picture: PictureT, context: VideoCodecContext) -> None:
        """Give a picture what a software decoder would say of it beside its samples."""

    @abstractmethod
    def close(self) -> None:
        """Give memory back; pictures that are still in use keep theirs. Idempotent."""
