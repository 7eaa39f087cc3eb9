from codecfleet.cluster.probes.tegra.rules import (
    System,
    TegraFacts,
    host_register,
    io_coherency,
    unsupported_features,
)

TX2, ORIN = (6, 2), (8, 7)


def _missing(
    capability: tuple[int, int],
    cuda: tuple[int, int],
    system: System = System.L4T,
    *,
    concurrent: bool = False,
    safety: bool = False,
) -> set[str]:
    facts = TegraFacts(
        capability=capability, system=system, cuda=cuda, concurrent_managed_access=concurrent, safety=safety
    )
    return set(unsupported_features(facts))


NEVER = {"unified memory on an attached dGPU", "peer-to-peer", "nvGRAPH"}


def test_thor_has_what_later_editions_gave_it() -> None:
    """Thor under L4T with CUDA 13 lacks only what no Tegra has."""
    assert _missing((11, 0), (13, 0), concurrent=True) == NEVER


def test_orin_lacks_nvml_prefetch_and_memory_ipc() -> None:
    """Orin under L4T with CUDA 12.6 has MPS and event IPC, but no NVML, no memory IPC and no prefetch."""
    assert _missing((8, 7), (12, 6)) == NEVER | {"NVML", "memory prefetch", "IPC that shares memory"}


def test_older_cuda_takes_features_away() -> None:
    """Event IPC begins with CUDA 11.5, MPS with 12.5, memory IPC with 13.0."""
    assert "IPC that shares events" in _missing((8, 7), (11, 4))
    assert "IPC that shares events" not in _missing((8, 7), (11, 5))
    assert "Multi-Process Service" in _missing((8, 7), (12, 4))
    assert "Multi-Process Service" not in _missing((8, 7), (12, 5))
    assert "IPC that shares memory" in _missing((11, 0), (12, 9))


def test_qnx_old_gpus_and_safety_take_more_away() -> None:
    """QNX lacks host register, RDMA and cuSOLVER; a TX2 lacks atomics and host register; safety has no JIT."""
    assert {"host register", "RDMA", "cuSOLVER", "NVML"} <= _missing((11, 0), (13, 0), System.QNX)
    assert {"host register", "system-wide atomics"} <= _missing((6, 2), (10, 2))
    assert "just-in-time compilation" in _missing((8, 7), (12, 6), safety=True)


def test_coherency_starts_with_xavier() -> None:
    """Compute capability 7.2 is I/O coherent and what is before it is not."""
    assert [io_coherency(capability).holds for capability in (TX2, (7, 1), (7, 2), ORIN)] == [False, False, True, True]


def test_host_register_follows_attribute_then_system_then_coherency() -> None:
    """What the device says decides; else QNX and GPUs without coherency do not support it."""
    assert host_register(ORIN).holds
    assert not host_register(TX2).holds
    assert not host_register(ORIN, qnx=True).holds
    assert host_register(TX2, attribute=True).holds
    assert not host_register(ORIN, attribute=False).holds
