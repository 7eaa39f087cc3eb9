"""What a client remembers of workers stays small, however long it lives."""

import itertools

from codecfleet.cluster.fleet.leases.known_workers import LOST_KEPT, KnownWorkers
from codecfleet.errors import WorkerLost, WorkerOutOfMemory


def workers(*, killed_for_memory: bool = False) -> KnownWorkers:
    """Return workers whose handles count how often they were asked for."""
    asked = itertools.count()

    async def handle(worker: str) -> str:
        return f"{worker} {next(asked)}"

    return KnownWorkers(handle, lambda: killed_for_memory)


async def test_a_worker_is_asked_for_once_and_proven_while_it_is_called() -> None:
    """A worker that is gone is neither called nor reported as proven."""
    known = workers()
    assert [await known.reach("a#0:1"), await known.reach("a#0:1")] == ["a#0:1 0"] * 2
    known.prove("a#0:1")
    known.prove("b#0:2")
    assert (known.proven, known.reached("b#0:2")) == (("a#0:1",), None)
    known.forget("a#0:1")
    assert (known.proven, known.reached("a#0:1")) == ((), None)


def test_the_newest_lost_workers_are_remembered() -> None:
    """Reports to the supervisor do not grow with each worker that ever hung."""
    known = workers()
    for number in range(LOST_KEPT + 2):
        known.give_up(f"a#0:{number}", "it hung")
    assert next(iter(known.hung)) == "a#0:2"
    assert len(known.hung) == LOST_KEPT


def test_one_kill_explains_all_that_a_worker_ran() -> None:
    """The first lost work finds the cause, and the rest has the same; Ray's own word counts as well."""
    answers = iter([True, False])
    known = KnownWorkers(None, lambda: next(answers))  # type: ignore[arg-type] # none is called
    known.ran_out_of_memory("c#0:3")
    found = [type(known.loss(worker, "gone")) for worker in ("a#0:1", "a#0:1", "b#0:2", "c#0:3")]
    assert found == [WorkerOutOfMemory, WorkerOutOfMemory, WorkerLost, WorkerOutOfMemory]
