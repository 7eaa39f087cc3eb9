"""Every GPU, slice and guest gets its worker, however Ray was started on its machine."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from codecfleet.cluster.node.offer import offer_of
from codecfleet.cluster.placement.build import node_of_report
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.cluster.placement.model.inventory import Device, DeviceState
from codecfleet.cluster.probes.gpus.health_poll import HealthPoll
from codecfleet.cluster.probes.gpus.visible_device import (
    CONTAINER_VARIABLE,
    CUDA_VARIABLE,
    narrow,
    narrow_to,
    shown_gpus,
)
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, MediaCodec
from codecfleet.cluster.simulated.devices import SimulatedDevice, SimulatedNode
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.cluster.supervisor.core.effective import effective_nodes
from codecfleet.cluster.supervisor.state.events import (
    Effect,
    HealthSeen,
    NodesSeen,
    NotReserved,
    Probed,
    Reserve,
    Start,
    Stop,
)
from codecfleet.cluster.supervisor.state.messages import Grants, JobReport, RayNode
from codecfleet.cluster.supervisor.state.stations import StationState
from codecfleet.testing import FakeNvml
from codecfleet.testing.fleet.simulated_report import simulated_report

from ..core_worlds import World, decided

FLEET = """
schema = 1
name = "slices"
description = "machines of every kind"
source = "documents"
"""

MACHINES = {
    "whole": 'model = "L4"\ncount = 2',
    "three slices": 'model = "H100"\nmig = ["3g.40gb", "2g.20gb", "1g.10gb"]',
    "compute instances": 'model = "H100"\nmig = [["1c.3g.40gb", "1c.3g.40gb", "1c.3g.40gb"], "2g.20gb"]',
    "guest": 'model = "L40S"\nname = "NVIDIA L40S-12Q"\nvirtualization = "guest"\nmemory_gib = 12',
    "passed through": 'model = "L40S"\nvirtualization = "passthrough"',
    "two kinds": 'model = "L4"\n[[nodes.devices]]\nmodel = "H100"\nmig = ["3g.40gb", "2g.20gb"]',
    "two cut alike": 'model = "H100"\ncount = 2\nmig = ["3g.40gb", "2g.20gb"]',
    "one not cut": 'model = "L4"\n[[nodes.devices]]\nmodel = "H100"\nmig = []',
    "four": 'model = "L4"\ncount = 4',
}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SimulatedNode]:
    """Return a machine of every kind, by name."""
    path = tmp_path_factory.mktemp("fleets") / "slices.toml"
    nodes = [
        f'[[nodes]]\nname = "{name}"\ncores = 256\nmemory_gib = 1024\ndriver = "580.126.20"\n'
        f"[[nodes.devices]]\n{devices}\n"
        for name, devices in MACHINES.items()
    ]
    path.write_text(FLEET + "\n".join(nodes))
    return {node.name: node for node in load_fleet(path).nodes}


@dataclass(frozen=True)
class Started:
    """How Ray was started on a machine: visible devices, Ray's count, and what NVML shows to Ray."""

    machine: SimulatedNode
    gpus: int
    environment: dict[str, str]
    is_private: bool = False  # whether workers choose the GPU themselves

    @property
    def identifiers(self) -> list[str]:
        """Return Ray's names of its GPUs."""
        visible = self.environment.get(CUDA_VARIABLE)
        entries = [str(number) for number in range(self.gpus)] if visible is None else visible.split(",")
        return entries[: self.gpus]


def plain(machine: SimulatedNode, environment: dict[str, str] | None = None) -> Started:
    """`ray start`: as many GPUs as NVML counts, or fewer if CUDA_VISIBLE_DEVICES has fewer entries."""
    environment = environment or {}
    count = len(_gpus(machine))
    if CUDA_VARIABLE in environment:
        count = min(count, len(environment[CUDA_VARIABLE].split(",")))
    return Started(machine, count, environment)


def by_number(machine: SimulatedNode, environment: dict[str, str] | None = None) -> Started:
    """`ray start --num-gpus=N`, where N is the number of usable GPUs or of entries in CUDA_VISIBLE_DEVICES."""
    shown = shown_gpus(opened(machine), environment or {})
    visible = (environment or {}).get(CUDA_VARIABLE)
    every = sum(len(gpu.parts) for gpu in shown.gpus)
    return Started(machine, every if visible is None else len(visible.split(",")), environment or {})


def kuberay(machine: SimulatedNode, environment: dict[str, str] | None = None) -> Started:
    """A pod with all devices of a machine: the device plugin names them, and the limit of the pod is Ray's number."""
    shown = shown_gpus(opened(machine), {})
    names = [part.visible for gpu in shown.gpus for part in gpu.parts]
    return Started(machine, len(names), {CONTAINER_VARIABLE: ",".join(names), **(environment or {})})


def private(machine: SimulatedNode, environment: dict[str, str] | None = None) -> Started:
    """A private Ray, which counts slices by CUDA_VISIBLE_DEVICES."""
    for_ray = shown_gpus(opened(machine), environment or {}).for_ray
    if for_ray is None:
        return replace(plain(machine, environment), is_private=True)
    return Started(machine, len(for_ray.split(",")), {**(environment or {}), CUDA_VARIABLE: for_ray}, is_private=True)


def by_codecfleet(machine: SimulatedNode) -> Started:
    """`codecfleet node start`."""
    offer = offer_of(simulated_report(machine))
    return Started(machine, offer.gpus, {} if offer.cuda_visible is None else {CUDA_VARIABLE: offer.cuda_visible})


WAYS: list[Callable[..., Started]] = [plain, by_number, kuberay, private]


def opened(machine: SimulatedNode) -> FakeNvml:
    """Return the initialised NVML of a machine."""
    nvml = FakeNvml(machine)
    nvml.nvmlInit()
    return nvml


def _gpus(machine: SimulatedNode) -> list[SimulatedDevice]:
    return [device for device in machine.devices if device.kind is not DeviceKind.CPU]


class RayWorld(World):
    """A world whose workers find out which GPU Ray assigned to them, as real workers do.

    Ray chooses the GPU of a bundle; here it begins with the last GPUs.
    """

    def __init__(self, started: Started) -> None:
        super().__init__()
        self._how = started
        self.free = list(started.identifiers)
        self._bundles: dict[str, str] = {}
        machine = started.machine
        report = simulated_report(machine)
        probed = node_of_report(report, node="g", cuda_visible=started.environment.get(CUDA_VARIABLE))
        container = started.environment.get(CONTAINER_VARIABLE)
        assert probed.shown is not None
        probed = replace(probed, shown=replace(probed.shown, container=container))
        self.ray = RayNode(node="g", name="host", cores=machine.cores, free_cores=machine.cores, gpus=started.gpus)
        self.listed = [gpu.device for gpu in probed.gpus]
        self.feed(NodesSeen((self.ray,)))
        self.feed(Probed(probed))

    def carry_out(self, effect: Effect) -> None:
        """Reserve GPUs as Ray does, and release them with the last worker of their bundle."""
        match effect:
            case Reserve(worker, station) if station.kind.takes_gpu and not self._reserve(station.station.bundle):
                self.pending += decided(self.core, NotReserved(worker, "Ray has no free GPU"), self.now_s)
                return
            case Stop(worker):
                bundle = worker.station.bundle
                books = self.core.state.stations.values()
                if not any(book.station.station.bundle == bundle and book.facts for book in books):
                    self.free += [self._bundles.pop(bundle)] if bundle in self._bundles else []
        super().carry_out(effect)

    def _reserve(self, bundle: str) -> bool:
        if bundle not in self._bundles and self.free:
            self._bundles[bundle] = self.free.pop()
        return bundle in self._bundles

    def _slice_for(self, start: Start) -> str:
        if not start.station.kind.takes_gpu:
            return ""
        environment = dict(self._how.environment)
        nvml = opened(self._how.machine)
        if self._how.is_private:
            taken = narrow_to(start.device.removeprefix("g/"), environment, nvml)
            assert environment[CUDA_VARIABLE]
            return taken.identity
        given = [self._bundles[start.station.station.bundle]]
        station = start.station
        taken = narrow(given, environment, nvml, part=station.station.part, counts_slices=station.counts_slices)
        assert bool(taken.identity) == bool(environment[CUDA_VARIABLE])
        return taken.identity

    def run_job(self) -> dict[str, int]:
        """Report a job that needs GPUs and takes all it can; return its slots by worker."""
        plain_job = plain_demand("j", 400)
        fast = (replace(plain_job.renditions[0], preset="1"),)
        decode = CodecCase(MediaCodec.H264, Direction.DECODE)
        wanted = JobReport(replace(plain_job, decode=decode, segments=(2000,) * 400, renditions=fast, needs_gpu=True))
        for _ in range(4):
            slots = self.say("one", wanted).slots["j"]
            self.wait(1)
        return slots

    def devices(self) -> dict[str, Device]:
        """Return the usable GPUs and slices."""
        (node,) = effective_nodes(self.core.state.nodes, self.core.state.stations)
        return {device.device: device for device in node.devices if device.kind is not DeviceKind.CPU}

    def served(self) -> set[str]:
        """Return the devices that have a worker."""
        return {
            book.device
            for book in self.core.state.stations.values()
            if book.state is StationState.READY and book.device
        }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [name for name in MACHINES if name not in ("four", "one not cut")])
def test_every_device_has_a_worker(machines: dict[str, SimulatedNode], kind: str, way: Callable[..., Started]) -> None:
    """All devices of a machine are open, each has one worker, and the job has its slots, however Ray was started."""
    world = RayWorld(way(machines[kind]))
    slots = world.run_job()
    devices = world.devices()
    assert {device.state for device in devices.values()} == {DeviceState.OPEN}
    assert world.served() == set(devices)
    assert len(slots) == len(devices)
    assert StationState.QUARANTINED not in {book.state for book in world.core.state.stations.values()}


@pytest.mark.parametrize("way", [plain, by_number, private])
@pytest.mark.parametrize("visible", ["2", "uuid", "prefix", "2,9,0", "2,-1"])
def test_hidden_gpus_are_not_used(
    machines: dict[str, SimulatedNode], visible: str, way: Callable[..., Started]
) -> None:
    """Only the GPU in Ray's CUDA_VISIBLE_DEVICES gets work; the reasons for the other GPUs name what hides them."""
    uuids = [device.uuid for device in _gpus(machines["four"])]
    text = {"uuid": uuids[2], "prefix": uuids[2][:12]}.get(visible, visible)
    started = way(machines["four"], {CUDA_VARIABLE: text})
    world = RayWorld(replace(started, gpus=1))
    assert world.run_job()
    assert world.served() == {uuids[2]}
    for name, device in world.devices().items():
        expected = DeviceState.OPEN if name == uuids[2] else DeviceState.CORDONED
        assert device.state is expected
        assert name == uuids[2] or f'hidden from Ray by CUDA_VISIBLE_DEVICES, which is "{text}"' in device.state_reason


def test_a_gpu_without_slices_blocks_no_other(machines: dict[str, SimulatedNode]) -> None:
    """A worker to which Ray assigns a GPU without slices holds it until the next worker has the other GPU."""
    world = RayWorld(plain(machines["one not cut"]))
    slots = world.run_job()
    (whole,) = world.devices()
    assert world.served() == {whole}
    assert len(slots) == 1
    log = [note.line for note in world.notes]
    assert any("the GPU that Ray gave this worker lacks the worker's slice" in line for line in log)
    assert world.core.state.stations["g/gpu#0"].state is StationState.EMPTY


def test_slices_that_share_a_gpu_reserve_it_once(machines: dict[str, SimulatedNode]) -> None:
    """Each of the three workers requests the same bundle, with the policy's share of one GPU."""
    world = RayWorld(plain(machines["three slices"]))
    asked: list[Reserve] = []
    carry_out = world.carry_out

    def note(effect: object) -> None:
        if isinstance(effect, Reserve) and effect.gpus:
            asked.append(effect)
        carry_out(effect)  # type: ignore[arg-type]

    world.carry_out = note  # type: ignore[method-assign]
    world.run_job()
    assert [each.station.station for each in asked] == ["g/gpu#0", "g/gpu#0.1", "g/gpu#0.2"]
    assert {(each.station.station.bundle, each.gpus, each.station.sharers) for each in asked} == {("g/gpu#0", 0.51, 3)}


def wanted(**changes: object) -> JobReport:
    """Return a client's report of a job that needs GPUs."""
    decode = CodecCase(MediaCodec.H264, Direction.DECODE)
    return JobReport(replace(plain_demand("j", 40), decode=decode, needs_gpu=True, **changes))


def test_a_job_that_no_gpu_can_ever_serve_ends_with_the_reason(machines: dict[str, SimulatedNode]) -> None:
    """The job gets the reason at once (here, Ray sees no GPU); after 30 s without a GPU, the job is ended."""
    world = RayWorld(Started(machines["four"], 1, {CUDA_VARIABLE: "9"}))
    first = world.say("one", wanted())
    assert "hidden from Ray by CUDA_VISIBLE_DEVICES" in first.waiting["j"]
    assert first.broken == {}
    for _ in range(29):
        world.wait(1)
        assert world.say("one", wanted()).broken == {}
    world.wait(1)
    assert "no GPU became available for it within 30 s: no device can do it" in world.say("one", wanted()).broken["j"]


def test_a_job_whose_gpu_ray_never_gives_ends_with_the_reason(machines: dict[str, SimulatedNode]) -> None:
    """If other work in Ray has the GPU, the job learns this within seconds, and does not wait for ever."""
    world = RayWorld(plain(machines["passed through"]))
    carry_out = world.carry_out

    def refuse(effect: object) -> None:
        if isinstance(effect, Reserve):
            refused = NotReserved(effect.worker, "Ray reserved nothing within 10 s")
            world.pending += decided(world.core, refused, world.now_s)
        else:
            carry_out(effect)  # type: ignore[arg-type]

    world.carry_out = refuse  # type: ignore[method-assign]
    said = [_after_a_second(world) for _ in range(32)]
    assert said[4].waiting == {"j": "Ray reserved nothing within 10 s"}
    assert said[28].broken == {}
    assert said[31].broken == {"j": "no GPU became available for it within 30 s: Ray reserved nothing within 10 s"}
    world.carry_out = carry_out  # type: ignore[method-assign]
    world.wait(1)
    served = _after_a_second(world)
    assert (bool(served.slots["j"]), served.broken) == (True, {})


def test_a_job_that_waits_for_other_jobs_is_not_given_up(machines: dict[str, SimulatedNode]) -> None:
    """A job waits for the job that has the GPU's slots, because that job will release them."""
    world = RayWorld(plain(machines["passed through"]))
    for _ in range(3):
        slots = world.say("one", wanted(workers_max=None)).slots["j"]
        world.wait(1)
    for _ in range(40):
        world.say("one", replace(wanted(), held=slots))
        assert world.say("two", wanted()).broken == {}
        world.wait(1)


def test_two_ray_nodes_of_one_host_serve_all_their_slices(machines: dict[str, SimulatedNode]) -> None:
    """Both nodes list both GPUs, but each node has only one; the GPU of the other node gets no station."""
    world = World()
    report = simulated_report(machines["two cut alike"])
    cores = machines["two cut alike"].cores
    world.feed(
        NodesSeen(tuple(RayNode(node=n, name="host", cores=cores, free_cores=cores, gpus=1) for n in ("a", "b")))
    )
    probed = [node_of_report(report, node=name, cuda_visible=number) for name, number in (("a", "0"), ("b", "1"))]
    slices = [device.device for device in probed[0].devices if device.kind is DeviceKind.MIG]
    world.gpus = {"a/gpu#0": slices[0], "b/gpu#0": slices[2]}
    for node in probed:
        world.feed(Probed(node))
    world.say("one", wanted(segments=(2000,) * 400))
    served = {
        book.device for book in world.core.state.stations.values() if book.state is StationState.READY and book.device
    }
    assert served == set(slices)


def test_a_device_that_ray_gave_unannounced_is_still_judged_by_its_health(machines: dict[str, SimulatedNode]) -> None:
    """A device that a worker got is open, even if Ray was not expected to assign it; damage still closes it."""
    world = RayWorld(plain(machines["four"]))
    uuids = [device.uuid for device in _gpus(machines["four"])]
    world.feed(NodesSeen((replace(world.ray, gpus=2),)))
    world.gpus = {"g/gpu#0": uuids[0], "g/gpu#1": uuids[3]}
    world.run_job()
    assert world.devices()[uuids[3]].state is DeviceState.OPEN
    nvml = FakeNvml(machines["four"])
    nvml.device(uuids[3]).ecc_uncorrected = 1
    polled = HealthPoll(nvml).poll(frozenset())
    assert isinstance(polled, tuple)
    world.feed(HealthSeen("g", polled))
    assert world.devices()[uuids[3]].state is DeviceState.QUARANTINED


def _after_a_second(world: RayWorld) -> Grants:
    world.wait(1)
    return world.say("one", wanted())
