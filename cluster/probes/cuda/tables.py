"""The tables of NVIDIA's "CUDA Compatibility", read from ``configs/cuda.toml``.

A CUDA version is "13.4" as text and (13, 4) for comparison.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from ..report.tables import read_tables


def version_numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers for comparison: (580, 159, 4) for "580.159.04".

    The numbers end before the first part that is not a number.
    """
    numbers: list[int] = []
    for part in version.split("."):
        if not (part.isascii() and part.isdigit()):
            break
        numbers.append(int(part))
    return tuple(numbers)


def minor_version(version: str) -> str:
    """Return the first two numbers of a version as text: "12.3" for "12.3.101"."""
    return ".".join(map(str, version_numbers(version)[:2]))


def cuda_version(number: int) -> str:
    """Return a CUDA version as text: "13.4" for 13040, the form in cuDriverGetVersion and NVML."""
    return f"{number // 1000}.{number % 1000 // 10}"


class Forward(Enum):
    """Whether a compat package works on a kernel driver."""

    WORKS = "works"
    NOT_SUPPORTED = "not supported"
    NOT_NEEDED = "not needed"  #: the driver was made for the CUDA version of the package


class FeatureLimit(NamedTuple):
    """A feature that a compat package may lack."""

    feature: str
    attributes: tuple[str, ...] = ()  # names in ``ask.ATTRIBUTES``; a device with all of them has the feature
    condition: str = ""  # the condition under which the feature exists


@dataclass(frozen=True, slots=True)
class HardwareGeneration:
    """A GPU generation, with the kernel drivers and toolkits that support it (CUDA Compatibility, chapter 5)."""

    name: str
    first_capability: list[int]
    first_driver: str
    first_toolkit: str  # the oldest toolkit that compiles for the generation
    last_toolkit: str = ""  # the newest toolkit that compiles for the generation; "" if all later toolkits do
    last_driver_branch: str = ""  # the last driver branch that supports the generation; "" if all later branches do


@dataclass(frozen=True, slots=True)
class CudaError:
    """An error code; ``is_passing`` means that the call may succeed later without a fix."""

    code: int
    name: str
    meaning: str
    fix: str
    is_passing: bool = False


_TABLES = read_tables("cuda.toml")
TOOLKIT_DRIVERS: dict[str, str] = _TABLES["toolkit_drivers"]
"""The oldest driver that supports a whole toolkit, by the toolkit's CUDA version, newest first."""
MINOR_VERSION_MINIMUMS: dict[int, str] = {int(major): driver for major, driver in _TABLES["minimum_drivers"].items()}
"""The oldest driver for minor-version compatibility, by major CUDA version."""
END_OF_LIFE_BRANCHES = frozenset(_TABLES["branches"]["ended"])
NEW_FEATURE_BRANCHES = frozenset(_TABLES["branches"]["new_feature"])
HARDWARE_GENERATIONS = tuple(HardwareGeneration(**row) for row in _TABLES["generations"])
CUDA_ERRORS = {int(code): CudaError(int(code), **row) for code, row in _TABLES["errors"].items()}
BRANCH_CUDA = {version_numbers(driver)[0]: cuda for cuda, driver in reversed(TOOLKIT_DRIVERS.items())}
"""The CUDA version of each driver branch."""
FIRST_COMPATIBLE_NVRTC = (11, 3)
"""The first CUDA whose driver loads code from any NVRTC of its major version (CUDA Compatibility, section 2.3)."""
FORWARD_LIMITS = tuple(FeatureLimit(**row) for row in _TABLES["forward_limits"])
"""The features that forward compatibility may lack (CUDA Compatibility, section 3.3.2, Table 4)."""
CODEC_PACKAGE: dict[str, Any] = _TABLES["pynvvideocodec"]
"""PyNvVideoCodec's requirements."""


def newest_cuda_of(driver: str) -> str:
    """Return the CUDA version for which a kernel driver was made: "13.0" for "580.82.07"; "" before CUDA 10."""
    branch = version_numbers(driver)[:1]
    return next((cuda for cuda, first in TOOLKIT_DRIVERS.items() if version_numbers(first)[:1] <= branch), "")


def _forward(tables: list[dict[str, Any]]) -> dict[tuple[str, int], Forward]:
    found: dict[tuple[str, int], Forward] = {}
    for table in tables:  # the newer edition comes last and overrides the older one
        for cuda, works in table["works"].items():
            for branch in table["branches"]:
                no = Forward.NOT_NEEDED if BRANCH_CUDA.get(branch) == cuda else Forward.NOT_SUPPORTED
                found[cuda, branch] = Forward.WORKS if branch in works else no
    return found


FORWARD = _forward(_TABLES["forward"])
"""Whether a package works, by its CUDA version and the driver's branch (CUDA Compatibility, section 3.3.1, Table 3)."""


def forward_by_table(cuda_version: str, branch: int) -> Forward | None:
    """Return whether the compat package of a CUDA version works on a driver branch; None if unknown.

    A package that is older than the driver never works. No package works on ended branches or new feature branches
    (CUDA Compatibility, section 3.3.1).
    """
    package = version_numbers(cuda_version)[:2]
    if (listed := FORWARD.get((minor_version(cuda_version), branch))) is not None:
        return listed
    own = version_numbers(newest_cuda_of(str(branch)))
    if own and package <= own:
        return Forward.NOT_NEEDED if package == own else Forward.NOT_SUPPORTED
    return Forward.NOT_SUPPORTED if branch in END_OF_LIFE_BRANCHES | NEW_FEATURE_BRANCHES else None


def compat_package_for(cuda_version: str, branch: int, last_branch: str) -> str:
    """Return the CUDA version of the oldest compat package with which a toolkit runs on a driver branch; "" for none.

    The package may be newer than the toolkit (CUDA Compatibility, section 3.3.1). But it contains a driver, which must
    not be newer than ``last_branch``: the last driver branch that supports these GPUs, or "" if all later branches do.
    """
    wanted = version_numbers(cuda_version)[:2]
    fitting = (
        package
        for package, driver in reversed(TOOLKIT_DRIVERS.items())
        if version_numbers(package) >= wanted
        and forward_by_table(package, branch) is Forward.WORKS
        and (not last_branch or version_numbers(driver)[0] <= int(last_branch))
    )
    return next(fitting, "")


def generation_of(compute_capability: str) -> HardwareGeneration | None:
    """Return the generation of a compute capability ("9.0"); None before Maxwell, or if the number is malformed."""
    capability = list(version_numbers(compute_capability))
    return next((found for found in HARDWARE_GENERATIONS if capability >= found.first_capability), None)


def cuda_error(code: int) -> CudaError:
    """Return the description of an error; a code that is not listed gets a general description."""
    general = ("the driver returned an error", "look for NVRM lines: sudo dmesg | grep NVRM")
    return CUDA_ERRORS.get(code) or CudaError(code, f"CUDA error {code}", *general)
