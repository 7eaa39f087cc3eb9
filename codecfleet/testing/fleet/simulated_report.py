"""The report of a simulated machine: the real NVML probe queries a fake NVML; the trials come from the fleet's file."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ...cluster.probes.node import DeviceTrials, HostReport, NodeReport, read_nvml
from ...cluster.probes.report import Absence, Direction, Engine, How, Trial, Unavailable
from ...cluster.probes.trials import SAMPLES, SOFTWARE_DECODERS, SOFTWARE_ENCODERS, offered_by_software
from ...cluster.simulated.devices import SimulatedDevice, SimulatedNode, SimulatedSlice
from ..nvml.fake_nvml import FakeNvml

_NOT_PROBED: Final = Unavailable(Absence.DOES_NOT_APPLY, "this machine is simulated, so it was not tried")


def simulated_report(node: SimulatedNode, fleet: str = "a simulated fleet") -> NodeReport:
    """Return the report of a simulated machine; ``fleet`` names the machine's origin.

    Facts that only a real machine has are absent.
    """
    answers = read_nvml(FakeNvml(node))
    own = tuple(trial for device in node.devices if device.kind.is_processor for trial in device.trials)
    return NodeReport(
        host=HostReport(
            name=node.name,
            cores=node.cores,
            memory_bytes=node.memory_bytes,
            kernel="",
            machine="",
            python="",
            packages={},
            machine_uuid=node.name,  # the name under which simulated hypervisors list their guests
        ),
        nvml=answers.nvml,
        cuda=_NOT_PROBED,
        container=_NOT_PROBED,
        pynvvideocodec=_NOT_PROBED,
        tegra=_NOT_PROBED,
        vgpu_hosts=answers.vgpu_hosts,
        software=own or documented_software_trials(),
        devices=tuple(trials for device in node.devices for trials in _device_trials(device)),
        probe_problems=(),
        simulated=fleet,
        taken_at="",
        took_s=0.0,
    )


def _device_trials(device: SimulatedDevice) -> Iterator[DeviceTrials]:
    if device.kind.is_processor:
        return
    if device.mig_enabled:
        for part in device.slices:
            trials = tuple(_on_slice(trial, part) for trial in device.trials)
            yield DeviceTrials(device=part.uuid, kind=f"{device.name} MIG {part.name}", trials=trials)
    else:
        yield DeviceTrials(device=device.uuid, kind=device.name, trials=device.trials)


def _on_slice(trial: Trial, part: SimulatedSlice) -> Trial:
    count = part.engines.get(trial.engine, 0)
    if count or not trial.works:
        return replace(trial, engines=count)
    return replace(trial, works=False, engines=0, reason=f"a slice {part.name} has no {trial.engine.name}")


def documented_software_trials() -> tuple[Trial, ...]:
    """Return the decoders and encoders that PyAV's wheels have according to their documentation; none is tried."""
    decodes = (
        (sample, Direction.DECODE, SOFTWARE_DECODERS[sample.codec]) for sample in SAMPLES if sample.codec.value != "vc1"
    )
    encodes = (
        (sample, Direction.ENCODE, SOFTWARE_ENCODERS[sample.codec]) for sample in SAMPLES if offered_by_software(sample)
    )
    return tuple(
        Trial(
            case=sample.case(direction),
            engine=Engine.CPU,
            implementation=implementation,
            works=True,
            how=How.DOCUMENTED,
            profile=sample.profile,
        )
        for sample, direction, implementation in (*decodes, *encodes)
    )
