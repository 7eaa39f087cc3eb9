import importlib.util
from dataclasses import replace

import pytest

from codecfleet.cluster.probes.cuda.pynvvideocodec import (
    PyNvVideoCodecReport,
    judge_pynvvideocodec,
    probe_pynvvideocodec,
)
from codecfleet.cluster.probes.cuda.report import CudaDevice, CudaReport, Deployment, KernelModule
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.verdict import Diagnosis, Grade

NO = Unavailable(Absence.NO_LIBRARY, "it is not here")
PACKAGE = PyNvVideoCodecReport(
    version="2.2.4",
    builds=("_121", "_130"),
    picked="_130",
    cuda_version="",
    sdk_version="",
    runtime_version="12.3.101",
    python_version="3.12",
    glibc_version="2.36",
    machine="x86_64",
)
MACHINE = CudaReport(
    kernel_module=KernelModule("595.45.04", is_open=False),
    library=NO,
    deployment=Deployment.DRIVER,
    compat_libraries=(),
    cuda_version="13.2",
    init_code=0,
    device_count=0,
    devices=(),
    codec_libraries={"libnvidia-encode.so.1": "/usr/lib/libnvidia-encode.so.595.45.04"},
    nvenc_api="13.0",
    runtimes=(),
)


def device(capability: str) -> CudaDevice:
    """Return a device of that compute capability."""
    return CudaDevice(
        ordinal=0,
        uuid=NO,
        pci_bus_id=NO,
        name="a GPU",
        compute_capability=capability,
        is_integrated=False,
        attributes={},
        context_code=0,
        free_bytes=NO,
        total_bytes=NO,
    )


def judged(package: PyNvVideoCodecReport = PACKAGE, machine: CudaReport = MACHINE) -> Diagnosis:
    """Return the one verdict on the package."""
    return judge_pynvvideocodec(package, machine)


def test_a_package_that_imports_is_all_right() -> None:
    """What was tried and worked has nothing to fix."""
    assert judged() == Diagnosis(
        "PyNvVideoCodec",
        Grade.OK,
        "its import, tried in a process of its own",
        "version 2.2.4 imports and picked its build _130 for NVENC 13.0",
    )


FAILED = replace(PACKAGE, picked=NO)


@pytest.mark.parametrize(
    ("package", "machine", "state", "words"),
    [
        (replace(PACKAGE, version=NO), MACHINE, Grade.LIMITED, "not here"),
        (replace(FAILED, python_version="3.9"), MACHINE, Grade.BROKEN, "Python 3.10 to 3.14"),
        (replace(FAILED, python_version="3.15"), MACHINE, Grade.BROKEN, "this is 3.15"),
        (replace(FAILED, glibc_version="2.27"), MACHINE, Grade.BROKEN, "glibc 2.28"),
        (replace(FAILED, glibc_version=NO), MACHINE, Grade.BROKEN, "glibc 2.28"),
        (
            replace(FAILED, machine="aarch64", python_version="3.13", glibc_version="2.31"),
            MACHINE,
            Grade.BROKEN,
            "2.34",
        ),
        (replace(PACKAGE, machine="aarch64", glibc_version="2.31"), MACHINE, Grade.OK, "imports"),
        (FAILED, replace(MACHINE, codec_libraries={"libnvidia-encode.so.1": NO}), Grade.BROKEN, "to decode too"),
        (FAILED, replace(MACHINE, nvenc_api="12.0"), Grade.BROKEN, "oldest build needs 12.1"),
        (
            PACKAGE,
            replace(MACHINE, kernel_module=KernelModule("570.86.15", is_open=True), devices=(device("12.0"),)),
            Grade.BROKEN,
            "570.153.02",
        ),
        (PACKAGE, replace(MACHINE, devices=(device("12.0"),)), Grade.OK, "imports"),
        (PACKAGE, replace(MACHINE, is_tegra=True, devices=(device("8.7"),)), Grade.LIMITED, "Orin"),
        (FAILED, MACHINE, Grade.BROKEN, "not here"),
    ],
)
def test_each_need_that_is_not_met_is_named(
    package: PyNvVideoCodecReport, machine: CudaReport, state: Grade, words: str
) -> None:
    """Python, C library, encode library, interface, driver and platform each give their own reason."""
    verdict = judged(package, machine)
    assert verdict.state is state
    assert words in verdict.because
    assert verdict.fix or state is not Grade.BROKEN


@pytest.mark.parametrize(
    "package", [replace(PACKAGE, glibc_version=NO), replace(PACKAGE, python_version="3.15"), PACKAGE]
)
def test_an_import_that_worked_outranks_every_list(package: PyNvVideoCodecReport) -> None:
    """What the installation page says of Python, C library and driver explains failures; it does not make any."""
    machine = replace(
        MACHINE,
        kernel_module=KernelModule("570.86.15", is_open=True),
        devices=(device("12.0"),),
        codec_libraries={"libnvidia-encode.so.1": NO},
        nvenc_api="12.0",
    )
    verdict = judge_pynvvideocodec(package, machine, codecs_work=True)
    assert (verdict.state, verdict.fix) == (Grade.OK, "")


def test_an_older_driver_lacks_decode_statistics() -> None:
    """Before R590 the package works without statistics."""
    verdict = judged(machine=replace(MACHINE, kernel_module=KernelModule("580.159.04", is_open=False)))
    assert verdict.state is Grade.OK
    assert "R590" in verdict.limits[0]


def test_this_python_is_reported_either_way() -> None:
    """Installed or not, importable or not, the package is reported and this process has not imported it."""
    found = probe_pynvvideocodec(60)
    if importlib.util.find_spec("PyNvVideoCodec") is None:
        assert isinstance(found.version, Unavailable)
        assert found.version == found.picked
    else:
        assert isinstance(found.version, str)
        assert found.builds
        if isinstance(found.picked, Unavailable):
            assert found.picked.reason.startswith("importing PyNvVideoCodec failed: ")
            assert "\n" not in found.picked.reason
        else:
            assert found.picked in found.builds
