"""A supervisor that resizes its cluster: its orders, where it keeps work away, and how jobs wait."""

from dataclasses import replace
from decimal import Decimal

from codecfleet.cluster.autoscale.config import AutoscaleConfig, Group
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, EncoderKind, plain_demand
from codecfleet.cluster.placement.model.inventory import DeviceState
from codecfleet.cluster.ray.keeper import Driving
from codecfleet.cluster.supervisor.core.granting import grants_for
from codecfleet.cluster.supervisor.core.previewing import growth, preview
from codecfleet.cluster.supervisor.state.events import (
    Asked,
    Departed,
    Effect,
    NodesSeen,
    Order,
    Probed,
    Resize,
    Resized,
    TellNode,
)
from codecfleet.cluster.supervisor.state.messages import JobReport, RayNode
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.cluster.supervisor.status.lines import status_lines
from codecfleet.cluster.supervisor.status.status import status_of

from ..core_worlds import World, gpu_node, node, nvenc, wants

LABELS = {"codecfleet/group": "cpu"}
HEAD = node("head", cores=0)


def _group(name: str, ray: RayNode, price: str = "1.00") -> Group:
    return Group(
        name=name,
        labels={"codecfleet/group": name},
        resources={"CPU": float(ray.cores)},
        node=ray.unprobed(),
        nodes_max=4,
        price_per_hour=Decimal(price),
        start_s=60.0,
    )


def _worker(name: str) -> RayNode:
    return replace(node(name, cores=4), labels=LABELS)


class Growing(World):
    """A world whose cluster has an autoscaler; ``orders`` are the orders to Ray, ``told`` those to nodes."""

    def __init__(self, *nodes: RayNode, groups: tuple[Group, ...] = ()) -> None:
        self.orders: list[Resize] = []
        self.told: list[TellNode] = []
        groups = groups or (_group("cpu", node("cpu", cores=4)),)
        autoscale = AutoscaleConfig(groups=groups, idle_s=60.0, turn_s=60.0)
        super().__init__(*nodes, settings=SupervisorSettings(idle_release_s=30, autoscale=autoscale))

    def carry_out(self, effect: Effect) -> None:
        """Record an order; carry out any other effect."""
        if isinstance(effect, Resize):
            self.orders.append(effect)
        if isinstance(effect, TellNode):
            self.told.append(effect)
        super().carry_out(effect)

    def look(self, *nodes: RayNode, seconds: float = 1.0) -> Resize:
        """See these nodes once a second; return the last order."""
        for _ in range(int(seconds)):
            self.wait(1.0)
            self.feed(NodesSeen(nodes))
        return self.orders[-1]


def _count(order: Resize, group: str = "cpu") -> int:
    return next(each.count for each in order.wanted if each.group == group)


def test_nothing_is_wanted_without_work() -> None:
    """An idle cluster requests no node, and repeats this, because an order may get lost."""
    world = Growing(HEAD)
    assert _count(world.look(HEAD)) == 0
    before = len(world.orders)
    world.look(HEAD, seconds=21)
    assert len(world.orders) == before + 2


def test_work_brings_nodes_and_idle_ones_end() -> None:
    """Nodes join for a job, stay while the job runs, and end once they are idle and their workers are gone."""
    world = Growing(HEAD)
    world.report("c", wants("job", 400))
    order = world.look(HEAD)
    assert _count(order) > 0
    assert order.wanted[0].labels == LABELS
    grants = grants_for(world.core.state, "c", world.now_s)
    assert grants.waiting["job"] == f"nodes are pending: {_count(order)} of cpu"
    nodes = tuple(_worker(f"w{number}") for number in range(_count(order)))
    for _ in range(100):
        world.report("c", wants("job", 400))
        order = world.look(HEAD, *nodes)
    assert order.ended == ()
    assert all(book.state is DeviceState.OPEN for book in world.core.state.nodes)
    world.report("c")
    for _ in range(59):
        world.report("c")
        order = world.look(HEAD, *nodes)
    assert order.ended == ()
    order = world.look(HEAD, *nodes, seconds=5)
    assert (_count(order), order.ended) == (0, tuple(sorted(each.node for each in nodes)))
    assert not world.core.state.is_idle
    world.look(HEAD, seconds=15)
    assert world.core.state.is_idle


def test_a_node_on_which_a_program_runs_does_not_end() -> None:
    """A job of a node's driver keeps the node, even if its segments run elsewhere; afterwards the node ends."""
    world, nodes = Growing(HEAD), (_worker("w0"), _worker("w1"))
    for _ in range(100):
        world.report("c", node=nodes[1].node)
        order = world.look(HEAD, *nodes)
    assert order.ended == (nodes[0].node,)
    world.feed(Departed("c"))
    assert world.look(HEAD, nodes[1], seconds=11).ended == (nodes[1].node,)


def test_a_program_that_comes_late_keeps_its_node() -> None:
    """A node is not ended while a program that started after the decision runs on it; its driver is told to rest."""
    world, nodes = Growing(HEAD), (_worker("w0"),)
    world.report("c", wants("job", 1))
    world.look(HEAD, *nodes, seconds=2)
    world.feed(Departed("c"))
    while not world.core.state.nodes[nodes[0].node].ending:
        world.look(HEAD, *nodes)
    world.look(HEAD, *nodes)
    assert [each.driving for each in world.told if each.node == nodes[0].node] == [Driving.RESTS]
    for _ in range(20):
        world.report("d", node=nodes[0].node)
        order = world.look(HEAD, *nodes)
    assert order.ended == ()
    world.feed(Departed("d"))
    assert world.look(HEAD, *nodes, seconds=11).ended == (nodes[0].node,)


def waits(frames: int, segments: int = 1000) -> tuple[Demand, ...]:
    """Return a report of files that wait behind a client's jobs."""
    return (replace(plain_demand("batch", 1, segments), frames_total=frames),)


def test_waiting_files_bring_nodes_and_get_no_slots() -> None:
    """Waiting files bring more nodes than the running job needs, up to the limit; without them, the nodes end."""
    alone = Growing(HEAD)
    alone.report("c", wants("job", 8))
    assert _count(alone.look(HEAD)) == 1
    world = Growing(HEAD)
    world.report("c", wants("job", 8), later=waits(10_000_000))
    assert _count(world.look(HEAD)) == 4
    shown = "\n".join(status_lines(status_of(world.core.state, {}, (), world.now_s)))
    assert "late: batch: about 25.7 h later than planned: the limits allow no more nodes" in shown
    nodes = tuple(_worker(f"w{number}") for number in range(4))
    for _ in range(100):
        world.report("c", wants("job", 8), later=waits(10_000_000))
        order = world.look(HEAD, *nodes)
    assert (_count(order), order.ended) == (4, ())
    assert all(book.state is DeviceState.OPEN for book in world.core.state.nodes)
    assert set(grants_for(world.core.state, "c", world.now_s).slots) == {"job"}
    for _ in range(400):
        world.report("c")
        order = world.look(HEAD, *nodes)
    assert (_count(order), len(order.ended)) == (0, 4)


def test_waiting_files_bring_no_node_that_they_could_not_fill() -> None:
    """The number of files in flight limits the nodes, however many files wait."""
    world = Growing(HEAD)
    world.report("c", wants("job", 4), later=waits(10_000_000, segments=4))
    assert _count(world.look(HEAD)) == 2


def test_no_order_is_above_a_groups_limit() -> None:
    """Surplus and ending nodes are counted only once, because an order above a limit is refused as a whole."""
    nodes = tuple(_worker(f"w{number}") for number in range(4))
    world = Growing(HEAD, *nodes)
    for second in range(200):
        world.report("c", *([wants("job", 400)] if second < 50 else [wants("job", 1)] if second < 150 else []))
        world.look(HEAD, *nodes)
    assert all(_count(order) + len(order.ended) <= 4 for order in world.orders)
    assert any(order.ended for order in world.orders)


def test_nodes_of_no_group_are_ignored() -> None:
    """A node without the labels of a group is neither counted nor ended, however long it is idle."""
    plain = node("plain", cores=4)
    world = Growing(HEAD, plain)
    order = world.look(HEAD, plain, seconds=200)
    assert (order.ended, _count(order)) == ((), 0)


def test_a_cordoned_node_is_requested_in_addition() -> None:
    """Ray counts a cordoned node, which does no work, so it is requested in addition to the needed nodes."""
    world = Growing(HEAD, _worker("w"))
    world.feed(Asked(Order.CORDON, "w"))
    assert _count(world.look(HEAD, _worker("w"), seconds=200)) == 1
    assert world.orders[-1].ended == ()


def test_without_an_autoscaler_no_node_is_given_up() -> None:
    """If Ray refuses orders, idle nodes stay, and a job learns after the usual time that no node joins."""
    world = Growing(HEAD, _worker("w"))
    world.feed(Resized("Ray has no autoscaler"))
    assert world.look(HEAD, _worker("w"), seconds=300).ended == ()
    lines = list(status_lines(status_of(world.core.state, {}, (), world.now_s)))
    assert "    not carried out: Ray has no autoscaler" in lines
    world.report("c", wants("job", 4))
    world.look(HEAD, seconds=40)
    world.report("c", wants("job", 4))
    assert grants_for(world.core.state, "c", world.now_s).unrecoverable == "the Ray cluster has no node with a CPU"


def test_status_says_what_is_wanted_and_why() -> None:
    """The status has the nodes of each group, the price of the wanted nodes, and the reason."""
    world = Growing(HEAD)
    world.report("c", wants("job", 4))
    world.look(HEAD)
    status = status_of(world.core.state, {}, (), world.now_s)
    assert status.autoscaling is not None
    assert status.autoscaling.price_per_hour == "1.00"
    assert status.to_json()["autoscaling"]["groups"][0]["wanted"] == 1
    text = "\n".join(status_lines(status))
    assert "autoscaling 1 node wanted, 1.00 an hour" in text
    assert "0 of 1, 4 at most; 1 more for 1 job" in text


def _mixed() -> Growing:
    ray, probed = gpu_node("gpu", "GPU-1")
    gpu = replace(_group("gpu", ray), node=probed)
    return Growing(HEAD, groups=(_group("cpu", node("cpu", cores=4)), gpu))


def _asks(job: str) -> Demand:
    return nvenc(job, 400).demand


def test_encoder_of_nodes_that_may_come_is_previewed() -> None:
    """If there are no nodes, a job with an open encoder is offered the cheapest encoder that could join."""
    world = _mixed()
    wanted = replace(_asks("job"), encoder=EncoderChoice.AUTO)
    renditions = tuple(replace(each, kind=None) for each in wanted.renditions)
    found = preview(world.core.state, replace(wanted, renditions=renditions), nodes_may_join=True)
    assert found.encoder_kind == EncoderKind("nvenc", "ada", "580")
    assert found.takes_gpu


def test_first_probed_node_says_what_a_group_is() -> None:
    """A node whose driver differs from the group's description changes the encoder offered to jobs."""
    world = _mixed()
    ray, probed = gpu_node("g", "GPU-9")
    ray = replace(ray, labels={"codecfleet/group": "gpu"})
    newer = replace(probed, devices=tuple(replace(each, driver="590") for each in probed.devices))
    world.look(HEAD, ray)
    world.feed(Probed(newer))
    world.look(HEAD, ray)
    wanted = _asks("job")
    renditions = tuple(replace(each, kind=None) for each in wanted.renditions)
    found = preview(world.core.state, replace(wanted, renditions=renditions), nodes_may_join=True)
    assert found.encoder_kind == EncoderKind("nvenc", "ada", "590")


def test_job_for_gpus_waits_while_one_may_come() -> None:
    """A job that needs a GPU waits while a group has GPUs, even if no node has a CPU yet."""
    world = _mixed()
    for _ in range(60):
        world.report("c", JobReport(_asks("job")))
        order = world.look(HEAD)
    assert _count(order, "gpu") == 1
    grants = grants_for(world.core.state, "c", world.now_s)
    assert (grants.broken, grants.unrecoverable) == ({}, "")


def test_it_says_which_nodes_would_come() -> None:
    """Growth names the nodes that would be requested beyond existing and pending ones, or says why there are none."""
    world = Growing(HEAD)
    world.look(HEAD)
    large, small = wants("job", 400).demand, wants("job", 1).demand
    first = growth(world.core.state, large)
    assert first.startswith("cpu: 3 more for 1 job, to end within 30 min: ")
    assert "for the job, including the nodes' start and final idle time" in first
    world.report("c", wants("other", 400))
    count = _count(world.look(HEAD))
    assert growth(world.core.state, small) == "no node would be requested: existing and pending nodes suffice"
    assert _count(world.look(HEAD)) == count, "a question changes nothing"
    world.feed(Resized("Ray has no autoscaler"))
    assert growth(world.core.state, large) == "no node can be requested: Ray has no autoscaler"
    assert growth(World(HEAD).core.state, large) == ""
