"""The program of a worker's second process on its GPU, and of those in which work runs alone.

``python -m codecfleet.cluster.worker.second_program DESCRIPTOR SLOTS PID ROLE``

The role is ``second``; or that of a lone process: ``gpu``, ``cpu``, or ``dla#`` with the number of the worker's DLA.
"""

import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final

from ...actors.device.interface import SessionCounts
from ...actors.device.worker import WorkerCore
from ...actors.media.kept_sources import KEPT
from ...actors.watchdog import process_watch
from ...errors import CodecfleetError, DeviceError, WorkError
from ..parent_death import end_with
from ..sandbox.confine import harden
from .blobs import unpack
from .outcome import Outcome, failed, packed, unreadable
from .second_process import Cancel, CancelAll, Cannot, Ready, RunEnded, RunWork, SecondState, StateReport

if TYPE_CHECKING:
    from ...actors.nvidia.gpu import Gpu

_REPORT: Final = "Please report it, with the input and the options."
SAY_S: Final = 0.25
"""How often it reports its state, which also shows that it is alive."""


SECOND: Final = "second"
GPU: Final = "gpu"
CPU: Final = "cpu"
DLA: Final = "dla#"


def serve(
    connection: Connection,
    core: WorkerCore,
    use: Callable[[], SessionCounts],
    pause: Callable[[float], object],
    prepare: Callable[[], object] = bool,
) -> None:
    """Run requested work until the first process is gone.

    ``use`` returns its device's sessions, ``pause`` waits the given seconds between two reports, and ``prepare`` is
    called before it takes work: if it raises ``DeviceError``, it takes none.
    """
    answers = _Answers(connection, core, use)
    try:
        prepare()
    except DeviceError as error:
        answers.send(Cannot(error.message))
        return
    answers.send(Ready())
    threading.Thread(target=answers.report_repeatedly, args=(pause,), name="codecfleet-report", daemon=True).start()
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            return
        match message:
            case RunWork(run, packed_work, blobs):
                answers.begin(run, packed_work, blobs)
            case Cancel(run):
                core.cancel(run)
            case CancelAll(beginning):
                core.cancel_all(beginning)


class _Answers:
    """Sends messages to the first process. Thread-safe."""

    def __init__(self, connection: Connection, core: WorkerCore, use: Callable[[], SessionCounts]) -> None:
        self._connection = connection
        self._core = core
        self._use = use
        self._sending = threading.Lock()

    def begin(self, run: str, packed_work: bytes, blobs: tuple[bytes, ...]) -> None:
        """Start a run; its end is reported."""
        try:
            work = unpack(packed_work, blobs)
        except Exception as error:  # noqa: BLE001 - any error of users' classes when unpickled
            self._end(run, unreadable(error))
            return
        self._core.submit(run, work).add_done_callback(partial(self._ran, run))

    def _ran(self, run: str, ran: Future[Any]) -> None:
        error = ran.exception()
        if error is None:
            self._end(run, Outcome(ran.result()))
        else:
            self._end(run, failed(error if isinstance(error, CodecfleetError) else WorkError(str(error), _REPORT)))

    def _end(self, run: str, outcome: Outcome[Any]) -> None:
        packed_outcome = packed(outcome)
        try:
            self._tell(lambda state: RunEnded(run, packed_outcome, state))
        except MemoryError:
            message = f"a result of {len(packed_outcome)} bytes is too large to be handed on"
            packed_outcome = packed(failed(WorkError(message, "Return less.")))
            self._tell(lambda state: RunEnded(run, packed_outcome, state))

    def report_repeatedly(self, pause: Callable[[float], object]) -> None:
        """Report the state repeatedly until the first process is gone, also when idle: silence is taken for death."""
        pause(SAY_S)
        while self._tell(StateReport):
            pause(SAY_S)

    def send(self, message: Ready | Cannot) -> None:
        """Send a message."""
        self._tell(lambda _: message)

    def _tell(self, message: Callable[[SecondState], Ready | Cannot | StateReport | RunEnded]) -> bool:
        """Send a message; return whether the first process is still there."""
        # The state is read under the lock, so that frame counts never decrease from message to message.
        with self._sending, suppress(OSError):
            self._connection.send(message(self._state()))
            return True
        return False

    def _state(self) -> SecondState:
        core = self._core
        running = core.running()
        progress = {job: core.progress(job) for job, _ in running}
        KEPT.close_idle()
        # In this order: what ends meanwhile is told as both, never left out.
        pieces = (*core.pieces(), *core.take_ended())
        return SecondState(core.frames_done, running, progress, self._use(), pieces)


def main(descriptor: str, slots: str, first: str, role: str) -> None:
    """Serve the process ``first``, and end with it at once: unfinished work has no recipient."""
    end_with(int(first))
    harden()
    gc.set_threshold(10_000)  # its first work imports much that stays
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process handles it
    code = 1
    try:
        gpu = _gpu_of_another() if role in (SECOND, GPU) else None
        if role.startswith(DLA):
            keep_to_dla(int(role.removeprefix(DLA)))
        core = WorkerCore(int(slots), gpu)
        process_watch().on_overdue(core.give_up)
        use = SessionCounts if gpu is None else gpu.use
        # Work that runs alone opens the GPU itself: whatever fails is its own.
        prepare = gpu.opened if gpu is not None and role == SECOND else bool
        serve(Connection(int(descriptor)), core, use, threading.Event().wait, prepare)
        code = 0
    except BaseException:  # noqa: BLE001 - the interpreter's own exit would wait for working threads
        traceback.print_exc()
    os._exit(code)


def _gpu_of_another() -> "Gpu":
    from ...actors.nvidia.gpu import Gpu, open_gpu

    return Gpu(partial(open_gpu, is_second=True))


def keep_to_dla(dla: int) -> None:
    """Run networks on this DLA alone; its GPU is shown, since cuDLA works in a context on it."""
    from ...actors.dla.inference import warm_networks
    from ..probes.gpus.visible_device import show_the_gpu

    show_the_gpu(os.environ)
    warm_networks().keep_to(dla)


if __name__ == "__main__":
    main(*sys.argv[1:])
