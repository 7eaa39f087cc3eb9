"""A guest's vGPU joined with the host's report: its identity, its share of the engines, and its percentages."""

from dataclasses import replace

import pytest

from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.probes.vgpu.hosted import HostedVgpu, VgpuHost, hosted_vgpu, own_part
from codecfleet.cluster.probes.vgpu.instances import VgpuLoad, VgpuUse, VmId

NO = Unavailable(Absence.NOT_SUPPORTED, "no")
UUID, MACHINE = "a7c0fd30-1111-11ee-8c4f-000000000001", "564d1b2c-0000-4000-8000-00000000aaaa"


def load(number: int, **changes: object) -> VgpuLoad:
    """Return a running vGPU whose type fits four times on the GPU."""
    found = VgpuLoad(
        instance=number,
        type_id=7,
        instances_max=4,
        use=VgpuUse(NO, NO, NO, 10 * number),
        licensed=True,
        accounting_enabled=False,
        uuid=f"GPU-{UUID[:-1]}{number}".upper(),
        vm_id=VmId(f"{MACHINE[:-1]}{number}", "uuid"),
        gpu_instance=Unavailable(Absence.DOES_NOT_APPLY, "the vGPU has no GPU instance"),
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def host(scheduler: str | Unavailable = "best effort", *vgpus: VgpuLoad) -> VgpuHost:
    """Return a host with these vGPUs, by default with three."""
    return VgpuHost("hyper", scheduler, vgpus or (load(1), load(2), load(3)))


def test_a_vgpu_is_found_by_its_uuid_however_it_is_written() -> None:
    """Host and guest may write the UUID with or without the prefix, in either case."""
    found = hosted_vgpu(f"GPU-{UUID}", "", [host("equal share", load(9)), host()])
    assert found == HostedVgpu(
        host="hyper",
        scheduler="best effort",
        share=1 / 3,
        running=3,
        neighbours_decoder_percent=50,
        neighbours_encoder_percent=Unavailable(Absence.NOT_FOUND, "the driver has not sampled the vGPU's neighbours"),
        licensed=True,
    )
    assert found.sentence == (
        "hosted by hyper: best effort scheduler, one of 3 vGPUs, 33% of the engines; its neighbours use 50 % of NVDEC"
    )


def test_a_vgpu_with_another_uuid_is_found_by_its_machine() -> None:
    """The machine's UUID is enough if the machine has one vGPU; with two vGPUs, nothing is assumed."""
    machine = f"{MACHINE[:-1]}2"
    found = hosted_vgpu("GPU-other", machine.upper(), [host()])
    assert found is not None
    assert found.neighbours_decoder_percent == 40
    two = host("best effort", load(2), load(3, vm_id=VmId(machine, "uuid")))
    assert hosted_vgpu("GPU-other", machine, [two]) is None
    assert hosted_vgpu("GPU-other", "", [host()]) is None
    assert hosted_vgpu("", "", [host()]) is None


@pytest.mark.parametrize(
    ("scheduler", "changes", "share"),
    [
        ("best effort", {}, 1 / 2),
        ("equal share", {}, 1 / 2),
        ("fixed share", {}, 1 / 4),
        ("fixed share", {"instances_max": NO}, None),
        ("unknown", {}, None),
        (NO, {}, None),
        ("best effort", {"gpu_instance": 5}, 1),  # to which MIG has given engines
    ],
)
def test_the_scheduler_decides_the_share(
    scheduler: str | Unavailable, changes: dict[str, object], share: float | None
) -> None:
    """The running vGPUs share the engines equally; under a fixed share, each has what it would have on a full GPU."""
    found = hosted_vgpu(UUID, "", [host(scheduler, load(1, **changes), load(2))])
    assert found is not None
    assert found.share == share


@pytest.mark.parametrize(
    ("kind", "scheduler", "part"),
    [
        (DeviceKind.VGPU, "best effort", 0.25),
        (DeviceKind.VGPU, "equal share", 0.25),
        (DeviceKind.VGPU, "fixed share", 1.0),
        (DeviceKind.VGPU, "", 0.25),
        (DeviceKind.VGPU, NO, 0.25),
        (DeviceKind.GPU, "", 1.0),
        (DeviceKind.MIG, "", 1.0),
    ],
)
def test_percentages_are_of_the_whole_engine_but_under_a_fixed_share(
    kind: DeviceKind, scheduler: str | Unavailable, part: float
) -> None:
    """A guest's percentages refer to the whole engine, except under a fixed share (guide 3.2)."""
    assert own_part(kind, 0.25, scheduler) == part
