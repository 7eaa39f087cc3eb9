"""A worker's second process: what it runs, what it says, and how it ends; here it is a thread."""

import asyncio
import pickle
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, cast

import pytest

from codecfleet.actors.device import DeviceUse
from codecfleet.actors.nvidia.gpu import Gpu, OpenedGpu
from codecfleet.actors.work import Work, WorkContext
from codecfleet.actors.worker import WorkerCore
from codecfleet.cluster.ray_worker import RayWorker
from codecfleet.cluster.second_process import (
    ALONE_FPS,
    ALONE_MAX,
    PACE_S,
    QUIET_S,
    STARTING_S,
    Child,
    Pace,
    Ready,
    Run,
    SecondProcess,
)
from codecfleet.cluster.second_program import serve
from codecfleet.errors import Cancelled, DeviceLost, EngineUnfit, UsageError, WorkError

GATES: dict[str, threading.Event] = {}
PATIENCE_S = 20.0
SMALL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Count(Work[int]):
    """Counts to a number."""

    upto: int

    def run(self, context: WorkContext) -> int:
        """Count."""
        for _ in range(self.upto):
            context.advance()
        return self.upto


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Work[str]):
    """Says that it runs, and goes on until it is let go or cancelled."""

    def run(self, context: WorkContext) -> str:
        """Wait."""
        GATES[f"{self.label} runs"].set()
        while not GATES[self.label].wait(0.005):
            context.advance(0)
        context.advance()
        return self.label


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail(Work[None]):
    """Loses its device."""

    def run(self, context: WorkContext) -> None:
        """Fail.

        Raises:
            DeviceLost: always.
        """
        del context
        message = "the GPU fell off the bus"
        raise DeviceLost(message, "Look at it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsendable(Work[object]):
    """Returns what does not pickle."""

    def run(self, context: WorkContext) -> object:
        """Return it."""
        del context
        return threading.Lock()


class _Unreadable:
    """Pickles, and cannot be made again."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return int, ("no number",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnUnreadable(Work[object]):
    """Returns what pickles and cannot be made again."""

    def run(self, context: WorkContext) -> object:
        """Return it."""
        del context
        return _Unreadable()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnMuch(Work[bytes]):
    """Returns more than there is memory for on the way."""

    def run(self, context: WorkContext) -> bytes:
        """Return it."""
        del context
        return bytes(2 * SMALL_BYTES)


def _no_gpu() -> OpenedGpu:
    message = "there is no GPU"
    raise EngineUnfit(message, "Buy one.")


class _OpenGpu(Gpu):
    """A GPU that is open, and that nobody uses."""

    def opened(self) -> Any:  # noqa: ANN401 - nothing is done with it
        """Return nothing that anybody needs."""


class _SlowToTell(_OpenGpu):
    """One that the report's thread is kept waiting by while it looks at it."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = threading.Event()
        self.goes_on = threading.Event()

    def use(self) -> DeviceUse:
        """Say that nobody uses it."""
        if threading.current_thread().name == "codecfleet-report":
            self.looks.set()
            self.goes_on.wait(PATIENCE_S)
        return super().use()


class _Cramped:
    """A connection through which no large message goes: there is no memory for it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.recv, self.close = connection.recv, connection.close

    def send(self, message: Any) -> None:  # noqa: ANN401 - whatever is said
        """Send what is small."""
        if len(pickle.dumps(message)) > SMALL_BYTES:
            raise MemoryError
        self._connection.send(message)


@dataclass
class Second:
    """A second process in a thread."""

    gpu: Gpu = field(default_factory=_OpenGpu)
    ticks: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    lost: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    spawned: int = 0

    def __post_init__(self) -> None:
        self.process = SecondProcess(4, self.lost.append, self.refused.append, self._spawn)

    def _spawn(self, slots: int) -> Child:
        self.spawned += 1
        ours, theirs = Pipe()
        core = WorkerCore(slots, self.gpu)

        def pause(_: float) -> None:
            self.ticks.acquire()

        def run() -> None:
            serve(cast("Connection", _Cramped(theirs)), core, self.gpu, pause)
            theirs.close()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return Child(ours, lambda: None, lambda: thread.join() or 0)

    def ready(self) -> SecondProcess:
        """Start it, and return it when it takes work."""
        self.process.start()
        _until(lambda: self.process.is_ready)
        return self.process

    def outcome(self, work: Work[Any], run: str = "run") -> Any:  # noqa: ANN401 - of any work
        """Run work there and return its outcome."""
        return self.process.submit(run, pickle.dumps(work), ()).result(PATIENCE_S)


def _until(is_so: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE_S / 0.005)):
        if is_so():
            return
        threading.Event().wait(0.005)
    pytest.fail("it never came to be")


@pytest.fixture
def second() -> Second:
    """A second process that nobody has started yet."""
    GATES.clear()
    for label in ("a", "b"):
        GATES[label], GATES[f"{label} runs"] = threading.Event(), threading.Event()
    return Second()


def test_it_is_started_once_and_runs_work(second: Second) -> None:
    """Results come back, and frames are counted."""
    assert not second.process.is_ready
    process = second.ready()
    process.start()
    assert second.spawned == 1
    assert second.outcome(Count(job="j", label="a", upto=7)).result == 7
    assert second.outcome(Count(job="j", label="b", upto=5)).result == 5
    assert (process.said.frames_done, process.said.running, process.busy) == (12, (), 0)


@pytest.mark.parametrize(
    ("work", "kind", "spoils"),
    [
        (Fail(job="j", label="a"), DeviceLost, True),
        (Unsendable(job="j", label="a"), WorkError, False),
        (ReturnUnreadable(job="j", label="a"), WorkError, False),
        (ReturnMuch(job="j", label="a"), WorkError, False),
        (b"no pickle", UsageError, False),
    ],
)
def test_errors_come_back_as_values(second: Second, work: Any, kind: type[Exception], *, spoils: bool) -> None:  # noqa: ANN401
    """Whatever goes wrong is an outcome, which says whether the process is spoilt; the next work runs all the same."""
    process = second.ready()
    packed = work if isinstance(work, bytes) else pickle.dumps(work)
    outcome = process.submit("run", packed, ()).result(PATIENCE_S)
    assert type(outcome.error) is kind
    assert outcome.spoils_process is spoils
    assert second.outcome(Count(job="j", label="b", upto=1)).result == 1


def test_it_says_what_it_does(second: Second) -> None:
    """Now and then, so that whoever asks the worker is answered at once."""
    process = second.ready()
    ended = process.submit("run", pickle.dumps(Wait(job="j", label="a")), ())
    GATES["a runs"].wait(PATIENCE_S)
    second.ticks.release()
    _until(lambda: process.said.running == (("j", "a"),))
    assert (process.said.progress, process.busy) == ({"j": {"a": 0}}, 1)
    GATES["a"].set()
    assert ended.result(PATIENCE_S).result == "a"


@pytest.mark.parametrize("cancel", [lambda each: each.cancel("me:1"), lambda each: each.cancel_all("me:")])
def test_work_is_cancelled_there(second: Second, cancel: Callable[[SecondProcess], None]) -> None:
    """One run, or every run of a client; others go on."""
    process = second.ready()
    mine = process.submit("me:1", pickle.dumps(Wait(job="j", label="a")), ())
    others = process.submit("you:1", pickle.dumps(Wait(job="k", label="b")), ())
    for label in "ab":
        assert GATES[f"{label} runs"].wait(PATIENCE_S)
    cancel(process)
    assert isinstance(mine.result(PATIENCE_S).error, Cancelled)
    GATES["b"].set()
    assert others.result(PATIENCE_S).result == "b"


def test_a_run_is_cancelled_before_it_comes(second: Second) -> None:
    """Orders may overtake each other on their way."""
    process = second.ready()
    process.cancel("run")
    assert isinstance(second.outcome(Count(job="j", label="a", upto=1)).error, Cancelled)


def test_one_that_cannot_open_its_gpu_is_never_ready(second: Second) -> None:
    """The worker goes on alone, and nothing is lost."""
    second.gpu = Gpu(_no_gpu)
    second.process.start()
    _until(lambda: second.refused != [])
    assert second.refused == ["there is no GPU"]
    assert not second.process.is_ready
    assert second.lost == []


class _Peer:
    """The other end of what a second process is talked to by, in the test's own hands."""

    def __init__(self, spawn_error: Exception | None = None) -> None:
        self.ours, self.theirs = Pipe()
        self.told: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self.kills = 0
        self._spawn_error = spawn_error
        self.process = SecondProcess(
            4, lambda why: self.told.put(("lost", why)), lambda why: self.told.put(("refused", why)), self._spawn
        )

    def ready(self) -> SecondProcess:
        """Start it, and have it be ready."""
        self.process.start()
        self.theirs.send(Ready())
        _until(lambda: self.process.is_ready)
        return self.process

    def _spawn(self, _: int) -> Child:
        if self._spawn_error is not None:
            raise self._spawn_error
        return Child(self.ours, self._kill, lambda: -9)

    def _kill(self) -> None:
        self.kills += 1
        with suppress(OSError):  # two threads may close it at the same time
            self.theirs.close()


def test_one_that_ends_is_lost() -> None:
    """Its worker is told why; whoever waits for its work waits for the worker's own end."""
    peer = _Peer()
    process = peer.ready()
    peer.theirs.close()
    assert peer.told.get(timeout=PATIENCE_S) == ("lost", "it ended with code -9")
    assert not process.is_ready
    assert not process.submit("run", b"", ()).done()
    process.cancel("run")
    assert peer.told.empty()


@pytest.mark.parametrize("error", [OSError("no more processes"), TypeError("a path that is none")])
def test_one_that_cannot_be_started_is_never_ready(error: Exception) -> None:
    """Its worker hears why, goes on alone, and does not try again."""
    peer = _Peer(error)
    peer.process.start()
    kind, why = peer.told.get(timeout=PATIENCE_S)
    assert (kind, str(error) in why) == ("refused", True)
    peer.process.start()
    peer.process.look(1e9)
    assert not peer.process.is_ready
    assert peer.told.empty()


def test_one_that_says_what_nobody_understands_is_lost() -> None:
    """Whoever cannot be heard is of no use, and its worker does not wait for it for ever."""
    peer = _Peer()
    peer.ready()
    peer.theirs.send(_Unreadable())
    kind, why = peer.told.get(timeout=PATIENCE_S)
    assert (kind, "ValueError" in why, peer.kills > 0) == ("lost", True, True)


def test_one_that_does_not_listen_keeps_nobody_waiting() -> None:
    """A worker's event loop sends to it, and answers for the whole worker; what was sent arrives in order."""
    peer = _Peer()
    process = peer.ready()
    sends = threading.Thread(target=lambda: [process.submit("run", bytes(8 << 20), ()), process.cancel("run")])
    sends.start()
    sends.join(PATIENCE_S)
    assert not sends.is_alive()
    run = peer.theirs.recv()
    assert (type(run), len(run.packed_work), peer.theirs.recv().run) == (Run, 8 << 20, "run")


def test_one_that_says_nothing_is_lost() -> None:
    """A call that holds its interpreter stops it as a whole, and the worker's pulse would go on as if it were well."""
    peer = _Peer()
    process = peer.ready()
    process.look(100.0)
    process.look(100.0 + QUIET_S - 1)
    assert peer.told.empty()
    process.look(100.0 + QUIET_S)
    assert peer.told.get(timeout=PATIENCE_S) == ("lost", "it has said nothing for 20 s")
    assert peer.kills > 0


def test_one_that_says_that_nothing_is_done_is_well(second: Second) -> None:
    """It says so also when it has no work."""
    process = second.ready()
    process.look(100.0)
    before = process._heard
    second.ticks.release()
    _until(lambda: process._heard > before)
    process.look(100.0 + QUIET_S)
    assert process.is_ready


def test_one_that_never_opens_its_gpu_is_ended() -> None:
    """It holds memory of the GPU; its worker, which never needed it, goes on."""
    peer = _Peer()
    peer.process.start()
    peer.process.look(100.0)
    peer.process.look(100.0 + STARTING_S - 1)
    assert peer.told.empty()
    _until(lambda: peer.process._child is not None)
    peer.process.look(100.0 + STARTING_S)
    assert peer.told.get(timeout=PATIENCE_S) == ("refused", "it has said nothing for 300 s")
    assert peer.kills > 0


def test_frames_never_become_fewer() -> None:
    """What was seen before work ended is not told after its end."""
    gpu = _SlowToTell()
    second = Second(gpu=gpu)
    process = second.ready()
    second.ticks.release()
    assert gpu.looks.wait(PATIENCE_S)
    ended = process.submit("run", pickle.dumps(Count(job="j", label="a", upto=7)), ())
    threading.Event().wait(0.1)  # long enough for the end to overtake the report, if it could
    gpu.goes_on.set()
    assert ended.result(PATIENCE_S).result == 7
    assert process.said.frames_done == 7
    before = process._heard
    second.ticks.release()
    _until(lambda: process._heard > before)
    assert process.said.frames_done == 7


def test_work_that_was_cancelled_before_there_was_a_second_one_is_not_begun_there(second: Second) -> None:
    """An order to cancel overtakes work whose parcels are still on their way."""
    worker = RayWorker(4)

    async def overtaken() -> Any:  # noqa: ANN401 - of any work
        await worker.cancel("run")
        worker._second, worker._here = second.ready(), 1
        return await worker.run("run", pickle.dumps(Count(job="j", label="a", upto=1)))

    assert isinstance(asyncio.run(overtaken()).error, Cancelled)


@pytest.mark.parametrize(
    ("fps", "running", "wants"),
    [(ALONE_FPS, ALONE_MAX + 1, True), (ALONE_FPS - 1, 64, False), (9999, ALONE_MAX, False), (0, 0, False)],
)
def test_help_is_for_who_is_fast_and_has_much_to_do(fps: float, running: int, *, wants: bool) -> None:
    """Both: much work at processors' speed needs no second interpreter, nor do few fast sessions."""
    pace = Pace(100.0)
    assert pace.wants_help(100.0 + 2 * PACE_S, int(fps * 2 * PACE_S), running) is wants


def test_speed_is_not_measured_over_a_moment() -> None:
    """Two looks that follow each other at once are one."""
    pace = Pace(0.0)
    assert pace.wants_help(1.0, 3000, 9)
    assert pace.wants_help(1.0 + PACE_S / 2, 3000, 9)
    assert not pace.wants_help(1.0 + PACE_S, 3000, 9)
