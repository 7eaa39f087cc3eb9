"""Makes the events of a followed recording from those of its parts."""

from collections.abc import Callable
from dataclasses import replace

from ..report.events import Event, Progress, StageStarted


class FollowEvents:
    """Hears one part after the other, and tells ``tell`` one progress. The total grows with the recording."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self._tell = tell
        self._taken_frames = 0
        self._stages: set[str] = set()
        self._job: str | None = None

    def take(self, frames: int) -> None:
        """Count the frames of a finished part."""
        self._taken_frames += frames

    def hear(self, event: Event) -> None:
        """Take an event of the part that is encoded now."""
        self._job = self._job or event.job
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
