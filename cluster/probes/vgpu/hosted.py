"""Joins a guest's vGPU with the host's report, if guest and host are in one cluster.

A guest can query neither the scheduler of the host nor the neighbouring vGPUs (vGPU Management SDK guide, 3 and 3.2).
The share of a vGPU in the engines follows the Virtual GPU Software User Guide, "Changing Scheduling Behavior for
Time-Sliced vGPUs".
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ..report.absence import Absence, Maybe, Unavailable, known
from ..report.device_kinds import DeviceKind
from .instances import VgpuLoad

SCHEDULERS: Final = ("unknown", "best effort", "equal share", "fixed share")
"""How a host divides the engines of a GPU among vGPUs, in the order of the numbers in NVML."""
_UNKNOWN, FIXED = SCHEDULERS[0], SCHEDULERS[3]
_UNSAMPLED: Final = Unavailable(Absence.NOT_FOUND, "the driver has not sampled the vGPU's neighbours")


@dataclass(frozen=True, slots=True)
class VgpuHost:
    """A GPU that hosts vGPUs, as the driver describes it."""

    node: str  # the name of its machine
    scheduler: Maybe[str]  # one of ``SCHEDULERS``
    vgpus: tuple[VgpuLoad, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedVgpu:
    """A guest's vGPU as the host sees it."""

    host: str  # the host's name
    scheduler: Maybe[str]
    share: float | None  # the vGPU's fraction of the GPU's engines; None if unknown
    running: int  # how many vGPUs run on the same GPU, including this vGPU
    neighbours_decoder_percent: Maybe[int]  # the neighbours' use, in percent of the whole engines
    neighbours_encoder_percent: Maybe[int]
    licensed: Maybe[bool]

    @property
    def sentence(self) -> str:
        """One line about the vGPU, without a full stop."""
        scheduler = known(self.scheduler, "an unknown")
        part = "" if self.share is None else f", {self.share:.0%} of the engines"
        uses = (("NVDEC", self.neighbours_decoder_percent), ("NVENC", self.neighbours_encoder_percent))
        used = [f"{percent} % of {name}" for name, percent in uses if not isinstance(percent, Unavailable)]
        beside = f"; its neighbours use {' and '.join(used)}" if self.running > 1 and used else ""
        return f"hosted by {self.host}: {scheduler} scheduler, one of {self.running} vGPUs{part}{beside}"


def hosted_vgpu(uuid: str, machine_uuid: str, hosts: Iterable[VgpuHost]) -> HostedVgpu | None:
    """Return a guest's vGPU as the host sees it; None if the host is not among ``hosts``.

    ``uuid`` is the vGPU's UUID in the guest. If no host lists that UUID, the virtual machine's UUID, ``machine_uuid``
    ("" if unknown), is used, provided that the virtual machine has only one vGPU.
    """
    everywhere = [(host, vgpu) for host in hosts for vgpu in host.vgpus]
    found = [pair for pair in everywhere if _plain(known(pair[1].uuid, "")) == _plain(uuid)] if uuid else []
    if not found and machine_uuid:
        found = [pair for pair in everywhere if _plain(_machine(pair[1])) == _plain(machine_uuid)]
    return _joined(*found[0]) if len(found) == 1 else None


def _joined(host: VgpuHost, vgpu: VgpuLoad) -> HostedVgpu:
    others = [each for each in host.vgpus if each is not vgpu]
    return HostedVgpu(
        host=host.node,
        scheduler=host.scheduler,
        share=_share(host, vgpu),
        running=len(host.vgpus),
        neighbours_decoder_percent=_total(each.use.decoder_percent for each in others),
        neighbours_encoder_percent=_total(each.use.encoder_percent for each in others),
        licensed=vgpu.licensed,
    )


def _share(host: VgpuHost, vgpu: VgpuLoad) -> float | None:
    """Return a vGPU's fraction of the engines when all its neighbours are busy.

    A vGPU on a GPU instance has all engines that its guest sees. With best effort and equal share, the running vGPUs
    divide the engines. With fixed share, the engines are divided by the number of vGPUs of this type that fit on the
    GPU.
    """
    if not isinstance(vgpu.gpu_instance, Unavailable):
        return 1.0
    if isinstance(host.scheduler, Unavailable) or host.scheduler == _UNKNOWN:
        return None
    if host.scheduler == FIXED:
        most = known(vgpu.instances_max, 0)
        return 1 / most if most else None
    return 1 / len(host.vgpus)


def own_part(kind: DeviceKind, share: float, scheduler: Maybe[str]) -> float:
    """Return the utilisation, from 0 to 1, that a driver reports when the device uses all of ``share`` (guide 3.2).

    Percentages refer to the whole engine; with fixed shares, to the share of the vGPU. If the scheduler is unknown,
    NVIDIA's default, best effort, is assumed.
    """
    is_whole = kind.is_guest and scheduler != FIXED
    return share if is_whole else 1.0


def _total(percents: Iterable[Maybe[int]]) -> Maybe[int]:
    sampled = [percent for percent in percents if not isinstance(percent, Unavailable)]
    return min(100, sum(sampled)) if sampled else _UNSAMPLED


def _machine(vgpu: VgpuLoad) -> str:
    """Return the UUID of a vGPU's virtual machine, or the hypervisor's number for it; "" if unknown."""
    return "" if isinstance(vgpu.vm_id, Unavailable) else vgpu.vm_id.value


def _plain(name: str) -> str:
    return name.strip().lower().removeprefix("gpu-")
