"""Input tensors that a GPU must fill as the host packs them, and pictures for these tensors."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from codecfleet.actors.dla.engine.tensors import DataFormat, DataType, TensorDescriptor
from codecfleet.actors.dla.inference.pictures import PixelRule
from codecfleet.actors.media.values import Colour
from codecfleet.actors.surfaces.device_frame import DevicePicture
from codecfleet.actors.surfaces.formats import surface_format
from codecfleet.actors.surfaces.host_pictures import packed_surface, plane_samples
from codecfleet.testing.nvidia.fake_cudla import fake_tensor

COLOURS: Final = (Colour(), Colour(range=2, matrix=5), Colour(range=1, matrix=9, chroma_location=2))


@dataclass(frozen=True)
class TensorCase:
    """Pictures of one format, and the shape (n, c, h, w) of the tensor that they fill."""

    pix_fmt: str
    shape: tuple[int, int, int, int]
    data_type: DataType
    data_format: DataFormat
    order: str

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"{self.pix_fmt}-{shape}-{self.data_type.name}-{self.data_format.name}-{self.order}"

    @property
    def descriptor(self) -> TensorDescriptor:
        """The tensor's."""
        return fake_tensor("x", self.shape, self.data_type, self.data_format)

    @property
    def rule(self) -> PixelRule:
        """Return the arithmetic on samples, with a different mean for each channel."""
        means = (123.7,) if self.shape[1] == 1 else (123.7, 116.3, 103.5)
        return PixelRule(means, (0.017,), self.order)

    def pictures(self, size: tuple[int, int]) -> list[VideoFrame]:
        """Return a picture for each place of the tensor."""
        return [noise(self.pix_fmt, size, seed) for seed in range(self.shape[0])]


CASES: Final = (
    TensorCase("yuv420p", (1, 3, 9, 16), DataType.FLOAT, DataFormat.NCHW, "rgb"),
    TensorCase("yuv420p10le", (2, 3, 12, 10), DataType.HALF, DataFormat.NCHW, "bgr"),
    TensorCase("yuv422p", (1, 4, 7, 5), DataType.HALF, DataFormat.NCxHWx, "rgb"),
    TensorCase("yuv444p", (2, 3, 8, 8), DataType.INT8, DataFormat.NCxHWx, "bgr"),
    TensorCase("yuv420p", (1, 1, 6, 11), DataType.UINT8, DataFormat.NCHW, "rgb"),
    TensorCase("yuv444p12le", (1, 3, 5, 6), DataType.UINT8, DataFormat.NHWC, "bgr"),
)


def noise(pix_fmt: str, size: tuple[int, int], seed: int) -> VideoFrame:
    """Return a picture whose significant bits are random."""
    picture, random = VideoFrame(*size, pix_fmt), np.random.default_rng(seed)
    format_ = surface_format(pix_fmt)
    assert format_ is not None
    for samples in plane_samples(picture, format_):
        samples[:] = random.integers(0, 1 << format_.bits, samples.shape)
    return picture


def surface_of_picture(picture: VideoFrame) -> NDArray[np.uint8]:
    """Return a picture's bytes in the layout of NVDEC's surface."""
    format_, size = surface_format(picture.format.name), (picture.width, picture.height)
    assert format_ is not None
    surface = np.empty(format_.size_bytes(*size), dtype=np.uint8)
    packed_surface(picture, format_, surface)
    return surface


def picture_at(address: int, picture: VideoFrame, owner: object) -> DevicePicture:
    """Return the description of a picture whose surface is at this device address."""
    format_ = surface_format(picture.format.name)
    assert format_ is not None
    return DevicePicture(format_, address, picture.width, picture.height, picture.format.name, owner)
