"""Distinguishes a failed start of Ray from a slow one; Ray itself waits for minutes in both cases.

If a process has ended, the start has failed, and a log says why. If all processes sleep, the start is stuck. While
processes compute or wait for a core, the start may still succeed.
"""

import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...errors import FleetUnavailable
from .orphan_reaper import processes_in
from .private.words import AGENT_FAILED, FROM_CPP, FROM_PYTHON, THROWN_IN_CPP

if TYPE_CHECKING:
    import subprocess

IDLE_MAX_S: Final = 12.0
"""How long all processes of Ray may sleep before a start counts as stuck. In a normal start, they sleep for less than 2
s."""
BUSY_MAX_S: Final = 600.0
LOOK_S: Final = 1.0
#: A longer gap between two checks counts as this long, because this process was suspended
_GAP_MAX_S: Final = 2 * LOOK_S
_ACTIVE_CORES: Final = 0.1  #: Processes that use fewer cores count as idle; idle Ray uses a fiftieth of a core
_LOG_TAIL_BYTES: Final = 20_000
_LINE_LENGTH_MAX: Final = 200

CHECK_SPACE = "Check free space, memory and process limits; set RAY_TMPDIR to move Ray's files."
_FILE_SIZE = "Allow larger files: `ulimit -f unlimited`."
_BY_SIGNAL: Final[Mapping[int, tuple[str, str]]] = {
    signal.SIGXFSZ: ("one of its files reached the limit of `ulimit -f`", _FILE_SIZE),
    signal.SIGKILL: ("it was killed, possibly because memory ran out", "Free memory, or raise the memory limit."),
}


class StartWatch:
    """Watches the processes of a Ray that is starting, with its files in ``directory``.

    ``core_time_s`` returns, for each thread of the given processes, how many seconds it has computed or waited for a
    core.
    """

    def __init__(
        self,
        directory: Path,
        clock: Callable[[], float] = time.monotonic,
        core_time_s: Callable[[Iterable[int]], Mapping[str, float]] | None = None,
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._core_time_s = core_time_s or core_time_of
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._lasted_s = self._idle_s = 0.0
        self._looked_s = clock()
        self._before: Mapping[str, float] = {}

    def note(self, name: str, process: "subprocess.Popen[bytes]") -> None:
        """Add a process to the watch."""
        self._processes.append((name, process))

    def check(self) -> None:
        """Do nothing if the start may still succeed.

        Raises FleetUnavailable: a process ended, or the start is stuck or takes too long.
        """
        for name, process in self._processes:
            if process.poll() is not None:
                raise self._failed(*_end_of(name, process.returncode))
        if self._clock() - self._looked_s >= LOOK_S:
            self._look()
            if self._idle_s > IDLE_MAX_S:
                raise self._failed(f"its processes have done nothing for {IDLE_MAX_S:g} s", CHECK_SPACE)
            if self._lasted_s > BUSY_MAX_S:
                raise self._failed(f"the machine is too busy: Ray is not ready after {BUSY_MAX_S:g} s", CHECK_SPACE)

    def reap(self) -> None:
        """Wait until the processes have ended. They must have been killed already."""
        for _, process in self._processes:
            process.wait()

    def _look(self) -> None:
        # If an agent ends, Ray's node ends too, but only after 10 s.
        if failed := [name for path in self._logs() for name in AGENT_FAILED.findall(_tail(path))]:
            raise self._failed(f"its {failed[0]} ended", CHECK_SPACE)
        now_s, found = self._clock(), self._core_time_s(processes_in(self._directory))
        computed_s = sum(each - self._before.get(thread, 0.0) for thread, each in found.items())
        gap_s = min(now_s - self._looked_s, _GAP_MAX_S)
        self._lasted_s += gap_s
        self._idle_s += gap_s if computed_s < gap_s * _ACTIVE_CORES else 0.0
        self._looked_s, self._before = now_s, found

    def _failed(self, what: str, next_step: str) -> FleetUnavailable:
        cause = cause_in([(path.stem, _tail(path)) for path in self._logs()])
        because = f": {cause}" if cause else ""
        return FleetUnavailable(f"the private Ray did not start: {what}{because}", next_step)

    def _logs(self) -> list[Path]:
        """Return Ray's logs, first the logs of agents, because the other processes end when an agent ends."""
        logs = sorted(self._directory.glob("r/session_latest/logs/*.*"))
        return sorted((path for path in logs if path.is_file()), key=lambda path: "agent" not in path.name)


def _end_of(name: str, code: int) -> tuple[str, str]:
    if code >= 0:
        return f"its {name} ended with exit code {code}", CHECK_SPACE
    if -code in _BY_SIGNAL:
        why, next_step = _BY_SIGNAL[-code]
        return f"its {name} ended: {why}", next_step
    return f"its {name} was ended by {signal.Signals(-code).name}", CHECK_SPACE


def cause_in(logs: Iterable[tuple[str, str]]) -> str:
    """Return the log line that says why Ray ended, or ""; ``logs`` are (process, text) pairs, the likeliest first."""
    logs = list(logs)
    for pattern in (FROM_PYTHON, THROWN_IN_CPP):
        raised = [f"{name}: {line[:_LINE_LENGTH_MAX]}" for name, text in logs for line in pattern.findall(text)[-1:]]
        if raised:
            return raised[0]
    said = [(weight, f"{name}: {line}") for name, text in logs for weight, line in FROM_CPP.findall(text)]
    worst = [line for wanted in "CE" for weight, line in said if weight == wanted]
    return worst[0][:_LINE_LENGTH_MAX].rstrip(".") if worst else ""


def core_time_of(processes: Iterable[int]) -> Mapping[str, float]:
    """Return how many seconds each thread has computed or waited for a core (proc_pid_schedstat(5))."""
    found = {}
    for process in processes:
        for file in Path(f"/proc/{process}/task").glob("*/schedstat"):
            with suppress(OSError, ValueError):  # the thread ended meanwhile
                computed_ns, waited_ns, _ = map(int, file.read_text().split())
                found[file.parent.name] = (computed_ns + waited_ns) / 1e9
    return found


def _tail(path: Path) -> str:
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
        return file.read().decode(errors="replace")
    return ""
