"""The program of a worker's helpers: its second process on a GPU, and those in which work runs alone.

The role is ``second``; or that of a process in which work runs alone: ``gpu``, ``cpu``, or ``dla#`` with the number of
the worker's DLA.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...actors.device.interface import SessionCounts
from ...actors.device.worker import WorkerCore
from ...actors.media.kept_sources import KEPT
from ...actors.watchdog import process_watch
from ...errors import CodecfleetError, DeviceError
from ..process.channel import Channel
from ..process.program import begin, run_to_the_end
from ..sandbox.confine import harden
from .blobs import unpack
from .helpers.helper import DLA, GPU, SECOND
from .helpers.messages import HelperCannot, HelperState, HelperTells, HelperWatch
from .outcome import Outcome, failed, unreadable

if TYPE_CHECKING:
    from ...actors.nvidia.gpu import Gpu

SAY_S: Final = 0.25
"""How often it reports its state, which also shows that it is alive."""


class HelperHost:
    """What a helper serves: it runs work in ``core``, and tells ``parent`` its state; ``use`` returns its sessions."""

    def __init__(self, parent: Channel[HelperWatch], core: WorkerCore, use: Callable[[], SessionCounts]) -> None:
        self._parent = parent
        self._core = core
        self._use = use

    async def run(self, run: str, packed_work: bytes, blobs: tuple[bytes, ...]) -> Outcome[Any]:
        """Run packed work, and tell the state at its end before its outcome."""
        try:
            work = unpack(packed_work, blobs)
        except Exception as error:  # noqa: BLE001 - any error of users' classes when unpickled
            outcome = unreadable(error)
        else:
            try:
                outcome = Outcome(await asyncio.wrap_future(self._core.submit(run, work)))
            except CodecfleetError as error:
                outcome = failed(error)
        self.tell()
        return outcome

    def cancel(self, run: str, *, all_that_begin_so: bool) -> None:
        """Cancel one run, or many."""
        if all_that_begin_so:
            self._core.cancel_all(run)
        else:
            self._core.cancel(run)

    def tell(self) -> None:
        """Send the state. One thread sends everything, so that frame counts never decrease."""
        core = self._core
        running = core.running()
        progress = {job: core.progress(job) for job, _ in running}
        KEPT.close_idle()
        # In this order: work that ends meanwhile is reported as both, never left out.
        pieces = (*core.pieces(), *core.take_ended())
        self._parent.tell(HelperTells(HelperState(core.frames_done, running, progress, self._use(), pieces)))

    async def report(self, prepare: Callable[[], object], pause: Callable[[float], Awaitable[object]]) -> None:
        """Prepare, which may take minutes; then tell the state again and again, also when idle: silence means death."""
        try:
            await asyncio.to_thread(prepare)
        except DeviceError as error:
            self._parent.tell(HelperCannot(error.message))
            return
        self._parent.tell(HelperTells(None))
        while True:
            await pause(SAY_S)
            self.tell()


async def serve(
    end: socket.socket,
    core: WorkerCore,
    use: Callable[[], SessionCounts],
    prepare: Callable[[], object] = bool,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Run requested work until the worker is gone.

    ``use`` returns its device's sessions, ``prepare`` is called before it takes work (if it raises ``DeviceError``, it
    takes none), and ``pause`` waits the given seconds between two reports.
    """
    channel: Channel[HelperWatch] = Channel(end, me="the process beside the worker")
    channel.serves = host = HelperHost(channel, core, use)
    reporting = asyncio.create_task(host.report(prepare, pause))
    serving = asyncio.create_task(channel.run())
    await asyncio.wait({reporting, serving}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        reporting.cancel()
        return
    flushing = asyncio.create_task(channel.flushed())
    await asyncio.wait({flushing, serving}, return_when=asyncio.FIRST_COMPLETED)
    for task in (flushing, serving):
        task.cancel()
    reporting.result()


def main() -> None:
    """Serve the worker that started this process, and end with it at once: unfinished work has no recipient."""
    end, (slots, role) = begin()
    harden()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker handles it
    gpu = _gpu_of_another() if role in (SECOND, GPU) else None
    if role.startswith(DLA):
        keep_to_dla(int(role.removeprefix(DLA)))
    core = WorkerCore(slots, gpu)
    process_watch().on_overdue(core.give_up)
    use = SessionCounts if gpu is None else gpu.use
    # Work that runs alone opens the GPU itself: whatever fails is its own.
    prepare = gpu.opened if gpu is not None and role == SECOND else bool
    run_to_the_end(serve(end, core, use, prepare))


def _gpu_of_another() -> "Gpu":
    from ...actors.nvidia.gpu import Gpu, open_gpu

    return Gpu(partial(open_gpu, is_second=True))


def keep_to_dla(dla: int) -> None:
    """Run networks on this DLA alone; its GPU is shown, since cuDLA works in a context on it."""
    from ...actors.dla.inference import warm_networks
    from ..probes.gpus.visible_device import show_the_gpu

    show_the_gpu(os.environ)
    warm_networks().keep_to(dla)
