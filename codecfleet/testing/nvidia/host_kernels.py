"""NumPy versions of the kernels that scale, convert and pack, for devices in host memory and as a reference.

Scaling and conversion are those of ``actors/surfaces/host_scaling.py``.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...actors.nvidia.convert import (
    PackingKernels,
    SurfaceConversion,
    SurfaceConverter,
    TensorKernels,
    TensorLaunch,
    TensorWork,
)
from ...actors.nvidia.cuda import Stream
from ...actors.surfaces.conversion import Conversion, PlanePlace
from ...actors.surfaces.from_rgb import RgbWeights, chroma_rows, rgb_weights
from ...actors.surfaces.host_pictures import planar_picture
from ...actors.surfaces.host_scaling import converted, source_bytes
from ...actors.surfaces.strided import StridedChannel, StridedPicture
from ...actors.tensors.host_tensor import fill

Put = Callable[[Stream, Callable[[], int]], None]


class ReferenceConverter(SurfaceConverter):
    """Converts pictures at host addresses.

    Args:
        put: puts work that returns a CUresult into a stream; if None, work runs at once, as if streams were
            synchronous.
    """

    def __init__(self, put: Put | None = None) -> None:
        self._put = put or (lambda _, work: (work(), None)[1])
        self.prepared: list[Conversion] = []

    def prepare(self, conversion: Conversion, target_address: int) -> "HostConverting":
        self.prepared.append(conversion)
        return HostConverting(self._put, conversion, target_address)


class HostConverting(SurfaceConversion):
    """A prepared conversion, which NumPy carries out."""

    def __init__(self, put: Put, conversion: Conversion, target_address: int) -> None:
        self._put = put
        self._conversion = conversion
        self._target_address = target_address

    def begin(self, surface_address: int, stream: Stream, target_address: int | None = None) -> None:
        target = self._target_address if target_address is None else target_address
        self._put(stream, lambda: self._convert(surface_address, target))

    def close(self) -> None:
        pass  # there is no memory to release

    def _convert(self, surface_address: int, target_address: int) -> int:
        surface = _bytes_at(surface_address, source_bytes(self._conversion))
        _bytes_at(target_address, self._conversion.target_bytes)[:] = converted(self._conversion, surface)
        return 0


def _bytes_at(address: int, size_bytes: int) -> NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size_bytes).from_address(address))


class ReferencePacking(PackingKernels):
    """Packs pictures at host addresses; ``put`` puts work that returns a CUresult into a stream."""

    def __init__(self, put: Put) -> None:
        self._put = put

    def launch(self, picture: StridedPicture, target: int, tables: int) -> "HostPacking":
        del tables
        return HostPacking(self._put, picture, target)


class HostPacking:
    """A picture to pack into the surface at ``target``."""

    def __init__(self, put: Put, picture: StridedPicture, target: int) -> None:
        self._put = put
        self._picture = picture
        self._target = target

    def begin(self, stream: Stream) -> None:
        self._put(stream, self._pack)

    def _pack(self) -> int:
        found = packed(self._picture)
        ctypes.memmove(self._target, found.ctypes.data, found.nbytes)
        return 0


class ReferenceTensors(TensorKernels):
    """Makes tensors of pictures at host addresses; ``ReferencePacking`` documents ``put``."""

    def __init__(self, put: Put) -> None:
        self._put = put

    def prepare(self, work: TensorWork, tables: int) -> "HostTensorLaunch":
        """Return the launch for some pictures."""
        del tables
        return HostTensorLaunch(self._put, work)


class HostTensorLaunch(TensorLaunch):
    """A launch that writes pictures of one kind on the host, with NumPy."""

    def __init__(self, put: Put, work: TensorWork) -> None:
        self._put = put
        self._work = work

    def begin(self, surfaces: Sequence[int], target: int, steps: tuple[int, int, int, int], stream: Stream) -> None:
        """Queue the writing of pictures in a stream."""
        step_bytes = steps[0] * self._work.format.element_bytes
        for number, surface in enumerate(surfaces):
            self._put(stream, partial(self._write, surface, target + number * step_bytes, steps[1:]))

    def _write(self, surface: int, target: int, steps: tuple[int, int, int]) -> int:
        work, (width, height) = self._work, self._work.size
        chroma = {(True, True): "420", (True, False): "422"}.get(
            (work.surface.halved_across, work.surface.halved_down), "444"
        )
        pix_fmt = f"yuv{chroma}p" if work.surface.bits == 8 else f"yuv{chroma}p{work.surface.bits}le"  # noqa: PLR2004
        samples = _bytes_at(surface, work.surface.size_bytes(width, height))
        picture = planar_picture(samples, work.surface, width, height, pix_fmt)
        channels, rows, columns = work.format.channels, *work.plan.size[::-1]
        kinds = {"uint8": np.uint8, "float16": np.float16, "float32": np.float32, "bfloat16": np.uint16}
        kind = np.dtype(kinds[work.format.dtype])
        shape = (channels, rows, columns)
        extent = 1 + sum((count - 1) * step for count, step in zip(shape, steps, strict=True))
        memory = _bytes_at(target, extent * kind.itemsize)
        slot = np.ndarray(shape, kind, memory.data, 0, tuple(step * kind.itemsize for step in steps))
        in_order = slot if work.format.layout == "nchw" else slot.transpose(1, 2, 0)
        fill(in_order, picture, work.colour, work.format)
        return 0


def packed(picture: StridedPicture) -> NDArray[np.uint8]:
    """Return a picture as the bytes of a tightly packed surface."""
    found = np.zeros(picture.format.size_bytes(picture.width, picture.height), dtype=np.uint8)
    if picture.matrix is None:
        sources = [_samples(*each, picture) for each in zip(picture.channels, picture.places, strict=True)]
    else:
        size = PlanePlace(0, 1, 0, picture.width, picture.height)
        sources = _converted([_samples(each, size, picture) for each in picture.channels], rgb_weights(picture.matrix))
    step = picture.format.sample_bytes
    target = found if step == 1 else found.view(np.uint16)
    for source, place in zip(sources, picture.places, strict=True):
        shape, strides = (place.rows, place.columns), (place.pitch * step, place.step * step)
        np.ndarray(shape, target.dtype, target, place.offset * step, strides)[:] = source
    return found


def _samples(channel: StridedChannel, place: PlanePlace, picture: StridedPicture) -> NDArray[np.int32]:
    step = picture.format.sample_bytes
    across, down = (place.columns - 1) * channel.column_bytes, (place.rows - 1) * channel.row_bytes
    begin = channel.address + min(across, 0) + min(down, 0)
    end = channel.address + max(across, 0) + max(down, 0) + step
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * (end - begin)).from_address(begin))
    shape, strides = (place.rows, place.columns), (channel.row_bytes, channel.column_bytes)
    kind = np.uint8 if step == 1 else np.uint16
    return np.ndarray(shape, kind, memory.data, channel.address - begin, strides).astype(np.int32)


def _converted(channels: list[NDArray[np.int32]], weights: RgbWeights) -> list[NDArray[np.int32]]:
    luma = sum(weight * each for weight, each in zip(weights.luma, channels, strict=True)) + (0x801 << 8) >> 9
    found = [np.minimum(2 * luma, 0x7FFF) + 64 >> 7]
    rows = chroma_rows(channels[0].shape[0])
    firsts, taps = np.array(rows.firsts), np.array(rows.weights, dtype=np.int32)
    for part in (weights.blue, weights.red):
        sums = [each[:, ::2] + each[:, 1::2] for each in channels]
        chroma = sum(weight * each for weight, each in zip(part, sums, strict=True)) + (256 << 15) + (1 << 9) >> 10
        chroma = np.minimum(2 * chroma, 0x7FFF)
        total = sum(taps[:, tap, None] * chroma[firsts + tap] for tap in range(taps.shape[1])) + (1 << 18) >> 19
        found.append(np.clip(total, 0, 255))
    return [np.clip(each, 0, 255) for each in found]
