"""The warm decoder sessions of one device, opened one at a time in the background.

Opening a session takes 0.1 s in the operating system's kernel, which opens one session at a time (docs/nvdec.md).
"""

import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from ....errors import DeviceError, EngineBusy, SessionLimit
from ...closing import undone_by
from ...device.interface import SESSIONS_OPENING
from ..cuda.memory import MemoryBudget
from .session import NvdecSession, SessionKey, session_bytes

FULL_WAIT_S: Final = 1.0
"""How long an opening waits while enough sessions are in use: ten times as long as opening takes.

The wait is limited because the users of those sessions may be waiting for the caller that waits here.
"""
PATIENT_OPENINGS: Final = 2
"""The most openings that a caller with a software fallback waits for: together a third of a second."""

WAIT_ADVICE: Final = "Use --device gpu, which waits for a session."


@dataclass(slots=True)
class KeyCounts:
    """The counts of one key's sessions. ``wanted_most`` is the most ever wanted at once; the pool opens no more."""

    made: int = 0
    closed: int = 0
    in_use_now: int = 0
    wanted_most: int = 0


@dataclass(slots=True)
class PoolCounts:
    """Counts of the pool's sessions; ``of_kind`` has the counts for each key."""

    made: int = 0
    in_use: int = 0  # how many times a session was handed out
    in_use_now: int = 0
    closed: int = 0
    refused: int = 0  # requests that got no session because they would have had to wait
    of_kind: defaultdict[SessionKey, KeyCounts] = field(default_factory=lambda: defaultdict(KeyCounts))


@dataclass(slots=True)
class SessionRequest:
    """A request that fails if no session is ready soon. Its session stays reserved until ``is_over``."""

    is_over: bool = False


@dataclass(slots=True, eq=False)
class _Waiter:
    """A waiting caller, and its session or error.

    Each waiter has its own condition, so that only the thread that can go on is woken: every woken thread competes for
    the GIL.
    """

    woken: threading.Condition
    outcome: NvdecSession | BaseException | None = None

    def give(self, outcome: NvdecSession | BaseException) -> None:
        """End the wait; the caller holds the pool's lock."""
        self.outcome = outcome
        self.woken.notify()


@dataclass(slots=True, eq=False)
class _Opening:
    """A session to open. ``waiter`` is the caller that waits for it, if there is one.

    ``request`` is set if the caller can fall back to software. The session stays reserved until that request is over,
    even if the caller does not wait.
    """

    key: SessionKey
    first: bytes
    since_s: float
    request: SessionRequest | None = None
    waiter: _Waiter | None = None
    is_begun: bool = False

    @property
    def is_free(self) -> bool:
        """Whether the next caller may claim the session."""
        return self.waiter is None and (self.request is None or self.request.is_over)


class NvdecPool:
    """Keeps used sessions for the next caller with the same key. Safe from any thread.

    A separate thread opens sessions with ``make``, and ends when no session is missing. The longest-idle session is
    closed when more than ``idle_max`` are idle, or when ``budget``, which counts the device's memory, needs room.

    While ``enough`` sessions are in use, a caller without a fallback waits ``FULL_WAIT_S`` for a used one before
    another is opened. If the caller's key has its even share of ``enough`` (``enough`` divided by the number of keys in
    use), each return of a session with this key restarts the wait. With None for ``budget`` or ``enough``, there is
    no limit.

    ``condition`` makes the conditions on which threads wait; ``clock`` returns seconds.
    """

    def __init__(
        self,
        make: Callable[[SessionKey], NvdecSession],
        idle_max: int,
        budget: MemoryBudget | None = None,
        *,
        condition: Callable[[Any], threading.Condition] = threading.Condition,
        clock: Callable[[], float] = time.monotonic,
        enough: int | None = None,
    ) -> None:
        self._make = make
        self._idle_max = idle_max
        self._enough = enough
        self._budget = budget or MemoryBudget(None)
        self._budget.reclaim_from(self._drop_oldest)
        self._idle: OrderedDict[int, NvdecSession] = OrderedDict()
        self._openings: list[_Opening] = []
        self._failures: dict[SessionKey, BaseException] = {}
        self._returned_s: dict[SessionKey, float] = {}
        self._lock = threading.RLock()
        self._condition = condition
        self._clock = clock
        self._changed = condition(self._lock)  # where the maker waits
        self._maker: threading.Thread | None = None
        self.counts = PoolCounts()

    @contextmanager
    def acquire(
        self, key: SessionKey, first: bytes = b"", request: SessionRequest | None = None
    ) -> Iterator[NvdecSession]:
        """Lend a session for ``key``, a warm one if any is idle; close the session if it comes back unclean.

        A new session decodes the packet ``first`` once, because the driver opens its decoder with the first picture.
        A caller that can fall back to software passes a ``request``, and waits for only a few openings; None waits as
        long as necessary.

        Raises:
            EngineBusy: too many other sessions are opened first. This session is still opened, for the next caller.
            DeviceError: no session could be opened, now or in the background since the last call.
        """
        with self._changed:
            session = self._pop_idle(key) or self._awaited(key, first, request)
        try:
            yield session
        finally:
            self._give_back(session)

    def close(self) -> None:
        """Cancel openings without a waiter, wait for the current opening, and close every idle session."""
        with self._changed:
            self._openings = [opening for opening in self._openings if opening.waiter or opening.is_begun]
            maker = self._maker
        if maker is not None:
            maker.join()
        while self._drop_oldest():
            pass

    def _pop_idle(self, key: SessionKey) -> NvdecSession | None:
        # Take the session used last: its memory is the warmest.
        name = next((name for name, session in reversed(self._idle.items()) if session.key == key), None)
        if name is None:
            return None
        self._count_in_use(key)
        return self._idle.pop(name)

    def _count_in_use(self, key: SessionKey) -> None:
        counts = self.counts.of_kind[key]
        counts.in_use_now += 1
        counts.wanted_most = max(counts.wanted_most, counts.in_use_now)
        self.counts.in_use += 1
        self.counts.in_use_now += 1

    def _awaited(self, key: SessionKey, first: bytes, request: SessionRequest | None) -> NvdecSession:
        if error := self._failures.pop(key, None):
            raise error
        opening = self._opening(key, first, request)
        others = sum(1 for other in self._openings if other is not opening and (other.is_begun or other.waiter))
        if request is not None and others > PATIENT_OPENINGS and not opening.is_begun:
            opening.request = request
            self.counts.refused += 1
            raise EngineBusy(SESSIONS_OPENING, WAIT_ADVICE)
        waiter = opening.waiter = _Waiter(self._condition(self._lock))
        while (outcome := waiter.outcome) is None:
            waiter.woken.wait()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _opening(self, key: SessionKey, first: bytes, request: SessionRequest | None) -> _Opening:
        """Return the opening to wait for: an unclaimed one, or a new one."""
        found = next((each for each in self._openings if each.key == key and each.is_free), None)
        if found is None:
            found = _Opening(key, first, self._clock())
        elif not found.is_begun:
            self._openings.remove(found)
        if not found.is_begun:
            self._openings.append(found)
            self._changed.notify()
        found.request = request
        counts = self.counts.of_kind[key]
        here = sum(1 for each in self._openings if each.key == key and (each is found or not each.is_free))
        counts.wanted_most = max(counts.wanted_most, counts.in_use_now + here)
        if self._maker is None:
            self._start_maker()
        return found

    def _start_maker(self) -> None:
        maker = threading.Thread(target=self._open_all, name="codecfleet-nvdec-sessions", daemon=True)
        try:
            maker.start()
        except RuntimeError as error:
            message = f"the thread that opens NVDEC's sessions cannot be started: {error}"
            raise SessionLimit(message, "Run fewer segments at a time.") from error
        self._maker = maker

    def _open_all(self) -> None:
        while (opening := self._next_opening()) is not None:
            try:
                session = self._budget.spend(session_bytes(opening.key), lambda: self._opened(opening))
            except BaseException as error:  # noqa: BLE001 - raised again in the caller that waits for the session
                self._has_failed(opening, error)
            else:
                self._is_open(opening, session)

    def _next_opening(self) -> _Opening | None:
        """Return the next opening (openings with a waiter come first); None ends the thread."""
        with self._changed:
            while True:
                if not self._openings:
                    self._maker = None
                    return None
                waited = [each for each in self._openings if each.waiter]
                opening = min(waited or self._openings[:1], key=self._wait_s)
                wait_s = self._wait_s(opening)
                if wait_s <= 0:
                    opening.is_begun = True
                    return opening
                self._changed.wait(wait_s)

    def _wait_s(self, opening: _Opening) -> float:
        """Return how long to wait for a used session before another is opened."""
        if self._enough is None or self.counts.in_use_now < self._enough or opening.request is not None:
            return 0.0
        of_kind, since_s = self.counts.of_kind, opening.since_s
        keys = sum(counts.in_use_now > 0 for counts in of_kind.values())
        if keys * of_kind[opening.key].in_use_now >= self._enough:  # the key has its even share
            since_s = max(since_s, self._returned_s.get(opening.key, since_s))
        return max(0.0, since_s + FULL_WAIT_S - self._clock())

    def _opened(self, opening: _Opening) -> NvdecSession:
        session = self._make(opening.key)
        with undone_by(session.close):
            session.prime(opening.first)
        return session

    def _has_failed(self, opening: _Opening, error: BaseException) -> None:
        with self._changed:
            self._openings.remove(opening)
            if opening.waiter is None:
                self._failures[opening.key] = error
            else:
                opening.waiter.give(error)
            # Do not ask the driver again for a session that nobody waits for.
            self._openings = [each for each in self._openings if each.key != opening.key or each.waiter]

    def _is_open(self, opening: _Opening, session: NvdecSession) -> None:
        with self._changed:
            self._openings.remove(opening)
            self.counts.made += 1
            self.counts.of_kind[opening.key].made += 1
            if opening.waiter is None:
                surplus = self._shelve(session, opening.request)
            else:
                self._count_in_use(session.key)
                opening.waiter.give(session)
                surplus = []
        with suppress(DeviceError):  # the device's next user gets the error
            self._discard(surplus)

    def _give_back(self, session: NvdecSession) -> None:
        with self._changed:
            in_use = self.counts.in_use_now
            self.counts.of_kind[session.key].in_use_now -= 1
            self.counts.in_use_now -= 1
            self._returned_s[session.key] = self._clock()
            surplus = self._shelve(session, None) if session.is_clean else [session]
            if self.counts.in_use_now < in_use:  # no caller waited for this session, so another may be opened
                self._changed.notify()
        self._discard(surplus)

    def _shelve(self, session: NvdecSession, request: SessionRequest | None) -> list[NvdecSession]:
        """Hand a session to the longest-waiting caller, or keep it; return the sessions beyond ``idle_max``."""
        waited = next((each for each in self._openings if each.key == session.key and each.waiter), None)
        if waited is not None and waited.waiter is not None:
            self._count_in_use(session.key)
            waited.waiter.give(session)
            waited.waiter, waited.request = None, request
            if waited.is_free and not waited.is_begun:
                self._openings.remove(waited)
            return []
        self._idle[id(session)] = session
        return [self._idle.popitem(last=False)[1] for _ in range(len(self._idle) - self._idle_max)]

    def _drop_oldest(self) -> bool:
        with self._changed:
            oldest = [self._idle.popitem(last=False)[1]] if self._idle else []
        self._discard(oldest)
        return bool(oldest)

    def _discard(self, sessions: list[NvdecSession]) -> None:
        for session in sessions:
            with self._changed:
                self.counts.closed += 1
                self.counts.of_kind[session.key].closed += 1
            try:
                session.close()
            finally:
                self._budget.give_back(session_bytes(session.key))
