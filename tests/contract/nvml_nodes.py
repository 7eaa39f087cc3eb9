"""Simulated nodes, a faked NVML on them, and what probes of it are asked."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pynvml
import pytest
from pydantic import TypeAdapter

from codecfleet.cluster.probes.gpus.devices import NvmlReport, probe_nvml
from codecfleet.cluster.probes.nvml.calls import NvmlLike
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.probes.report.device_report import CodecSession, DeviceProcess, DeviceReport
from codecfleet.cluster.probes.report.engines import Engine
from codecfleet.cluster.simulated.devices import SimulatedDevice, SimulatedNode, SimulatedSlice, SimulatedVgpu
from codecfleet.testing import FakeNvml

GIB = 1024**3


NO_PERMISSION, LOST, UNKNOWN, NO_SUCH_CODE = 4, 15, 999, 12345


H200 = SimulatedDevice(
    kind=DeviceKind.GPU,
    uuid="GPU-h200",
    name="NVIDIA H200",
    architecture="hopper",
    compute_capability="9.0",
    pci_bus_id="00000000:04:00.0",
    memory_bytes=150_754_820_096,
    max_video_clock_mhz=1545,
    engines={Engine.NVDEC: 7, Engine.NVENC: 0, Engine.NVJPG: 7, Engine.OFA: 1},
    mig_capable=True,
    virtualization=1,
)


L4 = SimulatedDevice(
    kind=DeviceKind.GPU,
    uuid="GPU-l4",
    name="NVIDIA L4",
    architecture="ada",
    compute_capability="8.9",
    pci_bus_id="00000000:05:00.0",
    memory_bytes=24 * GIB,
    max_video_clock_mhz=2040,
    engines={Engine.NVDEC: 4, Engine.NVENC: 2},
)


A100 = SimulatedDevice(
    kind=DeviceKind.GPU,
    uuid="GPU-a100",
    name="NVIDIA A100-SXM4-40GB",
    architecture="ampere",
    compute_capability="8.0",
    pci_bus_id="00000000:06:00.0",
    memory_bytes=42_505_273_344,
    max_video_clock_mhz=1275,
    engines={Engine.NVDEC: 5, Engine.NVENC: 0, Engine.NVJPG: 1, Engine.OFA: 1},
    mig_capable=True,
    mig_enabled=True,
    slices=(
        SimulatedSlice(
            uuid="MIG-none", gpu_instance=9, profile="1g.5gb", memory_bytes=5 * GIB, engines={Engine.NVDEC: 0}
        ),
        SimulatedSlice(
            uuid="MIG-two", gpu_instance=2, profile="3g.20gb", memory_bytes=20 * GIB, engines={Engine.NVDEC: 2}
        ),
    ),
)


H100_MIG = replace(
    H200,
    uuid="GPU-h100",
    name="NVIDIA H100 80GB HBM3",
    memory_bytes=80 * GIB,
    mig_enabled=True,
    virtualization=0,
    slices=(
        SimulatedSlice(
            uuid="MIG-h", gpu_instance=3, profile="2g.20gb", memory_bytes=20 * GIB, engines={Engine.NVDEC: 2}
        ),
    ),
)


GUEST = replace(
    L4, kind=DeviceKind.VGPU, uuid="GPU-random", name="NVIDIA A16-4Q", virtualization=2, max_video_clock_mhz=None
)


GEFORCE = replace(L4, uuid="GPU-4090", name="NVIDIA GeForce RTX 4090", engines={Engine.NVDEC: 1, Engine.NVENC: 2})


ORIN = replace(
    L4, kind=DeviceKind.IGPU, uuid="GPU-orin", name="Orin (nvgpu)", architecture="orin", compute_capability="8.7"
)


VGPU = SimulatedVgpu(
    instance=11,
    type_id=562,
    type_name="NVIDIA A40-8Q",
    uuid="vgpu-1",
    vm_id="7d3c0c8e-0001-4c1e-9d55-0123456789ab",
    framebuffer_bytes=8 * GIB,
)


HOST = replace(
    L4,
    uuid="GPU-host",
    name="NVIDIA A40",
    architecture="ampere",
    compute_capability="8.6",
    memory_bytes=48 * GIB,
    virtualization=3,
    vgpus=(VGPU,),
)


def node(*devices: SimulatedDevice, driver: str = "580.159.04") -> SimulatedNode:
    """Return a machine with these devices."""
    return SimulatedNode(name="node", cores=16, memory_bytes=64 * GIB, driver=driver, devices=devices)


NODES = {
    "h200": node(H200),
    "l4": node(L4),
    "a100-mig": node(A100, L4),
    "h100-mig": node(H100_MIG),
    "vgpu-guest": node(GUEST),
    "vgpu-host": node(HOST),
    "geforce": node(GEFORCE),
    "orin": node(ORIN),
}


def probed(nvml: NvmlLike) -> NvmlReport:
    """Probe without letting time pass."""
    return probe_nvml(nvml, sleep=lambda _: None)


def device(report: NvmlReport, uuid: str) -> DeviceReport:
    """Return one device of a report."""
    return next(each for each in report.devices if each.uuid == uuid)


def count(report: DeviceReport, engine: Engine) -> int | None:
    """Return how many engines of a kind the driver said there are, None where it said nothing."""
    return next((each.count for each in report.engines if each.engine is engine), None)


def busy(fake: FakeNvml) -> FakeNvml:
    """Let something go on on every device, so that a zero is never the right answer."""
    for each in fake.devices:
        each.gpu_percent = each.memory_percent = each.encoder_percent = each.decoder_percent = 40
        each.jpeg_percent = each.ofa_percent = 10
        each.used_bytes = GIB
        each.processes = [DeviceProcess(4711, 3 * GIB, 20, 30, 40)]
        each.sessions = [CodecSession(1, 4711, "h264", 1920, 1080, 60, 5000)]
        each.gpm_percent = {"nvdec0": 50.0}
        each.ecc_uncorrected = 3
        each.recovery_action = 1
        for piece in each.slices:
            piece.used_bytes = GIB
            piece.gpm_percent = {"nvdec0": 25.0}
    return fake


@pytest.fixture(params=[*NODES, "real"])
def nvml(request: pytest.FixtureRequest) -> Iterator[NvmlLike]:
    """An open library: the fake on every kind of machine, and the real one where there is a driver."""
    library: Any = pynvml if request.param == "real" else FakeNvml(NODES[request.param])
    try:
        library.nvmlInit()
    except pynvml.NVMLError:
        pytest.skip("no NVIDIA driver answers here")
    yield library
    library.nvmlShutdown()


_ADAPTER = TypeAdapter(NvmlReport)


def _plain(report: NvmlReport) -> Any:
    return _ADAPTER.dump_python(report, mode="json")


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}")
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _leaves(item, f"{path}[{position}]")
    else:
        yield path, value
