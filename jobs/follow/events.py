"""Combines the events of a recording's parts into the events of one job."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from ..report.events import Event, Progress, StageStarted, Warned
from .windows import MOST_AHEAD


class FollowEvents:
    """Passes the events of successive parts to ``tell``. Progress counts all parts; the total grows with the film."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self._tell = tell
        self._taken_frames = 0
        self._stages: set[str] = set()
        self._job: str | None = None
        self._at_s = 0.0
        self._told_s = Fraction(0)  # how far behind the ladder was at the last warning; 0 once it has caught up

    def take(self, frames: int) -> None:
        """Count the frames of a finished part."""
        self._taken_frames += frames

    def reach(self, ahead_s: Fraction, segment_s: Fraction) -> None:
        """Warn when a recording is too far ahead of its ladder, and again each time that the distance has doubled."""
        if ahead_s <= MOST_AHEAD * segment_s:
            self._told_s = Fraction(0)
        elif self._job is not None and ahead_s >= 2 * self._told_s:
            self._told_s = ahead_s
            message = f"the ladder is {float(ahead_s):.0f} s behind the recording"
            self._tell(Warned(self._job, self._at_s, "behind", message))

    def hear(self, event: Event) -> None:
        """Pass on an event of the part that is being encoded; each stage is announced once, by the first part."""
        self._job, self._at_s = self._job or event.job, event.at_s
        event = replace(event, job=self._job)
        match event:
            case Progress():
                done, total = (self._taken_frames + each for each in (event.frames_done, event.frames_total))
                self._tell(replace(event, frames_done=done, frames_total=total, eta_s=None))
            case StageStarted() if event.stage in self._stages:
                return
            case _:
                if isinstance(event, StageStarted):
                    self._stages.add(event.stage)
                self._tell(event)
