"""Jobs with a segment larger than the memory of every machine."""

from dataclasses import replace

from codecfleet.cluster.placement.model.demand import Demand, plain_demand
from codecfleet.cluster.supervisor.state.messages import JobReport

from ..core_worlds import World, node, total

SMALL = replace(node("a", 8), memory_bytes=4 * 10**9)


def still(job: str) -> Demand:
    """Return a job of huge pictures."""
    film = plain_demand(job, 4)
    return replace(
        film, width=15000, height=15000, renditions=(replace(film.renditions[0], width=15000, height=15000),)
    )


def test_the_job_is_refused_at_once_and_others_run() -> None:
    """It gets no slots and a reason with both figures; a smaller job gets slots."""
    world = World(SMALL)
    grants = world.say("one", JobReport(still("still")), JobReport(plain_demand("film", 4)))
    assert set(grants.too_large) == {"still"}
    assert "GB of memory, and this machine has 4.0 GB for work" in grants.too_large["still"]
    assert total(grants, "still") == 0
    assert total(grants, "film") > 0


def test_a_large_machine_beside_a_small_one_takes_it() -> None:
    """The job is not refused while a node has the memory."""
    world = World(SMALL, replace(node("b", 8), memory_bytes=200 * 10**9))
    grants = world.say("one", JobReport(still("still")))
    assert not grants.too_large
    assert {worker.partition("/")[0] for worker in grants.slots["still"]} == {"b"}
