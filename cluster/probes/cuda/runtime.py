"""Judges each CUDA runtime in use against the driver: backward, minor-version, or only with a compat package."""

from collections.abc import Iterator

from ..report.absence import Unavailable
from ..report.verdict import Diagnosis, Grade
from .forward import usable_compat_library
from .report import CudaReport, RuntimeInUse
from .tables import (
    MINOR_VERSION_MINIMUMS,
    TOOLKIT_DRIVERS,
    compat_package_for,
    generation_of,
    is_geforce,
    minor_version,
    version_numbers,
)

_FIRST_MINOR_COMPATIBLE = 11
_BACKWARD = "drivers run what older toolkits made (CUDA Compatibility 4)"
_MINOR = "minor-version compatibility within a major version (CUDA Compatibility 2)"
_EXACT = "before CUDA 11 each toolkit needs its own driver (CUDA Compatibility 2.1, Table 2)"
_FORWARD = "across major versions only forward compatibility helps (CUDA Compatibility 3.1)"
MINOR_VERSION_LIMITS = ("functions newer than the driver fail: cudaErrorCallRequiresNewerDriver (36)",)
"""What a runtime newer than its driver cannot do (CUDA Compatibility 2.2).

PTX of a newer toolkit does not compile (222), but NVRTC compiles our kernels for the device itself.
"""


def minimum_driver(cuda_version: str) -> str:
    """Return the oldest driver for a toolkit ("12.3"); "" where no table knows it (CUDA Compatibility 2.1)."""
    major, *minor = version_numbers(cuda_version)
    if major >= _FIRST_MINOR_COMPATIBLE:
        return MINOR_VERSION_MINIMUMS.get(major, "")
    return TOOLKIT_DRIVERS.get(f"{major}.{minor[0] if minor else 0}", "")


def judge_runtimes(report: CudaReport) -> Iterator[Diagnosis]:
    """Judge every runtime that this installation would use."""
    if isinstance(report.library, Unavailable):
        return  # said already, and nothing to measure by
    yield from (_judge_runtime(runtime, report) for runtime in report.runtimes)


def _judge_runtime(runtime: RuntimeInUse, report: CudaReport) -> Diagnosis:
    """Judge one runtime against the user-mode driver that is loaded (CUDA Compatibility 2 and 4)."""
    if isinstance(report.cuda_version, Unavailable):
        return Diagnosis(runtime.name, Grade.UNKNOWN, _BACKWARD, report.cuda_version.reason)
    wanted, has = version_numbers(runtime.cuda_version)[:2], version_numbers(report.cuda_version)[:2]
    if has >= wanted:
        because = f"the driver is for CUDA {report.cuda_version}, the runtime for {runtime.cuda_version}"
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
    steps = [
        *_package_on_disk(runtime, report),
        _install(TOOLKIT_DRIVERS.get(minor_version(runtime.cuda_version), ""), runtime, report),
    ]
    return Diagnosis(runtime.name, Grade.LIMITED, _MINOR, because, ", or ".join(steps), MINOR_VERSION_LIMITS)


def _user_mode_driver(report: CudaReport) -> str:
    """Return the version of the loaded libcuda, or of the kernel driver where its name has no version; "" on Tegra."""
    if report.is_tegra:
        return ""
    if not isinstance(report.library, Unavailable) and not isinstance(report.library.version, Unavailable):
        return report.library.version
    return "" if isinstance(report.kernel_module, Unavailable) else report.kernel_module.version


def _too_new(runtime: RuntimeInUse, report: CudaReport, rule: str) -> Diagnosis:
    """Say that a runtime does not run on this driver, with what would help."""
    minimum = minimum_driver(runtime.cuda_version)
    driver = _user_mode_driver(report)
    needs = f" needs driver {minimum} or later" if minimum else " is newer"
    because = f"CUDA {runtime.cuda_version}{needs}; this is {driver or 'one'} for CUDA {report.cuda_version}"
    steps = [*_package_on_disk(runtime, report), _install(minimum, runtime, report)]
    if rule is _FORWARD and len(steps) == 1:
        package, why_none = _package(runtime, report)
        steps += [package] if package else []
        because += f"; {why_none}" if why_none else ""
    return Diagnosis(runtime.name, Grade.BROKEN, rule, because, ", or ".join(steps))


def _install(driver: str, runtime: RuntimeInUse, report: CudaReport) -> str:
    """Return the step that installs a driver which knows the GPUs at hand; "" for ``driver`` is any newer one."""
    if report.is_tegra:
        return f"install a JetPack that brings CUDA {runtime.cuda_version} or later"
    last, name = _last_branch(report)
    if not driver:
        return "install a newer driver"
    if last and version_numbers(driver)[0] > int(last):
        return f"use a newer GPU: the last driver for {name} is R{last}"
    return f"install driver {driver} or later" + (f" of R{last}, the last branch for {name}" if last else "")


def _last_branch(report: CudaReport) -> tuple[str, str]:
    """Return the last driver branch that knows every GPU here, and which generation it ends with; "" for no end."""
    capabilities = [device.compute_capability for device in report.devices]
    found = [generation_of(capability) for capability in capabilities if isinstance(capability, str)]
    ends = [(generation.last_driver_branch, generation.name) for generation in found if generation is not None]
    return min((end for end in ends if end[0]), default=("", ""))


def _package(runtime: RuntimeInUse, report: CudaReport) -> tuple[str, str]:
    """Return the step that installs a compat package, or else why there is none to install."""
    module = report.kernel_module
    if report.is_tegra or isinstance(module, Unavailable):
        return "", ""
    if any(is_geforce(device.name) for device in report.devices):
        return "", "compat packages are not for GeForce"
    branch = version_numbers(module.version)[0]
    found = compat_package_for(runtime.cuda_version, branch, _last_branch(report)[0])
    if not found:
        return "", f"no compat package brings it to R{branch}"
    package, folder = f"cuda-compat-{found.replace('.', '-')}", f"/usr/local/cuda-{found}/compat"
    return f"on a data-centre GPU install the package {package} and put {folder} first in LD_LIBRARY_PATH", ""


def _package_on_disk(runtime: RuntimeInUse, report: CudaReport) -> list[str]:
    """Return the step that uses a compat package which is installed already; none where there is none that fits."""
    fitting = usable_compat_library(report, runtime.cuda_version)
    if fitting is None or any(is_geforce(device.name) for device in report.devices):
        return []
    return [f"put {fitting.path.rpartition('/')[0]} first in LD_LIBRARY_PATH"]
