"""One decoder session of NVDEC, kept warm: packets in, pictures out, wherever they shall lie.

Making one costs 0.1 s, serialised over the whole machine (docs/nvdec.md), so a session is fed range after range for as
long as its worker lives. It belongs to one thread at a time.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, NoReturn, TypeAlias, cast

import numpy as np

from ...errors import DeviceError, EngineFailed
from ..decoding import PictureT
from .cuda import Cuda, Stream, cuda_error
from .fitness import CODECS, SurfaceFormat
from .nvdec_options import PLAIN, Latency, NvdecOptions
from .packet_headers import CodedSequence
from .picture_notes import PictureNotes, picture_notes
from .surface_reader import SurfaceReader

__all__ = ["MakeReader", "NvdecSession", "SessionKey", "SessionPicture", "raise_mapped", "session_bytes"]

_NVDEC: Final = "NVDEC"
_CODE: Final = re.compile(r"Error code\s*:\s*(\d+)")
_ADVICE: Final = "codecfleet doctor --fresh tries every codec; --device cpu does without the GPU."


@dataclass(frozen=True, slots=True)
class SessionKey:
    """What a session is made for; tracks with the same key may be fed to the same session.

    ``sequence`` is what their pictures have in common, and compared only: a decoder has as many surfaces as its first
    stream needs, and gives wrong pictures of one of the same size that needs more (measured on an H200).
    """

    codec: str
    pix_fmt: str
    surface: SurfaceFormat
    width: int
    height: int
    options: NvdecOptions = PLAIN
    sequence: CodedSequence = field(default=frozenset(), repr=False)


_REFERENCES: Final = {"h264": 16, "hevc": 16, "av1": 9, "vp9": 9, "vp8": 4}
"""The most pictures that a stream may have its decoder keep, the one being decoded among them where it counts."""
_SPARE_SURFACES: Final = 4
_OUTPUT_SURFACES: Final = 2
_READER_PICTURES: Final = 2
"""A reader's scratch is one picture, whose rows may be padded."""
_FIXED_BYTES: Final = 56 << 20


def session_bytes(key: SessionKey) -> int:
    """Return how much of the device's memory a session and its readers are counted with: an upper estimate.

    Surfaces as the package asks for them, each of the largest picture's size, and as much more as one of 1080p was seen
    to take on an H200: 124 MiB in all.
    """
    widest, highest = key.options.largest or (0, 0)
    size = max(key.width, widest), max(key.height, highest)
    pictures = _REFERENCES[key.codec] + _SPARE_SURFACES + _OUTPUT_SURFACES + _READER_PICTURES
    return _FIXED_BYTES + pictures * key.surface.size_bytes(*size)


MakeReader: TypeAlias = Callable[[SessionKey], SurfaceReader[PictureT]]
"""Makes a reader for one session's surfaces."""


class SessionPicture(NamedTuple, Generic[PictureT]):
    """A picture as it comes out: the ticket of the packet it came from, and what was asked for beside it."""

    ticket: int
    picture: PictureT
    notes: PictureNotes | None = None


class _State(Enum):
    """Edges: READY -> FEEDING -> READY ...; any -> CLOSED."""

    READY = "ready"
    """Nothing of any range is in it."""
    FEEDING = "feeding"
    CLOSED = "closed"


class NvdecSession:
    """A decoder, its stream, and the readers that have taken its pictures away.

    Args:
        codec_module: ``PyNvVideoCodec``, imported in a process that sees one device.
        cuda: that device's context.
        key: what it decodes.
        stream: where its surfaces are read; it stays the caller's, and is open as long as the session. None opens one.

    Raises:
        DeviceMemory: the device's memory does not hold another session.
        DeviceError: the driver refuses one.
    """

    def __init__(
        self,
        codec_module: Any,  # noqa: ANN401 - publishes no types
        cuda: Cuda,
        key: SessionKey,
        stream: Stream | None = None,
    ) -> None:
        self.key = key
        self._shape = key
        self._module = codec_module
        self._cuda = cuda
        self._state = _State.READY
        self._size_bytes = key.surface.size_bytes(key.width, key.height)
        self._readers: dict[object, SurfaceReader[Any]] = {}
        self._has_own_stream = stream is None
        self._stream = cuda.stream() if stream is None else stream
        self._stream_number = self._stream.number
        self._decoder = self._opened()

    def _opened(self) -> Any:  # noqa: ANN401 - publishes no types
        try:
            with self._cuda.watch.opening(_NVDEC, "CreateDecoder"):
                return self._module.CreateDecoder(
                    gpuid=0,
                    codec=self._module.cudaVideoCodec(CODECS[self.key.codec]),
                    cudacontext=self._cuda.context,
                    cudastream=self._stream.number,
                    usedevicememory=True,
                    **self.key.options.arguments(self._module),
                )
        except Exception as error:  # noqa: BLE001 - the package's exceptions share no base of their own
            self._close_stream()
            raise_mapped(error, "NVDEC opens no session")

    @property
    def is_clean(self) -> bool:
        """Whether another range may be fed to it: the last one was flushed."""
        return self._state is _State.READY

    def enter(self) -> None:
        """Make the calling thread one that may use it."""
        self._cuda.enter()

    def prime(self, payload: bytes) -> None:
        """Decode how some range begins, for nothing: the driver opens its decoder with the first picture.

        Raises:
            DeviceError: by what went wrong; the session is of no use.
        """
        if payload:
            self._state = _State.FEEDING
            with self._cuda.watch.calling(_NVDEC, "Decode"):
                self._frames(self._packet(payload, 0))
                self._frames(self._module.PacketData())
            self._state = _State.READY

    def reader(self, make: MakeReader[PictureT]) -> SurfaceReader[PictureT]:
        """Return this session's own reader of a kind; it is made when it is wanted first, and kept."""
        if make not in self._readers:
            self._readers[make] = make(self._shape)
        return cast("SurfaceReader[PictureT]", self._readers[make])

    def serves(self, key: SessionKey) -> bool:
        """Tell whether it can be turned to ``key``: the same, or another size that is no larger than it was opened for.

        Turned to another size it is made anew by the driver, and so has the surfaces that pictures of that size need.
        """
        if (key.width, key.height) == (self._shape.width, self._shape.height):
            return key == self._shape
        here = replace(key, width=self.key.width, height=self.key.height, sequence=self.key.sequence)
        widest, highest = self.key.options.largest or (0, 0)
        return here == self.key and key.width <= widest and key.height <= highest

    def turn_to(self, key: SessionKey) -> None:
        """Have the next range's pictures be of ``key``'s size; its readers are new ones then. Only while it is clean.

        Raises:
            DeviceError: the package refuses that size.
        """
        if (key.width, key.height) == (self._shape.width, self._shape.height):
            return
        try:
            # Without it the package has NVDEC scale whatever comes to the first size, and says nothing.
            with self._cuda.watch.calling(_NVDEC, "setReconfigParams"):
                self._decoder.setReconfigParams(key.width, key.height)
        except Exception as error:  # noqa: BLE001 - the package's exceptions share no base of their own
            raise_mapped(error, "NVDEC takes no other size")
        self._shape = key
        self._size_bytes = key.surface.size_bytes(key.width, key.height)
        self._close_readers()

    def feed(self, payload: bytes, ticket: int, reader: SurfaceReader[PictureT]) -> list[SessionPicture[PictureT]]:
        """Decode one packet; return the pictures that are ready, in order.

        Raises:
            EngineFailed, EngineUnfit, DeviceLost: by what went wrong; the session is of no more use.
        """
        self._state = _State.FEEDING
        return self._pictures(self._packet(payload, ticket), reader)

    def flush(self, reader: SurfaceReader[PictureT]) -> list[SessionPicture[PictureT]]:
        """Return the pictures that are left; the session is as good as new then."""
        pictures = self._pictures(self._module.PacketData(), reader)
        self._state = _State.READY
        return pictures

    def close(self) -> None:
        """Give everything back. Idempotent."""
        if self._state is not _State.CLOSED:
            self._state = _State.CLOSED
            self.enter()
            self._decoder = None
            self._close_readers()
            self._close_stream()

    def _close_readers(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _close_stream(self) -> None:
        if self._has_own_stream:
            self._stream.close()

    def _packet(self, payload: bytes, ticket: int) -> Any:  # noqa: ANN401 - publishes no types
        packet = self._module.PacketData()
        # The address is ``payload``'s own, which whoever feeds it holds until it is decoded.
        packet.bsl_data = np.frombuffer(payload, dtype=np.uint8).__array_interface__["data"][0]
        packet.bsl, packet.pts = len(payload), ticket
        if self.key.options.latency is not Latency.NATIVE:
            packet.decode_flag = self._module.VideoPacketFlag.ENDOFPICTURE
        return packet

    def _frames(self, packet: Any) -> list[Any]:  # noqa: ANN401 - as above
        try:
            return list(self._decoder.Decode(packet))
        except Exception as error:  # noqa: BLE001 - the package's exceptions share no base of their own
            raise_mapped(error, "NVDEC broke off")

    def _await_frames(self) -> None:
        """Have our stream wait for the decoder's own, on which it fills its frames, whichever it was given."""
        try:
            self._decoder.WaitOnCUStream(self._stream_number)
        except Exception as error:  # noqa: BLE001 - as above
            raise_mapped(error, "NVDEC broke off")

    def _pictures(
        self,
        packet: Any,  # noqa: ANN401 - publishes no types
        reader: SurfaceReader[PictureT],
    ) -> list[SessionPicture[PictureT]]:
        # One watch for all that a picture takes: each call's own would cost as much as the calls.
        with self._cuda.watch.calling(_NVDEC, "decoding a picture"):
            frames = self._frames(packet)
            if not frames:
                return []
            for frame in frames:
                if frame.framesize() != self._size_bytes:
                    message = f"NVDEC gave a picture of {frame.framesize()} bytes instead of {self._size_bytes}"
                    raise EngineFailed(message, _ADVICE)
            self._await_frames()
            notes = [self._notes(frame) for frame in frames]
            pictures = reader.fetch([frame.GetPtrToPlane(0) for frame in frames], self._stream)
            return [
                SessionPicture(frame.getPTS(), picture, note)
                for frame, picture, note in zip(frames, pictures, notes, strict=True)
            ]

    def _notes(self, frame: Any) -> PictureNotes | None:  # noqa: ANN401 - publishes no types
        options = self.key.options
        return picture_notes(frame, statistics=options.statistics) if options.has_notes else None


def raise_mapped(error: Exception, what: str) -> NoReturn:
    """Raise the error of our tree for what PyNvVideoCodec raised; ours pass as they are.

    Raises:
        DeviceError: by the code in its message, where there is one.
    """
    if isinstance(error, DeviceError):
        raise error
    code = _CODE.search(str(error))
    if code is not None:
        raise cuda_error(int(code[1]), f"{what}:") from error
    message = f"{what}: {' '.join(str(error).split())[:300]}"
    raise EngineFailed(message, _ADVICE) from error
