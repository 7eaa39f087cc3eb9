"""Warm sessions are lent to one caller at a time, kept while they are clean, and closed once."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.nvidia.cuda.memory import MemoryBudget
from codecfleet.actors.nvidia.nvdec.pool import NvdecPool
from codecfleet.actors.nvidia.nvdec.session import SessionKey, session_bytes
from codecfleet.errors import DeviceError, DeviceMemory, EngineFailed, SessionLimit

from .pooled import Session, key


@dataclass
class Maker:
    """Makes sessions, or fails when told to; at most ``limit`` may be open."""

    errors: list[DeviceError] = field(default_factory=list)
    limit: int = 1000
    made: list[Session] = field(default_factory=list)

    def __call__(self, wanted: SessionKey) -> Session:
        """Make one."""
        if self.errors:
            raise self.errors.pop(0)
        if len(self.alive) >= self.limit:
            message = "the device's memory is full"
            raise DeviceMemory(message)
        self.made.append(Session(wanted))
        return self.made[-1]

    @property
    def alive(self) -> list[Session]:
        """The sessions that are not closed."""
        return [session for session in self.made if not session.closed]


def pool_of(maker: Callable[[SessionKey], Session], idle_max: int = 4) -> NvdecPool:
    """Return a pool with the sessions of ``maker``."""
    return NvdecPool(maker, idle_max)  # type: ignore[arg-type]


def counts_of(pool: NvdecPool) -> tuple[int, int, int]:
    """Return the numbers of sessions made, lent and closed."""
    return pool.counts.made, pool.counts.in_use, pool.counts.closed


def test_two_at_once_get_two_and_the_last_used_first() -> None:
    """No two callers share a session; the session returned last is lent first."""
    pool = pool_of(maker := Maker())
    with pool.acquire(key()) as one, pool.acquire(key()) as other:
        assert one is not other
    with pool.acquire(key()) as again:
        assert again is one
    assert len(maker.made) == 2


def test_the_longest_idle_goes_first() -> None:
    """Above the limit of idle sessions, the session that was idle longest is closed."""
    pool = pool_of(maker := Maker(), idle_max=2)
    for codec in ("h264", "hevc", "vp9"):
        with pool.acquire(key(codec)):
            pass
    assert [session.closed for session in maker.made] == [1, 0, 0]
    with pool.acquire(key("hevc")):
        pass
    with pool.acquire(key("vp8")):
        pass
    assert [session.closed for session in maker.made] == [1, 0, 1, 0]


def test_full_memory_takes_the_idle_sessions() -> None:
    """If there is no memory for another session, the session that was idle longest is closed."""
    pool = pool_of(maker := Maker(limit=2))
    for codec in ("h264", "hevc", "vp9"):
        with pool.acquire(key(codec)):
            pass
    assert [session.closed for session in maker.made] == [1, 0, 0]


def test_other_errors_are_not_tried_again() -> None:
    """A refusal is raised at once, and the next caller is served."""
    message = "it refuses"
    pool = pool_of(maker := Maker(errors=[EngineFailed(message)]))
    with pytest.raises(EngineFailed), pool.acquire(key()):
        pass
    with pool.acquire(key()):
        pass
    assert len(maker.made) == 1


def test_a_new_session_is_tried_with_what_comes_first() -> None:
    """The driver opens its decoder at the first picture, so a new session decodes that picture as a trial."""
    pool = pool_of(maker := Maker())
    for _ in range(2):
        with pool.acquire(key(), b"first"):
            pass
    assert [session.primed_with for session in maker.made] == [b"first"]


def test_a_session_that_fails_at_its_first_picture_is_closed() -> None:
    """The waiting caller gets the reason, and the failed session is closed."""

    class Failing(Session):
        def prime(self, first: bytes) -> None:
            raise EngineFailed(first.decode())

    made: list[Session] = []

    def make(wanted: SessionKey) -> Session:
        made.append(Failing(wanted))
        return made[-1]

    budget = MemoryBudget(1 << 40)
    pool = NvdecPool(make, 4, budget)  # type: ignore[arg-type]
    with pytest.raises(EngineFailed, match="no picture"), pool.acquire(key(), b"no picture"):
        pass
    assert [session.closed for session in made] == [1]
    assert (counts_of(pool), budget.taken_bytes) == ((0, 0, 0), 0)


_codecs = st.sampled_from(["h264", "hevc"])
_steps = st.one_of(
    st.tuples(st.just("lend"), _codecs),
    st.tuples(st.just("return"), st.booleans()),
    st.tuples(st.just("close"), st.none()),
)


@given(
    steps=st.lists(_steps, max_size=30), idle_max=st.integers(0, 3), limit=st.integers(1, 6), total=st.integers(1, 6)
)
def test_no_session_is_lost_or_shared(steps: list[tuple[str, object]], idle_max: int, limit: int, total: int) -> None:
    """After any calls, each session has one user, is closed at most once, and is counted."""
    budget = MemoryBudget(total * session_bytes(key()))
    pool = NvdecPool(maker := Maker(limit=limit), idle_max, budget)  # type: ignore[arg-type]
    limit = min(limit, total)
    in_use: list[tuple[ExitStack, Session]] = []
    for step, value in steps:
        if step == "lend":
            _acquire(pool, key(str(value)), in_use)
        elif step == "return" and in_use:
            stack, session = in_use.pop()
            session.is_clean, session.is_in_use = bool(value), False
            stack.close()
        elif step == "close":
            pool.close()
            assert len(maker.alive) == len(in_use)
        alive = maker.alive
        assert all(session.closed <= 1 for session in maker.made)
        assert len(alive) <= min(limit, len(in_use) + idle_max)
        assert pool.counts.made - pool.counts.closed == len(alive)
        assert all(session in alive for _, session in in_use)
        assert all(each.made - each.closed <= each.wanted_most for each in pool.counts.of_kind.values())
        assert sum(each.in_use_now for each in pool.counts.of_kind.values()) == len(in_use)
        assert budget.taken_bytes == len(alive) * session_bytes(key())
    for stack, session in in_use:
        session.is_in_use = False
        stack.close()
    assert len(maker.alive) <= idle_max


def _acquire(pool: NvdecPool, wanted: SessionKey, in_use: list[tuple[ExitStack, Session]]) -> None:
    with ExitStack() as stack, suppress(DeviceMemory):
        session = stack.enter_context(pool.acquire(wanted))
        assert isinstance(session, Session)
        assert session.key == wanted
        assert not session.is_in_use
        assert session.is_clean
        session.is_in_use = True
        in_use.append((stack.pop_all(), session))


def test_without_a_thread_to_open_sessions_no_caller_waits() -> None:
    """If no thread can be started, the caller gets an error, and the next caller tries again."""
    pool = pool_of(maker := Maker())
    threading.stack_size(1 << 46)  # more than there is
    try:
        with pytest.raises(SessionLimit), pool.acquire(key()):
            pass
    finally:
        threading.stack_size(0)
    pool.close()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(used_once, pool).result(10)
    assert len(maker.made) == 1


def used_once(pool: NvdecPool) -> None:
    """Borrow a session."""
    with pool.acquire(key()):
        pass
