"""Device memory that is reused or freed only after its consumers have finished, whichever streams they use.

The next stream that writes to a returned buffer waits for the consumers' events. A thread waits only if a consumer's
stream is unknown, memory runs short, or the device has no memory pools. Sources: the array API standard,
``__dlpack__``; the CUDA Array Interface, version 3, "Synchronization"; CUDA driver API.
"""

import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final

from ....errors import DeviceError
from ...surfaces.device_tensor import DEFAULT_STREAM, THREADS_STREAM
from .context import Cuda, Stream
from .memory import BufferPool, MemoryBudget, PooledBuffer

UNKNOWN_STREAM: Final = -1
"""Any stream. In the array API standard, a consumer passes -1 to keep the producer from synchronising."""
_IDLE_BYTES: Final = 2 << 30
"""How much idle memory is kept: allocating takes a driver call, and without memory pools it waits for the device."""


class PooledDeviceBuffer(PooledBuffer):
    """A buffer on the device ``device``. It returns to its pool, which reuses it when its consumers' work is done."""

    __slots__ = ("_memory", "_users", "device")

    def __init__(self, pool: "DevicePool", address: int, size_bytes: int, device: int) -> None:
        super().__init__(pool, address, size_bytes)
        self.device = device
        self._memory = pool
        # For each stream's handle: the thread that named this stream.
        self._users: dict[int, int] = {}

    def used_by(self, stream: int | None) -> None:
        """Record that the stream with this handle reads the buffer. None is the default stream, -1 any stream."""
        thread, handle = threading.get_ident(), DEFAULT_STREAM if stream is None else stream
        if handle == THREADS_STREAM and self._users.get(handle, thread) != thread:
            handle = UNKNOWN_STREAM  # the number means a different stream in each thread
        self._users[handle] = thread

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending():
            self._memory.take_back_after(self.address, self.size_bytes, self._users)


class DevicePool(BufferPool):
    """A pool of device memory that reuses a buffer after the work in its consumers' streams. Safe from any thread.

    Buffers are reused in the order in which they returned, so their consumers have usually finished by then. If the
    device has memory pools, memory is allocated and freed in stream order, so neither operation waits.
    """

    def __init__(self, cuda: Cuda, budget: MemoryBudget | None = None, idle_bytes: int = _IDLE_BYTES) -> None:
        super().__init__(cuda.allocate, self._freed, idle_bytes, budget or MemoryBudget(None))
        self._next_idle = deque.popleft
        self._cuda = cuda
        self._spare_events: deque[Any] = deque()
        # For each idle buffer: the events of its consumers' work, or the number of its use by an unknown stream.
        self._uses: dict[int, tuple[Any, ...] | int] = {}
        self._numbers = count(1)
        # The latest use by an unknown stream, and the latest such use that ended with a wait for all streams. Two
        # threads may race and leave the smaller number, which costs another wait.
        self._last_unknown = self._over_unknown = 0
        self._freeing = cuda.stream() if cuda.has_pools else None

    def acquire_for(self, stream: Stream, size_bytes: int) -> PooledDeviceBuffer:
        """Return uninitialised memory for later work in ``stream``.

        The calling thread must have entered the device's context.

        Raises ``DeviceMemory`` if no memory is left, ``DeviceError`` if the driver refused or a consumer's work failed.
        """
        if not self._trims_on_return:
            self._trim()
        allocate = partial(self._cuda.allocate_in, stream) if self._cuda.has_pools else self._cuda.allocate
        address = self.take(size_bytes, allocate)
        try:
            self._order_after(stream, address)
        except DeviceError:
            self._uses[address] = self._unknown_use()
            self._keep(address, size_bytes)
            raise
        return PooledDeviceBuffer(self, address, size_bytes, self._cuda.ordinal)

    def take_back_after(self, address: int, size_bytes: int, users: dict[int, int]) -> None:
        """Take a buffer back without waiting; it is reused after all current work in its consumers' streams."""
        if users:
            self._uses[address] = self._recorded(users)
        self._keep(address, size_bytes)
        if self._trims_on_return:
            self._trim()

    def drop_oldest(self) -> bool:
        """Free the buffer that has been idle longest, and wait until its memory can be allocated again."""
        found = super().drop_oldest()
        if found and self._freeing is not None:
            with self._cuda.entered, self._cuda.watch.calling("CUDA", "freeing a picture's memory"):
                self._freeing.wait()
        return found

    @property
    def _trims_on_return(self) -> bool:
        """Whether surplus buffers are freed when a buffer returns, because freeing does not wait.

        Otherwise they are freed at the next allocation.
        """
        return self._freeing is not None and self._last_unknown <= self._over_unknown

    def _recorded(self, users: dict[int, int]) -> tuple[Any, ...] | int:
        """Return an event in each consumer's stream, or the number of this use if a stream is unknown."""
        thread = threading.get_ident()
        if UNKNOWN_STREAM not in users and users.get(THREADS_STREAM, thread) == thread:
            with suppress(DeviceError), self._cuda.entered:  # the stream is gone, or the device is lost
                return tuple(map(self._event_in, users))
        return self._unknown_use()

    def _event_in(self, stream: int) -> Any:
        try:
            event = self._spare_events.pop()
        except IndexError:
            event = self._cuda.event()
        self._cuda.record(event, stream)
        return event

    def _unknown_use(self) -> int:
        self._last_unknown = number = next(self._numbers)
        return number

    def _order_after(self, stream: Stream, address: int) -> None:
        """Make later work in ``stream`` wait for all uses of an idle buffer."""
        uses = self._uses.pop(address, ())
        if isinstance(uses, tuple):
            for event in uses:
                self._cuda.wait_for_event(stream, event)
                self._spare_events.append(event)  # the wait covers all work recorded so far
        elif uses > self._over_unknown:
            self._wait_for_unknown(uses)

    def _wait_for_unknown(self, number: int) -> None:
        """Wait until all unknown consumers are done: those of this use, and those of all uses noted so far."""
        noted = max(number, self._last_unknown)
        with self._cuda.watch.calling("CUDA", "waiting for the consumers of pictures"):
            self._cuda.wait_for_all()
        self._over_unknown = max(noted, self._over_unknown)

    def _freed(self, address: int) -> None:
        if self._freeing is None:
            uses = self._uses.pop(address, ())  # taken before another thread can get the same address
            self._cuda.free(address)  # this call waits for all work of the device
            self._spare_events.extend(uses if isinstance(uses, tuple) else ())
            return
        with self._cuda.entered:
            self._order_after(self._freeing, address)
            self._cuda.free_in(self._freeing, address)
