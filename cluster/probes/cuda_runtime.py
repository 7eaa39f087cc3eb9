"""Judges each CUDA runtime in use against the driver: backward, minor-version, or only with a compat package."""

from collections.abc import Iterator

from .absence import NotApplicable
from .cuda_errors import cuda_error
from .cuda_forward import usable_compat_library
from .cuda_report import CudaReport, RuntimeInUse
from .cuda_tables import EXACT_MINIMUMS, MINOR_VERSION_MINIMUMS, MinimumDriver, version_numbers
from .verdict import State, Verdict

__all__ = ["MINOR_VERSION_LIMITS", "judge_runtime", "judge_runtimes", "minimum_driver"]

_FIRST_MINOR_COMPATIBLE = 11
_BACKWARD = "drivers run what older toolkits made (CUDA Compatibility 4)"
_MINOR = "minor-version compatibility within a major version (CUDA Compatibility 2)"
_EXACT = "before CUDA 11 each toolkit needs its own driver (CUDA Compatibility 2.1, Table 2)"
_FORWARD = "across major versions only forward compatibility helps (CUDA Compatibility 3.1)"
MINOR_VERSION_LIMITS = (
    f"PTX from the newer toolkit does not compile: {cuda_error(222).name} (222)",
    f"functions newer than the driver fail: {cuda_error(36).runtime_name} (36)",
)
"""What a runtime newer than its driver cannot do (CUDA Compatibility 2.2)."""


def minimum_driver(cuda_version: str) -> MinimumDriver | None:
    """Return the oldest driver for a toolkit ("12.3"); None where no table knows it (CUDA Compatibility 2.1)."""
    major, *minor = version_numbers(cuda_version)
    if major >= _FIRST_MINOR_COMPATIBLE:
        return MINOR_VERSION_MINIMUMS.get(major)
    return EXACT_MINIMUMS.get(f"{major}.{minor[0] if minor else 0}")


def judge_runtimes(report: CudaReport) -> Iterator[Verdict]:
    """Judge every runtime that this installation would use."""
    if isinstance(report.library, NotApplicable):
        return  # said already, and nothing to measure by
    for runtime in report.runtimes:
        yield judge_runtime(runtime, report)


def judge_runtime(runtime: RuntimeInUse, report: CudaReport) -> Verdict:
    """Judge one runtime against the user-mode driver that is loaded (CUDA Compatibility 2 and 4)."""
    if isinstance(report.cuda_version, NotApplicable):
        return Verdict(runtime.name, State.UNKNOWN, _BACKWARD, report.cuda_version.reason)
    wanted, has = version_numbers(runtime.cuda_version)[:2], version_numbers(report.cuda_version)[:2]
    if has >= wanted:
        because = f"the driver is for CUDA {report.cuda_version}, the runtime for {runtime.cuda_version}"
        return Verdict(runtime.name, State.OK, _BACKWARD, because)
    if wanted[0] < _FIRST_MINOR_COMPATIBLE:
        return _too_new(runtime, report, _EXACT)
    if wanted[0] != has[0]:
        return _too_new(runtime, report, _FORWARD)
    return _minor_version(runtime, report)


def _minor_version(runtime: RuntimeInUse, report: CudaReport) -> Verdict:
    driver, minimum = _user_mode_driver(report), minimum_driver(runtime.cuda_version)
    if driver and minimum and version_numbers(driver) < version_numbers(minimum.linux):
        return _too_new(runtime, report, _MINOR)
    because = f"the runtime for CUDA {runtime.cuda_version} is newer than the driver's {report.cuda_version}"
    mend = f"for all of it, install the driver of CUDA {runtime.cuda_version} or later"
    fitting = usable_compat_library(report, runtime.cuda_version)
    if fitting is not None:
        mend = f"for all of it, {_use(fitting.path)}, or install the driver of CUDA {runtime.cuda_version}"
    return Verdict(runtime.name, State.LIMITED, _MINOR, because, mend, MINOR_VERSION_LIMITS)


def _user_mode_driver(report: CudaReport) -> str:
    """Return the version of the loaded libcuda, or of the kernel driver where its name tells none; "" on Tegra."""
    if report.is_tegra:
        return ""
    if not isinstance(report.library, NotApplicable) and not isinstance(report.library.version, NotApplicable):
        return report.library.version
    return "" if isinstance(report.kernel_module, NotApplicable) else report.kernel_module.version


def _too_new(runtime: RuntimeInUse, report: CudaReport, rule: str) -> Verdict:
    """Say that a runtime does not run on this driver, with what would help."""
    minimum = minimum_driver(runtime.cuda_version)
    driver = _user_mode_driver(report)
    needs = f" needs driver {minimum.linux} or later" if minimum else " is newer"
    because = f"CUDA {runtime.cuda_version}{needs}; this is {driver or 'one'} for CUDA {report.cuda_version}"
    mends = [f"install driver {minimum.linux} or later" if minimum else "install a newer driver"]
    fitting = usable_compat_library(report, runtime.cuda_version)
    if fitting is not None:
        mends.insert(0, _use(fitting.path))
    elif rule is _FORWARD and not report.is_tegra:
        dashed = "-".join(str(number) for number in version_numbers(runtime.cuda_version)[:2])
        mends.append(f"on a data-centre GPU use the package cuda-compat-{dashed}")
    if runtime.name.startswith("cuda-bindings"):
        has = version_numbers(report.cuda_version)[0] if isinstance(report.cuda_version, str) else 0
        mends.append(f"install the {has}.x line of cuda-python")
    return Verdict(runtime.name, State.BROKEN, rule, because, ", or ".join(mends))


def _use(path: str) -> str:
    return f"put {path.rpartition('/')[0]} first in LD_LIBRARY_PATH"
