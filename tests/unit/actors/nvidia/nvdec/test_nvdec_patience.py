"""Sessions that are opened in the background: which callers wait for them, and which get them."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codecfleet.actors.nvidia.nvdec.pool import FULL_WAIT_S, PATIENT_OPENINGS, NvdecPool, SessionRequest
from codecfleet.actors.nvidia.nvdec.session import SessionKey
from codecfleet.errors import DeviceError, DeviceLost, EngineBusy

from .pooled import Session, key

LIMIT_S = 30.0
"""The time limit of a wait, which only a failing test reaches."""


class Maker:
    """Makes a session when it is told to, or fails as it is told; ``begun`` has the requested keys."""

    def __init__(self) -> None:
        self.begun: queue.Queue[SessionKey] = queue.Queue()
        self._orders: queue.Queue[DeviceError | None] = queue.Queue()
        self.made: list[Session] = []
        self.threads: set[threading.Thread] = set()

    def __call__(self, wanted: SessionKey) -> Session:
        """Wait for the test's order, and obey the order."""
        self.threads.add(threading.current_thread())
        self.begun.put(wanted)
        error = self._orders.get(timeout=LIMIT_S)
        if error is not None:
            raise error
        self.made.append(Session(wanted))
        return self.made[-1]

    def finish(self, error: DeviceError | None = None) -> None:
        """Let the current opening end, or the next one if none runs."""
        self._orders.put(error)

    def began(self) -> str:
        """Wait until an opening begins; return its codec."""
        return self.begun.get(timeout=LIMIT_S).codec


class Waits:
    """Makes conditions, and knows which threads wait on them."""

    def __init__(self) -> None:
        self._names = threading.Condition()
        self._waiting: set[str] = set()

    def condition(self, lock: Any) -> threading.Condition:
        """Return a condition that records its waiting threads."""
        made = threading.Condition(lock)
        wait = made.wait

        def noted(timeout: float | None = None) -> bool:
            with self._names:
                self._waiting.add(threading.current_thread().name)
                self._names.notify_all()
            return wait(timeout)

        made.wait = noted  # type: ignore[method-assign]
        return made

    def until(self, name: str) -> None:
        """Return once a thread of that name waits, or has waited."""
        with self._names:
            assert self._names.wait_for(lambda: name in self._waiting, LIMIT_S)


@dataclass
class Borrower:
    """A caller that holds a session until it is told to return it."""

    got: "Future[Session]" = field(default_factory=Future)
    done: threading.Event = field(default_factory=threading.Event)
    request: SessionRequest | None = None
    thread: threading.Thread | None = None

    def session(self) -> Session:
        """Return what it got."""
        return self.got.result(LIMIT_S)

    def return_it(self) -> None:
        """Give it back."""
        self.done.set()
        assert self.thread is not None
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive()


class Bench:
    """A pool, its maker, and its callers."""

    def __init__(self, enough: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.maker = Maker()
        self.waits = Waits()
        self.pool = NvdecPool(self.maker, 32, enough=enough, condition=self.waits.condition, clock=clock)  # type: ignore[arg-type]
        self._borrowers = 0

    def wait_for(self, codec: str = "h264", *, non_blocking: bool = True) -> Borrower:
        """Start a caller that waits; return when it waits."""
        borrower = self.ask(codec, SessionRequest() if non_blocking else None)
        assert borrower.thread is not None
        self.waits.until(borrower.thread.name)
        return borrower

    def ask(self, codec: str, request: SessionRequest | None) -> Borrower:
        """Have somebody ask."""
        self._borrowers += 1
        borrower = Borrower(request=request)
        borrower.thread = threading.Thread(target=self._borrow, args=(borrower, codec), name=f"b{self._borrowers}")
        borrower.thread.start()
        return borrower

    def _borrow(self, borrower: Borrower, codec: str) -> None:
        try:
            with self.pool.acquire(key(codec), request=borrower.request) as session:
                assert isinstance(session, Session)
                borrower.got.set_result(session)
                assert borrower.done.wait(LIMIT_S)
        except DeviceError as error:
            borrower.got.set_exception(error)
        finally:
            if borrower.request is not None:
                borrower.request.is_over = True

    def refused(self, codec: str = "h264") -> SessionRequest:
        """Make a request that would wait too long; return the request, which is not over yet."""
        request = SessionRequest()
        with pytest.raises(EngineBusy, match="still being opened"), self.pool.acquire(key(codec), request=request):
            pass
        return request

    @contextmanager
    def borrowed(self, codec: str = "h264") -> Iterator[Session]:
        """Borrow what is there."""
        with self.pool.acquire(key(codec), request=SessionRequest()) as session:
            assert isinstance(session, Session)
            yield session


@pytest.fixture
def bench() -> Bench:
    """Provide a pool whose sessions open when the test says so."""
    return Bench()


def test_a_session_without_a_waiter_is_opened_all_the_same(bench: Bench) -> None:
    """As many sessions open as were wanted at once, one by one; callers behind too many openings go without."""
    waiting = [bench.wait_for() for _ in range(PATIENT_OPENINGS + 1)]
    requests = [bench.refused() for _ in range(4)]
    assert bench.pool.counts.refused == 4
    for _ in range(7):
        assert bench.maker.began() == "h264"
        bench.maker.finish()
    sessions = [each.session() for each in waiting]
    _join_maker(bench)
    for request in requests:
        request.is_over = True
    with bench.borrowed() as one, bench.borrowed() as two, bench.borrowed() as three, bench.borrowed() as four:
        assert len({*sessions, one, two, three, four}) == 7
    counts = bench.pool.counts.of_kind[key()]
    assert (counts.made, counts.wanted_most, counts.in_use_now) == (7, 7, 3)
    for each in waiting:
        each.return_it()


def test_while_enough_sessions_are_in_use_the_next_caller_gets_one_that_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No further session is opened, whichever key it has, until one returns."""
    monkeypatch.setattr("codecfleet.actors.nvidia.nvdec.pool.FULL_WAIT_S", LIMIT_S)
    bench = Bench(enough=2)
    bench.maker.finish()
    bench.maker.finish()
    first, second = (bench.wait_for(non_blocking=False) for _ in range(2))
    first.session(), second.session()
    third = bench.wait_for(non_blocking=False)
    bench.waits.until("codecfleet-nvdec-sessions")
    assert len(bench.maker.made) == 2
    first.return_it()
    assert third.session() is first.session()
    other = bench.wait_for("hevc", non_blocking=False)
    bench.maker.finish()
    third.return_it()
    assert other.session().key.codec == "hevc"
    for each in (second, other):
        each.return_it()
    assert len(bench.maker.made) == 3


def test_a_caller_with_a_fallback_does_not_wait_for_a_session_that_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session is opened at once, even while enough sessions are in use."""
    monkeypatch.setattr("codecfleet.actors.nvidia.nvdec.pool.FULL_WAIT_S", LIMIT_S)
    bench = Bench(enough=1)
    bench.maker.finish()
    first = bench.wait_for(non_blocking=False)
    first.session()
    bench.maker.finish()
    other = bench.wait_for(non_blocking=True)
    assert other.session() is not first.session()
    for each in (first, other):
        each.return_it()


def test_if_no_session_returns_in_time_another_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting longer might last for ever, because the users of all sessions may wait for the caller."""
    monkeypatch.setattr("codecfleet.actors.nvidia.nvdec.pool.FULL_WAIT_S", 0.0)
    bench = Bench(enough=1)
    bench.maker.finish()
    bench.maker.finish()
    first, second = (bench.wait_for(non_blocking=False) for _ in range(2))
    assert first.session() is not second.session()
    for each in (first, second):
        each.return_it()


def test_while_sessions_return_no_other_is_opened() -> None:
    """A caller who waits longer than an opening would take gets a session that returns, if sessions do return."""
    now_s = [100.0]
    bench = Bench(enough=1, clock=lambda: now_s[0])
    bench.maker.finish()
    first = bench.wait_for(non_blocking=False)
    taken = first.session()
    second, third = (bench.wait_for(non_blocking=False) for _ in range(2))
    now_s[0] += 0.9 * FULL_WAIT_S
    first.return_it()
    assert second.session() is taken
    now_s[0] += 0.9 * FULL_WAIT_S
    second.return_it()
    assert third.session() is taken
    third.return_it()
    assert len(bench.maker.made) == 1


def test_a_key_whose_sessions_do_not_return_gets_its_own() -> None:
    """Sessions of another key that return do not keep a caller waiting, nor do callers before it."""
    now_s = [100.0]
    bench = Bench(enough=1, clock=lambda: now_s[0])
    bench.maker.finish()
    first = bench.wait_for(non_blocking=False)
    first.session()
    second, third = (bench.wait_for(non_blocking=False) for _ in range(2))
    other = bench.wait_for("hevc", non_blocking=False)
    now_s[0] += 0.9 * FULL_WAIT_S
    first.return_it()
    second.session()
    now_s[0] += 0.2 * FULL_WAIT_S  # too long for ``other``; ``third`` has seen a session return
    bench.maker.finish()
    assert other.session().key.codec == "hevc"
    assert not third.got.done()
    second.return_it()
    third.session()
    for each in (third, other):
        each.return_it()


def _join_maker(bench: Bench) -> None:
    """Wait until no opening is left."""
    for each in bench.maker.threads:
        each.join(LIMIT_S)
        assert not each.is_alive()


def test_only_one_is_opened_at_a_time(bench: Bench) -> None:
    """Only one opening runs at a time; callers without a fallback wait, however many openings come first."""
    waiting = [bench.wait_for(non_blocking=False) for _ in range(PATIENT_OPENINGS + 4)]
    assert bench.maker.began() == "h264"
    assert bench.maker.begun.empty()
    assert bench.pool.counts.refused == 0
    for each in waiting:
        bench.maker.finish()
        each.session()
    assert len(bench.maker.threads) == 1
    for each in waiting:
        each.return_it()


def test_those_who_wait_come_before_those_who_do_not(bench: Bench) -> None:
    """A session without a waiter is opened only when no caller waits."""
    waiting = [bench.wait_for() for _ in range(3)]
    bench.refused("vp9")
    late = bench.wait_for("hevc", non_blocking=False)
    order = []
    for _ in range(5):
        order.append(bench.maker.began())
        bench.maker.finish()
    assert order == ["h264", "h264", "h264", "hevc", "vp9"]
    for each in (*waiting, late):
        each.session()
        each.return_it()


def test_a_session_that_comes_back_serves_who_waits(bench: Bench) -> None:
    """No caller waits for an opening while a matching session is idle, and unneeded sessions are not opened."""
    bench.maker.finish()
    first = bench.wait_for(non_blocking=False)
    session = first.session()
    assert bench.maker.began() == "h264"
    blocker = bench.wait_for("vp9", non_blocking=False)
    assert bench.maker.began() == "vp9"
    second = bench.wait_for()
    first.return_it()
    assert second.session() is session
    bench.maker.finish()
    blocker.session()
    _join_maker(bench)
    blocker.return_it()
    second.return_it()
    assert bench.maker.begun.empty()
    assert bench.pool.counts.of_kind[key()].made == 1


def test_an_opening_goes_to_the_next_caller(bench: Bench) -> None:
    """A session whose caller went without goes to the next caller, and no other session is opened for that caller."""
    blocker = bench.wait_for("vp9", non_blocking=False)
    assert bench.maker.began() == "vp9"
    behind = [bench.wait_for("hevc", non_blocking=False) for _ in range(2)]
    request = bench.refused()
    request.is_over = True
    request = bench.refused()
    request.is_over = True
    late = bench.wait_for(non_blocking=False)
    for each in (blocker, *behind, late):
        bench.maker.finish()
        each.session()
    _join_maker(bench)
    assert bench.pool.counts.of_kind[key()].made == 1
    for each in (blocker, *behind, late):
        each.return_it()


def test_a_failure_without_a_waiter_is_raised_to_the_next_caller(bench: Bench) -> None:
    """The next caller gets the error once; the call after that tries again."""
    waiting = [bench.wait_for("hevc") for _ in range(3)]
    bench.refused()
    bench.refused()
    for each in waiting:
        bench.maker.finish()
        each.session()
    bench.maker.finish(DeviceLost("the device is gone"))
    _join_maker(bench)
    with pytest.raises(DeviceLost, match="the device is gone"), bench.borrowed():
        pass
    bench.maker.finish()
    with bench.borrowed() as session:
        assert session is bench.maker.made[-1]
    for each in waiting:
        each.return_it()


def test_closing_waits_for_what_is_being_opened(bench: Bench) -> None:
    """Closing leaves no thread and no session, and cancels openings without a waiter."""
    waiting = [bench.wait_for() for _ in range(3)]
    for _ in range(3):
        bench.refused()
    assert bench.maker.began() == "h264"
    made_when_closed: list[int] = []
    closing = threading.Thread(target=lambda: (bench.pool.close(), made_when_closed.append(len(bench.maker.made))))
    closing.start()
    for each in waiting:
        bench.maker.finish()
        each.session()
    for each in waiting:
        each.return_it()
    closing.join(LIMIT_S)
    bench.pool.close()
    assert (made_when_closed, bench.pool.counts.made) == ([3], 3)
    assert all(session.closed == 1 for session in bench.maker.made)
    assert not any(each.is_alive() for each in bench.maker.threads)


class Instant:
    """Makes sessions at once, and counts the most that existed of each key."""

    def __init__(self) -> None:
        self.alive: dict[SessionKey, int] = {}

    def __call__(self, wanted: SessionKey) -> Session:
        """Make one."""
        self.alive[wanted] = self.alive.get(wanted, 0) + 1
        return Session(wanted)


@settings(max_examples=25, deadline=None)
@given(
    threads=st.integers(1, 6),
    rounds=st.integers(1, 6),
    kinds=st.integers(1, 3),
    requiring_device=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_no_more_sessions_than_threads(threads: int, rounds: int, kinds: int, requiring_device: list[bool]) -> None:
    """However threads ask, wait, go without and return, there is at most one session per thread and key."""
    pool = NvdecPool(maker := Instant(), 32)  # type: ignore[arg-type]
    codecs = ("h264", "hevc", "vp9")[:kinds]

    def decode(require_device: bool) -> None:  # noqa: FBT001 - mapped over
        for number in range(rounds):
            request = SessionRequest()
            with (
                suppress(EngineBusy),
                pool.acquire(key(codecs[number % kinds]), request=None if require_device else request),
            ):
                pass
            request.is_over = True

    _run_all([partial(decode, requiring_device[number]) for number in range(threads)])
    pool.close()
    for kind, counts in pool.counts.of_kind.items():
        assert counts.made == maker.alive.get(kind, 0) <= counts.wanted_most <= threads
        assert (counts.in_use_now, counts.closed) == (0, counts.made)
    assert pool.counts.in_use + pool.counts.refused == threads * rounds


def _run_all(works: list[Callable[[], None]]) -> None:
    running = [threading.Thread(target=work) for work in works]
    for each in running:
        each.start()
    for each in running:
        each.join(LIMIT_S)
        assert not each.is_alive()
