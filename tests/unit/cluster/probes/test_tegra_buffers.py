from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.tegra_buffers import (
    ACCESS,
    PREFETCH,
    SMALL_BYTES,
    Access,
    AttachFlag,
    BufferUse,
    MemoryKind,
    Prefetch,
    Reach,
    Side,
    access,
    gnu_atomics,
    host_register,
    io_coherency,
    memory_kind_for,
    prefetch,
)

TX2, XAVIER, ORIN = (6, 2), (7, 2), (8, 7)
LARGE = 64 << 20


def _kind(
    capability: tuple[int, int] = ORIN,
    *,
    size: int = LARGE,
    repeats: bool = False,
    friendly: bool = True,
    often: bool = True,
    safety: bool = False,
) -> MemoryKind:
    use = BufferUse(
        reach=Reach.BOTH,
        size_bytes=size,
        gpu_repeats=repeats,
        gpu_cache_friendly=friendly,
        cpu_often=often,
        safety=safety,
    )
    return memory_kind_for(use, capability).kind


def test_coherency_starts_with_xavier() -> None:
    """Compute capability 7.2 is I/O coherent and what is before it is not."""
    assert [io_coherency(capability).holds for capability in (TX2, (7, 1), XAVIER, ORIN)] == [False, False, True, True]


def test_table_1_is_complete_and_depends_on_coherency_in_one_cell() -> None:
    """Every kind and side has an entry, and only pinned memory seen from the processor changes with coherency."""
    cells = list(product(MemoryKind, Side))
    assert all(side in ACCESS[kind] for kind, side in cells)
    changed = [cell for cell in cells if access(*cell, TX2) is not access(*cell, ORIN)]
    assert changed == [(MemoryKind.PINNED, Side.CPU)]
    assert access(MemoryKind.UNIFIED, Side.DGPU, ORIN) is Access.NOT_SUPPORTED
    assert access(MemoryKind.DEVICE, Side.CPU, ORIN) is Access.NOT_DIRECT


def test_buffers_of_one_side_stay_there() -> None:
    """What only the GPU touches is device memory, what only the processor touches is pageable."""
    assert memory_kind_for(BufferUse(reach=Reach.GPU_ONLY, size_bytes=LARGE), ORIN).kind is MemoryKind.DEVICE
    assert memory_kind_for(BufferUse(reach=Reach.CPU_ONLY, size_bytes=LARGE), ORIN).kind is MemoryKind.PAGEABLE


def test_small_shared_buffers_are_pinned() -> None:
    """A small buffer is pinned, however it is used."""
    assert _kind(size=SMALL_BYTES, repeats=True) is MemoryKind.PINNED
    assert _kind(TX2, size=SMALL_BYTES) is MemoryKind.PINNED


def test_large_shared_buffers_follow_the_gpus_access() -> None:
    """With coherency, repeated access is worth unified memory; one pass, or access no cache helps, is not."""
    assert _kind(repeats=True) is MemoryKind.UNIFIED
    assert _kind(repeats=False) is MemoryKind.PINNED
    assert _kind(repeats=True, friendly=False) is MemoryKind.PINNED


def test_without_coherency_unified_memory_serves_the_processor() -> None:
    """Before Xavier a large buffer that the processor uses often is unified although the GPU reads it once."""
    assert _kind(TX2, repeats=False) is MemoryKind.UNIFIED
    assert _kind(TX2, repeats=False, often=False) is MemoryKind.PINNED


def test_safety_and_attached_gpus_exclude_unified_memory() -> None:
    """A safety context pins, and so does work on an attached dGPU, which has no unified memory."""
    assert _kind(repeats=True, safety=True) is MemoryKind.PINNED
    on_dgpu = BufferUse(reach=Reach.BOTH, size_bytes=LARGE, gpu_repeats=True, gpu=Side.DGPU)
    assert memory_kind_for(on_dgpu, ORIN).kind is MemoryKind.PINNED


@given(
    st.builds(
        BufferUse,
        reach=st.sampled_from(Reach),
        size_bytes=st.integers(1, 1 << 32),
        gpu_repeats=st.booleans(),
        gpu_cache_friendly=st.booleans(),
        cpu_often=st.booleans(),
        safety=st.booleans(),
        gpu=st.sampled_from((Side.IGPU, Side.DGPU)),
    ),
    st.sampled_from((TX2, XAVIER, ORIN, (11, 0))),
)
def test_advice_can_always_be_followed(use: BufferUse, capability: tuple[int, int]) -> None:
    """The kind advised is one that every side that needs the buffer reaches, and there is a reason."""
    advice = memory_kind_for(use, capability)
    sides = {Reach.CPU_ONLY: (Side.CPU,), Reach.GPU_ONLY: (use.gpu,), Reach.BOTH: (Side.CPU, use.gpu)}[use.reach]
    unreachable = {Access.NOT_DIRECT, Access.NOT_SUPPORTED}
    assert not {access(advice.kind, side, capability) for side in sides} & unreachable
    assert advice.reason


def test_host_register_follows_attribute_then_system_then_coherency() -> None:
    """What the device says decides; else QNX and GPUs without coherency do not support it."""
    assert host_register(ORIN).holds
    assert not host_register(TX2).holds
    assert not host_register(ORIN, qnx=True).holds
    assert host_register(TX2, attribute=True).holds
    assert not host_register(ORIN, attribute=False).holds


def test_atomics_need_memory_that_the_processor_caches() -> None:
    """GNU atomics work on pinned memory from Xavier on, and never on memory that the processor cannot reach."""
    assert gnu_atomics(MemoryKind.PINNED, XAVIER).holds
    assert not gnu_atomics(MemoryKind.PINNED, TX2).holds
    assert gnu_atomics(MemoryKind.UNIFIED, TX2).holds
    assert not gnu_atomics(MemoryKind.DEVICE, ORIN).holds


@pytest.mark.parametrize(
    ("previous", "current", "expected"),
    [
        (AttachFlag.GLOBAL, AttachFlag.HOST, Prefetch.TO_CPU),
        (AttachFlag.SINGLE, AttachFlag.HOST, Prefetch.TO_CPU),
        (AttachFlag.HOST, AttachFlag.GLOBAL, Prefetch.TO_GPU),
        (AttachFlag.HOST, AttachFlag.SINGLE, Prefetch.TO_GPU),
        (AttachFlag.GLOBAL, AttachFlag.SINGLE, Prefetch.NONE),
        (AttachFlag.SINGLE, AttachFlag.GLOBAL, Prefetch.NONE),
        (AttachFlag.HOST, AttachFlag.HOST, Prefetch.NONE),
    ],
)
def test_table_2(previous: AttachFlag, current: AttachFlag, expected: Prefetch) -> None:
    """Each change of attachment prefetches to where Table 2 says; QNX gains nothing from any."""
    assert prefetch(previous, current) is expected
    assert prefetch(previous, current, qnx=True) is Prefetch.NONE
    assert len(PREFETCH) == 6
