"""What a worker's device offers to the work that runs on it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ..decode.decoding import PictureDecoder
from ..encode.settings import Codec, EncoderSettings

if TYPE_CHECKING:
    from ..decode.nvdec_options import NvdecOptions
    from ..encode.session import EncoderSession
    from ..settle.nvenc_capabilities import EncoderCapabilities
    from ..surfaces.conversion import Conversion
    from ..surfaces.device_frame import DevicePicture, TimedPicture

__all__ = ["SESSIONS_OPENING", "PictureConversion", "PictureMover", "SessionCounts", "WorkerDevice"]

SESSIONS_OPENING: Final = "NVDEC's sessions were still being opened"
"""Why somebody in a hurry got none: a matter of course while a worker is new."""


@dataclass(frozen=True, slots=True)
class SessionCounts:
    """How a device is used: its sessions that were made since the process began, and how many decode and encode now.

    ``refusals`` counts encoder sessions that the driver did not open for their number, and ``refused_at`` is how many
    this process had open at the last of them.
    """

    sessions_made: int = 0
    decoding: int = 0
    encoding: int = 0
    refusals: int = 0
    refused_at: int = 0


class PictureMover(ABC):
    """Takes pictures from the host to a device and back, exactly. Used by one thread at a time."""

    @abstractmethod
    def to_device(self, picture: VideoFrame) -> "DevicePicture":
        """Return a software picture as the device holds it.

        Raises:
            EngineUnfit: no surface holds it exactly.
            DeviceError: the copy failed, or there is no memory for it.
        """

    @abstractmethod
    def to_host(self, picture: "DevicePicture") -> VideoFrame:
        """Return a picture as software would have decoded it.

        Raises:
            DeviceError: the copy failed.
        """

    @abstractmethod
    def fetch(self, address: int, size_bytes: int) -> NDArray[np.uint8]:
        """Return a copy of what lies on the device.

        Raises:
            DeviceError: the copy failed.
        """

    @abstractmethod
    def wait_for(self, streams: Iterable[int]) -> None:
        """Wait for all work in streams of the device, given by their handles.

        Raises:
            DeviceError: the work failed, or there is no such stream.
        """

    @abstractmethod
    def close(self) -> None:
        """Give up what it holds of the device."""


class PictureConversion(ABC):
    """Makes pictures of one format and size into those of another. Used by one thread at a time."""

    @abstractmethod
    def convert(self, picture: "DevicePicture") -> "DevicePicture":
        """Return the converted picture, complete.

        Raises:
            DeviceError: the device refused, or has no memory for it.
        """

    @abstractmethod
    def close(self) -> None:
        """Give its memory back."""


class WorkerDevice(ABC):
    """One GPU or slice, as far as work may use it. Safe from any thread; opened by the first who uses it.

    ``pictures`` decodes into host memory, ``surfaces`` into the device's own. Both wait for a session as long as it
    takes; ``non_blocking_pictures`` does not.
    """

    pictures: PictureDecoder[VideoFrame]
    surfaces: "PictureDecoder[DevicePicture]"

    @abstractmethod
    def non_blocking_pictures(self) -> AbstractContextManager[PictureDecoder[VideoFrame]]:
        """Lend a decoder into host memory to somebody who can do without, until that one is done either way.

        It raises ``EngineBusy`` where too many sessions are to be opened before its own.
        """

    @abstractmethod
    def asking(
        self, options: "NvdecOptions", *, on_device: bool
    ) -> "PictureDecoder[VideoFrame] | PictureDecoder[DevicePicture]":
        """Return ``surfaces``, or ``pictures``, on sessions that are opened with ``options``."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Return how much of its memory is free.

        Raises:
            EngineUnfit, DeviceError: it cannot be opened.
        """

    @abstractmethod
    def use(self) -> SessionCounts:
        """Say how it is used; answers at once, whatever else is under way."""

    @abstractmethod
    def encoder_capabilities(self, codec: Codec) -> "EncoderCapabilities":
        """Return what the device's encoder can do.

        Raises:
            EngineUnfit: it has none, or none for this codec.
            DeviceError: the driver failed.
        """

    @abstractmethod
    def encoder_package(self) -> str:
        """Return the version of the package that drives the encoder.

        Raises:
            EngineUnfit: it is not installed, or does not load.
        """

    @abstractmethod
    def converts(self) -> bool:
        """Tell whether pictures can be scaled and converted on it.

        Raises:
            EngineUnfit, DeviceError: it cannot be opened.
        """

    @abstractmethod
    def open_encoder(
        self, settings: EncoderSettings, *, from_host: bool
    ) -> "EncoderSession[VideoFrame | TimedPicture]":
        """Open an encoder session on the device, for pictures of the host or of the device.

        Raises:
            EngineUnfit, SessionLimit, DeviceMemory, DeviceError: by what kept it from opening.
        """

    @abstractmethod
    def open_mover(self) -> "PictureMover":
        """Open a way between host and device, for one thread.

        Raises:
            DeviceError: the driver gives none.
        """

    @abstractmethod
    def open_conversion(self, conversion: "Conversion", pix_fmt: str) -> "PictureConversion":
        """Open what scales and converts pictures on the device, for one thread; they become FFmpeg's ``pix_fmt``.

        Raises:
            EngineUnfit: the device's kernels cannot be compiled here.
            DeviceError: the device has no memory for it, or refused.
        """
