"""PyNvVideoCodec for machines without a GPU: software answers the calls of codec trials as one kind of GPU would.

Errors have the form of real messages, as seen on one H200 (driver 580.159); the rest follows PyNvVideoCodec 2.2.4. The
fake proves nothing about a driver.
"""

import ctypes
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from codecfleet.cluster.probes.child.child import ChildEnd, ChildOutcome
from codecfleet.cluster.probes.report.tables import read_tables
from codecfleet.cluster.probes.trials.cases import (
    NVDEC_CASES,
    NVENC_CASES,
    NVENC_SURFACES,
    TRIAL_HEIGHT,
    TRIAL_WIDTH,
    Sample,
)
from codecfleet.cluster.probes.trials.gpu import trial_surface
from codecfleet.cluster.probes.trials.software import SoftwareTrials, TrialStream, decode_luma, probe_software
from codecfleet.testing.nvidia.fake_nvdec import FakeNvCodecError

_CODECS = {number: name for name, number in read_tables("trials.toml")["cuda_codecs"].items()}
_CHROMAS = ("4:0:0", "4:2:0", "4:2:2", "4:4:4")
_HOPPER = frozenset(
    [
        *(f"hevc {bits}-bit {chroma}" for bits in (8, 10, 12) for chroma in ("4:2:0", "4:4:4")),
        *(f"vp9 {bits}-bit 4:2:0" for bits in (8, 10, 12)),
        *(f"{codec} 8-bit 4:2:0" for codec in ("h264", "vp8", "mpeg2", "mpeg4", "vc1", "jpeg")),
    ]
)


@functools.cache
def software() -> SoftwareTrials:
    """Return the results of the software codecs, which are tried only once."""
    return probe_software()


def outcome_of(values: Iterable[Any], deadly: Mapping[str, ChildOutcome]) -> ChildOutcome:
    """Take the values of a probe until one of the ``deadly`` cases ends its "process"."""
    taken: list[Any] = []
    for value in values:
        taken.append(value)
        if isinstance(value, str) and value in deadly:
            return replace(deadly[value], values=tuple(taken))
    return ChildOutcome(ChildEnd.RETURNED, tuple(taken))


def _encode_error(code: int) -> FakeNvCodecError:
    opening = f"NvEncoder : nvEncOpenEncodeSessionEx(&params, &encoder) returned error {code}"
    return FakeNvCodecError(f"{opening}\nError code : {code}\nError Type : NV_ENC_ERR\nat NvEncoder.cpp:95")


def _decode_error(code: int) -> FakeNvCodecError:
    text = "Codec not supported on this GPU"
    return FakeNvCodecError(f"HandleVideoSequence : \nError code : {code}\nError Type : {text}\nat NvDecoder.cpp:231")


@dataclass
class _Packet:
    bsl: int = 0
    bsl_data: int = 0


@dataclass
class FakeNvCodec:
    """A visible device. Samples have names, such as ``hevc 10-bit 4:2:0``."""

    decodes: frozenset[str]
    encodes: frozenset[str] = frozenset()
    decoder_engines: int = 1
    encoder_engines: int = 0
    encoder_code: int = 0  # the return code of opening an encoder; 0 for success
    # for each sample, the code with which the creation of its decoder fails
    decode_faults: dict[str, int] = field(default_factory=dict)
    spoiled: frozenset[str] = frozenset()  # samples whose pictures are wrong
    streams: dict[str, TrialStream] = field(default_factory=dict)  # the packets that the encoder returns
    decoders_made: int = 0

    cudaVideoCodec: Callable[[int], int] = int
    cudaVideoChromaFormat: Callable[[int], int] = int
    PacketData: type[_Packet] = _Packet

    @classmethod
    def h200(cls) -> Self:
        """Return a GPU with seven decoders of Turing's generation and no encoder."""
        return cls(decodes=_HOPPER, decoder_engines=7, encoder_code=2)

    def GetDecoderCaps(self, gpuid: int, codec: int, chromaformat: int, bitdepth: int) -> dict[str, int]:
        name = f"{_CODECS[codec]} {bitdepth}-bit {_CHROMAS[chromaformat]}"
        supported = int(name in self.decodes and gpuid == 0)
        size = {"width_max": 8192 * supported, "height_max": 8192 * supported}
        return {"supported": supported, "num_decoder_engines": self.decoder_engines * supported, **size}

    def CreateDecoder(self, gpuid: int, codec: int, usedevicememory: bool) -> "_Decoder":
        assert not gpuid
        assert not usedevicememory
        self.decoders_made += 1
        return _Decoder(self, codec)

    def GetEncoderCaps(self, gpuid: int, codec: str) -> dict[str, int]:
        self._open_encoder()
        names = " ".join(name for name in self.encodes if name.startswith(f"{codec} "))
        if not names or gpuid:
            return {}
        kinds = {"10bit": "10-bit", "yuv444": "4:4:4", "yuv422": "4:2:2"}
        supports = {f"support_{key}_encode": int(kind in names) for key, kind in kinds.items()}
        return {"num_encoder_engines": self.encoder_engines, "width_max": 4096, "height_max": 4096, **supports}

    def CreateEncoder(
        self, width: int, height: int, fmt: str, usecpuinputbuffer: bool, *, codec: str, gpu_id: int, bf: int
    ) -> "_Encoder":
        self._open_encoder()
        assert (width, height, usecpuinputbuffer, gpu_id, bf) == (TRIAL_WIDTH, TRIAL_HEIGHT, True, 0, 0)
        for sample in NVENC_CASES:
            surface, _ = NVENC_SURFACES[sample.chroma, sample.bit_depth]
            if surface == fmt and sample.codec.value == codec and sample.name in self.encodes:
                return _Encoder(trial_surface(sample), self.streams[sample.name])
        raise _encode_error(12)

    def _open_encoder(self) -> None:
        if self.encoder_code:
            raise _encode_error(self.encoder_code)


class _Decoder:
    """Collects packets and returns their pictures when it is flushed, as NVDEC does with a single picture."""

    def __init__(self, device: FakeNvCodec, codec: int) -> None:
        self._device = device
        self._codec = codec
        self._packets: list[bytes] = []

    def Decode(self, packet: _Packet) -> list[NDArray[Any]]:
        if packet.bsl:
            self._packets.append(ctypes.string_at(packet.bsl_data, packet.bsl))
            return []
        for sample in NVDEC_CASES:
            if sample.codec.value != _CODECS[self._codec] or sample.name not in self._device.decodes:
                continue
            try:
                luma = decode_luma(sample, self._packets)
            except ValueError:
                continue  # another sample format of the same codec
            if code := self._device.decode_faults.get(sample.name):
                raise _decode_error(code)
            return [_frame(sample, luma, spoiled=sample.name in self._device.spoiled)]
        raise _decode_error(801)


def _frame(sample: Sample, luma: NDArray[np.uint16], *, spoiled: bool) -> NDArray[Any]:
    rows = np.concatenate([luma + np.uint16(spoiled), luma[: TRIAL_HEIGHT // 2]])
    return rows.astype(np.uint8) if sample.bit_depth == 8 else rows << np.uint16(16 - sample.bit_depth)


@dataclass
class _Encoder:
    expected: NDArray[np.uint8]
    stream: TrialStream

    def Encode(self, frame: NDArray[np.uint8]) -> list[dict[str, Any]]:
        """Accept a picture of exactly the right size; the real encoder reads past the end of a smaller one."""
        if not np.array_equal(frame, self.expected):
            raise _encode_error(8)
        return []

    def EndEncode(self) -> list[dict[str, Any]]:
        return [{"data": data, "timestamp": 0, "picture_type": 3} for data in self.stream.packets]
