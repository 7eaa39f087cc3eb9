"""The client's side of the lease protocol: reports the demands and work of jobs, and receives grants."""

import asyncio
import itertools
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from ....actors.task_owner import TaskOwner
from ....actors.worker.packed_work import BlobCache
from ....errors import CodecfleetError, FleetUnavailable, VersionRefused
from ...awake_clock import AwakeClock
from ...placement.model.demand import Demand
from ...placement.model.preview import PlacementPreview
from ...ray.keeper import keeper_name, tell_keeper
from ...ray.ray_environment import submission_id
from ...ray.ray_failures import LossScope, classify
from ...ray.ray_words import first_line
from ...supervisor.state.messages import ClientReport, Grants
from ..pool import ClientName
from .demands import Demands, with_pyav
from .ground import Ground
from .known_workers import KnownWorkers
from .leases import Leases

PROBE_QUESTIONS = 6
"""How many times a preview is requested while GPUs are probed; the supervisor keeps each call open for up to 10 s."""
DEPARTURE_S = 0.5
"""How long to wait for the supervisor to record that this client leaves."""
ANSWER_S = 15.0
"""How long an answer may take; a supervisor needs seconds to restart."""
RENEW_S = 1.0
"""How long the supervisor may wait before it answers a report while nothing changes."""
COALESCE_S = 0.005
"""How long changes are collected before a report; while a call is pending, this long for each reported job, because
long reports cost more to read.
"""
CALLS_AT_ONCE = 2
DEFECTS_MAX = 3
AGAIN_S = 0.2
GAP_MAX_S = ANSWER_S + RENEW_S
"""A longer gap between two answers or failures means that this process, not the supervisor, was suspended."""
LOST_PATIENCE_S = 60.0
"""How long a supervisor may be unreachable before jobs without slots fail."""
ENTER_PATIENCE_S = 120.0
"""How long a new connection tries to reach the supervisor.

Ray takes about 65 s to notice that a node is frozen; only then does it restart the supervisor elsewhere.
"""


class LeaseClient:
    """A pool's connection to a supervisor and its workers, with the newest ``grants``.

    ``on_grants`` is called after each change of the grants. If the supervisor stays out of reach,
    ``grants.unrecoverable`` and ``lost`` say why; a new connection may succeed. Reports describe ``demands`` and
    ``leases``.
    """

    def __init__(
        self, ground: Ground, name: ClientName, demands: Demands, leases: Leases, on_grants: Callable[[], None]
    ) -> None:
        self.ground = ground
        self.supervisor = ground.supervisor
        self.workers = KnownWorkers(ground.supervisor.handle, ground.killed_for_memory)
        self.blobs = BlobCache(ground.supervisor.send)
        self.files_address = ""  #: see ``PoolState``
        self.grants = Grants({})
        self.lost = ""
        self._name = name
        self._demands = demands
        self._leases = leases
        self._on_grants = on_grants
        self._sequence = itertools.count(1)
        self._changed = asyncio.Event()
        self._clock: Callable[[], float] = lambda: 0.0
        self._answered_s = 0.0
        self._defects = 0
        self._jobs = 0

    async def enter(self) -> None:
        """Connect to the supervisor, and end the fleet's earlier connections there.

        A supervisor that does not answer may be restarting on another node, so the attempt is repeated
        for ``ENTER_PATIENCE_S``. Raises FleetUnavailable.
        """
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + ENTER_PATIENCE_S
        while True:
            try:
                await self._open()
            except CodecfleetError:
                raise
            except Exception as error:  # Ray raises errors of many kinds
                if classify(error) is LossScope.CODE or loop.time() >= give_up_s:
                    message = f"the supervisor cannot be reached: {first_line(error)}"
                    raise FleetUnavailable(message, self.supervisor.what_next) from error
                await asyncio.sleep(AGAIN_S)
            else:
                return

    async def _open(self) -> None:
        await self.supervisor.open()
        for gone in self._name.earlier:
            await self.supervisor.depart(gone)
        self.files_address = self.supervisor.files_address(str(self._name))

    async def depart(self) -> None:
        """Tell the supervisor that this client leaves; otherwise it would wait for an overdue report."""
        with suppress(Exception):
            await asyncio.wait_for(self.supervisor.depart(str(self._name)), DEPARTURE_S)

    async def leave(self) -> None:
        """Disconnect, and release ``ground``."""
        try:
            await self.supervisor.close()
        finally:
            await self.ground.release()

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Return where a job would be placed; waits until the GPUs that the job may use have been probed."""
        late = self.ground.late
        demand = with_pyav(demand if late is None else late.previewed(demand))
        for _ in range(PROBE_QUESTIONS):
            try:
                preview = await asyncio.wait_for(self.supervisor.preview(demand), ANSWER_S)
            except Exception as error:  # noqa: BLE001 - any error of Ray leaves the preview unknown
                return PlacementPreview(unknown=f"the supervisor does not answer: {first_line(error)}")
            if not preview.is_probing:
                break
        return preview

    def report_soon(self) -> None:
        """Send a report soon, without waiting for the pending answer."""
        self._changed.set()

    async def run(self) -> None:
        """Send reports until cancelled; try again if the supervisor is out of reach. Raises unexpected errors."""
        self._clock = AwakeClock(GAP_MAX_S, asyncio.get_running_loop().time)
        self._answered_s = self._clock()
        calls: set[asyncio.Task[None]] = set()
        async with TaskOwner() as owner:
            while True:
                self._changed.clear()
                call = owner.start(self._renew(), "a report to the supervisor")
                calls.add(call)
                call.add_done_callback(calls.discard)
                changed = owner.start(self._changed.wait(), "a change")
                await asyncio.wait({call, changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                # The supervisor answers a pending call when a newer call arrives, so at most one call is pending for
                # long. Without a pending call, the supervisor could not send urgent news, so the next call then follows
                # soon.
                await asyncio.sleep(COALESCE_S * (max(1, self._jobs) if calls else 1))
                if len(calls) >= CALLS_AT_ONCE:
                    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)

    async def _renew(self) -> None:
        report = self._report()
        self._jobs = len(report.jobs)
        try:
            grants = await asyncio.wait_for(self.supervisor.renew(report, RENEW_S), ANSWER_S)
        except Exception as error:  # noqa: BLE001 - any error of Ray may be temporary
            await self._miss(error, self._clock() - self._answered_s)
            return
        self._answered_s, self._defects = self._clock(), 0
        if grants.word is not None:
            with suppress(OSError):  # the next grants repeat the order
                tell_keeper(grants.word, within_s=0)
        if grants.number > self.grants.number:
            self._accept(grants)

    async def _miss(self, error: Exception, silence_s: float) -> None:
        is_late = isinstance(error, TimeoutError)
        reason = f"no answer within {ANSWER_S:g} s" if is_late else first_line(error)
        # A supervisor that does not answer may be restarting, but one that answers with an error has a defect.
        self._defects = self._defects + 1 if not is_late and classify(error) is LossScope.CODE else 0
        if self._defects >= DEFECTS_MAX:
            self._accept(self._unrecoverable(f"the supervisor failed: {reason}"))
        elif silence_s > LOST_PATIENCE_S:
            self.lost = f"the supervisor has been out of reach: {reason}"
            self._accept(self._unrecoverable(self.lost))
        await asyncio.sleep(AGAIN_S)
        with suppress(Exception):  # if this fails, so does the next report
            try:
                await self.supervisor.open()
            except VersionRefused as refused:
                self._accept(replace(self._unrecoverable(refused.message), what_next=refused.next_step))

    def _accept(self, grants: Grants) -> None:
        self.grants = grants
        self._on_grants()

    def _unrecoverable(self, reason: str) -> Grants:
        return Grants({}, self.grants.number, unrecoverable=reason, what_next=self.supervisor.what_next)

    def _report(self) -> ClientReport:
        report = ClientReport(
            str(self._name),
            _where(),
            next(self._sequence),
            self._demands.reported(self._leases, self.ground.late),
            node=self.supervisor.node,
            keeper=keeper_name(),
            acknowledged=self.grants.number,
            later=self._demands.reported_later(),
        )
        return self.workers.added_to(report)


def _where() -> str:
    """Return where this client runs: in a Ray job, or in a process of a machine."""
    job, host = submission_id(os.environ), socket.gethostname()
    return f"Ray job {job} on {host}" if job else f"{host} process {os.getpid()}"
