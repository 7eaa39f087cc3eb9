"""Device memory that consumers read on their own streams is overwritten only after they finish, without a wait."""

import ctypes
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.nvidia.cuda.context import Cuda, Stream
from codecfleet.actors.nvidia.cuda.device_memory import UNKNOWN_STREAM, DevicePool, PooledDeviceBuffer
from codecfleet.actors.nvidia.cuda.memory import MemoryBudget
from codecfleet.errors import DeviceError
from codecfleet.testing.nvidia.fake_cuda import FakeCudaDriver
from codecfleet.testing.nvidia.fake_device import drop_idle

SIZE = 16


class Bench:
    """A pool on a device that defers all work until a wait, one writer, and consumers that copy the buffers they read.

    ``seen`` has pairs: the expected bytes, and the place of a consumer's copy.
    """

    def __init__(self, driver: FakeCudaDriver | None = None, *, pools: bool = True, idle_bytes: int = 1 << 20) -> None:
        self.driver = driver or FakeCudaDriver(pools=pools)
        self.cuda = Cuda(self.driver)
        self.pool = DevicePool(self.cuda, MemoryBudget(None), idle_bytes)
        self.writer = self.cuda.stream()
        self.seen: list[tuple[bytes, int]] = []
        self._written = 0

    def written(self, *, wait: bool = True) -> PooledDeviceBuffer:
        """Return a buffer with unique bytes, complete like a decoder's picture."""
        self._written += 1
        content = bytes([self._written % 251] * SIZE)
        with self.cuda.entered:
            buffer = self.pool.acquire_for(self.writer, SIZE)
            host = self.cuda.pin(SIZE)
            ctypes.memmove(host, content, SIZE)
            self.cuda.copy_to_device(buffer.address, host, SIZE, self.writer)
        if wait:
            self.writer.wait()
        return buffer

    def read(self, buffer: PooledDeviceBuffer, stream: Stream, said: int | None) -> None:
        """Begin to copy a buffer in a stream, and name the stream ``said`` as its reader."""
        expected = ctypes.string_at(buffer.address, SIZE)
        copy = self.cuda.allocate(SIZE)
        buffer.used_by(said)
        self.cuda.copy_on_device(copy, buffer.address, SIZE, stream)
        self.seen.append((expected, copy))

    def wrong(self) -> int:
        """Wait for everything; return how many consumers read other bytes than expected."""
        self.cuda.wait_for_all()
        return sum(ctypes.string_at(copy, SIZE) != expected for expected, copy in self.seen)


@pytest.mark.parametrize("pools", [True, False])
@given(steps=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["named", "unknown", "both"])), max_size=12))
def test_no_consumer_sees_what_is_written_later(*, pools: bool, steps: list[tuple[int, str]]) -> None:
    """Buffers are dropped at once; whichever streams read them, no consumer reads the bytes of a later buffer."""
    bench = Bench(pools=pools)
    streams = [bench.cuda.stream() for _ in range(3)]
    for number, kind in steps:
        buffer = bench.written()
        if kind != "unknown":
            bench.read(buffer, streams[number], streams[number].number)
        if kind != "named":
            bench.read(buffer, streams[number - 1], UNKNOWN_STREAM)
        del buffer
    assert bench.wrong() == 0
    assert bench.driver.pushed == 0


def test_a_return_waits_for_nothing_and_a_writer_for_the_event_alone() -> None:
    """Dropping and taking a buffer runs no work of its consumer; only writing to the buffer does."""
    bench = Bench()
    consumer = bench.cuda.stream()
    buffer = bench.written()
    bench.read(buffer, consumer, consumer.number)
    del buffer
    again = bench.written(wait=False)
    assert len(bench.driver.streams[consumer.number]) == 2  # the consumer's copy and the event
    assert "cuCtxSynchronize" not in bench.driver.calls
    del again
    assert bench.wrong() == 0


def test_buffers_are_reused_in_the_order_of_their_return() -> None:
    """The buffer that returned first is reused first: its consumers had the most time."""
    bench = Bench()
    held = [bench.written() for _ in range(3)]
    addresses = [buffer.address for buffer in held]
    while held:
        del held[0]
    assert [buffer.address for buffer in [bench.written() for _ in range(3)]] == addresses


def test_events_are_used_again() -> None:
    """A consumer of a thousand pictures needs only as many events as there are buffers."""
    bench = Bench()
    consumer = bench.cuda.stream()
    for _ in range(20):
        buffer = bench.written()
        buffer.used_by(consumer.number)
        del buffer
    assert bench.driver.calls["cuEventCreate"] == 1
    assert bench.driver.calls["cuEventRecord"] == 20


def test_events_of_freed_memory_are_used_again() -> None:
    """Without memory pools, where freeing waits for the device, events are reused too."""
    bench = Bench(pools=False, idle_bytes=0)
    consumer = bench.cuda.stream()
    for _ in range(5):
        buffer = bench.written()
        buffer.used_by(consumer.number)
        del buffer
        drop_idle(bench.pool)
    assert bench.driver.calls["cuEventCreate"] == 1


def test_one_wait_serves_all_whose_consumer_is_unknown() -> None:
    """If consumers name no stream, one wait, when the first buffer is reused, serves all buffers."""
    bench = Bench()
    held = [bench.written() for _ in range(5)]
    for buffer in held:
        buffer.used_by(UNKNOWN_STREAM)
    held.clear()
    del buffer
    again = [bench.written() for _ in range(5)]
    assert bench.driver.calls["cuCtxSynchronize"] == 1
    del again


class Interrupted(FakeCudaDriver):
    """A driver that calls ``meanwhile`` when a wait for all work is about to return."""

    meanwhile: list[Callable[[], None]]

    def cuCtxSynchronize(self) -> tuple[object, ...]:  # noqa: N802 - the binding's own name
        """Wait, and then call the next function."""
        answer = super().cuCtxSynchronize()
        if self.meanwhile:
            self.meanwhile.pop()()
        return answer


def test_a_wait_is_for_what_was_there_when_it_began() -> None:
    """A buffer that returns while two threads wait still needs a wait of its own."""
    driver = Interrupted()
    driver.meanwhile = []
    bench = Bench(driver)
    consumer = bench.cuda.stream()
    held = [bench.written() for _ in range(3)]
    late = held.pop()
    for buffer in held:
        buffer.used_by(UNKNOWN_STREAM)
    del buffer
    held.clear()

    def others() -> None:
        held.append(bench.written())  # this thread waits too, and finishes first
        nonlocal late
        bench.read(late, consumer, UNKNOWN_STREAM)
        del late

    driver.meanwhile = [others]
    held += [bench.written(), bench.written()]
    assert driver.calls["cuCtxSynchronize"] == 3
    assert bench.wrong() == 0


def test_a_thread_s_default_stream_is_known_in_that_thread_alone() -> None:
    """A buffer dropped by another thread waits for everything, because stream 2 is another stream in that thread."""
    for there, waits in ((False, 0), (True, 1)):
        bench = Bench()
        held = [bench.written()]
        held[0].used_by(2)
        if there:
            thread = threading.Thread(target=held.clear)
            thread.start()
            thread.join()
        held.clear()
        bench.written()
        assert bench.driver.calls.get("cuCtxSynchronize", 0) == waits


@pytest.fixture
def refusing() -> Iterator[Bench]:
    """Provide a bench whose driver records no event, as for a closed stream."""
    bench = Bench()
    bench.driver.faults["cuEventRecord"] = 400
    yield bench
    assert bench.driver.pushed == 0


def test_a_stream_that_is_gone_makes_the_consumer_unknown(refusing: Bench) -> None:
    """Without an event, the buffer is reused after all work of the device; dropping the buffer raises nothing."""
    buffer = refusing.written()
    refusing.read(buffer, refusing.cuda.stream(), 12345)
    del buffer
    refusing.written()
    assert refusing.driver.calls["cuCtxSynchronize"] == 1
    assert refusing.wrong() == 0


def test_a_failed_wait_loses_no_buffer_and_no_consumer() -> None:
    """The caller gets the driver's error; the next caller waits for everything."""
    bench = Bench()
    consumer = bench.cuda.stream()
    buffer = bench.written()
    bench.read(buffer, consumer, consumer.number)
    del buffer
    bench.driver.faults["cuStreamWaitEvent"] = 1
    with pytest.raises(DeviceError, match="cuStreamWaitEvent"):
        bench.written()
    assert bench.pool.budget.taken_bytes == SIZE
    del bench.driver.faults["cuStreamWaitEvent"]
    bench.written()
    assert bench.driver.calls["cuCtxSynchronize"] == 1
    assert bench.wrong() == 0


@pytest.mark.parametrize("pools", [True, False])
def test_what_is_freed_is_freed_behind_its_consumers(*, pools: bool) -> None:
    """Idle memory beyond the limit is freed after its consumers finish; with memory pools, no call waits for them."""
    bench = Bench(pools=pools, idle_bytes=0)
    consumer = bench.cuda.stream()
    for _ in range(3):
        buffer = bench.written()
        bench.read(buffer, consumer, consumer.number)
        del buffer
    assert ("cuMemFree" in bench.driver.calls) == (not pools)
    assert bench.wrong() == 0
    drop_idle(bench.pool)
    assert bench.pool.budget.taken_bytes == 0


def test_memory_that_is_reclaimed_is_free_at_once_and_behind_its_consumer() -> None:
    """Reclaimed memory is free when the call returns, but not before its consumer has read it."""
    bench = Bench()
    consumer = bench.cuda.stream()
    buffer = bench.written()
    bench.read(buffer, consumer, consumer.number)
    address = buffer.address
    del buffer
    assert bench.pool.drop_oldest()
    assert address not in bench.driver.memory
    assert bench.wrong() == 0
