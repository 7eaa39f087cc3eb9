"""Clusters that are too large to be placed again as a whole at each change, and what stands on them."""

from dataclasses import replace

from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.model.caps import with_caps
from codecfleet.cluster.placement.model.inventory import Inventory
from codecfleet.cluster.placement.model.placement import Placement, Route
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.supervisor.core.effective import effective_nodes
from codecfleet.cluster.supervisor.core.placing import SETTLE_S
from codecfleet.cluster.supervisor.state.events import NodesSeen, Probed
from codecfleet.cluster.supervisor.state.messages import JobReport, RayNode
from codecfleet.cluster.supervisor.state.stations import StationState

from .core_worlds import World, gpu_node, node, nvenc, wants

COUNT = 20
Targets = dict[str, dict[str, int]]


def world_of(jobs: int, pieces: int, count: int = COUNT) -> World:
    """Return nodes of two cores each, with workers on those that the jobs of a client need, and no core free there."""
    world = World(*(node(f"n{number:02d}") for number in range(count)))
    say(world, *(wants(f"j{number:02d}", pieces) for number in range(jobs)))
    see(world, *(replace(each, free_cores=0 if worker_at(world, each.node) else 2) for each in world.nodes.values()))
    world.wait(SETTLE_S + 1)
    return world


def gpu_world_of(jobs: int, pieces: int) -> World:
    """Return nodes of a GPU each, whose encoders the jobs of a client need."""
    made = [gpu_node(f"g{number:02d}", f"GPU-{number:02d}") for number in range(COUNT)]
    world = World(*(ray for ray, _ in made))
    world.gpus = {f"{probed.node}/gpu#0": probed.devices[0].device for _, probed in made}
    world.feed(*(Probed(probed) for _, probed in made))
    say(world, *(nvenc(f"j{number:02d}", pieces) for number in range(jobs)))
    world.wait(SETTLE_S + 1)
    return world


def say(world: World, *jobs: JobReport) -> None:
    """Have a client say what it wants, and use all that it is granted."""
    grants = world.say("one", *jobs)
    world.say("one", *(replace(job, held=grants.slots[job.demand.job]) for job in jobs))


def see(world: World, *nodes: RayNode) -> None:
    """Have Ray list these nodes as they are now, beside the others."""
    world.nodes |= {each.node: each for each in nodes}
    world.feed(NodesSeen(tuple(world.nodes.values())))


def worker_at(world: World, name: str) -> str:
    """Return the worker on a node's processor; "" while it has none."""
    book = world.core.state.stations.get(f"{name}/cpu#0")
    return "" if book is None or book.state is not StationState.READY else book.worker


def targets_of(world: World) -> Targets:
    """Return the slots of jobs by station and job, as they are now."""
    return {station: dict(slots) for station, slots in world.core.state.targets.items()}


def is_from_scratch(world: World) -> bool:
    """Return whether jobs are where they would be if everything were placed now."""
    now, scratch = (_places(each) for each in (world.core.state.placement, _from_scratch(world)))
    return now == scratch


def _places(placement: Placement) -> list[tuple[str, str, Route, int]]:
    return [(lane.job, lane.device, lane.route, lane.sessions) for lane in placement.lanes]


def _from_scratch(world: World) -> Placement:
    state = world.core.state
    inventory = Inventory(tuple(effective_nodes(state.nodes, state.stations)))
    demands = [job.demand for job in state.clients.jobs()]
    return place(demands, with_caps(inventory, state.caps), start_rates(), Policy())
