"""What CUDA driver is really here: asked of the driver in a child process, and read from the machine's files.

Order and meaning follow "CUDA Compatibility" 3.3.3: the kernel driver, the user-mode driver and the file it came from,
what initialising it returns, then each device. Nothing here judges: that is ``compat.py``.
"""

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
from .ask import ATTRIBUTES, CODEC_LIBRARIES, ask
from .choosing import LIBRARY_PATH, NO_CHOICE, NOT_FOR_GEFORCE, DriverChoice, choose_driver, without_packages
from .errors import cuda_error
from .packages import compat_libraries, library_of
from .report import CudaDevice, CudaLibrary, CudaReport, KernelModule, RuntimeInUse, deployment, is_compat_library
from .tables import cuda_version, is_geforce, minor_version, newest_cuda_of

_ROOT = Path("/")
_NVRM = re.compile(r"^NVRM version:.*?\bKernel Module\b.*?\s(\d+(?:\.\d+)+)(?:\s|$)", re.MULTILINE)
_MODEL = re.compile(r"^Model:\s*(\S.*?)\s*$", re.MULTILINE)
_BUNDLED_RUNTIME = re.compile(r"libcudart[^/]*\.so\.(\d+\.\d+)")
_RUNTIME_PACKAGES = ("cuda-bindings", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu11")
_NO_LIBRARY = Unavailable(Absence.NO_LIBRARY, "there is no libcuda.so.1 here")
_NOT_ASKED = Unavailable(Absence.FAILED, "the question was not reached")
_NOT_IN_DRIVER = Unavailable(Absence.FUNCTION_NOT_FOUND, "the driver is older than the question")
_NO_KERNEL = Unavailable(Absence.FAILED, "no kernel was tried")
_NOT_INITIALISED = Unavailable(Absence.FAILED, "cuInit failed, so nothing more was asked")


def probe_cuda(
    limit_s: float,
    *,
    every_device: bool = False,
    root: Path = _ROOT,
    environ: Mapping[str, str] = os.environ,
) -> CudaReport:
    """Report the CUDA driver of this machine; never raises and never hangs for what the driver does.

    After ``limit_s`` the asking process is killed; what it said until then is kept. ``every_device`` asks about all
    devices, whatever CUDA_VISIBLE_DEVICES leaves of them: Ray sets it to nothing for tasks without a GPU. ``root`` is
    where the machine's files are read from, ``environ`` the variables that say where libraries are found.
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
        visible_devices=None if every_device else environ.get("CUDA_VISIBLE_DEVICES"),
        is_tegra=_is_tegra(root),
    )


def workers_driver(limit_s: float, *, root: Path = _ROOT, environ: Mapping[str, str] = os.environ) -> DriverChoice:
    """Return which CUDA driver processes on this machine are to load, where a compat package may decide about it.

    Without a package that fits no driver is loaded; else one is tried in a child process, for ``limit_s`` at most.
    """
    module = kernel_module(root)
    packages = packages_here(root, module, environ, linker_folders(root))
    if isinstance(module, Unavailable):
        return NO_CHOICE
    if not packages:
        return without_packages(environ)
    from_files = replace(
        report_of(ChildOutcome(ChildEnd.RETURNED)),
        kernel_module=module,
        compat_libraries=packages,
        cuda_version=newest_cuda_of(module.version) or _NOT_ASKED,
        runtimes=find_runtimes(),
        is_tegra=_is_tegra(root),
    )
    tried = partial(probe_cuda, limit_s, root=root)
    is_in_path = {package.folder for package in packages} & set(environ.get(LIBRARY_PATH, "").split(os.pathsep))
    # What processes load now is asked only where it may be a package; else the files say enough.
    system = tried(environ=environ) if is_in_path else from_files
    if not is_in_path and any(map(is_geforce, _models(root))):
        return DriverChoice(reason=NOT_FOR_GEFORCE)
    return choose_driver(system, environ, lambda path: tried(environ={**environ, LIBRARY_PATH: path}))[0]


def _models(root: Path) -> Iterator[str]:
    """Yield the names of the GPUs that the kernel driver lists."""
    for path in root.glob("proc/driver/nvidia/gpus/*/information"):
        with suppress(OSError):
            found = _MODEL.search(path.read_text(encoding="utf-8", errors="replace"))
            if found is not None:
                yield found[1]


def kernel_module(root: Path) -> Maybe[KernelModule]:
    """Return NVIDIA's kernel driver as ``/proc/driver/nvidia/version`` tells of it, the open one too."""
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
    """Return the compat packages of this machine: in toolkits' folders, and in those that libraries are searched in.

    CODECFLEET_CUDA_COMPAT may name one more folder. ``linked`` are the folders of the linker's configuration.
    """
    named = (*environ.get("LD_LIBRARY_PATH", "").split(":"), compat_folder(environ), *linked)
    found = compat_libraries(root, (folder for folder in named if folder.startswith("/")))
    return tuple(library for library in found if is_compat_library(library, module))


def linker_folders(root: Path) -> tuple[str, ...]:
    """Return the folders that the linker's configuration adds (ld.so.conf and ld.so.conf.d)."""
    folders: list[str] = []
    for path in (root / "etc/ld.so.conf", *sorted(root.glob("etc/ld.so.conf.d/*.conf"))):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        folders += [line.strip() for line in lines if line.strip().startswith("/")]
    return tuple(folders)


def find_runtimes() -> tuple[RuntimeInUse, ...]:
    """Return the CUDA runtimes that this Python installation would use, from the packages' metadata: none is loaded."""
    found: list[RuntimeInUse] = []
    for name in _RUNTIME_PACKAGES:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        found.append(RuntimeInUse(f"{name} {version}", minor_version(version)))
    return (*found, *_codec_package_runtime())


def _codec_package_runtime() -> tuple[RuntimeInUse, ...]:
    """Return the runtime that PyNvVideoCodec's wheel brings along, named by the file in it."""
    try:
        package = importlib.metadata.distribution("PyNvVideoCodec")
    except importlib.metadata.PackageNotFoundError:
        return ()
    versions = (_BUNDLED_RUNTIME.search(str(file)) for file in package.files or ())
    name = f"PyNvVideoCodec {package.version}'s runtime"
    return tuple(RuntimeInUse(name, version[1]) for version in versions if version)


def _is_tegra(root: Path) -> bool:
    try:
        compatible = (root / "proc/device-tree/compatible").read_bytes()
    except OSError:
        compatible = b""
    return b"nvidia,tegra" in compatible or (root / "etc/nv_tegra_release").exists()


def report_of(outcome: ChildOutcome) -> CudaReport:
    """Return what the asking process said, as far as it came, without the machine's files."""
    said = _Said(outcome.values)
    return CudaReport(
        kernel_module=_NOT_ASKED,
        library=_library_said(said),
        deployment=_NOT_ASKED,
        compat_libraries=(),
        cuda_version=said.answer("cuda version", cuda_version),
        init_code=said.code("init"),
        device_count=said.answer("count", int),
        devices=tuple(_device(said, item) for item in said.all("device")),
        codec_libraries={name: _codec_library(said, name) for name in CODEC_LIBRARIES},
        nvenc_api=said.answer("nvenc", lambda value: f"{value >> 4}.{value & 15}"),
        runtimes=(),
        nvrtc=_nvrtc(said),
        ended=_ended(said, outcome),
        has_crashed=_has_crashed(said, outcome),
        took_s=outcome.took_s,
    )


class _Said:
    """The items that the asking process yielded, to be looked up by key."""

    def __init__(self, items: tuple[Any, ...]) -> None:
        self._items = items

    def all(self, key: str, *first: str | int) -> list[list[Any]]:
        """Return the values of each item with that key whose first values are those given."""
        found = [item for item in self._items if item[0] == key]
        return [item[1 + len(first) :] for item in found if list(item[1 : 1 + len(first)]) == list(first)]

    def one(self, key: str, *first: str | int) -> list[Any] | None:
        """Return the values of the last such item."""
        found = self.all(key, *first)
        return found[-1] if found else None

    def code(self, key: str, *first: str | int) -> Maybe[int]:
        """Return the code of a call that returns nothing else."""
        values = self.one(key, *first)
        if values is None:
            return self._not_reached()
        return _NOT_IN_DRIVER if values[0] is None else int(values[0])

    def answer(self, key: str, meaning: Any, *first: str | int) -> Maybe[Any]:
        """Return what a call answered: ``meaning`` of its value, or the absence that its code is."""
        values = self.one(key, *first)
        if values is None:
            return self._not_reached()
        code, value = values
        if code is None:
            return _NOT_IN_DRIVER
        if code != 0:
            error = cuda_error(code)
            return Unavailable(Absence.FAILED, f"{error.name} ({code}): {error.meaning}")
        return meaning(value)

    def _not_reached(self) -> Unavailable:
        if self.one("no library"):
            return _NO_LIBRARY
        return _NOT_ASKED if self.one("init") in (None, [0]) else _NOT_INITIALISED


def _library_said(said: _Said) -> Maybe[CudaLibrary]:
    refused = said.one("no library")
    if refused is not None:
        return Unavailable(Absence.NO_LIBRARY, f"libcuda cannot be loaded: {refused[0]}")
    found = said.one("library")
    return library_of(found[0]) if found and found[0] else _NOT_ASKED


def _codec_library(said: _Said, name: str) -> Maybe[str]:
    loaded = said.one("loaded", name)
    if loaded is not None:
        return str(loaded[0])
    refused = said.one("not loaded", name)
    if refused is None:
        return _NOT_ASKED
    return Unavailable(Absence.NO_LIBRARY, f"{name} cannot be loaded: {refused[0]}")


def _nvrtc(said: _Said) -> Maybe[str]:
    refused = said.one("no nvrtc")
    if refused is not None:
        return Unavailable(Absence.NO_LIBRARY, f"NVRTC cannot be loaded: {refused[0]}")
    return said.answer("nvrtc", str)


def _device(said: _Said, item: list[Any]) -> CudaDevice:
    ordinal, _, name = item
    attributes = {key: said.answer("attribute", int, ordinal, key) for key in ATTRIBUTES}
    major, minor = attributes.pop("compute_capability_major"), attributes.pop("compute_capability_minor")
    integrated = attributes.pop("integrated")
    context = said.one("context", ordinal)
    return CudaDevice(
        ordinal=ordinal,
        uuid=said.answer("uuid", str, ordinal),
        pci_bus_id=said.answer("pci", str, ordinal),
        name=name,
        compute_capability=major if isinstance(major, Unavailable) else f"{major}.{minor}",
        is_integrated=integrated if isinstance(integrated, Unavailable) else bool(integrated),
        attributes=attributes,
        context_code=said.code("context", ordinal),
        free_bytes=_memory(context, 2),
        total_bytes=_memory(context, 3),
        kernel_code=_kernel(said, ordinal),
    )


def _kernel(said: _Said, ordinal: int) -> Maybe[int]:
    """Return what loading a kernel returned, or that NVRTC compiled none for this device."""
    values = said.one("kernel", ordinal)
    if values is None:
        return _NO_KERNEL
    compiled, loaded = values
    if compiled != 0:
        code = "has no machine code to give" if compiled is None else f"returned {compiled}"
        return Unavailable(Absence.NOT_SUPPORTED, f"NVRTC {code} when it compiled a kernel for this device")
    return _NOT_IN_DRIVER if loaded is None else int(loaded)


def _memory(context: list[Any] | None, column: int) -> Maybe[int]:
    if context is None:
        return _NOT_ASKED
    code = context[0] or context[1]
    if code or context[1] is None:
        return Unavailable(
            Absence.FAILED, "there is no context to ask in" if code is None else cuda_error(code).meaning
        )
    return int(context[column])


def _has_crashed(said: _Said, outcome: ChildOutcome) -> bool:
    """Return whether cuInit ended the process; SIGKILL is the machine's, where memory runs out."""
    was_killed = outcome.detail.endswith(signal.SIGKILL.name)
    crashed = outcome.end is ChildEnd.EXITED or (outcome.end is ChildEnd.KILLED and not was_killed)
    return crashed and said.one("step") == ["cuInit"]


def _ended(said: _Said, outcome: ChildOutcome) -> str:
    if outcome.returned:
        return ""
    step = said.one("step")
    return f"{outcome.detail} while {step[0]}" if step else outcome.detail
