"""What is wrong with a machine's decoders and encoders: rules over what their trials gave."""

from collections.abc import Iterator
from typing import Final

from ..probes.node.report import DeviceTrials, NodeReport
from ..probes.report.absence import known
from ..probes.report.device_report import DeviceReport, MigSlice
from ..probes.report.engines import Engine, How, Trial
from .finding import Finding, Weight

_DECODES_NOTHING_FIX: Final = (
    "in a container: --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,video,utility; then codecfleet doctor --fresh"
)


def _names(report: NodeReport) -> dict[str, str]:
    """Map what trials call a device to what people call it."""
    names: dict[str, str] = {}
    for gpu in report.gpus:
        names[gpu.key] = gpu.label
        names |= {part.uuid: f"{gpu.label}, MIG {part.profile} {part.gpu_instance}" for part in gpu.slices}
    return names


def engine_findings(report: NodeReport) -> Iterator[Finding]:
    """Yield what is to be known about the decoders and encoders of a machine's devices."""
    yield from _engines(report)
    yield from _encoder_capacity(report)


def _engines(report: NodeReport) -> Iterator[Finding]:
    names = _names(report)
    without_decoder = {part.uuid for gpu in report.gpus for part in undecoding_slices(gpu)}
    without_encoder: dict[tuple[str, str], list[str]] = {}
    for device in report.devices:
        if device.device in without_decoder:
            continue  # a slice that no video work goes to is told of as such
        about = names.get(device.device, device.kind)
        decodes = [trial for trial in device.trials if trial.engine is Engine.NVDEC]
        encodes = [trial for trial in device.trials if trial.engine is Engine.NVENC]
        yield from _decoders(device, decodes, about)
        yield from _wrong(decodes + encodes, about)
        if encodes and not any(trial.works for trial in encodes):
            if fixable := next((trial for trial in encodes if trial.fix), None):
                title = "this device's encoder does not work"
                yield Finding(Weight.BROKEN, title, fixable.reason, fixable.fix, about)
            else:
                decoder = "NVDEC decodes" if any(trial.works for trial in decodes) else "the processor decodes"
                without_encoder.setdefault((decoder, encodes[0].reason), []).append(device.kind)
    yield from _no_encoders(without_encoder, report.host.cores)


def _no_encoders(kinds: dict[tuple[str, str], list[str]], cores: int) -> Iterator[Finding]:
    for (decoder, reason), devices in kinds.items():
        title = f"no NVENC: {decoder} here, and this machine's {cores} core{'' if cores == 1 else 's'} encode"
        counted = ", ".join(f"{devices.count(kind)} x {kind}" for kind in dict.fromkeys(devices))
        yield Finding(Weight.NOTE, title, f"{reason}: {counted}")


def _decoders(device: DeviceTrials, decodes: list[Trial], about: str) -> Iterator[Finding]:
    smoke = device.smoke
    if smoke is not None and not smoke.works:
        title = "this device does not decode, though others of its kind do"
        yield Finding(Weight.BROKEN, title, smoke.reason, smoke.fix or _DECODES_NOTHING_FIX, about)
        return
    if not decodes or any(trial.works for trial in decodes):
        return
    fixable = next((trial for trial in decodes if trial.fix), None)
    if fixable is not None:
        yield Finding(Weight.BROKEN, "this device decodes nothing", fixable.reason, fixable.fix, about)
    elif decodes[0].how in (How.TRIED, How.ASKED):
        # Some GPUs have no decoder; others are hidden from the codec library, which then says the same.
        yield Finding(
            Weight.LIMITED,
            "this device decodes nothing",
            decodes[0].reason,
            f"if it should: {_DECODES_NOTHING_FIX}",
            about,
        )
    else:
        yield Finding(Weight.NOTE, "this device decodes nothing", decodes[0].reason, "", about)


def _wrong(trials: list[Trial], about: str) -> Iterator[Finding]:
    """Tell of cases that the driver promises and that do not come out; a whole engine that fails is told above."""
    if not any(trial.works for trial in trials):
        return
    for trial in trials:
        if trial.works or trial.how is not How.TRIED or not trial.fix:
            continue
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


def undecoding_slices(device: DeviceReport) -> list[MigSlice]:
    """Return the slices that are known to have no decoder."""
    counts = [(part, [each.count for each in part.engines if each.engine is Engine.NVDEC]) for part in device.slices]
    return [part for part, decoders in counts if decoders and not any(decoders)]
