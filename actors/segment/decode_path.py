"""The ways to a segment's pictures: who decodes them, and in whose memory they lie."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Protocol

from ...errors import EngineUnfit
from ..decode.decoding import SOFTWARE, PictureDecoder, PictureT
from ..device.interface import WorkerDevice
from ..encode.settings import EncoderSettings
from .device_chain import DeviceChain
from .filtering import FilterChain, FilterSettings
from .uploading import UploadingDecoder

__all__ = ["METADATA_IN_SOFTWARE", "DecodePath", "PictureChain", "encode_paths"]

METADATA_IN_SOFTWARE = "Dolby Vision's metadata comes with software's pictures alone"


class PictureChain(Protocol[PictureT]):
    """What is done to decoded pictures. ``resized`` counts those of each other size."""

    resized: Counter[tuple[int, int]]

    def push(self, ticks: int, frame: PictureT, /) -> Iterator[tuple[int, PictureT]]:
        """Take a source picture and yield what is ready: (ticks, picture), in order."""

    def finish(self) -> Iterator[tuple[int, PictureT]]:
        """Yield what is still held."""

    def close(self) -> None:
        """Give up its memory. Idempotent."""


@dataclass(frozen=True, slots=True)
class DecodePath(Generic[PictureT]):
    """One way to pictures: ``decoder`` leaves them in the memory of ``device``, or in the host's where that is None.

    ``reason`` says why no better path is there, "" where there is nothing to say. Pictures that are ``whole`` count
    when the last of their range has come: a device says of some only afterwards that they are missing or wrong.
    """

    decoder: PictureDecoder[PictureT]
    device: WorkerDevice | None = None
    reason: str = ""
    whole: bool = False

    def open_chain(self, filters: FilterSettings, time_base: Fraction) -> PictureChain[Any]:
        """Return what makes pictures into the asked-for ones, where they lie."""
        if self.device is None:
            return FilterChain(filters, time_base)
        return DeviceChain(filters.output, self.device)


@contextmanager
def encode_paths(
    device: WorkerDevice | None, encoder: EncoderSettings, filters: FilterSettings, *, require_device: bool
) -> Iterator[tuple[DecodePath[Any], ...]]:
    """Yield the paths of a segment that is encoded on a worker, the best first: all of them give the same bytes.

    Args:
        device: the worker's, where it has one.
        encoder: who encodes; where it is no device, processors can decode too.
        filters: what is done to the pictures.
        require_device: wait for the device's decoder, also where that takes longer than decoding in software.

    Raises:
        EngineUnfit: the track is encoded by a device, and this worker has none.
    """
    software = DecodePath(SOFTWARE)
    if encoder.on_device:
        if device is None:
            message = f"{encoder.implementation} encodes on a GPU, and this worker has none"
            raise EngineUnfit(message, "Use --encoder software.")
        if filters.on_device:
            yield DecodePath(device.surfaces, device), DecodePath(UploadingDecoder(device.open_mover), device)
        else:
            yield DecodePath(device.pictures), software
    elif device is None:
        yield (software,)
    elif encoder.dolby_vision:
        yield (DecodePath(SOFTWARE, reason=METADATA_IN_SOFTWARE),)
    elif require_device:
        yield DecodePath(device.pictures), software
    else:
        with device.non_blocking_pictures() as pictures:
            yield DecodePath(pictures), software
