"""The promises of every ``DlaSession``: on fakes, and with NVIDIA's binding on the driver simulator."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from codecfleet.actors.dla.engine.hybrid import HybridSession
from codecfleet.actors.dla.engine.session import DlaSession
from codecfleet.actors.dla.engine.states import DlaMode, DlaSessionState
from codecfleet.actors.dla.engine.statuses import CudlaStatus
from codecfleet.actors.dla.engine.tasks import (
    Access,
    DlaModule,
    DlaTask,
    LoadOption,
    Registration,
    SubmitOption,
)
from codecfleet.actors.dla.inference.layout import pack, unpack
from codecfleet.errors import DeviceLost, Unsupported, UsageError

from .dla_benches import MODES, SHAPE, Allocated, DlaBench, frames, make_bench


@pytest.fixture(params=MODES, ids=lambda mode: mode.name.lower())
def bench(request: pytest.FixtureRequest) -> DlaBench:
    """What a session needs, in each of cuDLA's modes that this process has."""
    return make_bench(request.param)


@pytest.fixture
def hybrid() -> DlaBench:
    """What a session in hybrid mode needs."""
    return make_bench(DlaMode.HYBRID)


@pytest.fixture
def session(bench: DlaBench) -> Iterator[DlaSession]:
    """An open session, which is closed after the test unless it failed."""
    session = bench.open()
    yield session
    session.close()


class Loaded:
    """A session with a loaded network and one set of buffers."""

    def __init__(self, bench: DlaBench, session: DlaSession) -> None:
        self.bench, self.session = bench, session
        self.module = session.load(bench.network.loadable)
        (self.source,), (self.result,) = self.module.inputs, self.module.outputs

    def registered(self, size_bytes: int) -> Registration:
        return self.session.register(self.bench.memory(size_bytes), size_bytes)

    def task(self, values: NDArray[np.float32]) -> DlaTask:
        source, result = self.registered(self.source.size_bytes), self.registered(self.result.size_bytes)
        self.bench.write(self.session, source.memory, pack(self.source, values))
        return DlaTask(module=self.module, inputs=(source,), outputs=(result,))

    def found(self, task: DlaTask) -> NDArray[np.float32]:
        memory = self.bench.read(self.session, task.outputs[0].memory, self.result.size_bytes)
        return np.asarray(unpack(self.result, memory))


@pytest.fixture
def loaded(bench: DlaBench, session: DlaSession) -> Loaded:
    """The network, ready to run."""
    return Loaded(bench, session)


def test_a_new_session_is_idle_and_says_what_it_runs_on(session: DlaSession) -> None:
    """A new session is idle, has met no error, and knows its device."""
    assert (session.state, session.device) == (DlaSessionState.IDLE, 0)
    assert session.last_error() is CudlaStatus.SUCCESS
    assert session.attributes().device_version > 0


def test_a_loadable_is_described(loaded: Loaded) -> None:
    """A module describes all its tensors, by values that cannot change."""
    assert (loaded.source.name, loaded.source.shape) == ("frames", SHAPE)
    assert (loaded.result.name, loaded.result.shape) == ("means", (2, 3, 1, 1))
    assert loaded.module.statistics == ()
    assert loaded.source.size_bytes >= np.prod(SHAPE) * 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.source.n = 3  # type: ignore[misc]


def test_a_task_computes(loaded: Loaded) -> None:
    """A task's output is complete after the wait, and the session is idle again."""
    values = frames()
    task = loaded.task(values)
    loaded.session.submit([task])
    assert loaded.session.state is DlaSessionState.BUSY
    loaded.session.synchronize()
    assert loaded.session.state is DlaSessionState.IDLE
    np.testing.assert_array_equal(loaded.found(task), loaded.bench.network.expected(values))


@pytest.mark.parametrize("at_once", [True, False])
def test_tasks_run_in_order(loaded: Loaded, *, at_once: bool) -> None:
    """In one submission or several, a buffer holds the output of the last task that wrote to it."""
    tasks = [loaded.task(frames(seed)) for seed in range(3)]
    overwritten = dataclasses.replace(tasks[0], inputs=tasks[2].inputs)
    submitted = [*tasks, overwritten]
    for submission in [submitted] if at_once else [[task] for task in submitted]:
        loaded.session.submit(submission)
    loaded.session.synchronize()
    for task, seed in zip(tasks, (2, 1, 2), strict=True):
        np.testing.assert_array_equal(loaded.found(task), loaded.bench.network.expected(frames(seed)))


def test_registering_twice_is_refused_and_harms_nothing(loaded: Loaded) -> None:
    """Registering memory twice is the only error that is not final: session and first registration still work."""
    values = frames()
    task = loaded.task(values)
    with pytest.raises(UsageError, match="registered already"):
        loaded.session.register(task.inputs[0].memory, task.inputs[0].size_bytes)
    assert loaded.session.state is DlaSessionState.IDLE
    loaded.session.submit([task])
    loaded.session.synchronize()
    np.testing.assert_array_equal(loaded.found(task), loaded.bench.network.expected(values))


def test_managed_memory_is_refused(hybrid: DlaBench) -> None:
    """Managed memory is refused, because cuDLA would fail on it for good; the session continues to work."""
    with hybrid.open() as session:
        loaded, values = Loaded(hybrid, session), frames()
        task = loaded.task(values)
        with pytest.raises(UsageError, match="managed memory"):
            session.register(hybrid.managed_memory(256), 256)
        session.submit([task])
        session.synchronize()
        np.testing.assert_array_equal(loaded.found(task), hybrid.network.expected(values))


def test_memory_can_be_registered_again_once_it_was_unregistered(loaded: Loaded) -> None:
    """After unregistering, the memory can be registered again, and the old registration is invalid."""
    first = loaded.registered(256)
    loaded.session.unregister(first)
    second = loaded.session.register(first.memory, 256)
    assert second.memory == first.memory
    with pytest.raises(UsageError, match="not registered"):
        loaded.session.unregister(first)


def test_a_handle_takes_one_loadable(loaded: Loaded) -> None:
    """A second loadable is refused before it reaches cuDLA."""
    with pytest.raises(UsageError, match="one loadable"):
        loaded.session.load(loaded.bench.network.loadable)
    assert loaded.session.state is DlaSessionState.IDLE


def test_diagnostics_go_with_no_loadable(loaded: Loaded, bench: DlaBench) -> None:
    """Only diagnostics need no loadable, and accept none; a submission for diagnostics accepts no other task."""
    with bench.open() as fresh:
        with pytest.raises(UsageError, match="either a loadable"):
            fresh.load(bench.network.loadable, LoadOption.FAULT_DIAGNOSTICS)
        with pytest.raises(UsageError, match="either a loadable"):
            fresh.load(b"")
    with pytest.raises(UsageError, match="DIAGNOSTICS"):
        loaded.session.submit([loaded.task(frames())], options=SubmitOption.DIAGNOSTICS)


def _foreign(module: DlaModule, task: DlaTask) -> DlaTask:
    return dataclasses.replace(task, module=dataclasses.replace(module, handle=module.handle + 1))


def test_tasks_that_make_no_sense_are_refused_before_cudla_hears_of_them(loaded: Loaded) -> None:
    """Foreign modules, unsuitable buffers and empty submissions raise UsageError and change nothing."""
    task = loaded.task(frames())
    small = loaded.registered(4)
    stranger = dataclasses.replace(task.inputs[0])
    wrong = [
        _foreign(loaded.module, task),
        dataclasses.replace(task, inputs=()),
        dataclasses.replace(task, inputs=(stranger,)),
        dataclasses.replace(task, inputs=(small,)),
        dataclasses.replace(task, statistics=(small,)),
    ]
    for attempt in wrong:
        with pytest.raises(UsageError):
            loaded.session.submit([attempt])
    with pytest.raises(UsageError, match="no task"):
        loaded.session.submit([])
    with pytest.raises(UsageError, match="memory needs"):
        loaded.session.register(0, 16, Access.READ_WRITE)
    assert loaded.session.state is DlaSessionState.IDLE


def test_nothing_is_taken_away_from_running_tasks(loaded: Loaded) -> None:
    """Memory stays registered while tasks may use it; after a wait, it can be unregistered."""
    task = loaded.task(frames())
    loaded.session.submit([task])
    with pytest.raises(UsageError, match="synchronize"):
        loaded.session.unregister(task.inputs[0])
    loaded.session.synchronize()
    loaded.session.unregister(task.inputs[0])


def test_what_is_no_loadable_ends_the_session(bench: DlaBench) -> None:
    """After a refused loadable, as after any error of cuDLA, the session has failed: later calls say so.

    Closing then only abandons the session.
    """
    session = bench.open()
    with pytest.raises((Unsupported, DeviceLost), match="DLA 0"):
        session.load(b"no loadable at all, but long enough to be looked at" * 10)
    assert session.state is DlaSessionState.FAILED
    with pytest.raises(DeviceLost, match="failed earlier"):
        session.attributes()
    session.close()
    session.close()
    assert session.state is DlaSessionState.ABANDONED


def test_closing_waits_for_tasks(bench: DlaBench) -> None:
    """Closing a busy session waits for its tasks and then destroys the handle; closing again does nothing."""
    session = bench.open()
    loaded = Loaded(bench, session)
    loaded.session.submit([loaded.task(frames())])
    session.close()
    session.close()
    assert session.state is DlaSessionState.CLOSED
    with pytest.raises(UsageError, match="closed"):
        session.attributes()


def test_several_sessions_share_a_device(bench: DlaBench) -> None:
    """Several handles can be open, on one DLA or on several, and end independently."""
    with bench.open(0) as one, bench.open(0) as two, bench.open(1) as other:
        assert [session.device for session in (one, two, other)] == [0, 0, 1]
        loaded = Loaded(bench, two)
        task = loaded.task(frames())
        one.close()
        two.submit([task])
        two.synchronize()
        np.testing.assert_array_equal(loaded.found(task), bench.network.expected(frames()))


def test_the_time_of_tasks_can_be_limited(session: DlaSession) -> None:
    """A time limit is accepted up to the largest limit of cuDLA."""
    session.set_task_limit(0.5)
    with pytest.raises(UsageError, match="1000 s at most"):
        session.set_task_limit(2000)


def test_a_stream_that_cudla_cannot_use_is_refused(hybrid: DlaBench) -> None:
    """Tasks run in any stream except the per-thread default stream."""
    with hybrid.open() as session:
        assert isinstance(session, HybridSession)
        task = Loaded(hybrid, session).task(frames())
        with pytest.raises(UsageError, match="per-thread"):
            session.submit([task], stream=2)
        session.submit([task], stream=session.stream)
        session.synchronize()


def test_copies_and_tasks_keep_their_order_in_the_stream(bench: DlaBench) -> None:
    """Upload, clear, task and download that are queued together have the same results as one by one."""
    with bench.open() as session:
        own = Allocated(bench, session)
        found = [np.zeros(own.result.size_bytes, dtype=np.uint8) for _ in range(3)]
        for seed, memory in enumerate(found):
            session.clear(own.out)
            own.queue(seed, memory)
        session.synchronize()
        for seed, memory in enumerate(found):
            np.testing.assert_array_equal(unpack(own.result, memory), bench.network.expected(frames(seed)))
        session.clear(own.out)
        session.download(own.out, found[0])
        session.synchronize()
        assert not found[0].any()
        with pytest.raises(UsageError, match="does not fit"):
            session.upload(own.out, np.zeros(own.out.size_bytes + 1, dtype=np.uint8))
        session.free(own.into)
        with pytest.raises(UsageError, match="another session"):
            session.free(own.into)


def test_tasks_of_another_stream_come_after_uploads_and_before_downloads(hybrid: DlaBench) -> None:
    """``submit(stream=)`` is ordered with the session's own copies in both directions, without a wait by the caller."""
    with hybrid.open() as session:
        assert isinstance(session, HybridSession)
        own, other = Allocated(hybrid, session), hybrid.stream()
        found = [np.zeros(own.result.size_bytes, dtype=np.uint8) for _ in range(2)]
        for seed, memory in enumerate(found):
            own.queue(seed, memory, other)
        session.synchronize()
        assert other != session.stream
        for seed, memory in enumerate(found):
            np.testing.assert_array_equal(unpack(own.result, memory), hybrid.network.expected(frames(seed)))
        waits = hybrid.stream_waits()
        assert waits in (None, [(session.stream, other), (other, session.stream)] * 2)
