"""One warm decoder session of NVDEC: packets in, pictures out, on the host or the device.

Used by one thread at a time. Making a session takes 0.1 s, during which the machine makes no other session
(docs/nvdec.md), so a session decodes one range after another.
"""

import ctypes
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeAlias, cast

from av.video.codeccontext import VideoCodecContext

from ....errors import DeviceError, EngineFailed, EngineUnfit
from ...bitstream.packet_headers import CodedSequence
from ...decode.decoding import PictureT
from ...decode.nvdec_options import PLAIN, NvdecOptions
from ...decode.nvdec_support import CODECS
from ...media.values import SeiMessage
from ...surfaces.device_frame import DecodeStatistics, PictureNotes
from ...surfaces.formats import SurfaceFormat
from ..cuda.context import Cuda, Stream, cuda_error

_NVDEC: Final = "NVDEC"
_UNSUPPORTED: Final = "PyNvVCExceptionUnsupported"
_CODE: Final = re.compile(r"Error code\s*:\s*(\d+)")
_ADVICE: Final = "Try every codec with codecfleet doctor --fresh, or use --device cpu."

_address_of: Final = ctypes.PyDLL(None)["PyBytes_AsString"]
"""Returns the address of an object's bytes, in an eighth of the time that NumPy takes."""
_address_of.restype, _address_of.argtypes = ctypes.c_void_p, (ctypes.py_object,)


@dataclass(frozen=True, slots=True)
class SessionKey:
    """The properties that a session is made for; tracks with the same key may share a session.

    ``sequence``, the pictures' parameters, is part of the key, because a decoder has only as many surfaces as its first
    stream needs. For a stream of the same size that needs more, it returns wrong pictures (measured on an H200).
    """

    codec: str
    pix_fmt: str
    surface: SurfaceFormat
    width: int
    height: int
    options: NvdecOptions = PLAIN
    sequence: CodedSequence = field(default=frozenset(), repr=False)


_REFERENCES: Final = {"h264": 16, "hevc": 16, "av1": 9, "vp9": 9, "vp8": 4}
"""The most pictures that a stream's decoder must keep, including the one being decoded if it takes a surface."""
_SPARE_SURFACES: Final = 4
_OUTPUT_SURFACES: Final = 2
_AHEAD_PICTURES, _AHEAD_BYTES = 8, 16 << 20
"""The most pictures, and the most bytes, that are decoded before a wait. Each wait releases the GIL, for which a dozen
threads queue, so several small pictures share one wait.
"""
_READER_PICTURES: Final = 2
"""An upper bound of a reader's memory, in pictures: its scratch memory is one picture, whose rows may be padded."""
_FIXED_BYTES: Final = 56 << 20


def session_bytes(key: SessionKey) -> int:
    """Return an upper estimate of a session's device memory, readers included: surfaces, plus 124 MiB (on an H200)."""
    widest, highest = key.options.largest or (0, 0)
    size = max(key.width, widest), max(key.height, highest)
    pictures = _REFERENCES[key.codec] + _SPARE_SURFACES + _OUTPUT_SURFACES + _READER_PICTURES
    return _FIXED_BYTES + pictures * key.surface.size_bytes(*size)


class SurfaceReader(ABC, Generic[PictureT]):
    """Makes pictures from one session's surfaces. Used by one thread at a time."""

    @abstractmethod
    def begin(self, surface: int, stream: Stream) -> Callable[[], PictureT]:
        """Begin to read a surface; return a function that returns the picture once the stream is done.

        Keep the function until then, because it owns the picture's memory. ``DeviceError`` if the driver refuses.
        """

    def apply_colour(self, picture: PictureT, context: VideoCodecContext) -> None:
        """Set the properties of a picture, besides its samples, that a software decoder would set."""

    @abstractmethod
    def close(self) -> None:
        """Free the reader's memory; pictures in use keep their memory. Idempotent."""


MakeReader: TypeAlias = Callable[[SessionKey], SurfaceReader[PictureT]]
"""Makes the object that copies pictures out of the surfaces of one session."""


class _Begun(NamedTuple, Generic[PictureT]):
    """A picture that ``picture()`` returns when the stream is done."""

    picture: Callable[[], PictureT]
    notes: PictureNotes | None


class _State(Enum):
    """The state of a decoder session. Edges: READY -> FEEDING -> READY ...; any -> CLOSED."""

    READY = "ready"
    """The session holds no data of a range."""
    FEEDING = "feeding"
    CLOSED = "closed"


class NvdecSession:
    """A ``PyNvVideoCodec`` decoder with its stream and its readers; ``DeviceError`` if the driver refuses."""

    def __init__(self, codec_module: Any, cuda: Cuda, key: SessionKey) -> None:
        self.key = key
        self._module = codec_module
        self._cuda = cuda
        self._state = _State.READY
        self._set_shape(key)
        self._has_notes = key.options.has_notes
        self._readers: dict[object, SurfaceReader[Any]] = {}
        self._begun: list[_Begun[Any]] = []
        self._filled = codec_module.PacketData()
        """Filled again for each packet, because the decoder has read it when ``Decode`` returns."""
        if key.options.keeps_coding_order:
            self._filled.decode_flag = codec_module.VideoPacketFlag.ENDOFPICTURE
        self._stream = cuda.stream()
        try:
            with cuda.entered, cuda.watch.opening(_NVDEC, "CreateDecoder"):
                self._decoder = codec_module.CreateDecoder(
                    gpuid=cuda.ordinal,
                    codec=codec_module.cudaVideoCodec(CODECS[key.codec]),
                    cudacontext=cuda.context,
                    cudastream=self._stream.number,
                    usedevicememory=True,
                    **decoder_arguments(key.options, codec_module),
                )
        except Exception as error:  # the package documents no errors
            self._stream.close()
            raise mapped(error, "NVDEC cannot open a session") from error

    @property
    def is_clean(self) -> bool:
        """Whether another range may be fed to the session, because the last range was flushed."""
        return self._state is _State.READY

    def prime(self, payload: bytes) -> None:
        """Decode a first packet and drop its picture, so that the driver opens its decoder. Close after an error."""
        if payload:
            self._state = _State.FEEDING
            with self._cuda.entered, self._cuda.watch.calling(_NVDEC, "Decode"):
                self._frames(self._packet(payload, 0))
                self._frames(self._module.PacketData())
            self._state = _State.READY

    def reader(self, make: MakeReader[PictureT]) -> SurfaceReader[PictureT]:
        """Return this session's reader of this kind, made on first use and kept."""
        if make not in self._readers:
            self._readers[make] = make(self._shape)
        return cast("SurfaceReader[PictureT]", self._readers[make])

    def serves(self, key: SessionKey) -> bool:
        """Return whether ``turn_to`` accepts ``key``.

        It accepts the session's own key, or a key of another size up to ``options.largest``.

        For another size the driver makes the decoder again, with the surfaces that this size needs. For the session's
        first or current size, only the same key is accepted.
        """
        for known in (self._shape, self.key):
            if (key.width, key.height) == (known.width, known.height):
                return key == known
        here = replace(key, width=self.key.width, height=self.key.height, sequence=self.key.sequence)
        widest, highest = self.key.options.largest or (0, 0)
        return here == self.key and key.width <= widest and key.height <= highest

    def turn_to(self, key: SessionKey) -> None:
        """Switch a clean session to the size of ``key``, with new readers; ``DeviceError`` if the package refuses."""
        if (key.width, key.height) == (self._shape.width, self._shape.height):
            return
        try:
            # Without this call the package silently scales every picture to the first size.
            with self._cuda.entered, self._cuda.watch.calling(_NVDEC, "setReconfigParams"):
                self._decoder.setReconfigParams(key.width, key.height)
        except Exception as error:  # the package documents no errors
            raise mapped(error, "NVDEC cannot change the size of its pictures") from error
        self._set_shape(key)
        self._close_readers()

    def feed(
        self,
        packets: Iterable[tuple[bytes, int]],
        reader: SurfaceReader[PictureT],
        keeps: Callable[[int], bool],
        *,
        at_once: bool = False,
    ) -> list[PictureT]:
        """Decode packets, each with its ticket; return the pictures that are now complete: none or several.

        ``keeps`` gets the ticket of each decoded picture's packet, in the pictures' order; only the surfaces for which
        ``keeps`` returns True are read. ``at_once`` waits for each picture instead of a few at a time.

        Raises:
            EngineFailed, EngineUnfit, DeviceLost: depending on the failure; then close the session.
        """
        self._state = _State.FEEDING
        found: list[PictureT] = []
        # All these packets share one watch for errors: a watch on each call would cost as much as the call.
        with self._cuda.entered, self._cuda.watch.calling(_NVDEC, "decoding a picture"):
            for payload, ticket in packets:
                self._begin(self._packet(payload, ticket), reader, keeps)
                begun = len(self._begun)
                if begun >= self._most_begun or (at_once and begun):
                    found += self._finished()
        return found

    def flush(self, reader: SurfaceReader[PictureT], keeps: Callable[[int], bool]) -> list[PictureT]:
        """Return the remaining pictures; afterwards the session is clean. Raises as ``feed`` does."""
        with self._cuda.entered, self._cuda.watch.calling(_NVDEC, "decoding the last pictures"):
            self._begin(self._module.PacketData(), reader, keeps)
            pictures: list[PictureT] = self._finished()
        self._state = _State.READY
        return pictures

    def close(self) -> None:
        """Close the decoder and its readers, and free their memory. Idempotent."""
        if self._state is not _State.CLOSED:
            self._state = _State.CLOSED
            with self._cuda.entered:
                if self._begun:
                    # Wait until the device no longer writes to the pictures' memory; if the wait fails, the device has
                    # stopped anyway.
                    with suppress(DeviceError), self._cuda.watch.calling(_NVDEC, "the last pictures"):
                        self._stream.wait()
                    self._begun.clear()
                self._decoder = None
                self._close_readers()
                self._stream.close()

    def _close_readers(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _packet(self, payload: bytes, ticket: int) -> Any:
        packet = self._filled
        packet.bsl_data = _address_of(payload)  # the caller keeps ``payload`` until it is decoded
        packet.bsl, packet.pts = len(payload), ticket
        return packet

    def _frames(self, packet: Any) -> list[Any]:
        try:
            return list(self._decoder.Decode(packet))
        except Exception as error:  # the package documents no errors
            raise mapped(error, "NVDEC failed") from error

    def _set_shape(self, key: SessionKey) -> None:
        self._shape = key
        self._size_bytes = key.surface.size_bytes(key.width, key.height)
        # In coding order each picture is returned before the next one is decoded.
        most = 1 if key.options.keeps_coding_order else _AHEAD_PICTURES
        self._most_begun = min(most, -(-_AHEAD_BYTES // self._size_bytes))

    def _begin(self, packet: Any, reader: SurfaceReader[PictureT], keeps: Callable[[int], bool]) -> None:
        """Decode a packet, and begin to read its pictures on the session's stream, before the decoder's next call."""
        for frame in self._frames(packet):
            if frame.framesize() != self._size_bytes:
                message = f"NVDEC gave a picture of {frame.framesize()} bytes instead of {self._size_bytes}"
                raise EngineFailed(message, _ADVICE)
            if not keeps(frame.getPTS()):
                continue
            notes = _notes(frame, statistics=self.key.options.statistics) if self._has_notes else None
            # This comes last: from here on the device writes to the picture's memory, so no failure may release that
            # memory.
            self._begun.append(_Begun(reader.begin(frame.GetPtrToPlane(0), self._stream), notes))

    def _finished(self) -> list[PictureT]:
        """Wait for the pictures that are being read, and return them."""
        self._stream.wait()
        begun, self._begun = self._begun, []
        found = []
        for finish, notes in begun:
            picture = finish()
            if notes is not None:
                picture.opaque = notes
            found.append(picture)
        return found


def _notes(frame: Any, *, statistics: bool) -> PictureNotes:
    messages = tuple(SeiMessage(about["sei_type"], bytes(payload)) for about, payload in frame.getSEIMessage() or ())
    return PictureNotes(messages, _statistics(frame) if statistics else None)


def _statistics(frame: Any) -> DecodeStatistics:
    if not frame.decode_stats_size:
        message = "statistics: this GPU's driver has no decode statistics; NVIDIA's driver 590 is the first with them"
        raise EngineUnfit(message, "Leave out statistics, or use a GPU with a newer driver.")
    found = frame.ParseDecodeStats()
    return DecodeStatistics(
        luma_qp=tuple(found["qp_luma"]),
        coding_units=tuple(found["cu_type"]),
        first_motion=tuple(zip(found["mv0_x"], found["mv0_y"], strict=True)),
        second_motion=tuple(zip(found["mv1_x"], found["mv1_y"], strict=True)),
    )


def mapped(error: Exception, what: str) -> DeviceError:
    """Translate an error of PyNvVideoCodec by its code, or else by its class; codecfleet's errors stay unchanged."""
    if isinstance(error, DeviceError):
        return error
    code = _CODE.search(str(error))
    if code is not None:
        return cuda_error(int(code[1]), f"{what}:")
    message = f"{what}: {' '.join(str(error).split())[:300]}"
    kind = EngineUnfit if type(error).__name__ == _UNSUPPORTED else EngineFailed
    return kind(message, _ADVICE)


def decoder_arguments(options: NvdecOptions, module: Any) -> dict[str, Any]:
    """Return the arguments of ``CreateDecoder`` that differ from its defaults."""
    found: dict[str, Any] = {}
    if options.keeps_coding_order:
        found["latency"] = getattr(module.DisplayDecodeLatencyType, options.latency.upper())
    if options.largest is not None:
        found["maxwidth"], found["maxheight"] = options.largest
    if options.sei_messages:
        found["enableSEIMessage"] = True
    if options.statistics:
        found["enableDecodeStats"] = True
    return found
