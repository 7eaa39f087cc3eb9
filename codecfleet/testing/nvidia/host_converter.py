"""Scaling and conversion for devices whose memory is host memory, and the oracle for the kernels on real ones.

The arithmetic is ``actors/surfaces/host_scaling.py``'s.
"""

import ctypes
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...actors.nvidia.convert import SurfaceConversion, SurfaceConverter
from ...actors.nvidia.cuda import Stream
from ...actors.surfaces.conversion import Conversion
from ...actors.surfaces.host_scaling import converted, source_bytes

Put = Callable[[Stream, Callable[[], int]], None]


class ReferenceConverter(SurfaceConverter):
    """Converts where device addresses are host addresses.

    Args:
        put: puts work, which returns a CUresult, into a stream; None does it at once, as if streams were synchronous.
    """

    def __init__(self, put: Put | None = None) -> None:
        self._put = put or (lambda _, work: (work(), None)[1])
        self.prepared: list[Conversion] = []

    def prepare(self, conversion: Conversion, target_address: int) -> "HostConverting":
        """Return what does a conversion."""
        self.prepared.append(conversion)
        return HostConverting(self._put, conversion, target_address)


class HostConverting(SurfaceConversion):
    """A conversion that is ready."""

    def __init__(self, put: Put, conversion: Conversion, target_address: int) -> None:
        self._put = put
        self._conversion = conversion
        self._target_address = target_address

    def begin(self, surface_address: int, stream: Stream, target_address: int | None = None) -> None:
        """Put the conversion of the surface at this address into a stream."""
        target = self._target_address if target_address is None else target_address
        self._put(stream, lambda: self._convert(surface_address, target))

    def close(self) -> None:
        """Do nothing: there is no memory to give back."""

    def _convert(self, surface_address: int, target_address: int) -> int:
        surface = _bytes_at(surface_address, source_bytes(self._conversion))
        _bytes_at(target_address, self._conversion.target_bytes)[:] = converted(self._conversion, surface)
        return 0


def _bytes_at(address: int, size_bytes: int) -> NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size_bytes).from_address(address))
