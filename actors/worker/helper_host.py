"""The helper's own process: it runs work for its worker, and reports to the worker."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ...errors import CodecfleetError
from ..device.interface import SessionCounts
from ..device.worker import WorkerCore
from ..media.kept_sources import KEPT
from ..process.channel import Channel
from ..task_owner import TaskOwner
from .helper import Helper, HelperReport, HelperState
from .outcome import Outcome, failed
from .packed_work import unpack

REPORT_S: Final = 0.25
"""The interval of reports, which also show that the process is alive."""


async def run_packed(core: WorkerCore, run: str, packed_work: bytes, blobs: tuple[bytes, ...]) -> Outcome[Any]:
    """Run packed work in a thread of this process, and return its outcome."""
    try:
        return Outcome(await asyncio.wrap_future(core.submit(run, unpack(packed_work, blobs))))
    except CodecfleetError as error:
        return failed(error)


class HelperHost:
    """Runs work in ``core``, and reports to the worker; ``use`` returns the device's sessions."""

    def __init__(self, worker: Channel[Helper], core: WorkerCore, use: Callable[[], SessionCounts]) -> None:
        self._worker = worker
        self.core = core
        self._use = use

    async def run(self, run: str, packed_work: bytes, blobs: tuple[bytes, ...]) -> Outcome[Any]:
        """Run packed work; the state at the end of the work is reported before the outcome is returned."""
        outcome = await run_packed(self.core, run, packed_work, blobs)
        self._report()
        return outcome

    def _report(self) -> None:
        """Send the state. One thread sends everything, so that frame counts never decrease."""
        KEPT.close_idle()
        core = self.core
        # The order matters: work that ends meanwhile is reported twice rather than never.
        pieces = (*core.pieces(), *core.take_ended())
        state = HelperState(core.frames_done, core.progress(), self._use(), pieces)
        self._worker.tell(HelperReport(state))

    async def report(self, prepare: Callable[[], object], pause: Callable[[float], Awaitable[object]]) -> None:
        """Call ``prepare``, which may take minutes; then report for ever: the worker kills a helper that is silent."""
        await asyncio.to_thread(prepare)
        self._worker.tell(HelperReport(None))
        while True:
            await pause(REPORT_S)
            self._report()


async def serve_worker(
    end: socket.socket,
    core: WorkerCore,
    use: Callable[[], SessionCounts],
    prepare: Callable[[], object] = bool,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Run requested work in ``core`` until the worker is gone.

    ``use`` returns the device's sessions. ``prepare`` is called before any work; its errors are raised.
    ``pause(seconds)`` waits between two reports.
    """
    channel: Channel[Helper] = Channel(end, me="the process beside the worker")
    channel.serves = host = HelperHost(channel, core, use)
    async with TaskOwner() as owner:
        owner.start(host.report(prepare, pause), "reports")
        await channel.run()
