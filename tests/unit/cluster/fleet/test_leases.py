"""Which work runs on which leased worker."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from codecfleet.actors.device.work import UNCONSTRAINED, Constraints
from codecfleet.actors.worker.outcome import Outcome
from codecfleet.cluster.fleet.leases.leases import (
    LOST_KEPT,
    MARGIN_S,
    WAITS,
    WAITS_MAX,
    Effect,
    Leases,
    Lose,
    PendingWork,
    RunTask,
    StopTask,
    WorkTimes,
)
from codecfleet.cluster.fleet.run import WorkRun
from codecfleet.cluster.supervisor.state.messages import Grants
from codecfleet.cluster.worker_names import WorkerId
from codecfleet.errors import CodecfleetError, DeviceMemory, SessionLimit
from codecfleet.testing import works

WORKERS = tuple(map(WorkerId, ("a/cpu#0:1", "a/cpu#0:2", "b/cpu#0:3", "c/cpu#0:4")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding(works.Count):
    """Work that waits for an encoder session."""

    @property
    def may_wait(self) -> bool:
        return True


def work(job: str, label: str = "", *, apart_from: str = "", constraints: Constraints = UNCONSTRAINED) -> works.Count:
    """Return a piece of work of a job."""
    return works.Count(job=job, label=label, apart_from=apart_from, constraints=constraints)


def granted(**slots: dict[str, int]) -> Grants:
    """Return grants as a supervisor sends them: {job: {worker: slots}}."""
    return Grants({job: {WorkerId(name): count for name, count in each.items()} for job, each in slots.items()})


def test_work_waits_for_slots_and_goes_in_order() -> None:
    """Work starts once a slot is granted: the oldest work first, on the least loaded worker."""
    leases = Leases()
    for task in range(4):
        assert leases.submitted(task, work("j")) == []
    assert leases.granted(granted(j={"a": 1, "b": 2})) == [RunTask(0, "a"), RunTask(1, "b"), RunTask(2, "b")]
    assert leases.finished(0) == [RunTask(3, "a")]


def test_jobs_and_workers_that_are_gone_leave_nothing() -> None:
    """Late grants of an ended job are dropped by the next grants; dead workers are remembered only for a while."""
    leases = Leases()
    leases.submitted(0, work("j"))
    leases.granted(granted(j={"a:1": 1}))
    leases.finished(0)
    leases.forget("j")
    leases.granted(granted(j={"a:1": 1}))
    assert leases.slots_for("j") == 1
    leases.granted(granted())
    assert leases._jobs == {}
    for number in range(LOST_KEPT + 1):
        leases.died(f"a:{number}", "gone")
    assert len(leases._dead) == LOST_KEPT
    leases.granted(granted(j={f"a:{LOST_KEPT}": 1}))
    assert leases.slots_for("j") == 0


def test_what_broke_its_worker_is_tried_on_another_station() -> None:
    """If a process ends itself, all its work is lost, and then runs on another station if there is one."""
    leases = Leases()
    leases.granted(granted(j={"n/dla#0:1": 2, "n/dla#1:2": 1}))
    for task in range(3):
        leases.submitted(task, work("j"))
    assert leases.held("j") == {"n/dla#0:1": 2, "n/dla#1:2": 1}
    lost = leases.died("n/dla#0:1", "it hangs", broken=True)
    assert lost == [Lose(0, "n/dla#0:1", "it hangs", broken=True), Lose(2, "n/dla#0:1", "it hangs", broken=True)]
    leases.submitted(3, work("j", constraints=Constraints(avoid=frozenset({"n/dla#0"}))))
    leases.submitted(4, work("j"))
    slots = {"n/dla#0:3": 2, "n/dla#1:2": 1}
    assert leases.granted(granted(j=slots)) == [RunTask(4, "n/dla#0:3")], "one station is full, and the other avoided"
    assert leases.finished(1) == [RunTask(3, "n/dla#1:2")]
    everywhere = Constraints(avoid=frozenset({"n/dla#0", "n/dla#1"}))
    assert leases.submitted(5, work("j", constraints=everywhere)) == [RunTask(5, "n/dla#0:3")], (
        "there is no other station"
    )


def test_work_waits_for_the_kind_of_device_on_which_it_is_to_be_tried() -> None:
    """Work during which a GPU failed waits for another GPU, even beside idle processors, until none can come."""
    leases = Leases()
    leases.granted(granted(j={"n/cpu#0:1": 4}))
    on_a_gpu = Constraints(alone=True, same_kind_as="n/gpu#0:2", avoid=frozenset({"n/gpu#0"}))
    assert leases.submitted(0, work("j", constraints=on_a_gpu)) == []
    assert leases.submitted(1, work("j")) == [RunTask(1, "n/cpu#0:1")], "others pass it by"
    assert leases.granted(granted(j={"n/cpu#0:1": 4, "n/gpu#0:3": 1})) == [RunTask(0, "n/gpu#0:3")]
    leases.submitted(2, work("j", constraints=on_a_gpu))
    leases.granted(granted(j={"n/cpu#0:1": 4}))
    assert leases.relaxed(2) == [RunTask(2, "n/cpu#0:1")]
    leases.finished(2)
    assert leases.relaxed(2) == [], "it is over"


def times() -> WorkTimes:
    """Return times of a job whose first task took 20 s, and whose tasks 2 and 3 began at 0 and 15 s."""
    times = WorkTimes()
    times.began(1, "j", 0.0)
    times.ended(1, 20.0, well=True)
    times.began(2, "j", 0.0)
    times.began(3, "j", 15.0)
    return times


@pytest.mark.parametrize(("left_s", "doomed"), [(30.0, []), (10.0, [3]), (4.0 + MARGIN_S - 0.1, [2, 3])])
def test_what_cannot_finish_before_its_node_ends(left_s: float, doomed: list[int]) -> None:
    """After 16 s, task 2 needs 4 s more and task 3 needs 19 s."""
    assert times().doomed([2, 3], left_s, 16.0) == doomed


def test_of_an_unknown_job_nothing_is_too_long() -> None:
    """Until a task of a job has succeeded, it is unknown how long the others take."""
    new = WorkTimes()
    new.began(1, "new", 0.0)
    new.began(2, "new", 0.0)
    new.ended(1, 50.0, well=False)
    assert new.doomed([2], 1.0, 1.0) == []
    forgetful = times()
    forgetful.forget("j")
    assert forgetful.doomed([2, 3], 1.0, 16.0) == []


def waits_s(pending: PendingWork, error: CodecfleetError, times: int) -> list[float | None]:
    """Return how long work waits each time that it ends with this error."""
    outcome: Outcome[Any] = Outcome(error=error)
    return [pending.wait_s(outcome) for _ in range(times)]


async def test_refused_sessions_are_tried_again_for_a_minute() -> None:
    """Work waits longer each time; a limit that is never lifted is then reported as an error."""
    pending = PendingWork(Encoding(job="j", label="a"), b"", (), WorkRun(lambda _: None))
    waited_s = waits_s(pending, SessionLimit("full"), WAITS_MAX + 2)
    assert waited_s == [WAITS.wait_s(refusals) for refusals in range(1, WAITS_MAX + 1)] + [None, None]
    assert sum(each or 0 for each in waited_s) == pytest.approx(60, abs=2)


@pytest.mark.parametrize("why", ["memory", "cancelled", "it may not wait"])
async def test_other_ends_are_final_at_once(why: str) -> None:
    """Work does not wait after a cancellation or a lack of memory (waiting frees none), or if its kind never waits."""
    kind = works.Count if why == "it may not wait" else Encoding
    pending = PendingWork(kind(job="j", label="a"), b"", (), WorkRun(lambda _: None))
    if why == "cancelled":
        pending.run.cancel()
    assert waits_s(pending, DeviceMemory("full") if why == "memory" else SessionLimit("full"), 1) == [None]


class Anything(RuleBasedStateMachine):
    """Submissions, grants, ends and deaths in any order."""

    @initialize()
    def begin(self) -> None:
        self.leases, self.next = Leases(), 0
        self.running: dict[int, str] = {}
        self.jobs: dict[int, str] = {}
        self.ended: set[int] = set()
        self.slots: dict[str, dict[str, int]] = {}
        self.dead: set[str] = set()

    def take(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case RunTask(task, worker):
                    assert task not in self.running
                    assert task not in self.ended
                    assert worker not in self.dead
                    beside = sum(self.jobs[other] == self.jobs[task] for other in self.on(worker))
                    assert beside < self.slots[self.jobs[task]][worker]
                    self.running[task] = worker
                case Lose(task, worker, _):
                    assert self.running.pop(task) == worker
                    self.ended.add(task)
                case StopTask():
                    raise AssertionError("only withdrawn work is stopped")

    def on(self, worker: str) -> list[int]:
        return [task for task, where in self.running.items() if where == worker]

    @rule(job=st.sampled_from("jk"))
    def submit(self, job: str) -> None:
        self.next += 1
        self.jobs[self.next] = job
        wanted = (UNCONSTRAINED, Constraints(avoid=frozenset({"a/cpu#0"})), Constraints(same_kind_as="b/cpu#0:3"))
        self.take(
            self.leases.submitted(self.next, work(job, f"label {self.next % 3}", constraints=wanted[self.next % 3]))
        )

    @rule(slots=st.dictionaries(st.sampled_from("jk"), st.dictionaries(st.sampled_from(WORKERS), st.integers(0, 3))))
    def grant(self, slots: dict[str, dict[str, int]]) -> None:
        self.slots = slots
        self.take(self.leases.granted(granted(**slots)))

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        if self.running:
            task = data.draw(st.sampled_from(sorted(self.running)))
            del self.running[task]
            self.ended.add(task)
            self.take(self.leases.finished(task))

    @rule(worker=st.sampled_from(WORKERS), broken=st.booleans())
    def die(self, worker: str, *, broken: bool) -> None:
        """A worker dies, perhaps because its work damaged it."""
        self.dead.add(worker)
        self.take(self.leases.died(worker, "killed", broken=broken))

    @rule(data=st.data())
    def relax(self, data: st.DataObject) -> None:
        """No device of the requested kind appears for some work."""
        if self.jobs:
            self.take(self.leases.relaxed(data.draw(st.sampled_from(sorted(self.jobs)))))

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        open_tasks = sorted(self.jobs.keys() - self.ended)
        if open_tasks:
            task = data.draw(st.sampled_from(open_tasks))
            worker = self.running.get(task)
            assert self.leases.withdrawn(task) == ([] if worker is None else [StopTask(task, worker)])
            if worker is None:
                self.ended.add(task)

    @invariant()
    def knows_what_runs(self) -> None:
        """The client reports exactly the running work as held, and forgets none."""
        held = Counter(self.leases.held("j")) + Counter(self.leases.held("k"))
        assert held == Counter(self.running.values())
        assert sum(self.leases.outstanding().values()) == len(self.jobs.keys() - self.ended)


test_in_any_order = Anything.TestCase
