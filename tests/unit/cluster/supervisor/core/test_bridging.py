"""Work begins on processors while the workers of a job's GPUs start."""

from dataclasses import replace

import pytest

from codecfleet.cluster.supervisor.state.events import Effect, Probed, Start, Started
from codecfleet.cluster.supervisor.state.messages import JobReport, WorkerFacts

from ..core_worlds import SETTINGS, World, gpu_node, nvenc, total, wants


class SlowGpuWorld(World):
    """A world in which a GPU's worker starts when it is told to."""

    def __init__(self, *, bridges: bool = True) -> None:
        ray, probed = gpu_node("a", "GPU-1")
        self.starting: list[Start] = []
        super().__init__(ray, settings=replace(SETTINGS, bridges=bridges))
        self.feed(Probed(probed))

    def carry_out(self, effect: Effect) -> None:
        """Hold back what starts a GPU's worker."""
        if isinstance(effect, Start) and effect.station.takes_gpu:
            self.starting.append(effect)
        else:
            super().carry_out(effect)

    def finish_start(self) -> None:
        """Have the GPU's worker answer."""
        (start,) = self.starting
        self.starting.clear()
        self.feed(Started(start.worker, WorkerFacts(8, start.slots, "GPU-1")))


def either(pieces: int) -> JobReport:
    """Return what a client says of a job that a GPU decodes best, and software encodes, which is little work."""
    plain = wants("j", pieces).demand
    (small,) = (replace(each, width=160, height=90, preset="ultrafast") for each in plain.renditions)
    return JobReport(replace(plain, width=3840, height=2160, renditions=(small,)))


def stations(slots: dict[str, int]) -> set[str]:
    """Return the stations of workers."""
    return {worker.rpartition(":")[0] for worker in slots}


def test_processors_work_until_the_gpus_worker_is_there() -> None:
    """The GPU's worker is started all the same, and takes over."""
    world = SlowGpuWorld()
    first = world.say("one", either(100))
    assert stations(first.slots["j"]) == {"a/cpu#0"}
    assert [start.station.station for start in world.starting] == ["a/gpu#0"]
    world.finish_start()
    then = world.say("one", either(100))
    assert "a/gpu#0" in stations(then.slots["j"])
    assert total(then, "j") >= total(first, "j")


@pytest.mark.parametrize("job", [nvenc("j", 10), JobReport(replace(either(10).demand, needs_gpu=True))])
def test_what_only_a_gpu_may_do_waits_for_it(job: JobReport) -> None:
    """No processor stands in for it."""
    world = SlowGpuWorld()
    assert total(world.say("one", job), "j") == 0
    world.finish_start()
    assert stations(world.say("one", job).slots["j"]) == {"a/gpu#0"}


def test_on_a_cluster_nothing_stands_in() -> None:
    """There workers are up already, and other jobs may want the cores: those that encode for the GPU wait for it."""
    assert total(SlowGpuWorld(bridges=False).say("one", either(100)), "j") == 1
    assert total(SlowGpuWorld().say("one", either(100)), "j") == 2
