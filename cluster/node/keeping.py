"""Keeps a node: runs Ray in the foreground, drains the node on a signal or a notice of the cloud, and cleans up."""

import os
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...actors.process.running import Prints, Running, how_it_ended, start_command
from ...errors import FleetUnavailable
from ..fleet_variables import KEEPER
from ..logs.actions import LogAction
from ..logs.writing import log
from ..ray.keeper import Driving, Word, next_word, words_heard
from .own_driver import OwnDriver
from .spot import Notice
from .spot_watch import SpotWatch

PROGRAM: Final = "codecfleet.cluster.node.ray_program"
STOP_S: Final = 15  #: How long Ray's processes may take to end after the node has drained
_STARTED: Final = b"Ray runtime started"  #: The text that ``ray start`` prints when the node has joined
_LINES_KEPT: Final = 50
_NO_ORDER: Final = Word(0, 0, Driving.CLAIMS)  #: older than any order of a supervisor
_FIRST: Final = 1  #: The id of a container's first process; the kernel makes it the parent of orphans
_ENDS_IT: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_NOTICE: Final = 0  #: Sent like a signal's number when the cloud may have given notice; signals begin at 1
_JOINED: Final = 255  #: Sent like a signal's number when the node has joined; signals end at 64
_NUMBERS_READ: Final = 64  #: How many signals are read at a time


@dataclass(slots=True)
class _Kept:
    """A running ``ray start``."""

    process: Running
    orders: int  #: the descriptor through which Ray's process learns how long it may drain
    notice_s: int  #: how long the node drains after a signal
    driver: OwnDriver
    said: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES_KEPT))  #: the last lines of Ray's output
    is_ending: bool = False  #: whether a signal or a notice has asked the node to end
    was_signalled: bool = False  #: whether a signal has asked the node to end
    until_s: float | None = None  #: when Ray is killed, on the monotonic clock
    newest_order: Word = _NO_ORDER  #: the newest order for the driver

    def ask_to_end(self) -> None:
        """Drain the node as after a signal; the second call kills the node at once."""
        if self.was_signalled:
            self.kill()
            return
        self.was_signalled, drains = True, self.is_ending
        if not self._ends_sooner("the node was asked to end", self.notice_s):
            return
        if drains:
            self._order(self.notice_s)
        else:
            self.process.send_signal(signal.SIGTERM)

    def take(self, notice: Notice | None) -> None:
        """If there is a notice, drain the node for as long as it allows, unless the node ends sooner anyway."""
        if notice is not None and self._ends_sooner(notice.why, notice.left_s):
            self._order(notice.left_s)

    def _ends_sooner(self, why: str, left_s: int) -> bool:
        until_s = time.monotonic() + left_s + STOP_S
        if self.until_s is not None and self.until_s <= until_s:
            return False
        self.until_s, self.is_ending = until_s, True
        log(LogAction.NODE_DRAINING, why + (f": its running work has {left_s} s to finish" if left_s else ""))
        return True

    def _order(self, left_s: int) -> None:
        with suppress(BrokenPipeError):  # Ray has just ended
            os.write(self.orders, f"{left_s}\n".encode())

    def kill(self) -> None:
        """Kill the driver and Ray's process group; Ray's other processes end when the group's leader ends."""
        self.until_s = None
        self.process.kill_group()
        self.driver.kill()

    def obey(self, word: Word | None) -> None:
        """Apply an order of a supervisor to the driver, unless a newer order was applied already; ignore None."""
        if word is not None and word[:2] > self.newest_order[:2]:
            self.newest_order = word
            act = {Driving.CLAIMS: self.driver.allow, Driving.HOLDS: self.driver.hold, Driving.RESTS: self.driver.rest}
            act[word.driving]()

    def read(self, on_start: Callable[[], object]) -> None:
        for line in self.process.end.makefile("rb"):
            if _STARTED in line:
                on_start()
            elif text := line.decode(errors="replace").strip():
                self.said.append(text)

    def wait(self, signals: socket.socket, words: socket.socket, watch: SpotWatch) -> int:
        """Handle signals until Ray and the driver have ended; return Ray's exit code.

        The numbers of the signals, and orders for the driver, arrive on the sockets. The driver stops as soon as the
        node drains or Ray ends.
        """
        while True:
            code = self._code()
            if code is not None or self.is_ending:
                self.driver.stop()
            times_s = [self.driver.tend(), self.until_s]
            if code is not None and not self.driver.deaths:
                return code
            awaited = [
                signals.fileno(),
                words.fileno(),
                *self.driver.deaths,
                *([self.process.death] if code is None else []),
            ]
            ready = select.select(awaited, [], [], _left_s(times_s))[0]
            if self.until_s is not None and time.monotonic() >= self.until_s:
                self.kill()
            if words.fileno() in ready:
                self.obey(next_word(words))
            for number in signals.recv(_NUMBERS_READ) if signals.fileno() in ready else b"":
                self._heed(number, watch, has_ended=code is not None)

    def _heed(self, number: int, watch: SpotWatch, *, has_ended: bool) -> None:
        """Handle the number of a signal or another event. If Ray ``has_ended``, a signal kills the driver."""
        if number in _ENDS_IT and has_ended:
            self.driver.kill()
        elif number in _ENDS_IT:
            self.ask_to_end()
        elif number == _NOTICE and not has_ended:
            self.take(watch.notice)
        elif number == _JOINED:
            self.driver.joined()

    def _code(self) -> int | None:
        """Return Ray's exit code, or None while Ray runs. In a container's first process, also reap orphans."""
        ended = -1
        while os.getpid() == _FIRST and self.process.returncode is None and ended not in {0, self.process.pid}:
            ended, status = os.waitpid(-1, os.WNOHANG)
            self.driver.reaped(ended, status)
            if ended == self.process.pid:
                self.process.reaped(status)
        return self.process.code()


def _left_s(times_s: Sequence[float | None]) -> float | None:
    """Return the seconds until the first of these times on the monotonic clock; None if there is none."""
    left_s = [max(0.0, each - time.monotonic()) for each in times_s if each is not None]
    return min(left_s, default=None)


def keep(
    arguments: Sequence[str],
    variables: Mapping[str, str],
    *,
    notice_s: int,
    watch: SpotWatch,
    driver: OwnDriver,
    on_start: Callable[[], object],
) -> None:
    """Run ``ray`` with ``arguments`` until SIGTERM, SIGINT, SIGHUP or a notice; return when all processes have ended.

    Call this in the main thread. ``variables`` are added to Ray's environment. After a signal the node drains for
    ``notice_s``. The ``driver`` starts when the node joins, stops when the node drains, and obeys orders sent by
    ``tell_keeper``. Another thread calls ``on_start`` once the node has joined. Raises FleetUnavailable: Ray did not
    start, or ended by itself.
    """
    is_up, began_s = threading.Event(), time.time()

    def joined() -> None:
        is_up.set()
        on_start()
        with suppress(OSError):  # the node has just ended
            wake.send(bytes([_JOINED, _NOTICE]))

    around = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", KEEPER)}
    with words_heard() as (words, name), _signals() as (signals, wake):
        driver.keeper = name
        process, orders = _start(arguments, {**around, **variables, **driver.its_keeper})
        kept = _Kept(process, orders, notice_s, driver)
        reader = threading.Thread(target=kept.read, args=(joined,), daemon=True)
        reader.start()
        watch.start(lambda: wake.send(bytes([_NOTICE])))
        code = kept.wait(signals, words, watch)
        watch.close()
    kept.kill()
    os.close(orders)
    remove_dead_listeners(began_s)
    if kept.is_ending:
        return
    reader.join(1)
    last = kept.said[-1] if kept.said else ""
    what = "ended by itself" if is_up.is_set() else "did not start"
    raise FleetUnavailable(f"Ray {what}: {how_it_ended(code, last)}", _HELP)


_HELP: Final = "Read Ray's logs in session_latest/logs below --temp-dir, or below ray in RAY_TMPDIR, TMPDIR or /tmp."


def ray_command(arguments: Sequence[str], orders: int) -> Sequence[str]:
    """Return a command that runs ``ray`` with these arguments, and ends when this process ends.

    Each line on the descriptor ``orders`` is a number of seconds, for which the command then drains the node.
    """
    return [sys.executable, "-P", "-m", PROGRAM, str(os.getpid()), str(orders), *arguments]


def _start(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[Running, int]:
    read, orders = os.pipe()
    command = ray_command(arguments, read)
    try:
        process = start_command(command, prints=Prints.ALL_SENT, environment=environment, inherited=[read])
    except OSError as error:
        os.close(orders)
        raise FleetUnavailable(f"Ray did not start: {error}", "Check the limits on processes.") from None
    finally:
        os.close(read)
    process.end.shutdown(socket.SHUT_WR)
    return process, orders


@contextmanager
def _signals() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield a socket from which the numbers of arriving signals, including SIGCHLD, can be read, and its other end.

    A Python handler runs only once the main thread returns from the kernel, but the interpreter writes the number to
    the socket at once.
    """
    # An ignored signal, such as SIGHUP under nohup, stays ignored.
    handled: list[int] = [number for number in _ENDS_IT if signal.getsignal(number) is not signal.SIG_IGN]
    handled += [signal.SIGCHLD]
    reading, writing = socket.socketpair()
    with reading, writing:
        writing.settimeout(0)
        woken = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        former = {number: signal.signal(number, lambda *_: None) for number in handled}
        try:
            yield reading, writing
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(woken)


def remove_dead_listeners(since_s: float) -> None:
    """Remove the sockets that killed processes of Ray left in folders of ``multiprocessing``, and these folders.

    Folders of other users, and folders that have not changed since ``since_s`` (in seconds since 1970), stay.
    """
    with suppress(OSError):
        listed = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
        bound = {line.split()[-1] for line in listed.splitlines()}  # the last column is the path of a bound socket
        for folder in Path(tempfile.gettempdir()).glob("pymp-*"):
            with suppress(OSError):
                _remove_dead(folder, bound, since_s)


def _remove_dead(folder: Path, bound: set[str], since_s: float) -> None:
    found = folder.lstat()
    if found.st_uid != os.geteuid() or found.st_mtime < since_s:
        return
    for listener in folder.glob("listener-*"):
        if listener.is_socket() and str(listener) not in bound:
            listener.unlink()
    folder.rmdir()  # fails if the folder is not empty
