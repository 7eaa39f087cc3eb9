"""The cores beside a GPU: reserved by the worker that encodes on them, and promised to no other worker."""

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.worker.heartbeat import WorkerFacts
from codecfleet.cluster.machine import CORES_PER_PROCESS
from codecfleet.cluster.placement.build import documented_devices
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.cluster.placement.model.inventory import Device, DeviceState, processor_of
from codecfleet.cluster.placement.model.placement import Lane
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.probes.gpus.devices import probe_nvml
from codecfleet.cluster.probes.report.device_kinds import DeviceKind, Route
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, MediaCodec
from codecfleet.cluster.probes.report.gpu_identity import Units
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.cluster.supervisor.core.assigning import cores_for
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.core.effective import effective_nodes, reservable_cores
from codecfleet.cluster.supervisor.state.events import NodesSeen, Renewed, Reserve, Reserved, Start, Started
from codecfleet.cluster.supervisor.state.messages import ClientReport, JobReport, RayNode
from codecfleet.cluster.supervisor.state.nodes import NodeBook
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.cluster.supervisor.state.stations import Station, StationBook, StationState, stations_of
from codecfleet.cluster.worker_names import StationId
from codecfleet.testing.nvml.fake_nvml import FakeNvml

from ..core_worlds import decided

GPU, CPU = DeviceKind.GPU, DeviceKind.CPU


def lane(sessions: int, cores: float, *, job: str = "j", node: str = "n", route: Route = Route.HYBRID) -> Lane:
    """Return a lane."""
    return Lane(
        job=job,
        node=node,
        device=f"{node}/x",
        route=route,
        sessions=sessions,
        fps=1.0,
        cores=cores,
        memory_bytes=0,
        kinds=(),
        reason="",
    )


def station(
    kind: DeviceKind, state: StationState = StationState.EMPTY, *, slots: int = 8, reserved: int = 0
) -> StationBook:
    """Return a station of node n, with a process if its state has one."""
    name = StationId.of("n", DeviceKind.GPU if kind is GPU else DeviceKind.CPU, 0)
    book = StationBook(Station(name, slots), state, reserved_cores=reserved)
    if state is StationState.READY:
        book.occupy(WorkerFacts(7, slots, "n/x" if kind is GPU else ""))
    return book


@given(
    sessions=st.integers(1, 64),
    cores=st.floats(0, 64, allow_nan=False),
    assigned=st.integers(0, 64),
    others=st.integers(0, 9),
)
def test_a_gpu_needs_the_cores_of_its_slots(sessions: int, cores: float, assigned: int, others: int) -> None:
    """A GPU needs its share of its lanes' cores, rounded up; other jobs, nodes and processors do not count."""
    lanes = [
        lane(sessions, cores),
        lane(1, 50.0, job="k"),
        lane(1, 50.0, node="m"),
        lane(1, 50.0, route=Route.CPU),
    ]
    wanted = ceil(assigned * cores / sessions) if assigned else 0
    assert cores_for(station(GPU), {"j": assigned} if assigned else {}, lanes) == wanted
    both = cores_for(station(GPU), {"j": assigned, "k": others}, lanes)
    assert both == ceil(assigned * cores / sessions + others * 50.0)


def test_a_processor_needs_a_core_for_each_slot() -> None:
    """A processor needs a core for each slot, whatever it is assigned."""
    assert cores_for(station(CPU, slots=5), {"j": 1}, [lane(1, 99.0)]) == 5


@given(wanted=st.integers(0, 40), free=st.integers(-3, 40))
def test_no_more_cores_are_reserved_than_are_free(wanted: int, free: int) -> None:
    """A GPU at once takes the cores that are free, or none; if none is free, a processor waits for all it wants."""
    left = {"n": free}
    taken = reservable_cores(station(GPU), wanted, left)
    assert taken == min(wanted, max(0, free))
    assert left["n"] == free - taken
    left = {"n": free}
    taken = reservable_cores(station(CPU), wanted, left)
    assert taken == (min(wanted, free) if free > 0 else wanted)


def _slots(free: int, *books: StationBook) -> int:
    node = NodeBook(RayNode(node="n", name="n", cores=16, free_cores=free))
    (known,) = effective_nodes([node], {f"{place}": book for place, book in enumerate(books)})
    (processor,) = [device for device in known.devices if device.kind is CPU]
    return processor.engines[Engine.CPU]


def test_a_gpus_cores_still_count_for_the_processor() -> None:
    """Cores reserved by a GPU's worker still count for placement; with free cores, they make up the node."""
    assert _slots(16, station(CPU, slots=16), station(GPU)) == 16
    assert _slots(10, station(CPU, slots=16), station(GPU, StationState.STARTING, reserved=6)) == 16
    assert _slots(10, station(CPU, slots=16), station(GPU, StationState.READY, reserved=6)) == 16
    assert _slots(4, station(CPU, slots=16), station(GPU, StationState.READY, reserved=6)) == 10
    assert (
        _slots(0, station(CPU, StationState.READY, slots=10, reserved=10), station(GPU, StationState.READY, reserved=6))
        == 16
    )
    assert _slots(16, station(CPU, slots=16), station(GPU, StationState.LEAVING, reserved=6)) == 16


@pytest.fixture(scope="module")
def machine() -> tuple[Device, ...]:
    """The GPUs of a simulated machine with eight H200s, known only by name and tables."""
    node = next(each for each in load_fleet("h200-l40s").nodes if each.name == "h200")
    return documented_devices(probe_nvml(FakeNvml(node)), "n")


def test_tables_know_a_gpu_before_its_trial(machine: tuple[Device, ...]) -> None:
    """A whole H200 has seven NVDECs with the codecs in the tables, no NVENC, and an identity of its own."""
    assert len({device.device for device in machine}) == len(machine) == 8
    for device in machine:
        assert (device.node, device.kind, device.state) == ("n", GPU, DeviceState.OPEN)
        assert device.engines[Engine.NVDEC] == 7
        assert device.engines.get(Engine.NVENC, 0) == 0
        decodes = {trial.case.codec for trial in device.trials if trial.works and trial.engine is Engine.NVDEC}
        assert {MediaCodec.H264, MediaCodec.HEVC, MediaCodec.VP9} <= decodes
        assert MediaCodec.AV1 not in decodes
        assert not [trial for trial in device.trials if trial.works and trial.case.direction is Direction.ENCODE]


def test_an_unknown_gpu_can_do_nothing() -> None:
    """A GPU of an unknown model is listed, but gets no work before its trial."""
    node = next(each for each in load_fleet("h200-l40s").nodes if each.name == "h200")
    strange = replace(node, devices=tuple(replace(each, name="Strange GPU") for each in node.devices[:1]))
    (device,) = documented_devices(probe_nvml(FakeNvml(strange)), "n")
    assert (device.name, device.trials) == ("Strange GPU", ())
    assert not device.can(CodecCase(MediaCodec.H264, Direction.DECODE), Engine.NVDEC)


def test_a_job_is_decoded_on_a_gpu_before_any_probe(machine: tuple[Device, ...]) -> None:
    """The first job finds the GPU: a worker is reserved with the cores that encode, and the job gets its slots."""
    core = Core(SupervisorSettings(idle_release_s=30), Policy(), 1, 0.0)
    decided(
        core, NodesSeen((RayNode(node="n", name="host", cores=12, free_cores=12, gpus=1, devices=machine[:1]),)), 0.0
    )
    wanted = replace(plain_demand("j", 100), needs_gpu=True)
    effects = decided(core, Renewed(ClientReport("one", "driver", 1, (JobReport(wanted, {}),))), 0.0)
    (reserve,) = [effect for effect in effects if isinstance(effect, Reserve)]
    (placed,) = core.state.plans.placement.lanes
    assert (reserve.station.station, placed.route) == ("n/gpu#0", Route.HYBRID)
    assert reserve.cores == min(12, ceil(placed.cores)) > 0
    (start,) = [
        effect for effect in decided(core, Reserved(reserve.worker, reserve.cores), 0.0) if isinstance(effect, Start)
    ]
    assert start.station.kind.takes_gpu
    decided(core, Started(reserve.worker, WorkerFacts(5, start.slots, machine[0].device)), 0.0)
    left = RayNode(node="n", name="host", cores=12, free_cores=12 - reserve.cores, gpus=1, devices=machine[:1])
    decided(core, NodesSeen((left,)), 1.0)
    assert core.state.capacity_slots == 12
    (again,) = core.state.plans.placement.lanes
    assert (again.device, again.sessions) == (placed.device, placed.sessions)


@given(st.integers(1, 2000))
def test_stations_hold_every_core(cores: int) -> None:
    """Every core belongs to a station, no station is empty or too large, and a node's stations are alike."""
    stations = stations_of(processor_of("n", "host", cores), 0, Units((), {}, counts_slices=False))
    assert sum(station.slots for station in stations) == cores
    assert all(1 <= station.slots <= CORES_PER_PROCESS for station in stations)
    assert max(station.slots for station in stations) - min(station.slots for station in stations) <= 1
    assert len({station.station for station in stations}) == len(stations)
