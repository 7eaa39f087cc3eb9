"""NVDEC for machines without a GPU: behaves like the decoder of PyNvVideoCodec 2.2.4, with libavcodec inside.

    session = NvdecSession(FakeNvdec(driver := FakeCudaDriver()), Cuda(driver), key)

The fake has the pitfalls of the real decoder. Surfaces are noise until their stream is synchronised, and the next call
overwrites them. Timestamps are out of order; with VP9, they are one picture late. Pictures show noise if references are
lost, or if their size changes without a call of ``setReconfigParams``. A flush discards the parameter sets. The fake
proves nothing about a driver.
"""

import ctypes
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import numpy as np
from av.codec import CodecContext
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ...actors.bitstream.access_points import nal_units
from ...actors.bitstream.packet_headers import base_sequence_sets
from ...actors.decode.nvdec_support import CODECS
from ...actors.surfaces.formats import surface_format
from .fake_cuda import CONTEXT, NOISE, FakeCudaDriver
from .surface_decoder import surface_of

_IN_PACKET_ORDER: Final = frozenset({"vp8", "vp9", "av1"})
_DECODERS: Final = {"av1": "libdav1d"}
"""Decoders for codecs whose default decoder in FFmpeg needs hardware."""


class FakeNvCodecError(Exception):
    """Replaces PyNvVCException."""


class _Latency(IntEnum):
    """``DisplayDecodeLatencyType``."""

    NATIVE = 0
    LOW = 1
    ZERO = 2


class _PacketFlag(IntEnum):
    """The flags of ``VideoPacketFlag`` that codecfleet uses."""

    ENDOFPICTURE = 8


@dataclass
class _PacketData:
    """``PacketData``: the size, address, time and flags of a packet."""

    bsl: int = 0
    bsl_data: int = 0
    pts: int = 0
    decode_flag: int = 0


@dataclass
class FakeNvdec:
    """The part of ``PyNvVideoCodec`` with the decoder."""

    driver: FakeCudaDriver
    supported: frozenset[str] = frozenset(CODECS)  # the codecs that the device decodes, under FFmpeg's names
    sides: tuple[int, int] = (48, 8192)  # the smallest and the largest side of a picture
    caps_code: int = 0  # the error code of capability queries; 0 for success
    left_out: frozenset[int] = frozenset()  # which pictures are never returned, by their numbers over all sessions
    spare_bytes: int = 0  # by how much each frame overstates its size
    sei_messages: tuple[tuple[int, bytes], ...] = ()  # the (type, payload) pairs of every picture
    statistics: dict[str, list[int]] | None = None  # decode statistics of each picture; None if the driver has none
    options: list[dict[str, object]] = field(default_factory=list)  # the options with which each decoder was made
    pictures: int = 0  # how many pictures all decoders have decoded
    wrong_pictures: int = 0  # how many pictures the device reports as wrong
    decoders_made: int = 0
    caps_asked: list[tuple[int, int, int]] = field(default_factory=list)  # the capability queries

    cudaVideoCodec: Callable[[int], int] = int
    cudaVideoChromaFormat: Callable[[int], int] = int
    PacketData: type[_PacketData] = _PacketData
    DisplayDecodeLatencyType: type[_Latency] = _Latency
    VideoPacketFlag: type[_PacketFlag] = _PacketFlag

    def GetDecoderCaps(self, *, gpuid: int, codec: int, chromaformat: int, bitdepth: int) -> dict[str, int]:
        self.caps_asked.append((codec, chromaformat, bitdepth))
        _raise(self.caps_code, "cuvidGetDecoderCaps")
        supported = gpuid == 0 and _codec_name(codec) in self.supported
        least, most = self.sides if supported else (0, 0)
        sides = {f"{name}_{end}": side for name in ("width", "height") for end, side in (("min", least), ("max", most))}
        return {"supported": int(supported), "num_decoder_engines": 7 * supported, **sides}

    def CreateDecoder(
        self,
        *,
        gpuid: int,
        codec: int,
        cudacontext: int,
        cudastream: int,
        usedevicememory: bool,
        maxwidth: int = 0,
        maxheight: int = 0,
        latency: int = _Latency.NATIVE,
        enableSEIMessage: bool = False,
        enableDecodeStats: bool = False,
    ) -> "_Decoder":
        if gpuid or cudacontext != CONTEXT or cudastream not in self.driver.streams or not usedevicememory:
            raise ValueError(gpuid, cudacontext, cudastream, usedevicememory)
        self.decoders_made += 1
        most = maxwidth, maxheight
        self.options.append(
            {"most": most, "latency": latency, "sei": enableSEIMessage, "statistics": enableDecodeStats}
        )
        notes = self.sei_messages if enableSEIMessage else (), self.statistics if enableDecodeStats else None
        return _Decoder(self, cudastream, _codec_name(codec), most, _Latency(latency), notes)


def _raise(code: int, what: str) -> None:
    if code:
        raise FakeNvCodecError(f"{what} : \nError code : {code}\nError Type : CUDA_ERROR\nat NvDecoder.cpp:231")


def _codec_name(number: int) -> str:
    return next(name for name, known in CODECS.items() if known == number)


@dataclass
class _Frame:
    address: int
    size_bytes: int
    timestamp: int
    sei_messages: tuple[tuple[int, bytes], ...] = ()
    statistics: dict[str, list[int]] | None = None

    @property
    def decode_stats_size(self) -> int:
        return 0 if self.statistics is None else 4 * sum(map(len, self.statistics.values()))

    def getSEIMessage(self) -> list[tuple[dict[str, int], list[int]]]:
        return [({"sei_type": kind, "sei_uncompressed": 0}, list(payload)) for kind, payload in self.sei_messages]

    def ParseDecodeStats(self) -> dict[str, list[int]]:
        return self.statistics or {key: [] for key in ("qp_luma", "cu_type", "mv0_x", "mv0_y", "mv1_x", "mv1_y")}

    def GetPtrToPlane(self, plane: int) -> int:
        if plane:
            raise ValueError(plane)
        return self.address

    def framesize(self) -> int:
        return self.size_bytes

    def getPTS(self) -> int:
        """Return a timestamp, which may belong to another picture."""
        return self.timestamp


@dataclass(eq=False)
class _Decoder:
    """A decoder whose surfaces stay valid until its next call."""

    _device: FakeNvdec
    _stream: int
    _codec: str
    _most: tuple[int, int]
    _latency: _Latency
    _notes: tuple[tuple[tuple[int, bytes], ...], dict[str, list[int]] | None]

    def __post_init__(self) -> None:
        self._size: tuple[int, int] | None = None
        self._wanted: tuple[int, int] | None = None
        self._sequence: bytes | None = None
        self._is_too_small = False
        self._surfaces: list[int] = []
        self._fills: list[tuple[int, NDArray[np.uint8]]] = []
        self._begin()

    def __del__(self) -> None:
        self._forget_surfaces()

    def Decode(self, packet: _PacketData) -> list[_Frame]:
        _raise(0 if self._codec in self._device.supported else 801, "HandleVideoSequence")
        overwritten = list(self._surfaces)
        self._device.driver.put(self._stream, lambda: self._overwrite(overwritten))
        self._fills.clear()
        frames = [frame for surface in self._shown(packet) for frame in self._frame(surface)]
        fills = list(self._fills)
        self._device.driver.put(self._stream, lambda: self._fill(fills))
        if not packet.bsl:
            self._begin()
        return frames

    def setReconfigParams(self, width: int, height: int) -> int:
        """Set the size to which the decoder adapts at the next change.

        Raises ``FakeNvCodecError`` if the decoder has begun, and the size exceeds the decoder's maximum.
        """
        if self._size is not None and (width > self._most[0] or height > self._most[1]):
            raise FakeNvCodecError("Resize dimensions must be lower than max width and height")
        self._wanted = width, height
        self._forget_surfaces()
        return 1

    def _overwrite(self, surfaces: list[int]) -> int:
        for address in surfaces:
            ctypes.memset(address, NOISE, len(self._device.driver.memory[address]))
        return 0

    def _fill(self, fills: list[tuple[int, NDArray[np.uint8]]]) -> int:
        return next((code for code in [self._device.driver.write(*each) for each in fills] if code), 0)

    def _forget_surfaces(self) -> None:
        for address in self._surfaces:
            self._device.driver.forget(address)
        self._surfaces.clear()

    def _begin(self) -> None:
        context = CodecContext.create(_DECODERS.get(self._codec, self._codec), "r")
        if not isinstance(context, VideoCodecContext):
            raise TypeError(self._codec)
        context.thread_count = 1
        self._context = context
        self._fed: list[int] = []
        self._timestamps: list[int] = []
        self._late: int | None = None

    def _shown(self, packet: _PacketData) -> list[NDArray[np.uint8]]:
        """Return the surfaces to show, with noise for packets that cannot be decoded."""
        if packet.bsl:
            insort(self._fed, packet.pts)
            insort(self._timestamps, packet.pts)
            coded = Packet(packet.bsl)  # padded, because libavcodec reads past the end of a packet
            coded.update(ctypes.string_at(packet.bsl_data, packet.bsl))
            self._look_at(bytes(coded))
            coded.pts = packet.pts
            pictures = self._context.decode(coded)
        else:
            pictures = self._context.decode(None)
        surfaces = []
        for picture in pictures:
            surface = self._surface(picture)
            surfaces += [np.full_like(surface, NOISE)] * self._lost_before(picture.pts)
            surfaces.append(np.full_like(surface, NOISE) if self._is_too_small else surface)
        return surfaces

    def _look_at(self, coded: bytes) -> None:
        """Note a sequence that differs from the first one, because the decoder has only the first one's surfaces."""
        if self._codec not in ("h264", "hevc"):
            return
        hevc = self._codec == "hevc"
        sets = [unit for unit in nal_units(coded) if base_sequence_sets([unit], hevc=hevc)]
        if not sets:
            return
        # The packet's last sequence parameter set counts; the fake does not compare their numbers.
        stated = sets[-1]
        if self._sequence is None or self._wanted is not None:
            self._sequence, self._is_too_small = stated, False
        self._is_too_small = self._is_too_small or stated != self._sequence

    def _lost_before(self, pts: int | None) -> int:
        """Return how many earlier packets gave no picture although each packet should have given one."""
        if self._codec in _IN_PACKET_ORDER or pts is None:
            return 0
        place = self._fed.index(pts)
        self._fed = self._fed[place + 1 :]
        return place

    def _surface(self, picture: VideoFrame) -> NDArray[np.uint8]:
        format_ = surface_format(picture.format.name)
        if format_ is None:
            raise FakeNvCodecError(picture.format.name)
        size = picture.width, picture.height
        if self._size is None or (self._wanted is not None and size != self._size):
            self._size, self._wanted = self._wanted or size, None
        if size != self._size:
            return np.full(format_.size_bytes(*self._size), NOISE, dtype=np.uint8)
        return surface_of(picture, format_)

    def _frame(self, surface: NDArray[np.uint8]) -> list[_Frame]:
        number, device = self._device.pictures, self._device
        device.pictures += 1
        if number in device.left_out:
            return []
        used = len(self._fills)
        if used == len(self._surfaces):
            self._surfaces.append(int(device.driver.cuMemAlloc(len(surface))[1]))
        self._fills.append((self._surfaces[used], surface))
        return [_Frame(self._surfaces[used], len(surface) + device.spare_bytes, self._timestamp(), *self._notes)]

    def _timestamp(self) -> int:
        if self._latency is _Latency.ZERO:
            return 0
        timestamp = self._timestamps.pop(0) if self._timestamps else -1
        if self._codec != "vp9":
            return timestamp
        late, self._late = self._late, timestamp
        return timestamp if late is None else late
