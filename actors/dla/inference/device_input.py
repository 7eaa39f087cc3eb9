"""Turns pictures on the GPU into a DLA's input tensors, in one CUDA stream.

All arithmetic is in whole numbers, so the tensors equal those of ``ExactScaler`` byte for byte.
"""

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ....errors import EngineUnfit, Unsupported
from ...closing import undone_by
from ...media.values import Colour
from ...nvidia.convert.converting import upload
from ...shared_once import shared_once
from ...surfaces.conversion import Conversion
from ...surfaces.device_frame import DevicePicture, stated_colour
from ...surfaces.formats import SurfaceFormat, SurfaceLayout, surface_format
from ...surfaces.host_pictures import packed_surface
from ...surfaces.host_scaling import converted
from ...surfaces.scaling import ChromaLocation
from ...surfaces.to_rgb import WEIGHT_BITS, RgbRule, rgb_of, rgb_rule
from ..engine.tensors import TensorDescriptor
from .layout import tensor_steps
from .pictures import GRAY, PixelRule, channel_table

if TYPE_CHECKING:
    from ...nvidia.convert.converting import SurfaceConversion, SurfaceConverter
    from ...nvidia.cuda.context import Cuda
    from ...nvidia.cuda.kernels import Launch
    from ...nvidia.gpu import Gpu, OpenedGpu

SOURCE: Final = """
/* A thread makes one pixel of the tensor, from planes of 8-bit Y'CbCr of the tensor's size. */
template <typename Element>
__global__ void fill(const unsigned char *planes, char *tensor, const Element *table, int width, int height,
                     int channels, int reversed, int black, int luma, int red_cr, int green_cb, int green_cr,
                     int blue_cb, int shift, int group, long long group_step, long long channel_step,
                     long long row_step, long long pixel_step)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    const int area = width * height, place = y * width + x;
    const int light = luma * (planes[place] - black) + ((1 << shift) >> 1);
    const int cb = planes[area + place] - 128, cr = planes[2 * area + place] - 128;
    const int sums[3] = {light + (channels == 1 ? 0 : red_cr * cr), light + green_cb * cb + green_cr * cr,
                         light + blue_cb * cb};
    for (int channel = 0; channel < channels; channel++) {
        const int colour = channel > 2 ? 0 : reversed ? 2 - channel : channel;
        const int value = sums[colour] >> shift;
        const int sample = value < 0 ? 0 : value > 255 ? 255 : value;
        char *element = tensor + channel / group * group_step + channel % group * channel_step + y * row_step +
                        x * pixel_step;
        *(Element *)element = table[channel * 256 + sample];
    }
}
"""
KERNEL_NAMES: Final = {1: "fill<unsigned char>", 2: "fill<unsigned short>", 4: "fill<unsigned int>"}
"""The kernel's name for each element size in bytes."""
_BETWEEN: Final = SurfaceFormat(SurfaceLayout.YUV444, 8, halved_across=False, halved_down=False)
"""The format to which a picture is scaled: three planes of the tensor's size."""


def _scaling(format_: SurfaceFormat, size: tuple[int, int], descriptor: TensorDescriptor, colour: Colour) -> Conversion:
    return Conversion(
        source=format_,
        source_size=size,
        target=_BETWEEN,
        target_size=(descriptor.w, descriptor.h),
        source_location=ChromaLocation(colour.chroma_location or ChromaLocation.LEFT.value),
    )


class ExactScaler:
    """Scales NVDEC's pictures on the host to a tensor's size, as ``TensorFiller`` does on the device."""

    def __init__(self, descriptor: TensorDescriptor, colour: Colour | None) -> None:
        self._descriptor = descriptor
        self._colour = colour

    def scaled(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """Return samples (h, w, 1) or (h, w, 3); ``Unsupported`` if no NVDEC surface holds such pictures."""
        format_, size = surface_format(frame.format.name), (frame.width, frame.height)
        if format_ is None or not format_.holds(*size):
            message = f"a picture of {size[0]}x{size[1]} {frame.format.name} fits no GPU surface"
            raise Unsupported(message, "Use --dla-input host.")
        colour = self._colour or stated_colour(frame, Colour())
        surface = np.empty(format_.size_bytes(*size), dtype=np.uint8)
        packed_surface(frame, format_, surface)
        planes = converted(_scaling(format_, size, self._descriptor, colour), surface)
        shape = 3, self._descriptor.h, self._descriptor.w
        return rgb_of(rgb_rule(colour, frame.height), planes.reshape(shape), grey=self._descriptor.c == GRAY)


class TensorFiller:
    """Fills input tensors from device pictures, with kernels in a stream. Used by one thread.

    The tensors must be in the context of ``cuda``. If ``colour`` is None, each picture has its own colours.
    ``UsageError`` if the number of means or scales differs from the number of channels; ``DeviceError`` if the device
    refused, or lacks memory.
    """

    def __init__(
        self,
        cuda: "Cuda",
        converter: Callable[[], "SurfaceConverter"],
        launch: Callable[[int, tuple[int, int], tuple[Any, ...]], "Launch"],
        *,
        descriptor: TensorDescriptor,
        rule: PixelRule,
        colour: Colour | None,
    ) -> None:
        self._cuda, self._converter, self._launch = cuda, converter, launch
        self._descriptor, self._colour = descriptor, colour
        self._prepared: dict[object, tuple[SurfaceConversion, Launch, ctypes.c_uint64]] = {}
        table = channel_table(descriptor, rule)
        self._element_bytes = descriptor.data_type.dtype.itemsize
        self._reversed = int(rule.order == "bgr" and descriptor.c != GRAY)
        self._planes = self._table = 0
        with undone_by(self.close):
            self._planes = cuda.allocate(3 * descriptor.w * descriptor.h)
            self._table = cuda.allocate(len(table))
            with cuda.entered:
                upload(cuda, self._table, table)

    def prepare(self, picture: DevicePicture) -> DevicePicture:
        """Compile the kernels for pictures like this one, and return the picture.

        ``EngineUnfit`` if kernels cannot be compiled here; ``DeviceError`` if the device refused, or lacks memory.
        """
        with self._cuda.entered:
            self._prepared_for(picture)
        return picture

    def begin(self, picture: DevicePicture, tensor: int, place: int, stream: int) -> None:
        """Queue, on ``stream``, the work that writes the picture into a tensor, at index ``place``.

        The caller must keep the picture until the stream has finished.
        """
        own = self._cuda.stream_of(stream)
        with self._cuda.entered:
            conversion, launch, target = self._prepared_for(picture)
            conversion.begin(picture.address, own)
            target.value = tensor + place * tensor_steps(self._descriptor)[1][0]
            launch.begin(own)

    def close(self) -> None:
        """Free the filler's memory. Call only after the streams passed to ``begin`` have finished."""
        for conversion, _, _ in self._prepared.values():
            conversion.close()
        self._prepared.clear()
        for address in filter(None, (self._planes, self._table)):
            self._cuda.free(address)

    def _prepared_for(self, picture: DevicePicture) -> "tuple[SurfaceConversion, Launch, ctypes.c_uint64]":
        colour = self._colour or picture.colour or Colour()
        key = picture.format, picture.width, picture.height, colour
        if key not in self._prepared:
            scaling = _scaling(picture.format, (picture.width, picture.height), self._descriptor, colour)
            target = ctypes.c_uint64(0)
            size = self._descriptor.w, self._descriptor.h
            launch = self._launch(self._element_bytes, size, self._arguments(rgb_rule(colour, picture.height), target))
            self._prepared[key] = self._converter().prepare(scaling, self._planes), launch, target
        return self._prepared[key]

    def _arguments(self, rule: RgbRule, target: ctypes.c_uint64) -> tuple[Any, ...]:
        (_, _, group, _, _), (_, group_step, channel_step, row_step, pixel_step) = tensor_steps(self._descriptor)
        return (
            ctypes.c_uint64(self._planes),
            target,
            ctypes.c_uint64(self._table),
            *map(ctypes.c_int, (self._descriptor.w, self._descriptor.h, self._descriptor.c, self._reversed)),
            *map(ctypes.c_int, (rule.black, rule.luma, rule.red_cr, rule.green_cb, rule.green_cr, rule.blue_cb)),
            *map(ctypes.c_int, (WEIGHT_BITS, group)),
            *map(ctypes.c_int64, (group_step, channel_step, row_step, pixel_step)),
        )


class FillKernels:
    """The kernel's variants, one for each element size; all are compiled on first use."""

    def __init__(self, cuda: "Cuda") -> None:
        self._cuda = cuda
        self._kernels: Any = None

    def __call__(self, element_bytes: int, size: tuple[int, int], values: tuple[Any, ...]) -> "Launch":
        """Return a launch of the kernel; ``EngineUnfit`` if the kernel cannot be compiled here."""
        from ...nvidia.cuda.kernels import Kernels, Launch  # noqa: PLC0415 - imported only for pictures on a GPU

        try:
            if self._kernels is None:
                from cuda import core  # noqa: PLC0415

                self._kernels = Kernels(core, self._cuda, SOURCE, KERNEL_NAMES.values())
        except Exception as error:  # a missing compiler raises many kinds of error
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            raise EngineUnfit(f"kernels cannot be compiled here: {reason}", "Use --dla-input host.") from error
        return Launch(self._cuda, self._kernels[KERNEL_NAMES[element_bytes]], size, values)


def open_filler(gpu: "OpenedGpu", descriptor: TensorDescriptor, rule: PixelRule, colour: Colour | None) -> TensorFiller:
    """Return a filler of a network's inputs from an opened GPU's pictures; ``DeviceError`` if the device refuses."""
    kernels = FillKernels(gpu.cuda)
    return TensorFiller(gpu.cuda, gpu.converter, kernels, descriptor=descriptor, rule=rule, colour=colour)


OpenFiller = Callable[["OpenedGpu", TensorDescriptor, PixelRule, Colour | None], TensorFiller]


@shared_once
def beside_gpu() -> "Gpu":
    """Return the GPU with which this process's DLAs are coupled; the GPU is opened on first use."""
    from ...nvidia.gpu import Gpu, open_beside  # noqa: PLC0415 - imported only for pictures on a GPU

    return Gpu(open_beside)
