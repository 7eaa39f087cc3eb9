"""A memory budget is never exceeded and never negative, and gets all memory back."""

import gc
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.cuda.memory import BufferPool, MemoryBudget, PinnedMemory, PooledBuffer
from codecfleet.errors import DeviceMemory
from codecfleet.testing.nvidia.fake_cuda import FakeCudaDriver
from codecfleet.testing.nvidia.fake_device import drop_idle


class Memory:
    """Memory of a limited size that others use too; it knows which addresses were not freed."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.blocks: dict[int, int] = {}
        self._next = 1

    @property
    def used_bytes(self) -> int:
        """The number of allocated bytes."""
        return sum(self.blocks.values())

    def allocate(self, size_bytes: int) -> int:
        """Return the address of this many bytes."""
        if self.used_bytes + size_bytes > self.size_bytes:
            message = "the driver has no more"
            raise DeviceMemory(message)
        self._next += 1
        self.blocks[self._next] = size_bytes
        return self._next

    def free(self, address: int) -> None:
        """Take them back."""
        del self.blocks[address]


@given(
    total=st.integers(0, 60),
    real=st.integers(0, 80),
    idle_max=st.integers(0, 40),
    steps=st.lists(st.tuples(st.sampled_from(["first", "second", "return", "drop"]), st.integers(1, 20)), max_size=40),
)
def test_it_is_never_exceeded_and_all_comes_back(
    total: int, real: int, idle_max: int, steps: list[tuple[str, int]]
) -> None:
    """Whatever two keepers take and return, the budget counts exactly the allocated bytes, and none at the end."""
    budget, below = MemoryBudget(total), Memory(real)
    keepers = {name: BufferPool(below.allocate, below.free, idle_max, budget) for name in ("first", "second")}
    owners: list[tuple[int, PooledBuffer]] = []
    for step, size_bytes in steps:
        if step == "return":
            del owners[: size_bytes % 3]
        elif step == "drop":
            drop_idle(keepers["first"])
        else:
            held = sum(size for size, _ in owners)
            try:
                owners.append((size_bytes, keepers[step].acquire(size_bytes)))
            except DeviceMemory:
                assert held + size_bytes > min(total, real)
        gc.collect(0)
        assert 0 <= budget.taken_bytes == below.used_bytes <= min(total, real)
    owners.clear()
    for keeper in keepers.values():
        drop_idle(keeper)
    assert (budget.taken_bytes, below.used_bytes) == (0, 0)


def test_idle_things_give_way_one_by_one_in_order() -> None:
    """Memory is reclaimed from keepers in order, and only as much as needed."""
    budget = MemoryBudget(10)
    gone: list[str] = []
    idle = {"buffer": [2, 2], "session": [3, 3]}

    def reclaim(name: str) -> bool:
        if idle[name]:
            budget.give_back(idle[name].pop())
            gone.append(name)
            return True
        return False

    for name, sizes in idle.items():
        budget.reclaim_from(partial(reclaim, name))
        for size in sizes:
            budget.spend(size, lambda: None)
    budget.spend(2, lambda: None)
    assert gone == ["buffer"]
    budget.spend(5, lambda: None)
    assert gone == ["buffer", "buffer", "session"]
    with pytest.raises(DeviceMemory, match=r"the GPU's memory has no room for 0\.0 MiB"):
        budget.spend(6, lambda: None)
    assert budget.taken_bytes == 7


def test_the_drivers_word_counts_too() -> None:
    """If the driver has no memory although the budget has, idle memory is freed; then the driver's error is raised."""
    budget, below = MemoryBudget(1000), Memory(10)
    keeper = BufferPool(below.allocate, below.free, 1000, budget)
    held = keeper.acquire(4)
    del held
    other = keeper.acquire(8)
    assert below.used_bytes == 8
    with pytest.raises(DeviceMemory, match="the driver has no more"):
        keeper.take(4)
    assert budget.taken_bytes == 8
    del other


def test_a_buffer_may_come_back_while_another_is_freed_or_got() -> None:
    """A buffer released during any driver call returns to its pool, without a deadlock."""
    budget, below = MemoryBudget(100), Memory(100)
    late: list[PooledBuffer] = []

    def allocate(size_bytes: int) -> int:
        late.clear()
        return below.allocate(size_bytes)

    def free(address: int) -> None:
        late.clear()
        below.free(address)

    keeper = BufferPool(allocate, free, 8, budget)
    late.append(keeper.acquire(4))
    first = keeper.acquire(5)
    assert not late
    late.append(keeper.acquire(8))
    del first  # 4 and 5 idle bytes exceed the limit of 8, and freeing one buffer releases the third
    assert not late
    drop_idle(keeper)
    assert (budget.taken_bytes, below.used_bytes) == (0, 0)


def test_the_longest_idle_buffer_goes_first() -> None:
    """Above the idle limit, or if room is needed, buffers are freed in the order of their return."""
    budget, below = MemoryBudget(100), Memory(100)
    keeper = BufferPool(below.allocate, below.free, 10, budget)
    owners = [keeper.acquire(size) for size in (4, 5, 3)]
    while owners:
        del owners[0]
    assert sorted(below.blocks.values()) == [3, 5]
    assert keeper.drop_oldest()
    assert list(below.blocks.values()) == [3]
    assert keeper.drop_oldest()
    assert not keeper.drop_oldest()


def test_many_threads_stay_within_it() -> None:
    """With many threads that take and return memory, the total is never exceeded, and everything returns."""
    budget = MemoryBudget(3)
    most: list[int] = []
    failed: list[int] = []

    def work() -> None:
        for _ in range(200):
            try:
                budget.spend(1, lambda: most.append(budget.taken_bytes))
            except DeviceMemory:
                failed.append(1)
            else:
                budget.give_back(1)

    _run_all([work] * 6)
    assert max(most) <= 3
    assert budget.taken_bytes == 0
    assert len(most) + len(failed) == 1200


def test_buffers_come_back_from_whichever_thread_lets_go_of_them() -> None:
    """Every buffer taken in one thread and released in another returns once."""
    budget, below = MemoryBudget(None), Memory(10_000)
    keeper = BufferPool(below.allocate, below.free, 40, budget)
    handed: queue.SimpleQueue[PooledBuffer | None] = queue.SimpleQueue()

    def borrow() -> None:
        for _ in range(400):
            handed.put(keeper.acquire(4))
        for _ in range(3):
            handed.put(None)

    def let_go() -> None:
        while handed.get() is not None:
            pass

    _run_all([borrow, let_go, let_go, let_go])
    assert 4 <= budget.taken_bytes == below.used_bytes <= 40
    drop_idle(keeper)
    assert (budget.taken_bytes, below.used_bytes) == (0, 0)


@given(first=st.integers(0, 90), count=st.integers(1, 10))
def test_page_locked_memory_is_in_use_while_a_view_of_it_exists(first: int, count: int) -> None:
    """A buffer keeps its content while a view of it exists, and is freed afterwards."""
    driver = FakeCudaDriver()
    memory = PinnedMemory(Cuda(driver), idle_bytes=0)
    samples = np.asarray(memory.acquire(100))
    samples[:] = np.arange(100)
    part = samples[first : first + count]
    del samples
    assert memory.budget.taken_bytes == 100
    assert part.tolist() == list(range(100))[first : first + count]
    del part
    assert memory.budget.taken_bytes == 0


ENDING = """
import builtins
from codecfleet.actors.nvidia.cuda.memory import BufferPool
from codecfleet.actors.nvidia.cuda.memory import MemoryBudget

memory = BufferPool(lambda size_bytes: 1, lambda address: print("freed"), 0, MemoryBudget(None))
memory.acquire(4)
kept = memory.acquire(4)
builtins.kept_longest = memory.acquire(4)
circle = [memory.acquire(4)]
circle.append(circle)
print("ending")
"""


def test_nothing_goes_back_when_the_interpreter_ends() -> None:
    """At exit a buffer in use is left alone without an error, because the driver may be gone."""
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, check=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["freed", "ending"], "")


def _run_all(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
