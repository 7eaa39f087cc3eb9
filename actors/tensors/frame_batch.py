"""A batch of frames as its user holds it: one tensor, and which frames are in it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..surfaces.frames import Frame


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameBatch:
    """Frames in one tensor, complete: read it on any stream.

    It is a DLPack tensor, as ``data`` is: ``torch.from_dlpack(batch)`` shares its memory.
    """

    data: Any = field(repr=False)
    """The caller's ``out``; else an array of NumPy, or on a GPU of DLPack and the CUDA array interface."""
    indices: tuple[int, ...]
    """The frames' numbers, one for each place of the tensor."""
    times_s: tuple[Fraction, ...]
    """When they are shown, in seconds after the source's first picture."""
    durations_s: tuple[Fraction, ...]
    """How long they are shown; 0 is unknown."""

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return tuple(self.data.shape)

    def __array__(self, dtype: DTypeLike | None = None, *, copy: bool | None = None) -> NDArray[Any]:
        """Return the tensor as an array of NumPy; bfloat16 as a copy in float32. ``TypeError`` if it is on a GPU."""
        if hasattr(self.data, "__cuda_array_interface__"):
            raise TypeError("the batch is on a GPU: take it by DLPack, or copy it to the host first")
        return np.asarray(self.data, dtype=dtype, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (kind, number) of the device (DLDeviceType)."""
        kind, number = self.data.__dlpack_device__()
        return int(kind), int(number)

    def __dlpack__(self, **options: Any) -> object:  # noqa: ANN401 - as the consumer asks
        """Return a DLPack capsule (Python array API standard)."""
        return self.data.__dlpack__(**options)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface of a batch on a GPU; ``AttributeError`` on the host, and for bfloat16."""
        found: dict[str, Any] = self.data.__cuda_array_interface__
        return found


@dataclass(frozen=True, slots=True)
class ShownFrame:
    """What a batch keeps of a frame."""

    index: int
    time_s: Fraction
    duration_s: Fraction | None


def batch_of(data: object, frames: Sequence[Frame | ShownFrame]) -> FrameBatch:
    """Return the batch of a tensor's frames."""
    return FrameBatch(
        data=data,
        indices=tuple(frame.index for frame in frames),
        times_s=tuple(frame.time_s for frame in frames),
        durations_s=tuple(frame.duration_s or Fraction(0) for frame in frames),
    )
