"""Judges forward compatibility: a newer user-mode driver, from a compat package, on an older kernel driver.

The ELF note of the library overrides the document's table, and the result of cuInit overrides both.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ..report.absence import Unavailable
from ..report.verdict import Diagnosis, Grade
from .report import LINKS, CudaDevice, CudaLibrary, CudaReport, Deployment, is_compat_library
from .tables import (
    FORWARD_LIMITS,
    FeatureLimit,
    Forward,
    forward_by_table,
    minor_version,
    newest_cuda_of,
    version_numbers,
)

_SUBJECT = "forward compatibility"
_WRONG_DEVICE = 804
_MISMATCH = 803
CODEC_LIMIT = "NVENC, NVDEC and NVML stay at the kernel driver's version"
_OPENCL_LIMIT = "OpenCL stays at the kernel driver's version"
_SINCE = {"libnvidia-nvvm": (11, 5), "libcudadebugger": (11, 8)}
"""The first CUDA version whose compat packages contain these libraries (CUDA Compatibility, section 3.2.1)."""
_NOT_FOR_WORK = ("libcudadebugger",)


class ForwardAnswer(NamedTuple):
    """Whether a compat library fits a kernel driver (None if unknown), with the deciding rule and the reason."""

    answer: Forward | None
    rule: str
    because: str


def forward_answer(library: CudaLibrary, host_driver: str) -> ForwardAnswer:
    """Return whether a compat library fits a kernel driver version ("550.54.15").

    A library with a note fits if the note lists the driver's branch and a newer CUDA version than the driver has.
    Without a note, the table in "CUDA Compatibility", section 3.3.1, decides. For a branch that the table lacks, a
    newer library may work, but an older library never works.
    """
    branch, host_cuda = version_numbers(host_driver)[0], newest_cuda_of(host_driver)
    note = library.note
    if not isinstance(note, Unavailable) and note.drivers:
        rule = "the note in the library (.note.cuda.fwd_compatibility)"
        if version_numbers(note.cuda_version)[:2] <= version_numbers(host_cuda):
            return _not_newer(rule, note.cuda_version, branch, host_cuda)
        if branch in note.drivers:
            return ForwardAnswer(Forward.WORKS, rule, f"the library for CUDA {note.cuda_version} accepts R{branch}")
        listed = ", ".join(f"R{accepted}" for accepted in note.drivers)
        return ForwardAnswer(Forward.NOT_SUPPORTED, rule, f"the library accepts {listed}, and the driver is R{branch}")
    cuda = cuda_of(library)
    if not cuda:
        return ForwardAnswer(None, "neither a note nor a version in the name", "the library's CUDA version is unknown")
    return _by_table(cuda, branch, host_cuda)


def _by_table(cuda: str, branch: int, host_cuda: str) -> ForwardAnswer:
    rule = "the matrix of compat packages and drivers (CUDA Compatibility, section 3.3.1, Table 3)"
    answer = forward_by_table(cuda, branch)
    if version_numbers(cuda)[:2] <= version_numbers(host_cuda):
        return _not_newer(rule, cuda, branch, host_cuda)
    word = {Forward.WORKS: "works on", None: "is not listed for"}.get(answer, "does not work on")
    return ForwardAnswer(answer, rule, f"the package for CUDA {cuda} {word} R{branch}")


def _not_newer(rule: str, cuda: str, branch: int, host_cuda: str) -> ForwardAnswer:
    if version_numbers(cuda)[:2] == version_numbers(host_cuda):
        because = f"R{branch} was made for CUDA {host_cuda}, so the package for {cuda} is not needed"
        return ForwardAnswer(Forward.NOT_NEEDED, rule, because)
    because = f"the package for CUDA {cuda} is older than the driver R{branch} (CUDA {host_cuda}), so it never works"
    return ForwardAnswer(Forward.NOT_SUPPORTED, rule, because)


def package_troubles(library: CudaLibrary, *, for_work: bool = False) -> tuple[str, ...]:
    """Return the faults of a compat package's files in a few words each (CUDA Compatibility, sections 3.2.1, 3.2.2).

    ``for_work`` ignores the debugger's library, which is not needed for work.
    """
    if not library.companions:
        return ()
    cuda = version_numbers(cuda_of(library))[:2]
    parts = [name for name in LINKS if cuda >= _SINCE.get(name, (0,)) and not (for_work and name in _NOT_FOR_WORK)]
    return tuple(filter(None, (_trouble_of(name, library) for name in parts)))


def _trouble_of(name: str, library: CudaLibrary) -> str:
    version, libcuda = library.companions.get(name), library.companions.get("libcuda")
    if version is None:
        return f"{name} is missing"
    if version != libcuda:
        return f"{name} is version {version}, but libcuda is {libcuda}"
    return f"the link {LINKS[name]} is missing or broken" if LINKS[name] in library.missing_links else ""


def judge_packages(report: CudaReport) -> Iterator[Diagnosis]:
    """Judge the files of every compat package on the disk; report packages that an upgrade should have removed."""
    used = report.library
    for library in report.compat_libraries:
        is_used = not isinstance(used, Unavailable) and used.path == library.path
        subject = f"compat package in {library.folder}"
        if troubles := package_troubles(library):
            rule = "its libraries share one version and have their links (CUDA Compatibility, sections 3.2.1 and 3.2.2)"
            grade, limits = (Grade.LIMITED, ()) if is_used else (Grade.OK, ("it cannot be used until it is repaired",))
            yield Diagnosis(subject, grade, rule, "; ".join(troubles), _repair(library), limits)
        elif not is_used and report.driver:
            yield from _left_behind(subject, library, report.driver)


def _repair(library: CudaLibrary) -> str:
    wanted = [
        f"ln -s {name}.so.{version} {library.folder}/{LINKS[name]}"
        for name, version in library.companions.items()
        if LINKS[name] in library.missing_links
    ]
    copy = f"copy the four libraries of one driver version into {library.folder}, or reinstall the package"
    return copy if len(wanted) < len(package_troubles(library)) else "; ".join(wanted)


def _left_behind(subject: str, library: CudaLibrary, host_driver: str) -> Iterator[Diagnosis]:
    """Report a compat package that is older than the driver; an upgrade should have removed it (3.3.1)."""
    cuda, host_cuda = cuda_of(library), newest_cuda_of(host_driver)
    if cuda and host_cuda and version_numbers(cuda)[:2] < version_numbers(host_cuda):
        because, package = forward_answer(library, host_driver).because, minor_version(cuda).replace(".", "-")
        fix = f"remove the package cuda-compat-{package}, or the files in {library.folder}"
        rule = "a driver upgrade removes older compat packages (CUDA Compatibility, section 3.3.1)"
        yield Diagnosis(subject, Grade.OK, rule, because, fix, ("it is left over from an older driver",))


def cuda_of(library: CudaLibrary) -> str:
    """Return a library's CUDA version, from its note or else from the driver version in its name; "" if unknown."""
    if not isinstance(library.note, Unavailable):
        return library.note.cuda_version
    return "" if isinstance(library.version, Unavailable) else newest_cuda_of(library.version)


def why_unfit(library: CudaLibrary, host_driver: str) -> str:
    """Return why a compat package cannot be used with a kernel driver; "" if it can."""
    found = forward_answer(library, host_driver)
    return "; ".join(package_troubles(library, for_work=True)) if found.answer is Forward.WORKS else found.because


def usable_compat_library(report: CudaReport, cuda_version: str) -> CudaLibrary | None:
    """Return a compat library on the disk that fits this kernel driver and has at least this CUDA version, or None."""
    fitting = (
        library
        for library in report.compat_libraries
        if report.driver
        and version_numbers(cuda_of(library)) >= version_numbers(cuda_version)
        and not why_unfit(library, report.driver)
    )
    return next(fitting, None)


def judge_forward(report: CudaReport) -> Iterator[Diagnosis]:
    """Judge the compat package in use: whether it fits, which files it lacks, and how it is deployed."""
    library = report.library
    if isinstance(library, Unavailable) or not is_compat_library(library, report.kernel_module):
        return
    if report.is_tegra:
        yield _on_tegra(library, report)
    elif report.driver:
        yield _fits(library, report)
    yield _device_support(report)
    yield _deployed(library, report)


def _fits(library: CudaLibrary, report: CudaReport) -> Diagnosis:
    answer, rule, because = forward_answer(library, report.driver)
    fix = f"remove {library.folder} from the library search path so that the driver's libcuda is used"
    if report.init_code == _MISMATCH:
        return Diagnosis(_SUBJECT, Grade.BROKEN, rule, f"{because}; cuInit refused it (803)", fix)
    fits = answer in (Forward.WORKS, Forward.NOT_NEEDED)
    if fits or report.init_code == 0:
        because += "" if fits else "; cuInit accepted it anyway"
        fix = "" if answer is Forward.WORKS else fix
        return Diagnosis(_SUBJECT, Grade.LIMITED, rule, because, fix, _limits(report))
    return Diagnosis(_SUBJECT, Grade.UNKNOWN if answer is None else Grade.BROKEN, rule, because, fix)


def _on_tegra(library: CudaLibrary, report: CudaReport) -> Diagnosis:
    """Judge a Jetson's upgrade package by the result of cuInit, because the library's note lists no driver branches."""
    rule, package = "a Jetson upgrade package names only its CUDA version", cuda_of(library) or "unknown"
    if report.init_code == 0:
        return Diagnosis(_SUBJECT, Grade.OK, rule, f"the package for CUDA {package} initialised")
    because, fix = (
        f"the package for CUDA {package} did not initialise",
        "install the package made for this JetPack",
    )
    return Diagnosis(_SUBJECT, Grade.UNKNOWN, rule, because, fix)


def _device_support(report: CudaReport) -> Diagnosis:
    """Judge whether the GPUs support compat packages."""
    subject = "hardware for compat packages"
    rule = "for data-centre GPUs and select NGC-ready RTX boards only (CUDA Compatibility, section 3.1)"
    if report.init_code == 0:
        return Diagnosis(subject, Grade.OK, rule, "cuInit accepted this hardware")
    if report.init_code == _WRONG_DEVICE:
        because = "cuInit returned 804: compat packages do not support one of the GPUs here"
        fix = "upgrade the driver instead, and remove the compat package from the library search path"
        return Diagnosis(subject, Grade.BROKEN, rule, because, fix)
    return Diagnosis(subject, Grade.UNKNOWN, rule, "cuInit failed before it checked the hardware")


def _deployed(library: CudaLibrary, report: CudaReport) -> Diagnosis:
    """Report the deployment model (CUDA Compatibility, section 3.4)."""
    subject, rule = "compat package's deployment", "shared or per application (CUDA Compatibility, section 3.4)"
    how = report.deployment
    if isinstance(how, Unavailable):
        return Diagnosis(subject, Grade.UNKNOWN, rule, how.reason)
    fix = "make the module check that the package fits the driver before it sets the path"
    because = f"{library.path} is deployed {how.value}"
    return Diagnosis(subject, Grade.OK, rule, because, fix if how is Deployment.MODULES else "")


def _limits(report: CudaReport) -> tuple[str, ...]:
    """Return the limits of forward compatibility (CUDA Compatibility, section 3.3.2, Table 4, and section 3.3.3)."""
    features = (_limit(limit, report.devices) for limit in FORWARD_LIMITS)
    return (*(feature for feature in features if feature), _OPENCL_LIMIT, CODEC_LIMIT)


def _limit(limit: FeatureLimit, devices: tuple[CudaDevice, ...]) -> str:
    if not limit.attributes:
        return f"{limit.feature}: only on {limit.condition}" if limit.condition else f"no {limit.feature}"
    values = [device.attributes.get(name) for device in devices for name in limit.attributes]
    if values and all(value == 1 for value in values):
        return ""
    known = values and all(isinstance(value, int) for value in values)
    return f"no {limit.feature}" if known else f"{limit.feature}: only if {limit.condition}"
