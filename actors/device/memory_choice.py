"""Chooses the memory of buffers, and how threads wait; each choice names a section of "CUDA for Tegra"."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Final

SMALL_BYTES: Final = 256 << 10
"""The size up to which a buffer is small. "CUDA for Tegra", section 3.1, gives no limit, and calls a buffer of 4 MiB
large.

The cache of Xavier's GPU has 512 KiB.
"""


IO_COHERENT_SINCE: Final = (7, 2)
"""The compute capability of Xavier, the first Tegra whose GPU is coherent with the processor's caches."""
INTEGRATED: Final = 18
"""``CU_DEVICE_ATTRIBUTE_INTEGRATED``."""
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76


class Waiting(Enum):
    """How a thread waits for a device (CUDA for Tegra, section 3.5); the values are CUDA's context flags."""

    AUTO = 0  #: CUDA chooses, depending on the platform (since CUDA 10.1)
    SPIN = 1  #: ``CU_CTX_SCHED_SPIN``: the wait ends without delay, but keeps a core busy
    BLOCK = 4  #: ``CU_CTX_SCHED_BLOCKING_SYNC``: the thread sleeps, which saves power and frees its core


class Party(Flag):
    """A reader or writer of a buffer."""

    HOST = auto()  #: the processor
    GPU = auto()  #: the kernels, copies and engines of an integrated GPU or a card
    DLA = auto()  #: an accelerator outside CUDA, which uses CUDA's addresses


class Often(Enum):
    """How often a party reads or writes the same bytes before they change."""

    ONCE = "once"  #: in one coalesced pass, or in an order for which a cache is useless
    REPEATEDLY = "repeatedly"


class Memory(Enum):
    """The kinds of memory (CUDA for Tegra, Table 1)."""

    DEVICE = "device"  #: ``cuMemAlloc``: only the device uses this memory
    PINNED = "pinned"  #: ``cuMemHostAlloc``: the integrated GPU reads this memory in place, uncached
    MANAGED = "managed"  #: ``cuMemAllocManaged``: cached by GPU and processor; the driver keeps the caches coherent
    PAGEABLE = "pageable"  #: only the processor uses this memory


class Attach(Enum):
    """The attachment of managed memory: ``CU_MEM_ATTACH_*`` (CUDA for Tegra, section 3.3)."""

    GLOBAL = 1
    HOST = 2
    SINGLE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferUse:
    """The size of a buffer, who writes and reads the buffer, and how often."""

    size_bytes: int
    writers: Party
    readers: Party
    host: Often = Often.ONCE  # how often the processor reads or writes the same bytes
    gpu: Often = Often.ONCE  # how often the GPU reads or writes the same bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A machine's properties on which the choice depends."""

    integrated: bool  # whether the GPU and the processor share memory
    io_coherent: bool  # whether the GPU's reads are coherent with the processor's caches
    safety: bool = False  # whether this is a safety context, where nothing may depend on software timing

    @classmethod
    def of(cls, attribute: Callable[[int], int]) -> "Platform":
        """Return a GPU's platform; ``attribute`` returns an attribute by its number (``cuDeviceGetAttribute``)."""
        capability = attribute(_CAPABILITY_MAJOR), attribute(_CAPABILITY_MINOR)
        return cls(integrated=bool(attribute(INTEGRATED)), io_coherent=capability >= IO_COHERENT_SINCE)


@dataclass(frozen=True, slots=True)
class MemoryChoice:
    """The memory to allocate, and the attachments of managed memory."""

    memory: Memory
    section: str  # a section of "CUDA for Tegra"
    first: Attach | None = None  # the attachment at allocation; HOST if the processor uses the memory first
    before_gpu: Attach | None = None  # the attachment queued before the GPU's work; None leaves it unchanged
    before_host: Attach | None = None  # the attachment queued between the GPU's work and the wait, if it changes

    @property
    def shares(self) -> bool:
        """Whether the processor and the GPU, if integrated, use the same bytes, without a copy."""
        return self.memory in (Memory.PINNED, Memory.MANAGED)

    @property
    def allocating(self) -> tuple[str, tuple[int, ...]]:
        """The driver's function that allocates this memory, and the arguments that follow the size."""
        if self.memory is Memory.MANAGED:
            return "cuMemAllocManaged", ((self.first or Attach.GLOBAL).value,)
        return {Memory.DEVICE: ("cuMemAlloc", ()), Memory.PINNED: ("cuMemHostAlloc", (0,))}[self.memory]

    @property
    def freeing(self) -> str:
        """The driver's function that frees this memory."""
        return "cuMemFreeHost" if self.memory is Memory.PINNED else "cuMemFree"


PINNED: Final = MemoryChoice(Memory.PINNED, "3.2")
"""The staging memory of copies from and to a card."""


def choose_memory(use: BufferUse, platform: Platform) -> MemoryChoice:
    """Return the memory for a buffer; for a card, PINNED means the staging memory of copies."""
    parties = use.writers | use.readers
    if Party.DLA in parties:
        # A DLA cannot register managed memory (CUDA for Tegra, section 5.4).
        return MemoryChoice(Memory.DEVICE, "5.1.3")
    if Party.HOST in parties and Party.GPU in parties:
        return _shared(use, platform)
    return MemoryChoice(Memory.PAGEABLE if Party.HOST in parties else Memory.DEVICE, "3.1")


def _shared(use: BufferUse, platform: Platform) -> MemoryChoice:
    """Return the memory for a buffer that both the processor and the GPU use."""
    if not platform.integrated:
        return PINNED  # a card that is attached to a Tegra has no managed memory (CUDA for Tegra, section 3.6)
    if platform.safety or use.size_bytes <= SMALL_BYTES:
        return MemoryChoice(Memory.PINNED, "3.1")
    if use.gpu is Often.REPEATEDLY or (not platform.io_coherent and use.host is Often.REPEATEDLY):
        return _attached(Attach.HOST, Attach.GLOBAL, Attach.HOST)
    return MemoryChoice(Memory.PINNED, "3.1")


def _attached(first: Attach, to_gpu: Attach, to_host: Attach) -> MemoryChoice:
    """Return the choice of managed memory, prefetched by changing its attachment (CUDA for Tegra, section 3.3)."""
    before_gpu = to_gpu if prefetched_to(first, to_gpu) is Party.GPU else None
    before_host = to_host if prefetched_to(to_gpu, to_host) is Party.HOST else None
    return MemoryChoice(Memory.MANAGED, "3.1", first, before_gpu, before_host)


def prefetched_to(before: Attach, now: Attach) -> Party | None:
    """Return the party to which a change of attachment prefetches (CUDA for Tegra, Table 2), or None."""
    if (before is Attach.HOST) is (now is Attach.HOST):
        return None
    return Party.HOST if now is Attach.HOST else Party.GPU
