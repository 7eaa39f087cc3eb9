"""What a device's NVDEC can decode, as its driver says."""

import threading
from typing import Any, Final

from ...decode.nvdec_support import CODECS
from ..cuda.context import Cuda
from .session import SessionKey, mapped

_CHROMA: Final = {"4:2:0": 1, "4:2:2": 2, "4:4:4": 3}
"""By the numbers of ``cudaVideoChromaFormat``."""


class NvdecCapabilities:
    """What the device's NVDEC can: asked once for each codec, sampling and depth, since asking makes a context."""

    def __init__(self, module: Any, cuda: Cuda) -> None:
        self._module = module
        self._cuda = cuda
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str, int], dict[str, int]] = {}

    def unsupported_reason(self, key: SessionKey) -> str:
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
        except Exception as error:
            raise mapped(error, "NVDEC does not say what it can") from error
        return caps
