"""How a process came to the libcuda it loaded: the deployment models of compat packages, as pure rules."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from ..report.absence import Maybe, Unavailable
from .report import CudaLibrary, Deployment, KernelModule
from .tables import version_numbers


def is_compat_library(library: CudaLibrary, module: Maybe[KernelModule]) -> bool:
    """Return whether a libcuda is a compat package's and not the driver's own.

    It is where it lies in a compat folder; and, since a package taken from a runfile may lie anywhere (CUDA
    Compatibility 3.2.2), where it has the note of such a library and is of a newer version than the kernel driver. The
    note alone tells nothing: the driver's own libcuda has one too (measured with 580.159.04).
    """
    if library.in_compat_folder:
        return True
    if isinstance(library.note, Unavailable) or isinstance(library.version, Unavailable):
        return False
    return not isinstance(module, Unavailable) and version_numbers(library.version) > version_numbers(module.version)


def deployment(
    library: CudaLibrary, module: Maybe[KernelModule], environ: Mapping[str, str], linker_folders: Iterable[str]
) -> Deployment:
    """Return how a libcuda came to be loaded (CUDA Compatibility 3.4).

    ``environ`` holds the process's variables, ``linker_folders`` the folders that ld.so.conf adds.
    """
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
