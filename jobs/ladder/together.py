"""Decodes each segment of a source once for all renditions of a ladder."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ...actors.device.work import Work
from ...actors.segment.encoding import EncodedSegment, EncodeSegment
from ...actors.task_owner import TaskOwner
from ...cluster.fleet.pool import Asked, Pool, PoolState
from ...cluster.fleet.run import LookedRun, ResultOrigin, RunProgress, WorkRun
from ...cluster.placement.model import Demand, EncoderChoice, EncoderKind, PlacementPreview
from ...cluster.worker_names import NO_WORKER
from ...errors import CodecfleetError, Retry, WorkerOutOfMemory
from ..board.retries import FaultKind, fault_of
from .demands import demand_of_all
from .group import DecodeGroup, GroupMember, label_of
from .sharing import LadderRoom, OpenGroup, RenditionState, beginning

if TYPE_CHECKING:
    import asyncio

ResultT = TypeVar("ResultT")
_NOWHERE: Final = ResultOrigin(NO_WORKER, "")
_OF_THE_WORK: Final = frozenset({FaultKind.FAILED, FaultKind.FULL, FaultKind.UNFIT, FaultKind.GUILTY, FaultKind.KILLED})
"""Faults that one rendition may have caused: the renditions of such a group are retried one by one."""


class DecodeOnce(Pool):
    """A pool for the renditions of one ladder. It submits works that decode the same segment to ``pool`` as one work.

    ``sharing`` decides when works begin. If one rendition may have made a group fail, the group's works are retried one
    by one, which costs further decodes and changes no byte. For ``pool`` the whole ladder is one job.

    Args:
        pool: where the work runs; it is started and closed by its owner.
        ladder: the job's id for ``pool``.
        jobs: the ids of the renditions' jobs.
        owner: owns the task that follows the pool's state.
        kind: the NVENC of the renditions that may choose their encoder; None for software.
    """

    def __init__(
        self, pool: Pool, ladder: str, jobs: Sequence[str], owner: TaskOwner, *, kind: EncoderKind | None = None
    ) -> None:
        self._pool = pool
        self._ladder = ladder
        self._jobs = frozenset(jobs)
        self._kind = kind
        self._at_work = set(jobs)  # the renditions that have segments left
        self._settling: set[str] = set()  # the renditions that are choosing their encoder
        self._demands: dict[str, Demand] = {}
        self._asked: Demand | None = None
        self._asks: Counter[tuple[str, int]] = Counter()
        self._groups: dict[int, DecodeGroup] = {}
        self._numbers = itertools.count()
        self._alone: set[tuple[str, int]] = set()
        self._common: list[CodecfleetError] = []
        self.decoded = 0  #: How many times a segment was decoded
        self.encoded = 0  #: How many segments were encoded, counted for each rendition
        owner.start(self._follow(), "the slots of a ladder")

    @property
    def state(self) -> PoolState:
        """The pool's state, in which each rendition has all slots of the ladder."""
        state = self._pool.state
        return replace(state, jobs={**state.jobs, **dict.fromkeys(self._jobs, state.of(self._ladder))})

    async def start(self) -> None:
        """Start the pool."""
        await self._pool.start()

    def submit(self, work: Work[ResultT]) -> WorkRun[ResultT]:
        """Run ``work`` as the ladder's, if possible together with other renditions' work; see ``Pool.submit``."""
        if work.job not in self._jobs:
            return self._pool.submit(work)
        if not isinstance(work, EncodeSegment):
            return self._pool.submit(replace(work, job=self._ladder, label=label_of(work)))
        return cast("WorkRun[ResultT]", self._submit(work))

    def set_demand(self, job: str, demand: Asked | None) -> None:
        """Set a rendition's demand, and that of the ladder. Without a ``Demand``, a rendition has no segments left."""
        if isinstance(demand, Demand):
            self._demands[job] = demand
            self._at_work.add(job)
        else:
            self._demands.pop(job, None)
            if job not in self._settling:
                self._at_work.discard(job)
            self._settling.discard(job)
        asked = demand_of_all(self._ladder, tuple(self._demands.values()))
        if asked != self._asked:
            self._asked = asked
            self._pool.set_demand(self._ladder, asked)
        self._begin_next()

    def leave(self, job: str) -> None:
        """Wait no longer for a rendition, which has ended."""
        self._settling.discard(job)
        self._at_work.discard(job)
        self._begin_next()

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Return where the pool would place a demand, with the ladder's encoder if the demand leaves the choice."""
        if demand.job in self._jobs and demand.chooses_encoder:
            self._settling.add(demand.job)  # it withdraws this demand once it has chosen, and still has segments left
        found = await self._pool.preview(demand)
        is_open = demand.job in self._jobs and demand.encoder is EncoderChoice.AUTO and demand.chooses_encoder
        return replace(found, encoder_kind=self._kind) if is_open else found

    async def aclose(self) -> None:
        """Do nothing: the pool's owner closes it."""

    def is_common(self, error: CodecfleetError) -> bool:
        """Return whether ``error`` ended works of several renditions, or would end the work of any rendition."""
        return error is self._pool.state.of(self._ladder).never or any(error is each for each in self._common)

    def _submit(self, work: EncodeSegment) -> WorkRun[EncodedSegment]:
        apart_from = self._running_label(work.job, work.apart_from)
        is_alone = (work.job, work.segment) in self._alone
        fitting = (each for each in self._groups.values() if not is_alone and each.takes(work, apart_from))
        group = next(fitting, None) or DecodeGroup(next(self._numbers), is_alone, apart_from)
        self._groups[group.number] = group
        # The run does not refer to the group, so that results are freed without a garbage collection.
        number = group.number
        run = LookedRun[EncodedSegment](partial(self._give_up, number, work.job), partial(self._progress, number))
        self._asks[work.job, work.segment] += 1
        group.members.append(GroupMember(work, run, self._asks[work.job, work.segment]))
        run.result.add_done_callback(partial(self._withdrawn, number))
        self._begin_next()
        return run

    async def _follow(self) -> None:
        """Begin work when the ladder gets more slots."""
        while True:
            state = self._pool.state
            self._begin_next()
            await state.changed.wait()

    def _begin_next(self) -> None:
        """Begin what may begin now; called after each change."""
        waiting = [each for each in self._groups.values() if each.run is None and each.live]
        if not waiting:
            return
        room = LadderRoom(
            slots=self._pool.state.of(self._ladder).slots,
            running=sum(each.run is not None for each in self._groups.values()),
            runs_max=None if self._asked is None else self._asked.workers_max,
        )
        for number in beginning([self._open(each) for each in waiting], self._renditions(), room):
            self._begin(self._groups[number])

    def _open(self, group: DecodeGroup) -> OpenGroup:
        live = group.live
        segment, ask = live[0].work.segment, max(each.ask for each in live)
        lacks = frozenset(job for job in self._at_work if self._asks[job, segment] < ask)
        return OpenGroup(
            number=group.number,
            segment=segment,
            lacks=frozenset() if group.is_alone else lacks,
            is_second=any(each.work.apart_from for each in live),
        )

    def _renditions(self) -> dict[str, RenditionState]:
        works = [each.work for group in self._groups.values() for each in group.live]
        runs = Counter(work.job for work in works)
        segments = Counter(job for job, _ in {(work.job, work.segment) for work in works})
        demands = self._demands
        return {
            job: RenditionState(
                runs=runs[job],
                segments=segments[job],
                left=len(demands[job].segments) if job in demands else None,
                runs_max=demands[job].workers_max if job in demands else None,
            )
            for job in self._at_work
        }

    def _begin(self, group: DecodeGroup) -> None:
        group.members = group.live
        try:
            group.run = self._pool.submit(group.as_one(self._ladder))
        except CodecfleetError as error:
            del self._groups[group.number]
            self._fail(group, error, None)
            return
        self.decoded += 1
        self.encoded += len(group.members)
        group.run.result.add_done_callback(partial(self._end, group.number))

    def _end(self, number: int, _: "asyncio.Future[Any]") -> None:
        group = self._groups.pop(number)
        if (run := group.run) is not None and not run.result.cancelled():
            if (error := run.result.exception()) is not None:
                self._fail(group, cast("CodecfleetError", error), run.origin)
            else:
                results = run.result.result() if len(group.members) > 1 else (run.result.result(),)
                for each, encoded in zip(group.members, results, strict=True):
                    each.run.end(encoded, run.origin or _NOWHERE)
        self._begin_next()

    def _fail(self, group: DecodeGroup, error: CodecfleetError, origin: ResultOrigin | None) -> None:
        """Give all members the error. If one of them may have caused it, their next tries run alone."""
        if len(group.members) > 1:
            self._common += [error] if error.retry is Retry.NEVER else []
            fault = fault_of(error, group.members[0].work.constraints)
            # One rendition needs less memory than all of them.
            if fault in _OF_THE_WORK or isinstance(error, WorkerOutOfMemory):
                self._alone |= {(each.work.job, each.work.segment) for each in group.members}
        for each in group.members:
            each.run.fail(error, origin)

    def _withdrawn(self, number: int, result: "asyncio.Future[EncodedSegment]") -> None:
        """Cancel a group's work, or forget the group, if none of its members is wanted any more."""
        group = self._groups.get(number)
        if not result.cancelled() or group is None or group.live:
            return
        if group.run is not None:
            group.run.cancel()
        else:
            del self._groups[number]

    def _give_up(self, number: int, job: str, why: str) -> None:
        """Replace the worker of a group once every member wants that: the slowest decides how long work may take."""
        group = self._groups.get(number)
        if group is None or group.run is None:
            return
        group.given_up.add(job)
        if group.given_up >= {each.work.job for each in group.live}:
            group.run.give_up(why)

    def _progress(self, number: int) -> RunProgress:
        group = self._groups.get(number)
        return RunProgress() if group is None or group.run is None else group.run.progress

    def _running_label(self, job: str, label: str) -> str:
        """Return the label in the pool of a rendition's running work; "" if it does not run."""
        running = (each for each in self._groups.values() if each.run is not None)
        named = (each for each in running for it in each.members if (it.work.job, it.work.label) == (job, label))
        return next((each.label for each in named), "")
