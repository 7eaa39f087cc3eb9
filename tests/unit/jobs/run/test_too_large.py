"""A job that this machine can never hold or do."""

import asyncio
from pathlib import Path

import pytest

from codecfleet import Fleet, TranscodeSpec
from codecfleet.cluster.fleet.default import default_pool, sole_processor
from codecfleet.cluster.fleet.remote_pool import RemotePool
from codecfleet.cluster.placement.model import Inventory
from codecfleet.cluster.placement.model.inventory import processor_of
from codecfleet.errors import NotEnoughMemory, Unsupported
from codecfleet.testing import FakeHosts, LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip


class NeverReady(LocalPool):
    """A pool that never starts."""

    async def start(self) -> None:
        """Wait."""
        await asyncio.Event().wait()


def run_on(machine: Inventory, spec: TranscodeSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a job on a machine whose pool never starts."""
    monkeypatch.setattr("codecfleet.jobs.run.job_run.sole_processor", lambda: machine)

    async def run() -> None:
        async with Fleet(pool=RemotePool(FakeHosts([NeverReady(1)]), is_here=True)) as fleet:
            await (await fleet.transcode(spec))

    asyncio.run(run())


def test_it_is_refused_without_waiting_for_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is refused with a fleet's words and exit code, without waiting for the pool, and leaves nothing."""
    clip = Clip(times=constant_times(2), options=(("preset", "ultrafast"),), width=1280, height=720)
    source = make_clip(tmp_path / "in.mp4", clip)
    small = Inventory((processor_of("this machine", "this machine", 2, 100_000_000),))
    with pytest.raises(NotEnoughMemory, match=r"of memory, and this machine has 0\.1 GB for work") as caught:
        run_on(small, TranscodeSpec(source=source, output=tmp_path / "out.mp4"), monkeypatch)
    assert (caught.value.exit_code, caught.value.next_step) == (4, NotEnoughMemory.WHAT_NEXT)
    assert [path.name for path in tmp_path.iterdir()] == ["in.mp4"]


@pytest.mark.parametrize(
    ("asked", "option"), [({"encoder": "nvenc"}, "--encoder nvenc"), ({"device": "gpu"}, "--device gpu")]
)
def test_a_gpu_on_a_machine_without_a_driver_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, str], option: str
) -> None:
    """Without a driver, a job that needs a GPU is refused before the workers have started."""
    source = make_clip(tmp_path / "in.mp4", Clip(times=constant_times(3)))
    machine = Inventory((processor_of("this machine", "this machine", 2, 8_000_000_000),))
    with pytest.raises(Unsupported, match=f"{option} is not possible: this machine has no NVIDIA driver") as caught:
        run_on(machine, TranscodeSpec(source=source, output=tmp_path / "out.mp4", **asked), monkeypatch)
    assert "codecfleet doctor" in caught.value.next_step


def test_on_a_cluster_others_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a fleet with a private Ray knows its machine; ``RAY_ADDRESS`` counts as an address."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    # This process may have Ray loaded, because of other tests.
    monkeypatch.setattr("codecfleet.cluster.fleet.default.holds_ray", lambda: False)
    for address in (None, "local"):
        assert default_pool(address, None).state.is_here
    assert not default_pool("head:6379", None).state.is_here
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert not default_pool(None, None).state.is_here
    monkeypatch.setattr("codecfleet.cluster.fleet.default.can_load_nvml", lambda: False)
    assert sole_processor() is not None
    monkeypatch.setattr("codecfleet.cluster.fleet.default.can_load_nvml", lambda: True)
    assert sole_processor() is None
