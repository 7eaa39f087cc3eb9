"""Chooses the user-mode driver that workers load: the system's, or one from a CUDA compatibility package.

The rules and section numbers come from NVIDIA's "CUDA Compatibility". A package is needed only if the driver is older
than a runtime (3.3.1), and must first pass a trial. All processes share the newest package that fits; without a usable
package, they use the system's driver (3.4).
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ...fleet_variables import COMPAT, compat_folder, may_use_compat
from ..report.absence import Unavailable, known
from .forward import cuda_of, why_unfit
from .report import CudaLibrary, CudaReport, Deployment, is_compat_library
from .tables import cuda_error, version_numbers

LIBRARY_PATH: Final = "LD_LIBRARY_PATH"
_BROKEN_PACKAGE: Final = (803, 804)


@dataclass(frozen=True, slots=True)
class DriverChoice:
    """Which user-mode driver a machine's workers load."""

    search_path: str | None = None  # the workers' LD_LIBRARY_PATH; None leaves it unchanged
    folder: str = ""  # the compat package's folder; "" for the system's driver
    reason: str = ""  # why workers load this driver, as a sentence without a full stop; "" if there was no choice
    failed: bool = False  # whether the trial failed, a named package is missing, or a broken one cannot be bypassed

    @property
    def note(self) -> str:
        """The line for a job's report; "" if LD_LIBRARY_PATH stays unchanged and nothing failed."""
        return self.words if self.failed or self.search_path is not None else ""

    @property
    def words(self) -> str:
        """The choice in one line; "" if there was no choice."""
        loaded = f"the compat package in {self.folder}" if self.folder else "the system's CUDA driver"
        return f"workers load {loaded}: {self.reason}" if self.reason else ""


NO_CHOICE: Final = DriverChoice()
NOT_FOR_GEFORCE: Final = "compat packages do not support GeForce"


class Candidate(NamedTuple):
    """A driver to try."""

    search_path: str  # the LD_LIBRARY_PATH with which the driver is loaded
    folder: str  # the folder of the compat package to load; "" if the path only leaves out a broken package
    why: str


def choose_driver(
    system: CudaReport, environ: Mapping[str, str], try_path: Callable[[str], CudaReport]
) -> tuple[DriverChoice, CudaReport]:
    """Return which driver workers load, and the driver's report: ``system``, or the report of a trial.

    ``environ`` contains the workers' LD_LIBRARY_PATH and CODECFLEET_CUDA_COMPAT. ``try_path`` reports the driver that
    a process with the given LD_LIBRARY_PATH loads.
    """
    candidate = worth_a_trial(system, environ)
    if isinstance(candidate, DriverChoice):
        return candidate, system
    tried = try_path(candidate.search_path)
    choice = after_trial(candidate, system, tried)
    return choice, system if choice.search_path is None else tried


def worth_a_trial(system: CudaReport, environ: Mapping[str, str]) -> Candidate | DriverChoice:
    """Return a driver that may be better than the current one, or else the choice to keep the current one."""
    path = environ.get(LIBRARY_PATH, "")
    if not isinstance(system.library, Unavailable) and is_compat_library(system.library, system.kernel_module):
        return _without(system.library, system, path)
    if not system.driver:
        return NO_CHOICE
    if not system.compat_libraries:
        return without_packages(environ)
    if not may_use_compat(environ):
        return DriverChoice(reason=f"{COMPAT} forbids compat packages")
    needs = needs_newer(system)
    if not needs:
        return DriverChoice(reason="it supports every CUDA runtime here, so no compat package is needed")
    return _best(system, path, needs)


def without_packages(environ: Mapping[str, str]) -> DriverChoice:
    """Return the choice if no compat package was found; it has failed if CODECFLEET_CUDA_COMPAT names a folder."""
    named = compat_folder(environ)
    return (
        DriverChoice(reason=f"{COMPAT} names {named}, which holds no compat package", failed=True)
        if named
        else NO_CHOICE
    )


def needs_newer(system: CudaReport) -> str:
    """Return which runtimes are newer than the driver, as text; "" if none is newer, or the version is unknown."""
    if isinstance(system.cuda_version, Unavailable):
        return ""
    has = version_numbers(system.cuda_version)[:2]
    named = [(runtime.name, runtime.cuda_version) for runtime in system.runtimes]
    named += [("NVRTC", known(system.nvrtc, "0"))]
    newer = [f"{name} (CUDA {version})" for name, version in named if version_numbers(version)[:2] > has]
    verb = "is" if len(newer) == 1 else "are"
    return f"{' and '.join(newer)} {verb} newer than the driver's CUDA {system.cuda_version}" if newer else ""


def _best(system: CudaReport, path: str, needs: str) -> Candidate | DriverChoice:
    if system.has_geforce:
        return DriverChoice(reason=NOT_FOR_GEFORCE)
    newest_first = sorted(system.compat_libraries, key=lambda each: version_numbers(cuda_of(each)), reverse=True)
    for library in newest_first:
        if not why_unfit(library, system.driver):
            return Candidate(os.pathsep.join(filter(None, (library.folder, path))), library.folder, needs)
    return DriverChoice(reason=f"{newest_first[0].folder}: {why_unfit(newest_first[0], system.driver)}")


def _without(library: CudaLibrary, system: CudaReport, path: str) -> Candidate | DriverChoice:
    """Return a candidate without the loaded compat package, if that package is broken and in LD_LIBRARY_PATH."""
    if system.init_code not in _BROKEN_PACKAGE:
        return NO_CHOICE
    why = f"the compat package in {library.folder} does not start ({system.init_code})"
    if system.deployment not in (Deployment.SEARCH_PATH, Deployment.MODULES):
        reason = f"{why}; remove it, because only a package in {LIBRARY_PATH} can be bypassed"
        return DriverChoice(reason=reason, failed=True)
    here = Path(library.folder).resolve()
    kept = [folder for folder in path.split(os.pathsep) if folder and Path(folder).resolve() != here]
    return Candidate(os.pathsep.join(kept), "", why)


def after_trial(candidate: Candidate, system: CudaReport, tried: CudaReport) -> DriverChoice:
    """Choose the candidate if it starts CUDA on every device on which CUDA starts now; else keep the current driver."""
    trouble = _trouble(candidate, system, tried)
    if not trouble:
        return DriverChoice(candidate.search_path, candidate.folder, candidate.why)
    failed = f"a trial of the compat package in {candidate.folder} failed: {trouble}"
    return DriverChoice(
        reason=failed if candidate.folder else f"{candidate.why}, and without it {trouble}", failed=True
    )


def _trouble(candidate: Candidate, system: CudaReport, tried: CudaReport) -> str:
    if tried.ended:
        return tried.ended
    if isinstance(tried.library, Unavailable):
        return tried.library.reason
    if candidate.folder and tried.library.folder != str(Path(candidate.folder).resolve()):
        return f"{tried.library.path} was loaded instead"
    if isinstance(tried.init_code, Unavailable) or tried.init_code != 0:
        return f"cuInit returned {_named(tried.init_code)}"
    return _trouble_of_devices(system, tried)


def _trouble_of_devices(system: CudaReport, tried: CudaReport) -> str:
    if known(tried.device_count, 0) < known(system.device_count, 0):
        return f"it found {tried.device_count} devices, but the system's driver finds {system.device_count}"
    was_failing = {device.ordinal for device in system.devices if device.context_code != 0}
    failing = (each for each in tried.devices if each.context_code != 0 and each.ordinal not in was_failing)
    if (device := next(failing, None)) is None:
        return ""
    return f"creating a context on device {device.ordinal} returned {_named(device.context_code)}"


def _named(code: int | Unavailable) -> str:
    return code.reason if isinstance(code, Unavailable) else f"{cuda_error(code).name} ({code})"
