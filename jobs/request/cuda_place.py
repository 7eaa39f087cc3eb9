"""Which GPU of the calling process works, in which context, and beside which of the caller's streams."""

from typing import Annotated

from pydantic import Field

from .parts import Part


class CudaPlace(Part):
    """A GPU as a program that uses CUDA itself names it.

    ``device`` is a CUDA ordinal of this process or a UUID; None is that of ``context``, else the first. ``context`` is
    the handle of a context, which the caller keeps; None is the device's primary one. ``stream`` is the handle of a
    stream of the caller's: 1 is CUDA's legacy default stream, 2 the thread's.
    """

    device: Annotated[int, Field(ge=0)] | str | None = None
    context: Annotated[int, Field(ge=1)] | None = None
    stream: Annotated[int, Field(ge=1)] | None = None

    @property
    def names_cuda(self) -> bool:
        """Whether any of it is given."""
        return (self.device, self.context, self.stream) != (None, None, None)
