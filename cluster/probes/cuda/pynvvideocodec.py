"""What PyNvVideoCodec needs and whether it is here: its import may end a process, so a child tries it.

The import loads libnvidia-encode.so.1, asks it for the newest NVENC interface, and picks one of its two builds by that:
so a host that only decodes needs libnvidia-encode too.
"""

import importlib
import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from ..child.child import run_in_child
from ..report.absence import Absence, Maybe, Unavailable

_NO_GLIBC = Unavailable(Absence.DOES_NOT_APPLY, "the C library is not glibc")
_BUILD = re.compile(r"PyNvVideoCodec(_\d+)\.")
_RUNTIME = re.compile(r"libcudart[^/]*\.so\.([\d.]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PyNvVideoCodecReport:
    """The package as it is installed, and what came of importing it.

    ``version`` is the package's. ``builds`` are those in it, by their ending ("_130"). ``picked`` is the build that the
    import took; absent, with the reason, where the import failed. ``cuda_version`` and ``sdk_version`` are what the
    package says of itself. ``runtime_version`` is the CUDA runtime that it brings along ("12.3.101").
    ``python_version`` is "3.11", ``glibc_version`` "2.36" (absent on another C library), ``machine`` "x86_64".
    """

    version: Maybe[str]
    builds: tuple[str, ...]
    picked: Maybe[str]
    cuda_version: Maybe[str]
    sdk_version: Maybe[str]
    runtime_version: Maybe[str]
    python_version: str
    glibc_version: Maybe[str]
    machine: str
    took_s: float = 0.0


def probe_pynvvideocodec(limit_s: float) -> PyNvVideoCodecReport:
    """Report PyNvVideoCodec as this Python imports it, within ``limit_s``; never raises for what the import does."""
    version, files = _package()
    said: dict[str, Maybe[str]] = {}
    took_s = 0.0
    if not isinstance(version, Unavailable):
        outcome = run_in_child(f"{try_import.__module__}:{try_import.__name__}", {}, limit_s)
        failure = _failure(outcome.detail or "it said nothing")
        said = {key: value or failure for key, value in outcome.values}
        for key in ("picked", "cuda", "sdk"):
            said.setdefault(key, failure)
        took_s = outcome.took_s
    library, glibc = platform.libc_ver()
    absent = version if isinstance(version, Unavailable) else _failure("it was not tried")
    return PyNvVideoCodecReport(
        version=version,
        builds=tuple(sorted({found[1] for found in map(_BUILD.search, files) if found})),
        picked=said.get("picked", absent),
        cuda_version=said.get("cuda", absent),
        sdk_version=said.get("sdk", absent),
        runtime_version=next(
            (match[1] for match in map(_RUNTIME.search, files) if match),
            Unavailable(Absence.NOT_FOUND, "the package brings no CUDA runtime along"),
        ),
        python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
        glibc_version=glibc if library == "glibc" else _NO_GLIBC,
        machine=platform.machine(),
        took_s=took_s,
    )


def try_import() -> Iterator[tuple[str, str]]:
    """Import the package and say which build it took; runs in a child process.

    Raises:
        Exception: whatever the import raises.
    """
    package = importlib.import_module("PyNvVideoCodec")
    path = str(getattr(package, "module_path", ""))  # the file that the package chose, among its own names
    found = _BUILD.search(path)
    yield "picked", found[1] if found else "unknown"
    yield "cuda", str(getattr(package, "__cuda_version__", ""))
    yield "sdk", str(getattr(package, "__video_codec_sdk_version__", ""))


def _package() -> tuple[Maybe[str], tuple[str, ...]]:
    try:
        found = importlib.metadata.distribution("PyNvVideoCodec")
    except importlib.metadata.PackageNotFoundError:
        return Unavailable(Absence.NO_LIBRARY, "PyNvVideoCodec is not installed"), ()
    return found.version, tuple(str(file) for file in found.files or ())


def _failure(detail: str) -> Unavailable:
    """Return why the import failed: the first line; the package adds pages of advice."""
    first = detail.splitlines()[0] if detail else ""
    return Unavailable(Absence.FAILED, f"importing PyNvVideoCodec failed: {first.rstrip('.')}")
