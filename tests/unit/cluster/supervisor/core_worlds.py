"""A core whose effects are carried out at once, with a clock, nodes and demands for tests."""

from dataclasses import replace

from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, plain_demand
from codecfleet.cluster.placement.model.inventory import Device, Node
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, How, MediaCodec, Trial
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.core.granting import grants_for
from codecfleet.cluster.supervisor.state.events import (
    Abandon,
    AnswerReport,
    Effect,
    NodesSeen,
    Note,
    Order,
    Probe,
    Remember,
    Renewed,
    Reserve,
    Reserved,
    Start,
    Started,
    Stop,
    Stopped,
    SupervisorEvent,
    Ticked,
)
from codecfleet.cluster.supervisor.state.messages import ClientReport, Grants, JobReport, RayNode, WorkerFacts
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.cluster.worker_names import NodeId

SETTINGS = SupervisorSettings(idle_release_s=30, client_expiry_s=10, recovery_s=3)


def node(name: str, cores: int = 2, free: int | None = None) -> RayNode:
    """Return a live node."""
    return RayNode(node=name, name=f"host-{name}", cores=cores, free_cores=cores if free is None else free)


class World:
    """A core, a clock, and a cluster that carries out every effect at once."""

    def __init__(self, *nodes: RayNode, settings: SupervisorSettings = SETTINGS) -> None:
        self.now_s = 100.0
        self.core = Core(settings, Policy(), 1, self.now_s)
        self.nodes = {each.node: each for each in nodes}
        self.grants: dict[str, Grants] = {}
        self.sequence = 0
        self.gpus: dict[str, str] = {}
        self.stopped: list[str] = []
        self.probes: list[Probe] = []
        self.abandoned: list[Abandon] = []
        self.started: list[Start] = []
        self.notes: list[Note] = []
        self.kept_orders: dict[NodeId, Order] = {}
        self.pending: list[Effect] = []
        self.feed(NodesSeen(nodes))

    def feed(self, *events: SupervisorEvent) -> None:
        """Pass events to the core, settle once, and carry out the effects."""
        self._decide(*events)
        while self.pending:
            self.carry_out(self.pending.pop(0))

    def _decide(self, *events: SupervisorEvent) -> None:
        for event in events[:-1]:
            self.pending += self.core.decide(event, self.now_s)
        for event in events[-1:]:
            self.pending += decided(self.core, event, self.now_s)

    def carry_out(self, effect: Effect) -> None:
        """Carry out one effect, and pass its result to the core."""
        match effect:
            case Reserve(worker, _, cores, _):
                self._decide(Reserved(worker, cores))
            case Start(worker, station, slots):
                self.started.append(effect)
                given = self.gpus.get(station.station) or self._slice_for(effect)
                trouble = "it is in quarantine" if given in effect.avoided else ""
                facts = WorkerFacts(7, slots, given, trouble=trouble)
                self._decide(Started(worker, facts))
            case Stop(worker):
                self.stopped.append(worker)
                self._decide(Stopped(worker))
            case Probe():
                self.probes.append(effect)
            case Note():
                self.notes.append(effect)
            case Remember(orders):
                self.kept_orders = dict(orders)
            case Abandon():
                self.abandoned.append(effect)
            case AnswerReport(_, client, grants):
                self.grants[client] = grants

    def _slice_for(self, start: Start) -> str:
        """Return which slice of its GPU a worker takes; the GPU is that of the first station in its bundle."""
        node = self.core.state.nodes.get(start.station.node)
        given, part = self.gpus.get(start.station.station.bundle, ""), start.station.station.part
        places = {} if node is None else node.places
        beside = (name for name, place in places.items() if given in places and place.unit == places[given].unit)
        return next((name for name in beside if places[name].part == part), "")

    def wait(self, seconds: float) -> None:
        """Let time pass, one tick at a time."""
        for _ in range(int(seconds / 0.25)):
            self.now_s += 0.25
            self.feed(Ticked())

    def say(self, client: str, *jobs: JobReport) -> Grants:
        """Report for a client until its grants stay the same; acknowledge and return them."""
        self.report(client, *jobs)
        grants = self.told(client)
        self.report(client, *jobs)
        return grants

    def told(self, client: str) -> Grants:
        """Return what a client may use now, as if it had reported."""
        return grants_for(self.core.state, client, self.now_s)

    def report(self, client: str, *jobs: JobReport, later: tuple[Demand, ...] = (), node: NodeId | None = None) -> None:
        """Send a client's report."""
        self.sequence += 1
        sent = self.grants.get(client)
        acknowledged = 0 if sent is None else sent.number
        where, number = f"driver {client}", self.sequence
        self.feed(Renewed(ClientReport(client, where, number, jobs, node, acknowledged=acknowledged, later=later)))


def decided(core: Core, event: SupervisorEvent, now_s: float) -> list[Effect]:
    """Let a core decide an event, and place everything if something has changed."""
    effects = core.decide(event, now_s)
    return [*effects, *core.decide(Ticked(), now_s)] if core.state.is_dirty else effects


def wants(job: str, pieces: int, held: dict[str, int] | None = None, workers_max: int | None = None) -> JobReport:
    """Return a client's report of a job that has this many segments left."""
    return JobReport(plain_demand(job, pieces, workers_max), held or {})


def total(grants: Grants, job: str) -> int:
    """Return how many slots a job may use."""
    return sum(grants.slots[job].values())


def gpu_node(name: str, *uuids: str) -> tuple[RayNode, Node]:
    """Return a live node with GPUs that decode and encode H.264, as Ray and as the node's probes see it."""
    ray = RayNode(node=name, name=f"host-{name}", cores=2, free_cores=2, gpus=len(uuids))
    cases = (CodecCase(MediaCodec.H264, Direction.DECODE), CodecCase(MediaCodec.H264, Direction.ENCODE))
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
            driver="580",
            free_memory_bytes=20 << 30,
        )
        for uuid in uuids
    )
    return ray, replace(ray.unprobed(), devices=(*gpus, *ray.unprobed().devices))


def nvenc(job: str, pieces: int) -> JobReport:
    """Return a client's report of a job that requires NVENC."""
    return JobReport(replace(plain_demand(job, pieces), encoder=EncoderChoice.NVENC), {})
