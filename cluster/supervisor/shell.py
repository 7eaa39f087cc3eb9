"""Carries out what the core decides, and tells it what came of it: the async shell around ``core.Core``.

All of it runs on one event loop. The same shell runs in the cluster's supervisor actor, and in a process that has an
embedded Ray to itself.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from .core import Core
from .events import (
    Asked,
    Departed,
    Died,
    Effect,
    Ended,
    Event,
    Found,
    Measured,
    NodesSeen,
    Note,
    NotReserved,
    Order,
    Probe,
    Probed,
    ProbeFailed,
    Remember,
    Renewed,
    Reserve,
    Reserved,
    Start,
    Started,
    Stop,
    Stopped,
    Ticked,
)
from .granting import grants_for
from .hands import Hands
from .messages import ClientReport, Grants
from .pulse import Pulse, speed_between
from .seats import SeatState
from .settings import SupervisorSettings
from .status import Status, status_of

__all__ = ["Shell"]

TICK_S = 0.25
LOOK_S = 1.0
"""How often the node table is read; that costs 0.4 ms."""
PULSE_S = 2.0
PROBE_LIMIT_S = 150.0
FAREWELL_S = 5.0
"""How long workers may take to be stopped when all of it closes."""
LOG_LINES = 1000

_log = logging.getLogger("codecfleet.supervisor")


class Shell:
    """A running supervisor.

    Args:
        hands: what it acts with.
        core: what decides.
        settings: how patient to be.
        clock: monotonic seconds; the core's clock too.
        sleep: how to wait.
    """

    def __init__(
        self,
        hands: Hands,
        core: Core,
        settings: SupervisorSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._hands = hands
        self._core = core
        self._settings = settings
        self._clock = clock
        self._sleep = sleep
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._told: dict[str, Grants] = {}
        self._pulses: dict[str, tuple[float, Pulse]] = {}
        self._fps: dict[str, float] = {}
        self._log: deque[tuple[float, str]] = deque(maxlen=LOG_LINES)
        self._idle_since_s = clock()

    async def open(self) -> None:
        """Learn what is there, adopt what an earlier supervisor left, and go on from there."""
        self.feed(NodesSeen(self._hands.nodes()))
        self.feed(Found(await self._hands.find()))
        for node, order in (await self._hands.recall()).items():
            self.feed(Asked(order, node, is_recalled=True))
        for book in self._core.state.seats.values():
            if book.state is SeatState.READY:
                self._spawn(self._see_die(book.seat.seat, book.epoch))
        self._spawn(self._tick_for_ever())
        self._spawn(self._look_for_ever())

    async def close(self, reason: str) -> None:
        """Stop every worker, give everything back, and stop."""
        self.feed(Ended(reason))
        stopping = [task for task in self._tasks if task.get_name() == "stop"]
        for task in self._tasks - set(stopping):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=FAREWELL_S)

    def feed(self, event: Event) -> None:
        """Tell the core what happened, and do what it decides."""
        for effect in self._core.decide(event, self._clock()):
            self._carry_out(effect)
        self._changed.set()

    async def renew(self, report: ClientReport, wait_s: float = 0.0) -> Grants:
        """Hear a client; return what it may use, as soon as that changes or after ``wait_s``."""
        self.feed(Renewed(report))
        until_s = self._clock() + wait_s
        while True:
            self._changed.clear()
            grants = grants_for(self._core.state, report.client, self._clock())
            left_s = until_s - self._clock()
            if grants != self._told.get(report.client) or left_s <= 0:
                self._told[report.client] = grants
                return grants
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)

    def depart(self, client: str) -> None:
        """Hear a client's goodbye."""
        self._told.pop(client, None)
        self.feed(Departed(client))

    def ask(self, order: Order, node: str) -> bool:
        """Cordon, drain or open a node as a user asks; False if there is no such node, or several."""
        known = self._core.state.nodes.find(node) is not None
        self.feed(Asked(order, node))
        return known

    def status(self) -> Status:
        """Return everything a person may want to see."""
        return status_of(self._core.state, dict(self._fps), tuple(self._log), self._clock())

    def handle(self, worker: str) -> Any:  # noqa: ANN401 - Ray's handles carry no types
        """Return what a client calls a worker by."""
        return self._hands.handle(worker)

    @property
    def idle_s(self) -> float:
        """For how long there has been no client and no worker."""
        return self._clock() - self._idle_since_s if self._core.state.is_idle else 0.0

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Note(line):
                self._log.append((time.time(), line))
                _log.info("%s", line)
            case Probe():
                self._spawn(self._probe(effect))
            case Reserve():
                self._spawn(self._reserve(effect))
            case Start():
                self._spawn(self._live(effect))
            case Stop():
                self._spawn(self._stop(effect), "stop")
            case Remember(orders):
                self._spawn(self._hands.remember(orders))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str | None = None) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # A defect of ours: told, and the supervisor goes on.
            _log.error("a supervisor task failed", exc_info=task.exception())
            self._log.append((time.time(), f"defect: {_line(task.exception())}"))

    async def _probe(self, effect: Probe) -> None:
        try:
            node = await asyncio.wait_for(self._hands.probe(effect.node, again=effect.again), PROBE_LIMIT_S)
        except Exception as error:  # noqa: BLE001 - whatever a foreign machine raises is the answer
            self.feed(ProbeFailed(effect.node, _line(error)))
        else:
            self.feed(Probed(node))

    async def _reserve(self, effect: Reserve) -> None:
        try:
            cores = await asyncio.wait_for(self._hands.reserve(effect), self._settings.reserve_limit_s)
        except TimeoutError:
            reason = f"other Ray work holds what it needs; waited {self._settings.reserve_limit_s:g} s"
            self.feed(NotReserved(effect.seat, effect.epoch, reason))
        except Exception as error:  # noqa: BLE001 - whatever Ray raises is the answer
            self.feed(NotReserved(effect.seat, effect.epoch, _line(error)))
        else:
            self.feed(Reserved(effect.seat, effect.epoch, cores))

    async def _live(self, effect: Start) -> None:
        """Live a worker's life: see it start, then wait for its death."""
        try:
            facts = await asyncio.wait_for(self._hands.start(effect), self._settings.start_limit_s)
        except TimeoutError:
            self._tell_death(effect.seat, effect.epoch, f"it did not answer within {self._settings.start_limit_s:g} s")
            return
        except Exception as error:  # noqa: BLE001 - whatever Ray raises means that it did not come up
            self._tell_death(effect.seat, effect.epoch, _line(error))
            return
        self.feed(Started(effect.seat, effect.epoch, facts))
        await self._see_die(effect.seat, effect.epoch)

    async def _see_die(self, seat: str, epoch: int) -> None:
        self._tell_death(seat, epoch, await self._hands.death_of(seat, epoch))

    def _tell_death(self, seat: str, epoch: int, reason: str) -> None:
        gone = self._hands.world_is_gone()
        self.feed(Ended(gone) if gone else Died(seat, epoch, reason))

    async def _stop(self, effect: Stop) -> None:
        with suppress(Exception):  # what cannot be stopped is out of reach, and fences itself
            await self._hands.stop(effect.seat, effect.epoch)
        self.feed(Stopped(effect.seat, effect.epoch))

    async def _tick_for_ever(self) -> None:
        pulse_at_s = self._clock()
        while True:
            await self._sleep(TICK_S)
            self.feed(Ticked())
            if not self._core.state.is_idle:
                self._idle_since_s = self._clock()
            if self._clock() >= pulse_at_s:
                pulse_at_s = self._clock() + PULSE_S
                for book in list(self._core.state.seats.values()):
                    if book.state is SeatState.READY:
                        self._spawn(self._feel_pulse(book.seat.seat, book.epoch, book.worker))

    async def _look_for_ever(self) -> None:
        while True:
            await self._sleep(LOOK_S)
            with suppress(Exception):  # the node table is out of reach for a moment; what was seen last still holds
                self.feed(NodesSeen(self._hands.nodes()))

    async def _feel_pulse(self, seat: str, epoch: int, worker: str) -> None:
        try:
            pulse = await asyncio.wait_for(self._hands.pulse(seat, epoch), self._settings.ping_limit_s)
        except TimeoutError:
            self._tell_death(seat, epoch, f"it has not answered for {self._settings.ping_limit_s:g} s")
            return
        except Exception:  # noqa: BLE001 - a death is told by ``death_of``
            return
        now_s = self._clock()
        before_s, before = self._pulses.get(worker, (now_s, pulse))
        self._pulses[worker] = (now_s, pulse)
        if now_s <= before_s:
            return
        speed = speed_between(before, pulse, now_s - before_s)
        self._fps[worker] = speed.fps
        if speed.job and speed.fps > 0:
            self.feed(Measured(seat, epoch, speed.job, speed.sessions, speed.fps))


def _line(error: BaseException | None) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0].rstrip('.')}" if text else type(error).__name__
