"""Buffers for several tasks at once; pictures are copied into the buffers, or written there directly."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.hybrid import HybridSession
from ..engine.session import DlaSession
from ..engine.standalone import StandaloneSession
from ..engine.tasks import Access, DeviceBuffer, DlaModule, DlaTask
from .layout import unpack

Outputs = tuple[NDArray[Any], ...]


class Lanes(ABC):
    """One set of buffers for each of ``count`` tasks."""

    @abstractmethod
    def run(self, memories: Sequence[NDArray[np.uint8]]) -> list[Outputs]:
        """Run one task for each of ``memories`` (filled inputs); return copies of the outputs, (n, c, h, w) each."""


Fill = Callable[[DeviceBuffer, int], None]
"""Queues the filling of an input buffer, in the CUDA stream with this handle."""


class _Lane:
    def __init__(self, session: DlaSession, module: DlaModule) -> None:
        self.source = session.allocate(module.inputs[0].size_bytes)
        self.results: list[DeviceBuffer] = [session.allocate(result.size_bytes) for result in module.outputs]
        statistics = [session.allocate(each.size_bytes, Access.TASK_STATISTICS) for each in module.statistics]
        self.task = DlaTask(
            module=module,
            inputs=(self.source.registration,),
            outputs=tuple(buffer.registration for buffer in self.results),
            statistics=tuple(buffer.registration for buffer in statistics),
        )


class _CopiedLane(_Lane):
    """A lane with page-locked host memory for each buffer."""

    def __init__(self, session: DlaSession, module: DlaModule) -> None:
        super().__init__(session, module)
        self.source_staging = session.host_array(self.source.size_bytes)
        self.result_staging = [session.host_array(buffer.size_bytes) for buffer in self.results]


class CopiedLanes(Lanes):
    """Lanes of hybrid mode: copies and tasks in one CUDA stream."""

    def __init__(self, session: HybridSession, module: DlaModule, count: int) -> None:
        self._session, self._module = session, module
        self._lanes = [_CopiedLane(session, module) for _ in range(count)]
        for lane in self._lanes:
            session.clear(lane.source)  # filling writes only elements, not padding
        session.synchronize()

    def run(self, memories: Sequence[NDArray[np.uint8]]) -> list[Outputs]:
        """Queue all copies and tasks at once, then wait."""
        lanes = self._lanes[: len(memories)]
        for lane, memory in zip(lanes, memories, strict=True):
            np.copyto(lane.source_staging, memory)
            self._session.upload(lane.source, lane.source_staging)
        return self._ran(lanes)

    def run_filled(self, fills: Sequence[Fill]) -> list[Outputs]:
        """Run one task for each input that a GPU fills, in the session's stream; wait only at the end."""
        lanes = self._lanes[: len(fills)]
        for lane, fill in zip(lanes, fills, strict=True):
            fill(lane.source, self._session.stream)
        return self._ran(lanes)

    def _ran(self, lanes: Sequence[_CopiedLane]) -> list[Outputs]:
        self._session.submit([lane.task for lane in lanes])
        for lane in lanes:
            for buffer, array in zip(lane.results, lane.result_staging, strict=True):
                self._session.download(buffer, array)
        self._session.synchronize()
        return [_found(self._module, lane.result_staging) for lane in lanes]


class _SharedLane(_Lane):
    """A lane with the processor's view of each buffer, and an event that signals that the input was written."""

    def __init__(self, session: StandaloneSession, module: DlaModule) -> None:
        super().__init__(session, module)
        self.source_view = session.view(self.source)
        self.result_views = [session.view(buffer) for buffer in self.results]
        self.written = session.event()


class SharedLanes(Lanes):
    """Lanes of standalone mode: each queued task begins once the processor has written the task's input."""

    def __init__(self, session: StandaloneSession, module: DlaModule, count: int) -> None:
        self._session, self._module = session, module
        self._lanes = [_SharedLane(session, module) for _ in range(count)]

    def run(self, memories: Sequence[NDArray[np.uint8]]) -> list[Outputs]:
        """Queue all tasks, write their inputs, then wait."""
        lanes = self._lanes[: len(memories)]
        for lane in lanes:
            self._session.submit([lane.task], waits=[self._session.fence(lane.written)])
        for lane, memory in zip(lanes, memories, strict=True):
            np.copyto(lane.source_view, memory)
            self._session.signal(lane.written)
        self._session.synchronize()
        return [_found(self._module, lane.result_views) for lane in lanes]


def open_lanes(session: HybridSession | StandaloneSession, module: DlaModule, count: int) -> CopiedLanes | SharedLanes:
    """Return lanes for ``count`` tasks, of the kind that fits the session's mode."""
    if isinstance(session, StandaloneSession):
        return SharedLanes(session, module, count)
    return CopiedLanes(session, module, count)


def _found(module: DlaModule, memories: Sequence[NDArray[np.uint8]]) -> Outputs:
    """Return a copy of a task's outputs, because the next task overwrites the buffers."""
    return tuple(unpack(result, memory) for result, memory in zip(module.outputs, memories, strict=True))
