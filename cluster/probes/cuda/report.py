"""A machine's CUDA driver, as values: ``driver.py`` fills them in, ``compat.py`` judges."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from ..report.absence import Absence, Maybe, Unavailable
from .tables import version_numbers

_NVRTC_NOT_ASKED = Unavailable(Absence.FAILED, "NVRTC was not asked for")
_KERNEL_NOT_TRIED = Unavailable(Absence.FAILED, "no kernel was tried")


class Deployment(Enum):
    """How a process came to load its libcuda; for compat packages by the models of CUDA Compatibility 3.4."""

    DRIVER = "installed with the driver"
    SEARCH_PATH = "shared, through LD_LIBRARY_PATH"
    LINKER = "shared, through the linker's configuration (ld.so.conf)"
    RUN_PATH = "shared, through a program's run path (RPATH)"
    MODULES = "per application, through an environment module"


@dataclass(frozen=True, slots=True)
class KernelModule:
    """NVIDIA's kernel driver: its version ("580.159.04"), and whether it is the open one."""

    version: str
    is_open: bool


LINKS: Final = {
    "libcuda": "libcuda.so.1",
    "libnvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm": "libnvidia-nvvm.so.4",
    "libcudadebugger": "libcudadebugger.so.1",
}
"""The libraries of a compat package, and the name by which each is loaded (CUDA Compatibility 3.2.1)."""


@dataclass(frozen=True, slots=True)
class ForwardNote:
    """The note of a libcuda for forward compatibility."""

    cuda_version: str  # "13.1"
    drivers: tuple[int, ...] = ()  # the branches of kernel drivers that it accepts; () if it does not say (Orin)
    devices: tuple[int, ...] = ()  # kinds of device, as numbers whose meaning is not published


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaLibrary:
    """A file that is, or could be, this machine's libcuda."""

    path: str
    version: Maybe[str]  # the driver version in its name ("580.159.04"); a Tegra's libcuda.so.1.1 has none
    in_compat_folder: bool  # it is in a folder for compat packages
    note: Maybe[ForwardNote]
    companions: dict[str, str] = field(default_factory=dict)  # versions of the package's libraries beside it, by name
    missing_links: tuple[str, ...] = ()  # names in ``LINKS`` that lead to no file in its folder

    @property
    def folder(self) -> str:
        """The folder that contains it."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class RuntimeInUse:
    """A CUDA runtime, toolkit or binding that this installation would run: its CUDA version is "13.4"."""

    name: str
    cuda_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDevice:
    """One device as CUDA sees it."""

    ordinal: int
    uuid: Maybe[str]  # without "GPU-" or "MIG-": CUDA does not say which it is
    pci_bus_id: Maybe[str]
    name: str
    compute_capability: Maybe[str]  # "9.0"
    is_integrated: Maybe[bool]
    attributes: dict[str, Maybe[int]]  # by our names of the driver's attributes ("host_register_supported")
    context_code: Maybe[int]  # what retaining its primary context returned: 0 is success
    free_bytes: Maybe[int]
    total_bytes: Maybe[int]
    kernel_code: Maybe[int] = _KERNEL_NOT_TRIED  # what loading a kernel that NVRTC compiled for it returned


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaReport:
    """The CUDA driver of this machine, and what depends on it."""

    kernel_module: Maybe[KernelModule]
    library: Maybe[CudaLibrary]  # the libcuda that processes load
    deployment: Maybe[Deployment]
    compat_libraries: tuple[CudaLibrary, ...]  # the libraries of compat packages on the disk
    cuda_version: Maybe[str]  # CUDA version reported by ``library`` ("13.0")
    init_code: Maybe[int]
    device_count: Maybe[int]
    devices: tuple[CudaDevice, ...]
    codec_libraries: dict[str, Maybe[str]]  # the files that loaded, by the names that codecs and NVML need
    nvenc_api: Maybe[str]  # the driver's newest NVENC interface ("13.0")
    runtimes: tuple[RuntimeInUse, ...]
    nvrtc: Maybe[str] = _NVRTC_NOT_ASKED  # version of NVRTC, the kernels' compiler; NO_LIBRARY without one
    visible_devices: str | None = None  # CUDA_VISIBLE_DEVICES
    is_tegra: bool = False
    ended: str = ""  # how the asking process ended; "" if it returned
    has_crashed: bool = False  # whether cuInit ended the process, rather than its time limit or the machine
    took_s: float = 0.0

    @property
    def driver(self) -> str:
        """The kernel driver's version; "" if unknown, and on a Tegra, which is in no table of drivers."""
        return "" if isinstance(self.kernel_module, Unavailable) or self.is_tegra else self.kernel_module.version


def is_compat_library(library: CudaLibrary, module: Maybe[KernelModule]) -> bool:
    """Return whether a libcuda is a compat package's and not the driver's own.

    It is if it is in a compat folder or, since a package from a runfile may be anywhere (CUDA Compatibility 3.2.2), if
    it has the note and is newer than the kernel driver. The note alone proves nothing: the driver's own libcuda has one
    too (measured with 580.159.04).
    """
    if library.in_compat_folder:
        return True
    if isinstance(library.note, Unavailable) or isinstance(library.version, Unavailable):
        return False
    return not isinstance(module, Unavailable) and version_numbers(library.version) > version_numbers(module.version)


def deployment(
    library: CudaLibrary, module: Maybe[KernelModule], environ: Mapping[str, str], linker_folders: Iterable[str]
) -> Deployment:
    """Return how a libcuda came to be loaded (CUDA Compatibility 3.4); ``linker_folders`` are those of ld.so.conf."""
    if not is_compat_library(library, module):
        return Deployment.DRIVER
    here = _resolved(str(Path(library.path).parent))
    if here in [_resolved(folder) for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder]:
        modules = environ.get("LOADEDMODULES", "").split(":")
        has_module = any("cuda" in module.lower() for module in modules)  # such as ``module load cuda/13.0``
        return Deployment.MODULES if has_module else Deployment.SEARCH_PATH
    return Deployment.LINKER if here in {_resolved(folder) for folder in linker_folders} else Deployment.RUN_PATH


def _resolved(folder: str) -> str:
    return str(Path(folder).resolve())
