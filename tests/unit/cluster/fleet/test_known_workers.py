"""A client's findings about workers, which stay small however long the client lives."""

import itertools
from dataclasses import replace

from codecfleet.actors.device.work import Constraints
from codecfleet.actors.worker.outcome import failed
from codecfleet.cluster.device_fault import DeviceFault, FaultVerdict
from codecfleet.cluster.fleet.leases.known_workers import KnownWorkers
from codecfleet.cluster.fleet.leases.leases import LOST_KEPT, Lose
from codecfleet.cluster.supervisor.state.messages import ClientReport
from codecfleet.errors import (
    DeviceLost,
    DeviceMemory,
    NodeEnded,
    SessionLimit,
    WorkerBroken,
    WorkerLost,
    WorkerOutOfMemory,
)
from codecfleet.testing import works

GPU = "n/gpu#0:1"


def workers() -> KnownWorkers:
    """Return workers whose handles count how many times they were fetched."""
    asked = itertools.count()

    async def handle(worker: str) -> str:
        return f"{worker} {next(asked)}"

    return KnownWorkers(handle, bool)  # type: ignore[arg-type] # no handle is called


def reported(known: KnownWorkers) -> ClientReport:
    """Return the report of the client."""
    return known.added_to(ClientReport("c", "here", 1, ()))


async def test_a_worker_is_asked_for_once_and_proven_while_it_is_called() -> None:
    """A worker that is gone is neither called nor reported as proven."""
    known = workers()
    assert [await known.reach("a#0:1"), await known.reach("a#0:1")] == ["a#0:1 0"] * 2
    known.prove("a#0:1")
    known.prove("b#0:2")
    assert (reported(known).proven, known.reached("b#0:2")) == (("a#0:1",), None)
    known.forget("a#0:1")
    assert (reported(known).proven, known.reached("a#0:1")) == ((), None)


def test_the_newest_lost_workers_are_remembered() -> None:
    """Reports to the supervisor do not grow with the number of workers that have hung."""
    known = workers()
    for number in range(LOST_KEPT + 2):
        known.write_off(f"a#0:{number}", "it hung")
    hung = reported(known).written_off
    assert (next(iter(hung)), len(hung)) == ("a#0:2", LOST_KEPT)


def test_one_kill_explains_all_that_a_worker_ran() -> None:
    """The cause found for the first lost work counts for all work of the worker; a report from Ray counts too."""
    answers = iter([True, False])
    known = KnownWorkers(None, lambda: next(answers))  # type: ignore[arg-type] # no handle is called
    known.ran_out_of_memory("c#0:3")
    found = [type(known.loss(Lose(0, worker, "gone"))) for worker in ("a#0:1", "a#0:1", "b#0:2", "c#0:3")]
    assert found == [WorkerOutOfMemory, WorkerOutOfMemory, WorkerLost, WorkerOutOfMemory]
    assert type(known.loss(Lose(0, "d#0:4", "its device failed", broken=True))) is WorkerBroken


def test_only_faults_of_a_device_are_reported() -> None:
    """A lost device is reported if work had it alone; refused sessions and shared devices are not reported."""
    known, beside = workers(), works.Count(job="j", label="a")
    known.ended(beside, GPU, failed(DeviceLost("999")))
    work = replace(beside, constraints=Constraints(alone=True))
    for error in (SessionLimit("full"), DeviceMemory("full")):
        known.ended(work, GPU, failed(error))
    assert reported(known).faults == ()
    known.ended(work, GPU, failed(DeviceLost("999")))
    known.faulted(DeviceFault(GPU, "j", "a frame too few", FaultVerdict.WRONG))
    known.faulted(DeviceFault(GPU, "j", "software did it", FaultVerdict.DOUBTFUL))
    faults = reported(known).faults
    assert [(each.number, each.worker, each.file, each.verdict) for each in faults] == [
        (1, GPU, "j", FaultVerdict.FAILED),
        (2, GPU, "j", FaultVerdict.WRONG),
        (3, GPU, "j", FaultVerdict.DOUBTFUL),
    ]


def test_an_announced_end_of_a_node_explains_the_loss_of_its_workers() -> None:
    """Work that was lost with its node is not charged, unless its device failed."""
    known = KnownWorkers(None, lambda: True)  # type: ignore[arg-type] # no handle is called
    known.leaves("a#0:1")
    lost = [Lose(0, "a#0:1", "gone"), Lose(0, "a#0:1", "its device failed", broken=True), Lose(0, "b#0:2", "gone")]
    assert [type(known.loss(each)) for each in lost] == [NodeEnded, WorkerBroken, WorkerOutOfMemory]
