"""The pool on Ray: worker processes as actors, one queue, and replacements for processes that die.

The decisions are ``dispatch_state.Dispatch``'s; this shell carries them out and reports back what came of them. All of
it runs on one event loop. Ray never restarts or retries anything itself (``max_restarts=0, max_task_retries=0``): so a
death is known within milliseconds, and whoever submitted the work decides whether to submit it again.

This module imports ray: import it only after ``embedded.connect`` has settled the environment that Ray reads then.
"""

import asyncio
import itertools
import pickle
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ..actors.work import Work
from ..errors import Cancelled, CodecfleetError, FleetUnavailable, UsageError, WorkerLost, WorkError
from .dispatch_state import (
    Answered,
    Closed,
    Died,
    Dispatch,
    Effect,
    Event,
    Finished,
    Kill,
    Lose,
    Refuse,
    Run,
    Start,
    Stop,
    Submitted,
    Withdrawn,
)
from .embedded import Connection
from .pool import Pool
from .ray_failures import Failure, classify, first_line
from .ray_worker import CONTROL, Outcome, RayWorker
from .seating import NodeCores, Seat, seat_workers

__all__ = ["RayPool"]

ResultT = TypeVar("ResultT")
Actor: TypeAlias = Any
"""Ray's handle of a ``RayWorker``: its methods are made at run time and carry no types."""

RESERVED_START_S = 10.0
"""How long a process may wait for the CPUs it reserves; then it starts without a reservation."""
START_S = 60.0
"""How long a process may take to answer; a cold machine needs some seconds."""
FAREWELL_S = 0.5
"""How long cancelled work may take to end before its process is killed."""
PROGRESS_S = 1.0
CONTROL_CALLS = 64


@dataclass(frozen=True, slots=True)
class _Order:
    """Work that somebody awaits."""

    work: Work[Any]
    pickled: bytes
    result: asyncio.Future[Any]

    def settle(self, outcome: Outcome[Any]) -> None:
        if self.result.done():  # the submitter was cancelled
            return
        if outcome.error is None:
            self.result.set_result(outcome.result)
        else:
            self.result.set_exception(outcome.error)


class RayPool(Pool):
    """Runs work on the Ray that ``connection`` leads to.

    Args:
        connection: an open connection, which must outlive the pool; the pool does not close it.
        slots: pieces of work at a time; None means one per core of the cluster. More than it has cores share cores.
        sleep: how to wait between the starts of a process that keeps dying.
    """

    def __init__(
        self,
        connection: Connection,
        slots: int | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if slots is not None and slots < 1:
            message = f"a pool needs at least one slot: {slots}"
            raise UsageError(message)
        self._connection = connection
        self._asked_slots = slots
        self._sleep = sleep
        self._seats: tuple[Seat, ...] = ()
        self._dispatch = Dispatch(())
        self._tasks = itertools.count()
        self._orders: dict[int, _Order] = {}
        self._actors: dict[tuple[int, int], Actor] = {}
        self._tending: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def slots(self) -> int:
        """How many pieces of work run at the same time; known once the pool has started."""
        return sum(seat.slots for seat in self._seats)

    @property
    def processes(self) -> int:
        """How many worker processes the pool has; known once it has started."""
        return len(self._seats)

    async def start(self) -> None:
        """Start the worker processes and wait until each has answered or failed.

        Raises:
            FleetUnavailable: no process came up, or Ray has no node with a CPU.
        """
        self._refuse_if_closed()
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        await asyncio.shield(self._opening)

    async def submit(self, work: Work[ResultT]) -> ResultT:
        """Run ``work`` on a worker process and return its result.

        Large NumPy arrays in the result are read-only views of Ray's object store, not copies.

        Raises:
            WorkerLost: the process or its node died; a replacement is on its way.
            FleetUnavailable: the processes keep dying, so nothing is left to run on.
            UsageError: the work does not pickle, or the pool is closed.
            Cancelled: the pool was closed while the work waited or ran.
            CodecfleetError: whatever the work raised; what is no CodecfleetError arrives as WorkError.
        """
        self._refuse_if_closed()
        order = _Order(work, _pickle(work), asyncio.get_running_loop().create_future())
        task = next(self._tasks)
        self._orders[task] = order
        self._feed(Submitted(task))
        try:
            return cast("ResultT", await order.result)
        except asyncio.CancelledError:
            self._feed(Withdrawn(task))
            raise
        finally:
            del self._orders[task]

    async def progress(self, job: str) -> Mapping[str, int]:
        """Frames done by the running work of ``job``, by label; a process that does not answer in 1 s says nothing."""
        actors = [self._actors[life] for life in self._dispatch.lives()]
        answers = await asyncio.gather(*(self._ask_progress(actor, job) for actor in actors))
        return {label: frames for answer in answers for label, frames in answer.items()}

    async def aclose(self) -> None:
        """Cancel what runs, give it half a second to end, then kill the processes."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _open(self) -> None:
        nodes = await asyncio.to_thread(self._nodes)
        self._seats = seat_workers(nodes, self._asked_slots)
        if not self._seats:
            message = "the Ray cluster has no node with a CPU"
            raise FleetUnavailable(message, "Start a worker node with CPUs, or run without an address.")
        self._dispatch = Dispatch([seat.slots for seat in self._seats])
        self._carry_out(self._dispatch.open())
        while self._dispatch.starting and self._dispatch.end is None:
            self._changed.clear()
            await self._changed.wait()
        if self._dispatch.end is not None:
            raise FleetUnavailable(self._dispatch.end, _AFTER_A_CRASH_LOOP)

    def _nodes(self) -> list[NodeCores]:
        alive = [node for node in ray.nodes() if node["Alive"]]
        cores = {node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in alive}
        if self._connection.is_private:
            # Nobody else is there to reserve CPUs against, and a reservation could only wait.
            return [NodeCores(node, count, 0) for node, count in cores.items()]
        free = int(ray.available_resources().get("CPU", 0))
        listed = []
        for node, count in cores.items():
            mine = min(count, free)
            free -= mine
            listed.append(NodeCores(node, count, mine))
        return listed

    def _feed(self, event: Event) -> None:
        self._carry_out(self._dispatch.decide(event))
        self._changed.set()

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Start(seat, life, rest_s):
                    self._tending[seat, life] = asyncio.create_task(self._tend(seat, life, rest_s))
                case Run(task, seat, life):
                    run = asyncio.create_task(self._run(task, seat, life, self._orders[task]))
                    self._running.add(run)
                    run.add_done_callback(self._running.discard)
                case Stop(task, seat, life):
                    self._actors[seat, life].cancel.options(concurrency_group=CONTROL).remote(task)
                case Lose(task, seat, reason):
                    self._fail(task, WorkerLost(f"worker {seat} died at work: {reason}", _AFTER_A_DEATH))
                case Refuse(task, reason):
                    self._fail(task, FleetUnavailable(reason, _AFTER_A_CRASH_LOOP))
                case Kill(seat, life):
                    self._kill(seat, life)

    def _fail(self, task: int, error: CodecfleetError) -> None:
        if task in self._orders:
            self._orders[task].settle(Outcome(error=error))

    def _kill(self, seat: int, life: int) -> None:
        tending = self._tending.pop((seat, life), None)
        if tending is not None and tending is not asyncio.current_task():
            tending.cancel()
        actor = self._actors.pop((seat, life), None)
        if actor is not None:
            ray.kill(actor)

    async def _tend(self, seat: int, life: int, rest_s: float) -> None:
        """Live one life of a seat: start its process, see it answer, and wait for its death."""
        if rest_s > 0:
            await self._sleep(rest_s)
        if not self._connection.is_alive():
            self._feed(Closed("Ray itself ended: one of its own processes died"))
            return
        try:
            actor = await self._start_process(seat, life)
            self._feed(Answered(seat, life))
            await _settled(actor.watch.options(concurrency_group=CONTROL).remote())
            reason = "it left on its own"
        except TimeoutError:
            reason = f"it did not answer within {START_S:.0f} s"
        except Exception as error:  # noqa: BLE001 - the edge: whatever Ray raises here means that the process is gone
            reason = first_line(error)
        self._feed(Died(seat, life, reason))

    async def _start_process(self, seat: int, life: int) -> Actor:
        cores = self._seats[seat].reserved_cores
        if cores > 0:
            with suppress(TimeoutError):
                return await self._create(seat, life, cores, RESERVED_START_S)
            ray.kill(self._actors.pop((seat, life)))
        return await self._create(seat, life, 0, START_S)

    async def _create(self, seat: int, life: int, cores: int, patience_s: float) -> Actor:
        options: dict[str, Any] = {
            "num_cpus": cores,
            "max_restarts": 0,
            "max_task_retries": 0,
            "concurrency_groups": {CONTROL: CONTROL_CALLS},
            "enable_task_events": False,
        }
        if not self._connection.is_private:
            # Soft: when the node is gone, a replacement comes up on another one.
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(self._seats[seat].node, soft=True)
        actor: Actor = ray.remote(**options)(RayWorker).remote(self._seats[seat].slots)
        self._actors[seat, life] = actor
        await asyncio.wait_for(_settled(actor.answer.options(concurrency_group=CONTROL).remote()), patience_s)
        return actor

    async def _run(self, task: int, seat: int, life: int, order: _Order) -> None:
        actor = self._actors.get((seat, life))
        if actor is None:  # killed before we came to run; the death was told
            return
        try:
            order.settle(await _settled(actor.run.remote(task, order.pickled)))
        except Exception as error:  # noqa: BLE001 - the edge: every exception of Ray's is told apart by classify
            failure = classify(error)
            if failure is Failure.PROCESS:
                self._feed(Died(seat, life, first_line(error)))
                return
            order.settle(Outcome(error=_failed(order.work, failure, first_line(error))))
        self._feed(Finished(task))

    async def _ask_progress(self, actor: Actor, job: str) -> Mapping[str, int]:
        try:
            ref = actor.progress.options(concurrency_group=CONTROL).remote(job)
            return cast("Mapping[str, int]", await asyncio.wait_for(_settled(ref), PROGRESS_S))
        except Exception:  # noqa: BLE001 - progress is never worth an error; a lost process is told elsewhere
            return {}

    async def _close(self) -> None:
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
        for task in list(self._orders):
            self._fail(task, Cancelled("the pool was closed"))
            self._feed(Withdrawn(task))
        if self._running:
            await asyncio.wait(self._running, timeout=FAREWELL_S)
        self._feed(Closed())
        rest = [*self._running, *self._tending.values()]
        for task_left in rest:
            task_left.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def _refuse_if_closed(self) -> None:
        if self._closing is not None:
            message = "the pool is closed"
            raise UsageError(message)


_AFTER_A_DEATH = "The pool starts another process; the same work may be submitted again."
_AFTER_A_CRASH_LOOP = "Look for what ends the processes (memory, a broken codec, a missing package), then try again."


async def _settled(ref: Awaitable[Any]) -> Any:  # noqa: ANN401 - whatever the actor's method returns
    """Await one of Ray's references as a coroutine, which ``wait_for`` and tasks ask for."""
    return await ref


def _pickle(work: Work[ResultT]) -> bytes:
    try:
        return pickle.dumps(work, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        message = f"{work.label} cannot be pickled: {type(error).__name__}: {error}"
        raise UsageError(message, "Work must be a value of importable classes.") from error


def _failed(work: Work[ResultT], failure: Failure, reason: str) -> WorkError:
    if failure is Failure.RESULT:
        return WorkerLost(f"the result of {work.label} was lost: {reason}", _AFTER_A_DEATH)
    return WorkError(f"{work.label} failed on its way: {reason}", "Its result must pickle.")
