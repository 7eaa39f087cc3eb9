"""Asking a worker's GPU what its encoder can do, before a track is bound to it."""

from dataclasses import dataclass

from ...errors import EngineUnfit
from ..device.work import Work, WorkContext
from ..encode.settings import Codec
from ..settle.nvenc_capabilities import EncoderCapabilities

__all__ = ["DescribeEncoder", "EncoderOffer"]


@dataclass(frozen=True, slots=True)
class EncoderOffer:
    """What a device's encoder can do, the version of the package that drives it, and whether the device converts."""

    capabilities: EncoderCapabilities
    package: str
    converts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeEncoder(Work[EncoderOffer]):
    """Ask the driver what the encoder for ``codec`` can do."""

    codec: Codec

    def run(self, context: WorkContext) -> EncoderOffer:
        """Ask.

        Raises:
            EngineUnfit: there is no GPU, no encoder, or none for this codec.
            DeviceError: the driver failed.
        """
        if context.device is None:
            message = f"this worker has no GPU to encode {self.codec} on"
            raise EngineUnfit(message, "Use --encoder software.")
        device = context.device
        return EncoderOffer(device.encoder_capabilities(self.codec), device.encoder_package(), device.converts())
