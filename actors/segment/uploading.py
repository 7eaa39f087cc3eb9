"""Software's pictures on the device: what NVDEC does not decode goes the same way from here on."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from ..decode.decoding import SOFTWARE, DecodeTally, OpenTrack, PictureDecoder
from ..device.interface import PictureMover
from ..surfaces.device_frame import DevicePicture

if TYPE_CHECKING:
    from ..decode.decoding import VideoPacket

__all__ = ["UploadingDecoder"]


class UploadingDecoder(PictureDecoder[DevicePicture]):
    """Decodes in software and moves every picture to the device.

    Args:
        open_mover: opens a way to the device, for the thread that decodes.
    """

    name = SOFTWARE.name

    def __init__(self, open_mover: Callable[[], PictureMover]) -> None:
        self._open_mover = open_mover

    def decode(
        self, track: OpenTrack, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, DevicePicture]]:
        """Yield the pictures of a range.

        Raises:
            EngineUnfit: no surface holds such pictures.
            DeviceError: a copy failed.
        """
        with closing(self._open_mover()) as mover:
            for number, picture in SOFTWARE.decode(track, packets, tally):
                yield number, mover.to_device(picture)
