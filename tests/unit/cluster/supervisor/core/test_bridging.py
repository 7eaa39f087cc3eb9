"""Work begins on processors while the workers of a job's GPUs start."""

from dataclasses import replace

import pytest

from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, plain_demand
from codecfleet.cluster.supervisor.core.previewing import preview
from codecfleet.cluster.supervisor.state.events import Died, Effect, Probed, ProbeFailed, Start, Started
from codecfleet.cluster.supervisor.state.messages import JobReport, WorkerFacts
from codecfleet.cluster.supervisor.state.stations import StationState

from ..core_worlds import SETTINGS, World, gpu_node, node, nvenc, total, wants


class SlowGpuWorld(World):
    """A world in which a GPU's worker starts when the test says so."""

    def __init__(self, *, bridges: bool = True, gpu_start_s: float = 0.0) -> None:
        ray, probed = gpu_node("a", "GPU-1")
        self.starting: list[Start] = []
        super().__init__(ray, settings=replace(SETTINGS, bridges=bridges, gpu_start_s=gpu_start_s))
        self.feed(Probed(probed))

    def carry_out(self, effect: Effect) -> None:
        """Hold back the start of a GPU worker."""
        if isinstance(effect, Start) and effect.station.kind.takes_gpu:
            self.starting.append(effect)
        else:
            super().carry_out(effect)

    def finish_start(self) -> None:
        """Let the GPU's worker answer."""
        (start,) = self.starting
        self.starting.clear()
        self.feed(Started(start.worker, WorkerFacts(8, start.slots, "GPU-1")))


def either(pieces: int) -> JobReport:
    """Return a report of a job that a GPU decodes best, and for which software encoding is little work."""
    plain = wants("j", pieces).demand
    (small,) = (replace(each, width=160, height=90, preset="ultrafast") for each in plain.renditions)
    return JobReport(replace(plain, width=3840, height=2160, renditions=(small,)))


def stations(slots: dict[str, int]) -> set[str]:
    """Return the stations of workers."""
    return {worker.rpartition(":")[0] for worker in slots}


def test_processors_work_until_the_gpus_worker_is_up() -> None:
    """Processors work while the GPU's worker starts, which then takes over."""
    world = SlowGpuWorld()
    first = world.say("one", either(100))
    assert stations(first.slots["j"]) == {"a/cpu#0"}
    assert [start.station.station for start in world.starting] == ["a/gpu#0"]
    world.finish_start()
    world.say("one", either(100))  # the slots on the processor are given back
    then = world.say("one", either(100))
    assert "a/gpu#0" in stations(then.slots["j"])
    assert total(then, "j") >= total(first, "j")


def test_a_gpus_worker_takes_over_core_by_core() -> None:
    """The GPU's sessions begin as those of the processor end, so that no two share a core."""
    world = SlowGpuWorld()
    (small,) = either(100).demand.renditions
    one = replace(either(100).demand, width=1920, height=1080, renditions=(replace(small, width=640, height=360),))
    job = replace(either(100), demand=one)
    ((worker, slots),) = world.say("one", job).slots["j"].items()
    world.finish_start()
    for left in range(slots, -1, -1):
        then = world.say("one", replace(job, held={worker: left}))
        assert worker not in then.slots["j"]
        assert total(then, "j") == slots - left


@pytest.mark.parametrize("job", [nvenc("j", 10), JobReport(replace(either(10).demand, needs_gpu=True))])
def test_work_that_only_a_gpu_may_do_waits_for_it(job: JobReport) -> None:
    """No processor does work that requires a GPU, even while the GPU's worker starts."""
    world = SlowGpuWorld()
    assert total(world.say("one", job), "j") == 0
    world.finish_start()
    assert stations(world.say("one", job).slots["j"]) == {"a/gpu#0"}


def test_a_cluster_does_not_bridge() -> None:
    """The workers of a cluster already run, and other jobs may need the cores that encode for the GPU."""
    assert total(SlowGpuWorld(bridges=False).say("one", either(100)), "j") == 1
    assert total(SlowGpuWorld().say("one", either(100)), "j") == 2


@pytest.mark.parametrize(("frames", "is_worth_it"), [(10, False), (30, True), (250, True)])
def test_an_nvenc_that_starts_later_must_be_worth_the_wait(frames: int, *, is_worth_it: bool) -> None:
    """Software may finish before a GPU's worker starts; once the worker runs, its start does not count."""
    world = SlowGpuWorld(gpu_start_s=5.0)
    chooses = replace(wants("k", 4).demand, segments=(frames,) * 4, encoder=EncoderChoice.AUTO)
    assert (preview(world.core.state, chooses, nodes_may_join=False).encoder_kind is not None) is is_worth_it
    world.say("one", nvenc("j", 10))
    world.finish_start()
    world.say("one")
    assert preview(world.core.state, chooses, nodes_may_join=False).encoder_kind is not None


def test_a_gpus_station_rests_between_probes_that_fail() -> None:
    """If Ray does not start, probes never report, and they are not requested at every tick."""
    world = SlowGpuWorld()
    while world.core.state.stations["a/gpu#0"].state is not StationState.QUARANTINED:
        world.say("one", nvenc("j", 10))
        world.feed(Died(world.starting.pop().worker, "no Ray"))
        world.wait(1)
    for rests, probes in ((1, 1), (1, 1), (1, 2), (3, 2), (1, 3)):
        world.wait(rests * (SETTINGS.quarantine_s + 1))
        assert len(world.probes) == 1 + probes
        world.feed(ProbeFailed("a", "Ray did not start"))


SILENT = "NVML did not list this machine's GPUs: no answer within 10 s"


@pytest.mark.parametrize(
    ("demand", "never", "gpu_refusal"),
    [
        (replace(plain_demand("j", 4), needs_gpu=True), SILENT, SILENT),
        (nvenc("j", 4).demand, SILENT, SILENT),
        (plain_demand("j", 4), "", SILENT),
        (replace(plain_demand("j", 4), software_decode="it is short"), "", "it is short"),
    ],
)
def test_unlisted_gpus_are_the_reason(demand: Demand, never: str, gpu_refusal: str) -> None:
    """If GPUs are not listed, a job that needs one learns why; software jobs are not refused."""
    found = preview(World(replace(node("a"), unlisted=SILENT)).core.state, demand, nodes_may_join=False)
    assert (found.never, found.gpu_refusal) == (never, gpu_refusal)
