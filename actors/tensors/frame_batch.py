"""A batch of frames for users: one tensor, and the numbers and times of its frames."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..surfaces.frames import Frame


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameBatch:
    """Frames in one finished tensor, which may be read on any stream.

    The batch itself is a DLPack tensor, like ``data``: ``torch.from_dlpack(batch)`` shares the memory.
    """

    data: Any = field(repr=False)
    """The caller's ``out`` if given; otherwise a NumPy array, or on a GPU an array with DLPack and CUDA's interface."""
    indices: tuple[int, ...]
    """The numbers of the frames, one number for each place in the tensor."""
    times_s: tuple[Fraction, ...]
    """When the frames are shown, in seconds after the source's first picture."""
    durations_s: tuple[Fraction, ...]
    """How long the frames are shown; 0 means unknown."""

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return tuple(self.data.shape)

    def __array__(self, dtype: DTypeLike | None = None, *, copy: bool | None = None) -> NDArray[Any]:
        """Return the tensor as a NumPy array (bfloat16 as a copy in float32); ``TypeError`` if it is on a GPU."""
        if hasattr(self.data, "__cuda_array_interface__"):
            raise TypeError("the batch is on a GPU: read it through DLPack, or copy it to the host first")
        return np.asarray(self.data, dtype=dtype, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (kind, number) of the device (DLDeviceType)."""
        kind, number = self.data.__dlpack_device__()
        return int(kind), int(number)

    def __dlpack__(self, **options: Any) -> object:  # noqa: ANN401 - the consumer decides the types
        """Return a DLPack capsule (Python array API standard)."""
        return self.data.__dlpack__(**options)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface of a batch on a GPU; ``AttributeError`` on the host, and for bfloat16."""
        found: dict[str, Any] = self.data.__cuda_array_interface__
        return found


@dataclass(frozen=True, slots=True)
class ShownFrame:
    """The facts about a frame that a batch keeps."""

    index: int
    time_s: Fraction
    duration_s: Fraction | None


def batch_of(data: object, frames: Sequence[Frame | ShownFrame]) -> FrameBatch:
    """Return the batch of the tensor ``data`` and the facts of ``frames``. An unknown duration becomes 0."""
    return FrameBatch(
        data=data,
        indices=tuple(frame.index for frame in frames),
        times_s=tuple(frame.time_s for frame in frames),
        durations_s=tuple(frame.duration_s or Fraction(0) for frame in frames),
    )
