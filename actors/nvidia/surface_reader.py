"""What becomes of a surface: who decodes says where its pictures shall lie, and a reader takes them there."""

from abc import ABC, abstractmethod
from typing import Generic

from av.video.stream import VideoStream

from ..decoding import PictureT
from .cuda import Stream

__all__ = ["SurfaceReader"]


class SurfaceReader(ABC, Generic[PictureT]):
    """Makes pictures of one session's surfaces. Used by one thread at a time; ``close`` gives its memory back."""

    @abstractmethod
    def fetch(self, surfaces: list[int], stream: Stream) -> list[PictureT]:
        """Return the pictures of surfaces that begin at these device addresses; they are nobody else's afterwards.

        Raises:
            DeviceError: a copy failed, or there is no memory for it.
        """

    def dress(self, picture: PictureT, stream: VideoStream) -> None:
        """Give a picture what a software decoder would say of it beside its samples."""

    @abstractmethod
    def close(self) -> None:
        """Give memory back; pictures that are still in use keep theirs. Idempotent."""
