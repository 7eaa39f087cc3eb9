"""What a device does to pictures between its decoder and its encoder: their size, their sampling, their depth."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..media.values import VideoFormat
from ..surfaces.conversion import device_conversion
from ..surfaces.device_frame import DevicePicture

if TYPE_CHECKING:
    from ..device.interface import PictureConversion, WorkerDevice
    from ..surfaces.formats import SurfaceFormat

__all__ = ["DeviceChain"]


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
        """Take a source picture and yield it shall be, with its time.

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
