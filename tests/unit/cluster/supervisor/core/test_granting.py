"""Grants of jobs to which nothing has happened are kept, and are those that would be found now."""

from copy import deepcopy
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from codecfleet.cluster.supervisor.core.granting import grants_for
from codecfleet.cluster.supervisor.state.events import Asked, Departed, Died, Order, Renewed
from codecfleet.cluster.supervisor.state.messages import JobReport, ReportedChanges

from ..core_worlds import World, node, nvenc, wants
from ..kept_worlds import COUNT, see, worker_at, world_of

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["segment", "segment", "death", "taken", "freed", "drain", "uncordon", "wait", "leaves", "gpu"]
        ),
        st.integers(0, COUNT - 1),
        st.sampled_from(["one", "two"]),
    ),
    max_size=16,
)
"""What happens, to which node or job, and of which client."""


def _are_as_found_now(world: World) -> None:
    """Compare what each client is granted with what it would be if nothing were kept."""
    for client in list(world.core.state.clients):
        forgetful = replace(world.core.state, clients=deepcopy(world.core.state.clients))
        for book in forgetful.clients:
            book.told.clear()
        now = grants_for(forgetful, client.client, world.now_s)
        assert grants_for(world.core.state, client.client, world.now_s) == now


def _end_segment(world: World, client: str, number: int) -> None:
    """Have a job of a client use one slot more or fewer of what it was granted, and say so of it alone."""
    job, world.sequence = f"j{number:02d}", world.sequence + 1
    book = world.core.state.clients.get(client)
    if book is None:
        said: JobReport = wants(job, 3)
        world.report(client, said)
        return
    known = book.jobs.get(job)
    offered = {} if known is None else known.promised
    held = {worker: max(1, slots - number % 2) for worker, slots in offered.items()} if number % 3 else {}
    jobs = (replace(wants(job, 1 + number), held=held),)
    acknowledged = book.sent_number if number % 4 else 0
    world.feed(
        Renewed(
            ReportedChanges(client, client, world.sequence, jobs, acknowledged=acknowledged, since=book.sequence),
        )
    )


def _happen(world: World, what: str, number: int, client: str) -> None:
    name = f"n{number:02d}"
    match what:
        case "segment":
            _end_segment(world, client, number)
        case "wait":
            world.wait(0.25 * (number % 10))
        case "leaves" if number % 7 == 0:
            world.feed(Departed(client))
        case "gpu":
            _end_segment_on_gpus(world, client)
        case "death" if worker := worker_at(world, name):
            world.feed(Died(worker, "it was killed"))
        case "taken" | "freed":
            see(world, node(name, free=0 if what == "taken" else 2))
        case "drain" | "uncordon":
            world.feed(Asked(Order(what), name))


def _end_segment_on_gpus(world: World, client: str) -> None:
    """Have a client ask for GPUs, of which there are none, so that its job is stranded."""
    book, world.sequence = world.core.state.clients.get(client), world.sequence + 1
    if book is not None:
        said = ReportedChanges(client, client, world.sequence, (nvenc("gpu", 3),), since=book.sequence)
        world.feed(Renewed(said))


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(1, 12))
def test_what_is_kept_is_what_would_be_found(steps: list[tuple[str, int, str]], pieces: int) -> None:
    """Whatever happens, of any client and node."""
    world = world_of(jobs=8, pieces=pieces)
    for what, number, client in steps:
        _happen(world, what, number, client)
        _are_as_found_now(world)


def test_one_job_s_report_leaves_the_others_grants() -> None:
    """What was found for them stays, and is not looked for again."""
    world = world_of(jobs=8, pieces=1)
    grants_for(world.core.state, "one", world.now_s)
    book = world.core.state.clients.get("one")
    assert book is not None
    before = dict(book.told)
    world.sequence += 1
    said = replace(wants("j03", 1), held=dict(book.jobs["j03"].promised))
    world.feed(Renewed(ReportedChanges("one", "one", world.sequence, (said,), since=book.sequence)))
    grants_for(world.core.state, "one", world.now_s)
    kept = {name for name, told in book.told.items() if told is before[name]}
    assert kept == before.keys() - {"j03"}
