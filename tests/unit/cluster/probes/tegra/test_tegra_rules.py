from typing import Any

import pytest

from codecfleet.cluster.probes.tegra.rules import (
    System,
    TegraFacts,
    host_register,
    io_coherency,
    unsupported_features,
)

TX2, ORIN, THOR = (6, 2), (8, 7), (11, 0)
EVENTS, MEMORY, SERVICE = "IPC that shares events", "IPC that shares memory", "Multi-Process Service"
ALWAYS = {"unified memory on an attached dGPU", "peer-to-peer", "nvGRAPH"}
OFTEN = ALWAYS | {"NVML", "memory prefetch", MEMORY}


@pytest.mark.parametrize(
    ("capability", "cuda", "others", "missing"),
    [
        (THOR, (13, 0), {"concurrent_managed_access": True}, ALWAYS),
        (THOR, (12, 9), {}, ALWAYS | {"memory prefetch", MEMORY}),
        (ORIN, (12, 6), {}, OFTEN),
        (ORIN, (12, 5), {}, OFTEN),
        (ORIN, (12, 4), {}, OFTEN | {SERVICE}),
        (ORIN, (11, 5), {}, OFTEN | {SERVICE}),
        (ORIN, (11, 4), {}, OFTEN | {SERVICE, EVENTS}),
        (ORIN, (12, 6), {"safety": True}, OFTEN | {"just-in-time compilation"}),
        (TX2, (10, 2), {}, OFTEN | {SERVICE, EVENTS, "host register", "system-wide atomics"}),
        (
            THOR,
            (13, 0),
            {"system": System.QNX},
            OFTEN - {MEMORY} | {SERVICE, EVENTS, "host register", "RDMA", "cuSOLVER"},
        ),
    ],
)
def test_features_depend_on_the_gpu_cuda_and_the_system(
    capability: tuple[int, int], cuda: tuple[int, int], others: dict[str, Any], missing: set[str]
) -> None:
    """Later GPUs and later editions of CUDA have more features; QNX and safety systems have fewer."""
    facts = TegraFacts(**{"capability": capability, "system": System.L4T, "cuda": cuda, **others})
    assert set(unsupported_features(facts)) == missing


def test_coherency_starts_with_xavier() -> None:
    """A GPU is I/O coherent from compute capability 7.2 on."""
    assert [io_coherency(capability).holds for capability in (TX2, (7, 1), (7, 2), ORIN)] == [False, False, True, True]


def test_host_register_follows_attribute_then_system_then_coherency() -> None:
    """The device's attribute decides if known; otherwise, QNX and GPUs without coherency lack the feature."""
    assert host_register(ORIN).holds
    assert not host_register(TX2).holds
    assert not host_register(ORIN, qnx=True).holds
    assert host_register(TX2, attribute=True).holds
    assert not host_register(ORIN, attribute=False).holds
