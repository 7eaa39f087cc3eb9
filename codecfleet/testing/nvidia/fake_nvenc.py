"""PyNvVideoCodec's encoder for machines without a GPU: a software encoder behind the interface of NVENC.

    session = NvencSession(NvencDevice(FakeNvenc()), settings)

The fake accepts settings only in the spelling of the package. It returns packets three pictures late, with parameter
sets in the packets; it numbers pictures itself, and counts sessions. Messages are those of PyNvVideoCodec 2.2.4. The
fake proves nothing about NVENC.
"""

import ctypes
import weakref
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, cast

import av
import numpy as np
from av.codec.context import Flags
from av.video.frame import PictureType, VideoFrame
from numpy.typing import NDArray

from ...actors.encode.scheduling import ordinary_scheduling

if TYPE_CHECKING:
    from av.video.codeccontext import VideoCodecContext


_LATE_PICTURES: Final = 3
_OPEN: Final = "nvEncOpenEncodeSessionEx"
_OUT_OF_MEMORY: Final = 10
_FORCE_IDR: Final = 2
_IDR, _INTER = 3, 0
_MESSAGE: Final = (
    "{function} : \nm_nvenc.{function}(m_hEncoder) returned error {code}\nError code : {code}\n"
    "Error Type : NV_ENC_ERR\nat NvEncoder_130.cpp:95"
)
_KEYS: Final = frozenset(
    {
        *("gpu_id", "cudacontext", "cudastream", "codec", "preset", "tuning_info", "rc", "fps", "repeatspspps", "cq"),
        *("bitrate", "maxbitrate", "vbvbufsize", "vbvinit", "gop", "idrperiod", "bf", "numrefl0", "numrefl1", "tier"),
        *("lookahead", "aq", "constqp", "initqp", "qmax", "temporalaq", "ldkfs", "multipass"),
        *("timinginfo", "level", "global_header"),
    }
)
_CAPABILITIES: Final = {
    "num_encoder_engines": 2,
    "num_max_bframes": 4,
    "supported_ratecontrol_modes": 0x3F,
    "width_min": 16,
    "height_min": 16,
    "width_max": 4096,
    "height_max": 4096,
    **dict.fromkeys(
        (
            *("support_10bit_encode", "support_yuv444_encode", "support_yuv422_encode", "support_lookahead"),
            *("support_temporal_aq", "support_multiple_ref_frames", "support_custom_vbv_buf_size"),
            "support_lossless_encode",
        ),
        1,
    ),
}
_SOFTWARE: Final = {"h264": "libx264", "hevc": "libx265", "av1": "libsvtav1"}
_X265: Final = "pools=none:frame-threads=1:open-gop=0:info=0:log-level=none"
_FORMATS: Final = {"NV12": "yuv420p", "P010": "yuv420p10le", "YUV444": "yuv444p", "YUV444_16BIT": "yuv444p10le"}


class FakeNvencError(Exception):
    """Replaces PyNvVCException."""

    @classmethod
    def of(cls, function: str, code: int) -> "FakeNvencError":
        """Return the error for a driver function that returned ``code``."""
        return cls(_MESSAGE.format(function=function, code=code))


@dataclass
class _PictureParameters:
    inputTimeStamp: int = 0
    encodePicFlags: int = 0


_RateMode = Enum("_RateMode", "CONSTQP VBR CBR", start=0)
_Multipass = Enum("_Multipass", "DISABLED QUARTER_RESOLUTION FULL_RESOLUTION", start=0)


@dataclass
class _Reconfigure:
    """structEncodeReconfigureParams."""

    rateControlMode: _RateMode = _RateMode.VBR
    multiPass: _Multipass = _Multipass.DISABLED
    averageBitrate: int = 0
    maxBitRate: int = 0
    vbvBufferSize: int = 0
    vbvInitialDelay: int = 0
    frameRateNum: int = 30
    frameRateDen: int = 1
    targetQuality: int = 0


@dataclass
class FakeNvenc:
    """The part of ``PyNvVideoCodec`` with the encoder, for one GPU."""

    # For each codec, the capabilities in which this GPU differs from a capable one.
    capabilities: dict[str, dict[str, int]] = field(
        default_factory=lambda: {name: dict[str, int]() for name in _SOFTWARE}
    )
    sessions_max: int = 1000  # how many encoders may be open at the same time
    faults: dict[str, int] = field(default_factory=dict)  # the status of each driver function that fails
    swallow: frozenset[int] = frozenset()  # which packets are never returned, by number
    swapped: frozenset[int] = frozenset()  # which packets are returned only after the next one, by number
    made: list[dict[str, Any]] = field(default_factory=list)  # the arguments of every encoder
    asked: list[str] = field(default_factory=list)  # the codecs whose capabilities were queried
    reconfigured: list[_Reconfigure] = field(default_factory=list)  # every new set of rates
    # The pictures that came with messages, as (number, messages).
    sei_messages: list[tuple[int, list[tuple[dict[str, int], list[int]]]]] = field(default_factory=list)
    open_sessions: int = 0

    __version__ = "2.2.4"
    NV_ENC_PIC_PARAMS: type[_PictureParameters] = _PictureParameters

    def GetEncoderCaps(self, gpuid: int, codec: str) -> dict[str, int]:
        self.fail(_OPEN)
        self.asked.append(codec)
        if codec not in self.capabilities or gpuid:
            return {}
        return _CAPABILITIES | self.capabilities[codec]

    def CreateEncoder(self, width: int, height: int, fmt: str, usecpuinputbuffer: bool, **settings: Any) -> "_Encoder":
        """Return an encoder. The fake is stricter than the package, which ignores unknown keys.

        Raises ``FakeNvencError``: there is no encoder, or too many are open; ``TypeError``: the package has no such
        setting.
        """
        if unknown := settings.keys() - _KEYS:
            raise TypeError(sorted(unknown))
        self.fail(_OPEN)
        if self.open_sessions >= self.sessions_max:
            raise FakeNvencError.of(_OPEN, _OUT_OF_MEMORY)
        self.fail("nvEncInitializeEncoder")
        self.made.append({"width": width, "height": height, "fmt": fmt, "from_host": usecpuinputbuffer, **settings})
        encoder = _Encoder(self, width, height, fmt, settings)
        self.open_sessions += 1
        weakref.finalize(encoder, self._close)
        return encoder

    def fail(self, function: str) -> None:
        """Raise the fault that a test has set for a driver function, if any."""
        if function in self.faults:
            raise FakeNvencError.of(function, self.faults[function])

    def _close(self) -> None:
        self.open_sessions -= 1


class _Encoder:
    def __init__(self, device: FakeNvenc, width: int, height: int, surface: str, settings: dict[str, Any]) -> None:
        self._device = device
        self._size = (width, height)
        self._surface = surface
        self._in_band = not settings.get("global_header")
        self._context = _software(settings, width, height, _FORMATS[surface])
        self._av1 = settings["codec"] == "av1"
        self._sequence = bytes(self._context.extradata or b"")
        self._stamps: dict[int, int] = {}
        self._late: deque[tuple[int, dict[str, Any]]] = deque()
        self._taken = self._given = 0
        rate = Fraction(settings["fps"])
        self._rates = _Reconfigure(
            rateControlMode=_RateMode[settings["rc"].upper()],
            averageBitrate=settings.get("bitrate", 0),
            maxBitRate=settings.get("maxbitrate", 0),
            vbvBufferSize=settings.get("vbvbufsize", 0),
            vbvInitialDelay=settings.get("vbvinit", 0),
            frameRateNum=rate.numerator,
            frameRateDen=rate.denominator,
            targetQuality=settings.get("cq", 0),
        )

    def GetSequenceParams(self) -> bytes:
        self._device.fail("nvEncGetSequenceParams")
        return self._sequence

    def Encode(
        self,
        frame: object,
        picParams: _PictureParameters | int,
        sei: list[tuple[dict[str, int], list[int]]] | None = None,
    ) -> list[dict[str, Any]]:
        self._device.fail("nvEncEncodePicture")
        if isinstance(picParams, int):
            picParams = _PictureParameters(self._taken, picParams)
        self._device.sei_messages += [(self._taken, sei)] if sei else []
        picture = _planar(_bytes_of(frame), self._surface, *self._size)
        picture.pts, picture.time_base = self._taken, Fraction(1, 25)
        picture.pict_type = PictureType.I if picParams.encodePicFlags & _FORCE_IDR else PictureType.NONE
        self._stamps[self._taken] = picParams.inputTimeStamp
        self._taken += 1
        self._collect(picture)
        return self._ready(self._taken - _LATE_PICTURES)

    def EndEncode(self) -> list[dict[str, Any]]:
        self._device.fail("nvEncLockBitstream")
        self._collect(None)
        return self._ready(self._taken + 1)

    def GetEncodeReconfigureParams(self) -> _Reconfigure:
        """Return the initial settings of the encoder, even after changes, as the package does."""
        return _Reconfigure(**vars(self._rates))

    def Reconfigure(self, wanted: _Reconfigure) -> bool:
        self._device.fail("nvEncReconfigureEncoder")
        self._device.reconfigured.append(wanted)
        return True

    def _collect(self, picture: VideoFrame | None) -> None:
        for packet in self._context.encode(picture):
            data = bytes(packet)
            if packet.is_keyframe and not self._av1 and self._in_band:
                data = self._sequence + data
            kind = _IDR if packet.is_keyframe else _INTER
            entry = {"data": data, "timestamp": self._stamps[packet.pts or 0], "picture_type": kind}
            place = len(self._late) - (self._given - 1 in self._device.swapped)
            if self._given not in self._device.swallow:
                self._late.insert(place, (self._given, entry))
            self._given += 1

    def _ready(self, before: int) -> list[dict[str, Any]]:
        ready = []
        while self._late and self._late[0][0] < before:
            ready.append(self._late.popleft()[1])
        return ready


def _software(settings: dict[str, Any], width: int, height: int, pix_fmt: str) -> "VideoCodecContext":
    context = cast("VideoCodecContext", av.CodecContext.create(_SOFTWARE[settings["codec"]], "w"))
    context.width, context.height, context.pix_fmt = width, height, pix_fmt
    context.time_base, context.framerate = Fraction(1, 25), Fraction(25)
    context.thread_count = 1
    context.flags |= int(Flags.global_header)
    # FFmpeg counts groups of pictures in 31 bits, but the driver counts in 32.
    frames_b, gop = settings.get("bf", 0), min(settings.get("gop", 250), 1 << 30)
    quality = str(settings.get("cq", 28))
    context.options = {
        "h264": {
            "preset": "veryfast",
            "bf": str(frames_b),
            "forced-idr": "1",
            "g": str(gop),
            "crf": quality,
            # Without this option, the addresses of pictures would influence the decisions of the encoder.
            "x264-params": "cpu-independent=1",
        },
        "hevc": {
            "preset": "ultrafast",
            "forced-idr": "1",
            "crf": quality,
            # x265 gets no thread pool: in a pool, its look-ahead races with a flush, which can crash x265.
            "x265-params": f"bframes={frames_b}:keyint={gop}:{_X265}",
        },
        "av1": {"preset": "10", "g": str(gop), "crf": quality, "svtav1-params": "lp=1"},
    }[settings["codec"]]
    with ordinary_scheduling():
        context.open()
    return context


def _bytes_of(frame: object) -> NDArray[np.uint8]:
    if isinstance(frame, np.ndarray):
        return frame
    parts = []
    for plane in frame.cuda():  # type: ignore[attr-defined]
        interface = plane.__cuda_array_interface__
        rows, columns, components = interface["shape"]
        size = rows * columns * components * int(interface["typestr"][2:])
        parts.append(np.frombuffer(ctypes.string_at(interface["data"][0], size), dtype=np.uint8))
    return np.concatenate(parts)


def _planar(data: NDArray[np.uint8], surface: str, width: int, height: int) -> VideoFrame:
    wide = surface in ("P010", "YUV444_16BIT")
    samples = data.view("<u2") >> 6 if wide else data
    luma = width * height
    if surface in ("NV12", "P010"):
        samples = np.concatenate([samples[:luma], samples[luma::2], samples[luma + 1 :: 2]])
    frame = VideoFrame(width, height, _FORMATS[surface])
    at = 0
    for plane in frame.planes:
        columns, size = plane.width, plane.width * plane.height
        stride = plane.line_size // samples.itemsize
        rows = np.zeros((plane.height, stride), dtype=samples.dtype)
        rows[:, :columns] = samples[at : at + size].reshape(plane.height, columns)
        plane.update(rows.tobytes())
        at += size
    return frame
