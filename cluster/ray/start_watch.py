"""Tells a start of Ray that has failed from one that is slow.

Ray itself waits for minutes in both cases. A process of it that ended is a failure, and its log says why. While all
run, a start goes on as long as they compute or wait for a core; a start whose processes all sleep is stuck.
"""

import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...errors import FleetUnavailable
from .orphan_reaper import processes_in
from .private.words import AGENT_FAILED, FROM_CPP, FROM_PYTHON, THROWN_IN_CPP

if TYPE_CHECKING:
    import subprocess

IDLE_MAX_S: Final = 12.0
"""How long Ray's processes may sleep before a start is given up; a good start is idle for less than 2 s."""
BUSY_MAX_S: Final = 600.0
LOOK_S: Final = 1.0
_GAP_MAX_S: Final = 2 * LOOK_S
"""A longer time between two looks was a suspended process's, and counts as this much."""
_ACTIVE_CORES: Final = 0.1
"""Idle, Ray's processes take a fiftieth of a core."""
_LOG_TAIL_BYTES: Final = 20_000
_LINE_LENGTH_MAX: Final = 200

_CHECK_SPACE = "Check free space, memory and process limits; RAY_TMPDIR moves its files."
_FILE_SIZE = "Allow larger files: `ulimit -f unlimited`."
_BY_SIGNAL: Final[Mapping[int, tuple[str, str]]] = {
    signal.SIGXFSZ: ("a file of it reached the limit of `ulimit -f`", _FILE_SIZE),
    signal.SIGKILL: ("it was killed, perhaps for want of memory", "Free memory, or raise the limit on it."),
}


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a start has lasted, and how much of that its processes slept."""

    lasted_s: float = 0.0
    idle_s: float = 0.0

    def after(self, gap_s: float, computed_s: float) -> "Patience":
        """Return the state after ``gap_s`` in which Ray's threads computed, or waited for a core, ``computed_s``."""
        gap_s = min(gap_s, _GAP_MAX_S)
        is_idle = computed_s < gap_s * _ACTIVE_CORES
        return replace(self, lasted_s=self.lasted_s + gap_s, idle_s=self.idle_s + gap_s * is_idle)

    @property
    def verdict(self) -> str:
        """Why to give up; "" to go on."""
        if self.idle_s > IDLE_MAX_S:
            return f"its processes have done nothing for {IDLE_MAX_S:g} s"
        return f"the machine is too busy: it is not ready after {BUSY_MAX_S:g} s" if self.lasted_s > BUSY_MAX_S else ""


class StartWatch:
    """Watches the processes of a Ray that starts with its files in ``directory``.

    Args:
        clock: monotonic seconds.
        core_time_s: the seconds that each thread of Ray's has computed or waited for a core.
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
        self._patience = Patience()
        self._looked_s = clock()
        self._before: Mapping[str, float] = {}

    def note(self, name: str, process: "subprocess.Popen[bytes]") -> None:
        """Watch one more process."""
        self._processes.append((name, process))

    def check(self) -> None:
        """Return while the start may succeed.

        Raises:
            FleetUnavailable: one of its processes has ended, or nothing moves any more.
        """
        for name, process in self._processes:
            if process.poll() is not None:
                raise self._failed(*_end_of(name, process.returncode))
        if self._clock() - self._looked_s >= LOOK_S:
            self._look()
            if self._patience.verdict:
                raise self._failed(self._patience.verdict, _CHECK_SPACE)

    def reap(self) -> None:
        """Wait for the processes, which were killed."""
        for _, process in self._processes:
            process.wait()

    def _look(self) -> None:
        """Notice an agent that failed: Ray's node then waits 10 s before it ends too."""
        if failed := [name for path in self._logs() for name in AGENT_FAILED.findall(_tail(path))]:
            raise self._failed(f"its {failed[0]} ended", _CHECK_SPACE)
        now_s, found = self._clock(), self._core_time_s(processes_in(self._directory))
        computed_s = sum(each - self._before.get(thread, 0.0) for thread, each in found.items())
        self._patience = self._patience.after(now_s - self._looked_s, computed_s)
        self._looked_s, self._before = now_s, found

    def _failed(self, what: str, next_step: str) -> FleetUnavailable:
        cause = cause_in([(path.stem, _tail(path)) for path in self._logs()])
        because = f": {cause}" if cause else ""
        return FleetUnavailable(f"the embedded Ray did not start: {what}{because}", next_step)

    def _logs(self) -> list[Path]:
        """Return Ray's logs; what an agent says first, since it takes the others along."""
        logs = sorted(self._directory.glob("r/session_latest/logs/*.*"))
        return sorted((path for path in logs if path.is_file()), key=lambda path: "agent" not in path.name)


def _end_of(name: str, code: int) -> tuple[str, str]:
    """Return how a process ended, and what to do."""
    if code >= 0:
        return f"its {name} ended with exit code {code}", _CHECK_SPACE
    if -code in _BY_SIGNAL:
        why, next_step = _BY_SIGNAL[-code]
        return f"its {name} ended: {why}", next_step
    return f"its {name} was ended by {signal.Signals(-code).name}", _CHECK_SPACE


def cause_in(logs: Iterable[tuple[str, str]]) -> str:
    """Return the line of Ray's logs that says why it ended: (process, text), the likeliest first; "" if none does."""
    logs = list(logs)
    for pattern in (FROM_PYTHON, THROWN_IN_CPP):
        raised = [f"{name}: {line[:_LINE_LENGTH_MAX]}" for name, text in logs for line in pattern.findall(text)[-1:]]
        if raised:
            return raised[0]
    said = [(weight, f"{name}: {line}") for name, text in logs for weight, line in FROM_CPP.findall(text)]
    worst = [line for wanted in "CE" for weight, line in said if weight == wanted]
    return worst[0][:_LINE_LENGTH_MAX].rstrip(".") if worst else ""


def core_time_of(processes: Iterable[int]) -> Mapping[str, float]:
    """Return the seconds that each thread has computed or waited for a core, from schedstat (proc_pid_schedstat(5))."""
    found = {}
    for process in processes:
        for file in Path(f"/proc/{process}/task").glob("*/schedstat"):
            with suppress(OSError, ValueError):  # it ended meanwhile
                computed_ns, waited_ns, _ = map(int, file.read_text().split())
                found[file.parent.name] = (computed_ns + waited_ns) / 1e9
    return found


def _tail(path: Path) -> str:
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
        return file.read().decode(errors="replace")
    return ""
