"""Workers of GPUs: the rates that they teach, and how an old worker is replaced."""

from dataclasses import replace

from codecfleet.actors.worker.heartbeat import Heartbeat
from codecfleet.cluster.placement.model.demand import Demand, plain_demand
from codecfleet.cluster.probes.report.device_kinds import Route
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, MediaCodec
from codecfleet.cluster.supervisor.state.events import Measured, NodesSeen, Probed, RecycleDue, Renewed, Reserve, Stop
from codecfleet.cluster.supervisor.state.messages import ClientReport, JobReport, RayNode
from codecfleet.cluster.supervisor.state.stations import StationState
from codecfleet.cluster.worker_names import WorkerId

from ..core_worlds import World, decided, gpu_node
from ..runner.test_runner import MakeRunner, all_quiet, at_work, report, settled

STATION, CORES = "g/gpu#0", 16
HEARD_ALL = 1 << 60
"""The number of grants that are newer than any."""
NODE = RayNode(node="g", name="host-g", cores=CORES, free_cores=CORES, gpus=1)


def job(pieces: int = 100) -> JobReport:
    """Return a client's report of a job that software encodes and NVDEC may decode."""
    return JobReport(_demand(pieces))


def _demand(pieces: int) -> Demand:
    plain = plain_demand("j", pieces)
    fast = (replace(plain.renditions[0], preset="1"),)
    decode = CodecCase(MediaCodec.H264, Direction.DECODE)
    return replace(plain, decode=decode, segments=(2000,) * pieces, renditions=fast)


def _world() -> World:
    """Return a node with 16 cores and an H200, whose worker runs a job."""
    l4 = gpu_node("g", "GPU-a")[1].devices[0]
    engines = {Engine.NVDEC: 7}
    device = replace(l4, name="NVIDIA H200", engines=engines, trials=l4.trials[:1], free_memory_bytes=100 << 30)
    world = World()
    world.gpus = {STATION: "GPU-a"}
    world.feed(NodesSeen((NODE,)))
    world.feed(Probed(replace(NODE.unprobed(), devices=(device, *NODE.unprobed().devices))))
    world.say("one", job())
    world.feed(NodesSeen((replace(NODE, free_cores=0),)))
    world.say("one", job())
    assert _routes(world) == {Route.HYBRID}
    return world


def _routes(world: World) -> set[Route]:
    return {lane.route for lane in world.core.state.plans.placement.lanes}


def _measure(world: World, fps: float, *, on_device: bool) -> None:
    station = world.core.state.stations[STATION]
    world.feed(Measured(station.worker, "j", CORES, fps, on_device))


def test_an_old_worker_finishes_and_is_replaced() -> None:
    """An old worker gets no more work; once it is idle, its station gets a new process, which counts as no death."""
    world = _world()
    old = world.core.state.stations[STATION]
    worker, epoch = old.worker, old.epoch
    busy = replace(job(), held={worker: 3})
    world.say("one", busy)
    world.feed(RecycleDue(worker, "it has used its GPU for 6.0 hours"))
    assert worker not in world.say("one", busy).slots["j"]
    world.wait(5)
    world.say("one", busy)
    assert worker not in world.stopped
    world.say("one", job())
    world.wait(1)
    assert worker in world.stopped
    world.feed(NodesSeen((NODE,)))
    grants = world.say("one", job())
    book = world.core.state.stations[STATION]
    assert (book.state, book.deaths_in_a_row, book.recycle_due) == (StationState.READY, 0, "")
    assert book.epoch > epoch
    assert grants.slots["j"][book.worker] > 0


def test_a_worker_due_for_recycling_is_noted_once() -> None:
    """A worker repeats with every heartbeat that it is due; only the first one counts, and none for its successor."""
    world = _world()
    book = world.core.state.stations[STATION]
    recycle_due = RecycleDue(book.worker, "it is old")
    (note,) = world.core.decide(recycle_due, world.now_s)
    assert "will be replaced once it is idle: it is old" in str(note)
    assert world.core.decide(recycle_due, world.now_s) == []
    assert world.core.decide(replace(recycle_due, worker=WorkerId(f"{STATION}:{book.epoch - 1}")), world.now_s) == []


async def test_a_heartbeat_says_that_a_worker_is_due_for_recycling(make_runner: MakeRunner, clock: object) -> None:
    """What a worker reports about itself reaches the log, and its station gets another process."""
    backend, runner, held = await at_work(make_runner)
    worker = min(held)
    backend.heartbeats[worker] = Heartbeat(0, (), recycle_due="it has opened 20000 sessions on its GPU")
    await clock.advance(3)  # type: ignore[attr-defined]
    await all_quiet()
    assert any("it has opened 20000 sessions" in line for _, line in runner.status().log)
    found = await settled(runner, report(2, 50))
    assert worker not in found.slots["j"]


def test_cores_that_a_processor_waits_for_are_released_at_once() -> None:
    """An unused GPU worker does not keep its cores for half a minute if a CPU worker waits for them."""
    world = _world()
    _measure(world, 40.0, on_device=False)
    _measure(world, 30.0, on_device=True)
    core, now_s = world.core, world.now_s
    worker = core.state.stations[STATION].worker
    busy = ClientReport("one", "driver one", 90, (replace(job(50), held={worker: 2}),), acknowledged=HEARD_ALL)
    effects = decided(core, Renewed(busy), now_s)
    assert [effect.station.station for effect in effects if isinstance(effect, Reserve)] == ["g/cpu#0", "g/cpu#1"]
    effects = decided(core, Renewed(replace(busy, sequence=91)), now_s)
    assert not [effect for effect in effects if isinstance(effect, Stop)]
    effects = decided(core, Renewed(replace(busy, sequence=92, jobs=(job(50),))), now_s)
    assert [effect.worker.station for effect in effects if isinstance(effect, Stop)] == [STATION]


def test_an_idle_gpu_worker_is_kept_while_its_cores_are_not_needed() -> None:
    """The sessions of an idle GPU worker stay open for the next job, for as long as any idle worker is kept."""
    world = _world()
    world.say("one")
    world.wait(25)
    assert world.core.state.stations[STATION].state is StationState.READY
    world.say("one")
    world.wait(6)
    assert world.core.state.stations[STATION].state is StationState.EMPTY
