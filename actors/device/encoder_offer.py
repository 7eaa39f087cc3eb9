"""What a device's encoder can do, and the work that asks a worker for this."""

from dataclasses import dataclass

from ...errors import EngineUnfit
from ..encode.settings import Codec
from ..settle.nvenc import EncoderCapabilities
from .work import Work, WorkContext


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
        """Return the offer.

        Raises ``EngineUnfit`` if the device has no such encoder, ``DeviceError`` if the driver fails.
        """
        device = context.device
        if device is None:
            raise EngineUnfit(f"this worker has no GPU to encode {self.codec} on", "Use --encoder software.")
        return EncoderOffer(device.encoder_capabilities(self.codec), device.encoder_package(), device.converts())
