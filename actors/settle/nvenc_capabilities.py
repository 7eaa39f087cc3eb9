"""What the NVENC of one device can do, as reported by the driver, and whether that is enough for an encoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ...errors import EngineUnfit
from ..encode.nvenc_settings import NvencSettings, RateMode, TuningInfo
from ..encode.settings import Codec
from ..surfaces.formats import SurfaceFormat

_RATE_MODE_BITS: Final = {RateMode.VBR: 1, RateMode.CBR: 2}
"""NV_ENC_PARAMS_RC_MODE, as in NV_ENC_CAPS_SUPPORTED_RATECONTROL_MODES; constqp is 0, and always supported."""
SOFTWARE_STEP: Final = "Use other settings, another GPU, or a software encoder."


@dataclass(frozen=True, slots=True)
class EncoderCapabilities:
    """What one device's NVENC can do with one codec: the driver's NV_ENC_CAPS, by the package's names."""

    codec: Codec
    values: Mapping[str, int]

    def has(self, name: str) -> bool:
        """Return whether the device has a capability; one that this build of the package does not name is missing."""
        return bool(self.values.get(f"support_{name}", 0))

    def most(self, name: str, unknown: int) -> int:
        """Return a limit, or ``unknown`` where the package does not name it."""
        return int(self.values.get(name, unknown))

    @property
    def engines(self) -> int:
        """How many NVENC engines the device has, 0 if unknown."""
        return self.most("num_encoder_engines", 0)

    @property
    def b_frames_max(self) -> int:
        """How many B pictures may lie between two others."""
        return self.most("num_max_bframes", 0)

    def check(self, settings: NvencSettings, surface: SurfaceFormat, width: int, height: int) -> None:
        """Raise ``EngineUnfit``, which names what is lacking, if the device cannot encode such pictures like this."""
        least = (self.most("width_min", 1), self.most("height_min", 1))
        most = (self.most("width_max", width), self.most("height_max", height))
        if not (least[0] <= width <= most[0] and least[1] <= height <= most[1]):
            limits = f"{least[0]}x{least[1]} to {most[0]}x{most[1]}"
            message = f"this GPU's {self.codec} encoder takes {limits}, not {width}x{height}"
            raise EngineUnfit(message, "Scale with --scale, or use a software encoder.")
        lacking = [what for what, there in self._demands(settings, surface) if not there]
        if lacking:
            raise EngineUnfit(f"this GPU's {self.codec} encoder lacks {' and '.join(lacking)}", SOFTWARE_STEP)

    def _demands(self, settings: NvencSettings, surface: SurfaceFormat) -> list[tuple[str, bool]]:
        wanted = settings.bf or 0
        bit = _RATE_MODE_BITS.get(settings.rc, 0)
        modes = self.most("supported_ratecontrol_modes", bit)
        references = max(settings.numrefl0 or 0, settings.numrefl1 or 0)
        return [
            ("10-bit samples", surface.bits == 8 or self.has("10bit_encode")),  # noqa: PLR2004 - a byte
            ("4:2:2 chroma", surface.chroma != "4:2:2" or self.has("yuv422_encode")),
            ("4:4:4 chroma", surface.chroma != "4:4:4" or self.has("yuv444_encode")),
            (f"{wanted} B pictures in a row", wanted <= self.b_frames_max),
            (f"rate control {settings.rc}", modes & bit == bit),
            ("look-ahead", not settings.lookahead or self.has("lookahead")),
            ("temporal adaptive quantization", not settings.temporalaq or self.has("temporal_aq")),
            ("several reference pictures", references <= 1 or self.has("multiple_ref_frames")),
            ("a decoder buffer of chosen size", settings.vbvbufsize is None or self.has("custom_vbv_buf_size")),
            ("lossless coding", settings.tuning_info is not TuningInfo.LOSSLESS or self.has("lossless_encode")),
        ]
