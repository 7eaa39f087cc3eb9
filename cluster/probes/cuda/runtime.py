"""Judges each CUDA runtime in use, and the kernels that NVRTC compiles.

NVRTC must support the device's generation, and the driver must load NVRTC's code (CUDA Compatibility, section 2.3 and
chapter 5). The result of loading a kernel overrides a comparison of versions.
"""

from collections.abc import Iterator

from ..report.absence import Absence, Unavailable, known
from ..report.verdict import Diagnosis, Grade, Stops
from .forward import usable_compat_library
from .pynvvideocodec import INSTALL_EXTRA
from .report import CudaDevice, CudaReport, RuntimeInUse
from .tables import (
    FIRST_COMPATIBLE_NVRTC,
    MINOR_VERSION_MINIMUMS,
    TOOLKIT_DRIVERS,
    compat_package_for,
    cuda_error,
    generation_of,
    minor_version,
    version_numbers,
)

_FIRST_MINOR_COMPATIBLE = 11
_BACKWARD = "drivers run programs built with older toolkits (CUDA Compatibility, chapter 4)"
_MINOR = "minor-version compatibility within a major version (CUDA Compatibility, chapter 2)"
_EXACT = "before CUDA 11 each toolkit needs its own driver (CUDA Compatibility, section 2.1, Table 2)"
_FORWARD = "across major versions only forward compatibility helps (CUDA Compatibility, section 3.1)"
MINOR_VERSION_LIMITS = ("functions newer than the driver fail: cudaErrorCallRequiresNewerDriver (36)",)
# PTX from a newer toolkit fails with error 222 (CUDA Compatibility, section 2.2), so NVRTC compiles machine code for
# the device.
KERNEL_LIMITS = ("scaling and converting pictures on the GPU (the CPU does it instead)",)
"""The limits of a GPU that cannot run kernels; NVDEC and NVENC work without kernels."""
_KERNEL_RULE = "it compiles kernels for the GPU that runs them (CUDA Compatibility, section 2.3)"


def minimum_driver(cuda_version: str) -> str:
    """Return the oldest driver for a toolkit ("12.3"); "" if unknown (CUDA Compatibility, section 2.1)."""
    major, *minor = version_numbers(cuda_version)
    if major >= _FIRST_MINOR_COMPATIBLE:
        return MINOR_VERSION_MINIMUMS.get(major, "")
    return TOOLKIT_DRIVERS.get(f"{major}.{minor[0] if minor else 0}", "")


def judge_runtimes(report: CudaReport) -> Iterator[Diagnosis]:
    """Judge every runtime that this Python installation would use."""
    if isinstance(report.library, Unavailable):
        return  # a missing library gets its own verdict
    yield from (_judge_runtime(runtime, report) for runtime in report.runtimes)


def _judge_runtime(runtime: RuntimeInUse, report: CudaReport) -> Diagnosis:
    if isinstance(report.cuda_version, Unavailable):
        return Diagnosis(runtime.name, Grade.UNKNOWN, _BACKWARD, report.cuda_version.reason)
    wanted, has = version_numbers(runtime.cuda_version)[:2], version_numbers(report.cuda_version)[:2]
    if has >= wanted:
        because = f"the driver supports CUDA {report.cuda_version}, and the runtime needs {runtime.cuda_version}"
        return Diagnosis(runtime.name, Grade.OK, _BACKWARD, because)
    if wanted[0] < _FIRST_MINOR_COMPATIBLE:
        return _too_new(runtime, report, _EXACT)
    if wanted[0] != has[0]:
        return _too_new(runtime, report, _FORWARD)
    return _minor_version(runtime, report)


def _minor_version(runtime: RuntimeInUse, report: CudaReport) -> Diagnosis:
    driver, minimum = _user_mode_driver(report), minimum_driver(runtime.cuda_version)
    if driver and minimum and version_numbers(driver) < version_numbers(minimum):
        return _too_new(runtime, report, _MINOR)
    because = f"the runtime for CUDA {runtime.cuda_version} is newer than the driver's {report.cuda_version}"
    newer = TOOLKIT_DRIVERS.get(minor_version(runtime.cuda_version), "")
    steps = [*_package_on_disk(runtime, report), _install(newer, runtime, report)]
    return Diagnosis(runtime.name, Grade.LIMITED, _MINOR, because, ", or ".join(steps), MINOR_VERSION_LIMITS)


def _user_mode_driver(report: CudaReport) -> str:
    """Return the version of the loaded libcuda or else of the kernel driver; "" on a Tegra."""
    loaded = "" if isinstance(report.library, Unavailable) else known(report.library.version, "")
    return "" if report.is_tegra else loaded or report.driver


def _too_new(runtime: RuntimeInUse, report: CudaReport, rule: str) -> Diagnosis:
    minimum = minimum_driver(runtime.cuda_version)
    driver = _user_mode_driver(report)
    needs = f" needs driver {minimum} or later" if minimum else " is newer than the driver"
    has = f"driver {driver}" if driver else "the driver"
    because = f"CUDA {runtime.cuda_version}{needs}; {has} supports CUDA {report.cuda_version}"
    steps = [*_package_on_disk(runtime, report), _install(minimum, runtime, report)]
    if rule is _FORWARD and len(steps) == 1:
        package, why_none = _package(runtime, report)
        steps += [package] if package else []
        because += f"; {why_none}" if why_none else ""
    return Diagnosis(runtime.name, Grade.BROKEN, rule, because, ", or ".join(steps))


def _install(driver: str, runtime: RuntimeInUse, report: CudaReport) -> str:
    """Return the fix: a driver of version ``driver`` or later ("" for any newer driver), or a newer GPU."""
    if report.is_tegra:
        return f"install a JetPack that brings CUDA {runtime.cuda_version} or later"
    last, name = _last_branch(report)
    if not driver:
        return "install a newer driver"
    if last and version_numbers(driver)[0] > int(last):
        return f"use a newer GPU: the last driver for {name} is R{last}"
    return f"install driver {driver} or later" + (f" of R{last}, the last branch for {name}" if last else "")


def _last_branch(report: CudaReport) -> tuple[str, str]:
    """Return the last driver branch for all GPUs here, and the generation that ends with it; "" if none ends."""
    capabilities = [device.compute_capability for device in report.devices]
    found = [generation_of(capability) for capability in capabilities if isinstance(capability, str)]
    ends = [(generation.last_driver_branch, generation.name) for generation in found if generation is not None]
    return min((end for end in ends if end[0]), default=("", ""))


def _package(runtime: RuntimeInUse, report: CudaReport) -> tuple[str, str]:
    if not report.driver:
        return "", ""
    if report.has_geforce:
        return "", "compat packages do not support GeForce"
    branch = version_numbers(report.driver)[0]
    found = compat_package_for(runtime.cuda_version, branch, _last_branch(report)[0])
    if not found:
        return "", f"no compat package supports it on R{branch}"
    package, folder = f"cuda-compat-{found.replace('.', '-')}", f"/usr/local/cuda-{found}/compat"
    return f"on a data-centre GPU, install the package {package} and put {folder} first in LD_LIBRARY_PATH", ""


def _package_on_disk(runtime: RuntimeInUse, report: CudaReport) -> list[str]:
    fitting = usable_compat_library(report, runtime.cuda_version)
    return [] if fitting is None or report.has_geforce else [f"put {fitting.folder} first in LD_LIBRARY_PATH"]


def judge_kernels(report: CudaReport) -> Iterator[Diagnosis]:
    """Judge NVRTC, and a kernel on each device. There is no verdict if the probe did not reach NVRTC."""
    found = report.nvrtc
    if isinstance(found, Unavailable):
        if found.absence is Absence.NO_LIBRARY:
            yield Diagnosis(
                "NVRTC", Grade.LIMITED, _KERNEL_RULE, found.reason, INSTALL_EXTRA, KERNEL_LIMITS, Stops.KERNELS
            )
        return
    yield _against_driver(found, report)
    for device in report.devices:
        yield from _on_device(found, device)


def _against_driver(nvrtc: str, report: CudaReport) -> Diagnosis:
    """Judge whether the driver can load code from this NVRTC; a driver of unknown version counts as new enough."""
    made, has = version_numbers(nvrtc)[:2], version_numbers(known(report.cuda_version, nvrtc))[:2]
    if made <= has or (made[0] == has[0] and made >= FIRST_COMPATIBLE_NVRTC):
        return Diagnosis("NVRTC", Grade.OK, _KERNEL_RULE, f"NVRTC {nvrtc} loads")
    trouble = f"NVRTC {nvrtc} compiles kernels for CUDA {nvrtc}, but the driver supports CUDA {report.cuda_version}"
    if report.devices and all(device.kernel_code == 0 for device in report.devices):
        because = f"{trouble}; the driver loaded one of its kernels anyway"
        return Diagnosis("NVRTC", Grade.OK, _KERNEL_RULE, because)
    fix = f"install a driver for CUDA {nvrtc}, a compat package that fits, or NVRTC for CUDA {has[0]}"
    return Diagnosis("NVRTC", Grade.LIMITED, _KERNEL_RULE, trouble, fix, KERNEL_LIMITS, Stops.KERNELS)


def _on_device(nvrtc: str, device: CudaDevice) -> Iterator[Diagnosis]:
    """Yield why a device runs no kernels: the error when a kernel was loaded, or why no kernel was tried."""
    code = device.kernel_code
    if code == 0:
        return
    if not isinstance(code, Unavailable):
        error = cuda_error(code)
        because, fix = f"loading a kernel returned {error.name} ({code}): {error.meaning}", error.fix
    else:
        because = "" if code.absence is Absence.FAILED else code.reason
        unknown, fix = _unknown_generation(nvrtc, device)
        because = "; ".join(filter(None, (because, unknown)))
    if because:
        subject, uuid = f"kernels on device {device.ordinal} ({device.name})", device.uuid
        stopped = "" if isinstance(uuid, Unavailable) else uuid
        yield Diagnosis(subject, Grade.LIMITED, _KERNEL_RULE, because, fix, KERNEL_LIMITS, Stops.KERNELS, stopped)


def _unknown_generation(nvrtc: str, device: CudaDevice) -> tuple[str, str]:
    capability = device.compute_capability
    generation = None if isinstance(capability, Unavailable) else generation_of(capability)
    if generation is None:
        return "", INSTALL_EXTRA
    made, first, last = version_numbers(nvrtc), generation.first_toolkit, generation.last_toolkit
    if made < version_numbers(first):
        return f"NVRTC {nvrtc} does not support {generation.name}", f"install NVRTC from CUDA {first} or later"
    if last and made > version_numbers(last):
        return f"NVRTC {nvrtc} no longer compiles for {generation.name}", f"install NVRTC from CUDA {last} or earlier"
    return "", INSTALL_EXTRA
