"""A budget of memory: never exceeded, never negative, and all of it comes back."""

import gc
import threading
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.nvidia.lent_memory import LentMemory
from codecfleet.actors.nvidia.memory_budget import MemoryBudget
from codecfleet.errors import DeviceLost, DeviceMemory


class Owner:
    """Holds what was lent."""


class Memory:
    """Memory of some size that others use too; it knows what nobody gave back yet."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.blocks: dict[int, int] = {}
        self._next = 1

    @property
    def used_bytes(self) -> int:
        """How much of it is allocated."""
        return sum(self.blocks.values())

    def allocate(self, size_bytes: int) -> int:
        """Return the address of so many bytes."""
        if self.used_bytes + size_bytes > self.size_bytes:
            message = "the driver has no more"
            raise DeviceMemory(message)
        self._next += 1
        self.blocks[self._next] = size_bytes
        return self._next

    def free(self, address: int) -> None:
        """Take them back."""
        del self.blocks[address]


def lent(memory: LentMemory, size_bytes: int) -> Owner:
    """Borrow so many bytes."""
    owner = Owner()
    memory.returns_with(owner, memory.take(size_bytes), size_bytes)
    return owner


@given(
    total=st.integers(0, 60),
    real=st.integers(0, 80),
    idle_max=st.integers(0, 40),
    steps=st.lists(st.tuples(st.sampled_from(["first", "second", "return", "drop"]), st.integers(1, 20)), max_size=40),
)
def test_it_is_never_exceeded_and_all_comes_back(
    total: int, real: int, idle_max: int, steps: list[tuple[str, int]]
) -> None:
    """Whatever two keepers borrow and return, what is taken is what is allocated, and in the end nothing."""
    budget, below = MemoryBudget(total), Memory(real)
    keepers = {name: LentMemory(below.allocate, below.free, idle_max, budget) for name in ("first", "second")}
    owners: list[tuple[int, Owner]] = []
    for step, size_bytes in steps:
        if step == "return":
            del owners[: size_bytes % 3]
        elif step == "drop":
            keepers["first"].drop_idle()
        else:
            held = sum(size for size, _ in owners)
            try:
                owners.append((size_bytes, lent(keepers[step], size_bytes)))
            except DeviceMemory:
                assert held + size_bytes > min(total, real)
        gc.collect(0)
        assert 0 <= budget.taken_bytes == below.used_bytes <= min(total, real)
    owners.clear()
    for keeper in keepers.values():
        keeper.drop_idle()
    assert (budget.taken_bytes, below.used_bytes) == (0, 0)


def test_idle_things_give_way_one_by_one_in_order() -> None:
    """What was named first gives way first, as much as is needed and no more."""
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
    with pytest.raises(DeviceMemory, match=r"the GPU's memory does not hold another 0\.0 MiB"):
        budget.spend(6, lambda: None)
    assert budget.taken_bytes == 7


def test_the_drivers_word_counts_too() -> None:
    """Where the driver has none although the budget has, idle things give way; its error passes if none is left."""
    budget, below = MemoryBudget(1000), Memory(10)
    keeper = LentMemory(below.allocate, below.free, 1000, budget)
    held = lent(keeper, 4)
    del held
    other = lent(keeper, 8)
    assert below.used_bytes == 8
    with pytest.raises(DeviceMemory, match="the driver has no more"):
        keeper.take(4)
    assert budget.taken_bytes == 8
    del other


def test_what_fails_otherwise_takes_nothing() -> None:
    """Any other error of whoever allocates passes at once, and leaves the budget as it was."""

    def lost() -> None:
        message = "it is gone"
        raise DeviceLost(message)

    budget = MemoryBudget(10)
    budget.reclaim_from(lambda: pytest.fail("nothing was to be reclaimed"))
    with pytest.raises(DeviceLost, match="it is gone"):
        budget.spend(10, lost)
    assert budget.taken_bytes == 0


def test_a_buffer_may_come_back_while_another_is_freed_or_got() -> None:
    """Whatever the driver is doing when the interpreter lets go of one, it comes back, and nobody waits for himself."""
    budget, below = MemoryBudget(100), Memory(100)
    late: list[Owner] = []

    def allocate(size_bytes: int) -> int:
        late.clear()
        return below.allocate(size_bytes)

    def free(address: int) -> None:
        late.clear()
        below.free(address)

    keeper = LentMemory(allocate, free, 8, budget)
    late.append(lent(keeper, 4))
    first = lent(keeper, 5)
    assert not late
    late.append(lent(keeper, 8))
    del first  # 4 and 5 are too much, and freeing one lets go of another
    assert not late
    keeper.drop_idle()
    assert (budget.taken_bytes, below.used_bytes) == (0, 0)


def test_the_longest_idle_buffer_goes_first() -> None:
    """Beyond what may lie idle, and where room is needed, buffers go in the order in which they came back."""
    budget, below = MemoryBudget(100), Memory(100)
    keeper = LentMemory(below.allocate, below.free, 10, budget)
    owners = [lent(keeper, size) for size in (4, 5, 3)]
    while owners:
        del owners[0]
    assert sorted(below.blocks.values()) == [3, 5]
    assert keeper.drop_oldest()
    assert list(below.blocks.values()) == [3]
    assert keeper.drop_oldest()
    assert not keeper.drop_oldest()


def test_many_threads_stay_within_it() -> None:
    """However many take and give back at once, the total is never exceeded and everything comes back."""
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


def _run_all(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
