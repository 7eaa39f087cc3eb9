"""Judges PyNvVideoCodec by the package's requirements, and by the result of an import in a child process.

The import loads libnvidia-encode.so.1, whose newest NVENC interface decides which of the package's two builds is used.
Therefore a host that only decodes also needs this library.
"""

import importlib
import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from ..child.child import run_in_child
from ..report.absence import Absence, Maybe, Unavailable
from ..report.verdict import Diagnosis, Grade
from .report import CudaReport
from .tables import CODEC_PACKAGE, version_numbers

INSTALL_EXTRA = 'install the extra: pip install "codecfleet[nvidia]"'
_SUBJECT = "PyNvVideoCodec"
_ENCODE_LIBRARY = "libnvidia-encode.so.1"
_BLACKWELL = (10, 0)
_ORIN = "8.7"
_AARCH64_NEW_PYTHON = (3, 13)
_NO_GLIBC = Unavailable(Absence.DOES_NOT_APPLY, "the C library is not glibc")
_BUILD = re.compile(r"PyNvVideoCodec(_\d+)\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PyNvVideoCodecReport:
    """The installed PyNvVideoCodec, and the result of an import."""

    version: Maybe[str]
    picked: Maybe[str]  # the suffix of the build that the import chose ("_130"), or why the import failed
    python_version: str  # such as "3.11"
    glibc_version: Maybe[str]  # the version of glibc ("2.36"); absent with another C library
    machine: str  # the machine's architecture, such as "x86_64"


def probe_pynvvideocodec(limit_s: float) -> PyNvVideoCodecReport:
    """Report PyNvVideoCodec, imported in a child process within ``limit_s``; never raises."""
    version: Maybe[str] = Unavailable(Absence.NO_LIBRARY, "PyNvVideoCodec is not installed")
    with suppress(importlib.metadata.PackageNotFoundError):
        version = importlib.metadata.version("PyNvVideoCodec")
    picked: Maybe[str] = version
    if not isinstance(version, Unavailable):
        outcome = run_in_child(try_import, {}, limit_s)
        picked = outcome.values[0] if outcome.returned else _failure(outcome.detail)
    library, glibc = platform.libc_ver()
    return PyNvVideoCodecReport(
        version=version,
        picked=picked,
        python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
        glibc_version=glibc if library == "glibc" else _NO_GLIBC,
        machine=platform.machine(),
    )


def try_import() -> str:
    """Import the package, and return the suffix of the chosen build. Run this in a child process."""
    package = importlib.import_module("PyNvVideoCodec")
    found = _BUILD.search(str(getattr(package, "module_path", "")))  # the file of the chosen build
    return found[1] if found else "unknown"


def _failure(detail: str) -> Unavailable:
    """Return the first line of an import error; the package adds pages of advice to it."""
    first = detail.splitlines()[0] if detail else ""
    return Unavailable(Absence.FAILED, f"importing PyNvVideoCodec failed: {first.rstrip('.')}")


def judge_pynvvideocodec(package: PyNvVideoCodecReport, report: CudaReport, *, codecs_work: bool = False) -> Diagnosis:
    """Judge the package on a machine with an NVIDIA driver; the verdict names the first unmet requirement.

    A requirement of the import matters only if the import failed, and a requirement of a session only if no session
    worked (``codecs_work`` is false).
    """
    if isinstance(package.version, Unavailable):
        because, limits = package.version.reason, ("decoding and encoding on NVIDIA's engines",)
        return Diagnosis(_SUBJECT, Grade.LIMITED, "it is an optional package", because, INSTALL_EXTRA, limits)
    imports = () if isinstance(package.picked, str) else (*_system(package), *_library(report), *_api(report))
    sessions = () if codecs_work else (*_orin(report), *_blackwell(report))
    if unmet := (*imports, *sessions):
        return unmet[0]
    rule = "its import, tried in a separate process"
    if isinstance(package.picked, Unavailable):
        fix = "import it by hand to see the whole message: python -c 'import PyNvVideoCodec'"
        return Diagnosis(_SUBJECT, Grade.BROKEN, rule, package.picked.reason, fix)
    because = (
        f"version {package.version} can be imported and picked its build {package.picked} for NVENC {report.nvenc_api}"
    )
    oldest, branch = CODEC_PACKAGE["decode_statistics_branch"], version_numbers(report.driver)[:1]
    is_old = bool(branch) and branch < (oldest,)
    missing = (f"decode statistics need driver R{oldest} or later",)
    return Diagnosis(_SUBJECT, Grade.OK, rule, because, limits=missing if is_old else ())


def _system(package: PyNvVideoCodecReport) -> Iterator[Diagnosis]:
    python, oldest, newest = package.python_version, CODEC_PACKAGE["oldest_python"], CODEC_PACKAGE["newest_python"]
    if not version_numbers(oldest) <= version_numbers(python) <= version_numbers(newest):
        because = f"it supports Python {oldest} to {newest}, and this is {python}"
        yield Diagnosis(_SUBJECT, Grade.BROKEN, "its installation page", because, "use one of those Python versions")
    new_arm = package.machine == "aarch64" and version_numbers(python) >= _AARCH64_NEW_PYTHON
    glibc = CODEC_PACKAGE["glibc_of_aarch64_with_python_3_13" if new_arm else "glibc"]
    has = package.glibc_version
    if isinstance(has, Unavailable) or version_numbers(has) < version_numbers(glibc):
        because = (
            f"it needs glibc {glibc} or later, and {has.reason if isinstance(has, Unavailable) else f'this is {has}'}"
        )
        fix = "use a newer distribution or image"
        yield Diagnosis(_SUBJECT, Grade.BROKEN, "its wheels' platform tags", because, fix)


def _orin(report: CudaReport) -> Iterator[Diagnosis]:
    if report.is_tegra and any(device.compute_capability == _ORIN for device in report.devices):
        because = "the only Jetson that it supports is Thor, and this is an Orin"
        limits = ("NVDEC and NVENC through this package",)
        yield Diagnosis(_SUBJECT, Grade.LIMITED, "its installation page", because, "", limits)


def _library(report: CudaReport) -> Iterator[Diagnosis]:
    found = report.codec_libraries.get(_ENCODE_LIBRARY)
    if isinstance(found, Unavailable):
        because = f"its import needs {_ENCODE_LIBRARY} even to decode: {found.reason}"
        fix = (
            "install the driver's encode library (Ubuntu: libnvidia-encode-<branch>); "
            "in a container: -e NVIDIA_DRIVER_CAPABILITIES=compute,utility,video"
        )
        yield Diagnosis(_SUBJECT, Grade.BROKEN, "it needs the encode library to import", because, fix)


def _api(report: CudaReport) -> Iterator[Diagnosis]:
    has, oldest = report.nvenc_api, CODEC_PACKAGE["oldest_nvenc_api"]
    if not isinstance(has, Unavailable) and version_numbers(has) < version_numbers(oldest):
        because = f"the driver's NVENC interface is {has}, and the oldest build needs {oldest}"
        branch = CODEC_PACKAGE["oldest_driver_branch"]
        fix = f"install driver R{branch} or later; a compat package does not help, because it contains no codecs"
        yield Diagnosis(_SUBJECT, Grade.BROKEN, "the NVENC interface that its builds need", because, fix)


def _blackwell(report: CudaReport) -> Iterator[Diagnosis]:
    needed, driver = CODEC_PACKAGE["blackwell_driver"], version_numbers(report.driver)
    is_here = any(
        isinstance(device.compute_capability, str) and version_numbers(device.compute_capability) >= _BLACKWELL
        for device in report.devices
    )
    if is_here and driver and driver < version_numbers(needed):
        because = f"on Blackwell it needs driver {needed} or later"
        yield Diagnosis(_SUBJECT, Grade.BROKEN, "its readme", because, f"install driver {needed} or later")
