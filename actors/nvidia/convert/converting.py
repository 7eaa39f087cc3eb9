"""Scales and converts surfaces on the device, so that pictures stay there from NVDEC to NVENC.

NVRTC compiles the kernels on first use. They compute the plan of ``conversion.py`` in integers, with the same bits on
every GPU.
"""

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from ...closing import undone_by
from ...surfaces.conversion import BETWEEN_BITS, Conversion, PlanePlan, padding_bits
from ...surfaces.scaling import WEIGHT_BITS, Taps
from ..cuda.context import Cuda, Stream
from ..cuda.kernels import Kernels, Launch

SOURCE: Final = """
struct Plane
{
    long long source, between, target;
    int source_step, source_pitch, source_rows;
    int target_step, target_pitch, target_columns, target_rows;
    int across, across_count, down, down_count;
};

struct Job
{
    Plane planes[3];
    int count, source_shift, across_shift, down_shift, raised, lowered, largest, target_shift;
};

/* Rows are numbered through all planes. Returns this thread's plane, column and row; 0 if it has no sample. */
__device__ const Plane *here(const Job &job, bool in_source, int &x, int &row)
{
    x = blockIdx.x * blockDim.x + threadIdx.x;
    row = blockIdx.y * blockDim.y + threadIdx.y;
    for (const Plane *plane = job.planes; plane < job.planes + job.count; ++plane) {
        const int rows = in_source ? plane->source_rows : plane->target_rows;
        if (row < rows)
            return x < plane->target_columns ? plane : 0;
        row -= rows;
    }
    return 0;
}

template <typename Sample>
__device__ void put(Sample *target, const Job &job, const Plane &plane, int x, int row, int value)
{
    const int clipped = value < 0 ? 0 : value > job.largest ? job.largest : value;
    target[plane.target + (long long)row * plane.target_pitch + (long long)x * plane.target_step] =
        (Sample)(clipped << job.target_shift);
}

template <typename Sample>
__global__ void across(const Sample *surface, short *between, const int *tables, const __grid_constant__ Job job)
{
    int x, row;
    const Plane *plane = here(job, true, x, row);
    if (!plane)
        return;
    const int *table = tables + plane->across + x;
    const Sample *sample =
        surface + plane->source + (long long)row * plane->source_pitch + (long long)*table * plane->source_step;
    int sum = 1 << (job.across_shift - 1);
    for (int tap = 0; tap < plane->across_count; ++tap) {
        table += plane->target_columns;
        sum += *table * (*sample >> job.source_shift);
        sample += plane->source_step;
    }
    between[plane->between + (long long)row * plane->target_columns + x] = (short)(sum >> job.across_shift);
}

template <typename Sample>
__global__ void down(const short *between, Sample *target, const int *tables, const __grid_constant__ Job job)
{
    int x, row;
    const Plane *plane = here(job, false, x, row);
    if (!plane)
        return;
    const int *table = tables + plane->down + row;
    const short *value = between + plane->between + (long long)*table * plane->target_columns + x;
    int sum = 1 << (job.down_shift - 1);
    for (int tap = 0; tap < plane->down_count; ++tap) {
        table += plane->target_rows;
        sum += *table * *value;
        value += plane->target_columns;
    }
    put(target, job, *plane, x, row, sum >> job.down_shift);
}

template <typename From, typename To>
__global__ void repack(const From *surface, To *target, const __grid_constant__ Job job)
{
    int x, row;
    const Plane *plane = here(job, false, x, row);
    if (!plane)
        return;
    const int sample = surface[plane->source + (long long)row * plane->source_pitch + (long long)x * plane->source_step]
                       >> job.source_shift;
    const int half = (1 << job.lowered) >> 1;
    put(target, job, *plane, x, row, ((sample << job.raised) + half) >> job.lowered);
}
"""
_SAMPLES: Final = {1: "unsigned char", 2: "unsigned short"}
"""The kernels' sample type for each sample size in bytes."""
KERNEL_NAMES: Final = (
    *(f"{kernel}<{sample}>" for kernel in ("across", "down") for sample in _SAMPLES.values()),
    *(f"repack<{source}, {target}>" for source in _SAMPLES.values() for target in _SAMPLES.values()),
)


class _Plane(ctypes.Structure):
    """The kernels' struct ``Plane``: positions and table offsets are counted in elements."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("source", "between", "target")),
        *((name, ctypes.c_int) for name in ("source_step", "source_pitch", "source_rows")),
        *((name, ctypes.c_int) for name in ("target_step", "target_pitch", "target_columns", "target_rows")),
        *((name, ctypes.c_int) for name in ("across", "across_count", "down", "down_count")),
    )


class _Job(ctypes.Structure):
    """The kernels' struct ``Job``, passed by value."""

    _fields_ = (
        ("planes", _Plane * 3),
        *((name, ctypes.c_int) for name in ("count", "source_shift", "across_shift", "down_shift")),
        *((name, ctypes.c_int) for name in ("raised", "lowered", "largest", "target_shift")),
    )


class SurfaceConversion(ABC):
    """A prepared conversion. Used by one thread at a time."""

    @abstractmethod
    def begin(self, surface_address: int, stream: Stream, target_address: int | None = None) -> None:
        """Start to convert the surface at a device address in ``stream``. ``DeviceError`` if the driver refuses.

        Calls share scratch memory: use one stream. Without a ``target_address``, the address given to
        ``prepare`` is used.
        """

    @abstractmethod
    def close(self) -> None:
        """Free the conversion's memory. Call only after the stream has finished. Idempotent."""


class SurfaceConverter(ABC):
    """Scales and converts surfaces in device memory. Safe from any thread that has entered the device's context."""

    @abstractmethod
    def prepare(self, conversion: Conversion, target_address: int) -> SurfaceConversion:
        """Upload a conversion's weights. Each result takes ``conversion.target_bytes`` at a device address.

        ``DeviceMemory`` if there is no room for ``conversion.scratch_bytes``, ``DeviceError`` if the driver refuses.
        """


class Converter(SurfaceConverter):
    """Converts with kernels that NVRTC compiles for the current device.

    Raises errors of ``cuda.core`` if NVRTC is missing.
    """

    def __init__(self, core: Any, cuda: Cuda) -> None:
        self._cuda = cuda
        self._kernels = Kernels(core, cuda, SOURCE, KERNEL_NAMES)

    def prepare(self, conversion: Conversion, target_address: int) -> "_Converting":
        """Upload the conversion's weights and prepare its kernels."""
        return _Converting(self._cuda, self._kernels, conversion, target_address)


class _Converting(SurfaceConversion):
    """A conversion with its memory on the device."""

    def __init__(self, cuda: Cuda, kernels: Kernels, conversion: Conversion, target_address: int) -> None:
        self._cuda = cuda
        self._target_address = target_address
        self._copied_bytes = conversion.target_bytes if conversion.is_identity else 0
        self._surface, self._target = ctypes.c_uint64(0), ctypes.c_uint64(target_address)
        size_bytes = conversion.scratch_bytes
        self._scratch = cuda.allocate(size_bytes) if size_bytes else 0
        with undone_by(self.close):
            self._launches = () if self._copied_bytes else tuple(self._made(kernels, conversion))

    def begin(self, surface_address: int, stream: Stream, target_address: int | None = None) -> None:
        self._surface.value = surface_address
        self._target.value = self._target_address if target_address is None else target_address
        if self._copied_bytes:
            self._cuda.copy_on_device(self._target.value, surface_address, self._copied_bytes, stream)
        for launch in self._launches:
            launch.begin(stream)

    def close(self) -> None:
        if self._scratch:
            self._cuda.free(self._scratch)
            self._scratch = 0

    def _made(self, kernels: Kernels, conversion: Conversion) -> Iterator[Launch]:
        plans = conversion.plans()
        scaled = [plan for plan in plans if plan.is_scaled]
        repacked = [plan for plan in plans if not plan.is_scaled]
        source, target = (_SAMPLES[each.sample_bytes] for each in (conversion.source, conversion.target))
        if repacked:
            job = _job(conversion, [_plane(plan) for plan in repacked])
            kernel = kernels[f"repack<{source}, {target}>"]
            yield Launch(self._cuda, kernel, _size(repacked), (self._surface, self._target, job))
        if scaled:
            job = _job(conversion, self._with_tables(scaled))
            tables = ctypes.c_uint64(self._scratch)
            between = ctypes.c_uint64(self._scratch + conversion.tables_bytes)
            first, second = kernels[f"across<{source}>"], kernels[f"down<{target}>"]
            rows = sum(plan.source.rows for plan in scaled)
            yield Launch(self._cuda, first, (_size(scaled)[0], rows), (self._surface, between, tables, job))
            yield Launch(self._cuda, second, _size(scaled), (between, self._target, tables, job))

    def _with_tables(self, plans: Sequence[PlanePlan]) -> list[_Plane]:
        places: dict[Taps, int] = {}
        tables: list[int] = []
        planes, between = [], 0
        for plan in plans:
            for each in (plan.across, plan.down):
                if each not in places:
                    places[each] = len(tables)
                    # The first source of every target, then the first weight of every target, then the second weights,
                    # and so on.
                    tables += each.firsts
                    for weights in zip(*each.weights, strict=True):
                        tables += weights
            plane = _plane(plan)
            plane.between = between
            plane.across, plane.across_count = places[plan.across], plan.across.count
            plane.down, plane.down_count = places[plan.down], plan.down.count
            between += plan.target.columns * plan.source.rows
            planes.append(plane)
        upload(self._cuda, self._scratch, np.array(tables, dtype=np.int32).tobytes())
        return planes


def upload(cuda: Cuda, address: int, tables: bytes) -> None:
    """Copy a table to the device, and wait for the copy; ``DeviceError`` if it fails."""
    stream, pinned = cuda.stream(), 0
    try:
        pinned = cuda.pin(len(tables))
        ctypes.memmove(pinned, tables, len(tables))
        with cuda.watch.calling("CUDA", "copying weights to the device"):
            cuda.copy_to_device(address, pinned, len(tables), stream)
            stream.wait()
    finally:
        stream.close()
        if pinned:
            cuda.unpin(pinned)


def _size(plans: Sequence[PlanePlan]) -> tuple[int, int]:
    return max(plan.target.columns for plan in plans), sum(plan.target.rows for plan in plans)


def _plane(plan: PlanePlan) -> _Plane:
    source, target = plan.source, plan.target
    return _Plane(
        source=source.offset,
        source_step=source.step,
        source_pitch=source.pitch,
        source_rows=source.rows,
        target=target.offset,
        target_step=target.step,
        target_pitch=target.pitch,
        target_columns=target.columns,
        target_rows=target.rows,
    )


def _job(conversion: Conversion, planes: Sequence[_Plane]) -> _Job:
    source, target = conversion.source, conversion.target
    return _Job(
        planes=(_Plane * 3)(*planes),
        count=len(planes),
        source_shift=padding_bits(source),
        across_shift=WEIGHT_BITS + source.bits - BETWEEN_BITS,
        down_shift=WEIGHT_BITS + BETWEEN_BITS - target.bits,
        raised=max(target.bits - source.bits, 0),
        lowered=max(source.bits - target.bits, 0),
        largest=(1 << target.bits) - 1,
        target_shift=padding_bits(target),
    )
