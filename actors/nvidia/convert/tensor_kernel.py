"""The kernel that makes tensors of pictures: it crops, resizes, converts, normalises and lays out the samples.

The kernel does the integer arithmetic of ``actors/tensors/plan.py``, and rounds floating-point values as the host does,
so the bits are the same.
"""

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ...media.values import Colour
from ...surfaces.conversion import plane_places
from ...surfaces.formats import SurfaceFormat
from ...tensors.host_tensor import normalising
from ...tensors.plan import TensorPlan, tensor_plan
from ...tensors.sample_places import surface_places
from ...tensors.tensor_format import TensorFormat
from ..cuda.context import Cuda, Stream
from ..cuda.kernels import Kernels, Launch

SOURCE: Final = """
/* How one axis of a channel is resized: where its weights are, how many there are, and how far apart its samples. */
struct Axis { int table, count, step; };

/* The axis that is resized first, and the other one. */
struct Channel
{
    long long source;
    Axis first, second;
};

struct Rounding { long long added; int bits, to_even; };

struct Job
{
    long long constants[3], picture_step, channel_step, row_step, column_step;
    double factors[3], terms[3];
    Channel channels[3];
    Rounding roundings[3];
    int weights[9], count, values, targets, width, height, shift, largest, across_first;
};

template <typename Sum> __device__ Sum rounded(Sum sum, const Rounding &rounding)
{
    return (sum + (Sum)rounding.added + (sum >> rounding.bits & rounding.to_even)) >> rounding.bits;
}

/* The addresses of a launch's pictures. */
struct Pictures { unsigned long long surfaces[16]; };

/* The compiler must not fuse these: the host rounds twice. */
__device__ double scaled(double value, double factor, double term)
{
#ifdef __CUDA_ARCH__
    return __dadd_rn(__dmul_rn(value, factor), term);
#else
    const volatile double product = value * factor;
    return product + term;
#endif
}

union Word { float number; unsigned bits; };

__device__ unsigned short to_half(float number)
{
    Word word;
    word.number = number;
    const unsigned sign = word.bits >> 16 & 0x8000;
    word.bits &= 0x7FFFFFFF;
    if (word.bits >= 0x47800000)
        return (unsigned short)(sign | 0x7C00);
    if (word.bits < 0x38800000) {
        word.number += 0.5f;
        return (unsigned short)(sign | (word.bits - 0x3F000000));
    }
    return (unsigned short)(sign | (word.bits + 0xC8000FFFu + (word.bits >> 13 & 1)) >> 13);
}

__device__ unsigned short to_bfloat(float number)
{
    Word word;
    word.number = number;
    return (unsigned short)((word.bits + 0x7FFF + (word.bits >> 16 & 1)) >> 16);
}

template <int kind> struct Element;
template <> struct Element<0> { typedef unsigned char type; };
template <> struct Element<1> { typedef unsigned short type; };
template <> struct Element<2> { typedef float type; };
template <> struct Element<3> { typedef unsigned short type; };

template <int kind>
__device__ void put(typename Element<kind>::type *to, int value, double factor, double term)
{
    if (kind == 0) {
        *to = (unsigned char)value;
        return;
    }
    const float number = (float)scaled(value, factor, term);
    if (kind == 1)
        *to = to_half(number);
    else if (kind == 2)
        *to = number;
    else
        *to = to_bfloat(number);
}

template <typename Sample, int kind>
__global__ void tensor(const __grid_constant__ Pictures pictures, typename Element<kind>::type *target,
                       const int *tables, const __grid_constant__ Job job)
{
    const Sample *surface = reinterpret_cast<const Sample *>(pictures.surfaces[blockIdx.z]);
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= job.width || y >= job.height)
        return;
    target += blockIdx.z * job.picture_step + y * job.row_step + x * job.column_step;
    const int first_length = job.across_first ? job.width : job.height, first_place = job.across_first ? x : y;
    const int second_length = job.across_first ? job.height : job.width, second_place = job.across_first ? y : x;
    long long sums[3] = {0, 0, 0};
    for (int number = 0; number < job.count; ++number) {
        const Channel &channel = job.channels[number];
        const Axis &first = channel.first, &second = channel.second;
        const int *firsts = tables + first.table + first_place, *seconds = tables + second.table + second_place;
        const Sample *line = surface + channel.source;
        line += (long long)*firsts * first.step + (long long)*seconds * second.step;
        for (int after = 0; after < second.count; ++after, line += second.step) {
            const Sample *sample = line;
            const int *weight = firsts;
            int sum = 0;
            for (int place = 0; place < first.count; ++place, sample += first.step) {
                weight += first_length;
                sum += *weight * (*sample >> job.shift);
            }
            seconds += second_length;
            sums[number] += (long long)*seconds * rounded(sum, job.roundings[0]);
        }
        sums[number] = rounded(sums[number], job.roundings[1]);
    }
    for (int number = 0; number < job.targets; ++number) {
        const int *weights = job.weights + (job.values == 1 ? 0 : 3 * number);
        long long sum = -job.constants[job.values == 1 ? 0 : number];
        for (int from = 0; from < job.count; ++from)
            sum += weights[from] * sums[from];
        sum = rounded(sum, job.roundings[2]);
        const int value = sum < 0 ? 0 : sum > job.largest ? job.largest : (int)sum;
        put<kind>(target + number * job.channel_step, value, job.factors[number], job.terms[number]);
    }
}
"""
_SAMPLES: Final = {1: "unsigned char", 2: "unsigned short"}
_ELEMENTS: Final = {"uint8": 0, "float16": 1, "float32": 2, "bfloat16": 3}
KERNEL_NAMES: Final = {
    (size, dtype): f"tensor<{sample}, {number}>"
    for size, sample in _SAMPLES.items()
    for dtype, number in _ELEMENTS.items()
}
"""For each (bytes of a sample, type of the tensor's values), the instance of the kernel template."""
_PICTURES: Final = 16
"""The most pictures of one launch, as in the kernel's struct ``Pictures``."""


class _Axis(ctypes.Structure):
    """The kernel's struct ``Axis``: the table's offset in table entries, and a step in samples."""

    _fields_ = tuple((name, ctypes.c_int) for name in ("table", "count", "step"))


class _Channel(ctypes.Structure):
    """The kernel's struct ``Channel``: positions are counted in samples."""

    _fields_ = (("source", ctypes.c_int64), ("first", _Axis), ("second", _Axis))


class _Rounding(ctypes.Structure):
    """The kernel's struct ``Rounding``."""

    _fields_ = (("added", ctypes.c_int64), ("bits", ctypes.c_int), ("to_even", ctypes.c_int))


class _Job(ctypes.Structure):
    """The kernel's struct ``Job``, passed by value. The target's steps are counted in the tensor's elements."""

    _fields_ = (
        ("constants", ctypes.c_int64 * 3),
        *((name, ctypes.c_int64) for name in ("picture_step", "channel_step", "row_step", "column_step")),
        *((name, ctypes.c_double * 3) for name in ("factors", "terms")),
        ("channels", _Channel * 3),
        ("roundings", _Rounding * 3),
        ("weights", ctypes.c_int * 9),
        *((name, ctypes.c_int) for name in ("count", "values", "targets", "width", "height", "shift", "largest")),
        ("across_first", ctypes.c_int),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorWork:
    """The format, size and colour of pictures, and of the tensor that they become."""

    surface: SurfaceFormat
    size: tuple[int, int]  # the pictures' (width, height)
    colour: Colour
    format: TensorFormat

    @property
    def plan(self) -> TensorPlan:
        """The arithmetic of the conversion. Raises the errors of ``tensor_plan``."""
        return tensor_plan(surface_places(self.surface), self.size, self.colour, self.format)

    def tables(self) -> bytes:
        """Return the resizing weights in the form that the kernel reads."""
        return _tables(self.plan)[1]


class TensorLaunch(ABC):
    """Writes pictures of one format and size into tensors. Used by one thread."""

    @abstractmethod
    def begin(self, surfaces: Sequence[int], target: int, steps: tuple[int, int, int, int], stream: Stream) -> None:
        """Begin to write the pictures at device addresses into a tensor.

        ``steps`` are the distances from picture to picture, channel to channel, row to row and column to column, in the
        tensor's elements.
        """


class TensorKernels(ABC):
    """Prepares launches. Safe from any thread that has entered the device's context."""

    @abstractmethod
    def prepare(self, work: TensorWork, tables: int) -> TensorLaunch:
        """Return a launch; ``tables`` is the device address of ``work.tables()``."""


class CompiledTensors(TensorKernels):
    """Makes tensors with kernels that NVRTC compiles.

    Raises errors of ``cuda.core`` if NVRTC is missing or refuses the kernels.
    """

    def __init__(self, core: Any, cuda: Cuda) -> None:
        self._kernels = Kernels(core, cuda, SOURCE, KERNEL_NAMES.values())
        self._cuda = cuda

    def prepare(self, work: TensorWork, tables: int) -> "_Launching":
        """Return a launch whose weights are at the device address ``tables``."""
        return _Launching(self._cuda, self._kernels, work, tables)


class _Launching(TensorLaunch):
    def __init__(self, cuda: Cuda, kernels: Kernels, work: TensorWork, tables: int) -> None:
        self._job = _job(work)
        self._element_bytes = work.format.element_bytes
        self._surfaces, self._target = (ctypes.c_uint64 * _PICTURES)(), ctypes.c_uint64(0)
        kernel = kernels[KERNEL_NAMES[work.surface.sample_bytes, work.format.dtype]]
        values = (self._surfaces, self._target, ctypes.c_uint64(tables), self._job)
        self._launch = Launch(cuda, kernel, work.plan.size, values)

    def begin(self, surfaces: Sequence[int], target: int, steps: tuple[int, int, int, int], stream: Stream) -> None:
        """Put the kernel into the stream, once for several pictures: each launch releases the GIL."""
        job = self._job
        job.picture_step, job.channel_step, job.row_step, job.column_step = steps
        for first in range(0, len(surfaces), _PICTURES):
            group = surfaces[first : first + _PICTURES]
            for place, surface in enumerate(group):
                self._surfaces[place] = surface
            self._target.value = target + first * steps[0] * self._element_bytes
            self._launch.begin(stream, len(group))


def _tables(plan: TensorPlan) -> tuple[list[tuple[int, int]], bytes]:
    """Return the offsets of each channel's tables (down, across), and all tables in one array.

    A table has the first sources of all targets, then the first weights of all targets, then the second weights, and so
    on.
    """
    begins: dict[object, int] = {}
    tables: list[int] = []
    for channel in plan.taps:
        for taps in (channel.down, channel.across):
            if taps not in begins:
                begins[taps] = len(tables)
                tables += taps.firsts
                for weights in zip(*taps.weights, strict=True):
                    tables += weights
    places = [(begins[each.down], begins[each.across]) for each in plan.taps]
    return places, np.array(tables, dtype=np.int32).tobytes()


def _job(work: TensorWork) -> _Job:
    plan, places = work.plan, surface_places(work.surface)
    tables, planes = _tables(plan)[0], plane_places(work.surface, *work.size)
    channels = []
    for place, (down, across), taps in zip(planes, tables, plan.taps, strict=False):
        axes = _Axis(across, taps.across.count, place.step), _Axis(down, taps.down.count, place.pitch)
        channels.append(_Channel(place.offset, *(axes if plan.by_swscale else axes[::-1])))
    rows = plan.weights if len(set(plan.weights)) > 1 else plan.weights[:1]
    weights = [weight for row in rows for weight in (*row, 0, 0)[:3]]
    constants = [
        sum(weight * offset for weight, offset in zip(row, plan.offsets, strict=True)) << plan.sum_bits for row in rows
    ]
    scales = normalising(work.format, plan.largest)
    pairs = [(1.0, 0.0)] * 3 if scales is None else [tuple(map(float, pair)) for pair in scales]
    return _Job(
        constants=(ctypes.c_int64 * 3)(*constants),
        factors=(ctypes.c_double * 3)(*(factor for factor, _ in pairs)),
        terms=(ctypes.c_double * 3)(*(term for _, term in pairs)),
        channels=(_Channel * 3)(*channels),
        roundings=(_Rounding * 3)(*(_Rounding(each.added, each.bits, each.to_even) for each in plan.roundings)),
        weights=(ctypes.c_int * 9)(*weights),
        count=len(plan.offsets),
        values=len(rows),
        targets=work.format.channels,
        width=plan.size[0],
        height=plan.size[1],
        shift=places.shift,
        largest=plan.largest,
        across_first=plan.by_swscale,
    )
