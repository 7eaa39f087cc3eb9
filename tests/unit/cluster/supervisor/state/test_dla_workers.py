"""Workers of DLAs: one process each, adopted after a restart, quarantined when sick; and jobs without a DLA."""

from dataclasses import replace

from codecfleet.actors.worker.heartbeat import WorkerFacts
from codecfleet.cluster.placement.model.demand import Demand, plain_demand
from codecfleet.cluster.placement.model.inventory import Node, dlas_of
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.core.granting import grants_for
from codecfleet.cluster.supervisor.state.events import Died, Found, NodesSeen, Probed, ProbeFailed, Start
from codecfleet.cluster.supervisor.state.messages import FoundWorker, JobReport, RayNode
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.cluster.supervisor.state.stations import DEATHS_IN_A_ROW_MAX, StationState
from codecfleet.cluster.supervisor.status.lines import status_lines
from codecfleet.cluster.supervisor.status.status import status_of
from codecfleet.cluster.worker_names import WorkerId

from ..core_worlds import World, node, total, wants


def wanted(job: str = "j", pieces: int = 10, dlas: tuple[int, ...] = ()) -> Demand:
    """Return the demand of an inference job."""
    return replace(plain_demand(job, pieces), renditions=(), dlas=dlas)


def infers(job: str = "j", pieces: int = 10, dlas: tuple[int, ...] = ()) -> JobReport:
    """Return a client's report of an inference job."""
    return JobReport(wanted(job, pieces, dlas))


def probed(ray: RayNode, dlas: int) -> Probed:
    """Return a probe's report of a node with this many DLAs."""
    plain: Node = ray.unprobed()
    return Probed(replace(plain, dlas=dlas_of(ray.node, dlas)))


def orin(cores: int = 8, free: int | None = None) -> World:
    """Return a world with one machine that has two DLAs."""
    ray = node("o", cores, free)
    world = World(ray)
    world.feed(probed(ray, 2))
    return world


def test_each_dla_has_its_own_process() -> None:
    """A DLA's process has two slots, cores for decoding and no GPU, and learns which DLA it serves."""
    world = orin()
    grants = world.say("one", infers())
    assert {worker.rpartition(":")[0]: slots for worker, slots in grants.slots["j"].items()} == {
        "o/dla#0": 2,
        "o/dla#1": 2,
    }
    assert [(start.station.dla, start.slots, start.station.kind.takes_gpu) for start in world.started] == [
        (0, 2, False),
        (1, 2, False),
    ]
    assert {world.core.state.stations[f"o/dla#{n}"].reserved_cores for n in (0, 1)} == {2}


def test_a_dla_does_not_wait_for_cores() -> None:
    """If all cores are taken, a DLA's process shares them, because decoding for a network takes little."""
    world = orin(free=0)
    assert total(world.say("one", infers()), "j") == 4
    assert world.core.state.stations["o/dla#0"].reserved_cores == 0
    assert not world.core.state.stations["o/dla#0"].outgoing


def test_transcodes_and_networks_use_separate_stations() -> None:
    """A transcode gets only processors even if there are DLAs, and a network gets only DLAs."""
    world = orin(4)
    media, network = world.say("one", wants("t", 50)), world.say("two", infers())
    assert {worker.rpartition("#")[0] for worker in media.slots["t"]} == {"o/cpu"}
    assert {worker.rpartition("#")[0] for worker in network.slots["j"]} == {"o/dla"}
    assert total(media, "t") == 4


def test_a_waiting_transcode_does_not_use_a_dla() -> None:
    """While a CPU station rests after deaths, its work goes nowhere else."""
    world = orin(4)
    world.say("one", wants("t", 50))
    for _ in range(2):
        world.feed(Died(world.core.state.stations["o/cpu#0"].worker, "killed"))
        world.say("one", wants("t", 50))
    assert world.core.state.stations["o/cpu#0"].state is StationState.RESTING
    assert world.say("one", wants("t", 50)).slots["t"] == {}
    assert world.core.state.plans.targets == {}


def test_dla_workers_do_not_count_for_transcodes() -> None:
    """If others have all cores, a transcode still gets one worker that shares them, despite work on DLAs."""
    world = orin(4, free=0)
    world.say("one", infers())
    assert total(world.say("two", wants("t", 5)), "t") > 0


def test_a_dla_whose_processes_keep_dying_is_quarantined() -> None:
    """A DLA is quarantined by its number; the other DLA continues, and a probe ends the quarantine."""
    world = orin()
    world.say("one", infers())
    for _ in range(DEATHS_IN_A_ROW_MAX):
        book = world.core.state.stations["o/dla#1"]
        world.feed(Died(book.worker, "it hangs"))
        world.wait(1)
        world.say("one", infers())
    assert world.core.state.stations["o/dla#1"].state is StationState.QUARANTINED
    grants = world.say("one", infers())
    assert {worker.rpartition(":")[0] for worker in grants.slots["j"]} == {"o/dla#0"}
    only = world.say("one", infers(dlas=(1,)))
    assert "DLA 1 is quarantined" in only.waiting["j"]
    assert only.refused == {}


def test_a_worker_is_adopted_before_its_node_is_probed() -> None:
    """A restarted supervisor adopts a worker on a DLA that it does not know yet."""
    core = Core(SupervisorSettings(), Policy(), 1, 0.0)
    core.decide(NodesSeen((node("o"),)), 0.0)
    found = FoundWorker(WorkerId("o/dla#1:7"), WorkerFacts(11, 2, cores=2))
    foreign = FoundWorker(WorkerId("gone/dla#0:3"), WorkerFacts(12, 2))
    effects = core.decide(Found((found, foreign)), 0.0)
    assert core.state.is_live(found.worker)
    assert [effect for effect in effects if isinstance(effect, Start)] == []
    assert not core.state.is_live(foreign.worker)
    assert core.state.stations["o/dla#1"].station.dla == 1


def test_a_job_learns_that_there_is_no_dla_once_every_node_was_probed() -> None:
    """While a node is unprobed, it may have a DLA, so jobs that need one are not refused; transcodes continue."""
    one, other = node("a"), node("b")
    world = World(one, other)
    world.feed(probed(one, 0))
    assert world.say("one", infers()).refused == {}
    world.feed(ProbeFailed("b", "it does not answer"))
    grants = world.say("one", infers(), wants("t", 5))
    assert grants.refused == {"j": "no machine has a DLA"}
    world.feed(probed(other, 1))
    assert world.say("one", infers()).refused == {}
    assert world.say("one", infers(dlas=(1,))).refused == {"j": "no machine has DLA 1: DLAs are counted from 0"}
    assert grants_for(world.core.state, "unknown", world.now_s).refused == {}


def test_the_status_shows_dlas() -> None:
    """The status shows which machine has DLAs, and who uses them."""
    world = orin()
    world.say("one", infers())
    text = "\n".join(status_lines(status_of(world.core.state, {}, (), world.now_s)))
    assert "8 cores, 2 DLA" in text
    assert "host-o/dla#1" in text
    assert "DLA, process 7, 2 slots" in text
