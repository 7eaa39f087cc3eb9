"""A worker's second process: what it runs, what it says, and how it ends; here it is a thread."""

import pickle
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import pytest

from codecfleet.actors.nvidia.gpu import Gpu, OpenedGpu
from codecfleet.actors.work import Work, WorkContext
from codecfleet.actors.worker import WorkerCore
from codecfleet.cluster.second_process import ALONE_FPS, ALONE_MAX, PACE_S, Pace, Ready, SecondProcess
from codecfleet.cluster.second_program import serve
from codecfleet.errors import Cancelled, DeviceLost, EngineUnfit, UsageError, WorkError

GATES: dict[str, threading.Event] = {}
PATIENCE_S = 20.0


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


def _no_gpu() -> OpenedGpu:
    message = "there is no GPU"
    raise EngineUnfit(message, "Buy one.")


class _OpenGpu(Gpu):
    """A GPU that is open, and that nobody uses."""

    def opened(self) -> Any:  # noqa: ANN401 - nothing is done with it
        """Return nothing that anybody needs."""


@dataclass
class Second:
    """A second process in a thread."""

    gpu: Gpu = field(default_factory=_OpenGpu)
    ticks: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    lost: list[str] = field(default_factory=list)
    spawned: int = 0

    def __post_init__(self) -> None:
        self.process = SecondProcess(4, self.lost.append, self._spawn)

    def _spawn(self, slots: int) -> tuple[Connection, Callable[[], int]]:
        self.spawned += 1
        ours, theirs = Pipe()
        core = WorkerCore(slots, self.gpu)

        def pause(_: float) -> None:
            self.ticks.acquire()

        def run() -> None:
            serve(theirs, core, self.gpu, pause)
            theirs.close()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return ours, lambda: thread.join() or 0

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
    _until(lambda: second.process.reason != "")
    assert second.process.reason == "there is no GPU"
    assert not second.process.is_ready
    assert second.lost == []


def test_one_that_ends_is_lost() -> None:
    """Its worker is told why; whoever waits for its work waits for the worker's own end."""
    ours, theirs = Pipe()
    theirs.send(Ready())
    theirs.close()
    lost: queue.SimpleQueue[str] = queue.SimpleQueue()
    process = SecondProcess(4, lost.put, lambda _: (ours, lambda: -9))
    process.start()
    assert lost.get(timeout=PATIENCE_S) == "the second process of this GPU's worker ended with code -9"
    assert not process.is_ready
    assert not process.submit("run", b"", ()).done()
    process.cancel("run")


def test_one_that_is_closed_is_not_lost(second: Second) -> None:
    """A worker that ends closes it, and is not told of what it did itself."""
    process = second.ready()
    process.close()
    _until(lambda: not process.is_ready)
    assert second.lost == []


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
