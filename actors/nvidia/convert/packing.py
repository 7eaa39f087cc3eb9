"""Packs a caller's device pictures (pitched, strided, planar or RGB) into surfaces without gaps, on the device.

The kernels ``gather`` and ``rgb`` (to NV12) write the same bytes as the host's code (``surfaces/from_rgb.py``).
"""

import ctypes
from abc import ABC, abstractmethod
from typing import Any, Final, Protocol

import numpy as np

from ...device.interface import PicturePacker
from ...surfaces.device_frame import DevicePicture
from ...surfaces.from_rgb import ROW_TAPS, chroma_rows, rgb_weights
from ...surfaces.strided import StridedPicture
from ..cuda.context import Cuda, Stream
from ..cuda.kernels import Kernels, Launch
from ..cuda.memory import MemoryBudget
from .converting import upload
from .device_pictures import PicturePool

SOURCE: Final = """
struct StridedChannel
{
    long long address, column_bytes, row_bytes;
    int target, target_step, target_pitch, columns, rows, weights[3];
};

struct Job
{
    StridedChannel channels[3];
    int width, height;
};

template <typename Sample>
__device__ int sample(const StridedChannel &from, int x, int y)
{
    return *(const Sample *)(from.address + x * from.column_bytes + y * from.row_bytes);
}

template <typename Sample>
__global__ void gather(Sample *target, const __grid_constant__ Job job)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    for (const StridedChannel *from = job.channels; from < job.channels + 3; ++from) {
        if (y < from->rows) {
            if (x < from->columns)
                target[from->target + (long long)y * from->target_pitch + (long long)x * from->target_step] =
                    (Sample)sample<Sample>(*from, x, y);
            return;
        }
        y -= from->rows;
    }
}

__device__ int least(int one, int other) { return one < other ? one : other; }

/* One chroma component of two neighbouring pixels, in 15 bits. */
__device__ int chroma(const Job &job, const int *weights, int x, int y)
{
    int sum = (256 << 15) + (1 << 9);
    for (int channel = 0; channel < 3; ++channel) {
        const StridedChannel &from = job.channels[channel];
        sum += weights[channel] * (sample<unsigned char>(from, x, y) + sample<unsigned char>(from, x + 1, y));
    }
    return least(2 * (sum >> 10), 0x7FFF);
}

/* tables: the first source row of each chroma row, followed by its weights. */
__global__ void rgb(unsigned char *target, const int *tables, const __grid_constant__ Job job)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (y < job.height) {
        if (x >= job.width)
            return;
        int sum = 0x801 << 8;
        for (int channel = 0; channel < 3; ++channel)
            sum += job.channels[0].weights[channel] * sample<unsigned char>(job.channels[channel], x, y);
        target[(long long)y * job.width + x] = (unsigned char)((least(2 * (sum >> 9), 0x7FFF) + 64) >> 7);
        return;
    }
    const int row = y - job.height;
    if (row >= job.height / 2 || x >= job.width)
        return;
    const int *table = tables + row * (TAPS + 1);
    int sum = 1 << 18;
    for (int tap = 0; tap < TAPS; ++tap)
        sum += table[tap + 1] * chroma(job, job.channels[1 + x % 2].weights, x - x % 2, table[0] + tap);
    const int value = sum >> 19;
    target[(long long)y * job.width + x] = (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
}
""".replace("TAPS", str(ROW_TAPS))
_GATHER: Final = {1: "gather<unsigned char>", 2: "gather<unsigned short>"}
_RGB: Final = "rgb"
KERNEL_NAMES: Final = (*_GATHER.values(), _RGB)


class _Channel(ctypes.Structure):
    """``StridedChannel`` of the kernels."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("address", "column_bytes", "row_bytes")),
        *((name, ctypes.c_int) for name in ("target", "target_step", "target_pitch", "columns", "rows")),
        ("weights", ctypes.c_int * 3),
    )


class _Job(ctypes.Structure):
    """The kernels' struct ``Job``, passed by value."""

    _fields_ = (("channels", _Channel * 3), *((name, ctypes.c_int) for name in ("width", "height")))


class Begins(Protocol):
    """Work that can be queued in a stream."""

    def begin(self, stream: Stream) -> None:
        """Queue the work, which is done when the stream has finished."""


class PackingKernels(ABC):
    """Prepares launches that pack pictures. Safe from any thread that has entered the device's context."""

    @abstractmethod
    def launch(self, picture: StridedPicture, target: int, tables: int) -> Begins:
        """Return a launch that packs a picture into the surface at a device address; ``tables`` are for RGB only."""


class CompiledPacking(PackingKernels):
    """Packs pictures with kernels that NVRTC compiles.

    Raises errors of ``cuda.core`` if NVRTC is missing or refuses the kernels.
    """

    def __init__(self, core: Any, cuda: Cuda) -> None:
        self._kernels = Kernels(core, cuda, SOURCE, KERNEL_NAMES)
        self._cuda = cuda

    def launch(self, picture: StridedPicture, target: int, tables: int) -> Launch:
        """Return the launch of the kernel for this picture's format."""
        job = _job(picture)
        if picture.matrix is None:
            kernel, values = _GATHER[picture.format.sample_bytes], (ctypes.c_uint64(target), job)
            rows = sum(place.rows for place in picture.places)
        else:
            kernel, values = _RGB, (ctypes.c_uint64(target), ctypes.c_uint64(tables), job)  # type: ignore[assignment]
            rows = picture.height * 3 // 2
        return Launch(self._cuda, self._kernels[kernel], (picture.width, rows), values)


def _job(picture: StridedPicture) -> _Job:
    weights: tuple[tuple[int, int, int], ...] = ((0, 0, 0),) * 3
    if picture.matrix is not None:
        found = rgb_weights(picture.matrix)
        weights = (found.luma, found.blue, found.red)
    channels = [
        _Channel(*channel, place.offset, place.step, place.pitch, place.columns, place.rows, (ctypes.c_int * 3)(*parts))
        for channel, place, parts in zip(picture.channels, picture.places, weights, strict=True)
    ]
    return _Job((_Channel * 3)(*channels), picture.width, picture.height)


class CudaPacker(PicturePacker):
    """Packs pictures on its own stream; the memory of the weights for RGB is taken from ``budget``."""

    def __init__(self, cuda: Cuda, memory: PicturePool, kernels: PackingKernels, budget: MemoryBudget) -> None:
        self._cuda = cuda
        self._memory = memory
        self._kernels = kernels
        self._budget = budget
        self._stream = cuda.stream()
        self._tables = self._tables_bytes = self._height = 0

    def pack(self, picture: StridedPicture) -> DevicePicture:
        """Return a packed copy of the picture, which is complete on return."""
        size = picture.width, picture.height
        with self._cuda.entered, self._cuda.watch.calling("CUDA", "packing a picture"):
            found = self._memory.picture(picture.format, size, picture.pix_fmt, self._stream)
            if picture.matrix is not None:
                self._upload(picture.height)
            launch = self._kernels.launch(picture, found.address, self._tables)
            try:
                launch.begin(self._stream)
            finally:
                self._stream.wait()
        return found

    def close(self) -> None:
        """Free the packer's memory and its stream."""
        try:
            self._free()
        finally:
            self._stream.close()

    def _free(self) -> None:
        tables, self._tables, self._height = self._tables, 0, 0
        if tables:
            self._cuda.free(tables)
            self._budget.give_back(self._tables_bytes)

    def _upload(self, height: int) -> None:
        if height == self._height:
            return
        self._free()
        rows = chroma_rows(height)
        table = np.array(
            [(first, *weights) for first, weights in zip(rows.firsts, rows.weights, strict=True)], dtype=np.int32
        )
        self._tables_bytes = table.nbytes
        self._tables = self._budget.spend(table.nbytes, lambda: self._cuda.allocate(table.nbytes))
        upload(self._cuda, self._tables, table.tobytes())
        self._height = height
