"""What the second process of a GPU's worker runs: ``python -m codecfleet.cluster.second_program DESCRIPTOR SLOTS``."""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final

from ..actors.nvidia.gpu import Gpu, open_gpu
from ..actors.watchdog import process_watch
from ..actors.worker import WorkerCore
from ..errors import CodecfleetError, DeviceError, WorkError
from .outcome import Outcome, failed, unreadable
from .parcels import unpack
from .second_process import Cancel, CancelAll, Cannot, Ended, Ready, Run, Said, SecondState

__all__ = ["serve"]

_REPORT: Final = "Please report it, with the input and the options."
SAY_S: Final = 0.25
"""How often it says what it does, while it does something."""


def serve(connection: Connection, core: WorkerCore, gpu: Gpu, pause: Callable[[float], object]) -> None:
    """Run what is asked for, until nobody is there any more to ask.

    Args:
        connection: to the first process.
        core: runs the work.
        gpu: opened before any work comes.
        pause: waits so many seconds between two reports.
    """
    answers = _Answers(connection, core, gpu)
    try:
        gpu.opened()
    except DeviceError as error:
        answers.send(Cannot(error.message))
        return
    answers.send(Ready())
    threading.Thread(target=answers.report_for_ever, args=(pause,), name="codecfleet-report", daemon=True).start()
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            return
        match message:
            case Run(run, packed_work, parcels):
                answers.begin(run, packed_work, parcels)
            case Cancel(run):
                core.cancel(run)
            case CancelAll(beginning):
                core.cancel_all(beginning)


class _Answers:
    """What goes back to the first process. Safe from any thread."""

    def __init__(self, connection: Connection, core: WorkerCore, gpu: Gpu) -> None:
        self._connection = connection
        self._core = core
        self._gpu = gpu
        self._sending = threading.Lock()

    def begin(self, run: str, packed_work: bytes, parcels: tuple[bytes, ...]) -> None:
        """Begin a run; its end is told when it comes."""
        try:
            work = unpack(packed_work, parcels)
        except Exception as error:  # noqa: BLE001 - whatever user classes raise when they are unpickled
            self.send(Ended(run, unreadable(error), self._state()))
            return
        self._core.submit(run, work).add_done_callback(partial(self._end, run))

    def _end(self, run: str, ran: Future[Any]) -> None:
        error = ran.exception()
        if error is None:
            outcome: Outcome[Any] = Outcome(ran.result())
        else:
            outcome = failed(error if isinstance(error, CodecfleetError) else WorkError(str(error), _REPORT))
        try:
            self.send(Ended(run, outcome, self._state()))
        except Exception as unsent:  # noqa: BLE001 - whatever pickling a user's result raises
            message = f"the result does not pickle: {type(unsent).__name__}: {unsent}"
            self.send(Ended(run, failed(WorkError(message, _REPORT)), self._state()))

    def report_for_ever(self, pause: Callable[[float], object]) -> None:
        """Say what is done, again and again, while something is."""
        while True:
            pause(SAY_S)
            if self._core.running():
                self.send(Said(self._state()))

    def send(self, message: Ready | Cannot | Said | Ended) -> None:
        """Send a message; nobody may be there any more to hear it."""
        with self._sending:
            try:
                self._connection.send(message)
            except OSError:
                return

    def _state(self) -> SecondState:
        core = self._core
        running = core.running()
        progress = {job: core.progress(job) for job, _ in running}
        return SecondState(core.frames_done, running, progress, self._gpu.use())


def main(descriptor: str, slots: str) -> None:
    """Serve the first process, and end with it: at once, since nobody wants what is still being done."""
    gpu = Gpu(partial(open_gpu, is_second=True))
    core = WorkerCore(int(slots), gpu)
    process_watch().tell(core.give_up)
    serve(Connection(int(descriptor)), core, gpu, threading.Event().wait)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
