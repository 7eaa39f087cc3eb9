"""The interface of makers of tensors, on the host or a device."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol

from ..surfaces.frames import Frame
from .tensor_format import TensorFormat


class FrameGroup(Protocol):
    """The frames of one tensor: a sequence, or an iterable that ends after ``len`` frames and keeps none of them."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Frame]: ...


class TensorMaker(ABC):
    """Makes tensors of pictures. Used by one thread at a time."""

    @abstractmethod
    def make(
        self, frames: FrameGroup, format_: TensorFormat, out: object = None, places: Sequence[int] | None = None
    ) -> object:
        """Return a finished tensor of frames, which must be in the maker's memory; if ``out`` is given, write to it.

        This iterates over ``frames`` once, and passes on any error of the iteration. ``places`` has the place in the
        tensor of each frame of the iteration; None means 0, 1, 2 ...

        Raises:
            UsageError: there is no frame, a crop exceeds a picture, sizes differ, or ``out`` does not fit.
            Unsupported: a frame's samples or its matrix have no formula.
            DeviceError: the device refused, or lacks memory.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the memory of the maker; tensors stay valid."""
