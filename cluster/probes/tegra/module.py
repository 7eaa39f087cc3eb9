"""Reports which Tegra this machine is, if any, and what the Tegra can do. Source: "CUDA for Tegra".

A Tegra is recognised by files of the kernel and of Jetson Linux. An integrated GPU is no proof, because a DGX Spark
also has an integrated GPU. Nothing here was measured on a Tegra, because none was available.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

from ..report.absence import Absence, Maybe, Unavailable, known
from ..report.engines import EngineCount
from .dla import DlaReport, probe_dla
from .memory import Allocatable, allocatable_memory, read_file
from .rules import (
    Capability,
    Rule,
    System,
    TegraFacts,
    Version,
    host_register,
    io_coherency,
    unsupported_features,
)
from .tegrastats import TegraStats, engine_counts, read_tegrastats

_COMPATIBLE = "proc/device-tree/compatible"
_MODEL = "proc/device-tree/model"
_L4T_RELEASE = "etc/nv_tegra_release"

_RELEASE = re.compile(r"^#\s*R([0-9]{1,4})\s*\(release\),\s*REVISION:\s*([0-9.]+)")
_TEGRA = re.compile(r"^nvidia,tegra[0-9]+")
_NOT_ASKED = Unavailable(Absence.NOT_FOUND, "CUDA was not asked")
_OLDEST: Final[Version] = (0, 0)
_NEWEST: Final[Version] = (999, 0)


class Soc(Enum):
    """A Tegra system on chip; the value is the chip's name in the kernel's device tree."""

    X1 = "nvidia,tegra210"
    X2 = "nvidia,tegra186"
    XAVIER = "nvidia,tegra194"
    ORIN = "nvidia,tegra234"
    THOR = "nvidia,tegra264"
    OTHER = "an unknown Tegra"


_CAPABILITIES: Final[dict[Soc, Capability]] = {
    Soc.X1: (5, 3),
    Soc.X2: (6, 2),
    Soc.XAVIER: (7, 2),
    Soc.ORIN: (8, 7),
    Soc.THOR: (11, 0),
}
"""The documented compute capability of each SoC's GPU, used if CUDA does not report it."""

_MODEL_WORDS = (("thor", Soc.THOR), ("orin", Soc.ORIN), ("xavier", Soc.XAVIER), ("tx2", Soc.X2), ("nano", Soc.X1))


@dataclass(frozen=True, slots=True)
class L4tRelease:
    """A release of Jetson Linux, such as R38 with revision "4.0"."""

    major: int
    revision: str


@dataclass(frozen=True, slots=True)
class TegraIdentity:
    """A Tegra's chip, board and Jetson Linux."""

    soc: Soc
    model: str  # the board's name; "" if unknown
    l4t: Maybe[L4tRelease]


class Monitor(Enum):
    """The source of a Tegra's utilization."""

    NVML = "NVML"
    TEGRASTATS = "tegrastats"


class CodecInterface(Enum):
    """The interface to the video engines of a Tegra; codecfleet uses only the Video Codec SDK."""

    V4L2 = "V4L2 and the Jetson Multimedia API"
    VIDEO_CODEC_SDK = "Video Codec SDK (PyNvVideoCodec)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TegraReport:
    """A Tegra and its capabilities."""

    identity: TegraIdentity
    capability: Maybe[Capability]
    io_coherent: Maybe[Rule]
    host_register: Maybe[Rule]
    monitor: Monitor
    codecs: Maybe[CodecInterface]
    allocatable: Maybe[Allocatable]
    stats: Maybe[TegraStats]
    engines: tuple[EngineCount, ...]  #: the engines that tegrastats lists
    dla: Maybe[DlaReport]
    unsupported: Maybe[dict[str, str]]  #: the CUDA features that are missing, each with the reason
    #: features that cannot be decided because the CUDA version is unknown; empty if it is known
    undecided: tuple[str, ...] = ()


def detect_tegra(root: Path) -> Maybe[TegraIdentity]:
    """Return which Tegra this is, from device tree, board name or Jetson release under ``root``; never raises."""
    compatible = [name for name in read_file(root / _COMPATIBLE).split("\0") if _TEGRA.match(name)]
    model = read_file(root / _MODEL).strip("\0\n ")
    l4t = _release(read_file(root / _L4T_RELEASE))
    known_socs = [soc for soc in Soc if soc.value in compatible]
    if not compatible and any(word in model.lower() for word in ("jetson", "tegra", "nvidia drive")):
        known_socs = [soc for word, soc in _MODEL_WORDS if word in model.lower()] or [Soc.OTHER]
    if not (compatible or known_socs) and isinstance(l4t, Unavailable):
        reason = "neither the device tree nor a release file of Jetson Linux names a Tegra"
        return Unavailable(Absence.DOES_NOT_APPLY, reason)
    return TegraIdentity(known_socs[0] if known_socs else Soc.OTHER, model, l4t)


def _release(text: str) -> Maybe[L4tRelease]:
    match = _RELEASE.match(text)
    if match is None:
        return Unavailable(Absence.NOT_FOUND, f"there is no release of Jetson Linux in /{_L4T_RELEASE}")
    return L4tRelease(int(match[1]), match[2])


def monitor_for(identity: TegraIdentity) -> Monitor:
    """Return the source of utilization: NVML on Thor under Jetson Linux, otherwise tegrastats."""
    thor = identity.soc is Soc.THOR and not isinstance(identity.l4t, Unavailable)
    return Monitor.NVML if thor else Monitor.TEGRASTATS


def codec_interface(soc: Soc) -> Maybe[CodecInterface]:
    """Return the interface to the video engines: the Video Codec SDK on Thor, V4L2 on earlier chips."""
    if soc is Soc.OTHER:
        return Unavailable(Absence.NOT_FOUND, "the Tegra's model is unknown")
    return CodecInterface.VIDEO_CODEC_SDK if soc is Soc.THOR else CodecInterface.V4L2


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaAnswers:
    """CUDA's answers about a Tegra."""

    capability: Maybe[Capability] = _NOT_ASKED
    version: Maybe[Version] = _NOT_ASKED
    free_bytes: Maybe[int] = _NOT_ASKED  #: the free memory that cudaMemGetInfo reports
    host_register_supported: bool | None = None
    concurrent_managed_access: bool = False


def probe_tegra(
    root: Path = Path("/"),
    cuda: CudaAnswers = CudaAnswers(),
    *,
    limit_s: float = 10.0,
    ask_stats: Callable[[float], Maybe[TegraStats]] = read_tegrastats,
    ask_dla: Callable[[float], Maybe[DlaReport]] = probe_dla,
) -> Maybe[TegraReport]:
    """Report a Tegra.

    On another machine, run no programs, and return why the machine is not a Tegra. Never raises or hangs.

    ``root`` contains the machine's files; ``limit_s`` limits each program.
    """
    identity = detect_tegra(root)
    if isinstance(identity, Unavailable):
        return identity
    capability = cuda.capability
    if isinstance(capability, Unavailable):
        capability = _CAPABILITIES.get(identity.soc, capability)
    stats = ask_stats(limit_s)
    unsupported, undecided = _features(identity, capability, cuda)
    return TegraReport(
        identity=identity,
        capability=capability,
        io_coherent=_ruled(capability, io_coherency),
        host_register=_ruled(capability, partial(host_register, attribute=cuda.host_register_supported)),
        monitor=monitor_for(identity),
        codecs=codec_interface(identity.soc),
        allocatable=allocatable_memory(root, cuda.free_bytes),
        stats=stats,
        engines=() if isinstance(stats, Unavailable) else engine_counts(stats),
        dla=ask_dla(limit_s),
        unsupported=unsupported,
        undecided=undecided,
    )


def _ruled(capability: Maybe[Capability], rule: Callable[[Capability], Rule]) -> Maybe[Rule]:
    return capability if isinstance(capability, Unavailable) else rule(capability)


def _features(
    identity: TegraIdentity, capability: Maybe[Capability], cuda: CudaAnswers
) -> tuple[Maybe[dict[str, str]], tuple[str, ...]]:
    """Return the missing features with reasons, and the features that depend on an unknown CUDA version."""
    if isinstance(capability, Unavailable):
        return capability, ()
    facts = TegraFacts(
        capability=capability,
        system=System.EMBEDDED_LINUX if isinstance(identity.l4t, Unavailable) else System.L4T,
        cuda=known(cuda.version, _NEWEST),
        concurrent_managed_access=cuda.concurrent_managed_access,
        host_register_supported=cuda.host_register_supported,
    )
    newest = unsupported_features(facts)
    oldest = unsupported_features(replace(facts, cuda=known(cuda.version, _OLDEST)))
    return newest, tuple(name for name in oldest if name not in newest)
