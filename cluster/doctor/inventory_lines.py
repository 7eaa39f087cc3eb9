"""Formats nodes and devices as text and as JSON."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from ..device_values import device_condition
from ..grouping import counted, tallied
from ..node.listed import ListedNode
from ..probes.node.report import DeviceTrials, NodeReport, SilentNode, to_json
from ..probes.node.verdicts import verdicts
from ..probes.report.absence import Maybe, Unavailable, known
from ..probes.report.device_report import DeviceReport, MigReport
from ..probes.report.engines import Engine
from ..probes.vgpu.guest import GUEST_VIEWS
from ..text_lines import gigabytes, wrapped
from .capability_matrix import all_trials, capability_matrix
from .findings import findings, needs_repair
from .report_lines import Reports, device_head, engine_counts, engine_text, paged, sharing, slice_head

_SCHEMA: Final = 1


def device_units(report: NodeReport) -> list[tuple[str, str, DeviceReport | None]]:
    """Return (device, kind, GPU) of every device that work can be pinned to, except the CPU.

    GPUs that host vGPUs are left out, because their engines belong to guests. On a machine without reported GPUs, the
    devices are those that were tried, and their GPU is None.
    """
    units: list[tuple[str, str, DeviceReport | None]] = []
    for gpu in (each for each in report.gpus if not each.hosts_vgpus):
        if gpu.is_cut:
            units += [(part.uuid, f"{gpu.name} MIG {part.profile}", gpu) for part in gpu.slices]
        else:
            units.append((gpu.key, gpu.name, gpu))
    return units or [(device.device, device.kind, None) for device in report.devices if not report.gpus]


def device_lines(reports: Reports, *, every: bool = False) -> Iterator[str]:
    """Yield devices with their engines; for one machine, or with ``every``, also UUID, memory and use."""
    yield from paged(reports, _each_device if every or len(reports) == 1 else _equal_devices)
    if not every and len(reports) > 1:
        yield "UUID, memory and use of each: codecfleet devices --all"


def _each_device(report: NodeReport) -> Iterator[str]:
    trials = report.trials_by_device
    for gpu in report.gpus:
        yield from device_head(gpu)
        if not gpu.is_cut:
            yield from wrapped(f"engines: {engine_text(gpu.engines, trials.get(gpu.key))}", "    ")
        for part in gpu.slices if gpu.is_cut else ():
            yield from wrapped(f"{slice_head(gpu, part)}, {engine_text(part.engines, trials.get(part.uuid))}", "    ")
        if use := _use(gpu):
            yield from wrapped(f"in use: {use}", "    ")
        if gpu.health.lost:
            yield from wrapped(f"LOST: {gpu.health.lost}", "    ")
    if not report.gpus:
        yield from (f"  device {device.device}: {device.kind}" for device in report.devices)
    yield f"  CPU: {counted(report.host.cores, 'software engine')}"


def _equal_devices(report: NodeReport) -> Iterator[str]:
    trials = report.trials_by_device
    texts = [text for gpu in report.gpus for text in _kinds(gpu, trials)]
    texts += [device.kind for device in report.devices if not report.gpus]
    for text in tallied(texts):
        yield from wrapped(text, "  ")
    yield f"  CPU: {counted(report.host.cores, 'software engine')}"


def _kinds(gpu: DeviceReport, trials: dict[str, DeviceTrials]) -> Iterator[str]:
    if gpu.is_cut and gpu.slices:
        for part in gpu.slices:
            engines = engine_text(part.engines, trials.get(part.uuid))
            yield f"{gpu.name} MIG {part.profile}: {engines}{sharing(gpu, part)}"
        return
    engines = engine_text(gpu.engines, trials.get(gpu.key))
    mode = known(gpu.virtualization, "none")
    lost = f"; LOST: {gpu.health.lost}" if gpu.health.lost else ""
    yield f"{gpu.name}{'' if mode == 'none' else f', {mode}'}: {engines}{lost}"


def _use(gpu: DeviceReport) -> str:
    use = gpu.use
    parts = percents({"decoder": use.decoder_percent, "encoder": use.encoder_percent, "memory bus": use.memory_percent})
    if not isinstance(use.processes, Unavailable):
        parts.append(processes(len(use.processes)))
    return ", ".join(parts)


def processes(count: int) -> str:
    """Return ``1 process`` or ``2 processes``."""
    return f"{count} process{'' if count == 1 else 'es'}"


def percents(rates: dict[str, Maybe[int]]) -> list[str]:
    """Return rates as text; unknown rates are left out."""
    return [f"{name} {percent} %" for name, percent in rates.items() if not isinstance(percent, Unavailable)]


def mig_lines(reports: Reports) -> Iterator[str]:
    """Yield each device's MIG mode, instances and profiles."""
    yield from paged(reports, _mig_of)


def _mig_of(report: NodeReport) -> Iterator[str]:
    if not report.gpus:
        yield "  no NVIDIA devices"
    for gpu in report.gpus:
        yield f"  GPU {gpu.index}: {gpu.name}"
        if isinstance(gpu.mig, Unavailable):
            yield from wrapped(f"no MIG: {gpu.mig.reason}", "    ")
        else:
            yield from _mig(gpu, gpu.mig, report.trials_by_device)


def _mig(gpu: DeviceReport, mig: MigReport, trials: dict[str, DeviceTrials]) -> Iterator[str]:
    after = "" if mig.enabled == mig.pending else f", {'on' if mig.pending else 'off'} after a reset"
    room = f"; at most {mig.slices_max} instances" if mig.enabled else ""
    yield f"    MIG is {'on' if mig.enabled else 'off'}{after}{room}"
    for part in mig.slices:
        yield from wrapped(slice_head(gpu, part), "    ")
        yield f"      engines: {engine_text(part.engines, trials.get(part.uuid))}"
    for profile in mig.profiles:
        free, most = profile.instances_free, profile.instances_max
        left = f"at most {most}" if isinstance(free, Unavailable) else f"{free} of {most} free"
        engines = engine_text(profile.engines, None)
        yield from wrapped(f"profile {profile.name}: {gigabytes(profile.memory_bytes)}, {engines}, {left}", "    ")


def _document(reports: Reports, of: Callable[[NodeReport], dict[str, Any]], **if_silent: object) -> dict[str, Any]:
    """Return a JSON document of machines; machines without a report also have the fields in ``if_silent``."""
    nodes = [
        {"node": report.name, **if_silent, "error": report.reason}
        if isinstance(report, SilentNode)
        else {"node": report.host.name, **of(report)}
        for report in reports
    ]
    return {"schema": _SCHEMA, "nodes": nodes}


def nodes_document(reports: Reports, listed: Sequence[ListedNode] = ()) -> dict[str, Any]:
    """Return the inventory of machines as a JSON document; ``listed`` has a cluster's nodes in the same order."""
    document = _document(reports, _node)
    for node, in_ray in zip(document["nodes"], listed, strict=False):
        node["ray"] = in_ray.to_json()
    return document


def _node(report: NodeReport) -> dict[str, Any]:
    judged = verdicts(report)
    return {
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
    return _document(reports, partial(_devices_of, part))


def _devices_of(part: str, report: NodeReport) -> dict[str, Any]:
    whole = to_json(report)
    gpus = whole["nvml"]["devices"] if report.gpus else []
    if part == "vgpu":
        said = ("virtualization", "uuid", "uuid_is_stable", "pci_bus_id", "use", "licences", "facts")
        guests = {
            device.key: {key: gpu[key] for key in said}
            for device, gpu in zip(report.gpus, gpus, strict=True)
            if gpu["virtualization"] in GUEST_VIEWS
        }
        found = {"hosts": whole["vgpu_hosts"], "guests": guests}
    elif part == "mig":
        found = {"devices": [{key: gpu[key] for key in ("index", "uuid", "name", "mig")} for gpu in gpus]}
    else:
        counts = {
            device.device: {engine.value: count for engine, count in engine_counts((), device).items()}
            for device in report.devices
        }
        found = {"devices": gpus, "engines_tried": counts, "cpu": {Engine.CPU.value: report.host.cores}}
    return {"simulated": report.simulated, **found}


def doctor_document(reports: Reports) -> dict[str, Any]:
    """Return the findings of ``codecfleet doctor`` as a JSON document, with the whole report of each machine."""
    document = _document(reports, _diagnosis, healthy=False)
    healthy = all(node["healthy"] for node in document["nodes"])
    return {"schema": _SCHEMA, "healthy": healthy, "nodes": document["nodes"]}


def _diagnosis(report: NodeReport) -> dict[str, Any]:
    found = findings(report)
    return {
        "healthy": not needs_repair(found),
        "findings": [asdict(finding) | {"weight": finding.weight.value} for finding in found],
        "verdicts": [
            asdict(verdict) | {"state": verdict.state.value, "stops": verdict.stops.value}
            for verdict in verdicts(report)
        ],
        "matrix": [
            {
                "codec": codec.value,
                "chroma": chroma,
                "bit_depth": bit_depth,
                "decode": decode.way.value,
                "decode_known": decode.how and decode.how.value,
                "encode": encode.way.value,
                "encode_known": encode.how and encode.how.value,
            }
            for (codec, chroma, bit_depth), (decode, encode) in capability_matrix(all_trials(report)).items()
        ],
        "report": to_json(report),
    }
