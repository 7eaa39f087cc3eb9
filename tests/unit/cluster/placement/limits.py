"""The limits that every placement keeps, as assertions, whatever the machines, jobs and policy."""

from collections import defaultdict
from collections.abc import Sequence

from codecfleet.cluster.placement.assign.recipes import Recipe, RecipeRequest, SessionStages
from codecfleet.cluster.placement.model.demand import Demand
from codecfleet.cluster.placement.model.inventory import Device, DeviceState, Inventory, Node
from codecfleet.cluster.placement.model.placement import Lane, Placement
from codecfleet.cluster.placement.model.policy import Policy, PreemptibleUse
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.gpus.hardware import MIB
from codecfleet.cluster.probes.report.device_kinds import DeviceKind, Route
from codecfleet.cluster.probes.report.engines import Engine

RATES = start_rates()
SLACK = 1e-6
ENGINES_OF = {
    Route.GPU: {Engine.NVDEC, Engine.NVENC},
    Route.HYBRID: {Engine.NVDEC, Engine.CPU},
    Route.UPLOAD: {Engine.NVENC, Engine.CPU},
    Route.CPU: {Engine.CPU},
}


def homes(inventory: Inventory) -> dict[str, tuple[Node, Device]]:
    """Return every device with its node, by the device's name."""
    return {device.device: (node, device) for node in inventory.nodes for device in node.devices}


def _recipe(lane: Lane, demand: Demand, node: Node, device: Device, policy: Policy) -> Recipe:
    processor = next(each for each in node.devices if each.kind is DeviceKind.CPU)
    stages = SessionStages.of(demand, lane.kinds, RATES.hardware.host)
    found = RecipeRequest(stages, device, RATES, policy, processor.name, node.speed).recipes()
    assert not isinstance(found, str), found
    return next(recipe for recipe in found if recipe.route is lane.route)


Booked = Sequence[tuple[Lane, Recipe, Node, Device]]
"""Each lane with what a session of it takes, and where it is."""


def check(placement: Placement, demands: Sequence[Demand], inventory: Inventory, policy: Policy) -> None:
    """Check every limit."""
    places, by_job = homes(inventory), {demand.job: demand for demand in demands}
    booked = [
        (lane, _recipe(lane, by_job[lane.job], *places[lane.device], policy), *places[lane.device])
        for lane in placement.lanes
    ]
    _engines(booked)
    _caps(booked)
    _memory(booked, inventory, policy)
    _policy(booked, inventory, policy)
    _states(booked)
    _kinds(placement, demands)
    _sessions(placement, demands)


def _engines(booked: Booked) -> None:
    """The load of an engine, in sessions of full speed, does not exceed the point where its curve becomes flat."""
    loads, flat = defaultdict[tuple[str, str], float](float), dict[tuple[str, str], float]()
    for lane, recipe, _, device in booked:
        for use in recipe.engines:
            key = (device.device, use.engine)
            loads[key] += lane.sessions * use.load
            flat[key] = max(flat.get(key, 0), use.load_most)
    assert all(load <= flat[key] + SLACK for key, load in loads.items())


def _caps(booked: Booked) -> None:
    """Encoder sessions keep the caps of a device, of a GPU with all its slices, and of a machine."""
    opened, most = defaultdict[str, int](int), dict[str, int]()
    for lane, _, node, device in booked:
        sessions = lane.sessions * sum(kind.is_nvenc for kind in lane.kinds)
        for name in {device.device, device.parent or device.device}:
            opened[name] += sessions
            if device.encoder_sessions_max is not None:
                most[name] = min(most.get(name, device.encoder_sessions_max), device.encoder_sessions_max)
        opened[node.node] += sessions
        if node.system_encoder_sessions_max is not None:
            most[node.node] = node.system_encoder_sessions_max
    assert all(opened[name] <= cap for name, cap in most.items())


def _memory(booked: Booked, inventory: Inventory, policy: Policy) -> None:
    """Sessions and one context fit into the free memory of a device, less a reserve, and of the host.

    A single session may take all memory of its host.
    """
    on_device, on_host = defaultdict[str, int](int), defaultdict[str, int](int)
    sessions = defaultdict[str, int](int)
    for lane, recipe, node, device in booked:
        on_host[node.node] += lane.sessions * recipe.host_bytes
        sessions[node.node] += lane.sessions
        if device.kind is not DeviceKind.CPU:
            on_device[device.device] += lane.sessions * recipe.device_bytes
    context = RATES.hardware.memory.context_mib * MIB
    for node in inventory.nodes:
        if node.memory_bytes is not None:
            reserve = 0.0 if sessions[node.node] == 1 else policy.memory_reserve
            assert on_host[node.node] <= node.memory_bytes * (1 - reserve)
        for device in node.devices:
            if device.device in on_device and device.free_memory_bytes is not None:
                assert on_device[device.device] + context <= device.free_memory_bytes * (1 - policy.memory_reserve)


def _policy(booked: Booked, inventory: Inventory, policy: Policy) -> None:
    """Cores, sessions on a device, engines and preemptible nodes never exceed the policy."""
    cores, sessions = defaultdict[str, float](float), defaultdict[str, int](int)
    for lane, _, node, device in booked:
        assert ENGINES_OF[lane.route] <= policy.engines
        cores[node.node] += lane.cores
        if device.kind is not DeviceKind.CPU:
            sessions[device.device] += lane.sessions
        if node.preemptible:
            assert policy.preemptible is not PreemptibleUse.NEVER
    assert all(count <= policy.sessions_per_device for count in sessions.values())
    for node in inventory.nodes:
        count = sum(device.engines[Engine.CPU] for device in node.devices if device.kind is DeviceKind.CPU)
        assert cores[node.node] <= max(0, count - policy.cores_reserved) * policy.sessions_per_core + SLACK


def _states(booked: Booked) -> None:
    """Nothing runs on a closed device, and each lane uses one host."""
    for lane, _, node, device in booked:
        assert lane.node == node.node == device.node
        assert node.state is DeviceState.OPEN
        assert device.state is DeviceState.OPEN


def _kinds(placement: Placement, demands: Sequence[Demand]) -> None:
    """All lanes of a job use the same kinds of encoder, and a track that has begun keeps its kind."""
    for demand in demands:
        kinds = {lane.kinds for lane in placement.lanes if lane.job == demand.job}
        assert len(kinds) <= 1
        for settled in kinds:
            fixed = [rendition.kind for rendition in demand.renditions]
            assert all(before in (None, after) for before, after in zip(fixed, settled, strict=True))


def _sessions(placement: Placement, demands: Sequence[Demand]) -> None:
    """A job has at most one session for each segment, and no more sessions than its limit."""
    for demand in demands:
        sessions = sum(lane.sessions for lane in placement.lanes if lane.job == demand.job)
        assert sessions <= min(len(demand.segments), demand.workers_max or len(demand.segments))
