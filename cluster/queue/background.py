"""The driver that runs in the background of this machine, one for each queue in a file.

The driver holds a lock, which is a file beside the queue. An idle driver releases the lock before it looks for jobs one
last time; a program that submits stores its job before it tries the lock. So no job is left without a driver.
"""

import asyncio
import fcntl
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ...actors.process.process import run_program
from ...errors import QueueUnavailable
from .driver import AT_ONCE, LEASE_S, Driver
from .guard import CLAIM, HOLD
from .store import JobStore
from .values import QueueState

IDLE_S: Final = 600.0
"""A background driver ends after this long without a job."""
_PROGRAM: Final = "codecfleet.jobs.journal.background_driver"
"""The program that calls ``keep_driving``."""
_FIRST_WORD_BYTES: Final = 64
_TAKE_S: Final = 0.5
"""A program that submits a job holds a driver's lock for a moment, to see whether the driver runs. So a driver tries
for this long to take its lock."""
_LOOK_S: Final = 0.05
_STARTING: Final = threading.Lock()
_STARTED: Final[list[int]] = []
"""The drivers that this process has started, as descriptors (pidfd_open(2))."""


@contextmanager
def driver_lock(queue: Path, within_s: float = 0.0) -> Iterator[bool]:
    """Try for ``within_s`` to take the lock of a queue's driver on this machine, and hold it during the block.

    Yields whether the lock was taken.

    Raises QueueUnavailable: the lock's file cannot be created.
    """
    try:
        queue.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(f"{queue}.driver", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"the driver's lock file {queue}.driver cannot be created: {error.strerror}"
        raise QueueUnavailable(message, "Check its folder, or name another file with --queue.") from None
    try:
        yield _is_taken(descriptor, time.monotonic() + within_s)
    finally:
        os.close(descriptor)


def _is_taken(descriptor: int, until_s: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until_s:
                return False
            time.sleep(_LOOK_S)
        else:
            return True


async def hold_driver_lock(queue: Path) -> None:
    """Take the lock as soon as no other driver has it, and hold it until cancelled."""
    while True:
        with driver_lock(queue) as is_mine:
            if is_mine:
                await asyncio.Event().wait()
        await asyncio.sleep(_TAKE_S)


def ensure_driver(queue: Path, option: str) -> int:
    """Start a driver in the background; return its process id, or 0 if a driver of this queue already runs here.

    ``option`` is the command-line option that names the queue, for messages. Raises QueueUnavailable: the driver does
    not start. Submitted jobs stay in the queue.
    """
    with _STARTING:
        return _ensure_driver(queue, option)


def _ensure_driver(queue: Path, option: str) -> int:
    _reap()
    with driver_lock(queue) as is_free:
        pass
    if not is_free:
        return 0
    try:
        process = run_program(_PROGRAM, str(queue), AT_ONCE, LEASE_S, IDLE_S, outlives=True)
    except OSError as error:
        message = f"no driver could be started: {error}"
        step = f"Check the limits on processes; then run `codecfleet driver{option}`."
        raise QueueUnavailable(message, step) from None
    with process.end:
        said = process.end.recv(_FIRST_WORD_BYTES)
    if not said:
        message = f"its driver ended at once: {process.ended()}"
        raise QueueUnavailable(message, f"`codecfleet driver{option}` runs one, and shows what it does.")
    _STARTED.append(os.dup(process.death))
    process.reaped(0)  # ``_reap`` waits for the process
    process.close()
    return int(json.loads(said))


def _reap() -> None:
    """Forget the drivers that this process has started and that have ended."""
    for death in list(_STARTED):
        try:
            is_over = os.waitid(os.P_PIDFD, death, os.WEXITED | os.WNOHANG) is not None
        except ChildProcessError:  # other code of this process has waited for the driver
            is_over = True
        if is_over:
            _STARTED.remove(death)
            os.close(death)


async def drive(driver: Driver) -> None:
    """Run a driver until it is idle, or until Ctrl-C, SIGTERM or a closed terminal makes it hand back its jobs.

    After the signal ``HOLD`` it claims no job until the signal ``CLAIM``.
    """
    loop = asyncio.get_running_loop()
    handlers = {signal.SIGINT: driver.stop, signal.SIGTERM: driver.stop, HOLD: driver.hold, CLAIM: driver.claim}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup makes programs ignore SIGHUP
        handlers[signal.SIGHUP] = driver.stop
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        await driver.run()
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


async def keep_driving(path: Path, store: JobStore, new_driver: Callable[[], Driver], starter: socket.socket) -> None:
    """Run one driver after another until one is stopped, or idle with no job left, or another process has the lock.

    ``starter`` gets this process's id, or 0 if another process has the lock.
    """
    while True:
        with driver_lock(path, _TAKE_S) as is_free:
            if starter.fileno() >= 0:
                with starter, suppress(OSError):  # the process that started this one may have ended
                    starter.sendall(json.dumps(os.getpid() if is_free else 0).encode())
            if not is_free:
                return
            driver = new_driver()
            await drive(driver)
        if driver.is_stopping or not await asyncio.to_thread(store.jobs, [QueueState.QUEUED, QueueState.RUNNING]):
            return
