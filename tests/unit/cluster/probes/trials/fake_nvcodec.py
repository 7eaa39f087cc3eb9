"""PyNvVideoCodec for machines without a GPU: what codec trials call, answered by software as one kind of GPU would.

    nvc = FakeNvCodec.h200()
    answers = list(try_nvdec(names, streams, 10, nvc=nvc))

Errors have the real messages' shape, as one H200 gave them (driver 580.159); the rest is restated from PyNvVideoCodec
2.2.4. Nothing here proves how a driver behaves.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from codecfleet.cluster.probes.trials.cases import (
    NVDEC_CASES,
    NVENC_CASES,
    NVENC_SURFACES,
    TRIAL_HEIGHT,
    TRIAL_WIDTH,
)
from codecfleet.cluster.probes.trials.gpu import trial_surface
from codecfleet.cluster.probes.trials.software import TrialStream, decode_luma
from codecfleet.testing.nvidia.fake_nvdec import FakeNvCodecError

__all__ = ["FakeNvCodec"]

_CODECS: Final = {
    "mpeg2": 1,
    "mpeg4": 2,
    "vc1": 3,
    "h264": 4,
    "jpeg": 5,
    "hevc": 8,
    "vp8": 9,
    "vp9": 10,
    "av1": 11,
}
_CHROMAS: Final = {"4:0:0": 0, "4:2:0": 1, "4:2:2": 2, "4:4:4": 3}
_HOPPER: Final = frozenset(
    [
        *(f"hevc {bits}-bit {chroma}" for bits in (8, 10, 12) for chroma in ("4:2:0", "4:4:4")),
        *(f"vp9 {bits}-bit 4:2:0" for bits in (8, 10, 12)),
        *(f"{codec} 8-bit 4:2:0" for codec in ("h264", "vp8", "mpeg2", "mpeg4", "vc1", "jpeg")),
    ]
)
_NO_DEVICE_MESSAGE: Final = (
    "NvEncoder : nvEncOpenEncodeSessionEx(&params, &encoder) returned error {code}\nError code : {code}\n"
    "Error Type : NV_ENC_ERR\nat NvEncoder.cpp:95"
)
_DECODE_MESSAGE: Final = "HandleVideoSequence : \nError code : {code}\nError Type : {text}\nat NvDecoder.cpp:231"


@dataclass
class _Packet:
    bsl: int = 0
    bsl_data: int = 0


@dataclass
class FakeNvCodec:
    """One visible device.

    ``decodes`` and ``encodes`` are names of trial samples (``hevc 10-bit 4:2:0``). ``decode_faults`` maps a sample's
    name to the code that creating its decoder raises; ``encoder_code`` is what opening an encoder answers, 0 for
    success. ``spoiled`` are samples whose picture comes out wrong. ``streams`` are what its encoder gives.
    """

    decodes: frozenset[str]
    encodes: frozenset[str] = frozenset()
    decoder_engines: int = 1
    encoder_engines: int = 0
    encoder_code: int = 0
    decode_faults: dict[str, int] = field(default_factory=dict)
    spoiled: frozenset[str] = frozenset()
    streams: dict[str, TrialStream] = field(default_factory=dict)
    decoders_made: int = 0

    cudaVideoCodec: Callable[[int], int] = int
    cudaVideoChromaFormat: Callable[[int], int] = int
    PacketData: type[_Packet] = _Packet

    @classmethod
    def h200(cls) -> Self:
        """Return a GPU with seven decoders of Turing's kind and no encoder."""
        return cls(decodes=_HOPPER, decoder_engines=7, encoder_code=2)

    def GetDecoderCaps(self, gpuid: int, codec: int, chromaformat: int, bitdepth: int) -> dict[str, int]:
        supported = self._name(codec, chromaformat, bitdepth) in self.decodes and gpuid == 0
        size = (8192, 8192) if supported else (0, 0)
        engines = self.decoder_engines if supported else 0
        return {
            "supported": int(supported),
            "num_decoder_engines": engines,
            "width_max": size[0],
            "height_max": size[1],
        }

    def CreateDecoder(self, gpuid: int, codec: int, usedevicememory: bool) -> "_Decoder":
        if gpuid or usedevicememory:
            raise ValueError(gpuid, usedevicememory)
        self.decoders_made += 1
        return _Decoder(self, codec)

    def GetEncoderCaps(self, gpuid: int, codec: str) -> dict[str, int]:
        self._open_encoder()
        names = {name for name in self.encodes if name.startswith(f"{codec} ")}
        if not names or gpuid:
            return {}
        return {
            "num_encoder_engines": self.encoder_engines,
            "width_max": 4096,
            "height_max": 4096,
            "support_10bit_encode": int(any("10-bit" in name for name in names)),
            "support_yuv444_encode": int(any("4:4:4" in name for name in names)),
            "support_yuv422_encode": int(any("4:2:2" in name for name in names)),
        }

    def CreateEncoder(
        self,
        width: int,
        height: int,
        fmt: str,
        usecpuinputbuffer: bool,
        *,
        codec: str,
        gpu_id: int,
        bf: int,
    ) -> "_Encoder":
        """Return an encoder.

        Raises:
            FakeNvCodecError: there is none, or it does not take the format.
        """
        self._open_encoder()
        if (width, height, usecpuinputbuffer, gpu_id, bf) != (TRIAL_WIDTH, TRIAL_HEIGHT, True, 0, 0):
            raise ValueError(width, height)
        for sample in NVENC_CASES:
            surface, _ = NVENC_SURFACES[sample.chroma, sample.bit_depth]
            if surface == fmt and sample.codec.value == codec and sample.name in self.encodes:
                return _Encoder(trial_surface(sample), self.streams[sample.name])
        raise FakeNvCodecError(_NO_DEVICE_MESSAGE.format(code=12))

    def _open_encoder(self) -> None:
        if self.encoder_code:
            raise FakeNvCodecError(_NO_DEVICE_MESSAGE.format(code=self.encoder_code))

    @staticmethod
    def _name(codec: int, chroma: int, bit_depth: int) -> str:
        names = {number: name for name, number in _CODECS.items()}
        chromas = {number: name for name, number in _CHROMAS.items()}
        return f"{names[codec]} {bit_depth}-bit {chromas[chroma]}"


class _Decoder:
    """Collects packets and gives its pictures when it is flushed, as NVDEC does with one picture."""

    def __init__(self, device: FakeNvCodec, codec: int) -> None:
        self._device = device
        self._codec = codec
        self._packets: list[bytes] = []

    def Decode(self, packet: _Packet) -> list[NDArray[Any]]:
        if packet.bsl:
            self._packets.append(ctypes.string_at(packet.bsl_data, packet.bsl))
            return []
        for sample in NVDEC_CASES:
            if _CODECS[sample.codec.value] != self._codec or sample.name not in self._device.decodes:
                continue
            try:
                luma = decode_luma(sample, self._packets)
            except ValueError:
                continue  # another sample format of the same codec
            if sample.name in self._device.decode_faults:
                code = self._device.decode_faults[sample.name]
                raise FakeNvCodecError(_DECODE_MESSAGE.format(code=code, text="Codec not supported on this GPU"))
            return [_frame(luma, sample.bit_depth, spoiled=sample.name in self._device.spoiled)]
        raise FakeNvCodecError(_DECODE_MESSAGE.format(code=801, text="Codec not supported on this GPU"))


def _frame(luma: NDArray[np.uint16], bit_depth: int, *, spoiled: bool) -> NDArray[Any]:
    rows = np.concatenate([luma + np.uint16(spoiled), luma[: TRIAL_HEIGHT // 2]])
    return rows.astype(np.uint8) if bit_depth == 8 else rows << np.uint16(16 - bit_depth)


class _Encoder:
    def __init__(self, expected: NDArray[np.uint8], stream: TrialStream) -> None:
        self._expected = expected
        self._stream = stream

    def Encode(self, frame: NDArray[np.uint8]) -> list[dict[str, Any]]:
        """Take a picture of exactly the right size: the real one reads past the end of a smaller one."""
        if not np.array_equal(frame, self._expected):
            raise FakeNvCodecError(_NO_DEVICE_MESSAGE.format(code=8))
        return []

    def EndEncode(self) -> list[dict[str, Any]]:
        return [{"data": data, "timestamp": 0, "picture_type": 3} for data in self._stream.packets]
