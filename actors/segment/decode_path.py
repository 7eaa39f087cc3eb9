"""The ways to decode a segment's pictures: each has a decoder, and the memory that it writes to."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, Protocol

from ...errors import EngineUnfit
from ..decode.decoding import SOFTWARE, DecodeTally, OpenTrack, PictureDecoder, PictureT
from ..device.interface import PictureConversion, PictureMover, WorkerDevice
from ..encode.settings import EncoderSettings
from ..media.values import VideoFormat
from ..surfaces.conversion import device_conversion
from ..surfaces.device_frame import DevicePicture
from .filtering import FilterChain, FilterSettings

if TYPE_CHECKING:
    from ..decode.decoding import VideoPacket
    from ..surfaces.formats import SurfaceFormat


METADATA_IN_SOFTWARE = "only software decoding returns Dolby Vision's metadata"


class UploadingDecoder(PictureDecoder[DevicePicture]):
    """Decodes in software and moves every picture to the device; ``open_mover`` is called in the decoding thread."""

    name = SOFTWARE.name

    def __init__(self, open_mover: Callable[[], PictureMover]) -> None:
        self._open_mover = open_mover

    def decode(
        self, track: OpenTrack, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, DevicePicture]]:
        """Yield a range's pictures; ``EngineUnfit`` if a picture fits no surface, ``DeviceError`` if a copy failed."""
        with closing(self._open_mover()) as mover:
            for number, picture in SOFTWARE.decode(track, packets, tally):
                yield number, mover.to_device(picture)


class PictureChain(Protocol[PictureT]):
    """Converts decoded pictures; used by one thread. ``resized`` counts pictures of unexpected sizes."""

    resized: Counter[tuple[int, int]]

    def push(self, ticks: int, frame: PictureT, /) -> Iterator[tuple[int, PictureT]]:
        """Take a source picture and yield the finished (ticks, picture), in order."""

    def finish(self) -> Iterator[tuple[int, PictureT]]:
        """Yield the pictures that the chain still holds."""

    def close(self) -> None:
        """Release the chain's memory. Idempotent."""


class DeviceChain:
    """Converts pictures on ``device`` to the format of ``output``."""

    def __init__(self, output: VideoFormat, device: WorkerDevice) -> None:
        self._output = output
        self._device = device
        self._shape: tuple[SurfaceFormat, int, int] | None = None
        self._conversion: PictureConversion | None = None
        self.resized: Counter[tuple[int, int]] = Counter()

    def push(self, ticks: int, picture: DevicePicture) -> Iterator[tuple[int, DevicePicture]]:
        """Yield the converted picture, with its time; ``Unsupported`` or ``DeviceError`` if it cannot be converted."""
        size, output = (picture.width, picture.height), self._output
        if size != (output.width, output.height):
            self.resized[size] += 1
        shape = (picture.format, *size)
        if shape != self._shape:
            self.close()
            self._shape = shape
            conversion = device_conversion(picture.format, size, output)
            if not conversion.is_identity:
                self._conversion = self._device.open_conversion(conversion, output.pix_fmt)
        yield ticks, picture if self._conversion is None else self._conversion.convert(picture)

    def finish(self) -> Iterator[tuple[int, DevicePicture]]:
        """Yield nothing: no picture is held."""
        yield from ()

    def close(self) -> None:
        """Release the memory of the conversion. Idempotent."""
        if self._conversion is not None:
            self._conversion.close()
        self._conversion, self._shape = None, None


@dataclass(frozen=True, slots=True)
class DecodePath(Generic[PictureT]):
    """One path: ``decoder`` writes pictures to the memory of ``device``, or to host memory if ``device`` is None.

    ``reason`` says why there is no better path. ``whole`` means that pictures are valid only once the last picture of
    the range has come: a device may report missing or wrong pictures late.
    """

    decoder: PictureDecoder[PictureT]
    device: WorkerDevice | None = None
    reason: str = ""
    whole: bool = False

    def open_chain(
        self,
        filters: FilterSettings,
        time_base: Fraction,
        interval: tuple[int | None, int | None] = (None, None),
        *,
        own_pictures: bool = False,
    ) -> PictureChain[Any]:
        """Return the chain that converts this path's pictures, for a segment that is shown during ``interval``.

        ``own_pictures`` is as for ``FilterChain``.
        """
        if self.device is not None:
            return DeviceChain(filters.output, self.device)
        return FilterChain(filters, time_base, interval, own_pictures=own_pictures)


@contextmanager
def encode_paths(
    device: WorkerDevice | None,
    encoder: EncoderSettings,
    filters: FilterSettings,
    *,
    require_device: bool,
    software: str,
) -> Iterator[tuple[DecodePath[Any], ...]]:
    """Yield the paths of a segment that a worker encodes, the best first; all give the same bytes.

    ``device`` is the worker's device, if any. ``require_device`` waits for the device's decoder even if software would
    be faster. ``software`` says why the device must not decode; "" if it may.

    ``EngineUnfit`` if a device must encode the track, and this worker has no device.
    """
    in_software = DecodePath(SOFTWARE, reason=software)
    if encoder.on_device:
        if device is None:
            message = f"{encoder.implementation} encodes on a GPU, and this worker has no GPU"
            raise EngineUnfit(message, "Use --encoder software.")
        if filters.on_device:
            uploaded = DecodePath(UploadingDecoder(device.open_mover), device, reason=software)
            paths: tuple[DecodePath[Any], ...] = (DecodePath(device.surfaces, device), uploaded)
        else:
            paths = DecodePath(device.pictures), in_software
        yield paths[1:] if software else paths
    elif encoder.dolby_vision and device is not None and not software:
        yield (DecodePath(SOFTWARE, reason=METADATA_IN_SOFTWARE),)
    else:
        with host_paths(device, require_device=require_device, software=software) as found:
            yield found


@contextmanager
def host_paths(
    device: WorkerDevice | None, *, require_device: bool, software: str
) -> Iterator[tuple[DecodePath[Any], ...]]:
    """Yield the paths to pictures in host memory, the best first; the arguments are as for ``encode_paths``."""
    in_software = DecodePath(SOFTWARE, reason=software)
    if device is None or software:
        yield (in_software,)
    elif require_device:
        yield DecodePath(device.pictures), in_software
    else:
        with device.non_blocking_pictures() as pictures:
            yield DecodePath(pictures), in_software
