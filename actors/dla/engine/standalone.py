"""A DLA without CUDA: NvSciBuf memory shared with the processor, and NvSciSync fences (CUDA for Tegra, section 5.1)."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...device.memory_choice import Waiting
from ..nvsci.buffers import ALIGNMENT_BYTES
from ..nvsci.syncs import Fence, NvSci, Role
from .library import Cudla
from .session import DlaSession
from .states import DlaMode
from .tasks import Access, DeviceBuffer, DlaTask, SubmitOption, TaskEvents, TaskMemory
from .watchdog import Timing

if TYPE_CHECKING:
    from .host import DlaHost


@dataclass(frozen=True, slots=True)
class SyncEvent:
    """A sync object that a session has registered (``cudlaImportExternalSemaphore``)."""

    object: int  # the NvSciSyncObj
    dla_address: int  # the sync object's address for the DLA


class StandaloneSession(DlaSession):
    """One cuDLA device handle in standalone mode (``CUDLA_STANDALONE``).

    Tasks run first in, first out. Each submission signals only the session's own sync object, as cuDLA 1.x demands.
    ``synchronize`` waits for the last fence and then asks for errors, because fences report no errors (CUDA for Tegra,
    section 5.1.5). Copies wait for the running tasks; to avoid that, use ``view`` and ``event``.
    """

    mode: ClassVar = DlaMode.STANDALONE

    def __init__(
        self, library: Cudla, make_sci: Callable[[], NvSci], device: int, timing: Timing, host: "DlaHost"
    ) -> None:
        self._make_sci = make_sci
        self._views: dict[int, int] = {}
        self._events: list[SyncEvent] = []
        self._own_objects: list[int] = []
        self._submitted_fences: list[Fence] = []
        self._last: Fence | None = None
        super().__init__(library, device, timing, host)

    def view(self, buffer: DeviceBuffer) -> NDArray[np.uint8]:
        """Return a buffer's memory as the processor sees it."""
        with self._turn:
            self._calls.refuse_unless(
                self._buffers.get(buffer.memory) is buffer, "the buffer belongs to another session"
            )
            return np.ctypeslib.as_array((ctypes.c_uint8 * buffer.size_bytes).from_address(self._views[buffer.memory]))

    def host_array(self, size_bytes: int) -> NDArray[np.uint8]:
        """Return pageable memory, which only the processor uses (CUDA for Tegra, section 3.1)."""
        self._calls.refuse_unless(size_bytes > 0, f"memory needs a size above 0: {size_bytes} bytes")
        return np.zeros(size_bytes, dtype=np.uint8)

    def clear(self, buffer: DeviceBuffer) -> None:
        """Fill a buffer with zeros once the running tasks are done."""
        with self._turn:
            self._wait_for_tasks()
            self.view(buffer)[:] = 0

    def event(self) -> SyncEvent:
        """Return an event that the processor signals, and for which tasks wait; ``close`` frees it."""
        return self._made(Role.SIGNALS)

    def register_event(self, object_: int) -> SyncEvent:
        """Register a caller's NvSciSync object, which must outlive this session (``cudlaImportExternalSemaphore``)."""
        with self._turn:
            described = np.array([object_], dtype="<u8")
            arguments = self.handle, int(described.ctypes.data), 0
            event = SyncEvent(object_, int(self._calls.cudla("cudlaImportExternalSemaphore", *arguments)))
            self._events.append(event)
            return event

    def fill_attributes(self, attributes: int, role: Role) -> None:
        """Fill an ``NvSciSyncAttrList`` with what a DLA in ``role`` requires (``cudlaGetNvSciSyncAttributes``)."""
        self._calls.cudla("cudlaGetNvSciSyncAttributes", attributes, int(role))

    def fence(self, event: SyncEvent) -> Fence:
        """Return the fence of an event's next signal, for ``submit``; each signal needs its own fence."""
        with self._turn:
            return self._calls.ask("NvSciSyncObjGenerateFence", partial(self._sci.syncs.fence, event.object))

    def signal(self, event: SyncEvent) -> None:
        """Signal an event: tasks that wait for the oldest fence of the event may begin."""
        with self._turn:
            self._calls.ask("NvSciSyncObjSignal", partial(self._sci.syncs.signal, event.object))

    def _begin(self) -> None:
        self._sci = self._make_sci()
        self._sci.open()

    def _prepare(self) -> None:
        self._done = self._made(Role.WAITS)

    def _made(self, processor: Role) -> SyncEvent:
        """Make and register a sync object in which the processor has this role, and the DLA the other role."""
        with self._turn:
            attributes = self._calls.ask("NvSciSyncAttrListCreate", self._sci.syncs.attributes)
            self.fill_attributes(attributes, processor.other)
            allocate = partial(self._sci.syncs.allocate, processor, attributes)
            object_ = self._calls.ask("NvSciSyncObjAlloc", allocate)
            self._own_objects.append(object_)
            return self.register_event(object_)

    def _registered(self, memory: int, size_bytes: int, access: Access) -> int:
        size, alignment = self._calls.ask("NvSciBufObjGetAttrList", partial(self._sci.buffers.shape, memory))
        self._calls.refuse_unless(size >= size_bytes, f"the NvSciBuf object has {size} bytes, not {size_bytes}")
        self._calls.refuse_unless(
            alignment % ALIGNMENT_BYTES == 0 and alignment,
            f"the NvSciBuf object is aligned to {alignment} bytes, and a DLA needs {ALIGNMENT_BYTES}",
        )
        described = np.array([memory, size_bytes], dtype="<u8")
        arguments = self.handle, int(described.ctypes.data), int(access)
        return int(self._calls.cudla("cudlaImportExternalMemory", *arguments))

    def _allocated(self, size_bytes: int) -> int:
        made = self._calls.ask("NvSciBufObjAlloc", partial(self._sci.buffers.allocate, size_bytes))
        self._views[made.object] = made.address
        return made.object

    def _freed(self, memory: int) -> None:
        del self._views[memory]
        self._sci.buffers.free(memory)

    def _uploaded(self, buffer: DeviceBuffer, array: NDArray[Any]) -> None:
        self._wait_for_tasks()
        self.view(buffer)[: array.nbytes] = array.reshape(-1).view(np.uint8)

    def _downloaded(self, buffer: DeviceBuffer, array: NDArray[Any]) -> None:
        self._wait_for_tasks()
        array.reshape(-1).view(np.uint8)[:] = self.view(buffer)[: array.nbytes]

    def _queue(
        self, tasks: Sequence[DlaTask], stream: int | None, options: SubmitOption, waits: Sequence[Fence]
    ) -> None:
        self._calls.refuse_unless(stream is None, "standalone mode has no CUDA stream")
        self._calls.refuse_unless(
            len({fence.content for fence in waits}) == len(waits),
            "a fence is given twice: cuDLA takes a fence only once",
        )
        end = Fence()
        events = TaskEvents(waits=tuple(waits), semaphore=self._done.dla_address, end=end)
        self._submitted(TaskMemory(tasks, events), 0, options)
        self._last = end
        self._submitted_fences += [*waits, end]

    def _wait_for_tasks(self) -> None:
        if self._last is not None:  # tasks run first in, first out
            wait = self._sci.syncs.spin if self._timing.waiting is Waiting.SPIN else self._sci.syncs.wait
            self._calls.ask("NvSciSyncFenceWait", partial(wait, self._last), self._patience_s())
            self._last = None
            self._calls.ask("NvSciSyncFenceClear", self._clear_fences)

    def _clear_fences(self) -> None:
        for fence in self._submitted_fences:
            self._sci.syncs.clear(fence)
        self._submitted_fences.clear()

    def _release_events(self) -> None:
        for event in reversed(self._events):
            self._library.call("cudlaMemUnregister", self.handle, event.dla_address)
        self._events.clear()

    def _end_side(self) -> None:
        for object_ in self._own_objects:
            self._sci.syncs.free(object_)
        self._own_objects.clear()
        self._sci.close()
