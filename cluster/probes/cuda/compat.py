"""Judges a machine's CUDA driver from the probes' reports, by the rules of NVIDIA's "CUDA Compatibility".

The result of a trial overrides the document's tables.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..report.absence import Absence, Unavailable, known
from ..report.verdict import Diagnosis, Grade, Stops
from .forward import CODEC_LIMIT, judge_forward, judge_packages
from .pynvvideocodec import PyNvVideoCodecReport, judge_pynvvideocodec
from .report import CudaDevice, CudaReport, is_compat_library
from .runtime import judge_kernels, judge_runtimes
from .tables import END_OF_LIFE_BRANCHES, NEW_FEATURE_BRANCHES, cuda_error, generation_of, version_numbers

STUCK_FIX: Final = (
    "look for NVRM and Xid lines (sudo dmesg | grep -E 'NVRM|Xid'); if nvidia-smi hangs too, restart the machine"
)
_VERSIONED_DOTS: Final = 3  # A file name with a driver version has at least this many dots: "libnvcuvid.so.580.95".


def judge(
    report: CudaReport,
    package: PyNvVideoCodecReport | None = None,
    nvml_driver_version: str = "",
    *,
    codecs_work: bool = False,
) -> tuple[Diagnosis, ...]:
    """Return the verdicts about the CUDA driver and the software that uses it, causes before consequences.

    A machine without an NVIDIA driver gets one verdict, which is not "broken". ``nvml_driver_version`` is "" if
    unknown. ``codecs_work`` means that a GPU here has decoded or encoded a picture.
    """
    if not has_driver(report):
        rule = "a GPU needs a kernel driver and libcuda (CUDA Compatibility, chapter 1)"
        because = "neither NVIDIA's kernel driver nor libcuda is installed, so only software engines work"
        fix = "on a machine with an NVIDIA GPU, install its driver; in a container, give it the GPUs (--gpus all)"
        return (Diagnosis("NVIDIA driver", Grade.UNKNOWN, rule, because, fix),)
    verdicts = [
        *_versions_agree(report, nvml_driver_version),
        *_initialises(report, codecs_work=codecs_work),
        *_branch(report),
        *_devices(report),
        *judge_forward(report),
        *judge_packages(report),
        *judge_runtimes(report),
        _codec_libraries(report, codecs_work=codecs_work),
        *judge_kernels(report),
    ]
    if package is not None:
        verdicts.append(judge_pynvvideocodec(package, report, codecs_work=codecs_work))
    return tuple(verdicts)


def has_driver(report: CudaReport) -> bool:
    """Whether the machine has any part of an NVIDIA driver: the kernel module or libcuda."""
    return not (isinstance(report.kernel_module, Unavailable) and isinstance(report.library, Unavailable))


def _versions_agree(report: CudaReport, nvml: str) -> Iterator[Diagnosis]:
    """Judge whether the kernel driver and the user-mode driver have the same version. A compat package may differ."""
    subject = "driver versions"
    rule = "user-mode and kernel driver have the same version (CUDA Compatibility, section 3.3.3)"
    module, library = report.kernel_module, report.library
    if isinstance(module, Unavailable):
        # On a Tegra, and in some containers, the file is missing although the driver works.
        if report.init_code != 0:
            fix = "load it (sudo modprobe nvidia) or, in a container, start it with --gpus all"
            reason = module.reason
            reason = reason if reason.startswith("NVIDIA") else reason[:1].lower() + reason[1:]
            yield Diagnosis(subject, Grade.BROKEN, rule, f"libcuda is installed, but {reason}", fix)
        return
    if isinstance(library, Unavailable):
        because = f"the kernel driver {module.version} is loaded, but {library.reason}"
        fix = f"install user-mode driver {module.version}, exactly the kernel driver's version"
        grade = _missing(library)
        yield Diagnosis(
            subject, grade, rule, because, fix, stops=Stops.CUDA if grade is Grade.BROKEN else Stops.NOTHING
        )
        return
    others = {"NVML": nvml}
    if not (is_compat_library(library, module) or report.is_tegra):
        others = {"libcuda": known(library.version, ""), **others}
    wrong = [f"{name} is {version}" for name, version in others.items() if version and version != module.version]
    because = f"the kernel driver is {module.version}, but {' and '.join(wrong)}"
    if not wrong:
        kind = "open " if module.is_open else ""
        yield Diagnosis(subject, Grade.OK, rule, f"the {kind}kernel driver and its libraries are {module.version}")
    elif report.init_code == 0:
        accepted = f"{because}; cuInit succeeds anyway"
        yield Diagnosis(subject, Grade.OK, rule, accepted, limits=(CODEC_LIMIT,))
    else:
        fix = f"after a driver upgrade, restart the machine; else install libraries of version {module.version}"
        yield Diagnosis(subject, Grade.BROKEN, rule, because, fix)


def _missing(absence: Unavailable) -> Grade:
    """Grade the absence of a library: "broken" only if the library is known to be missing."""
    return Grade.BROKEN if absence.absence is Absence.NO_LIBRARY else Grade.UNKNOWN


def _initialises(report: CudaReport, *, codecs_work: bool) -> Iterator[Diagnosis]:
    """Judge the result of cuInit.

    After three kinds of failure, devices stay in use: an error that may pass by itself (affected workers restart after
    a pause), a probe that ran out of time or memory, and a crash on a machine where a codec session worked.
    """
    subject, rule = "CUDA initialisation", "the result of cuInit (CUDA Compatibility, section 3.3.3)"
    code = report.init_code
    if report.ended:
        because = f"the process that probed the driver ended: {report.ended}"
        stops = Stops.CUDA if report.has_crashed and not codecs_work else Stops.NOTHING
        yield Diagnosis(subject, Grade.BROKEN, rule, because, STUCK_FIX, stops=stops)
    elif isinstance(code, Unavailable):
        if not isinstance(report.library, Unavailable):
            yield Diagnosis(subject, Grade.UNKNOWN, rule, code.reason)
    elif code == 0:
        found = "1 device" if report.device_count == 1 else f"{report.device_count} devices"
        yield Diagnosis(subject, Grade.OK, rule, f"cuInit succeeded and found {found}")
    else:
        error = cuda_error(code)
        because = f"cuInit returned {error.name} ({code}): {error.meaning}"
        stops = Stops.NOTHING if error.is_passing else Stops.CUDA
        yield Diagnosis(subject, Grade.BROKEN, rule, because, error.fix, stops=stops)


def _branch(report: CudaReport) -> Iterator[Diagnosis]:
    if not report.driver:
        return
    subject, rule = "driver branch", "ended branches and new feature branches (CUDA Compatibility, section 3.3.1)"
    branch = version_numbers(report.driver)[0]
    fix, limits = "install a driver of a production or long-term branch", ("compat packages do not support it",)
    if branch in END_OF_LIFE_BRANCHES:
        because = f"NVIDIA no longer supports branch R{branch}"
        yield Diagnosis(subject, Grade.LIMITED, rule, because, fix, ("no fixes", *limits))
    elif branch in NEW_FEATURE_BRANCHES:
        yield Diagnosis(subject, Grade.LIMITED, rule, f"R{branch} is a short-lived new feature branch", fix, limits)
    else:
        yield Diagnosis(subject, Grade.OK, rule, f"R{branch} is not known to have ended")


def _devices(report: CudaReport) -> Iterator[Diagnosis]:
    for device in report.devices:
        yield _context(device)
        yield from _hardware(device, report.driver)


def _context(device: CudaDevice) -> Diagnosis:
    subject = f"device {device.ordinal} ({device.name})"
    rule = "retaining the primary context, as every codec session does"
    code = device.context_code
    if isinstance(code, Unavailable):
        return Diagnosis(subject, Grade.UNKNOWN, rule, code.reason)
    if code == 0:
        return Diagnosis(subject, Grade.OK, rule, "a context was created and its memory queried")
    error = cuda_error(code)
    because = f"creating a context returned {error.name} ({code}): {error.meaning}"
    if error.is_passing:
        return Diagnosis(subject, Grade.LIMITED, rule, because, error.fix)
    stops = Stops.CUDA if (uuid := known(device.uuid, "")) else Stops.NOTHING
    return Diagnosis(subject, Grade.BROKEN, rule, because, error.fix, stops=stops, device=uuid)


def _hardware(device: CudaDevice, driver: str) -> Iterator[Diagnosis]:
    """Judge whether toolkits and drivers support the device's generation of GPUs; ``driver`` is "" if unknown."""
    if isinstance(device.compute_capability, Unavailable):
        return
    subject = f"generation of device {device.ordinal} ({device.name})"
    rule = "the kernel driver decides which hardware works (CUDA Compatibility, chapter 5)"
    generation = generation_of(device.compute_capability)
    if generation is None:
        because = f"compute capability {device.compute_capability} is older than Maxwell"
        yield Diagnosis(subject, Grade.LIMITED, rule, because, "use a newer GPU", ("no maintained driver supports it",))
    elif driver and version_numbers(driver) < version_numbers(generation.first_driver):
        because = f"{generation.name} needs driver {generation.first_driver} or later, and this is {driver}"
        if device.context_code == 0:
            yield Diagnosis(subject, Grade.OK, rule, f"{because}; a context was created anyway")
        else:
            yield Diagnosis(subject, Grade.BROKEN, rule, because, f"install driver {generation.first_driver} or later")
    elif generation.last_driver_branch:
        because = f"drivers support {generation.name} up to R{generation.last_driver_branch}"
        limits = (f"no toolkit after CUDA {generation.last_toolkit} compiles for it",)
        yield Diagnosis(subject, Grade.LIMITED, rule, because, "stay on that branch, or use a newer GPU", limits)
    else:
        because = f"{generation.name} (compute capability {device.compute_capability}) is supported"
        yield Diagnosis(subject, Grade.OK, rule, because)


def _codec_packages(report: CudaReport) -> str:
    """Return how to install the codec libraries, with their package names in Debian and Ubuntu."""
    module = report.kernel_module
    branch = "" if isinstance(module, Unavailable) else f"-{version_numbers(module.version)[0]}"
    packages = f"libnvidia-decode{branch} and libnvidia-encode{branch}"
    return (
        f"install the driver's codec libraries (Ubuntu: {packages}); "
        "in a container: -e NVIDIA_DRIVER_CAPABILITIES=compute,utility,video"
    )


def _codec_libraries(report: CudaReport, *, codecs_work: bool) -> Diagnosis:
    """Judge whether the driver's codec libraries load and have the version of the kernel driver."""
    subject = "codec libraries"
    rule = "they come with the driver and stay at its version (CUDA Compatibility, section 3.3.3)"
    absent = {name: path for name, path in report.codec_libraries.items() if isinstance(path, Unavailable)}
    if absent:
        state = Grade.BROKEN if Grade.BROKEN in map(_missing, absent.values()) else Grade.UNKNOWN
        because = f"{' and '.join(absent)} cannot be loaded"
        return Diagnosis(subject, state, rule, because, _codec_packages(report))
    files = [Path(str(path)).name for path in report.codec_libraries.values()]
    driver = report.driver
    strangers = [file for file in files if not file.endswith(driver) and file.count(".") >= _VERSIONED_DOTS]
    if not strangers:
        return Diagnosis(subject, Grade.OK, rule, f"{', '.join(files)} load")
    because = f"the kernel driver is {driver}, but {' and '.join(strangers)} was loaded"
    if codecs_work:
        return Diagnosis(subject, Grade.OK, rule, f"{because}; a codec session worked anyway")
    return Diagnosis(subject, Grade.BROKEN, rule, because, f"install the driver's libraries of version {driver}")
