"""What a device does to pictures between its decoder and its encoder: their size, their sampling, their depth."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...errors import Unsupported
from ..media import VideoFormat
from .conversion import Conversion
from .device_frame import DevicePicture
from .nvdec_support import SurfaceFormat, surface_format
from .scaling import ChromaLocation

if TYPE_CHECKING:
    from ..device import WorkerDevice
    from .device_pictures import PictureConversion

__all__ = ["DeviceChain", "device_conversion"]


def device_conversion(source: SurfaceFormat, size: tuple[int, int], output: VideoFormat) -> Conversion:
    """Return what makes surfaces of one format and (width, height) into an encoder's pictures.

    Raises:
        Unsupported: no surface holds such pictures.
    """
    target = surface_format(output.pix_fmt)
    if target is None:
        message = f"no surface holds {output.pix_fmt}"
        raise Unsupported(message, "Use --encoder software.")
    # Where chroma lies is the source's to say, and stays what it is.
    location = ChromaLocation(output.colour.chroma_location or ChromaLocation.LEFT.value)
    return Conversion(
        source=source,
        source_size=size,
        target=target,
        target_size=(output.width, output.height),
        source_location=location,
        target_location=location,
    )


class DeviceChain:
    """Makes pictures on the device into what an encoder takes. Used by one thread at a time.

    Args:
        output: what they shall be.
        device: where they are.
    """

    def __init__(self, output: VideoFormat, device: "WorkerDevice") -> None:
        self._output = output
        self._device = device
        self._shape: tuple[SurfaceFormat, int, int] | None = None
        self._conversion: PictureConversion | None = None
        self.resized: Counter[tuple[int, int]] = Counter()

    def push(self, ticks: int, picture: DevicePicture) -> Iterator[tuple[int, DevicePicture]]:
        """Take a source picture and yield it as it shall be, with its time.

        Raises:
            Unsupported: it cannot be made into that.
            DeviceError: the device refused.
        """
        frame, output = picture.frame, self._output
        if (frame.width, frame.height) != (output.width, output.height):
            self.resized[frame.width, frame.height] += 1
        shape = (picture.format, frame.width, frame.height)
        if shape != self._shape:
            self.close()
            self._shape = shape
            conversion = device_conversion(picture.format, (frame.width, frame.height), output)
            if not conversion.is_identity:
                self._conversion = self._device.open_conversion(conversion, output.pix_fmt)
        yield ticks, picture if self._conversion is None else self._conversion.convert(picture)

    def finish(self) -> Iterator[tuple[int, DevicePicture]]:
        """Yield nothing: a picture is done when it has been pushed."""
        yield from ()

    def close(self) -> None:
        """Give up the memory that converting takes. Idempotent."""
        if self._conversion is not None:
            self._conversion.close()
        self._conversion, self._shape = None, None
