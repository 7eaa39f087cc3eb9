"""Scaling and converting surfaces where they lie, by whatever does it."""

from abc import ABC, abstractmethod

from ...surfaces.conversion import Conversion
from ..cuda.context import Stream


class SurfaceConversion(ABC):
    """A conversion that is ready. Used by one thread at a time; ``close`` gives its memory back."""

    @abstractmethod
    def begin(self, surface_address: int, stream: Stream, target_address: int | None = None) -> None:
        """Begin to convert the surface at this device address; done when the stream is.

        Args:
            surface_address: where it begins.
            stream: where the work is put, and that of every other call: what lies between the passes is shared.
            target_address: where the result goes this time; None: where it was prepared to go.

        Raises:
            DeviceError: the driver refused.
        """

    @abstractmethod
    def close(self) -> None:
        """Give its memory back, when nothing that it began is under way. Idempotent."""


class SurfaceConverter(ABC):
    """Scales and converts surfaces where they lie. Safe from any thread that has entered the device's context."""

    @abstractmethod
    def prepare(self, conversion: Conversion, target_address: int) -> SurfaceConversion:
        """Return what does a conversion.

        Args:
            conversion: what to do.
            target_address: the device address of ``conversion.target_bytes`` bytes, where results go.

        Raises:
            DeviceMemory: there is no room for ``conversion.scratch_bytes``.
            DeviceError: the driver refused otherwise.
        """
