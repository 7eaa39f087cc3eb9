"""Conversions that kernels must do exactly as the reference does, on a GPU or on its substitute."""

import ctypes
from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from codecfleet.actors.nvidia.convert.converting import SurfaceConverter
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.surfaces.conversion import Conversion
from codecfleet.actors.surfaces.formats import SurfaceFormat, surface_format
from codecfleet.actors.surfaces.host_scaling import converted, source_bytes
from codecfleet.actors.surfaces.scaling import ChromaLocation, ScaleFilter

GUARD_BYTES = 256
_GUARD = 0x5A

FORMATS: dict[str, SurfaceFormat] = {
    name: found
    for name in (f"yuv{chroma}p{depth}" for chroma in (420, 422, 444) for depth in ("", "10le", "12le"))
    if (found := surface_format(name)) is not None
}
"""Every layout with every depth, by FFmpeg's names."""
SIZES = (
    ((66, 34), (66, 34)),
    ((66, 34), (132, 68)),
    ((130, 66), (64, 34)),
    ((98, 54), (70, 118)),
    ((34, 70), (34, 22)),
    ((30, 18), (46, 18)),
    ((2, 2), (70, 6)),
    ((70, 46), (2, 2)),
)
"""Pairs of sizes: unchanged, up, down, by odd ratios, along one side only, and from and to a few samples."""


def conversions(source: SurfaceFormat, filter_: ScaleFilter) -> Iterator[Conversion]:
    """Yield conversions from a format to all formats, from and to all sizes, with various chroma positions."""
    locations = [*ChromaLocation]
    for number, (target, (size, becomes)) in enumerate(product(FORMATS.values(), SIZES)):
        yield Conversion(
            source=source,
            source_size=size,
            target=target,
            target_size=becomes,
            filter=filter_,
            source_location=locations[number // len(SIZES) % len(locations)],
            target_location=locations[number % len(locations)],
        )


def noise(conversion: Conversion, seed: int) -> NDArray[np.uint8]:
    """Return a surface of noise; every second one has only extreme values, for which sums overshoot the most."""
    random = np.random.default_rng(seed)
    surface = random.integers(0, 256, source_bytes(conversion), dtype=np.uint8)
    return np.where(surface < 128, 0, 255).astype(np.uint8) if seed % 2 else surface


class Bench:
    """A device, its converter, and memory for pictures.

    Args:
        cuda: the device.
        converter: the tested converter.
        room_bytes: the size of the memory for a source picture, and of that for its result.
    """

    def __init__(self, cuda: Cuda, converter: SurfaceConverter, room_bytes: int) -> None:
        self._cuda = cuda
        self._converter = converter
        self._room_bytes = room_bytes + 2 * GUARD_BYTES
        self._stream = cuda.stream()
        self._source, self._target = cuda.allocate(self._room_bytes), cuda.allocate(self._room_bytes)
        self._host = cuda.pin(self._room_bytes)
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * self._room_bytes).from_address(self._host))
        self._bytes: NDArray[np.uint8] = memory

    def run(self, conversion: Conversion, surface: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return a surface converted by the device, and check that nothing outside the target was written."""
        total = conversion.target_bytes + 2 * GUARD_BYTES
        self._bytes[: surface.size] = surface
        self._cuda.copy_to_device(self._source, self._host, surface.size, self._stream)
        self._stream.wait()
        self._bytes[:total] = _GUARD
        self._cuda.copy_to_device(self._target, self._host, total, self._stream)
        converting = self._converter.prepare(conversion, self._target + GUARD_BYTES)
        converting.begin(self._source, self._stream)
        self._cuda.copy_to_host(self._host, self._target, total, self._stream)
        self._stream.wait()
        converting.close()
        found = self._bytes[:total].copy()
        assert (found[:GUARD_BYTES] == _GUARD).all(), "written before its place"
        assert (found[-GUARD_BYTES:] == _GUARD).all(), "written behind its place"
        return found[GUARD_BYTES:-GUARD_BYTES]

    def check(self, conversion: Conversion, seed: int) -> None:
        """Compare the device's result with the reference, bit by bit."""
        surface = noise(conversion, seed)
        found, expected = self.run(conversion, surface), converted(conversion, surface)
        assert np.array_equal(found, expected), f"{conversion.name}: {np.count_nonzero(found != expected)} bytes differ"

    def close(self) -> None:
        """Give everything back."""
        self._stream.close()
        for address in (self._source, self._target):
            self._cuda.free(address)
        self._cuda.unpin(self._host)
