"""The worker process in Ray: an async actor around ``actors/worker/host.py``."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...actors.device.work import Constraints
from ...actors.worker.heartbeat import Heartbeat, WorkerFacts
from ...actors.worker.host import HostEvent, WorkerHost, never
from ...actors.worker.orders import GoneClients
from ...actors.worker.outcome import Outcome
from ..grouping import counted
from ..logs.actions import LogAction
from ..logs.entry import NO_IDS, LogIds
from ..logs.writing import log
from ..machine import OomKills
from ..ray.public.nodes import given_gpus, this_actor, this_node
from ..ray.sigterm import sigterm_kills
from ..version import PYAV, VERSION
from ..worker_names import WORKER_PREFIX
from .helper_program import CPU, DLA, GPU, SECOND, keep_to_dla, spawn_helper

if TYPE_CHECKING:
    from ...actors.nvidia.gpu import Gpu
    from ..probes.gpus.visible_device import TakenDevice

ReplyT = TypeVar("ReplyT")

_ACTIONS: Final = {
    HostEvent.FAILED: LogAction.WORK_FAILED,
    HostEvent.BROKEN: LogAction.WORKER_BROKEN,
    HostEvent.FENCED: LogAction.WORKER_FENCED,
}


class RayWorker:
    """A worker process in Ray. Ray calls its methods in several event loops; the worker's host has a loop of its own.

    Args:
        slots: how many tasks the process runs at the same time.
        takes_gpu: whether to use one GPU, and hide all others.
        device: the GPU to use, by its name on the machine; "" for the GPU that Ray assigned to this process.
        part: which slice to use, if the GPU has several.
        counts_slices: whether Ray counts slices as GPUs on this node (``gpu_identity.Units``).
        avoided: the machine's quarantined devices; the process uses none of them.
        dla: the number of the DLA on which this process runs networks.
        cores: how many cores are reserved for the process.
        term: the term of the supervisor that starts the process.
        fence_s: after how many seconds without renewal the process ends; None for never.
    """

    def __init__(
        self,
        slots: int,
        *,
        takes_gpu: bool = False,
        device: str = "",
        part: int = 0,
        counts_slices: bool = False,
        avoided: tuple[str, ...] = (),
        dla: int | None = None,
        cores: int = 0,
        term: int = 0,
        fence_s: float | None = None,
    ) -> None:
        sigterm_kills()
        identity = trouble = ""
        if takes_gpu:
            taken = _take_device(device, part, avoided, counts_slices=counts_slices)
            identity, trouble = taken.identity, taken.trouble
        # If the slice does not exist, or the device has a fault, the supervisor gives this worker no work.
        gpu = _warming_gpu() if identity and not trouble else None
        if dla is not None:
            keep_to_dla(dla)
        facts = WorkerFacts(os.getpid(), slots, identity, cores, trouble, PYAV)
        ids = NO_IDS if fence_s is None else _begin_log(facts)
        role = f"{DLA}{dla}" if dla is not None else CPU if gpu is None else GPU
        self._host = WorkerHost(
            facts,
            spawn_lone=partial(spawn_helper, role),
            killed_for_memory=OomKills().explains_a_death,
            gpu=gpu,
            spawn_second=partial(spawn_helper, SECOND),
            term=term,
            log=lambda event, line: log(_ACTIONS[event], line, ids),
        )
        if fence_s is not None:
            self._host.fence(fence_s)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="codecfleet-host", daemon=True).start()

    async def run(self, run: str, packed_work: bytes, constraints: Constraints, *blobs: bytes) -> Outcome[Any]:
        """Run packed work. ``WorkerHost`` documents this and the following methods."""
        return await self._hosted(self._host.run(run, packed_work, constraints, *blobs))

    async def cancel(self, which: str | GoneClients) -> None:
        """Cancel one run, or all runs of clients that are gone."""
        self._loop.call_soon_threadsafe(self._host.cancel, which)

    async def heartbeat(self, term: int | None = None) -> Heartbeat:
        """Return the worker's state."""
        return await self._hosted(self._host.heartbeat(term))

    async def end(self) -> None:
        """End this process."""
        self._host.end()

    async def version(self) -> str:
        """Return the worker's version of codecfleet."""
        return VERSION

    async def watch(self) -> None:
        """Never return, so that the caller notices the end of the process at once, even while no work runs."""
        await never()

    async def _hosted(self, call: Coroutine[Any, Any, ReplyT]) -> ReplyT:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))


def _begin_log(facts: WorkerFacts) -> LogIds:
    """Begin the log of a worker on a cluster; return the worker's ids."""
    from ..logs.in_ray import begin_log_in_ray
    from ..probes.report.gpu_identity import on_node

    begin_log_in_ray("worker")
    node = this_node()
    worker = this_actor().removeprefix(WORKER_PREFIX)
    ids = LogIds(node=node, device=on_node(node, facts.device), worker=worker)
    has = f"{counted(facts.slots, 'slot')}{' on ' + facts.device if facts.device else ''}"
    trouble = f"; its device is not used: {facts.trouble}" if facts.trouble else ""
    log(LogAction.WORKER_STARTED, f"this process became a worker with {has}{trouble}", ids)
    return ids


def _take_device(device: str, part: int, avoided: tuple[str, ...], *, counts_slices: bool) -> "TakenDevice":
    """Restrict this process to one GPU, before NVIDIA's packages are imported."""
    from ..probes.gpus.visible_device import narrow, narrow_to, open_nvml

    if device:
        return narrow_to(device, os.environ, open_nvml(), avoided=avoided)
    return narrow(given_gpus(), os.environ, open_nvml(), part=part, counts_slices=counts_slices, avoided=avoided)


def _warming_gpu() -> "Gpu":
    from ...actors.nvidia.gpu import Gpu

    gpu = Gpu()
    gpu.warm_up()
    return gpu
