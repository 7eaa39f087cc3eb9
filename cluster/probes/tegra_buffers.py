"""Which kind of memory a buffer on a Tegra should be: what each kind costs, and one function that chooses.

From CUDA for Tegra, 2 (Table 1), 2.1, 3.1, 3.2 and 3.3 (Table 2). All of it is pure: nothing here asks a machine. A
compute capability is a pair: (8, 7) is 8.7.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

__all__ = [
    "ACCESS",
    "PREFETCH",
    "Access",
    "AttachFlag",
    "BufferUse",
    "MemoryAdvice",
    "MemoryKind",
    "Prefetch",
    "Reach",
    "Rule",
    "Side",
    "access",
    "gnu_atomics",
    "host_register",
    "io_coherency",
    "memory_kind_for",
    "prefetch",
]

Capability: TypeAlias = tuple[int, int]

IO_COHERENT_SINCE: Capability = (7, 2)
"""Compute capability of Xavier, the first Tegra whose GPU sees what lies in the processor's caches (2.1)."""

SMALL_BYTES = 64 * 1024
"""Up to here a buffer counts as small. Ours: 3.1 speaks of small buffers and names no size."""


class MemoryKind(Enum):
    """How a buffer is allocated."""

    DEVICE = "device"  #: cudaMalloc
    PAGEABLE = "pageable"  #: malloc
    PINNED = "pinned"  #: cudaMallocHost, cudaHostAlloc
    UNIFIED = "unified"  #: cudaMallocManaged


class Side(Enum):
    """Who touches a buffer."""

    CPU = "CPU"
    IGPU = "iGPU"
    DGPU = "Tegra-connected dGPU"


class Access(Enum):
    """How a side reaches a kind of memory."""

    CACHED = "cached"
    UNCACHED = "uncached"
    CACHED_IF_COHERENT = "cached where I/O coherent, else uncached"
    NOT_DIRECT = "not directly accessible"
    NOT_SUPPORTED = "not supported"


ACCESS: dict[MemoryKind, dict[Side, Access]] = {
    MemoryKind.DEVICE: {Side.CPU: Access.NOT_DIRECT, Side.IGPU: Access.CACHED, Side.DGPU: Access.CACHED},
    MemoryKind.PAGEABLE: {Side.CPU: Access.CACHED, Side.IGPU: Access.NOT_DIRECT, Side.DGPU: Access.NOT_DIRECT},
    MemoryKind.PINNED: {
        Side.CPU: Access.CACHED_IF_COHERENT,
        Side.IGPU: Access.UNCACHED,
        Side.DGPU: Access.UNCACHED,
    },
    MemoryKind.UNIFIED: {Side.CPU: Access.CACHED, Side.IGPU: Access.CACHED, Side.DGPU: Access.NOT_SUPPORTED},
}
"""Table 1 of CUDA for Tegra."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Whether something holds, and why, in one sentence without a full stop."""

    holds: bool
    reason: str


def io_coherency(capability: Capability) -> Rule:
    """Say whether the GPU sees what lies in the processor's caches (2.1): one way only, from Xavier (7.2) on."""
    if capability >= IO_COHERENT_SINCE:
        return Rule(holds=True, reason="the GPU is I/O coherent: its compute capability is at least 7.2")
    return Rule(holds=False, reason="the GPU is not I/O coherent: its compute capability is less than 7.2")


def access(kind: MemoryKind, side: Side, capability: Capability) -> Access:
    """Return how ``side`` reaches memory of this kind on a Tegra of this compute capability (Table 1)."""
    found = ACCESS[kind][side]
    if found is Access.CACHED_IF_COHERENT:
        return Access.CACHED if io_coherency(capability).holds else Access.UNCACHED
    return found


def host_register(capability: Capability, *, qnx: bool = False, attribute: bool | None = None) -> Rule:
    """Say whether cudaHostRegister() and cuMemHostRegister() work (2.1, 3.2, 3.6).

    Args:
        capability: the GPU's compute capability.
        qnx: whether the system is QNX, which never supports it.
        attribute: what cudaDevAttrHostRegisterSupported says, where it was asked: that decides.
    """
    if attribute is not None:
        return Rule(attribute, f"the device attribute HOST_REGISTER_SUPPORTED is {int(attribute)}")
    if qnx:
        return Rule(holds=False, reason="QNX does not support it")
    if not io_coherency(capability).holds:
        return Rule(holds=False, reason="it needs I/O coherency, which starts at 7.2: allocate pinned memory instead")
    return Rule(holds=True, reason="the system is Linux and the GPU is I/O coherent")


def gnu_atomics(kind: MemoryKind, capability: Capability) -> Rule:
    """Say whether GNU atomic operations work on such memory: not where the processor does not cache it (3.2)."""
    found = access(kind, Side.CPU, capability)
    if found is Access.CACHED:
        return Rule(holds=True, reason=f"the processor caches {kind.value} memory")
    return Rule(holds=False, reason=f"{kind.value} memory is {found.value} for the processor")


class Reach(Enum):
    """Who has to reach a buffer."""

    CPU_ONLY = "the processor alone"
    GPU_ONLY = "the GPU alone"
    BOTH = "processor and GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferUse:
    """How a buffer is used: what decides its kind.

    ``gpu_repeats``: kernels come back to the same data. ``gpu_cache_friendly``: they read it in a way that caches help
    with. ``cpu_often``: the processor touches it frequently, not once to fill or to empty it. ``safety``: the buffer
    belongs to a safety-certified context, which wants determinism. ``gpu`` says which GPU.
    """

    reach: Reach
    size_bytes: int
    gpu_repeats: bool = False
    gpu_cache_friendly: bool = True
    cpu_often: bool = True
    safety: bool = False
    gpu: Side = Side.IGPU


@dataclass(frozen=True, slots=True)
class MemoryAdvice:
    """The kind of memory to use, and why, in one sentence without a full stop."""

    kind: MemoryKind
    reason: str


def memory_kind_for(use: BufferUse, capability: Capability) -> MemoryAdvice:
    """Choose the kind of memory for a buffer on a Tegra (3.1, 3.2).

    Args:
        use: who touches the buffer, and how.
        capability: the GPU's compute capability.
    """
    if use.reach is Reach.GPU_ONLY:
        return MemoryAdvice(MemoryKind.DEVICE, "only the GPU touches it")
    if use.reach is Reach.CPU_ONLY:
        return MemoryAdvice(MemoryKind.PAGEABLE, "only the processor touches it")
    if use.gpu is Side.DGPU:
        return MemoryAdvice(MemoryKind.PINNED, "a dGPU that is attached to a Tegra does not support unified memory")
    if use.safety:
        return MemoryAdvice(
            MemoryKind.PINNED, "software keeps unified memory coherent, at times that nothing determines"
        )
    if use.size_bytes <= SMALL_BYTES:
        return MemoryAdvice(MemoryKind.PINNED, "for a small buffer caching hardly matters, and pinning costs nothing")
    return _large_and_shared(use, coherent=io_coherency(capability).holds)


def _large_and_shared(use: BufferUse, *, coherent: bool) -> MemoryAdvice:
    # Without I/O coherency pinned memory is cached on neither side. What the processor then loses weighs more than
    # what the GPU gains by pinning, whether or not the GPU comes back to the data: 3.1 says so where it does not, and
    # where it does, caching helps twice.
    if not coherent and use.cpu_often:
        return MemoryAdvice(
            MemoryKind.UNIFIED, "without I/O coherency pinned memory is cached on neither side, unified on both"
        )
    if not use.gpu_cache_friendly:
        return MemoryAdvice(
            MemoryKind.PINNED, "the GPU's accesses gain nothing from a cache, and pinning costs nothing"
        )
    if use.gpu_repeats and use.cpu_often:
        return MemoryAdvice(
            MemoryKind.UNIFIED, "the GPU comes back to the data often enough to pay for keeping the caches coherent"
        )
    if use.gpu_repeats:
        return MemoryAdvice(
            MemoryKind.UNIFIED, "the GPU comes back to the data, and only unified memory is cached for it"
        )
    return MemoryAdvice(
        MemoryKind.PINNED, "the GPU reads it once, which is as fast pinned, and pinning needs no cache maintenance"
    )


class AttachFlag(Enum):
    """Whom managed memory is attached to: the flags of cudaStreamAttachMemAsync()."""

    GLOBAL = "cudaMemAttachGlobal"
    HOST = "cudaMemAttachHost"
    SINGLE = "cudaMemAttachSingle"


class Prefetch(Enum):
    """What a change of attachment makes the driver do."""

    TO_CPU = "prefetch to CPU"
    TO_GPU = "prefetch to GPU"
    NONE = "no prefetch"


PREFETCH: dict[tuple[AttachFlag, AttachFlag], Prefetch] = {
    (AttachFlag.GLOBAL, AttachFlag.HOST): Prefetch.TO_CPU,
    (AttachFlag.SINGLE, AttachFlag.HOST): Prefetch.TO_CPU,
    (AttachFlag.HOST, AttachFlag.GLOBAL): Prefetch.TO_GPU,
    (AttachFlag.HOST, AttachFlag.SINGLE): Prefetch.TO_GPU,
    (AttachFlag.GLOBAL, AttachFlag.SINGLE): Prefetch.NONE,
    (AttachFlag.SINGLE, AttachFlag.GLOBAL): Prefetch.NONE,
}
"""Table 2 of CUDA for Tegra: previous flag, current flag, what follows."""


def prefetch(previous: AttachFlag, current: AttachFlag, *, qnx: bool = False) -> Prefetch:
    """Return what changing a buffer's attachment prefetches (Table 2); nothing where it does not change, or on QNX.

    QNX takes the hints and gains nothing from them (3.3).
    """
    if qnx:
        return Prefetch.NONE
    return PREFETCH.get((previous, current), Prefetch.NONE)
