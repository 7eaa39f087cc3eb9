"""Copies NVDEC's surfaces to the host, as the pictures that a software decoder would return.

The device splits the planes if NVRTC can compile the kernel. Otherwise the host splits them, more slowly but with the
same result. An integrated GPU writes straight into host memory (CUDA for Tegra, chapter 2); an H200 does not, because
its kernel would reach only 12 GB/s.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from ...surfaces.conversion import PlanePlace, padding_bits
from ...surfaces.formats import SurfaceFormat
from ...surfaces.host_pictures import apply_colour, planar_picture
from ..cuda.context import Cuda, Stream
from ..cuda.kernels import Kernels, Launch
from ..cuda.memory import PinnedBuffer, PinnedMemory
from ..nvdec.session import SurfaceReader

_ALIGNMENT_BYTES: Final = 64
"""The alignment of rows in FFmpeg's own frames: filters and encoders read whole vectors."""
_KERNELS: Final = {1: "unpack<unsigned char>", 2: "unpack<unsigned short>"}
"""The kernel's name for each sample size in bytes."""
_VECTOR_BYTES: Final = 16
"""The bytes that a thread of the kernel reads and writes at once."""
_SOURCE: Final = """
template <typename Sample>
struct alignas(16) Vector {
    static constexpr int length = 16 / sizeof(Sample);
    Sample at[length];
};

// The rows of a surface have no padding, so some are not aligned to a vector. The rows that are written always are.
template <typename Sample>
__device__ bool is_whole(const Sample *from, int count)
{
    return count >= Vector<Sample>::length && (unsigned long long)from % sizeof(Vector<Sample>) == 0;
}

template <typename Sample>
__device__ void move(const Sample *from, Sample *to, int count, int shift)
{
    if (is_whole(from, count)) {
        Vector<Sample> samples = *(const Vector<Sample> *)from;
        for (int i = 0; i < samples.length; i++)
            samples.at[i] >>= shift;
        *(Vector<Sample> *)to = samples;
        return;
    }
    for (int i = 0; i < count && i < Vector<Sample>::length; i++)
        to[i] = from[i] >> shift;
}

template <typename Sample>
__device__ void part(const Sample *pairs, Sample *blue, Sample *red, int count, int shift)
{
    constexpr int length = Vector<Sample>::length;
    if (is_whole(pairs, count)) {
        Vector<Sample> blues, reds;
        for (int half = 0; half < 2; half++) {
            const Vector<Sample> samples = ((const Vector<Sample> *)pairs)[half];
            for (int i = 0; i < length / 2; i++) {
                blues.at[half * length / 2 + i] = samples.at[2 * i] >> shift;
                reds.at[half * length / 2 + i] = samples.at[2 * i + 1] >> shift;
            }
        }
        *(Vector<Sample> *)blue = blues;
        *(Vector<Sample> *)red = reds;
        return;
    }
    for (int i = 0; i < count && i < length; i++) {
        blue[i] = pairs[2 * i] >> shift;
        red[i] = pairs[2 * i + 1] >> shift;
    }
}

template <typename Sample>
__global__ void unpack(const Sample *surface, Sample *planar, int width, int height, int columns, int rows,
                       int luma_pitch, int chroma_pitch, long long blue, long long red, int shift, int interleaved)
{
    const int x = (blockIdx.x * blockDim.x + threadIdx.x) * Vector<Sample>::length;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (y < height) {
        if (x < width)
            move(surface + (long long)y * width + x, planar + (long long)y * luma_pitch + x, width - x, shift);
        return;
    }
    const int row = y - height;
    if (row >= rows || x >= columns)
        return;
    const Sample *chroma = surface + (long long)width * height;
    const long long place = (long long)row * columns + x;
    Sample *blues = planar + blue + (long long)row * chroma_pitch + x;
    Sample *reds = planar + red + (long long)row * chroma_pitch + x;
    if (interleaved) {
        part(chroma + 2 * place, blues, reds, columns - x, shift);
    } else {
        move(chroma + place, blues, columns - x, shift);
        move(chroma + (long long)columns * rows + place, reds, columns - x, shift);
    }
}
"""


@dataclass(frozen=True, slots=True)
class _PlanarLayout:
    """The layout of luma, Cb and Cr in memory, with rows aligned as in FFmpeg; ``size_bytes`` includes a margin."""

    luma: PlanePlace
    blue: PlanePlace
    red: PlanePlace
    size_bytes: int


def _planar_layout(format_: SurfaceFormat, width: int, height: int) -> _PlanarLayout:
    columns, rows = width >> format_.halved_across, height >> format_.halved_down
    aligned = _ALIGNMENT_BYTES // format_.sample_bytes
    luma_pitch, chroma_pitch = (-(-count // aligned) * aligned for count in (width, columns))
    blue = luma_pitch * height
    red = blue + chroma_pitch * rows
    return _PlanarLayout(
        PlanePlace(0, 1, luma_pitch, width, height),
        PlanePlace(blue, 1, chroma_pitch, columns, rows),
        PlanePlace(red, 1, chroma_pitch, columns, rows),
        # Vector loads may read past the last row.
        (red + chroma_pitch * rows) * format_.sample_bytes + _ALIGNMENT_BYTES,
    )


class Unpacker:
    """The kernel that splits a surface into planes. Safe from any thread that has entered the device's context.

    Raises errors of ``cuda.core`` if NVRTC is missing or refuses the kernel.
    """

    def __init__(self, core: Any, cuda: Cuda) -> None:
        self._cuda = cuda
        self._kernels = Kernels(core, cuda, _SOURCE, _KERNELS.values())

    def prepare(self, format_: SurfaceFormat, layout: _PlanarLayout) -> tuple[Launch, ctypes.c_uint64, ctypes.c_uint64]:
        """Return a launch, and its variable arguments: the addresses of the surface and of the planes of ``layout``."""
        luma, blue, red = layout.luma, layout.blue, layout.red
        surface, planar = ctypes.c_uint64(0), ctypes.c_uint64(0)
        values = (
            surface,
            planar,
            *map(ctypes.c_int, (luma.columns, luma.rows, blue.columns, blue.rows, luma.pitch, blue.pitch)),
            *map(ctypes.c_int64, (blue.offset, red.offset)),
            *map(ctypes.c_int, (padding_bits(format_), int(format_.halved_across))),
        )
        kernel = self._kernels[_KERNELS[format_.sample_bytes]]
        vectors = -(-luma.columns * format_.sample_bytes // _VECTOR_BYTES)
        return Launch(self._cuda, kernel, (vectors, luma.rows + blue.rows), values), surface, planar


class PictureFetcher(SurfaceReader[VideoFrame]):
    """Copies one session's surfaces to the host.

    ``size`` is (width, height); ``format_`` is the surface format that corresponds to ``pix_fmt``. If ``unpacker`` is
    None, the host splits the planes.
    """

    def __init__(
        self,
        cuda: Cuda,
        memory: PinnedMemory,
        unpacker: Unpacker | None,
        *,
        format_: SurfaceFormat,
        size: tuple[int, int],
        pix_fmt: str,
    ) -> None:
        self._cuda = cuda
        self._memory = memory
        self._format = format_
        self._size = size
        self._pix_fmt = pix_fmt
        self._layout = _planar_layout(format_, *size)
        self._dtype = np.dtype(np.uint8 if format_.sample_bytes == 1 else np.uint16)
        self._copied_bytes = format_.size_bytes(*size) if unpacker is None else self._layout.size_bytes
        self._unpacking = None if unpacker is None else unpacker.prepare(format_, self._layout)
        self._scratch = 0 if unpacker is None or memory.shares else cuda.allocate(self._copied_bytes)

    def begin(self, surface: int, stream: Stream) -> Callable[[], VideoFrame]:
        """Begin to copy a surface to the host; ``DeviceMemory`` if no more memory can be locked."""
        buffer = self._memory.acquire(self._copied_bytes)
        if self._unpacking is not None:
            # One scratch buffer is enough: a stream's work runs in order.
            launch, source, target = self._unpacking
            source.value, target.value = surface, self._scratch or buffer.address
            if not self._scratch:
                self._launch_in_place(launch, buffer.address, stream)
                return partial(self._picture, buffer)
            launch.begin(stream)
            surface = self._scratch
        self._cuda.copy_to_host(buffer.address, surface, self._copied_bytes, stream)
        return partial(self._picture, buffer)

    def _launch_in_place(self, launch: Launch, address: int, stream: Stream) -> None:
        """Let the device write into host memory; managed memory is attached to the device meanwhile."""
        choice = self._memory.choice
        if choice.before_gpu is not None:
            self._cuda.attach(address, choice.before_gpu, stream)
        launch.begin(stream)
        if choice.before_host is not None:
            self._cuda.attach(address, choice.before_host, stream)

    def apply_colour(self, picture: VideoFrame, context: VideoCodecContext) -> None:
        """Set a picture's colour properties, which filters read, as a software decoder does."""
        apply_colour(picture, context)

    def close(self) -> None:
        """Free the scratch memory on the device; pictures in use keep their memory."""
        if self._scratch:
            self._cuda.free(self._scratch)
            self._scratch = 0

    def _picture(self, buffer: PinnedBuffer) -> VideoFrame:
        samples = np.asarray(buffer)
        if self._unpacking is None:
            return planar_picture(samples, self._format, *self._size, self._pix_fmt)
        step, layout = self._format.sample_bytes, self._layout
        planes = [
            np.ndarray((each.rows, each.columns), self._dtype, samples, each.offset * step, (each.pitch * step, step))
            for each in (layout.luma, layout.blue, layout.red)
        ]
        return VideoFrame.from_dlpack(planes, format=self._pix_fmt)
