"""A machine whose CPU workers are child processes, and whose GPU workers belong to Ray."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest

from codecfleet.cluster.fleet.leases.ground import Ground
from codecfleet.cluster.fleet.leases.late_ray import LateRay
from codecfleet.cluster.fleet.leases.leased_pool import LeasedPool
from codecfleet.cluster.fleet.pool import more_slots
from codecfleet.cluster.placement.model.demand import Demand, plain_demand
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.probes.report.gpu_identity import NamedGpu, ShownGpus
from codecfleet.cluster.supervisor.backends.backend import HERE
from codecfleet.cluster.supervisor.backends.machine_backend import MachineBackend
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.runner.runner import SupervisorRunner
from codecfleet.cluster.supervisor.state.events import Reserve
from codecfleet.cluster.supervisor.state.messages import RayNode
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.cluster.supervisor.state.stations import Station
from codecfleet.cluster.survey.known_gpus import KnownGpus, listed
from codecfleet.cluster.worker_names import StationId
from codecfleet.errors import FleetUnavailable, WorkerLost
from codecfleet.testing import FakeClusterBackend, FakeProcesses, works

from ..core_worlds import gpu_node

if TYPE_CHECKING:
    from codecfleet.cluster.ray.embedded import Connection

ENDLESS_S = 3600
CORES = 12
"""Two processes' worth."""
FIRST_SLOTS = 6
OTHERS = ("cpu#1", "gpu#0")


class Machine(NamedTuple):
    """A pool on this machine, with its workers."""

    pool: LeasedPool
    backend: MachineBackend
    processes: FakeProcesses
    ray: FakeClusterBackend
    late: LateRay


class RayStarts:
    """Counts starts of Ray. With ``error`` set, starts fail; while ``may_end`` is not set, they wait."""

    def __init__(self) -> None:
        self.count = 0
        self.error: Exception | None = None
        self.may_end = asyncio.Event()
        self.may_end.set()


class Nvml:
    """NVML's list of GPUs, once ``answers`` is set; ``trouble`` is reported instead, and ``error`` is raised.

    With ``is_new``, no table has the GPU.
    """

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.trouble = ""
        self.error: Exception | None = None
        self.is_new = False
        self.times = 0

    def __call__(self, node: str) -> KnownGpus:
        """Return one GPU."""
        self.times += 1
        assert self.answers.wait(20)
        if self.error is not None:
            raise self.error
        if self.trouble:
            return listed(node, Unavailable(Absence.TIMED_OUT, self.trouble))
        known = one_gpu(node)
        untried = tuple(replace(each, trials=()) for each in known.devices)
        return replace(known, devices=untried) if self.is_new else known


def one_gpu(node: str) -> KnownGpus:
    """Return a GPU that is in the tables."""
    _, probed = gpu_node(node, "GPU-1")
    gpus = tuple(device for device in probed.devices if device.kind is not DeviceKind.CPU)
    return KnownGpus(gpus, ShownGpus((NamedGpu(index=0, uuid="GPU-1"),)))


async def never() -> "Connection":
    """A start of Ray that these tests do not use."""
    raise AssertionError


@pytest.fixture
def starts() -> RayStarts:
    """Count Ray's starts."""
    return RayStarts()


@pytest.fixture
def nvml() -> Nvml:
    """The NVML of a machine with a GPU."""
    return Nvml()


@pytest.fixture
async def machine(starts: RayStarts) -> AsyncIterator[Machine]:
    """A started pool whose first worker is ready."""
    async with started(starts, None) as found:
        yield found


@pytest.fixture
async def gpu_machine(starts: RayStarts, nvml: Nvml) -> AsyncIterator[Machine]:
    """A started pool on a machine with a GPU, before Ray has started."""
    starts.may_end.clear()
    async with started(starts, nvml) as found:
        yield found


@asynccontextmanager
async def started(starts: RayStarts, nvml: Nvml | None, *, device_wait_s: float = 30.0) -> AsyncIterator[Machine]:
    """Start a pool on a machine; it waits up to ``device_wait_s`` for GPUs to appear."""
    node = RayNode(node=HERE, name="this machine", cores=CORES, free_cores=CORES)
    known = one_gpu(HERE)
    with_gpu = replace(node, gpus=1, devices=known.devices, shown=known.shown)
    ray, processes = FakeClusterBackend((node if nvml is None else with_gpu,)), FakeProcesses()
    ray.gpus[f"{HERE}/gpu#0"] = "GPU-1"

    async def start_ray() -> FakeClusterBackend:
        starts.count += 1
        await starts.may_end.wait()
        if starts.error is not None:
            raise starts.error
        return ray

    backend = MachineBackend(node, nvml, start_ray, processes)
    settings = SupervisorSettings(idle_release_s=None, device_wait_s=device_wait_s, bridges=True)
    runner = SupervisorRunner(backend, Core(settings, Policy(), 1, time.monotonic()), settings)
    async with AsyncExitStack() as stack:
        late = LateRay(CORES, never, has_gpus=nvml is not None)
        ground = Ground(supervisor=runner, eager=FIRST_SLOTS, is_alone=True, late=late)
        leased = LeasedPool(ground.reach)
        pool = await stack.enter_async_context(leased)
        yield Machine(pool, backend, processes, ray, late)


async def until(is_true: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(20):
        while not is_true():  # noqa: ASYNC110 - no event is set
            await asyncio.sleep(0.01)


async def test_a_job_gets_all_processes_at_once(machine: Machine, starts: RayStarts) -> None:
    """The work of a job begins in every process without Ray, however small the job is."""
    machine.pool.set_demand("j", replace(plain_demand("j", 1), segments=(1,) * 40))
    runs = [machine.pool.submit(works.Dwell(job="j", label=f"{i}", seconds=ENDLESS_S)) for i in range(CORES)]
    await until(lambda: all(run.progress.worker for run in runs))
    assert {run.progress.worker.station for run in runs} == {f"{HERE}/cpu#0", f"{HERE}/cpu#1"}
    assert (machine.pool.state.of("j").slots, machine.pool.state.of("j").cores) == (CORES, CORES)
    assert (machine.processes.started, machine.ray.starts, starts.count) == (2, 0, 0)
    for run in runs:
        run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)


async def test_without_ray_the_processors_continue(gpu_machine: Machine, starts: RayStarts) -> None:
    """If Ray does not start, no work is lost, because software does all of it."""
    starts.error = FleetUnavailable("no place for its files", "Free some.")
    starts.may_end.set()
    gpu_machine.pool.set_demand("j", decoding(100_000))
    submitted = (works.Count(job="j", label=f"{i}", frames=i) for i in range(40))
    assert await asyncio.gather(*(gpu_machine.pool.submit(work) for work in submitted)) == list(range(40))
    await until(lambda: starts.count > 0)
    assert (gpu_machine.ray.starts, gpu_machine.pool.lost) == (0, "")


async def test_a_killed_process_is_replaced(machine: Machine) -> None:
    """Work of a killed process is lost with the reason, and may be submitted again."""
    running = machine.pool.submit(works.Dwell(job="j", label="a", seconds=ENDLESS_S))
    await until(lambda: running.progress.frames > 0)
    machine.processes.kill()
    with pytest.raises(WorkerLost, match="died while running: ChildDied: it was killed by SIGKILL"):
        await running
    assert await machine.pool.submit(works.Count(job="j", label="a", frames=7)) == 7
    assert machine.processes.started == 2
    (seen,) = await machine.backend.look()
    assert seen.free_cores == CORES - FIRST_SLOTS


async def test_losing_ray_ends_the_pool(gpu_machine: Machine, starts: RayStarts) -> None:
    """Once workers run on Ray, the loss of Ray ends the pool, whose host is replaced."""
    starts.may_end.set()
    gpu_machine.pool.set_demand("j", decoding(100_000))
    await until(lambda: gpu_machine.ray.starts == 1)
    assert gpu_machine.pool.lost == ""
    gpu_machine.ray.ended = "Ray itself ended: its node does not answer"
    assert gpu_machine.pool.lost == gpu_machine.ray.ended


def decoding(frames: int) -> Demand:
    """Return the demand of a job whose decoding suits a GPU, with little work for the processor."""
    plain = plain_demand("j", 1)
    (small,) = (replace(each, width=160, height=90, preset="ultrafast") for each in plain.renditions)
    return replace(plain, segments=(frames,) * 30, width=3840, height=2160, renditions=(small,))


async def test_work_begins_before_a_gpus_worker_is_up(gpu_machine: Machine, starts: RayStarts) -> None:
    """Work waits for neither Ray nor the GPU, which joins once its worker is ready."""
    gpu_machine.pool.set_demand("j", decoding(100_000))
    ran = await gpu_machine.pool.submit(works.Count(job="j", label="first", frames=3))
    await until(lambda: starts.count == 1)
    assert (ran, gpu_machine.ray.starts) == (3, 0)
    starts.may_end.set()
    await until(lambda: any("/gpu#" in worker for worker in gpu_machine.ray.workers))


async def test_cores_that_encode_for_a_gpu_are_counted_once(gpu_machine: Machine, starts: RayStarts) -> None:
    """A GPU's worker reserves only cores that CPU workers leave free."""
    (before,) = await gpu_machine.backend.look()
    assert before.free_cores == CORES - FIRST_SLOTS
    starts.may_end.set()
    gpu_machine.pool.set_demand("j", decoding(100_000))
    await until(lambda: any("/gpu#" in worker for worker in gpu_machine.ray.workers))
    (after,) = await gpu_machine.backend.look()
    assert 0 <= after.free_cores < before.free_cores


async def test_nvml_is_asked_once(gpu_machine: Machine, starts: RayStarts, nvml: Nvml) -> None:
    """NVML is queried once, also if Ray starts."""
    starts.may_end.set()
    gpu_machine.pool.set_demand("j", decoding(100_000))
    await until(lambda: any("/gpu#" in worker for worker in gpu_machine.ray.workers))
    assert nvml.times == 1


async def test_no_core_is_reserved_twice(machine: Machine) -> None:
    """Consecutive orders share the free cores, even if the node is not looked at in between."""
    stations = [Station(StationId(f"{HERE}/{name}"), 8) for name in OTHERS]
    orders = [Reserve(f"{station.station}:9", station, 4, 0.0) for station in stations]
    assert [await machine.backend.reserve(order) for order in orders] == [4, CORES - FIRST_SLOTS - 4]
    (after,) = await machine.backend.look()
    assert after.free_cores == 0


async def test_gpus_that_are_listed_late_delay_nothing(starts: RayStarts, nvml: Nvml) -> None:
    """Work begins before GPUs are listed; only a preview that depends on them waits."""
    nvml.answers.clear()
    async with started(starts, nvml) as machine:
        machine.pool.set_demand("j", decoding(2))
        assert await machine.pool.submit(works.Count(job="j", label="first", frames=3)) == 3
        asked = asyncio.create_task(machine.pool.preview(replace(decoding(100_000), job="k", needs_gpu=True)))
        await asyncio.sleep(0)
        assert not asked.done()
        nvml.answers.set()
        assert (await asked).never == ""


async def test_a_gpu_that_no_table_lists_starts_no_ray(starts: RayStarts, nvml: Nvml) -> None:
    """A GPU that no table has starts Ray only for a job that may use the GPU."""
    nvml.is_new = True
    async with started(starts, nvml) as machine:
        await machine.backend.know_gpus()
        machine.pool.set_demand("j", decoding(2))
        assert await machine.pool.submit(works.Count(job="j", label="first", frames=3)) == 3
        assert starts.count == 0
        machine.pool.set_demand("j", decoding(100_000))
        await until(lambda: any("/gpu#" in worker for worker in machine.ray.workers))


async def test_a_job_that_needs_a_gpu_waits_for_the_list(starts: RayStarts, nvml: Nvml) -> None:
    """A new host knows no GPU at first, but its job does not learn that there is none."""
    nvml.answers.clear()
    async with started(starts, nvml, device_wait_s=0.0) as machine:
        machine.pool.set_demand("j", replace(decoding(100_000), needs_gpu=True))
        waiting = asyncio.create_task(more_slots(machine.pool, "j", 0))
        await until(lambda: machine.pool.state.of("j").waits_for != "")
        assert not waiting.done()
        nvml.answers.set()
        await waiting
        assert any("/gpu#" in worker for worker in machine.ray.workers)


@pytest.mark.parametrize("raised", [False, True])
async def test_gpus_that_nvml_missed_are_counted_by_ray(starts: RayStarts, nvml: Nvml, *, raised: bool) -> None:
    """If the driver was slow once, the GPUs are not lost, because a probe on Ray finds them."""
    nvml.trouble, nvml.error = "no answer within 10 s", RuntimeError("no thread") if raised else None
    starts.may_end.clear()
    async with started(starts, nvml) as machine:
        await machine.backend.know_gpus()
        (before,) = await machine.backend.look()
        starts.may_end.set()
        probed = await machine.backend.probe(HERE, again=False)
        (after,) = await machine.backend.look()
    why = "no thread" if raised else "no answer within 10 s"
    assert (before.gpus, before.knows_its_gpus) == (0, False)
    assert before.unlisted.startswith("NVML did not list this machine's GPUs: ")
    assert before.unlisted.endswith(why)
    assert (after.gpus, after.unlisted, starts.count) == (1, "", 1)
    assert "GPU-1" in {device.device for device in probed.devices}


@pytest.mark.parametrize("again", [False, True])
async def test_without_gpus_nothing_is_probed(machine: Machine, starts: RayStarts, *, again: bool) -> None:
    """A CPU worker that keeps dying does not start Ray."""
    probed = await machine.backend.probe(HERE, again=again)
    assert ([device.kind for device in probed.devices], starts.count) == ([DeviceKind.CPU], 0)
