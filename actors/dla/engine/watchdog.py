"""Time limits for calls and tasks: if firmware hangs, its caller hangs too (CUDA for Tegra, section 5.4).

Therefore each session makes its calls in a separate thread (``actors/watchdog.py``), which it abandons at the limit.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from ...device.memory_choice import Waiting
from ...watchdog import Patience, wait_for


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """Limits after which a call or a task on a DLA counts as hung, in seconds."""

    task_s: float = 10.0  # the limit of a task on the engine, at which cuDLA ends the task with ``DLA_ENGINE_TIMEOUT``
    grace_s: float = 5.0  # how long after a limit the firmware counts as hung
    call_s: float = 60.0  # the limit of a call that runs no task: opening, loading, registering, closing

    def __post_init__(self) -> None:
        if min(self.task_s, self.grace_s, self.call_s) <= 0:
            raise ValueError(f"time limits must be above 0: {self}")

    @property
    def task_ms(self) -> int:
        """``task_s`` in whole milliseconds, at least 1, as cuDLA requires."""
        return max(1, round(self.task_s * 1000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Time limits, how a thread waits for a DLA, and the clock; tests replace the clock and the waiting."""

    limits: TimeLimits = field(default_factory=TimeLimits)
    waiting: Waiting = Waiting.BLOCK
    clock: Callable[[], float] = monotonic
    patience: Patience = wait_for


@dataclass(slots=True)
class Deadlines:
    """The time by which a session's tasks must be done; they run one by one, and each may take ``task_s``."""

    limits: TimeLimits
    _due_s: float | None = field(default=None, init=False)

    def submitted(self, now_s: float, tasks: int) -> None:
        """Move the deadline by the time limits of ``tasks`` more tasks."""
        begins_s = now_s if self._due_s is None else max(now_s, self._due_s)
        self._due_s = begins_s + tasks * self.limits.task_s

    def ended(self) -> None:
        """Remove the deadline, because all tasks are done."""
        self._due_s = None

    def patience_s(self, now_s: float) -> float:
        """Return how much longer to wait for the tasks; never less than the grace."""
        waiting_s = 0.0 if self._due_s is None else max(0.0, self._due_s - now_s)
        return waiting_s + self.limits.grace_s
