"""Nodes and devices as people and programs read them: what there is, without judging it."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from ..device_values import device_condition
from ..grouping import counted, equal_groups
from ..node.listed import ListedNode
from ..probes.node.report import DeviceTrials, NodeReport, SilentNode, to_json
from ..probes.node.verdicts import verdicts
from ..probes.report.absence import Maybe, Unavailable, known
from ..probes.report.device_report import DeviceReport, MigProfile, MigReport
from ..probes.report.engines import Engine
from ..text_lines import gigabytes, wrapped
from .capability_matrix import all_trials, capability_matrix
from .findings import findings, needs_repair
from .report_lines import device_head, engine_counts, engine_text, paged, sharing, slice_head

DOCUMENT_SCHEMA: Final = 1

Reports = Sequence[NodeReport | SilentNode]


def device_units(report: NodeReport) -> list[tuple[str, str, DeviceReport | None]]:
    """Return (device, kind, GPU) of all that work can be pinned to on a machine, its processor aside.

    A GPU that hosts vGPUs is left out: its engines belong to its guests.
    """
    units: list[tuple[str, str, DeviceReport | None]] = []
    for gpu in report.gpus:
        if hosts_vgpus(gpu):
            continue
        if gpu.is_cut:
            units += [(part.uuid, f"{gpu.name} MIG {part.profile}", gpu) for part in gpu.slices]
        else:
            units.append((gpu.key, gpu.name, gpu))
    return units or [(device.device, device.kind, None) for device in report.devices if not report.gpus]


def hosts_vgpus(gpu: DeviceReport) -> bool:
    """Return whether a GPU's engines belong to the vGPU guests of this machine."""
    return gpu.virtualization == "host vgpu"


def device_lines(reports: Reports, *, every: bool = False) -> Iterator[str]:
    """Yield the devices with their engines: of one machine, or with ``every``, each with its UUID, memory and use."""
    yield from paged(reports, _each_device if every or len(reports) == 1 else _equal_devices)
    if not every and len(reports) > 1:
        yield "UUIDs, memory and use of each: codecfleet devices --all"


def _each_device(report: NodeReport) -> Iterator[str]:
    trials = report.trials_by_device
    for gpu in report.gpus:
        yield from _device(gpu, trials)
    if not report.gpus:
        yield from (f"  device {device.device}: {device.kind}" for device in report.devices)
    yield f"  CPU: {counted(report.host.cores, 'software engine')}"


def _equal_devices(report: NodeReport) -> Iterator[str]:
    """Yield the devices of a machine without what distinguishes equal ones."""
    trials = report.trials_by_device
    texts = [text for gpu in report.gpus for text in _kinds(gpu, trials)]
    texts += [device.kind for device in report.devices if not report.gpus]
    for group in equal_groups(texts, lambda text: text):
        yield from wrapped(f"{len(group)} x {group[0]}", "  ")
    yield f"  CPU: {counted(report.host.cores, 'software engine')}"


def _kinds(gpu: DeviceReport, trials: dict[str, DeviceTrials]) -> Iterator[str]:
    if not isinstance(gpu.mig, Unavailable) and gpu.mig.enabled and gpu.mig.slices:
        for part in gpu.mig.slices:
            engines = engine_text(part.engines, trials.get(part.uuid))
            yield f"{gpu.name} MIG {part.profile}: {engines}{sharing(gpu.mig, part)}"
        return
    engines = engine_text(gpu.engines, trials.get(gpu.key))
    mode = known(gpu.virtualization, "none")
    lost = f"; LOST: {gpu.health.lost}" if gpu.health.lost else ""
    yield f"{gpu.name}{'' if mode == 'none' else f', {mode}'}: {engines}{lost}"


def _device(gpu: DeviceReport, trials: dict[str, DeviceTrials]) -> Iterator[str]:
    yield from wrapped(device_head(gpu), "  ")
    yield f"    {gpu.key} at {known(gpu.pci_bus_id, 'an unknown bus id')}"
    if not isinstance(gpu.mig, Unavailable) and gpu.mig.enabled:
        for part in gpu.mig.slices:
            counts = engine_text(part.engines, trials.get(part.uuid))
            yield from wrapped(f"{slice_head(gpu.mig, part)}, {counts}", "    ")
    else:
        yield from wrapped(f"engines: {engine_text(gpu.engines, trials.get(gpu.key))}", "    ")
    if use := _use(gpu):
        yield from wrapped(f"in use: {use}", "    ")
    if gpu.health.lost:
        yield from wrapped(f"LOST: {gpu.health.lost}", "    ")


def _use(gpu: DeviceReport) -> str:
    use = gpu.use
    parts = percents({"decoder": use.decoder_percent, "encoder": use.encoder_percent, "memory bus": use.memory_percent})
    if not isinstance(gpu.use.processes, Unavailable):
        count = len(gpu.use.processes)
        parts.append(f"{count} process{'' if count == 1 else 'es'}")
    return ", ".join(parts)


def percents(rates: dict[str, Maybe[int]]) -> list[str]:
    """Return rates in words, without those that are not known."""
    return [f"{name} {percent} %" for name, percent in rates.items() if not isinstance(percent, Unavailable)]


def mig_lines(reports: Reports) -> Iterator[str]:
    """Yield MIG on every device: whether it is on, the instances, and the profiles that could be made."""
    yield from paged(reports, _mig_of)


def _mig_of(report: NodeReport) -> Iterator[str]:
    if not report.gpus:
        yield "  no NVIDIA devices"
    trials = report.trials_by_device
    for gpu in report.gpus:
        yield f"  GPU {gpu.index}: {gpu.name}"
        if isinstance(gpu.mig, Unavailable):
            yield from wrapped(f"no MIG: {gpu.mig.reason}", "    ")
        else:
            yield from _mig(gpu.mig, trials)


def _mig(mig: MigReport, trials: dict[str, DeviceTrials]) -> Iterator[str]:
    after = "" if mig.enabled == mig.pending else f", {'on' if mig.pending else 'off'} after a reset"
    room = f"; at most {mig.slices_max} instances" if mig.enabled else ""
    yield f"    MIG is {'on' if mig.enabled else 'off'}{after}{room}"
    for part in mig.slices:
        yield from wrapped(slice_head(mig, part), "    ")
        yield f"      engines: {engine_text(part.engines, trials.get(part.uuid))}"
    for profile in mig.profiles:
        yield from wrapped(f"profile {_profile(profile)}", "    ")


def _profile(profile: MigProfile) -> str:
    free, most = profile.instances_free, profile.instances_max
    room = f"at most {most}" if isinstance(free, Unavailable) else f"{free} of {most} free"
    return f"{profile.name}: {gigabytes(profile.memory_bytes)}, {engine_text(profile.engines, None)}, {room}"


def nodes_document(reports: Reports, listed: Sequence[ListedNode] = ()) -> dict[str, Any]:
    """Return the inventory of machines as a JSON document; a cluster's are ``listed``, too."""
    nodes = [_node(report) for report in reports]
    for node, in_ray in zip(nodes, listed, strict=False):
        node["ray"] = in_ray.to_json()
    return {"schema": DOCUMENT_SCHEMA, "nodes": nodes}


def _node(report: NodeReport | SilentNode) -> dict[str, Any]:
    if isinstance(report, SilentNode):
        return {"node": report.name, "error": report.reason}
    judged = verdicts(report)
    return {
        "node": report.host.name,
        "simulated": report.simulated,
        "cores": report.host.cores,
        "memory_bytes": report.host.memory_bytes,
        "driver": report.driver,
        "driver_choice": report.driver_choice.words,
        "devices": [
            {"device": device, "kind": kind} | ({} if gpu is None else device_condition(gpu, report, judged, device))
            for device, kind, gpu in device_units(report)
        ],
    }


def devices_document(reports: Reports, part: str) -> dict[str, Any]:
    """Return devices as a JSON document; ``part`` is "all", "mig" or "vgpu"."""
    return {"schema": DOCUMENT_SCHEMA, "nodes": [_devices_of(report, part) for report in reports]}


def _devices_of(report: NodeReport | SilentNode, part: str) -> dict[str, Any]:
    if isinstance(report, SilentNode):
        return {"node": report.name, "error": report.reason}
    whole = to_json(report)
    found: dict[str, Any] = {"node": report.host.name, "simulated": report.simulated}
    gpus = whole["nvml"]["devices"] if report.gpus else []
    if part == "mig":
        return found | {"devices": [{key: gpu[key] for key in ("index", "uuid", "name", "mig")} for gpu in gpus]}
    if part == "vgpu":
        return found | {"hosts": whole["vgpu_hosts"], "guests": whole["vgpu_guests"]}
    counts = {
        device.device: {engine.value: count for engine, (count, _) in engine_counts((), device).items()}
        for device in report.devices
    }
    return found | {"devices": gpus, "engines_tried": counts, "cpu": {Engine.CPU.value: report.host.cores}}


def doctor_document(reports: Reports) -> dict[str, Any]:
    """Return what doctor says as a JSON document: per machine its whole report, and what is made of it."""
    nodes = [_diagnosis(report) for report in reports]
    return {"schema": DOCUMENT_SCHEMA, "healthy": all(node["healthy"] for node in nodes), "nodes": nodes}


def _diagnosis(report: NodeReport | SilentNode) -> dict[str, Any]:
    if isinstance(report, SilentNode):
        return {"node": report.name, "healthy": False, "error": report.reason}
    found = findings(report)
    return {
        "node": report.host.name,
        "healthy": not needs_repair(found),
        "findings": [asdict(finding) | {"weight": finding.weight.value} for finding in found],
        "verdicts": [
            asdict(verdict) | {"state": verdict.state.value, "stops": verdict.stops.value}
            for verdict in verdicts(report)
        ],
        "matrix": [
            {
                "codec": row.codec.value,
                "chroma": row.chroma,
                "bit_depth": row.bit_depth,
                "decode": row.decode.way.value,
                "decode_known": row.decode.how and row.decode.how.value,
                "encode": row.encode.way.value,
                "encode_known": row.encode.how and row.encode.how.value,
            }
            for row in capability_matrix(all_trials(report))
        ],
        "report": to_json(report),
    }
