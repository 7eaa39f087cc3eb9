"""Simulated nodes with a fake NVML, and helpers for tests of probes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pynvml
import pytest
from pydantic import TypeAdapter

from codecfleet.cluster.probes.gpus.devices import NvmlReport, probe_nvml
from codecfleet.cluster.probes.nvml.calls import NvmlLike
from codecfleet.cluster.probes.report.device_report import CodecSession, DeviceProcess, DeviceReport
from codecfleet.testing import FakeNvml
from tests.simulated_gpus import gpu, node

GIB = 1024**3
NO_PERMISSION, LOST, UNKNOWN, NO_SUCH_CODE = 4, 15, 999, 12345
H200 = gpu("H200", "GPU-h200", virtualization="passthrough")
L4 = gpu("L4", "GPU-l4")
A100 = gpu("A100 40GB", "GPU-a100", mig=["1g.5gb", "3g.20gb"])
H100_MIG = gpu("H100", "GPU-h100", mig=["2g.20gb"])
GUEST = gpu("L40S", "GPU-random", name="NVIDIA L40S-12Q", memory_gib=12, virtualization="guest")
GEFORCE = gpu("RTX 4090", "GPU-4090")
ORIN = gpu("Orin", "GPU-orin")
VGPU = {"instance": 11, "type_name": "NVIDIA A40-8Q", "vm": "7d3c0c8e-0001-4c1e-9d55-0123456789ab"}
HOST = gpu("A40", "GPU-host", virtualization="host", vgpus=[VGPU])
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
    return probe_nvml(nvml)


def device(report: NvmlReport, uuid: str) -> DeviceReport:
    """Return one device of a report."""
    return next(each for each in report.devices if each.uuid == uuid)


def busy(fake: FakeNvml) -> FakeNvml:
    """Make every device busy, so that a zero is never the right answer."""
    for each in fake.devices:
        each.gpu_percent = each.memory_percent = each.encoder_percent = each.decoder_percent = 40
        each.used_bytes = GIB
        each.processes = [DeviceProcess(4711, 3 * GIB, 20, 30, 40)]
        each.sessions = [CodecSession(1, 4711, "h264", 1920, 1080, 60, 5000)]
        each.ecc_uncorrected = 3
        each.recovery_action = 1
        for piece in each.slices:
            piece.used_bytes = GIB
            piece.gpm_percent = {"nvdec0": 25.0}
    return fake


@contextmanager
def opened(fake: FakeNvml | None) -> Iterator[NvmlLike]:
    """Yield an open library: a fake, or NVIDIA's if there is a driver."""
    library: Any = fake or pynvml
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
