"""The ways that a segment's pictures may take: who decodes them, what is done to them where, and who encodes them."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from fractions import Fraction
from typing import Any, Generic, Protocol

from av.video.frame import VideoFrame

from ..errors import EngineUnfit
from .decoding import SOFTWARE, DecodeRange, DecodeTally, PictureDecoder, PictureHash, PictureT, decode_range
from .decoding import picture_hash as host_picture_hash
from .device import WorkerDevice
from .device_chain import DeviceChain
from .encoder_session import EncoderSession
from .encoder_settings import EncoderSettings
from .encoding import SoftwareEncoder
from .filtering import FilterChain, FilterSettings
from .surfaces.device_frame import DevicePicture, TimedPicture
from .uploading import UploadingDecoder

__all__ = ["METADATA_IN_SOFTWARE", "PictureChain", "SegmentRoute", "routes"]

METADATA_IN_SOFTWARE = "Dolby Vision's metadata comes with software's pictures alone"


class PictureChain(Protocol[PictureT]):
    """What is done to pictures between decoder and encoder. ``resized`` counts those of each other size."""

    resized: Counter[tuple[int, int]]

    def push(self, ticks: int, frame: PictureT, /) -> Iterator[tuple[int, PictureT]]:
        """Take a source picture and yield what is ready: (ticks, picture), in order."""

    def finish(self) -> Iterator[tuple[int, PictureT]]:
        """Yield what is still held."""


class SegmentRoute(ABC, Generic[PictureT]):
    """One way, for one run of one segment. ``decoder`` is who decodes."""

    decoder: PictureDecoder[PictureT]

    def decoded(self, range_: DecodeRange, tally: DecodeTally) -> Generator[tuple[int, PictureT]]:
        """Yield (ticks, picture) of a range; see ``decode_range``."""
        return decode_range(range_, tally, self.decoder)

    @abstractmethod
    def picture_hash(self, ticks: int, picture: PictureT) -> PictureHash:
        """Hash a source picture: the same on every route."""

    @abstractmethod
    def open_chain(self, filters: FilterSettings, time_base: Fraction) -> PictureChain[PictureT]:
        """Return what makes pictures fit for the encoder."""

    @abstractmethod
    def open_encoder(self, settings: EncoderSettings) -> EncoderSession[Any]:
        """Open the encoder.

        Raises:
            EncoderFailed, DeviceError: by what kept it from opening.
        """

    @abstractmethod
    def timed(self, picture: PictureT, pts_ticks: int, time_base: Fraction) -> object:
        """Return a picture as the encoder takes it, shown at ``pts_ticks``."""

    def close(self) -> None:
        """Give up what the route holds."""


class _HostRoute(SegmentRoute[VideoFrame]):
    """Through the host's memory: software encodes, or the device to which pictures are handed one by one."""

    def __init__(self, decoder: PictureDecoder[VideoFrame], device: WorkerDevice | None) -> None:
        self.decoder = decoder
        self._device = device

    def picture_hash(self, ticks: int, picture: VideoFrame) -> PictureHash:
        return host_picture_hash(ticks, picture)

    def open_chain(self, filters: FilterSettings, time_base: Fraction) -> FilterChain:
        return FilterChain(filters, time_base)

    def open_encoder(self, settings: EncoderSettings) -> EncoderSession[Any]:
        if self._device is None:
            return SoftwareEncoder(settings)
        return self._device.open_encoder(settings, from_host=True)

    def timed(self, picture: VideoFrame, pts_ticks: int, time_base: Fraction) -> VideoFrame:
        picture.pts, picture.time_base = pts_ticks, time_base
        return picture


class _DeviceRoute(SegmentRoute[DevicePicture]):
    """Within the device: what it decodes never leaves it, and what software decodes is brought there first."""

    def __init__(self, device: WorkerDevice, decoder: PictureDecoder[DevicePicture]) -> None:
        self.decoder = decoder
        self._device = device
        self._mover = device.open_mover()
        self._chain: DeviceChain | None = None

    def picture_hash(self, ticks: int, picture: DevicePicture) -> PictureHash:
        return host_picture_hash(ticks, self._mover.to_host(picture))

    def open_chain(self, filters: FilterSettings, time_base: Fraction) -> DeviceChain:
        del time_base
        self._chain = DeviceChain(filters.output, self._device)
        return self._chain

    def open_encoder(self, settings: EncoderSettings) -> EncoderSession[Any]:
        return self._device.open_encoder(settings, from_host=False)

    def timed(self, picture: DevicePicture, pts_ticks: int, time_base: Fraction) -> TimedPicture:
        del time_base
        return TimedPicture(picture.frame, pts_ticks)

    def close(self) -> None:
        if self._chain is not None:
            self._chain.close()
        self._mover.close()


def routes(
    device: WorkerDevice | None, encoder: EncoderSettings, filters: FilterSettings, *, insists: bool
) -> Generator[tuple[SegmentRoute[Any], str]]:
    """Yield the ways that a segment may take on a worker, the best first, each with why no better one is there.

    Whoever goes the next way does so because the device could not decode on this one. All of them give the same bytes.

    Args:
        device: the worker's, where it has one.
        encoder: who encodes; where it is no device, processors can decode too.
        filters: what is done to the pictures.
        insists: wait for the device's decoder, also where that takes longer than decoding in software.

    Raises:
        EngineUnfit: the track is encoded by a device, and this worker has none.
    """
    if not encoder.on_device:
        if device is None or encoder.dolby_vision:
            yield _HostRoute(SOFTWARE, None), "" if device is None else METADATA_IN_SOFTWARE
            return
        with nullcontext(device.pictures) if insists else device.non_blocking_pictures() as pictures:
            yield _HostRoute(pictures, None), ""
            yield _HostRoute(SOFTWARE, None), ""
        return
    if device is None:
        message = f"{encoder.implementation} encodes on a GPU, and this worker has none"
        raise EngineUnfit(message, "Use --encoder software.")
    if not filters.on_device:
        yield _HostRoute(device.pictures, device), ""
        yield _HostRoute(SOFTWARE, device), ""
        return
    yield _DeviceRoute(device, device.surfaces), ""
    yield _DeviceRoute(device, UploadingDecoder(device.open_mover)), ""
