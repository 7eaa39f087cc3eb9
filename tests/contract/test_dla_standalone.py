"""The promises of ``StandaloneSession`` beyond ``DlaSession``, on the driver simulator: fences and shared memory."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from codecfleet.actors.dla.engine.standalone import StandaloneSession
from codecfleet.actors.dla.engine.states import DlaMode, DlaSessionState
from codecfleet.actors.dla.inference.layout import pack, unpack
from codecfleet.errors import UsageError

from .dla_benches import MODES, Allocated, DlaBench, frames, make_bench

pytestmark = pytest.mark.skipif(
    DlaMode.STANDALONE not in MODES, reason="tests/driver_sim/test_contracts.py runs these on the driver simulator"
)


@pytest.fixture
def bench() -> DlaBench:
    """What a session without CUDA needs."""
    return make_bench(DlaMode.STANDALONE)


class Loaded(Allocated):
    """A session with a loaded network and one task, whose buffers are written and read in place."""

    session: StandaloneSession

    def put(self, values: NDArray[np.float32]) -> None:
        self.session.view(self.into)[:] = pack(self.source, values)

    def found(self) -> NDArray[np.float32]:
        return np.asarray(unpack(self.result, self.session.view(self.out)))


@pytest.fixture
def loaded(bench: DlaBench) -> Iterator[Loaded]:
    """The network, ready to run."""
    session = bench.open()
    assert isinstance(session, StandaloneSession)
    yield Loaded(bench, session)
    session.close()


@pytest.mark.parametrize("fences", [1, 2])
def test_a_task_begins_when_its_fences_are_signalled(bench: DlaBench, loaded: Loaded, fences: int) -> None:
    """A task reads an input that is written after the submission and before the last signal."""
    session = loaded.session
    written, *others = (session.event() for _ in range(fences))
    loaded.put(frames(1))
    session.submit([loaded.task], waits=[session.fence(each) for each in (written, *others)])
    for each in others:
        session.signal(each)
    loaded.put(frames(2))
    session.signal(written)
    session.synchronize()
    np.testing.assert_array_equal(loaded.found(), bench.network.expected(frames(2)))


def test_tasks_run_first_in_first_out(bench: DlaBench, loaded: Loaded) -> None:
    """A task without a fence runs after an earlier task that waits, so the output of the later task remains."""
    session = loaded.session
    late = session.allocate(loaded.into.size_bytes)
    session.view(late)[:] = pack(loaded.source, frames(5))
    written = session.event()
    session.submit([loaded.task], waits=[session.fence(written)])
    session.submit([dataclasses.replace(loaded.task, inputs=(late.registration,))])
    loaded.put(frames(4))
    session.signal(written)
    session.synchronize()
    np.testing.assert_array_equal(loaded.found(), bench.network.expected(frames(5)))


def test_a_fence_is_taken_once(loaded: Loaded) -> None:
    """A fence that is given twice in one submission is refused before cuDLA gets it, and the session stays usable."""
    session = loaded.session
    written = session.event()
    fence = session.fence(written)
    with pytest.raises(UsageError, match="a fence is given twice"):
        session.submit([loaded.task], waits=[fence, fence])
    assert session.state is DlaSessionState.IDLE
    session.submit([loaded.task], waits=[fence])
    session.signal(written)
    session.synchronize()
    assert session.state is DlaSessionState.IDLE


def test_a_stream_of_cuda_is_refused(loaded: Loaded) -> None:
    """Standalone mode has no streams."""
    with pytest.raises(UsageError, match="no CUDA stream"):
        loaded.session.submit([loaded.task], stream=7)


def test_fences_are_refused_beside_cuda() -> None:
    """Fences are refused in hybrid mode, which orders work by streams."""
    bench = make_bench(DlaMode.HYBRID)
    with bench.open() as session:
        own = Allocated(bench, session)
        assert session.view(own.into) is None
        standalone = make_bench(DlaMode.STANDALONE).open()
        assert isinstance(standalone, StandaloneSession)
        fence = standalone.fence(standalone.event())
        with pytest.raises(UsageError, match="fences belong to standalone mode"):
            session.submit([own.task], waits=[fence])
        standalone.close()


def test_memory_must_be_aligned_for_a_dla_and_large_enough(bench: DlaBench, loaded: Loaded) -> None:
    """An NvSciBuf object of other code that is unsuitable is refused before cuDLA gets it."""
    with pytest.raises(UsageError, match="aligned to 64 bytes, and a DLA needs 512"):
        loaded.session.register(bench.memory(256, alignment=64), 256)
    with pytest.raises(UsageError, match="has 256 bytes, not 512"):
        loaded.session.register(bench.memory(256), 512)
    registration = loaded.session.register(bench.memory(256), 256)
    loaded.session.unregister(registration)
    assert loaded.session.state is DlaSessionState.IDLE


def test_a_buffer_of_another_session_has_no_view_here(bench: DlaBench, loaded: Loaded) -> None:
    """A buffer of another session is refused."""
    with bench.open() as other, pytest.raises(UsageError, match="another session"):
        loaded.session.view(other.allocate(64))
