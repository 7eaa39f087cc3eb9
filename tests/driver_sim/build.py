"""Compiles the driver simulator's C sources into the shared libraries that NVIDIA's packages load.

A compiled library is kept until its sources change.
"""

import fcntl
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

__all__ = ["PACKAGES", "BuildError", "built_libraries"]

SOURCES = Path(__file__).resolve().parent
CACHE = SOURCES.parents[1] / "build" / "driver_sim"
PACKAGES = ("gcc", "pkg-config", "libffmpeg-nvenc-dev", "libavcodec-dev", "libavutil-dev", "libswscale-dev")
FLAGS = (
    "-std=c11",
    "-O1",
    "-fPIC",
    "-fexceptions",
    "-fvisibility=hidden",
    "-pthread",
    "-Wl,-z,nodelete",  # PyNvVideoCodec loads and unloads NVENC with each session, which would load them again
    "-Wall",
    "-Wextra",
    "-Werror",
)
SAID_MOST = 4000  # characters of the compiler's output
_MEDIA = ("libavcodec", "libavutil", "libswscale")


class BuildError(RuntimeError):
    """The simulator could not be compiled; the message says what is missing, or has the compiler's output."""


@dataclass(frozen=True, slots=True)
class Library:
    """One shared library: its file name (which is its SONAME), its sources, and the libraries that it links to.

    ``names`` are those of the sources: ``NAME.c`` and, if one file would be too long, ``NAME_*.c``. ``links`` are our
    own libraries; ``packages`` are libraries that pkg-config knows.
    """

    file: str
    names: tuple[str, ...]
    links: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    @property
    def is_present(self) -> bool:
        """Whether the library's main sources exist."""
        return all((SOURCES / f"{name}.c").is_file() for name in self.names)

    @property
    def sources(self) -> tuple[Path, ...]:
        """Its sources."""
        found = [(SOURCES / f"{name}.c", *sorted(SOURCES.glob(f"{name}_*.c"))) for name in self.names]
        return tuple(path for paths in found for path in paths)


SIMULATION = Library("libcodecfleet_sim.so.1", ("scenario", "machine", "eglobjects"))
CUDA = Library("libcuda.so.1", ("cuda",), (SIMULATION.file,))
NVSCIBUF = Library("libnvscibuf.so.1", ("nvscibuf",), (SIMULATION.file,))
NVSCISYNC = Library("libnvscisync.so.1", ("nvscisync",), (SIMULATION.file,))
_ON_CUDA = (CUDA.file, SIMULATION.file)
LIBRARIES = (
    SIMULATION,
    CUDA,
    Library("libnvcuvid.so.1", ("nvcuvid",), _ON_CUDA, _MEDIA),
    Library("libnvidia-encode.so.1", ("nvenc",), _ON_CUDA, _MEDIA),
    Library("libnvidia-ml.so.1", ("nvml",), (SIMULATION.file,)),
    NVSCIBUF,
    NVSCISYNC,
    Library("libcudla.so.1", ("cudla",), (*_ON_CUDA, NVSCIBUF.file, NVSCISYNC.file)),
    Library("libEGL.so.1", ("egl",), (SIMULATION.file,)),
)


def built_libraries() -> Path:
    """Return the folder with all libraries whose sources exist; changed libraries are compiled.

    Raises:
        BuildError: there is no compiler, a header is missing (the message names Debian's packages), or a source does
            not compile.
    """
    return _built(_compiler())


@cache
def _built(compiler: str) -> Path:
    present = [library for library in LIBRARIES if library.is_present]
    keys = {library.file: _key(library, compiler) for library in present}
    folder = CACHE / f"all-{_digest(keys.values())}"
    with _alone():
        if not folder.is_dir():
            with _settled_as(folder) as building:
                for library in present:
                    shutil.copy2(_compiled(library, keys[library.file], building, compiler), building / library.file)
    return folder


@contextmanager
def _alone() -> Iterator[None]:
    """Keep other processes waiting: those of one run would all compile the same."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compiler() -> str:
    found = shutil.which(os.environ.get("CC", "gcc"))
    if found is None:
        raise BuildError(_missing("there is no C compiler"))
    return found


def _missing(what: str) -> str:
    return (
        f"the driver simulator cannot be built: {what}. Debian has what it needs: apt-get install {' '.join(PACKAGES)}"
    )


def _key(library: Library, compiler: str) -> str:
    texts = [path.read_text(encoding="utf-8") for path in (*library.sources, *sorted(SOURCES.glob("*.h")))]
    return _digest((compiler, *FLAGS, repr(library), *texts))


def _digest(texts: Iterable[str]) -> str:
    return sha256("\0".join(texts).encode()).hexdigest()[:16]


def _compiled(library: Library, key: str, linked: Path, compiler: str) -> Path:
    """Return the library's file in the cache. ``linked`` is the folder of the libraries that it links to."""
    target = CACHE / key / library.file
    if not target.is_file():
        sources = [str(path) for path in library.sources]
        links = [*[str(linked / name) for name in library.links], *_options_of(library.packages), "-lm"]
        with _settled_as(target.parent) as building:
            output = [
                "-shared",
                f"-Wl,-soname,{library.file}",
                "-Wl,-rpath,$ORIGIN",
                "-o",
                str(building / library.file),
            ]
            _run([compiler, *FLAGS, *output, *sources, *links], library.file)
    return target


def _options_of(packages: tuple[str, ...]) -> list[str]:
    if not packages:
        return []
    if shutil.which("pkg-config") is None:
        raise BuildError(_missing("there is no pkg-config"))
    told = subprocess.run(["pkg-config", "--cflags", "--libs", *packages], capture_output=True, text=True, check=False)
    if told.returncode != 0:
        raise BuildError(_missing(told.stderr.strip().replace("\n", " ")))
    return shlex.split(told.stdout)


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if "No such file or directory" in done.stderr:
        lacking = next(line for line in done.stderr.splitlines() if "No such file or directory" in line)
        raise BuildError(_missing(f"{what} lacks a header: {lacking}"))
    message = f"the driver simulator's {what} does not compile:\n{done.stderr[:SAID_MOST]}"
    raise BuildError(message)


@contextmanager
def _settled_as(folder: Path) -> Iterator[Path]:
    """Provide a new folder that is renamed to ``folder`` at the end."""
    building = Path(tempfile.mkdtemp(dir=CACHE))
    try:
        yield building
        building.chmod(0o755)
        building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
