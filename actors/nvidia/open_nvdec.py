"""Opening this process's NVDEC, once, when it is wanted first."""

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from ...errors import DeviceError, EngineUnfit
from ..decoding import DecodeTally, PictureDecoder
from .cuda import Cuda
from .fitness import CODECS
from .nvdec_decoder import NvdecDecoder
from .nvdec_pool import NvdecPool
from .nvdec_session import NvdecSession, SessionKey, raise_mapped
from .pinned_memory import PinnedMemory
from .spoken_errors import SpokenErrors
from .unpacking import open_unpacker

if TYPE_CHECKING:
    from ..decoding import VideoPacket

__all__ = ["DeviceDecoder", "open_nvdec"]

IDLE_SESSIONS: Final = 32
"""How many idle sessions a worker keeps: more than one GPU's engines can use at once."""
SWITCH_INTERVAL_S: Final = 1e-4
"""A dozen threads hand the interpreter to each other thousands of times a second: Python's 5 ms costs a quarter."""
_CHROMA: Final = {"4:2:0": 1, "4:2:2": 2, "4:4:4": 3}
"""By the numbers of ``cudaVideoChromaFormat``."""
_MEND: Final = 'pip install "codecfleet[nvidia]"; codecfleet doctor says what else is missing.'


class DeviceDecoder(PictureDecoder):
    """NVDEC of the one device that this process sees; opened by the first who decodes, who learns if that fails.

    Args:
        open_: opens it.
    """

    name = NvdecDecoder.name

    def __init__(self, open_: "Callable[[], NvdecDecoder] | None" = None) -> None:
        self._open = open_ or open_nvdec
        self._lock = threading.Lock()
        self._opened: NvdecDecoder | None = None
        self._refusal = ""

    def decode(
        self, stream: VideoStream, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, VideoFrame]]:
        """Yield the pictures of a range.

        Raises:
            EngineUnfit: NVDEC cannot be used here, or may not decode this track.
            DeviceError: whatever ``NvdecDecoder.decode`` raises.
        """
        return self._nvdec().decode(stream, packets, tally)

    def warm_up(self) -> None:
        """Open it now, in a thread, so that the first range does not wait for packages, context and kernel."""
        threading.Thread(target=self._tried, name="codecfleet-nvdec", daemon=True).start()

    def _tried(self) -> None:
        with suppress(DeviceError):  # whoever decodes first hears of it
            self._nvdec()

    def _nvdec(self) -> NvdecDecoder:
        with self._lock:
            if self._refusal:
                raise EngineUnfit(self._refusal, _MEND)
            if self._opened is None:
                try:
                    self._opened = self._open()
                except EngineUnfit as error:
                    self._refusal = error.message
                    raise
            return self._opened


def open_nvdec() -> NvdecDecoder:
    """Open NVDEC of the one device that CUDA_VISIBLE_DEVICES leaves; standard output is listened to from now on.

    Raises:
        EngineUnfit: a package is missing, or does not load with this driver.
        DeviceError: the driver gives no context.
    """
    # Before CUDA starts. With the default of 8, a dozen sessions' streams wait behind each other in shared queues.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    cuda = Cuda(_imported("cuda.bindings.driver", "cuda-python"))
    module = _imported("PyNvVideoCodec", "PyNvVideoCodec")
    memory, unpacker = PinnedMemory(cuda), open_unpacker(cuda)
    pool = NvdecPool(lambda key: NvdecSession(module, cuda, key, memory, unpacker), IDLE_SESSIONS)
    return NvdecDecoder(pool, _Capabilities(module, cuda).objection, SpokenErrors().count)


def _imported(module: str, package: str) -> Any:  # noqa: ANN401 - modules that publish no types
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError) as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        message = f"{package} cannot be used here: {reason}"
        raise EngineUnfit(message, _MEND) from error


class _Capabilities:
    """What the device's NVDEC can: asked once for each codec, sampling and depth, since asking makes a context."""

    def __init__(self, module: Any, cuda: Cuda) -> None:  # noqa: ANN401 - publishes no types
        self._module = module
        self._cuda = cuda
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str, int], dict[str, int]] = {}

    def objection(self, key: SessionKey) -> str:
        """Return why the device does not decode such a track; "" where it does."""
        surface = key.surface
        caps = self._caps(key.codec, surface.chroma, surface.bits)
        if not caps.get("supported"):
            return f"this GPU's NVDEC decodes no {key.codec} {surface.chroma} with {surface.bits} bits"
        sides = ((key.width, "width"), (key.height, "height"))
        if all(caps[f"{name}_min"] <= side <= caps[f"{name}_max"] for side, name in sides):
            return ""
        least, most = (f"{caps[f'width_{end}']}x{caps[f'height_{end}']}" for end in ("min", "max"))
        return f"this GPU's NVDEC decodes {key.codec} from {least} to {most}, not {key.width}x{key.height}"

    def _caps(self, codec: str, chroma: str, bits: int) -> dict[str, int]:
        with self._lock:
            asked = (codec, chroma, bits)
            if asked not in self._known:
                self._known[asked] = self._ask(codec, chroma, bits)
            return self._known[asked]

    def _ask(self, codec: str, chroma: str, bits: int) -> dict[str, int]:
        self._cuda.enter()
        try:
            caps: dict[str, int] = self._module.GetDecoderCaps(
                gpuid=0,
                codec=self._module.cudaVideoCodec(CODECS[codec]),
                chromaformat=self._module.cudaVideoChromaFormat(_CHROMA[chroma]),
                bitdepth=bits,
            )
        except Exception as error:  # noqa: BLE001 - the package's exceptions share no base of their own
            raise_mapped(error, "NVDEC does not say what it can")
        return caps
