"""Builds the inventory from probe reports or a simulated fleet."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ..probes.gpus.hardware import load_hardware
from ..probes.report.absence import Unavailable, known
from ..probes.report.device_kinds import DeviceKind
from ..probes.report.device_report import DeviceReport, MemoryUse, why_unplaceable
from ..probes.report.engines import MEDIA_ENGINES, Engine, EngineCount, Trial
from ..probes.report.gpu_identity import ShownGpus, is_geforce, named, on_node
from ..probes.report.verdict import Diagnosis, Stops, grade_of, why_no_cuda, why_stopped
from ..probes.report.xids import broken_by_xid
from ..probes.vgpu.licence import fps_limit, licence_of
from ..simulated.devices import SimulatedDevice, SimulatedFleet, SimulatedNode
from ..worker_names import NodeId
from .model.inventory import Device, DeviceState, Inventory, Node, dlas_of, plain_type, processor

if TYPE_CHECKING:
    from ..probes.gpus.devices import NvmlReport
    from ..probes.node.report import NodeReport


HOST_OF_VGPUS = 3
_HOSTS_VGPUS = "it hosts vGPUs, whose guests have its engines"
_SHARE_UNKNOWN = "this vGPU's share of its GPU is unknown, so it counts as a whole GPU"


def node_of_report(report: "NodeReport", *, node: NodeId | None = None, cuda_visible: str | None = None) -> Node:
    """Return one probed machine, real or simulated.

    ``node`` is its id in the cluster, by default its host's name; ``cuda_visible`` is the CUDA_VISIBLE_DEVICES with
    which Ray was started on the machine; None if unset.
    """
    from ..probes.node.verdicts import verdicts  # noqa: PLC0415 - callers with a report have loaded this module; others do not need it

    name = node or NodeId(report.host.name)
    trials = {entry.device: entry.trials for entry in report.devices}
    judged = verdicts(report)
    found = [
        _as_probed(made, each, report, judged)
        for each in report.gpus
        for made in _devices_of(each, name, report.driver, trials)
    ]
    dla = report.tegra if isinstance(report.tegra, Unavailable) else report.tegra.dla
    return Node(
        node=name,
        name=report.host.name,
        devices=(*found, processor(name, report.host.cores, report.host.machine or "processor", report.software)),
        dlas=dlas_of(name, 0 if isinstance(dla, Unavailable) else dla.count),
        memory_bytes=report.host.memory_bytes,
        system_encoder_sessions_max=_system_cap(device.name for device in found),
        shown=shown_by(report, cuda_visible),
        pyav=report.host.packages.get("av", ""),
        release=report.host.packages.get("codecfleet", ""),
        machine_uuid=report.host.machine_uuid,
        search_path=report.driver_choice.search_path,
        driver_choice=report.driver_choice.words,
    )


def shown_by(report: "NodeReport", cuda_visible: str | None = None) -> ShownGpus:
    """Return a probed machine's GPUs by name, limited to GPUs that its container and Ray (``cuda_visible``) may use."""
    container = None if isinstance(report.container, Unavailable) else report.container.visible_devices
    return ShownGpus(tuple(map(named, report.gpus)), cuda_visible, container)


def _as_probed(device: Device, gpu: DeviceReport, report: "NodeReport", judged: tuple[Diagnosis, ...]) -> Device:
    """Return a device with its memory, licence and compatibility verdicts.

    A Tegra's GPU may allocate part of the shared memory (CUDA for Tegra, section 2.2). If CUDA does not work on a
    device, the device is put into quarantine.
    """
    uuid = known(gpu.uuid, "")
    own_uuid = device.device if device.kind.is_slice else uuid
    shared = report.tegra if isinstance(report.tegra, Unavailable) else report.tegra.allocatable
    if device.kind.is_integrated and not isinstance(shared, Unavailable):
        device = replace(device, free_memory_bytes=shared.allocatable_bytes)
    closed = why_no_cuda(judged, own_uuid) if device.state is DeviceState.OPEN else ""
    return replace(
        device,
        fps_max=None if device.parent else fps_limit(gpu.kind, licence_of(gpu.licences, report.taken_utc)),
        untried="" if device.trials else _why_untried(report),
        no_kernels=why_stopped(judged, Stops.KERNELS, own_uuid),
        compatibility=grade_of(judged, own_uuid),
        state=DeviceState.QUARANTINED if closed else device.state,
        state_reason=closed or device.state_reason,
    )


def _why_untried(report: "NodeReport") -> str:
    """Return why no codec could be tried on any GPU; "" if a codec could be tried."""
    package = report.pynvvideocodec
    if report.simulated:
        return ""
    found = package if isinstance(package, Unavailable) else package.picked
    return found.reason if isinstance(found, Unavailable) else ""


def documented_devices(nvml: "NvmlReport", node: NodeId) -> tuple[Device, ...]:
    """Return a machine's GPUs and slices with documented capabilities, before any trial.

    A device of an unknown model has no capabilities yet.
    """
    driver = known(nvml.driver_version, "")
    return tuple(
        _as_documented(device, report.name)
        for report in nvml.devices
        for device in _devices_of(report, node, driver, {})
    )


def _as_documented(device: Device, name: str) -> Device:
    model = load_hardware().model_of(name)
    if model is None:
        return device
    # NVML counts the engines of a slice, but not of a whole GPU.
    engines = dict(device.engines) if device.kind.is_slice else {**model.engines, **device.engines}
    return replace(device, engines=engines, trials=load_hardware().trials_of(name, model, engines))


def _devices_of(
    report: DeviceReport, node: NodeId, driver: str, trials: dict[str, tuple[Trial, ...]]
) -> Iterator[Device]:
    uuid = known(report.uuid, "")
    own = trials.get(uuid) or trials.get(str(report.index), ())
    architecture = known(report.architecture, "")
    state, reason = _state(report)
    share = guest_share(report.name) if report.kind.is_guest else 1.0
    whole = Device(
        device=on_node(node, named(report).identity),
        node=node,
        kind=report.kind,
        name=report.name,
        engines=_counts(report.engines, own, report.name),
        trials=own,
        architecture=load_hardware().architecture_of(report.name, architecture, known(report.compute_capability, ""))
        or architecture,
        driver=driver,
        max_video_clock_mhz=None if isinstance(report.max_video_clock_mhz, Unavailable) else report.max_video_clock_mhz,
        free_memory_bytes=None if report.kind.is_integrated else _free_bytes(report.memory),
        share=share or 1.0,
        share_unknown=_SHARE_UNKNOWN if share is None else "",
        state=state,
        state_reason=reason,
        hosts_vgpus=report.hosts_vgpus,
    )
    if isinstance(report.mig, Unavailable) or not report.mig.enabled:
        yield whole
        return
    for part in report.mig.slices:
        cut = replace(
            whole, trials=trials.get(part.uuid, ()), engines={each.engine: each.count for each in part.engines}
        )
        yield _slice_of(cut, part.uuid, part.profile, _free_bytes(part.memory), report.sharers_of(part))


def _slice_of(whole: Device, uuid: str, profile: str, free_bytes: int | None, sharers: int) -> Device:
    """Return a slice; compute instances of one GPU instance share the instance's engines and memory evenly."""
    return replace(
        whole,
        device=uuid,
        kind=DeviceKind.MIG,
        name=f"{whole.name} MIG {profile}",
        free_memory_bytes=None if free_bytes is None else free_bytes // sharers,
        share=whole.share / sharers,
        parent=whole.device,
    )


def _counts(asked: tuple[EngineCount, ...], trials: tuple[Trial, ...], name: str) -> dict[Engine, int]:
    """Return each kind's engine count: if it works, the driver's, a trial's or the documented one, else 1; 0 if not."""
    counts = {entry.engine: entry.count for entry in asked}
    model = load_hardware().model_of(name)
    documented = {} if model is None else model.engines
    for engine in MEDIA_ENGINES:
        working = [trial for trial in trials if trial.engine is engine and trial.works]
        reported = max((trial.engines or 0 for trial in working), default=0)
        if working:
            counts[engine] = counts.get(engine) or reported or documented.get(engine) or 1
        elif trials:
            counts[engine] = 0  # every case was refused, so a table that promises engines is wrong here
    return counts


def _state(report: DeviceReport) -> tuple[DeviceState, str]:
    if reason := why_unplaceable(report.health):
        return DeviceState.QUARANTINED, reason
    if report.hosts_vgpus:
        return DeviceState.CORDONED, _HOSTS_VGPUS
    return DeviceState.OPEN, ""


def _free_bytes(memory: MemoryUse | Unavailable) -> int | None:
    return None if isinstance(memory, Unavailable) else memory.free_bytes


def _system_cap(names: Iterable[str]) -> int | None:
    """Return the documented cap on encoder sessions of a machine with GeForce cards; None without such cards."""
    has_geforce = any(is_geforce(name) for name in names)
    return load_hardware().sessions.encoder_sessions_geforce_system if has_geforce else None


def inventory_of_fleet(fleet: SimulatedFleet) -> Inventory:
    """Return the inventory of a simulated fleet."""
    return Inventory(tuple(map(_simulated_node, fleet.nodes)))


def _simulated_node(node: SimulatedNode) -> Node:
    devices = [made for each in node.devices for made in _simulated_devices(each, node)]
    caps = [each.encoder_sessions_max for each in node.devices if is_geforce(each.name)]
    said = [cap for cap in caps if cap is not None]
    name = NodeId(node.name)
    return Node(
        node=name,
        name=node.name,
        devices=tuple(devices),
        dlas=dlas_of(name, sum(each.engines.get(Engine.DLA, 0) for each in node.devices)),
        preemptible=node.preemptible,
        memory_bytes=node.memory_bytes,
        speed=node.speed,
        system_encoder_sessions_max=min(said, default=_system_cap(each.name for each in node.devices)),
        state=DeviceState.CORDONED if node.cordoned else DeviceState.OPEN,
        state_reason=node.cordoned,
    )


def _simulated_devices(device: SimulatedDevice, node: SimulatedNode) -> Iterator[Device]:
    stable = f"{node.name}/{device.pci_bus_id}" if device.kind.is_guest else device.uuid
    hosts = device.virtualization == HOST_OF_VGPUS
    geforce = is_geforce(device.name)
    broken = broken_by_xid(device.xids)
    state = DeviceState.QUARANTINED if broken else DeviceState.CORDONED if hosts else DeviceState.OPEN
    whole = Device(
        device=stable,
        node=NodeId(node.name),
        kind=device.kind,
        name=device.name,
        engines={engine: count for engine, count in device.engines.items() if engine in device.kind.engines},
        trials=device.trials,
        architecture=load_hardware().architecture_of(device.name, device.architecture, device.compute_capability),
        driver=node.driver,
        max_video_clock_mhz=device.max_video_clock_mhz,
        free_memory_bytes=None if device.kind.is_processor else device.memory_bytes or None,
        encoder_sessions_max=None if geforce else device.encoder_sessions_max,
        share=device.share,
        state=state,
        state_reason=broken or (_HOSTS_VGPUS if hosts else ""),
        hosts_vgpus=hosts,
    )
    if not device.mig_enabled:
        yield whole
        return
    instances = [part.gpu_instance for part in device.slices]
    for part in device.slices:
        cut, sharers = replace(whole, engines=part.engines), instances.count(part.gpu_instance)
        yield _slice_of(cut, part.uuid, part.name, part.memory_bytes or None, sharers)


def guest_share(name: str) -> float | None:
    """Return the part of the GPU's engines that a vGPU has while all its neighbours are busy; None for unknown types.

    A type is named after its GPU and its frame buffer ("NVIDIA L40S-12Q"), and the GPU runs as many vGPUs as fit into
    its memory, each with an equal part of the engines. A guest cannot ask how many vGPUs run, nor which scheduler the
    host uses. A vGPU on a GPU instance has all of the engines that its guest sees. (NVIDIA Virtual GPU Software User
    Guide, "Virtual GPU Types" and "Changing Scheduling Behavior".)
    """
    wanted, hardware = plain_type(name), load_hardware()
    for gpu in hardware.vgpu:
        if any(plain_type(each.name) == wanted for each in hardware.vgpu_types_of(gpu, mig_enabled=True)):
            return 1.0
        for each in hardware.vgpu_types_of(gpu, mig_enabled=False):
            if plain_type(each.name) == wanted:
                return 1 / each.most
    return None
