"""Derives the faults of a machine from its node report, with a fix for each."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Final

from ..grouping import counted, tallied
from ..placement.build import guest_share
from ..probes.cuda.compat import STUCK_FIX, has_driver
from ..probes.node.report import DeviceTrials, NodeReport
from ..probes.node.verdicts import verdicts
from ..probes.report.absence import Absence, Maybe, Unavailable, known
from ..probes.report.device_report import DeviceReport, MigSlice
from ..probes.report.engines import Engine, How, Trial
from ..probes.report.verdict import Grade
from ..probes.report.xids import XidAction, xid_rule
from ..probes.trials.cases import SOFTWARE_DECODERS, SOFTWARE_ENCODERS
from ..probes.trials.gpu import XID_FIX
from ..probes.vgpu.licence import UNLICENSED_FPS, Licence, LicenceState, fps_limit, licence_of

_NVML_SILENT: Final = "NVML does not answer, so GPUs are neither listed nor monitored"
_REBOOT: Final = "stop the work on this node, then restart the machine"
_RECOVERY_FIXES: Final = {
    "reboot": _REBOOT,
    "drain": "start no new work on it until the GPUs linked to it are idle",
    "recover IMEX domain": "restart the IMEX service on every node of the domain (sudo systemctl restart nvidia-imex)",
    "bus reset": _REBOOT,
}
"""The fix for each recovery action that the driver may ask for (``nvml.use.RECOVERY_ACTIONS``), except the resets in
``_RESETS``.
"""
_RESETS: Final = ("reset", "drain and reset")
_LICENCE_FIX: Final = "give the guest a licence: a client configuration token, and /etc/nvidia/gridd.conf"
_DECODES_NOTHING_FIX: Final = (
    "in a container, start it with --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,video,utility; "
    "then run codecfleet doctor --fresh"
)


class Weight(Enum):
    """How serious a finding is."""

    BROKEN = "broken"  #: something does not work until a user fixes it
    LIMITED = "limited"  #: something works only partly, or slowly
    NOTE = "note"  #: nothing is broken; a fix is optional


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding about a machine, a device or a part of a device."""

    weight: Weight
    title: str
    cause: str
    fix: str = ""  # what to do; "" if there is nothing to do
    about: str = ""  # the device or part; "" for the machine


WEIGHT_RANK: Final = {weight: rank for rank, weight in enumerate(Weight)}
_WEIGHT_OF: Final = {Grade.BROKEN: Weight.BROKEN, Grade.LIMITED: Weight.LIMITED}


def findings(report: NodeReport) -> tuple[Finding, ...]:
    """Return the findings on a machine, worst first."""
    found = [
        *_no_gpu(report),
        *_nvml(report),
        *_of_verdicts(report),
        *_of_each_gpu(report, _health),
        *_engines(report),
        *_of_each_gpu(report, _mig),
        *_of_each_gpu(report, partial(_vgpu, report)),
        *_software(report),
        *(
            Finding(
                Weight.LIMITED,
                f"{each.probe}: the probe did not finish",
                each.reason,
                "run codecfleet doctor --fresh again",
                each.probe,
            )
            for each in report.probe_problems
        ),
    ]
    return tuple(sorted(dict.fromkeys(found), key=lambda finding: WEIGHT_RANK[finding.weight]))


def _of_each_gpu(report: NodeReport, rule: Callable[[DeviceReport], Iterable[Finding]]) -> Iterator[Finding]:
    for gpu in report.gpus:
        yield from (replace(finding, about=gpu.label) for finding in rule(gpu))


def needs_repair(found: tuple[Finding, ...]) -> bool:
    """Return whether a user must fix something."""
    return any(finding.weight is Weight.BROKEN for finding in found)


def _driver_is_here(report: NodeReport) -> bool:
    return bool(report.gpus) or (not isinstance(report.cuda, Unavailable) and has_driver(report.cuda))


def _is_cut_off(report: NodeReport) -> bool:
    """Whether neither NVML nor CUDA answered; then it is unknown whether the machine has a driver."""
    return not report.simulated and isinstance(report.nvml, Unavailable) and isinstance(report.cuda, Unavailable)


def _no_gpu(report: NodeReport) -> Iterator[Finding]:
    if _driver_is_here(report) or _is_cut_off(report):
        return
    yield Finding(
        Weight.NOTE,
        f"software encoders will be used: {report.software_encoders or 'none works here'}",
        "there is no NVIDIA driver on this machine",
        "if it has an NVIDIA GPU: install the driver; in a container, start it with --gpus all",
    )


def _nvml(report: NodeReport) -> Iterator[Finding]:
    """Report that NVML does not answer, unless ``_no_gpu`` reports that there is no driver."""
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
        # Without PyNvVideoCodec, codecfleet uses no GPU.
        if verdict.subject == "PyNvVideoCodec" and weight is Weight.LIMITED and verdict.fix and bool(report.gpus):
            weight = Weight.BROKEN
        if weight is not None:
            limits = f"; not possible: {', '.join(verdict.limits)}" if verdict.limits else ""
            title = f"{verdict.subject}: {'does not work' if weight is Weight.BROKEN else 'limited'}"
            yield Finding(weight, title, f"{verdict.because}{limits}", verdict.fix, verdict.subject)
        elif verdict.limits:
            yield Finding(Weight.NOTE, f"{verdict.subject}: {', '.join(verdict.limits)}", verdict.because, verdict.fix)


def _health(gpu: DeviceReport) -> Iterator[Finding]:
    health, reset = gpu.health, _reset(gpu)
    if health.lost:
        fix = f"{reset}; if it stays lost, restart the machine"
        yield Finding(Weight.BROKEN, "the GPU is lost", health.lost, fix)
        return
    if (action := known(health.recovery_action, "none")) != "none":
        unknown = "look this action up in NVIDIA's NVML reference"
        fix = reset if action in _RESETS else _RECOVERY_FIXES.get(action, unknown)
        yield Finding(Weight.BROKEN, "the driver asks for a recovery action", f"requested action: {action}", fix)
    yield from (_xid(xid, reset) for xid in dict.fromkeys(health.xids))
    if known(health.ecc_uncorrected, 0):
        cause = f"{health.ecc_uncorrected} memory errors could not be corrected"
        yield Finding(Weight.BROKEN, "the GPU's memory is damaged", cause, reset)
    if known(health.retirement_pending, otherwise=False) or known(health.remapped_rows_pending, otherwise=False):
        cause = "faulty memory was found; the next reset replaces it with spare memory"
        yield Finding(Weight.LIMITED, "a reset is pending", cause, reset)


def _reset(gpu: DeviceReport) -> str:
    return f"stop the work on it, then reset it: sudo nvidia-smi --gpu-reset -i {gpu.index}"


def _xid(number: int, reset: str) -> Finding:
    """Report an Xid error; one that needs neither a quarantine of the device nor a drain of the node is only a note."""
    rule = xid_rule(number)
    if rule.action not in (XidAction.QUARANTINE_DEVICE, XidAction.DRAIN_NODE):
        return Finding(Weight.NOTE, f"Xid {number}, {rule.name}", rule.reason)
    fix = reset if rule.action is XidAction.QUARANTINE_DEVICE else _REBOOT
    return Finding(Weight.BROKEN, f"Xid {number}, {rule.name}: {rule.action.value}", rule.reason, fix)


def _mig(gpu: DeviceReport) -> Iterator[Finding]:
    if isinstance(gpu.mig, Unavailable):
        return
    if gpu.is_cut and not gpu.slices:
        yield _no_slice(gpu, gpu.mig.slices_refused)
    if gpu.mig.enabled != gpu.mig.pending:
        state = "on" if gpu.mig.pending else "off"
        yield Finding(Weight.LIMITED, f"MIG will be {state} after a reset", "a change is pending", _reset(gpu))
    fix = (
        "for video, create a larger instance or one with +me (codecfleet devices --mig lists the profiles; "
        f"sudo nvidia-smi mig -i {gpu.index} -cgi <profile> -C)"
    )
    for profile, count in Counter(part.profile for part in _undecoding_slices(gpu)).items():
        title = f"{counted(count, 'instance')} of {profile} {'gets' if count == 1 else 'get'} no video work"
        yield Finding(Weight.NOTE, title, "this profile has no decoder", fix)


def _no_slice(gpu: DeviceReport, refused: Unavailable | None) -> Finding:
    """Report that MIG has no instances, or that its instances are hidden from this user."""
    if refused is not None:
        title = "MIG is on, but its instances are not visible here"
        fix = "give this user or container the instances (--gpus device=<MIG UUID>; sudo nvidia-smi -L lists them)"
        return Finding(Weight.BROKEN, title, refused.reason, fix)
    fix = (
        f"create instances (sudo nvidia-smi mig -i {gpu.index} -cgi <profile> -C) "
        f"or turn MIG off (sudo nvidia-smi -i {gpu.index} -mig 0)"
    )
    return Finding(Weight.BROKEN, "MIG is on, but there is no MIG instance", "no instance has been created", fix)


def _vgpu(report: NodeReport, gpu: DeviceReport) -> Iterator[Finding]:
    if not gpu.uuid_is_stable:
        cause = "a vGPU's UUID changes each time its VM starts"
        yield Finding(Weight.NOTE, "this device is identified by host and PCI bus id, not by UUID", cause)
    if gpu.virtualization == "vgpu" and guest_share(gpu.name) is None:
        cause = f"no table lists its type, {gpu.name}, so it is rated as a whole GPU"
        fix = "set vgpu_share in the policy, for example 0.25 if four vGPUs share the GPU"
        yield Finding(Weight.LIMITED, "this vGPU's share of its GPU is unknown", cause, fix)
    yield from _licence(licence_of(gpu.licences, report.taken_utc), gpu)
    host = report.vgpu_hosts.get(gpu.key)
    vgpus = () if host is None else known(host.active, ())
    if without := sum(known(vgpu.licensed, otherwise=True) is False for vgpu in vgpus):
        title = f"{without} of the vGPUs on this GPU {'has' if without == 1 else 'have'} no licence"
        cause = f"a guest without a licence is limited to {UNLICENSED_FPS:g} frames per second"
        yield Finding(Weight.LIMITED, title, cause, _LICENCE_FIX)


def _licence(licence: Maybe[Licence], gpu: DeviceReport) -> Iterator[Finding]:
    """Report a guest's missing licence; a passed-through GPU loses no speed without a licence."""
    if isinstance(licence, Unavailable) or licence.is_valid:
        return
    state = "has no licence" if licence.state is LicenceState.MISSING else "has an expired licence"
    if (limit := fps_limit(gpu.kind, licence)) is not None:
        title = f"the vGPU {state} and is limited to {limit:g} frames per second"
        yield Finding(Weight.BROKEN, title, licence.sentence, _LICENCE_FIX)
    else:
        cause = f"{licence.sentence}: only workstation graphics features need one; video engines do not"
        yield Finding(Weight.NOTE, f"the passed-through GPU {state} for vGPU software", cause)


def _software(report: NodeReport) -> Iterator[Finding]:
    if not report.software and not report.simulated:
        fix = "pip install --force-reinstall av"
        yield Finding(Weight.BROKEN, "no software codec was tried", "the software codec probe returned nothing", fix)
    for codec, name in (*SOFTWARE_ENCODERS.items(), *SOFTWARE_DECODERS.items()):
        mine = [trial for trial in report.software if trial.implementation == name]
        broken = [trial for trial in mine if not trial.works]
        if broken and len(broken) == len(mine):
            title = f"{name} does not work: no software {codec.value}"
            yield Finding(Weight.BROKEN, title, broken[0].reason, broken[0].fix, "PyAV")
            continue
        for trial in broken:
            title = f"{name}: {trial.case.name} does not work"
            yield Finding(Weight.LIMITED, title, trial.reason, trial.fix, "PyAV")


def _engines(report: NodeReport) -> Iterator[Finding]:
    names = {gpu.key: gpu.label for gpu in report.gpus}  # the name shown for each device in the trials
    for gpu in report.gpus:
        names |= {part.uuid: f"{gpu.label}, MIG {part.profile} {part.gpu_instance}" for part in gpu.slices}
    without_decoder = {part.uuid for gpu in report.gpus for part in _undecoding_slices(gpu)}
    without_encoder: dict[tuple[str, str], list[str]] = {}
    for device in report.devices:
        if device.device in without_decoder:
            continue  # ``_mig`` reports slices without a decoder
        about = names.get(device.device, device.kind)
        decodes, encodes = device.of(Engine.NVDEC), device.of(Engine.NVENC)
        yield from _decoders(device, decodes, about)
        yield from _wrong(decodes + encodes, about)
        if encodes and not any(trial.works for trial in encodes):
            own = device.smoke_encode if device.smoke_encode and not device.smoke_encode.works else None
            if broken := own or next((trial for trial in encodes if trial.fix), None):
                title = "this device's encoder does not work"
                yield Finding(Weight.BROKEN, title, broken.reason, broken.fix or XID_FIX, about)
            else:
                decoder = "NVDEC decodes" if any(trial.works for trial in decodes) else "the CPU decodes"
                without_encoder.setdefault((decoder, encodes[0].reason), []).append(device.kind)
    for (decoder, reason), kinds in without_encoder.items():
        title = f"no NVENC: {decoder}, and this machine's {counted(report.host.cores, 'core')} encode"
        yield Finding(Weight.NOTE, title, f"{reason}: {', '.join(tallied(kinds))}")


def _decoders(device: DeviceTrials, decodes: tuple[Trial, ...], about: str) -> Iterator[Finding]:
    smoke = device.smoke
    if smoke is not None and not smoke.works:
        title = "this device does not decode, but other devices of this model do"
        yield Finding(Weight.BROKEN, title, smoke.reason, smoke.fix or _DECODES_NOTHING_FIX, about)
        return
    if not decodes or any(trial.works for trial in decodes):
        return
    weight, trial, fix = Weight.NOTE, decodes[0], ""
    if fixable := next((trial for trial in decodes if trial.fix), None):
        weight, trial, fix = Weight.BROKEN, fixable, fixable.fix
    elif trial.how in (How.TRIED, How.ASKED):
        # The codec library gives the same answer for a GPU without a decoder and for a hidden GPU.
        weight, fix = Weight.LIMITED, f"if it should decode: {_DECODES_NOTHING_FIX}"
    yield Finding(weight, "this device decodes nothing", trial.reason, fix, about)


def _wrong(trials: tuple[Trial, ...], about: str) -> Iterator[Finding]:
    """Report cases that fail although the driver supports them, unless all cases fail."""
    for trial in trials if any(trial.works for trial in trials) else ():
        if not trial.works and trial.how is How.TRIED and trial.fix:
            yield Finding(Weight.LIMITED, f"{trial.case.name} does not work here", trial.reason, trial.fix, about)


def _undecoding_slices(gpu: DeviceReport) -> list[MigSlice]:
    counts = [(part, [each.count for each in part.engines if each.engine is Engine.NVDEC]) for part in gpu.slices]
    return [part for part, decoders in counts if decoders and not any(decoders)]
