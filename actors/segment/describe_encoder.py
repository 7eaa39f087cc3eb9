"""Asks a worker's GPU for its encoder's capabilities, before a track is planned for it."""

from dataclasses import dataclass

from ...errors import EngineUnfit
from ..device.work import Work, WorkContext
from ..encode.settings import Codec
from ..settle.nvenc import EncoderCapabilities


@dataclass(frozen=True, slots=True)
class EncoderOffer:
    """A device's encoder: its capabilities, the version of its package, and whether the device converts pictures."""

    capabilities: EncoderCapabilities
    package: str
    converts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeEncoder(Work[EncoderOffer]):
    """Ask the driver for the capabilities of the encoder for ``codec``."""

    codec: Codec

    def run(self, context: WorkContext) -> EncoderOffer:
        """Raise ``EngineUnfit`` without such an encoder, and ``DeviceError`` if the driver fails."""
        device = context.device
        if device is None:
            raise EngineUnfit(f"this worker has no GPU to encode {self.codec} on", "Use --encoder software.")
        return EncoderOffer(device.encoder_capabilities(self.codec), device.encoder_package(), device.converts())
