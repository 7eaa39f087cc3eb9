"""Standalone mode of the fake DLAs: NvSci's buffers and sync objects, and what cuDLA's binding lacks.

Tasks run in the caller's thread: when they are submitted, or when the last fence that they wait for is signalled.
"""

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...actors.dla.engine import CudlaBinding
from ...actors.dla.nvsci import ALIGNMENT_BYTES, Fence, NvSci, NvSciFailure, Role, SciBuffer, SciBuffers, SciSyncs

if TYPE_CHECKING:
    from .fake_cudla import FakeMachine

BAD_PARAMETER: Final = 0x100


@dataclass(slots=True)
class FakeTimeline:
    """A sync object: how many signals were promised by fences, and how many came."""

    promised: int = 0
    reached: int = 0


@dataclass(slots=True)
class FakeSciObjects:
    """All NvSci objects of a machine, by handle. A buffer is its memory, and the alignment that it was asked with."""

    buffers: dict[int, tuple[NDArray[np.uint8], int]] = field(default_factory=dict)
    timelines: dict[int, FakeTimeline] = field(default_factory=dict)
    handles: "itertools.count[int]" = field(default_factory=lambda: itertools.count(0x5C10_0000, 0x100))

    def buffer(self, size_bytes: int, alignment: int = ALIGNMENT_BYTES) -> SciBuffer:
        """Allocate a buffer."""
        memory = np.zeros(size_bytes, dtype=np.uint8)
        handle = next(self.handles)
        self.buffers[handle] = memory, alignment
        return SciBuffer(handle, int(memory.ctypes.data), size_bytes)

    def fence(self, handle: int, fence: Any) -> None:
        """Write the next point of a timeline into a fence's payload."""
        timeline = self.timelines[handle]
        timeline.promised += 1
        fence[0], fence[1] = handle, timeline.promised

    def is_reached(self, payload: Any) -> bool:
        """Tell whether the point of a fence was reached."""
        return self.timelines[int(payload[0])].reached >= int(payload[1])


class FakeBuffers(SciBuffers):
    """``SciBuffers`` of a fake machine."""

    def __init__(self, machine: "FakeMachine") -> None:
        self._machine = machine

    def allocate(self, size_bytes: int, alignment: int = ALIGNMENT_BYTES) -> SciBuffer:
        self._machine.enter("NvSciBufObjAlloc")
        return self._machine.sci.buffer(size_bytes, alignment)

    def shape(self, object_: int) -> tuple[int, int]:
        if object_ not in self._machine.sci.buffers:
            raise NvSciFailure("NvSciBufObjGetAttrList", BAD_PARAMETER)
        memory, alignment = self._machine.sci.buffers[object_]
        return memory.nbytes, alignment

    def open(self) -> None:
        self._machine.enter("NvSciBufModuleOpen")

    def free(self, object_: int) -> None:
        del self._machine.sci.buffers[object_]

    def close(self) -> None:
        self._machine.enter("NvSciBufModuleClose")


class FakeSyncs(SciSyncs):
    """``SciSyncs`` of a fake machine."""

    def __init__(self, machine: "FakeMachine") -> None:
        self._machine = machine

    def open(self) -> None:
        self._machine.enter("NvSciSyncModuleOpen")

    def attributes(self) -> int:
        return next(self._machine.sci.handles)

    def allocate(self, processor: Role, engine: int) -> int:
        del processor, engine
        handle = next(self._machine.sci.handles)
        self._machine.sci.timelines[handle] = FakeTimeline()
        return handle

    def fence(self, object_: int) -> Fence:
        fence = Fence()
        self._machine.sci.fence(object_, fence.payload)
        return fence

    def signal(self, object_: int) -> None:
        self._machine.sci.timelines[object_].reached += 1
        self._machine.run_waiting()

    def wait(self, fence: Fence) -> None:
        """Return, where the fence was reached; else it will never be, and this hangs."""
        self._machine.enter("NvSciSyncFenceWait")
        if not self._machine.sci.is_reached(fence.payload):
            self._machine.hang()

    def spin(self, fence: Fence) -> None:
        self.wait(fence)

    def clear(self, fence: Fence) -> None:
        fence.payload[:] = [0] * len(fence.payload)

    def free(self, object_: int) -> None:
        del self._machine.sci.timelines[object_]

    def close(self) -> None:
        self._machine.enter("NvSciSyncModuleClose")


class FakeSci(NvSci):
    """``NvSci`` of a fake machine."""

    def __init__(self, machine: "FakeMachine") -> None:
        self.buffers = FakeBuffers(machine)
        self.syncs = FakeSyncs(machine)


class FakeStandalone(CudlaBinding):
    """``CudlaLibrary`` of a fake machine: its binding, and what NVIDIA's lacks."""

    def __init__(self, machine: "FakeMachine") -> None:
        super().__init__(machine)
        self._machine = machine

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function by its C name."""
        if function == "cudlaCreateDevice":
            return super().call("cudlaCreateStandalone", arguments[0])
        return super().call(function, *arguments)
