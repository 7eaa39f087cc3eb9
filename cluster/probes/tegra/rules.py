"""Rules for the CUDA features that a Tegra lacks (CUDA for Tegra, sections 2.1, 3.2 and 3.6).

Changes in later editions are included: NVML on Thor under L4T, MPS since CUDA 12.5, IPC that shares memory on Thor
since CUDA 13.0, and cudaMemPrefetchAsync() with concurrent access.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ....actors.device.memory_choice import IO_COHERENT_SINCE

Capability: TypeAlias = tuple[int, int]
"""A compute capability; (8, 7) is 8.7."""
Version: TypeAlias = tuple[int, int]

THOR: Capability = (10, 1)
"""The compute capability of Thor in CUDA 12; in CUDA 13 it is 11.0."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Whether a feature exists; ``reason`` is a sentence without a full stop."""

    holds: bool
    reason: str


class System(Enum):
    """The operating system of a Tegra."""

    L4T = "L4T"  #: Jetson Linux
    EMBEDDED_LINUX = "embedded Linux"  #: Linux other than L4T, such as DRIVE OS Linux
    ANDROID = "Android"
    QNX = "QNX"


@dataclass(frozen=True, slots=True, kw_only=True)
class TegraFacts:
    """The facts that decide which CUDA features exist."""

    capability: Capability
    system: System
    cuda: Version
    concurrent_managed_access: bool = False
    host_register_supported: bool | None = None  #: the device attribute; None if CUDA was not queried
    safety: bool = False  #: whether CUDA runs in a safety context


def io_coherency(capability: Capability) -> Rule:
    """Return whether the GPU has one-way coherence with the processor's caches (section 2.1): from Xavier (7.2) on."""
    if capability >= IO_COHERENT_SINCE:
        return Rule(holds=True, reason="the GPU is I/O coherent: its compute capability is at least 7.2")
    return Rule(holds=False, reason="the GPU is not I/O coherent: its compute capability is less than 7.2")


def host_register(capability: Capability, *, qnx: bool = False, attribute: bool | None = None) -> Rule:
    """Return whether cudaHostRegister() works (sections 2.1, 3.2, 3.6); if known, the ``attribute`` decides."""
    if attribute is not None:
        return Rule(attribute, f"the device attribute HOST_REGISTER_SUPPORTED is {int(attribute)}")
    if qnx:
        return Rule(holds=False, reason="QNX does not support it")
    if not io_coherency(capability).holds:
        return Rule(
            holds=False, reason="it needs I/O coherency (capability 7.2 or later): allocate pinned memory instead"
        )
    return Rule(holds=True, reason="the system is Linux and the GPU is I/O coherent")


def features(facts: TegraFacts) -> dict[str, Rule]:
    """Return a rule for each CUDA feature that a Tegra may lack, in the order of the document (section 3.6)."""
    capability, system, cuda = facts.capability, facts.system, facts.cuda
    qnx, linux = system is System.QNX, system in (System.L4T, System.EMBEDDED_LINUX)
    never = False
    return {
        "host register": host_register(capability, qnx=qnx, attribute=facts.host_register_supported),
        "system-wide atomics": Rule(capability >= (7, 2), "system-wide atomics need compute capability 7.2"),
        "unified memory on an attached dGPU": Rule(never, "a dGPU that is attached to a Tegra has no unified memory"),
        "memory prefetch": Rule(
            facts.concurrent_managed_access, "it needs the device attribute concurrentManagedAccess"
        ),
        "NVML": Rule(
            capability >= THOR and system is System.L4T,
            "NVML needs Thor or later under L4T; elsewhere tegrastats reports use",
        ),
        "IPC that shares events": Rule(
            linux and capability >= (7, 0) and cuda >= (11, 5),
            "it needs CUDA 11.5 or later, compute capability 7 or later, and L4T or embedded Linux",
        ),
        "IPC that shares memory": Rule(
            capability >= THOR and cuda >= (13, 0),
            "it needs Thor and CUDA 13.0: use EGLStream, NvSci or shareable handles instead",
        ),
        "RDMA": Rule(linux, "it needs L4T or embedded Linux"),
        "just-in-time compilation": Rule(
            not facts.safety, "a safety context has no just-in-time compilation: compile for the GPU in advance"
        ),
        "Multi-Process Service": Rule(linux and cuda >= (12, 5), "it needs CUDA 12.5 and Linux"),
        "peer-to-peer": Rule(never, "no Tegra supports peer-to-peer calls"),
        "cuSOLVER": Rule(not qnx, "QNX has no cuSOLVER"),
        "nvGRAPH": Rule(never, "no Tegra has nvGRAPH"),
    }


def unsupported_features(facts: TegraFacts) -> dict[str, str]:
    """Return the missing features, each with the reason as a sentence without a full stop (section 3.6)."""
    return {name: rule.reason for name, rule in features(facts).items() if not rule.holds}
