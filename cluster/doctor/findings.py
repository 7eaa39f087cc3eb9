"""What is wrong on a machine, and how to fix it: pure rules over a node report, worst first."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ..grouping import counted, tallied
from ..placement.build import guest_share
from ..probes.child.trial_errors import XID_FIX
from ..probes.cuda.compat import STUCK_FIX, has_driver
from ..probes.gpus.hardware import load_hardware
from ..probes.node.report import DeviceTrials, NodeReport
from ..probes.node.verdicts import verdicts
from ..probes.report.absence import Absence, Unavailable, known
from ..probes.report.device_report import DeviceReport, MigSlice
from ..probes.report.engines import Engine, How, Trial
from ..probes.report.verdict import Grade
from ..probes.report.xids import XidAction, xid_rule
from ..probes.trials.cases import SOFTWARE_DECODERS, SOFTWARE_ENCODERS
from ..probes.vgpu.licence import UNLICENSED_FPS, LicenceState, fps_limit, licence_of

_NVML_SILENT: Final = "NVML does not answer: devices are neither counted nor watched"
_REBOOT: Final = "stop the work on this node, then restart the machine"
_RECOVERY_FIXES: Final = {
    "reboot": _REBOOT,
    "drain": "start no new work on it until the GPUs linked to it have ended theirs",
    "recover IMEX domain": "restart the IMEX service on every node of the domain (sudo systemctl restart nvidia-imex)",
    "bus reset": _REBOOT,
}
"""By the driver's own advice (``nvml.health.RECOVERY_ACTIONS``); all other advice ends in a reset of the GPU."""
_AGAIN: Final = "run codecfleet doctor --fresh again"
_RESETS: Final = ("reset", "drain and reset")
_LICENCE_FIX: Final = "give the guest a licence: a client configuration token, and /etc/nvidia/gridd.conf"
_DECODES_NOTHING_FIX: Final = (
    "in a container: --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,video,utility; then codecfleet doctor --fresh"
)


class Weight(Enum):
    """How grave a finding is."""

    BROKEN = "broken"  #: something does not work that should, until a user fixes it
    LIMITED = "limited"  #: works, but not everything, or not as fast
    NOTE = "note"  #: nothing to fix; it is good to know what will happen


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know about a device or part; ``title``, ``cause`` and ``fix`` are a sentence each, or ""."""

    weight: Weight
    title: str
    cause: str
    fix: str = ""
    about: str = ""


WEIGHT_RANK: Final = {weight: rank for rank, weight in enumerate(Weight)}
_WEIGHT_OF: Final = {Grade.BROKEN: Weight.BROKEN, Grade.LIMITED: Weight.LIMITED}


def findings(report: NodeReport) -> tuple[Finding, ...]:
    """Return what is to be known about a machine, worst first; the same report gives the same findings."""
    found = [
        *_no_gpu(report),
        *_nvml(report),
        *_of_verdicts(report),
        *_health(report),
        *_engines(report),
        *_encoder_capacity(report),
        *_mig(report),
        *_vgpu(report),
        *_software(report),
        *(
            Finding(Weight.LIMITED, f"{each.probe}: not everything could be asked", each.reason, _AGAIN, each.probe)
            for each in report.probe_problems
        ),
    ]
    return tuple(sorted(dict.fromkeys(found), key=lambda finding: WEIGHT_RANK[finding.weight]))


def needs_repair(found: tuple[Finding, ...]) -> bool:
    """Return whether a user must fix something."""
    return any(finding.weight is Weight.BROKEN for finding in found)


def _driver_is_here(report: NodeReport) -> bool:
    return bool(report.gpus) or (not isinstance(report.cuda, Unavailable) and has_driver(report.cuda))


def _is_cut_off(report: NodeReport) -> bool:
    """Whether neither NVML nor CUDA came to its end, so that nothing proves or rules out a driver."""
    return not report.simulated and isinstance(report.nvml, Unavailable) and isinstance(report.cuda, Unavailable)


def _no_gpu(report: NodeReport) -> Iterator[Finding]:
    if _driver_is_here(report) or _is_cut_off(report):
        return
    yield Finding(
        Weight.NOTE,
        f"software engines will be used: {report.software_encoders or 'none works here'}",
        "there is no NVIDIA driver on this machine",
        "if it has an NVIDIA GPU: install the driver; in a container, start it with --gpus all",
    )


def _nvml(report: NodeReport) -> Iterator[Finding]:
    """Judge a library that does not answer; without any driver its absence is the same news as ``_no_gpu``."""
    if isinstance(report.nvml, Unavailable):
        if _driver_is_here(report) or _is_cut_off(report):
            yield Finding(Weight.BROKEN, _NVML_SILENT, report.nvml.reason, STUCK_FIX, "NVML")
        return
    problem = report.nvml.library_problem
    if problem is None or (not _driver_is_here(report) and problem.absence in (Absence.NO_LIBRARY, Absence.NOT_FOUND)):
        return
    weight = Weight.BROKEN if _driver_is_here(report) else Weight.NOTE
    yield Finding(weight, _NVML_SILENT, problem.reason, report.nvml.fix, "NVML")


def _of_verdicts(report: NodeReport) -> Iterator[Finding]:
    for verdict in verdicts(report):
        weight = _WEIGHT_OF.get(verdict.state)
        # A GPU that cannot be used is worse than the package's absence by itself.
        if verdict.subject == "PyNvVideoCodec" and weight is Weight.LIMITED and verdict.fix and bool(report.gpus):
            weight = Weight.BROKEN
        if weight is not None:
            limits = f"; not possible: {', '.join(verdict.limits)}" if verdict.limits else ""
            title = f"{verdict.subject}: {'does not work' if weight is Weight.BROKEN else 'limited'}"
            yield Finding(weight, title, f"{verdict.because}{limits}", verdict.fix, verdict.subject)
        elif verdict.limits:
            yield Finding(Weight.NOTE, f"{verdict.subject}: {', '.join(verdict.limits)}", verdict.because, verdict.fix)


def _health(report: NodeReport) -> Iterator[Finding]:
    for device in report.gpus:
        about, health = device.label, device.health
        if health.lost:
            fix = f"{_reset(device)}; if it stays lost, restart the machine"
            yield Finding(Weight.BROKEN, "the GPU is lost", health.lost, fix, about)
            continue
        action = known(health.recovery_action, "none")
        if action != "none":
            cause = f"the driver's own advice is: {action}"
            unknown = "look the advice up in NVIDIA's NVML reference"
            fix = _reset(device) if action in _RESETS else _RECOVERY_FIXES.get(action, unknown)
            yield Finding(Weight.BROKEN, "the GPU wants recovery", cause, fix, about)
        yield from _xids(health.xids, about, _reset(device))
        if known(health.ecc_uncorrected, 0):
            cause = f"{health.ecc_uncorrected} memory errors could not be corrected"
            yield Finding(Weight.BROKEN, "the GPU's memory is damaged", cause, _reset(device), about)
        if known(health.retirement_pending, otherwise=False) or known(health.remapped_rows_pending, otherwise=False):
            cause = "bad memory was found and will be replaced at the next reset"
            yield Finding(Weight.LIMITED, "a reset is pending", cause, _reset(device), about)


def _reset(device: DeviceReport) -> str:
    return f"stop the work on it, then reset it: sudo nvidia-smi --gpu-reset -i {device.index}"


def _xids(xids: tuple[int, ...], about: str, reset: str) -> Iterator[Finding]:
    """Yield the errors that hurt the device; those that a program brought on itself hurt nothing else."""
    for xid in dict.fromkeys(xids):
        rule = xid_rule(xid)
        if rule.action in (XidAction.QUARANTINE_DEVICE, XidAction.DRAIN_NODE):
            title = f"Xid {xid}, {rule.name}: {rule.action.value}"
            fix = reset if rule.action is XidAction.QUARANTINE_DEVICE else _REBOOT
            yield Finding(Weight.BROKEN, title, rule.reason, fix, about)
        else:
            yield Finding(Weight.NOTE, f"Xid {xid}, {rule.name}", rule.reason, "", about)


def _mig(report: NodeReport) -> Iterator[Finding]:
    for device in report.gpus:
        if isinstance(device.mig, Unavailable):
            continue
        about = device.label
        if device.mig.enabled and not device.mig.slices:
            yield _no_slice(device, device.mig.slices_refused, about)
        if device.mig.enabled != device.mig.pending:
            state = "on" if device.mig.pending else "off"
            title = f"MIG will be {state} after a reset"
            yield Finding(Weight.LIMITED, title, "a change is pending", _reset(device), about)
        profiles = [part.profile for part in _undecoding_slices(device)]
        for profile in dict.fromkeys(profiles):
            title = f"no video work goes to {counted(profiles.count(profile), 'instance')} of {profile}"
            fix = (
                "for video, make a larger one or one with +me (codecfleet devices --mig lists the profiles; "
                f"sudo nvidia-smi mig -i {device.index} -cgi <profile> -C)"
            )
            yield Finding(Weight.NOTE, title, "such a slice has no decoder", fix, about)


def _no_slice(device: DeviceReport, refused: Unavailable | None, about: str) -> Finding:
    """Distinguish MIG without an instance from instances that this user may not see: those must stay."""
    if refused is not None:
        title = "MIG is on, but its instances cannot be seen from here"
        fix = "give this user or container the instances (--gpus device=<MIG UUID>; sudo nvidia-smi -L lists them)"
        return Finding(Weight.BROKEN, title, refused.reason, fix, about)
    fix = (
        f"create instances (sudo nvidia-smi mig -i {device.index} -cgi <profile> -C) "
        f"or turn MIG off (sudo nvidia-smi -i {device.index} -mig 0)"
    )
    return Finding(Weight.BROKEN, "MIG is on, but there is no instance to work on", "none was made", fix, about)


def _vgpu(report: NodeReport) -> Iterator[Finding]:
    for device in report.gpus:
        about = device.label
        if not device.uuid_is_stable:
            cause = "a vGPU's UUID changes with every start of its machine"
            yield Finding(Weight.NOTE, "this device is known by its PCI bus id and host, not by UUID", cause, "", about)
        if device.virtualization == "vgpu" and guest_share(device.name, load_hardware()) is None:
            cause = f"no table has its type, {device.name}; its speed is taken for that of the whole GPU"
            fix = "set vgpu_share in the policy, such as 0.25 where four share the GPU"
            yield Finding(Weight.LIMITED, "which part of its GPU this vGPU has is not known", cause, fix, about)
        yield from _licence(report, device, about)
        host = report.vgpu_hosts.get(known(device.uuid, ""))
        if host is not None:
            without = sum(known(vgpu.licensed, otherwise=True) is False for vgpu in known(host.active, ()))
            if without:
                title = f"{without} of the vGPUs on this GPU {'has' if without == 1 else 'have'} no licence"
                cause = f"their guests are slowed down to {UNLICENSED_FPS:g} frames a second"
                yield Finding(Weight.LIMITED, title, cause, _LICENCE_FIX, about)


def _licence(report: NodeReport, device: DeviceReport, about: str) -> Iterator[Finding]:
    """Judge the licence of a device as its guest sees it; a GPU that is passed through loses no speed without one."""
    guest = report.vgpu_guests.get(known(device.uuid, ""))
    licence = None if guest is None else licence_of(guest.licences, report.taken_utc)
    if licence is None or isinstance(licence, Unavailable) or licence.is_valid:
        return
    state = "has no licence" if licence.state is LicenceState.MISSING else "has a licence that expired"
    limit = fps_limit(device.kind, licence)
    if limit is not None:
        title = f"the vGPU {state} and will be slowed down to {limit:g} frames a second"
        yield Finding(Weight.BROKEN, title, licence.sentence, _LICENCE_FIX, about)
    else:
        title = f"the passed-through GPU {state} for vGPU software"
        cause = f"{licence.sentence}: only features for graphics workstations need one, and video engines do not"
        yield Finding(Weight.NOTE, title, cause, "", about)


def _software(report: NodeReport) -> Iterator[Finding]:
    if not report.software:
        if not report.simulated:
            fix = "pip install --force-reinstall av"
            yield Finding(Weight.BROKEN, "no software codec was tried", "their probe said nothing", fix)
        return
    for codec, name in (*SOFTWARE_ENCODERS.items(), *SOFTWARE_DECODERS.items()):
        mine = [trial for trial in report.software if trial.implementation == name]
        if mine and not any(trial.works for trial in mine):
            title = f"{name} does not work: no {codec.value} by the processor"
            yield Finding(Weight.BROKEN, title, mine[0].reason, mine[0].fix, "PyAV")
            continue
        for trial in mine:
            if not trial.works:
                title = f"{name}: {trial.case.name} does not work"
                yield Finding(Weight.LIMITED, title, trial.reason, trial.fix, "PyAV")


def _names(report: NodeReport) -> dict[str, str]:
    """Map what trials call a device to what people call it."""
    names: dict[str, str] = {}
    for gpu in report.gpus:
        names[gpu.key] = gpu.label
        names |= {part.uuid: f"{gpu.label}, MIG {part.profile} {part.gpu_instance}" for part in gpu.slices}
    return names


def _engines(report: NodeReport) -> Iterator[Finding]:
    names = _names(report)
    without_decoder = {part.uuid for gpu in report.gpus for part in _undecoding_slices(gpu)}
    without_encoder: dict[tuple[str, str], list[str]] = {}
    for device in report.devices:
        if device.device in without_decoder:
            continue  # ``_mig`` reports these
        about = names.get(device.device, device.kind)
        decodes = [trial for trial in device.trials if trial.engine is Engine.NVDEC]
        encodes = [trial for trial in device.trials if trial.engine is Engine.NVENC]
        yield from _decoders(device, decodes, about)
        yield from _wrong(decodes + encodes, about)
        if encodes and not any(trial.works for trial in encodes):
            own = device.smoke_encode if device.smoke_encode and not device.smoke_encode.works else None
            if broken := own or next((trial for trial in encodes if trial.fix), None):
                title = "this device's encoder does not work"
                yield Finding(Weight.BROKEN, title, broken.reason, broken.fix or XID_FIX, about)
            else:
                decoder = "NVDEC decodes" if any(trial.works for trial in decodes) else "the processor decodes"
                without_encoder.setdefault((decoder, encodes[0].reason), []).append(device.kind)
    yield from _no_encoders(without_encoder, report.host.cores)


def _no_encoders(kinds: dict[tuple[str, str], list[str]], cores: int) -> Iterator[Finding]:
    for (decoder, reason), devices in kinds.items():
        title = f"no NVENC: {decoder} here, and this machine's {counted(cores, 'core')} encode"
        yield Finding(Weight.NOTE, title, f"{reason}: {', '.join(tallied(devices))}")


def _decoders(device: DeviceTrials, decodes: list[Trial], about: str) -> Iterator[Finding]:
    smoke = device.smoke
    if smoke is not None and not smoke.works:
        title = "this device does not decode, though others of its kind do"
        yield Finding(Weight.BROKEN, title, smoke.reason, smoke.fix or _DECODES_NOTHING_FIX, about)
        return
    if not decodes or any(trial.works for trial in decodes):
        return
    weight, trial, fix = Weight.NOTE, decodes[0], ""
    if fixable := next((trial for trial in decodes if trial.fix), None):
        weight, trial, fix = Weight.BROKEN, fixable, fixable.fix
    elif trial.how in (How.TRIED, How.ASKED):
        # Some GPUs have no decoder; others are hidden from the codec library, which then says the same.
        weight, fix = Weight.LIMITED, f"if it should: {_DECODES_NOTHING_FIX}"
    yield Finding(weight, "this device decodes nothing", trial.reason, fix, about)


def _wrong(trials: list[Trial], about: str) -> Iterator[Finding]:
    """Yield the cases that the driver promises and that fail, where the engine does anything at all."""
    for trial in trials if any(trial.works for trial in trials) else ():
        if not trial.works and trial.how is How.TRIED and trial.fix:
            yield Finding(Weight.LIMITED, f"{trial.case.name} does not work here", trial.reason, trial.fix, about)


def _encoder_capacity(report: NodeReport) -> Iterator[Finding]:
    trials = {each.device: each.trials for each in report.devices}
    for device in report.gpus:
        said = [codec for codec, percent in device.use.encoder_capacity_percent.items() if known(percent, 0) > 0]
        tried = [t for t in trials.get(known(device.uuid, ""), ()) if t.engine is Engine.NVENC]
        if said and tried and not any(trial.works for trial in tried):
            yield Finding(
                Weight.NOTE,
                "NVML's encoder capacity is not believed",
                f"{device.name} reports capacity for {', '.join(said)}, but it has no encoder",
            )


def _undecoding_slices(device: DeviceReport) -> list[MigSlice]:
    """Return the slices that are known to have no decoder."""
    counts = [(part, [each.count for each in part.engines if each.engine is Engine.NVDEC]) for part in device.slices]
    return [part for part, decoders in counts if decoders and not any(decoders)]
