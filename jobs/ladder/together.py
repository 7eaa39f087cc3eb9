"""Decodes each stretch of a source once for all renditions of a ladder."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar, cast

from ...actors.device.work import Work
from ...actors.segment.encoding import EncodedSegment, EncodeSegment
from ...actors.segment.together import EncodeTogether, decodes_alike
from ...actors.task_owner import TaskOwner
from ...cluster.fleet.pool import Asked, Pool, PoolState
from ...cluster.fleet.run import LookedRun, ResultOrigin, RunProgress, WorkRun
from ...cluster.placement.model import Demand, EncoderChoice, PlacementPreview
from ...cluster.worker_names import NO_WORKER
from ...errors import CodecfleetError

ResultT = TypeVar("ResultT")
_NOWHERE: Final = ResultOrigin(NO_WORKER, "")
PATIENCE_S: Final = 0.5
"""How long the work of one rendition waits for the same stretch of the others, which come at almost the same time."""


@dataclass(frozen=True, slots=True)
class _Member:
    """The work of one rendition, and the run that its job awaits."""

    work: EncodeSegment
    run: WorkRun[EncodedSegment]


@dataclass(slots=True, eq=False)
class _Group:
    """The works of several renditions that decode the same stretch; they run as one once ``run`` is set."""

    members: list[_Member] = field(default_factory=list)
    run: WorkRun[Any] | None = None

    def takes(self, work: EncodeSegment) -> bool:
        """Return whether ``work`` can join: it decodes alike, and is of another rendition."""
        return all(
            each.work.job != work.job and decodes_alike(_anywhere(each.work), _anywhere(work)) for each in self.members
        )

    @property
    def progress(self) -> RunProgress:
        """The progress of every member."""
        return RunProgress() if self.run is None else self.run.progress

    def give_up(self, why: str) -> None:
        """Replace the worker of all members."""
        if self.run is not None:
            self.run.give_up(why)


class DecodeOnce(Pool):
    """A pool for the renditions of one ladder, on another pool: it runs works that decode the same stretch as one.

    Work that no other rendition wants within ``PATIENCE_S`` runs by itself, and so does work whose group failed. That
    costs a second decoding and changes no byte. For ``pool`` the whole ladder is one job.

    Args:
        pool: where the work runs; it is started and closed by its owner.
        ladder: the job's id for ``pool``.
        jobs: the ids of the renditions' jobs.
        owner: owns the tasks that wait for other renditions.
        sleep: waits for seconds.
    """

    def __init__(
        self,
        pool: Pool,
        ladder: str,
        jobs: Sequence[str],
        owner: TaskOwner,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._pool = pool
        self._ladder = ladder
        self._jobs = frozenset(jobs)
        self._at_work = set(jobs)
        self._owner = owner
        self._sleep = sleep
        self._open: list[_Group] = []
        self._demands: dict[str, Demand] = {}
        self._asked: Demand | None = None
        self._alone: set[tuple[str, int]] = set()
        self._labels: dict[tuple[str, str], str] = {}
        self.decoded = 0  #: How many stretches were decoded

    @property
    def state(self) -> PoolState:
        """The pool's state, in which each rendition has the slots of the ladder."""
        state = self._pool.state
        return replace(state, jobs={**state.jobs, **dict.fromkeys(self._jobs, state.of(self._ladder))})

    async def start(self) -> None:
        """Start the pool."""
        await self._pool.start()

    def submit(self, work: Work[ResultT]) -> WorkRun[ResultT]:
        """Run ``work``, if possible with the same stretch of other renditions; see ``Pool.submit``."""
        if not isinstance(work, EncodeSegment) or work.job not in self._jobs:
            return self._pool.submit(work)
        return cast("WorkRun[ResultT]", self._submit(work))

    def set_demand(self, job: str, demand: Asked | None) -> None:
        """Set a rendition's demand; the ladder demands for all. Without a demand, a rendition has no more segments."""
        if isinstance(demand, Demand):
            self._demands[job] = demand
            self._at_work.add(job)
        elif self._demands.pop(job, None) is not None:
            self.leave(job)
        asked = demand_of_all(self._ladder, tuple(self._demands.values()))
        if asked != self._asked:
            self._asked = asked
            self._pool.set_demand(self._ladder, asked)

    def leave(self, job: str) -> None:
        """Wait no longer for a rendition, which has no more segments."""
        self._at_work.discard(job)
        for group in [each for each in self._open if self._is_complete(each)]:
            self._begin(group)

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Return where the pool would place a demand."""
        return await self._pool.preview(demand)

    async def aclose(self) -> None:
        """Do nothing: the pool's owner closes it."""

    def _submit(self, work: EncodeSegment) -> WorkRun[EncodedSegment]:
        is_alone = (work.job, work.segment) in self._alone
        group = None if is_alone else next((each for each in self._open if each.takes(work)), None)
        is_new = group is None
        group = group or _Group()
        run = LookedRun[EncodedSegment](group.give_up, lambda: group.progress)
        group.members.append(_Member(work, run))
        run.result.add_done_callback(partial(self._withdrawn, group))
        if is_alone:
            self._begin(group)
            return run
        if is_new:
            self._open.append(group)
            self._owner.start(self._begin_later(group), f"wait for other renditions of {work.label}")
        if self._is_complete(group):
            self._begin(group)
        return run

    def _is_complete(self, group: _Group) -> bool:
        return {each.work.job for each in group.members} >= self._at_work

    async def _begin_later(self, group: _Group) -> None:
        await self._sleep(PATIENCE_S)
        if group in self._open:
            self._begin(group)

    def _begin(self, group: _Group) -> None:
        if group in self._open:
            self._open.remove(group)
        members = [each for each in group.members if not each.run.result.done()]
        if not members:
            return
        works = [each.work for each in members]
        label = " and ".join(f"{work.label} of {work.job}" for work in works)
        self._labels |= {(work.job, work.label): label for work in works}
        self.decoded += 1
        try:
            group.run = self._pool.submit(self._as_one(works, label))
        except CodecfleetError as error:
            for each in members:
                each.run.fail(error)
            return
        group.run.result.add_done_callback(lambda _: self._end(group, members))

    def _as_one(self, works: Sequence[EncodeSegment], label: str) -> Work[Any]:
        """Return the works as one work of the ladder's job, in which they share their cores."""
        first = works[0]
        apart_from = self._labels.get((first.job, first.apart_from), "")
        if len(works) == 1:
            return replace(first, job=self._ladder, label=label, apart_from=apart_from)
        avoid = frozenset(chain.from_iterable(work.constraints.avoid for work in works))
        constraints = replace(first.constraints, avoid=avoid)
        shares = (
            replace(work, constraints=constraints, cores=max(1, work.cores // len(works)))
            for work in map(_anywhere, works)
        )
        return EncodeTogether(
            job=self._ladder,
            label=label,
            apart_from=apart_from,
            constraints=constraints,
            ships=first.ships,
            segments=tuple(shares),
        )

    def _end(self, group: _Group, members: Sequence[_Member]) -> None:
        run = group.run
        if run is None or run.result.cancelled():
            return  # every member was withdrawn
        if (error := run.result.exception()) is not None:
            self._alone |= {(each.work.job, each.work.segment) for each in members}
            for each in members:
                each.run.fail(cast("CodecfleetError", error), run.origin)
            return
        result = run.result.result()
        results = result if len(members) > 1 else (result,)
        for each, encoded in zip(members, results, strict=True):
            each.run.end(encoded, run.origin or _NOWHERE)

    def _withdrawn(self, group: _Group, result: "asyncio.Future[EncodedSegment]") -> None:
        """Cancel a group's work if none of its members is wanted any more."""
        if result.cancelled() and group.run is not None and all(each.run.result.done() for each in group.members):
            group.run.cancel()


def _anywhere(work: EncodeSegment) -> EncodeSegment:
    """Return the work without what only its own job knows: stations to avoid, and its first run."""
    return replace(work, constraints=replace(work.constraints, avoid=frozenset()), apart_from="")


def demand_of_all(ladder: str, demands: Sequence[Demand]) -> Demand | None:
    """Return the demand of a whole ladder; None if no rendition has a demand.

    Its segments are those of the rendition with the most work left, and each is encoded for every rendition.
    """
    if not demands:
        return None
    most = max(demands, key=lambda each: sum(each.segments))
    kinds = {each.encoder for each in demands}
    return replace(
        most,
        job=ladder,
        renditions=tuple(chain.from_iterable(each.renditions for each in demands)),
        encoder=kinds.pop() if len(kinds) == 1 else EncoderChoice.AUTO,
        software_decode=next((each.software_decode for each in demands if each.software_decode), ""),
        has_filters=any(each.has_filters for each in demands),
        filter_bytes=sum(each.filter_bytes for each in demands),
    )
