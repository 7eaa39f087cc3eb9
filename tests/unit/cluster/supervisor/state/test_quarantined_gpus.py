"""A sick GPU closes no other GPU's station, whichever GPU Ray assigns."""

from dataclasses import replace
from itertools import pairwise

import pytest

from codecfleet.cluster.device_fault import DeviceFault, FaultVerdict
from codecfleet.cluster.placement.model.inventory import DeviceState, Node
from codecfleet.cluster.probes.report.engines import Engine, Trial
from codecfleet.cluster.probes.report.gpu_identity import NamedGpu, ShownGpus
from codecfleet.cluster.supervisor.core.granting import grants_for
from codecfleet.cluster.supervisor.core.quarantining import KEEP_S
from codecfleet.cluster.supervisor.state.events import (
    Died,
    Effect,
    KeepQuarantines,
    NodesSeen,
    Probe,
    Probed,
    Renewed,
    Reserve,
    Start,
    Started,
    Stop,
)
from codecfleet.cluster.supervisor.state.messages import ClientReport, Grants, WorkerFacts
from codecfleet.cluster.supervisor.state.stations import DEATHS_IN_A_ROW_MAX, StationState
from codecfleet.cluster.supervisor.status.status import status_of

from ..core_worlds import World, decided, gpu_node, nvenc

ERROR = "CUDA error 999"
UUIDS = ("GPU-0", "GPU-1", "GPU-2", "GPU-3")


class Lowest(World):
    """A node whose Ray gives a new bundle the free GPU with the lowest number; ``lost`` is whether GPU-0 is lost."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.lost = False
        self.kept_s: list[float] = []
        super().__init__()
        ray, self.probed = gpu_node("g", *UUIDS)
        self.ray = replace(ray, cores=64, free_cores=64)
        named = tuple(NamedGpu(index=number, uuid=uuid) for number, uuid in enumerate(UUIDS))
        self.probed = replace(self.probed, shown=ShownGpus(named))
        self.feed(NodesSeen((self.ray,)))
        self.feed(Probed(self.probed))

    def carry_out(self, effect: Effect) -> None:
        """Assign GPUs, and let workers find out what is wrong with their GPUs."""
        match effect:
            case Reserve(worker, station, _, _) if station.kind.takes_gpu:
                self.given[worker] = next(uuid for uuid in UUIDS if uuid not in self.given.values())
            case Start(worker, station, slots, _, avoided) if station.kind.takes_gpu:
                self.started.append(effect)
                self.pending += decided(self.core, Started(worker, self._facts(worker, slots, avoided)), self.now_s)
                return
            case Stop(worker):
                self.given.pop(worker, None)
            case KeepQuarantines():
                self.kept_s.append(self.now_s)
        super().carry_out(effect)

    def _facts(self, worker: str, slots: int, avoided: frozenset[str]) -> WorkerFacts:
        given = self.given[worker]
        if self.lost and given == UUIDS[0]:  # NVML no longer gives a UUID, only a number
            return WorkerFacts(7, slots, "0", trouble="Ray assigned GPU 0, but nvmlDeviceGetUUID answered GPU_IS_LOST")
        return WorkerFacts(7, slots, given, trouble="it is in quarantine" if given in avoided else "")

    def work(self) -> Grants:
        """Report a job that requires NVENC, and return its grants."""
        return self.say("one", nvenc("j", 400))

    def worker_on(self, uuid: str) -> str:
        """Return the worker that works on a GPU."""
        books = self.core.state.stations.values()
        return next(book.worker for book in books if book.device == uuid and book.facts and not book.facts.trouble)

    def working(self) -> set[str]:
        """Return the GPUs that the job may use."""
        stations = self.core.state.stations
        return {stations[worker.rpartition(":")[0]].device for worker in self.work().slots["j"]}

    def quarantined(self) -> set[str]:
        """Return the GPUs in quarantine."""
        book = self.core.state.nodes.get("g")
        assert book is not None
        return {device.device for device in book.node.devices if device.state is DeviceState.QUARANTINED}


@pytest.fixture
def world() -> Lowest:
    """Four GPUs at work."""
    world = Lowest()
    assert world.work() is not None
    assert world.working() == set(UUIDS)
    return world


def _kill_all(world: Lowest, times: int) -> None:
    for _ in range(times):
        for uuid in UUIDS[1:]:
            world.feed(Died(world.worker_on(uuid), "killed"))
        world.wait(1)
        world.work()


def test_a_lost_gpu_affects_no_other_station(world: Lowest) -> None:
    """The worker on a lost GPU returns it, and Ray gives it to the next worker; all other GPUs keep working."""
    world.lost = True
    world.feed(Died(world.worker_on(UUIDS[0]), "CUDA error 999"))
    world.wait(1)
    assert world.working() == set(UUIDS[1:])
    assert world.quarantined() == {UUIDS[0]}
    for _ in range(3):
        world.wait(15)
        world.work()
        _kill_all(world, 1)
    assert world.working() == set(UUIDS[1:])
    assert world.quarantined() == {UUIDS[0]}
    assert all(book.state is not StationState.QUARANTINED for book in world.core.state.stations.values())


def test_a_gpu_whose_processes_die_is_known_by_its_identity(world: Lowest) -> None:
    """The GPU waits for a trial; its station continues on another GPU."""
    for _ in range(DEATHS_IN_A_ROW_MAX):
        world.feed(Died(world.worker_on(UUIDS[0]), "CUDA error 999"))
        world.wait(1)
        world.work()
    assert world.quarantined() == {UUIDS[0]}
    assert world.working() == set(UUIDS[1:])
    _kill_all(world, 2)
    assert world.working() == set(UUIDS[1:])


def test_the_process_on_a_quarantined_gpu_is_replaced(world: Lowest) -> None:
    """The process ends once it is idle, since its CUDA state may be broken; no process opens the GPU meanwhile."""
    worker = world.worker_on(UUIDS[0])
    _fail(world, *"abc")
    _wait(world, 1)
    assert worker in world.stopped
    later = [start for start in world.started if UUIDS[0] in start.avoided]
    assert all(world.given.get(start.worker) != UUIDS[0] or start.avoided for start in later)


def test_a_quarantine_is_stored_again_as_it_ages(world: Lowest) -> None:
    """A successor learns its age to within ``KEEP_S``; nothing is stored without a quarantine."""
    _wait(world, 30)
    assert world.kept_s == []
    _fail(world, *"abc")
    began_s = world.now_s
    _wait(world, 300)
    times_s = [began_s, *world.kept_s, world.now_s]
    assert max(after_s - before_s for before_s, after_s in pairwise(times_s)) <= KEEP_S + 1
    assert len(times_s) < 40


def test_the_status_says_why_and_since_when(world: Lowest) -> None:
    """The status has the reason and the time, both in JSON and in text."""
    _fail(world, *"abc")
    _wait(world, 10)
    status = status_of(world.core.state, {}, (), world.now_s)
    device = next(each for each in status.devices if each.device == UUIDS[0])
    assert device.reason == "its sessions failed for 3 different files, last: CUDA error 999"
    assert device.quarantine["for_s"] == pytest.approx(10, abs=1)
    assert device.quarantine["trial_in_s"] == pytest.approx(20, abs=1)
    assert device.quarantine["times"] == 1
    assert any("GPU-0" in line and device.quarantine["since"] in line for line in status.quarantine)


def test_a_job_that_needs_a_gpu_learns_at_once_that_none_is_left(world: Lowest) -> None:
    """If all GPUs failed while they worked, the job ends without waiting."""
    for uuid in UUIDS:
        _fail(world, *(f"{uuid}{number}" for number in range(3)), uuid=uuid)
    grants = grants_for(world.core.state, "one", world.now_s)
    assert grants.broken["j"].startswith("every GPU is in quarantine: its sessions failed for 3 different files")


def _nvdec_fails(world: Lowest, uuid: str) -> Node:
    """Return the node as a probe finds it, with a GPU that decodes nothing."""
    gpus = [
        replace(device, trials=tuple(_failed_nvdec(trial) for trial in device.trials))
        if device.device == uuid
        else device
        for device in world.probed.devices
    ]
    return replace(world.probed, devices=tuple(gpus))


def _failed_nvdec(trial: Trial) -> Trial:
    return replace(trial, works=False, reason="its picture is wrong") if trial.engine is Engine.NVDEC else trial


def test_a_gpu_in_doubt_is_tried_and_continues_if_it_decodes(world: Lowest) -> None:
    """Odd files or a bad neighbour cost no GPU, but only one trial in ten minutes."""
    probes = len(world.probes)
    _fail(world, *"abc", kind=FaultVerdict.DOUBTFUL)
    assert world.probes[probes:] == [Probe("g", again=False)]
    world.feed(Probed(world.probed))
    _fail(world, *"defghi", kind=FaultVerdict.DOUBTFUL)
    assert (world.quarantined(), len(world.probes)) == (set(), probes + 1)
    assert world.working() == set(UUIDS)


def test_a_gpu_in_doubt_that_fails_its_trial_is_in_quarantine(world: Lowest) -> None:
    """A GPU that fails its trial stays in quarantine until its NVDEC works, even if its NVENC always worked."""
    _fail(world, *"abc", kind=FaultVerdict.DOUBTFUL)
    sick = _nvdec_fails(world, UUIDS[0])
    world.feed(Probed(sick))
    assert world.quarantined() == {UUIDS[0]}
    found = status_of(world.core.state, {}, (), world.now_s).devices[0]
    assert found.reason.endswith("last: CUDA error 999; and in a trial: its picture is wrong")
    _wait(world, 31)
    world.feed(Probed(sick))
    assert world.quarantined() == {UUIDS[0]}
    _wait(world, 61)
    world.feed(Probed(world.probed))
    assert world.quarantined() == set()


def test_doubts_about_one_file_do_not_count(world: Lowest) -> None:
    """Doubts about one file do not count, however often the file occurs."""
    probes = len(world.probes)
    for _ in range(10):
        _fail(world, *"ab", kind=FaultVerdict.DOUBTFUL)
    assert (world.quarantined(), len(world.probes)) == (set(), probes)


_numbers = iter(range(1, 1_000_000))


def _fail(world: Lowest, *files: str, uuid: str = UUIDS[0], kind: FaultVerdict = FaultVerdict.FAILED) -> None:
    """Report for a client that a GPU's sessions failed for these files, each report twice."""
    for file in files:
        worker = next(book.worker for book in world.core.state.stations.values() if book.device == uuid)
        fault = DeviceFault(worker, file, ERROR, kind, next(_numbers))
        for _ in range(2):
            world.sequence += 1
            jobs = (nvenc("j", 400),)
            world.feed(Renewed(ClientReport("one", "driver one", world.sequence, jobs, faults=(fault,))))
    world.work()


def _wait(world: Lowest, seconds: int) -> None:
    for _ in range(seconds):
        world.wait(1)
        world.work()
