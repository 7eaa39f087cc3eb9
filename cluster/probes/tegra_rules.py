"""What CUDA does not do on a Tegra, how it waits, and which GPU to take: rules, no machine is asked.

From CUDA for Tegra, 3.4 to 3.6, with what later editions of that document changed: NVML on Thor under L4T, MPS since
CUDA 12.5, memory-sharing IPC on Thor since CUDA 13.0, cudaMemPrefetchAsync() where access is concurrent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from .tegra_buffers import Capability, Rule, Side, host_register

__all__ = [
    "FEATURES",
    "Feature",
    "GpuChoice",
    "GpuCost",
    "System",
    "TegraFacts",
    "Wait",
    "WaitAdvice",
    "WaitWish",
    "choose_gpu",
    "unsupported_features",
    "wait_for_device",
]

Version: TypeAlias = tuple[int, int]

THOR: Capability = (10, 1)
"""Thor's compute capability as CUDA 12 numbered it; since CUDA 13 it is 11.0, which is not less."""


class System(Enum):
    """The operating system of a Tegra."""

    L4T = "L4T"  #: Jetson Linux
    EMBEDDED_LINUX = "embedded Linux"  #: DRIVE OS Linux and the like
    ANDROID = "Android"
    QNX = "QNX"


@dataclass(frozen=True, slots=True, kw_only=True)
class TegraFacts:
    """What decides which features there are. ``cuda`` is the CUDA version: (12, 6) is 12.6.

    The last but one is the device attribute HOST_REGISTER_SUPPORTED, None where it was not asked.
    """

    capability: Capability
    system: System
    cuda: Version
    concurrent_managed_access: bool = False
    host_register_supported: bool | None = None
    safety: bool = False


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that CUDA has and a Tegra may lack: its name, its functions, and the rule."""

    name: str
    functions: tuple[str, ...]
    rule: Callable[[TegraFacts], Rule]


def _host_register(facts: TegraFacts) -> Rule:
    return host_register(facts.capability, qnx=facts.system is System.QNX, attribute=facts.host_register_supported)


def _system_atomics(facts: TegraFacts) -> Rule:
    return Rule(facts.capability >= (7, 2), "system-wide atomics need compute capability 7.2")


def _unified_on_dgpu(_: TegraFacts) -> Rule:
    return Rule(holds=False, reason="a dGPU that is attached to a Tegra has no unified memory")


def _memory_prefetch(facts: TegraFacts) -> Rule:
    return Rule(facts.concurrent_managed_access, "it needs the device attribute concurrentManagedAccess")


def _nvml(facts: TegraFacts) -> Rule:
    holds = facts.capability >= THOR and facts.system is System.L4T
    return Rule(holds, "NVML needs Thor or later under L4T; elsewhere tegrastats tells about use")


def _event_ipc(facts: TegraFacts) -> Rule:
    linux = facts.system in (System.L4T, System.EMBEDDED_LINUX)
    holds = linux and facts.capability >= (7, 0) and facts.cuda >= (11, 5)
    return Rule(holds, "it needs CUDA 11.5, L4T or embedded Linux, and compute capability 7")


def _memory_ipc(facts: TegraFacts) -> Rule:
    holds = facts.capability >= THOR and facts.cuda >= (13, 0)
    return Rule(holds, "it needs Thor and CUDA 13.0: use EGLStream, NvSci or shareable handles instead")


def _rdma(facts: TegraFacts) -> Rule:
    return Rule(facts.system in (System.L4T, System.EMBEDDED_LINUX), "it needs L4T or embedded Linux")


def _jit(facts: TegraFacts) -> Rule:
    return Rule(not facts.safety, "a safety context has no just-in-time compilation: compile for the GPU in advance")


def _mps(facts: TegraFacts) -> Rule:
    holds = facts.system in (System.L4T, System.EMBEDDED_LINUX) and facts.cuda >= (12, 5)
    return Rule(holds, "it needs CUDA 12.5 and Linux")


def _peer_to_peer(_: TegraFacts) -> Rule:
    return Rule(holds=False, reason="no Tegra supports peer-to-peer calls")


def _cusolver(facts: TegraFacts) -> Rule:
    return Rule(facts.system is not System.QNX, "QNX has no cuSOLVER")


def _nvgraph(_: TegraFacts) -> Rule:
    return Rule(holds=False, reason="no Tegra has nvGRAPH")


FEATURES: tuple[Feature, ...] = (
    Feature("host register", ("cudaHostRegister", "cuMemHostRegister"), _host_register),
    Feature("system-wide atomics", (), _system_atomics),
    Feature("unified memory on an attached dGPU", ("cudaMallocManaged",), _unified_on_dgpu),
    Feature("memory prefetch", ("cudaMemPrefetchAsync",), _memory_prefetch),
    Feature("NVML", (), _nvml),
    Feature("IPC that shares events", (), _event_ipc),
    Feature("IPC that shares memory", (), _memory_ipc),
    Feature("RDMA", (), _rdma),
    Feature("just-in-time compilation", (), _jit),
    Feature("Multi-Process Service", (), _mps),
    Feature("peer-to-peer", (), _peer_to_peer),
    Feature("cuSOLVER", (), _cusolver),
    Feature("nvGRAPH", (), _nvgraph),
)
"""The exceptions of 3.6, in the document's order, with later editions' changes."""


def unsupported_features(facts: TegraFacts) -> dict[str, str]:
    """Return the features that are not there, each with the reason in a sentence without a full stop (3.6)."""
    rules = {feature.name: feature.rule(facts) for feature in FEATURES}
    return {name: rule.reason for name, rule in rules.items() if not rule.holds}


class Wait(Enum):
    """How a processor thread waits for the GPU: cudaSetDeviceFlags() values."""

    AUTO = 0x00  #: cudaDeviceScheduleAuto: the platform's own choice
    SPIN = 0x01  #: cudaDeviceScheduleSpin: lowest latency, a core is busy
    YIELD = 0x02  #: cudaDeviceScheduleYield
    BLOCK = 0x04  #: cudaDeviceScheduleBlockingSync, formerly cudaDeviceBlockingSync: least power


class WaitWish(Enum):
    """What matters while waiting."""

    NOTHING = "nothing"
    LOW_LATENCY = "low latency"
    LOW_POWER = "low power"


@dataclass(frozen=True, slots=True)
class WaitAdvice:
    """The flag to set, whether the default does the same, and why, in one sentence without a full stop."""

    flag: Wait
    must_be_set: bool
    reason: str


def wait_for_device(wish: WaitWish, cuda: Version) -> WaitAdvice:
    """Choose how threads wait for an iGPU (3.5).

    Before CUDA 10.1 threads always block; since then each platform has the default that suits it.
    """
    blocks = cuda < (10, 1)
    if wish is WaitWish.LOW_LATENCY:
        return WaitAdvice(Wait.SPIN, must_be_set=True, reason="no default promises to spin, which answers soonest")
    if wish is WaitWish.LOW_POWER:
        return WaitAdvice(Wait.BLOCK, must_be_set=not blocks, reason="a blocked thread costs no power")
    if blocks:
        return WaitAdvice(Wait.BLOCK, must_be_set=False, reason="before CUDA 10.1 threads block by default")
    return WaitAdvice(
        Wait.AUTO, must_be_set=False, reason="since CUDA 10.1 each platform has the default that suits it"
    )


@dataclass(frozen=True, slots=True)
class GpuCost:
    """What a piece of work takes, in seconds: its kernels on either GPU, and moving its data to and from the dGPU."""

    igpu_kernels_s: float
    dgpu_kernels_s: float
    transfer_s: float


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """Which GPU to use, and why, in one sentence without a full stop."""

    side: Side
    reason: str


def choose_gpu(cost: GpuCost, *, data_is_on_dgpu: bool = False) -> GpuChoice:
    """Choose between iGPU and dGPU (3.4): kernel time, transfer time, where the data lies, latency.

    Data in the SoC's memory costs a transfer only on the dGPU, data in the dGPU's only on the iGPU. A tie goes to the
    iGPU, which needs nobody to wait for a copy.
    """
    igpu_s = cost.igpu_kernels_s + (cost.transfer_s if data_is_on_dgpu else 0.0)
    dgpu_s = cost.dgpu_kernels_s + (0.0 if data_is_on_dgpu else cost.transfer_s)
    if dgpu_s < igpu_s:
        return GpuChoice(Side.DGPU, f"the dGPU takes {dgpu_s:g} s with transfers, the iGPU {igpu_s:g} s")
    return GpuChoice(Side.IGPU, f"the iGPU takes {igpu_s:g} s, the dGPU {dgpu_s:g} s with transfers")
