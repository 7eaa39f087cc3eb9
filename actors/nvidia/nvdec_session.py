"""One decoder session of NVDEC, kept warm: packets in, pictures in host memory out.

Making one costs 0.1 s, serialised over the whole machine (docs/nvdec.md), so a session is fed range after range for as
long as its worker lives. It belongs to one thread at a time.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NoReturn

import numpy as np
from av.video.frame import VideoFrame

from ...errors import DeviceError, EngineFailed
from .cuda import Cuda, raise_cuda
from .fitness import CODECS, SurfaceFormat
from .host_pictures import PictureFetcher
from .pinned_memory import PinnedMemory
from .unpacking import Unpacker

__all__ = ["NvdecSession", "SessionKey", "raise_mapped"]

_CODE: Final = re.compile(r"Error code\s*:\s*(\d+)")
_ADVICE: Final = "codecfleet doctor --fresh tries every codec; --device cpu does without the GPU."


@dataclass(frozen=True, slots=True)
class SessionKey:
    """What a session is made for; tracks with the same key may be fed to the same session."""

    codec: str
    pix_fmt: str
    surface: SurfaceFormat
    width: int
    height: int


class _State(Enum):
    """Edges: READY -> FEEDING -> READY ...; any -> CLOSED."""

    READY = "ready"
    """Nothing of any range is in it."""
    FEEDING = "feeding"
    CLOSED = "closed"


class NvdecSession:
    """A decoder, its stream and its page-locked memory.

    Args:
        codec_module: ``PyNvVideoCodec``, imported in a process that sees one device.
        cuda: that device's context.
        key: what it decodes.
        memory: the device's page-locked memory.
        unpacker: the device's kernel that takes surfaces apart; None lets the host do it.

    Raises:
        DeviceMemory: the device's memory does not hold another session.
        DeviceError: the driver refuses one.
    """

    def __init__(
        self,
        codec_module: Any,  # noqa: ANN401 - publishes no types
        cuda: Cuda,
        key: SessionKey,
        memory: PinnedMemory,
        unpacker: Unpacker | None,
    ) -> None:
        self.key = key
        self._module = codec_module
        self._cuda = cuda
        self._state = _State.READY
        self._size_bytes = key.surface.size_bytes(key.width, key.height)
        self._stream = cuda.stream()
        self._fetcher = PictureFetcher(
            cuda, memory, unpacker, format_=key.surface, size=(key.width, key.height), pix_fmt=key.pix_fmt
        )
        self._decoder = self._opened()

    def _opened(self) -> Any:  # noqa: ANN401 - publishes no types
        try:
            return self._module.CreateDecoder(
                gpuid=0,
                codec=self._module.cudaVideoCodec(CODECS[self.key.codec]),
                cudacontext=self._cuda.context,
                cudastream=self._stream.number,
                usedevicememory=True,
            )
        except Exception as error:  # noqa: BLE001 - the package's exceptions share no base of their own
            self._fetcher.close()
            self._stream.close()
            raise_mapped(error, "NVDEC opens no session")

    @property
    def is_clean(self) -> bool:
        """Whether another range may be fed to it: the last one was flushed."""
        return self._state is _State.READY

    def enter(self) -> None:
        """Make the calling thread one that may use it."""
        self._cuda.enter()

    def feed(self, payload: bytes, ticket: int) -> list[tuple[int, VideoFrame]]:
        """Decode one packet; return (ticket of the packet it came from, picture), in order, of those that are ready.

        Raises:
            EngineFailed, EngineUnfit, DeviceLost: by what went wrong; the session is of no more use.
        """
        self._state = _State.FEEDING
        data = np.frombuffer(payload, dtype=np.uint8)
        packet = self._module.PacketData()
        packet.bsl, packet.bsl_data, packet.pts = len(payload), data.ctypes.data, ticket
        return self._pictures(packet)

    def flush(self) -> list[tuple[int, VideoFrame]]:
        """Return the pictures that are left; the session is as good as new then."""
        pictures = self._pictures(self._module.PacketData())
        self._state = _State.READY
        return pictures

    def close(self) -> None:
        """Give everything back. Idempotent."""
        if self._state is not _State.CLOSED:
            self._state = _State.CLOSED
            self.enter()
            self._decoder = None
            self._fetcher.close()
            self._stream.close()

    def _pictures(self, packet: Any) -> list[tuple[int, VideoFrame]]:  # noqa: ANN401 - publishes no types
        try:
            frames = self._decoder.Decode(packet)
        except Exception as error:  # noqa: BLE001 - as above
            raise_mapped(error, "NVDEC broke off")
        for frame in frames:
            if frame.framesize() != self._size_bytes:
                message = f"NVDEC gave a picture of {frame.framesize()} bytes instead of {self._size_bytes}"
                raise EngineFailed(message, _ADVICE)
        if not frames:
            return []
        # The decoder fills its frames on a stream of its own, whichever it was given: ours must wait for that.
        self._decoder.WaitOnCUStream(self._stream.number)
        pictures = self._fetcher.fetch([frame.GetPtrToPlane(0) for frame in frames], self._stream)
        return [(frame.getPTS(), picture) for frame, picture in zip(frames, pictures, strict=True)]


def raise_mapped(error: Exception, what: str) -> NoReturn:
    """Raise the error of our tree for what PyNvVideoCodec raised; ours pass as they are.

    Raises:
        DeviceError: by the code in its message, where there is one.
    """
    if isinstance(error, DeviceError):
        raise error
    code = _CODE.search(str(error))
    if code is not None:
        raise_cuda(int(code[1]), what)
    message = f"{what}: {' '.join(str(error).split())[:300]}"
    raise EngineFailed(message, _ADVICE) from error
