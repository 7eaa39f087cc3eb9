"""Reports of machines with one driver and one GPU, and the verdicts on them."""

from dataclasses import replace

from codecfleet.cluster.probes.cuda.compat import Diagnosis, judge
from codecfleet.cluster.probes.cuda.report import (
    CudaDevice,
    CudaLibrary,
    CudaReport,
    Deployment,
    ForwardNote,
    KernelModule,
    RuntimeInUse,
)
from codecfleet.cluster.probes.report.absence import Absence, Unavailable

NO = Unavailable(Absence.NO_LIBRARY, "it is not here")
NO_NOTE = Unavailable(Absence.NOT_FOUND, "there is no note")
COMPAT_590 = CudaLibrary(
    path="/usr/local/cuda-13.1/compat/libcuda.so.590.44.01",
    version="590.44.01",
    in_compat_folder=True,
    note=ForwardNote("13.1", (535, 550, 570, 575, 580, 590)),
)
WITHOUT_NOTE = replace(COMPAT_590, note=NO_NOTE)


def own_library(version: str) -> CudaLibrary:
    """Return the libcuda of a driver."""
    return CudaLibrary(path=f"/usr/lib/libcuda.so.{version}", version=version, in_compat_folder=False, note=NO_NOTE)


def device(**changes: object) -> CudaDevice:
    """Return an H200 without faults, except for ``changes``."""
    found = CudaDevice(
        ordinal=0,
        uuid="0",
        name="NVIDIA H200",
        compute_capability="9.0",
        attributes={"virtual_address_management_supported": 1, "handle_type_posix_file_descriptor_supported": 1},
        context_code=0,
        free_bytes=1,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def report(driver: str = "580.159.04", cuda: str = "13.0", **changes: object) -> CudaReport:
    """Return a machine with this driver and without faults, except for ``changes``."""
    found = CudaReport(
        kernel_module=KernelModule(driver, is_open=False),
        library=own_library(driver),
        deployment=Deployment.DRIVER,
        compat_libraries=(),
        cuda_version=cuda,
        init_code=0,
        device_count=1,
        devices=(device(),),
        codec_libraries={name: f"/usr/lib/{name}.{driver}" for name in ("libnvcuvid.so", "libnvidia-encode.so")},
        nvenc_api="13.0",
        runtimes=(),
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def compat_report(library: CudaLibrary = COMPAT_590, driver: str = "580.159.04", **changes: object) -> CudaReport:
    """Return a machine on which a compat package is in use."""
    return report(driver, "13.1", library=library, **{"deployment": Deployment.SEARCH_PATH, **changes})


def verdict_on(subject: str, found: CudaReport, nvml: str = "") -> Diagnosis:
    """Return the only verdict whose subject begins with this text."""
    (verdict,) = [v for v in judge(found, None, nvml) if v.subject.startswith(subject)]
    return verdict


def runtime_verdict(cuda: str, found: CudaReport, name: str = "a runtime") -> Diagnosis:
    """Return the verdict on a single runtime on this machine."""
    return verdict_on(name, replace(found, runtimes=(RuntimeInUse(name, cuda),)))
