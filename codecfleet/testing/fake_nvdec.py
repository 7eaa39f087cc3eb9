"""NVDEC for machines without a GPU: PyNvVideoCodec's decoder with libavcodec inside.

    driver = FakeCudaDriver()
    cuda = Cuda(driver)
    session = NvdecSession(FakeNvdec(driver), cuda, key, PinnedMemory(cuda), None)

It is as unhelpful as the real thing: a surface holds noise until a stream was told to
wait for the decoder; frames are overwritten by the next call; timestamps are handed out in their own order, whichever
picture they were fed with, and one late with VP9; all that was fed is shown, as noise where references are missing;
after a flush the parameter sets are forgotten. Nothing here proves how a driver behaves.

Source: PyNvVideoCodec 2.2.4, as it was seen to behave.
"""

import ctypes
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from av.codec import CodecContext
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ..actors.nvidia.fitness import CODECS, surface_format
from .fake_cuda import CONTEXT, NOISE, FakeCudaDriver
from .fake_nvcodec import FakeNvCodecError
from .surface_decoder import surface_of

__all__ = ["FakeNvdec"]

_IN_PACKET_ORDER: Final = frozenset({"vp8", "vp9", "av1"})


@dataclass
class _PacketData:
    """``PacketData``: what a packet holds, and where."""

    bsl: int = 0
    bsl_data: int = 0
    pts: int = 0


@dataclass
class FakeNvdec:
    """``PyNvVideoCodec`` as a decoder sees it.

    ``supported`` are FFmpeg's names of codecs that the device decodes; ``sides`` the least and most of a picture's.
    ``create_code`` and ``decode_code`` are what the driver answers, 0 for success. ``left_out`` and ``wrong`` are
    pictures, counted over all sessions from 0: one never comes, the other comes as noise, which is said in
    ``wrong_pictures``. ``spare_bytes`` is added to the size that each frame claims.
    """

    driver: FakeCudaDriver
    supported: frozenset[str] = frozenset(CODECS)
    sides: tuple[int, int] = (48, 8192)
    create_code: int = 0
    decode_code: int = 0
    caps_code: int = 0
    left_out: frozenset[int] = frozenset()
    wrong: frozenset[int] = frozenset()
    spare_bytes: int = 0
    pictures: int = 0
    wrong_pictures: int = 0
    decoders_made: int = 0
    caps_asked: list[tuple[int, int, int]] = field(default_factory=list)

    cudaVideoCodec: Callable[[int], int] = int  # noqa: N815 - the package's own name
    cudaVideoChromaFormat: Callable[[int], int] = int  # noqa: N815 - likewise
    PacketData: type[_PacketData] = _PacketData

    def GetDecoderCaps(self, *, gpuid: int, codec: int, chromaformat: int, bitdepth: int) -> dict[str, int]:  # noqa: N802
        """Return what the driver says of a sample format.

        Raises:
            FakeNvCodecError: ``caps_code``.
        """
        self.caps_asked.append((codec, chromaformat, bitdepth))
        _raise(self.caps_code, "cuvidGetDecoderCaps")
        supported = gpuid == 0 and _codec_name(codec) in self.supported
        least, most = self.sides if supported else (0, 0)
        sides = {f"{name}_{end}": side for name in ("width", "height") for end, side in (("min", least), ("max", most))}
        return {"supported": int(supported), "num_decoder_engines": 7 * supported, **sides}

    def CreateDecoder(  # noqa: N802
        self, *, gpuid: int, codec: int, cudacontext: int, cudastream: int, usedevicememory: bool
    ) -> "_Decoder":
        """Return a decoder; the driver makes the real one with its first packet.

        Raises:
            FakeNvCodecError: ``create_code``.
        """
        if gpuid or cudacontext != CONTEXT or cudastream not in self.driver.streams or not usedevicememory:
            raise ValueError(gpuid, cudacontext, cudastream, usedevicememory)
        _raise(self.create_code, "cuvidCreateDecoder")
        self.decoders_made += 1
        return _Decoder(self, _codec_name(codec))


def _raise(code: int, what: str) -> None:
    if code:
        message = f"{what} : \nError code : {code}\nError Type : CUDA_ERROR\nat NvDecoder.cpp:231"
        raise FakeNvCodecError(message)


def _codec_name(number: int) -> str:
    return next(name for name, known in CODECS.items() if known == number)


@dataclass
class _Frame:
    """A decoded frame: where it lies, how large it is, and a timestamp."""

    address: int
    size_bytes: int
    timestamp: int

    def GetPtrToPlane(self, plane: int) -> int:  # noqa: N802 - the package's own names, here and below
        """Return where the surface begins."""
        if plane:
            raise ValueError(plane)
        return self.address

    def framesize(self) -> int:
        """Return the size of the surface."""
        return self.size_bytes

    def getPTS(self) -> int:  # noqa: N802
        """Return a timestamp: not always this picture's."""
        return self.timestamp


class _Decoder:
    """One decoder; its surfaces are its own until its next call."""

    def __init__(self, device: FakeNvdec, codec: str) -> None:
        self._device = device
        self._codec = codec
        self._surfaces: list[int] = []
        self._fills: list[tuple[int, NDArray[np.uint8]]] = []
        self._begin()

    def __del__(self) -> None:
        for address in self._surfaces:
            self._device.driver.forget(address)

    def Decode(self, packet: _PacketData) -> list[_Frame]:  # noqa: N802
        """Take a packet and return the frames that are ready; an empty one flushes.

        Raises:
            FakeNvCodecError: ``decode_code``, or the codec is none of the device's.
        """
        _raise(self._device.decode_code, "HandlePictureDecode")
        _raise(0 if self._codec in self._device.supported else 801, "HandleVideoSequence")
        for address in self._surfaces:
            ctypes.memset(address, NOISE, len(self._device.driver.memory[address]))
        self._fills.clear()
        frames = [frame for surface in self._shown(packet) for frame in self._frame(surface)]
        if not packet.bsl:
            self._begin()
        return frames

    def WaitOnCUStream(self, stream: int) -> None:  # noqa: N802
        """Make a stream wait until the frames of the last call are there."""
        fills = list(self._fills)
        self._device.driver.put(stream, lambda: _fill(fills))

    def _begin(self) -> None:
        context = CodecContext.create(self._codec, "r")
        if not isinstance(context, VideoCodecContext):
            raise TypeError(self._codec)
        context.thread_count = 1
        self._context = context
        self._fed: list[int] = []
        self._timestamps: list[int] = []
        self._late: int | None = None

    def _shown(self, packet: _PacketData) -> list[NDArray[np.uint8]]:
        """Return the surfaces to show, noise for what was fed and cannot be decoded."""
        if packet.bsl:
            insort(self._fed, packet.pts)
            insort(self._timestamps, packet.pts)
            coded = Packet(ctypes.string_at(packet.bsl_data, packet.bsl))
            coded.pts = packet.pts
            pictures = self._context.decode(coded)
        else:
            pictures = self._context.decode(None)
        surfaces = []
        for picture in pictures:
            surface = self._surface(picture)
            surfaces += [np.full_like(surface, NOISE)] * self._lost_before(picture.pts)
            surfaces.append(surface)
        return surfaces

    def _lost_before(self, pts: int | None) -> int:
        """Return how many packets before this one's gave no picture, where each of them must."""
        if self._codec in _IN_PACKET_ORDER or pts is None:
            return 0
        place = self._fed.index(pts)
        self._fed = self._fed[place + 1 :]
        return place

    @staticmethod
    def _surface(picture: VideoFrame) -> NDArray[np.uint8]:
        format_ = surface_format(picture.format.name)
        if format_ is None:
            raise FakeNvCodecError(picture.format.name)
        return surface_of(picture, format_)

    def _frame(self, surface: NDArray[np.uint8]) -> list[_Frame]:
        number, device = self._device.pictures, self._device
        device.pictures += 1
        if number in device.left_out:
            return []
        if number in device.wrong:
            device.wrong_pictures += 1
            surface = np.full_like(surface, NOISE)
        used = len(self._fills)
        if used == len(self._surfaces):
            self._surfaces.append(int(device.driver.cuMemAlloc(len(surface))[1]))
        self._fills.append((self._surfaces[used], surface))
        return [_Frame(self._surfaces[used], len(surface) + device.spare_bytes, self._timestamp())]

    def _timestamp(self) -> int:
        timestamp = self._timestamps.pop(0) if self._timestamps else -1
        if self._codec != "vp9":
            return timestamp
        late, self._late = self._late, timestamp
        return timestamp if late is None else late


def _fill(fills: list[tuple[int, NDArray[np.uint8]]]) -> int:
    for address, surface in fills:
        ctypes.memmove(address, surface.ctypes.data, len(surface))
    return 0
