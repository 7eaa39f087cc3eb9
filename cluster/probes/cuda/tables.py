"""The tables of NVIDIA's "CUDA Compatibility" as data, with those of the release notes that it refers to.

Driver versions are Linux ones. A driver's *branch* is the first number of its version; a CUDA version is "13.4" in text
and (13, 4) where it is compared. Where the document's older and newer editions differ, both are here.
"""

from dataclasses import dataclass
from enum import Enum


def version_numbers(version: str) -> tuple[int, ...]:
    """Return "580.159.04" as (580, 159, 4), for comparison; the first part that is not a number ends it."""
    numbers: list[int] = []
    for part in version.split("."):
        if not (part.isascii() and part.isdigit()):
            break
        numbers.append(int(part))
    return tuple(numbers)


def minor_version(version: str) -> str:
    """Return a version's first two numbers as text: "12.3" for "12.3.101"."""
    return ".".join(map(str, version_numbers(version)[:2]))


def cuda_version(number: int) -> str:
    """Return what cuDriverGetVersion and NVML call 13040 as "13.4"."""
    return f"{number // 1000}.{number % 1000 // 10}"


MINOR_VERSION_MINIMUMS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""By major version: any toolkit of that family runs from here on (CUDA Compatibility 2.1, Table 1; release notes 13.4).

CUDA 11.0 itself came with a driver before 450.80.02; only from that one on does all of 11.x run.
"""

FIRST_COMPATIBLE_NVRTC = (11, 3)
"""From here on a driver loads what an NVRTC of its own major version makes (CUDA Compatibility 2.3, Figure 3)."""

TOOLKIT_DRIVERS = {
    "13.4": "615",
    "13.3": "610.43.02",
    "13.2": "595.45.04",
    "13.1": "590.44.01",
    "13.0": "580.65.06",
    "12.9": "575.51.03",
    "12.8": "570.26",
    "12.6": "560.28.03",
    "12.5": "555.42.02",
    "12.4": "550.54.14",
    "12.3": "545.23.06",
    "12.2": "535.54.03",
    "12.1": "530.30.02",
    "12.0": "525.60.13",
    "11.8": "520.61.05",
    "11.7": "515.43.04",
    "11.6": "510.39.01",
    "11.5": "495.29.05",
    "11.4": "470.42.01",
    "11.3": "465.19.01",
    "11.2": "460.27.03",
    "11.1": "455.23",
    "11.0": "450.51.05",
    "10.2": "440.33",
    "10.1": "418.39",
    "10.0": "410.48",
}
"""The first driver that came with each toolkit and does all that it does (release notes; CUDA Compatibility, Table 2).

No driver comes with CUDA 13.4 on Linux; its branch is R615.
"""

BRANCH_CUDA = {version_numbers(driver)[0]: cuda for cuda, driver in reversed(TOOLKIT_DRIVERS.items())}
"""The CUDA version of each driver branch."""


def newest_cuda_of(driver: str) -> str:
    """Return the CUDA version that a kernel driver was made for ("580.82.07" -> "13.0"); "" before CUDA 10."""
    branch = version_numbers(driver)[:1]
    return next((cuda for cuda, first in TOOLKIT_DRIVERS.items() if version_numbers(first)[:1] <= branch), "")


class Forward(Enum):
    """Whether a compat package works on a kernel driver."""

    WORKS = "works"
    NOT_SUPPORTED = "not supported"
    NOT_NEEDED = "not needed"  #: the driver was made for that CUDA version


_NEWEST_FORWARD_DRIVERS = (535, 570, 580, 590, 595, 610, 615)
_NEWEST_FORWARD = {
    "13.4": (535, 570, 580, 590, 595, 610),
    "13.3": (535, 570, 580, 590, 595),
    "13.2": (535, 570, 580, 590),
    "13.1": (535, 570, 580),
    "13.0": (535, 570),
    "12.9": (535, 570),
    "12.8": (535,),
    "12.6": (535,),
    "12.5": (535,),
    "12.4": (535,),
    "12.3": (535,),
    "12.2": (),
}
_OLDER_FORWARD_DRIVERS = (470, 530, 535, 545, 550)
_OLDER_FORWARD = {
    "12.4": (470, 535),
    "12.3": (470, 535),
    "12.2": (470,),
    "12.1": (470,),
    "12.0": (470,),
    "11.8": (470,),
    "11.7": (470,),
    "11.6": (470,),
    "11.5": (470,),
    "11.4": (),
}


def _forward() -> dict[tuple[str, int], Forward]:
    table: dict[tuple[str, int], Forward] = {}
    # The newer edition last: where both know a pair, it holds.
    for columns, rows in ((_OLDER_FORWARD_DRIVERS, _OLDER_FORWARD), (_NEWEST_FORWARD_DRIVERS, _NEWEST_FORWARD)):
        for cuda, works in rows.items():
            for branch in columns:
                is_own = BRANCH_CUDA.get(branch) == cuda
                no = Forward.NOT_NEEDED if is_own else Forward.NOT_SUPPORTED
                table[cuda, branch] = Forward.WORKS if branch in works else no
    return table


FORWARD = _forward()
"""By compat package (its CUDA version) and branch of the kernel driver (CUDA Compatibility 3.3.1, Table 3).

The newest edition (for R615) has the branches 535 to 615; those before it, 470 to 550, are from the older edition,
whose cells for 530 and 545 are read as its note says: new feature branches are not targets.
"""

END_OF_LIFE_BRANCHES = frozenset(
    {390, 396, 410, 418, 440, 450, 455, 460, 465, 510, 515, 525}  # named by the older edition
    | {470, 550, 560, 565, 575}  # gone from the newest
)
"""Driver branches that NVIDIA has ended: no targets for forward compatibility (CUDA Compatibility 3.3.1)."""

NEW_FEATURE_BRANCHES = frozenset({495, 530, 545, 555})
"""Short-lived branches, never targets for forward compatibility (CUDA Compatibility 3.3.1)."""


def forward_by_table(cuda_version: str, branch: int) -> Forward | None:
    """Return whether the compat package of a CUDA version works on a branch; None where no table knows the pair.

    For a library without a note. A package older than the driver never works; ended branches and new feature branches
    are not targets (CUDA Compatibility 3.3.1).
    """
    package = version_numbers(cuda_version)[:2]
    if (known := FORWARD.get((minor_version(cuda_version), branch))) is not None:
        return known
    own = newest_cuda_of(str(branch))
    if own and package < version_numbers(own):
        return Forward.NOT_SUPPORTED
    if own and package == version_numbers(own):
        return Forward.NOT_NEEDED
    return Forward.NOT_SUPPORTED if branch in END_OF_LIFE_BRANCHES | NEW_FEATURE_BRANCHES else None


def compat_package_for(cuda_version: str, branch: int, last_branch: str) -> str:
    """Return the CUDA version of the oldest compat package that brings a toolkit to a driver branch; "" for none.

    A package is named after the newest toolkit that it supports (CUDA Compatibility 3.3.1), so a newer one will do too.
    ``last_branch`` is the last driver branch that knows the GPUs here, "" for no end: a package is a driver, too.
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


@dataclass(frozen=True, slots=True)
class FeatureLimit:
    """A feature that a compat package lacks unless the device has ``attributes`` (of ``ask.ATTRIBUTES``; () never)."""

    feature: str
    attributes: tuple[str, ...] = ()
    condition: str = ""


FORWARD_LIMITS = (
    FeatureLimit("CUDA interoperation with OpenGL and Vulkan"),
    FeatureLimit("address translation services of POWER9 (ATS)", (), "Red Hat Enterprise Linux 8.1 or later"),
    FeatureLimit(
        "the cuMemMap functions",
        ("virtual_address_management_supported", "handle_type_posix_file_descriptor_supported"),
        "the device says that it has both",
    ),
)
"""What forward compatibility leaves out (CUDA Compatibility 3.3.2, Table 4): 12.x on R525 and 11.x on R450 alike."""


@dataclass(frozen=True, slots=True)
class HardwareGeneration:
    """Which drivers and toolkits support GPUs from a compute capability on.

    The kernel driver decides: a newer user-mode driver never brings support for newer hardware (CUDA Compatibility 5).
    """

    name: str
    first_capability: tuple[int, int]
    first_driver: str
    first_toolkit: str  # the oldest that compiles for it
    last_toolkit: str = ""  # the newest that compiles for it, "" for all later ones
    last_driver_branch: str = ""  # "" for all later ones


HARDWARE_GENERATIONS = (
    HardwareGeneration("Blackwell", (10, 0), "570.26", "12.8"),
    HardwareGeneration("Hopper", (9, 0), "450.36.06", "11.8"),
    HardwareGeneration("Ampere", (8, 0), "450.36.06", "11.0"),
    HardwareGeneration("Turing", (7, 5), "450.36.06", "10.0"),
    HardwareGeneration("Volta", (7, 0), "450.36.06", "9.0", "12.9", "580"),
    HardwareGeneration("Pascal", (6, 0), "450.36.06", "8.0", "12.9", "580"),
    HardwareGeneration("Maxwell", (5, 0), "450.36.06", "6.5", "12.9", "580"),
)
"""The hardware of the document's questions and answers (CUDA Compatibility 5), newest first.

Brought up to date from the release notes of CUDA 12.8 (Blackwell) and 13.0 (which ends the three oldest, whose last
driver branch is R580). Ada (8.9) counts as Ampere there.
"""


def generation_of(compute_capability: str) -> HardwareGeneration | None:
    """Return the generation of a compute capability ("9.0"); None for one before Maxwell, or no number."""
    capability = version_numbers(compute_capability)
    return next((found for found in HARDWARE_GENERATIONS if capability >= found.first_capability), None)


NVENC_API_DRIVERS = {"13.0": "570", "12.1": "530"}
"""The first driver branch with each NVENC interface that PyNvVideoCodec has a build for; as far as known."""


def is_geforce(name: str) -> bool:
    """Tell a GeForce card by its name: compat packages are not for it, and its driver caps encoder sessions."""
    return "GeForce" in name


class PyNvVideoCodecNeeds:
    """What PyNvVideoCodec 2.2 needs (its installation page; the wheel's own names and behaviour)."""

    OLDEST_API = "12.1"
    """The oldest NVENC interface; below it the import says that the driver is too old."""
    BUILDS = (("13.0", "_130"), ("12.1", "_121"))
    """By the interface that each needs at least, newest first: the ending of the module it loads."""
    DRIVER = "530.41.03"
    BLACKWELL_DRIVER = "570.153.02"
    DECODE_STATISTICS_BRANCH = 590
    OLDEST_PYTHON = (3, 10)
    NEWEST_PYTHON = (3, 14)
    GLIBC = (2, 28)
    AARCH64_NEW_PYTHON_GLIBC = (2, 34)
    """On aarch64 with Python 3.13 or later."""
