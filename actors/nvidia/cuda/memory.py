"""Memory budgets, and pools of buffers; a buffer returns to its pool when the last reference to it is gone."""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from ....errors import DeviceMemory
from ...device.memory_choice import BufferUse, Often, Party, choose_memory
from .context import Cuda

USABLE_PART: Final = 0.9
"""The fraction of a device's free memory that is used; drivers and kernels need the rest."""
_ADVICE: Final = "Run fewer segments at a time, or end other programs that use this GPU."
_MIB: Final = 1 << 20
_LOCKED_BYTES_MAX: Final = 16 << 30
"""The most memory that may be locked, far more than a GPU's sessions use.

The rest of the host cannot use locked memory.
"""
_IDLE_LOCKED_BYTES: Final = 1 << 30
"""How much idle locked memory is kept: locking the pages of a picture takes a millisecond."""
_PICTURE_BYTES: Final = 3 << 20
"""The size of a 1080p picture, a typical buffer."""

ResultT = TypeVar("ResultT")


class MemoryBudget:
    """Counts the bytes taken from one kind of memory, at most ``total_bytes`` (None: unbounded). Safe from any thread.

    Idle objects count as taken until their room is needed. They are then evicted one by one, in the order of the calls
    of ``reclaim_from``. Messages call the memory ``name``.
    """

    def __init__(self, total_bytes: int | None, name: str = "the GPU's memory") -> None:
        self.total_bytes = total_bytes
        self._name = name
        self._lock = threading.Lock()
        self._taken_bytes = 0
        # Changed without the lock: the garbage collector may release a buffer at any point, even during a method of
        # this class.
        self._returned: deque[int] = deque()
        self._reclaims: list[Callable[[], bool]] = []

    @property
    def taken_bytes(self) -> int:
        """How many bytes are taken now, without memory that was given back."""
        with self._lock:
            self._settle()
            return self._taken_bytes

    def reclaim_from(self, reclaim: Callable[[], bool]) -> None:
        """Register ``reclaim``, which evicts one idle object and returns whether there was one."""
        self._reclaims.append(reclaim)

    def spend(self, size_bytes: int, allocate: Callable[[], ResultT]) -> ResultT:
        """Take ``size_bytes`` for the result of ``allocate``; call ``give_back`` when that result is freed.

        Idle objects are evicted until the budget and the driver have room. ``DeviceMemory`` if there is no room and
        nothing is idle. If ``allocate`` raises another error, nothing is taken.
        """
        while True:
            self._take(size_bytes)
            try:
                return allocate()
            except DeviceMemory:
                self.give_back(size_bytes)
                if not self._reclaim():
                    raise
            except BaseException:  # after any failure, nothing was allocated
                self.give_back(size_bytes)
                raise

    def give_back(self, size_bytes: int) -> None:
        """Return bytes that ``spend`` took. Safe in a destructor, because it takes no lock."""
        self._returned.append(size_bytes)

    def _take(self, size_bytes: int) -> None:
        while not self._taken(size_bytes):
            if not self._reclaim():
                held = f"{self.taken_bytes // _MIB} of {(self.total_bytes or 0) // _MIB} MiB are in use"
                raise DeviceMemory(f"{self._name} has no room for {size_bytes / _MIB:.1f} MiB more: {held}", _ADVICE)

    def _taken(self, size_bytes: int) -> bool:
        with self._lock:
            self._settle()
            if self.total_bytes is not None and self._taken_bytes + size_bytes > self.total_bytes:
                return False
            self._taken_bytes += size_bytes
            return True

    def _settle(self) -> None:
        while self._returned:
            self._taken_bytes -= self._returned.popleft()

    def _reclaim(self) -> bool:
        # Called without the lock: each callee has its own locks.
        return any(reclaim() for reclaim in self._reclaims)


class PooledBuffer:
    """Memory that returns to its pool when the last reference to it is gone, in any thread.

    When the interpreter exits, nothing returns: the driver may be gone already, and frees all memory of the process
    anyway.
    """

    __slots__ = ("__weakref__", "_pool", "address", "size_bytes")

    def __init__(self, pool: "BufferPool", address: int, size_bytes: int) -> None:
        self._pool = pool
        self.address = address
        self.size_bytes = size_bytes

    # ``__del__`` takes a quarter of the time of ``weakref.finalize``. ``is_ending`` is bound here because modules are
    # emptied at exit.
    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending():
            self._pool.take_back(self.address, self.size_bytes)


class BufferPool:
    """Buffers of any size that return to the pool when no longer referenced. Safe from any thread.

    The buffer that returned last is taken first: its memory is the warmest.

    A dozen threads take and return thousands of buffers a second. They would queue for a lock, whose holder may wait
    for the GIL. So there is no lock; each size has a deque, whose operations are atomic.

    ``allocate`` takes a size in bytes and returns an address. At most ``idle_bytes`` are kept idle. All memory, idle
    or in use, is taken from ``budget``, which evicts idle buffers.
    """

    def __init__(
        self, allocate: Callable[[int], int], free: Callable[[int], None], idle_bytes: int, budget: MemoryBudget
    ) -> None:
        self.budget = budget
        self._allocate = allocate
        self._free = free
        self._idle_bytes_max = idle_bytes
        self._idle: dict[int, deque[int]] = {}
        self._next_idle: Callable[[deque[int]], int] = deque.pop
        self._latest_bytes = 0
        budget.reclaim_from(self.drop_oldest)

    def take(self, size_bytes: int, allocate: Callable[[int], int] | None = None) -> int:
        """Return the address of uninitialised bytes; ``allocate`` replaces the pool's function.

        Raises ``DeviceError``.
        """
        idle = self._idle.get(size_bytes)
        if idle:
            try:
                return self._next_idle(idle)
            except IndexError:  # another thread was faster
                pass
        return self.budget.spend(size_bytes, partial(allocate or self._allocate, size_bytes))

    def acquire(self, size_bytes: int) -> PooledBuffer:
        """Return a buffer of ``size_bytes`` uninitialised bytes; ``DeviceError`` if no more can be allocated."""
        return PooledBuffer(self, self.take(size_bytes), size_bytes)

    def drop_oldest(self) -> bool:
        """Free an idle buffer, if possible not of the size that returned last; return whether there was one."""
        return self._evict()

    def _evict(self) -> bool:
        for size_bytes in sorted(self._idle, key=lambda size_bytes: size_bytes == self._latest_bytes):
            try:
                address = self._idle[size_bytes].popleft()
            except IndexError:
                continue
            try:
                self._free(address)
            finally:
                self.budget.give_back(size_bytes)
            return True
        return False

    def take_back(self, address: int, size_bytes: int) -> None:
        """Take a buffer back. Called when the last reference is gone, possibly during a method of this class."""
        self._keep(address, size_bytes)
        self._trim()

    def _keep(self, address: int, size_bytes: int) -> None:
        self._latest_bytes = size_bytes
        idle = self._idle.get(size_bytes)
        if idle is None:
            idle = self._idle.setdefault(size_bytes, deque())
        idle.append(address)

    def _trim(self) -> None:
        while self._idle_bytes() > self._idle_bytes_max and self._evict():
            pass

    def _idle_bytes(self) -> int:
        return sum([size_bytes * len(idle) for size_bytes, idle in list(self._idle.items())])


class PinnedBuffer(PooledBuffer):
    """Page-locked memory. ``numpy.asarray`` gives a writable view of its bytes, which keeps the buffer in use."""

    __slots__ = ()

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's array interface, version 3."""
        return {"version": 3, "typestr": "|u1", "shape": (self.size_bytes,), "data": (self.address, False)}


class PinnedMemory(BufferPool):
    """Host memory that the device can use: page-locked, or managed if ``choose_memory`` decides so.

    An integrated GPU writes pictures directly into it (``choice.shares``); a discrete GPU copies into it at full speed.
    Managed memory is attached to the processor unless a stream has attached it to the GPU. A quarter of the host's
    memory, at most 16 GiB, may be locked; ``part`` is this process's share.
    """

    def __init__(self, cuda: Cuda, idle_bytes: int = _IDLE_LOCKED_BYTES, part: float = 1.0) -> None:
        lockable_bytes = min(_LOCKED_BYTES_MAX, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4)
        budget = MemoryBudget(int(lockable_bytes * part), "the host's page-locked memory")
        picture = BufferUse(
            size_bytes=_PICTURE_BYTES,
            writers=Party.GPU | Party.HOST,
            readers=Party.HOST | Party.GPU,
            host=Often.REPEATEDLY,  # filters and encoders read their reference pictures again
        )
        self.choice = choose_memory(picture, cuda.platform)
        allocate, free = partial(cuda.pin, choice=self.choice), partial(cuda.unpin, choice=self.choice)
        super().__init__(allocate, free, idle_bytes, budget)
        self.shares = self.choice.shares and cuda.platform.integrated
        """Whether the device may write where the processor reads; nothing then needs to be copied."""

    def acquire(self, size_bytes: int) -> PinnedBuffer:
        """Return an uninitialised buffer; ``DeviceMemory`` if there is no room, ``DeviceError`` if locking fails."""
        return PinnedBuffer(self, self.take(size_bytes), size_bytes)
