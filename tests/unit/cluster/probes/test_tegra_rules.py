from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.tegra_buffers import Side
from codecfleet.cluster.probes.tegra_rules import (
    FEATURES,
    GpuCost,
    System,
    TegraFacts,
    Wait,
    WaitWish,
    choose_gpu,
    unsupported_features,
    wait_for_device,
)


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


def test_every_exception_of_the_document_is_a_feature() -> None:
    """The list of 3.6 has thirteen features of distinct names."""
    assert len({feature.name for feature in FEATURES}) == len(FEATURES) == 13


def test_waiting_follows_the_wish_and_the_version() -> None:
    """Before CUDA 10.1 threads block by default; low latency spins, low power blocks, and says whether to set it."""
    assert wait_for_device(WaitWish.NOTHING, (10, 0)).flag is Wait.BLOCK
    assert wait_for_device(WaitWish.NOTHING, (10, 1)).flag is Wait.AUTO
    latency = wait_for_device(WaitWish.LOW_LATENCY, (12, 6))
    assert (latency.flag, latency.must_be_set) == (Wait.SPIN, True)
    assert not wait_for_device(WaitWish.LOW_POWER, (10, 0)).must_be_set
    assert wait_for_device(WaitWish.LOW_POWER, (12, 6)).must_be_set


TIME_S = st.floats(0, 1000)


@given(TIME_S, TIME_S, TIME_S, st.booleans())
def test_chosen_gpu_is_never_the_slower(igpu_s: float, dgpu_s: float, transfer_s: float, there: bool) -> None:  # noqa: FBT001 - drawn
    """Transfers counted where they happen, no other choice would be faster, and a tie stays on the iGPU."""
    choice = choose_gpu(GpuCost(igpu_s, dgpu_s, transfer_s), data_is_on_dgpu=there)
    total = {Side.IGPU: igpu_s + transfer_s * there, Side.DGPU: dgpu_s + transfer_s * (not there)}
    assert total[choice.side] == min(total.values())
    assert choice.side is Side.IGPU or total[Side.DGPU] < total[Side.IGPU]
