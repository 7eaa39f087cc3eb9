"""Networks that are loaded once and kept for later work."""

from pathlib import Path

import numpy as np
import pytest

from codecfleet.actors.dla.engine.statuses import CudlaStatus
from codecfleet.actors.dla.inference.layout import pack
from codecfleet.actors.dla.inference.network import NetworkSettings, WarmNetworks, read_loadable
from codecfleet.errors import (
    Cancelled,
    DeviceLost,
    EngineFailed,
    Unsupported,
)
from codecfleet.testing.nvidia.fake_cudla import FakeLoadable

from ..dla_machines import NETWORK, SHAPE, Machine, machine

__all__ = ["machine"]


class Warm:
    """Networks on a fake machine, and a file with a loadable."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.networks = WarmNetworks(machine.host)
        self.path = folder / "net.dla"
        self.path.write_bytes(NETWORK.to_bytes())

    @property
    def settings(self) -> NetworkSettings:
        """What to run."""
        return NetworkSettings(loadable=read_loadable(str(self.path)), tasks_at_once=2)


@pytest.fixture
def warm(machine: Machine, tmp_path: Path) -> Warm:
    """Networks."""
    return Warm(machine, tmp_path)


def test_a_network_is_loaded_once_and_kept(warm: Warm, machine: Machine) -> None:
    """Ten turns on two DLAs load two networks; two simultaneous turns on one DLA need two networks."""
    for turn in range(10):
        with warm.networks.acquire(warm.settings, [turn % 2]) as network:
            (found,) = network.run([pack(network.source, np.full(SHAPE, 3, dtype=np.float32))])
            assert found[0].ravel().tolist() == [3, 3, 3]
    assert warm.networks.created == 2
    with warm.networks.acquire(warm.settings, [0]), warm.networks.acquire(warm.settings, [0]):
        assert warm.networks.created == 3
    warm.networks.close()
    warm.networks.close()
    assert (machine.fake.open_handles, len(machine.fake.memory)) == (0, 0)


def test_cancelled_work_gives_its_network_back(warm: Warm) -> None:
    """A network stays usable after a cancellation between two calls."""
    with pytest.raises(Cancelled), warm.networks.acquire(warm.settings, [0]):
        raise Cancelled("enough")
    with warm.networks.acquire(warm.settings, [0]):
        assert warm.networks.created == 1


def test_a_new_loadable_takes_the_place_of_the_old(warm: Warm, machine: Machine) -> None:
    """An idle network of another loadable is closed before a DLA gets the next one."""
    with warm.networks.acquire(warm.settings, [0]):
        pass
    warm.path.write_bytes(FakeLoadable(NETWORK.source, NETWORK.result, gain=2).to_bytes())
    with warm.networks.acquire(warm.settings, [0]):
        assert machine.fake.open_handles == 1


def test_work_goes_to_the_dla_that_has_least_to_do(warm: Warm) -> None:
    """The allowed DLA with the fewest networks in use is chosen; a process that owns one DLA uses only this DLA."""
    networks, settings = warm.networks, warm.settings
    with (
        networks.acquire(settings) as one,
        networks.acquire(settings) as other,
        networks.acquire(settings, [0, 7]) as third,
    ):
        assert (one.device, other.device, third.device) == (0, 1, 0)
    with pytest.raises(Unsupported, match="there is no DLA 7"), networks.acquire(settings, [7]):
        pass
    networks.keep_to(1)
    with networks.acquire(settings) as one, networks.acquire(settings, [0]) as other:
        assert (one.device, other.device) == (1, 1)


def test_a_failed_process_lends_nothing_more(warm: Warm, machine: Machine) -> None:
    """After an error of an engine, the process lends no network of any DLA."""
    machine.fake.fault("cudlaTask", 1, CudlaStatus.DLA_INVALID_INPUT)
    with pytest.raises(EngineFailed), warm.networks.acquire(warm.settings, [0]) as network:
        network.run([np.zeros(network.source.size_bytes, dtype=np.uint8)])
    with pytest.raises(DeviceLost, match="lost"), warm.networks.acquire(warm.settings, [1]):
        pass
    warm.networks.close()


def test_results_outlive_the_staging_memory(warm: Warm, machine: Machine) -> None:
    """The result of a run does not change when the next run uses the same page-locked buffers; ``close`` frees them."""
    with warm.networks.acquire(warm.settings) as network:
        first, second = (
            network.run([pack(network.source, np.full(SHAPE, value, dtype=np.float32))])[0][0] for value in (3, 5)
        )
    assert (first.ravel().tolist(), second.ravel().tolist()) == ([3, 3, 3], [5, 5, 5])
    assert machine.fake.locked
    warm.networks.close()
    assert not machine.fake.locked
