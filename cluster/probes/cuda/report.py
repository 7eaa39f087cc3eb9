"""A report of a machine's CUDA driver; ``driver.py`` makes the report, and ``compat.py`` judges it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from ..report.absence import Absence, Maybe, Unavailable
from ..report.gpu_identity import is_geforce
from .tables import version_numbers

NOT_ASKED = Unavailable(Absence.FAILED, "the probe ended before this question")
_KERNEL_NOT_TRIED = Unavailable(Absence.FAILED, "no kernel was tried")


class Deployment(Enum):
    """How a process finds libcuda: the deployment models of CUDA Compatibility, section 3.4."""

    DRIVER = "installed with the driver"
    SEARCH_PATH = "shared, through LD_LIBRARY_PATH"
    LINKER = "shared, through the linker's configuration (ld.so.conf)"
    RUN_PATH = "shared, through a program's run path (RPATH)"
    MODULES = "per application, through an environment module"


@dataclass(frozen=True, slots=True)
class KernelModule:
    """NVIDIA's kernel driver: the version ("580.159.04"), and whether it is the open driver."""

    version: str
    is_open: bool


LINKS: Final = {
    "libcuda": "libcuda.so.1",
    "libnvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm": "libnvidia-nvvm.so.4",
    "libcudadebugger": "libcudadebugger.so.1",
}
"""The libraries of a compat package, and the names of their links (CUDA Compatibility, section 3.2.1)."""


@dataclass(frozen=True, slots=True)
class ForwardNote:
    """The note in a libcuda about forward compatibility."""

    cuda_version: str  # the CUDA version of the libcuda, such as "13.1"
    # accepted branches of the kernel driver; () if the note lists no branches, as on Orin
    drivers: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()  # kinds of device; NVIDIA does not document the numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaLibrary:
    """A file that is, or could be, this machine's libcuda."""

    path: str
    version: Maybe[str]  # the driver version in the file name ("580.159.04"); a Tegra's libcuda.so.1.1 has no version
    in_compat_folder: bool  # whether the library is in a folder for compat packages
    note: Maybe[ForwardNote]
    # versions of the libraries in the same folder, by library name
    companions: dict[str, str] = field(default_factory=dict)
    missing_links: tuple[str, ...] = ()  # links in ``LINKS`` that are missing or broken in the same folder

    @property
    def folder(self) -> str:
        """The folder that contains the library."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class RuntimeInUse:
    """A CUDA runtime or binding that this Python installation uses."""

    name: str
    cuda_version: str  # its CUDA version, such as "13.4"


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDevice:
    """A device as CUDA sees it."""

    ordinal: int
    uuid: Maybe[str]  # the device's UUID without a "GPU-" or "MIG-" prefix
    name: str
    compute_capability: Maybe[str]  # the compute capability, such as "9.0"
    attributes: dict[str, Maybe[int]]  # values of ``ask.ATTRIBUTES`` by name ("host_register_supported")
    context_code: Maybe[int] = NOT_ASKED  # the return code of retaining the device's primary context; 0 is success
    free_bytes: Maybe[int] = NOT_ASKED
    kernel_code: Maybe[int] = _KERNEL_NOT_TRIED  # the driver's return code when it loaded a kernel that NVRTC compiled


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaReport:
    """The CUDA driver of this machine, and the software that uses it."""

    kernel_module: Maybe[KernelModule] = NOT_ASKED
    library: Maybe[CudaLibrary] = NOT_ASKED  # the libcuda that processes load
    deployment: Maybe[Deployment] = NOT_ASKED
    compat_libraries: tuple[CudaLibrary, ...] = ()  # libcuda of each compat package on the disk
    cuda_version: Maybe[str] = NOT_ASKED  # the CUDA version that ``library`` reports ("13.0")
    init_code: Maybe[int] = NOT_ASKED  # the return code of cuInit
    device_count: Maybe[int] = NOT_ASKED
    devices: tuple[CudaDevice, ...] = ()
    codec_libraries: dict[str, Maybe[str]]  # the path of the loaded file, for each of ``ask.CODEC_LIBRARIES``
    nvenc_api: Maybe[str] = NOT_ASKED  # the driver's newest NVENC interface ("13.0")
    runtimes: tuple[RuntimeInUse, ...] = ()
    nvrtc: Maybe[str] = NOT_ASKED  # the version of NVRTC, which compiles kernels
    is_tegra: bool = False
    ended: str = ""  # how the child process ended; "" if it finished
    has_crashed: bool = False  # whether cuInit crashed; a timeout or an out-of-memory kill does not count

    @property
    def driver(self) -> str:
        """The version of the kernel driver; "" if unknown, and on a Tegra, whose drivers are in no table."""
        return "" if isinstance(self.kernel_module, Unavailable) or self.is_tegra else self.kernel_module.version

    @property
    def has_geforce(self) -> bool:
        """Whether one of the GPUs is a GeForce card."""
        return any(is_geforce(device.name) for device in self.devices)


def is_compat_library(library: CudaLibrary, module: Maybe[KernelModule]) -> bool:
    """Return whether a libcuda belongs to a compat package rather than to the driver.

    A package from a runfile may be in any folder (CUDA Compatibility, section 3.2.2). Its libcuda has the note, and is
    newer than the kernel driver. The note is not enough, because the driver's libcuda has a note too (seen with
    580.159.04).
    """
    if library.in_compat_folder:
        return True
    if isinstance(library.note, Unavailable) or isinstance(library.version, Unavailable):
        return False
    return not isinstance(module, Unavailable) and version_numbers(library.version) > version_numbers(module.version)


def deployment(
    library: CudaLibrary, module: Maybe[KernelModule], environ: Mapping[str, str], linker_folders: Iterable[str]
) -> Deployment:
    """Return how processes find a libcuda (CUDA Compatibility, section 3.4); ``linker_folders`` are ld.so.conf's."""
    if not is_compat_library(library, module):
        return Deployment.DRIVER
    here = _resolved(str(Path(library.path).parent))
    if here in [_resolved(folder) for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder]:
        modules = environ.get("LOADEDMODULES", "").split(":")
        # ``module load cuda/13.0``, for example, adds its module to LOADEDMODULES.
        has_module = any("cuda" in module.lower() for module in modules)
        return Deployment.MODULES if has_module else Deployment.SEARCH_PATH
    return Deployment.LINKER if here in {_resolved(folder) for folder in linker_folders} else Deployment.RUN_PATH


def _resolved(folder: str) -> str:
    return str(Path(folder).resolve())
