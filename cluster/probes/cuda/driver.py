"""Reports the installed CUDA driver, from the machine's files and from a child process that calls the driver."""

import importlib.metadata
import os
import re
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...fleet_variables import compat_folder
from ..child.child import ChildEnd, ChildOutcome, run_in_child
from ..report.absence import Absence, Maybe, Unavailable
from ..report.gpu_identity import is_geforce
from .ask import UNASKED, ask
from .choosing import LIBRARY_PATH, NO_CHOICE, NOT_FOR_GEFORCE, DriverChoice, choose_driver, without_packages
from .packages import compat_libraries
from .report import NOT_ASKED, CudaLibrary, CudaReport, KernelModule, RuntimeInUse, deployment, is_compat_library
from .tables import minor_version, newest_cuda_of

_ROOT = Path("/")
_NVRM = re.compile(r"^NVRM version:.*?\bKernel Module\b.*?\s(\d+(?:\.\d+)+)(?:\s|$)", re.MULTILINE)
_MODEL = re.compile(r"^Model:\s*(\S.*?)\s*$", re.MULTILINE)
_BUNDLED_RUNTIME = re.compile(r"libcudart[^/]*\.so\.(\d+\.\d+)")
_RUNTIME_PACKAGES = ("cuda-bindings", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu11")


def probe_cuda(
    limit_s: float, *, every_device: bool = False, root: Path = _ROOT, environ: Mapping[str, str] = os.environ
) -> CudaReport:
    """Report the CUDA driver of this machine; never raises or hangs, whatever the driver does.

    After ``limit_s`` the child process is killed; its earlier answers are kept. ``every_device`` ignores
    CUDA_VISIBLE_DEVICES, which is empty in Ray tasks without a GPU.
    """
    searched = {name: environ[name] for name in ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES") if name in environ}
    outcome = run_in_child(ask, {"every_device": every_device}, limit_s, searched)
    found = report_of(outcome)
    library, module = found.library, kernel_module(root)
    linked = linker_folders(root)
    return replace(
        found,
        kernel_module=module,
        deployment=library if isinstance(library, Unavailable) else deployment(library, module, environ, linked),
        compat_libraries=packages_here(root, module, environ, linked),
        runtimes=find_runtimes(),
        is_tegra=_is_tegra(root),
    )


def workers_driver(limit_s: float, *, root: Path = _ROOT, environ: Mapping[str, str] = os.environ) -> DriverChoice:
    """Return which CUDA driver processes on this machine should load: the system's, or one from a compat package.

    A driver is loaded only in a child process, for up to ``limit_s``, and only if a compat package fits, or
    LD_LIBRARY_PATH names one.
    """
    module = kernel_module(root)
    packages = packages_here(root, module, environ, linker_folders(root))
    if isinstance(module, Unavailable):
        return NO_CHOICE
    if not packages:
        return without_packages(environ)
    from_files = replace(
        UNASKED,
        kernel_module=module,
        compat_libraries=packages,
        cuda_version=newest_cuda_of(module.version) or NOT_ASKED,
        runtimes=find_runtimes(),
        is_tegra=_is_tegra(root),
    )
    tried = partial(probe_cuda, limit_s, root=root)
    is_in_path = {package.folder for package in packages} & set(environ.get(LIBRARY_PATH, "").split(os.pathsep))
    # Call the current driver only if it may come from a package; otherwise the files say enough.
    system = tried(environ=environ) if is_in_path else from_files
    if not is_in_path and any(map(is_geforce, _models(root))):
        return DriverChoice(reason=NOT_FOR_GEFORCE)
    return choose_driver(system, environ, lambda path: tried(environ={**environ, LIBRARY_PATH: path}))[0]


def _models(root: Path) -> Iterator[str]:
    for path in root.glob("proc/driver/nvidia/gpus/*/information"):
        with suppress(OSError):
            found = _MODEL.search(path.read_text(encoding="utf-8", errors="replace"))
            if found is not None:
                yield found[1]


def kernel_module(root: Path) -> Maybe[KernelModule]:
    """Return NVIDIA's kernel driver, open or not, from ``/proc/driver/nvidia/version``."""
    path = root / "proc/driver/nvidia/version"
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return Unavailable(Absence.NOT_FOUND, "NVIDIA's kernel driver is not loaded")
    except OSError as error:
        return Unavailable(Absence.FAILED, f"{path} cannot be read: {error}")
    found = _NVRM.search(text)
    if found is None:
        return Unavailable(Absence.FAILED, f"{path} names no driver version")
    return KernelModule(found[1], is_open="Open Kernel Module" in found[0])


def packages_here(
    root: Path, module: Maybe[KernelModule], environ: Mapping[str, str], linked: Iterable[str]
) -> tuple[CudaLibrary, ...]:
    """Return the compat packages in toolkits' folders, in folders that ``environ`` names, and in ``linked`` folders."""
    named = (*environ.get("LD_LIBRARY_PATH", "").split(":"), compat_folder(environ), *linked)
    found = compat_libraries(root, (folder for folder in named if folder.startswith("/")))
    return tuple(library for library in found if is_compat_library(library, module))


def linker_folders(root: Path) -> tuple[str, ...]:
    """Return the library folders in ld.so.conf and ld.so.conf.d."""
    folders: list[str] = []
    for path in (root / "etc/ld.so.conf", *sorted(root.glob("etc/ld.so.conf.d/*.conf"))):
        with suppress(OSError):
            lines = map(str.strip, path.read_text(encoding="utf-8", errors="replace").splitlines())
            folders += [line for line in lines if line.startswith("/")]
    return tuple(folders)


def find_runtimes() -> tuple[RuntimeInUse, ...]:
    """Return the CUDA runtimes that this Python installation would use, as package metadata lists them."""
    found: list[RuntimeInUse] = []
    for name in _RUNTIME_PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            version = importlib.metadata.version(name)
            found.append(RuntimeInUse(f"{name} {version}", minor_version(version)))
    with suppress(importlib.metadata.PackageNotFoundError):
        package = importlib.metadata.distribution("PyNvVideoCodec")
        bundled = (_BUNDLED_RUNTIME.search(str(file)) for file in package.files or ())
        name = f"PyNvVideoCodec {package.version}'s runtime"
        found += [RuntimeInUse(name, version[1]) for version in bundled if version]
    return tuple(found)


def _is_tegra(root: Path) -> bool:
    with suppress(OSError):
        if b"nvidia,tegra" in (root / "proc/device-tree/compatible").read_bytes():
            return True
    return (root / "etc/nv_tegra_release").exists()


def report_of(outcome: ChildOutcome) -> CudaReport:
    """Return the child process's answers, even if some are missing."""
    found: dict[str, Any] = {}
    step = ""
    for value in outcome.values:
        if isinstance(value, str):
            step = value
        else:
            found |= value
    ended = f"{outcome.detail} while {step}" if outcome.detail and step else outcome.detail
    # SIGKILL may mean that the machine ran out of memory, so it does not count as a crash.
    was_killed = outcome.detail.endswith(signal.SIGKILL.name)
    crashed = outcome.end is ChildEnd.EXITED or (outcome.end is ChildEnd.KILLED and not was_killed)
    return replace(UNASKED, **found, ended=ended, has_crashed=crashed and step == "cuInit")
