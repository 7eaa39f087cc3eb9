"""Taking surfaces apart on the device, so that what reaches the host is what a software decoder would have given.

The kernel is compiled when it is wanted first, by NVRTC through ``cuda.core``. Where NVRTC is not installed the host
takes surfaces apart itself (``surfaces.host_pictures.planar_picture``), which is as exact and slower.
"""

import ctypes
import importlib
from dataclasses import dataclass
from typing import Any, Final

from ...surfaces.formats import SurfaceFormat
from ..cuda.context import Cuda, Stream
from ..cuda.kernels import Kernels, Launch

ALIGNMENT_BYTES: Final = 64
"""FFmpeg's own frames begin their rows there: filters and encoders read whole vectors."""
_KERNELS: Final = {1: "unpack<unsigned char>", 2: "unpack<unsigned short>"}
"""By the bytes of a sample."""
_VECTOR_BYTES: Final = 16
"""What a thread of the kernel reads and writes at once."""
_SOURCE: Final = """
template <typename Sample>
struct alignas(16) Vector {
    static constexpr int length = 16 / sizeof(Sample);
    Sample at[length];
};

// Rows of a surface follow each other without padding, so some begin where no vector does. Those written to never do.
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
class PlanarPlane:
    """One plane: where it begins, how far its rows are apart, and its size in samples."""

    offset_bytes: int
    pitch_bytes: int
    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class PlanarLayout:
    """Luma, Cb and Cr one after the other, with rows that begin as FFmpeg's do; ``size_bytes`` holds a margin."""

    planes: tuple[PlanarPlane, PlanarPlane, PlanarPlane]
    size_bytes: int


def planar_layout(format_: SurfaceFormat, width: int, height: int) -> PlanarLayout:
    """Return how a picture of a surface's format lies when it is taken apart."""
    columns, rows = width >> format_.halved_across, height >> format_.halved_down
    luma_pitch = _aligned(width * format_.sample_bytes)
    chroma_pitch = _aligned(columns * format_.sample_bytes)
    blue = luma_pitch * height
    red = blue + chroma_pitch * rows
    planes = (
        PlanarPlane(0, luma_pitch, width, height),
        PlanarPlane(blue, chroma_pitch, columns, rows),
        PlanarPlane(red, chroma_pitch, columns, rows),
    )
    # Vector loads may read past the last row.
    return PlanarLayout(planes, red + chroma_pitch * rows + ALIGNMENT_BYTES)


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class Unpacker:
    """The kernel, compiled for the device at hand. Safe from any thread that has entered the device's context.

    Args:
        core: ``cuda.core``, or what answers like it.
        cuda: the device.

    Raises:
        Exception: NVRTC is missing or refuses; whatever ``cuda.core`` raises.
    """

    def __init__(self, core: Any, cuda: Cuda) -> None:
        self._cuda = cuda
        self._kernels = Kernels(core, _SOURCE, _KERNELS.values())

    def prepare(self, planar: int, format_: SurfaceFormat, layout: PlanarLayout) -> "Unpacking":
        """Return what takes surfaces of one format apart.

        Args:
            planar: the device address of ``layout.size_bytes`` bytes, where they go.
            format_: how samples lie in a surface.
            layout: where they shall lie.
        """
        luma, blue, red = layout.planes
        size_bytes = format_.sample_bytes
        surface = ctypes.c_uint64(0)
        values = (
            surface,
            ctypes.c_uint64(planar),
            *map(ctypes.c_int, (luma.columns, luma.rows, blue.columns, blue.rows)),
            *map(ctypes.c_int, (luma.pitch_bytes // size_bytes, blue.pitch_bytes // size_bytes)),
            *map(ctypes.c_int64, (blue.offset_bytes // size_bytes, red.offset_bytes // size_bytes)),
            *map(ctypes.c_int, (8 * size_bytes - format_.bits, int(format_.halved_across))),
        )
        kernel = self._kernels[_KERNELS[size_bytes]]
        vectors = -(-luma.columns * size_bytes // _VECTOR_BYTES)
        return Unpacking(Launch(self._cuda, kernel, (vectors, luma.rows + blue.rows), values), surface)


class Unpacking:
    """The kernel with its arguments, of which only the surface changes. Used by one thread at a time."""

    def __init__(self, launch: Launch, surface: ctypes.c_uint64) -> None:
        self._launch = launch
        self._surface = surface

    def begin(self, surface: int, stream: Stream) -> None:
        """Begin to take apart the surface at this device address; done when the stream is."""
        self._surface.value = surface
        self._launch.begin(stream)


def open_unpacker(cuda: Cuda) -> Unpacker | None:
    """Return the kernel for the device that this process sees; None where it cannot be compiled here."""
    try:
        return Unpacker(importlib.import_module("cuda.core"), cuda)
    except Exception:  # noqa: BLE001 - a missing compiler shows in many ways, and the host does the work then
        return None
