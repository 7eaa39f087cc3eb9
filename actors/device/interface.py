"""The interface of a worker's device for the work that runs on it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np
    from av.video.frame import VideoFrame
    from numpy.typing import NDArray

    from ..decode.decoding import PictureDecoder
    from ..decode.nvdec_options import NvdecOptions
    from ..decode.packet_decoder import PacketDecoder
    from ..encode.session import EncoderSession
    from ..encode.settings import Codec, EncoderSettings
    from ..settle.nvenc import EncoderCapabilities
    from ..surfaces.conversion import Conversion
    from ..surfaces.device_frame import DevicePicture, TimedPicture
    from ..surfaces.strided import StridedPicture
    from ..tensors.tensor_maker import TensorMaker


SESSIONS_OPENING: Final = "NVDEC's sessions were still being opened"
"""Why a non-blocking request got no session; normal while a worker is starting."""


@dataclass(frozen=True, slots=True)
class SessionCounts:
    """How many sessions a device has made, has open and has refused."""

    sessions_made: int = 0  # sessions made since the process began
    decoding: int = 0  # sessions that decode now
    encoding: int = 0  # sessions that encode now
    refusals: int = 0  # encoder sessions refused by the driver's limit
    refused_at: int = 0  # encoder sessions of this process that were open at the last refusal


class PictureMover(ABC):
    """Copies pictures between the host and a device without changing a sample. Used by one thread at a time."""

    @abstractmethod
    def to_device(self, picture: "VideoFrame") -> "DevicePicture":
        """Copy a software picture to the device; ``EngineUnfit`` if no surface fits it, ``DeviceError`` on failure."""

    @abstractmethod
    def to_host(self, picture: "DevicePicture") -> "VideoFrame":
        """Return a host copy of a picture, as software would have decoded it; ``DeviceError`` if the copy failed."""

    @abstractmethod
    def fetch(self, address: int, size_bytes: int) -> "NDArray[np.uint8]":
        """Return a copy of device memory; ``DeviceError`` if the copy failed."""

    @abstractmethod
    def wait_for(self, streams: Iterable[int]) -> None:
        """Wait for all work in the CUDA streams with these handles; ``DeviceError`` if a stream fails or is unknown."""

    @abstractmethod
    def close(self) -> None:
        """Release the mover's device memory and streams."""


class PictureConversion(ABC):
    """Converts pictures of one format and size to another. Used by one thread at a time."""

    @abstractmethod
    def convert(self, picture: "DevicePicture") -> "DevicePicture":
        """Return the finished conversion of a picture; ``DeviceError`` if the device refused or lacks memory."""

    @abstractmethod
    def close(self) -> None:
        """Release the conversion's device memory."""


class PicturePacker(ABC):
    """Packs device pictures of any layout into surfaces without padding. Used by one thread at a time."""

    @abstractmethod
    def pack(self, picture: "StridedPicture") -> "DevicePicture":
        """Return the finished packed picture; the source must be finished. ``DeviceError`` if the device refused."""

    @abstractmethod
    def close(self) -> None:
        """Release the packer's device memory."""


class WorkerDevice(ABC):
    """A GPU or MIG slice for work to use. Thread-safe; opened on first use.

    ``pictures`` decodes into host memory, ``surfaces`` into device memory. Both wait for a session;
    ``non_blocking_pictures`` does not.
    """

    pictures: "PictureDecoder[VideoFrame]"
    surfaces: "PictureDecoder[DevicePicture]"

    @abstractmethod
    def non_blocking_pictures(self) -> "AbstractContextManager[PictureDecoder[VideoFrame]]":
        """Provide a decoder into host memory; decoding raises ``EngineBusy`` if no session is free."""

    @abstractmethod
    def decoder_with(
        self, options: "NvdecOptions", *, on_device: bool
    ) -> "PictureDecoder[VideoFrame] | PictureDecoder[DevicePicture]":
        """Return a decoder whose sessions have ``options``. If ``on_device``, its pictures are in device memory."""

    @abstractmethod
    def packet_decoder(
        self, options: "NvdecOptions", *, on_device: bool
    ) -> "PacketDecoder[VideoFrame] | PacketDecoder[DevicePicture]":
        """Return a decoder that takes packets one by one, and whose sessions have ``options``."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Return the device's free memory; ``EngineUnfit`` or ``DeviceError`` if the device cannot be opened."""

    @property
    def is_shared(self) -> bool:
        """Whether the device has room for a second process of the worker."""
        return False

    @abstractmethod
    def use(self) -> SessionCounts:
        """Return the counts of the device's sessions, without waiting."""

    @abstractmethod
    def encoder_capabilities(self, codec: "Codec") -> "EncoderCapabilities":
        """Return the encoder's capabilities; ``EngineUnfit`` if it lacks the codec, ``DeviceError`` on failure."""

    @abstractmethod
    def encoder_package(self) -> str:
        """Return the version of the encoder's package; ``EngineUnfit`` if the package is missing or does not load."""

    @abstractmethod
    def converts(self) -> bool:
        """Return whether this device can convert pictures; ``EngineUnfit`` or ``DeviceError`` if opening it fails."""

    @abstractmethod
    def open_encoder(
        self, settings: "EncoderSettings", *, from_host: bool, stream: int | None = None
    ) -> "EncoderSession[VideoFrame | TimedPicture]":
        """Open an encoder for pictures in host or device memory; ``EngineUnfit`` or ``DeviceError`` on failure.

        The encoder reads device pictures in the CUDA stream with the handle ``stream``; None is the default stream.
        """

    @property
    @abstractmethod
    def ordinal(self) -> int:
        """The device's CUDA ordinal in this process; ``EngineUnfit`` or ``DeviceError`` if opening it fails."""

    @abstractmethod
    def open_mover(self) -> "PictureMover":
        """Open a mover for one thread; ``DeviceError`` if the driver refuses."""

    @abstractmethod
    def open_packer(self) -> "PicturePacker":
        """Open a packer for one thread; ``EngineUnfit`` or ``DeviceError`` if kernels or memory are missing."""

    @abstractmethod
    def open_conversion(self, conversion: "Conversion", pix_fmt: str) -> "PictureConversion":
        """Open a conversion to ``pix_fmt`` for one thread; raises as ``open_packer`` does."""

    @abstractmethod
    def open_tensors(self) -> "TensorMaker":
        """Open a maker of tensors for one thread; raises as ``open_packer`` does."""
