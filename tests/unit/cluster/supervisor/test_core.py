"""The supervisor's decisions, one promise at a time, and all of them together under random deaths."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from codecfleet.cluster.placement.assumed import plain_demand
from codecfleet.cluster.placement.demand import EncoderChoice, EncoderKind
from codecfleet.cluster.placement.inventory import Device, Node
from codecfleet.cluster.placement.policy import Policy
from codecfleet.cluster.probes.device_report import DeviceKind
from codecfleet.cluster.probes.engines import Codec, CodecCase, Direction, Engine, How, Trial
from codecfleet.cluster.supervisor.events import (
    Abandon,
    Asked,
    Departed,
    Died,
    Effect,
    Event,
    Found,
    Measured,
    NodesSeen,
    NotReserved,
    Order,
    Probe,
    Probed,
    Renewed,
    Reserve,
    Reserved,
    Start,
    Started,
    Stop,
    Stopped,
    Ticked,
)
from codecfleet.cluster.supervisor.granting import grants_for
from codecfleet.cluster.supervisor.messages import (
    ClientReport,
    FoundWorker,
    Grants,
    JobReport,
    RayNode,
    WorkerFacts,
)
from codecfleet.cluster.supervisor.seats import DEATHS_IN_A_ROW_MAX, SeatState, bundle_of
from codecfleet.cluster.supervisor.settings import SupervisorSettings
from codecfleet.cluster.supervisor.wiring import make_core, policy_from

SETTINGS = SupervisorSettings(idle_release_s=30, client_expiry_s=10, recovery_s=3)


def node(name: str, cores: int = 2, free: int | None = None) -> RayNode:
    """Return a live node."""
    return RayNode(node=name, name=f"host-{name}", cores=cores, free_cores=cores if free is None else free)


class World:
    """A core, a clock, and a world that does at once whatever is decided."""

    def __init__(self, *nodes: RayNode, settings: SupervisorSettings = SETTINGS) -> None:
        self.now_s = 100.0
        self.core = make_core(settings, policy_from({}), 1, self.now_s)
        self.nodes = {each.node: each for each in nodes}
        self.turn = 0
        self.gpus: dict[str, str] = {}
        self.stopped: list[tuple[str, int]] = []
        self.probes: list[Probe] = []
        self.abandoned: list[Abandon] = []
        self.started: list[Start] = []
        self.pending: list[Effect] = []
        self.tell(NodesSeen(nodes))

    def tell(self, event: Event) -> None:
        """Tell the core, and do what it wants."""
        self.pending += self.core.decide(event, self.now_s)
        while self.pending:
            self.carry_out(self.pending.pop(0))

    def carry_out(self, effect: Effect) -> None:
        """Do one thing, and tell what came of it."""
        match effect:
            case Reserve(seat, epoch, _, cores, _):
                self.pending += self.core.decide(Reserved(seat, epoch, cores), self.now_s)
            case Start(seat, epoch, _, slots, _):
                self.started.append(effect)
                facts = WorkerFacts(7, slots, self.gpus.get(seat) or self._slice_for(effect))
                self.pending += self.core.decide(Started(seat, epoch, facts), self.now_s)
            case Stop(seat, epoch):
                self.stopped.append((seat, epoch))
                self.pending += self.core.decide(Stopped(seat, epoch), self.now_s)
            case Probe():
                self.probes.append(effect)
            case Abandon():
                self.abandoned.append(effect)

    def _slice_for(self, start: Start) -> str:
        """Return the slice that a worker takes of the GPU that its bundle's first seat was given."""
        node = self.core.state.nodes.get(start.node)
        given = self.gpus.get(bundle_of(start.seat), "")
        units = () if node is None else node.units.units
        return next((unit[start.part] for unit in units if given in unit and start.part < len(unit)), "")

    def wait(self, seconds: float) -> None:
        """Let time pass, a tick at a time."""
        for _ in range(int(seconds / 0.25)):
            self.now_s += 0.25
            self.tell(Ticked())

    def say(self, client: str, *jobs: JobReport) -> Grants:
        """Have a client report, hear what it may use, which is returned, and say that it has heard."""
        self.report(client, *jobs)
        grants = grants_for(self.core.state, client, self.now_s)
        self.report(client, *jobs)
        return grants

    def report(self, client: str, *jobs: JobReport) -> None:
        """Have a client report."""
        self.turn += 1
        self.tell(Renewed(ClientReport(client, f"driver {client}", self.turn, jobs)))


def wants(job: str, pieces: int, held: dict[str, int] | None = None, workers_max: int | None = None) -> JobReport:
    """Return what a client says of a job with so many segments left."""
    return JobReport(plain_demand(job, pieces, workers_max), held or {})


def total(grants: Grants, job: str) -> int:
    """Return how many slots a job may use."""
    return sum(grants.slots[job].values())


class FullWorld(World):
    """A world whose Ray gives nothing: what is reserved stays asked for."""

    def carry_out(self, effect: Effect) -> None:
        """Do nothing."""


def test_what_ray_withholds_is_said() -> None:
    """While Ray has given none of the bundles that a job's workers need, the job hears that, not that they come."""
    (waiting,) = FullWorld(node("a")).say("one", wants("j", 10)).waiting.values()
    assert waiting.startswith("Ray has not given it the cores and GPUs that it reserved")


def test_a_job_alone_gets_everything() -> None:
    """One job may use every core of every node; its workers were reserved and started for it."""
    world = World(node("a"), node("b"))
    assert world.started == []
    assert total(world.say("one", wants("j", 100)), "j") == 4
    assert sorted(start.seat for start in world.started) == ["a/cpu#0", "b/cpu#0"]


def test_jobs_of_two_clients_share_evenly_whatever_their_size() -> None:
    """A large and a small job get the same share, until the small one needs less."""
    world = World(node("a"), node("b"))
    world.say("one", wants("large", 1000))
    world.say("two", wants("small", 10))
    first, second = world.say("one", wants("large", 1000)), world.say("two", wants("small", 10))
    assert (total(first, "large"), total(second, "small")) == (2, 2)
    world.say("two", wants("small", 1))
    first, second = world.say("one", wants("large", 1000)), world.say("two", wants("small", 1))
    assert (total(first, "large"), total(second, "small")) == (3, 1)


def test_priority_goes_first() -> None:
    """A job of higher priority takes what it can use; the other gets the rest."""
    world = World(node("a", 4))
    urgent = JobReport(replace(plain_demand("u", 3), priority=1), {})
    world.say("one", wants("j", 100))
    world.say("two", urgent)
    first, second = world.say("one", wants("j", 100)), world.say("two", urgent)
    assert (total(first, "j"), total(second, "u")) == (1, 3)


def test_weights_share_in_proportion() -> None:
    """A job of twice the weight gets twice the slots."""
    world = World(node("a", 6))
    heavy = JobReport(replace(plain_demand("h", 100), weight=Fraction(2)), {})
    for _ in range(2):
        first, second = world.say("one", wants("j", 100)), world.say("two", heavy)
    assert (total(first, "j"), total(second, "h")) == (2, 4)


def test_slots_in_use_are_not_promised_twice() -> None:
    """What a job holds stays its own until it lets go, even if its share has shrunk."""
    world = World(node("a", 4))
    (worker,) = world.say("one", wants("j", 100)).slots["j"]
    world.say("one", wants("j", 100, {worker: 4}))
    assert total(world.say("two", wants("k", 100)), "k") == 0
    assert total(world.say("one", wants("j", 97, {worker: 4})), "j") == 2
    assert total(world.say("two", wants("k", 100)), "k") == 0
    world.say("one", wants("j", 97, {worker: 3}))
    assert total(world.say("two", wants("k", 100)), "k") == 1


def test_slots_that_are_taken_back_are_free_once_the_client_has_heard() -> None:
    """While the answer that takes slots back is on its way, its client may still fill them: nobody else gets them."""
    world = World(node("a", 4))
    world.say("one", wants("j", 100))
    world.say("two", wants("k", 100))
    world.report("one", wants("j", 100))
    grants_for(world.core.state, "one", world.now_s)  # 2 instead of 4, not heard yet
    assert total(world.say("two", wants("k", 100)), "k") == 0
    world.report("one", wants("j", 100))
    assert total(world.say("two", wants("k", 100)), "k") == 2


def test_a_job_that_cannot_be_placed_costs_nobody_else() -> None:
    """A demand that makes placement itself fail is refused by name; others get their share."""
    world = World(node("a"))
    broken = JobReport(replace(plain_demand("b", 5), width=0, height=0), {})
    world.say("one", wants("j", 100))
    world.report("two", broken)
    refusal = next(each for each in world.core.state.placement.refusals if each.job == "two/b")
    assert "cannot be placed" in refusal.reason
    assert total(world.say("one", wants("j", 100)), "j") == 2


def test_what_the_supervisor_slept_through_is_nobodys_silence() -> None:
    """A supervisor that was stopped for a while expires no client that had no chance to be heard."""
    world = World(node("a"))
    world.say("one", wants("j", 100))
    world.wait(1)
    world.now_s += 60
    world.tell(Ticked())
    assert world.core.state.clients.get("one") is not None


def test_a_gone_clients_work_is_stopped() -> None:
    """What runs for a client that has left or fallen silent is stopped where it runs."""
    world = World(node("a"))
    (worker,) = world.say("one", wants("j", 100)).slots["j"]
    world.say("one", wants("j", 100, {worker: 2}))
    seat, _, epoch = worker.rpartition(":")
    world.tell(Departed("one"))
    assert world.abandoned == [Abandon(seat, int(epoch), "one")]


def test_unused_workers_are_given_back() -> None:
    """Thirty seconds after the last job has left, nothing is reserved any more."""
    world = World(node("a"))
    world.say("one", wants("j", 5))
    world.tell(Departed("one"))
    world.wait(29)
    assert world.core.state.seats["a/cpu#0"].state is SeatState.READY
    world.wait(2)
    assert world.core.state.seats["a/cpu#0"].state is SeatState.EMPTY
    assert world.stopped == [("a/cpu#0", world.started[0].epoch)]


def test_a_client_that_falls_silent_loses_what_it_held() -> None:
    """Ten seconds without a word, and its slots go to others."""
    world = World(node("a"))
    (worker,) = world.say("one", wants("j", 100)).slots["j"]
    world.say("one", wants("j", 100, {worker: 2}))
    world.say("two", wants("k", 100))
    for _ in range(6):
        world.wait(2)
        grants = world.say("two", wants("k", 100))
    assert total(grants, "k") == 2


def test_a_dead_worker_is_replaced_and_its_clients_are_told() -> None:
    """The next process has another name; who held the dead one hears that it is dead."""
    world = World(node("a"))
    (worker,) = world.say("one", wants("j", 100)).slots["j"]
    seat, _, epoch = worker.rpartition(":")
    world.tell(Died(seat, int(epoch), "signal 9"))
    grants = world.say("one", wants("j", 100, {worker: 2}))
    assert grants.dead == {worker}
    (successor,) = grants.slots["j"]
    assert successor != worker


def test_the_same_death_told_twice_counts_once() -> None:
    """Several callers tell of one death; one replacement starts."""
    world = World(node("a"))
    (worker,) = world.say("one", wants("j", 100)).slots["j"]
    seat, _, epoch = worker.rpartition(":")
    for _ in range(3):
        world.tell(Died(seat, int(epoch), "signal 9"))
    assert len(world.started) == 2


def test_a_seat_that_keeps_dying_is_quarantined_and_probed() -> None:
    """After five quick deaths in a row nothing is started there until the node has passed another probe."""
    world = World(node("a"))
    world.say("one", wants("j", 100))
    for _ in range(DEATHS_IN_A_ROW_MAX):
        world.tell(Died("a/cpu#0", world.started[-1].epoch, "out of memory"))
        world.wait(8)
        world.say("one", wants("j", 100))
    assert len(world.started) == DEATHS_IN_A_ROW_MAX
    assert "died 5 times in a row: out of memory" in world.say("one", wants("j", 100)).hopeless
    for _ in range(5):
        world.wait(8)
        world.say("one", wants("j", 100))
    assert world.probes[-1] == Probe("a", again=True)
    world.tell(Probed(node("a").unprobed()))
    grants = world.say("one", wants("j", 100))
    assert len(world.started) == DEATHS_IN_A_ROW_MAX + 1
    assert (grants.hopeless, total(grants, "j")) == ("", 2)


def test_a_long_life_clears_the_record() -> None:
    """A process that worked for a while before it died is no sign of a bad device."""
    world = World(node("a"))
    for _ in range(3 * DEATHS_IN_A_ROW_MAX):
        world.say("one", wants("j", 100))
        world.wait(9)
        world.say("one", wants("j", 100))
        world.wait(2)
        world.tell(Died("a/cpu#0", world.started[-1].epoch, "killed"))
    assert world.core.state.seats["a/cpu#0"].state is not SeatState.QUARANTINED


def test_a_cordoned_node_gets_nothing_new() -> None:
    """Cordoned by name, a node keeps what runs and gets nothing else; opened, it gets work again."""
    world = World(node("a"), node("b"))
    held = world.say("one", wants("j", 100)).slots["j"]
    world.tell(Asked(Order.CORDON, "host-a"))
    assert set(world.say("one", wants("j", 100, dict(held))).slots["j"]) == {w for w in held if w.startswith("b/")}
    assert world.core.state.seats["a/cpu#0"].state is SeatState.READY
    world.tell(Asked(Order.UNCORDON, "host-a"))
    assert total(world.say("one", wants("j", 100)), "j") == 4


def test_a_drained_node_is_given_back_as_soon_as_its_work_is_done() -> None:
    """Draining waits for what runs, and then for nothing."""
    world = World(node("a"))
    (worker,) = world.say("one", wants("j", 100)).slots["j"]
    world.say("one", wants("j", 100, {worker: 1}))
    world.tell(Asked(Order.DRAIN, "a"))
    world.wait(1)
    world.say("one", wants("j", 100, {worker: 1}))
    assert world.core.state.seats["a/cpu#0"].state is SeatState.READY
    world.say("one", wants("j", 99))
    world.wait(1)
    assert world.core.state.seats["a/cpu#0"].state is SeatState.EMPTY


def test_a_lost_node_takes_its_workers_with_it() -> None:
    """Clients hear that the workers of a vanished node are dead; its reservation is dropped."""
    world = World(node("a"), node("b"))
    held = world.say("one", wants("j", 100)).slots["j"]
    world.tell(NodesSeen((node("b"),)))
    grants = world.say("one", wants("j", 100, dict(held)))
    assert grants.dead == {worker for worker in held if worker.startswith("a/")}
    assert total(grants, "j") == 2


def test_only_free_cores_are_reserved() -> None:
    """Where other Ray work holds cores, a worker gets what is left, and as many slots."""
    world = World(node("a", 8, free=3), node("b", 8))
    assert total(world.say("one", wants("j", 100)), "j") >= 8
    slots = {start.seat: start.slots for start in world.started}
    assert slots["b/cpu#0"] == 8
    assert slots.get("a/cpu#0", 3) == 3


def test_a_full_cluster_is_shared_rather_than_waited_for() -> None:
    """When nothing can be reserved anywhere, one worker shares the cores of others."""
    world = World(node("a", 2, free=0))
    core, now_s = world.core, world.now_s
    report = ClientReport("one", "driver", 1, (wants("j", 100),))
    (reserve,) = [e for e in core.decide(Renewed(report), now_s) if isinstance(e, Reserve)]
    core.decide(NotReserved(reserve.seat, reserve.epoch, "taken"), now_s)
    effects = core.decide(Ticked(), now_s + 1)
    (again,) = [effect for effect in effects if isinstance(effect, Reserve)]
    assert (again.cores, again.epoch > reserve.epoch) == (0, True)


def test_a_worker_that_shares_cores_is_replaced_once_some_are_free() -> None:
    """A worker without a reservation is a makeshift: when others leave, one that Ray knows of takes its place."""
    world = World(node("a", 2, free=0))
    found = FoundWorker("a/cpu#0", 41, WorkerFacts(99, 2), is_reserved=False)
    world.tell(Found((found,)))
    world.say("one", wants("j", 50, {"a/cpu#0:41": 1}))
    world.wait(4)
    assert world.stopped == []
    world.tell(NodesSeen((node("a", 2),)))
    assert total(world.say("one", wants("j", 50, {"a/cpu#0:41": 1})), "j") == 0
    assert world.stopped == []
    world.say("one", wants("j", 49))
    assert world.stopped == [("a/cpu#0", 41)]
    grants = world.say("one", wants("j", 49))
    assert (total(grants, "j"), world.core.state.seats["a/cpu#0"].reserved_cores) == (2, 2)


def test_adopts_what_an_earlier_supervisor_left() -> None:
    """Workers that live on are taken over, not restarted; clients keep what they hold meanwhile."""
    world = World(node("a"))
    world.tell(
        Found(
            (FoundWorker("a/cpu#0", 41, WorkerFacts(99, 2, cores=2)), FoundWorker("gone/cpu#0", 40, WorkerFacts(98, 2)))
        )
    )
    assert world.stopped == [("gone/cpu#0", 40)]
    grants = world.say("one", wants("j", 50, {"a/cpu#0:41": 2}))
    assert grants.slots["j"] == {"a/cpu#0:41": 2}
    assert total(world.say("two", wants("k", 50)), "k") == 0
    world.wait(4)
    assert world.say("one", wants("j", 50, {"a/cpu#0:41": 1})).slots["j"] == {"a/cpu#0:41": 1}
    assert world.say("two", wants("k", 50)).slots["k"] == {"a/cpu#0:41": 1}
    assert world.started == []


def test_a_cluster_without_a_cpu_is_given_half_a_minute() -> None:
    """Nodes may still be on their way; then it is said that nothing can run."""
    world = World(node("a", 0))
    assert world.say("one", wants("j", 1)).hopeless == ""
    world.now_s += 31
    assert world.say("one", wants("j", 1)).hopeless == "the Ray cluster has no node with a CPU"


def test_an_older_report_changes_nothing() -> None:
    """Reports that overtake each other on the way are told apart by their turn."""
    world = World(node("a"))
    world.say("one", wants("j", 100))
    world.tell(Renewed(ClientReport("one", "driver one", 0, ())))
    assert [job.key for job in world.core.state.clients.jobs()] == ["one/j"]


def gpu_node(name: str, *uuids: str) -> tuple[RayNode, Node]:
    """Return a live node with GPUs that decode and encode H.264, as Ray and as its probes see it."""
    ray = RayNode(node=name, name=f"host-{name}", cores=2, free_cores=2, gpus=len(uuids))
    cases = (CodecCase(Codec.H264, Direction.DECODE), CodecCase(Codec.H264, Direction.ENCODE))
    trials = tuple(
        Trial(case=case, engine=engine, implementation=engine.value, works=True, how=How.TRIED)
        for case, engine in zip(cases, (Engine.NVDEC, Engine.NVENC), strict=True)
    )
    gpus = tuple(
        Device(
            device=uuid,
            node=name,
            kind=DeviceKind.GPU,
            name="NVIDIA L4",
            engines={Engine.NVDEC: 4, Engine.NVENC: 2},
            trials=trials,
            architecture="ada",
            driver_branch="580",
            free_memory_bytes=20 << 30,
        )
        for uuid in uuids
    )
    return ray, replace(ray.unprobed(), devices=(*gpus, *ray.unprobed().devices))


def nvenc(job: str, pieces: int) -> JobReport:
    """Return what a client says of a job that asks for NVENC."""
    return JobReport(replace(plain_demand(job, pieces), encoder=EncoderChoice.NVENC), {})


def test_a_gpu_is_reserved_by_its_share_and_known_by_what_its_worker_took() -> None:
    """A seat books 0.51 of some GPU of the node; which one that was, its worker tells."""
    ray, probed = gpu_node("g", "GPU-a", "GPU-b")
    core = make_core(SETTINGS, Policy(), 1, 0.0)
    core.decide(NodesSeen((ray,)), 0.0)
    core.decide(Probed(probed), 0.0)
    effects = core.decide(Renewed(ClientReport("one", "driver", 1, (nvenc("j", 40),))), 0.0)
    reserves = [effect for effect in effects if isinstance(effect, Reserve)]
    assert {reserve.gpus for reserve in reserves} == {0.51}
    assert {reserve.seat for reserve in reserves} == {"g/gpu#0", "g/gpu#1"}
    # Ray gives the second GPU to the first seat.
    for reserve, uuid in zip(reserves, ("GPU-b", "GPU-a"), strict=True):
        (start,) = [e for e in core.decide(Reserved(reserve.seat, reserve.epoch, 0), 0.0) if isinstance(e, Start)]
        assert start.takes_gpu
        core.decide(Started(reserve.seat, reserve.epoch, WorkerFacts(5, start.slots, uuid)), 0.0)
    grants = grants_for(core.state, "one", 0.0)
    lanes = {lane.device: lane.sessions for lane in core.state.placement.lanes}
    given = {core.state.seats[worker.rpartition(":")[0]].device: slots for worker, slots in grants.slots["j"].items()}
    assert given == lanes
    assert set(lanes) == {"GPU-a", "GPU-b"}


def world_of_two_gpus() -> World:
    """Return a world of one node with two GPUs, which was probed."""
    ray, probed = gpu_node("g", "GPU-a", "GPU-b")
    world = World(settings=SETTINGS)
    world.core = make_core(SETTINGS, Policy(), 1, world.now_s)
    world.gpus = {"g/gpu#0": "GPU-a", "g/gpu#1": "GPU-b"}
    world.tell(NodesSeen((ray,)))
    world.tell(Probed(probed))
    return world


def test_a_gpu_in_quarantine_gets_nothing() -> None:
    """The GPU whose processes keep dying is left alone by name; its neighbour works on."""
    world = world_of_two_gpus()
    world.say("one", nvenc("j", 40))
    for _ in range(DEATHS_IN_A_ROW_MAX):
        world.tell(Died("g/gpu#0", world.core.state.seats["g/gpu#0"].epoch, "fell off the bus"))
        world.wait(8)
        world.say("one", nvenc("j", 40))
    assert {lane.device for lane in world.core.state.placement.lanes} == {"GPU-b"}
    assert [refusal.devices for refusal in world.core.state.placement.refusals if "fell off" in refusal.reason] == [
        ("GPU-a",)
    ]


@pytest.mark.parametrize("wish", ["nvenc", "gpu", "bound"])
def test_a_job_that_needs_a_gpu_ends_when_all_are_in_quarantine(wish: str) -> None:
    """Not while one of them may still work; and jobs that processors can do go on."""
    world = world_of_two_gpus()
    demand = nvenc("j", 40).demand
    if wish == "gpu":
        demand = replace(demand, encoder=EncoderChoice.AUTO, needs_gpu=True)
    elif wish == "bound":
        (rendition,) = demand.renditions
        rendition = replace(rendition, kind=EncoderKind("nvenc", "ada", "580"))
        demand = replace(demand, encoder=EncoderChoice.AUTO, renditions=(rendition,))
    jobs = (JobReport(demand, {}), wants("other", 2))
    world.say("one", *jobs)
    for seat in ("g/gpu#0", "g/gpu#1"):
        for _ in range(DEATHS_IN_A_ROW_MAX):
            assert world.say("one", *jobs).broken == {}
            world.tell(Died(seat, world.core.state.seats[seat].epoch, "fell off the bus"))
            world.wait(8)
            world.say("one", *jobs)
    grants = world.say("one", *jobs)
    assert grants.broken == {"j": "every GPU's worker process died 5 times in a row: fell off the bus"}
    assert (grants.hopeless, total(grants, "j")) == ("", 0)
    assert total(grants, "other") > 0


def test_gpus_that_ray_was_not_given_are_left_alone() -> None:
    """A node that was started without its GPUs keeps them for others."""
    ray, probed = gpu_node("g", "GPU-a")
    core = make_core(SETTINGS, Policy(), 1, 0.0)
    core.decide(NodesSeen((replace(ray, gpus=0),)), 0.0)
    core.decide(Probed(probed), 0.0)
    effects = core.decide(Renewed(ClientReport("one", "driver", 1, (nvenc("j", 40),))), 0.0)
    assert not [effect for effect in effects if isinstance(effect, Reserve)]
    assert "Ray was started without GPUs" in str(core.state.placement.refusals)


def test_what_workers_measure_changes_the_rates() -> None:
    """Rates begin as documented and follow what a worker of ours really gave."""
    world = World(node("a"))
    world.say("one", wants("j", 100))
    before = world.core.state.placement.lanes[0].fps
    seat = world.core.state.seats["a/cpu#0"]
    world.tell(Measured("a/cpu#0", seat.epoch, "j", 2, before / 4))
    world.say("one", wants("j", 50))
    assert world.core.state.placement.lanes[0].fps == pytest.approx(before / 4, rel=0.05)


class Deaths(RuleBasedStateMachine):
    """Nodes, workers and clients come, go and die in any order."""

    @initialize()
    def begin(self) -> None:
        """Begin with one node."""
        self.world = World(node("n0", 3))
        self.alive = {"n0": node("n0", 3)}
        self.held: dict[str, dict[str, int]] = {}
        self.granted: dict[str, Grants] = {}
        self.counter = 0

    @rule(cores=st.integers(1, 20))
    def node_joins(self, cores: int) -> None:
        """A node joins."""
        self.counter += 1
        name = f"n{self.counter}"
        self.alive[name] = node(name, cores)
        self.world.tell(NodesSeen(tuple(self.alive.values())))

    @precondition(lambda self: len(self.alive) > 1)
    @rule(data=st.data())
    def node_dies(self, data: st.DataObject) -> None:
        """A node dies."""
        name = data.draw(st.sampled_from(sorted(self.alive)))
        del self.alive[name]
        self.world.tell(NodesSeen(tuple(self.alive.values())))

    @rule(data=st.data(), steady=st.booleans())
    def worker_dies(self, data: st.DataObject, *, steady: bool) -> None:
        """A worker dies, young or old."""
        seats = [book for book in self.world.core.state.seats.values() if book.state is SeatState.READY]
        if not seats:
            return
        book = data.draw(st.sampled_from(sorted(seats, key=lambda each: each.seat.seat)))
        if steady:
            self.world.now_s += 11
        self.world.tell(Died(book.seat.seat, book.epoch, "killed"))

    @rule(
        client=st.sampled_from("xyz"), pieces=st.integers(0, 30), takes=st.integers(0, 30), priority=st.integers(0, 1)
    )
    def client_reports(self, client: str, pieces: int, takes: int, priority: int) -> None:
        """A client reports, using some of what it was promised, and never more."""
        held: dict[str, int] = {}
        before = self.granted.get(client)
        for worker, slots in ({} if before is None else before.slots.get("j", {})).items():
            held[worker] = min(slots, takes)
            takes -= held[worker]
        held = {worker: slots for worker, slots in held.items() if slots}
        demand = replace(plain_demand("j", pieces), priority=priority)
        self.held[client] = held
        grants = self.world.say(client, JobReport(demand, held))
        self.granted[client] = grants
        for worker in grants.dead:
            held.pop(worker, None)

    @rule(client=st.sampled_from("xyz"))
    def client_leaves(self, client: str) -> None:
        """A client says goodbye."""
        self.world.tell(Departed(client))
        self.held.pop(client, None)
        self.granted.pop(client, None)

    @rule(order=st.sampled_from(list(Order)), data=st.data())
    def user_asks(self, order: Order, data: st.DataObject) -> None:
        """A user cordons, drains or opens a node."""
        self.world.tell(Asked(order, data.draw(st.sampled_from(sorted(self.alive)))))

    @rule(seconds=st.sampled_from([0.25, 1.0, 5.0]))
    def time_passes(self, seconds: float) -> None:
        """Time passes; clients that live keep reporting as often as they do."""
        self.world.wait(seconds)
        for client in list(self.granted):
            if self.world.core.state.clients.get(client) is None:
                self.held.pop(client)
                self.granted.pop(client)

    @rule()
    def supervisor_dies(self) -> None:
        """The supervisor dies; its successor knows nothing but what workers and clients tell."""
        old = self.world.core.state
        survivors = tuple(
            FoundWorker(book.seat.seat, book.epoch, book.facts)
            for book in old.seats.values()
            if book.facts is not None and book.seat.node in self.alive
        )
        now_s, turn = self.world.now_s, self.world.turn
        self.world = World(settings=SETTINGS)
        self.world.now_s, self.world.turn = now_s, turn
        self.world.core = make_core(SETTINGS, policy_from({}), old.epoch + 1000, now_s)
        self.world.tell(NodesSeen(tuple(self.alive.values())))
        self.world.tell(Found(survivors))
        for client, held in list(self.held.items()):
            self.granted[client] = self.world.say(client, JobReport(plain_demand("j", 10), held))

    @invariant()
    def promises_never_exceed_a_worker(self) -> None:
        """What all clients hold or may take up of a worker is never more than its slots."""
        state = self.world.core.state
        for book in state.seats.values():
            if book.state is SeatState.READY:
                used = sum(job.occupies(book.worker) for job in state.clients.jobs())
                assert used <= book.ready_slots, book

    @invariant()
    def only_live_nodes_have_seats(self) -> None:
        """Nothing is kept on a node that is gone."""
        assert {name.rpartition("/")[0] for name in self.world.core.state.seats} <= set(self.alive)

    @invariant()
    def epochs_are_unique(self) -> None:
        """No two processes ever have the same name."""
        names = [(start.seat, start.epoch) for start in self.world.started]
        assert len(names) == len(set(names))

    def teardown(self) -> None:
        """When all is quiet and everybody has left, everything is given back."""
        for client in list(self.granted):
            self.world.tell(Departed(client))
        self.world.wait(SETTINGS.idle_release_s + 5)  # type: ignore[operator]
        held = {book.state for book in self.world.core.state.seats.values()}
        assert held <= {SeatState.EMPTY, SeatState.RESTING, SeatState.QUARANTINED}


Deaths.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=25, deadline=None)
test_invariants_under_random_deaths = pytest.mark.filterwarnings("default")(Deaths.TestCase)


@pytest.mark.parametrize("probed", [False, True])
def test_a_node_that_may_be_taken_away_comes_last(*, probed: bool) -> None:
    """What Ray's label says of a node holds before and after its probe."""
    spot = replace(node("a"), preemptible=True)
    world = World(spot, node("b"))
    if probed:
        world.tell(Probed(replace(spot, preemptible=False).unprobed()))
    (worker,) = world.say("one", wants("j", 2)).slots["j"]
    assert worker.startswith("b/cpu#0:")
