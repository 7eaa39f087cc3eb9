"""The device that placement chooses is the device that the worker gets, whichever GPU Ray assigns."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from codecfleet.cluster.placement.build import node_of_report
from codecfleet.cluster.placement.model.inventory import Node
from codecfleet.cluster.simulated.devices import SimulatedNode
from codecfleet.cluster.supervisor.state.events import Effect, Found, NodesSeen, Probed, Start
from codecfleet.cluster.supervisor.state.events import Started as StartedWorker
from codecfleet.cluster.supervisor.state.messages import FoundWorker, JobReport, RayNode, WorkerFacts
from codecfleet.cluster.supervisor.state.stations import StationBook, StationState
from codecfleet.cluster.worker_names import WorkerId
from codecfleet.testing.fleet.simulated_report import simulated_report

from ..core_worlds import World, gpu_node, nvenc
from .test_slices import RayWorld, Started, by_codecfleet, by_number, kuberay, machines, plain, private, wanted

__all__ = ["machines"]  # a fixture

WAYS: list[Callable[[SimulatedNode], Started]] = [by_codecfleet, private, plain, by_number, kuberay]
KINDS = ["whole", "four", "three slices", "compute instances", "two cut alike", "guest", "two kinds"]
JOBS = {"one": wanted(workers_max=1), "all": wanted(segments=(2000,) * 400), "nvenc": nvenc("j", 40)}


CASES = [(kind, way, list(JOBS)[(i + j) % len(JOBS)]) for i, kind in enumerate(KINDS) for j, way in enumerate(WAYS)]
"""Every pair of a machine's kind and a way to start Ray; each of them meets every job."""


@pytest.mark.parametrize(("kind", "way", "job"), CASES)
def test_the_worker_has_the_chosen_device(
    machines: dict[str, SimulatedNode], kind: str, way: Callable[[SimulatedNode], Started], job: str
) -> None:
    """Each worker has the device of the job's lane, no device has two workers, and no worker only holds a GPU."""
    world = RayWorld(way(machines[kind]))
    for _ in range(6):
        _assert_chosen(world, JOBS[job])
        world.wait(1)
    lanes = {lane.device for lane in world.core.state.plans.of("one/j").lanes}
    have = [book.device for book in _gpu_workers(world)]
    assert sorted(have) == sorted(lanes)
    assert set(world.say("one", JOBS[job]).slots["j"]) == {book.worker for book in _gpu_workers(world)}
    assert lanes or job == "nvenc"


def _assert_chosen(world: World, job: JobReport) -> None:
    """Check that the job may only use workers on the devices of its lanes."""
    slots = world.say("one", job).slots["j"]
    lanes = {lane.device for lane in world.core.state.plans.of("one/j").lanes}
    assert {world.core.state.stations[worker.station].device for worker in slots} <= lanes


def _gpu_workers(world: World) -> list[StationBook]:
    books = world.core.state.stations.values()
    return [book for book in books if book.station.kind.takes_gpu and book.state is not StationState.EMPTY]


def test_placement_follows_a_worker_to_an_equal_gpu(machines: dict[str, SimulatedNode]) -> None:
    """Ray assigns the last of four equal GPUs; the job moves there, and no other worker is started."""
    world = RayWorld(plain(machines["four"]))
    world.say("one", JOBS["one"])
    (start,) = world.started
    (book,) = _gpu_workers(world)
    assert (start.device, book.device) == (world.listed[0], world.listed[3])
    assert set(world.say("one", JOBS["one"]).slots["j"]) == {start.worker}


def test_workers_whose_gpus_are_swapped_swap_their_work() -> None:
    """Each of two workers gets the other's GPU, one after the other; no third worker is started."""
    world = Slow(gpu_node("g", "GPU-0", "GPU-1", "GPU-2", "GPU-3"))
    demand = replace(nvenc("j", 400).demand, workers_max=2)
    world.say("one", JobReport(demand, {}))
    chosen = [start.device for start in world.started]
    assert len(chosen) == 2
    for start, given in zip(world.started[:2], reversed(chosen), strict=True):
        world.feed(StartedWorker(start.worker, WorkerFacts(7, start.slots, given)))
        _assert_chosen(world, JobReport(demand, {}))
    assert len(world.started) == 2
    assert len(world.say("one", JobReport(demand, {})).slots["j"]) == 2


class Slow(World):
    """A node whose workers start when the test says so."""

    def __init__(self, node: tuple[RayNode, Node]) -> None:
        super().__init__(replace(node[0], cores=64, free_cores=64))
        self.feed(Probed(node[1]))

    def carry_out(self, effect: Effect) -> None:
        """Hold back the starts of workers."""
        if isinstance(effect, Start):
            self.started.append(effect)
        else:
            super().carry_out(effect)


def test_a_gpu_of_other_ray_work_is_left_alone(machines: dict[str, SimulatedNode]) -> None:
    """If Ray cannot assign the chosen GPU, workers release the other GPUs; after 30 s placement tries again."""
    world = RayWorld(plain(machines["two kinds"]))
    l4 = world.free.pop(0)
    for _ in range(3):
        assert world.say("one", nvenc("j", 40)).slots["j"] == {}
        world.wait(1)
    assert _gpu_workers(world) == []
    assert "other Ray work holds it" in world.say("one", nvenc("j", 40)).waiting["j"]
    starts = len(world.started)
    world.free.insert(0, l4)
    world.wait(20)
    assert len(world.started) == starts
    world.say("one")
    for _ in range(10):
        slots = world.say("one", nvenc("j", 40)).slots["j"]
        world.wait(1)
    assert len(slots) == 1


def test_two_workers_never_share_a_gpu(machines: dict[str, SimulatedNode]) -> None:
    """A worker on the GPU of another Ray node's worker says so and is replaced; once that node is gone, it may work."""
    world = World()
    report, cores = simulated_report(machines["whole"]), 256
    nodes = tuple(RayNode(node=n, name="host", cores=cores, free_cores=cores, gpus=g) for n, g in (("a", 1), ("b", 2)))
    world.feed(NodesSeen(nodes))
    probed = [node_of_report(report, node=name, cuda_visible=number) for name, number in (("a", "0"), ("b", None))]
    first, second = [gpu.device for gpu in probed[0].gpus]
    world.gpus = {"a/gpu#0": first, "b/gpu#0": first, "b/gpu#1": second}
    for node in probed:
        world.feed(Probed(node))
    assert _busy(world) == {"a/gpu#0": first, "b/gpu#1": second}
    assert world.core.state.stations["b/gpu#0"].state is StationState.EMPTY
    assert any("gets no work: codecfleet's worker a/gpu#0:" in note.line for note in world.notes)
    world.feed(NodesSeen(nodes[1:]))
    assert _busy(world) == {"b/gpu#0": first, "b/gpu#1": second}


def _busy(world: World) -> dict[str, str]:
    """Return the stations that a large job uses after some seconds, with their devices."""
    for _ in range(4):
        slots = world.say("one", JOBS["all"]).slots["j"]
        world.wait(1)
    return {worker.station: world.core.state.stations[worker.station].device for worker in slots}


def test_a_new_supervisor_adopts_one_worker_of_a_gpu(machines: dict[str, SimulatedNode]) -> None:
    """Of two workers on one GPU, the second gets no work from a new supervisor either."""
    world = World()
    report = simulated_report(machines["passed through"])
    nodes = tuple(RayNode(node=n, name="host", cores=8, free_cores=8, gpus=1) for n in ("a", "b"))
    world.feed(NodesSeen(nodes))
    probed = [node_of_report(report, node=name) for name in ("a", "b")]
    for node in probed:
        world.feed(Probed(node))
    facts = WorkerFacts(7, 64, probed[0].gpus[0].device)
    world.feed(Found(tuple(FoundWorker(WorkerId(f"{n}/gpu#0:3"), replace(facts)) for n in ("a", "b"))))
    assert [book.is_holding for book in _gpu_workers(world)] == [False, True]
