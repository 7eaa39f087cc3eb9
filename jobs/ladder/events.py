"""Combines the events of a ladder's renditions: each warning once, and the progress of all renditions."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..report.events import Done, Event, Progress, StageStarted, Warned


class LadderEvents:
    """Passes on the renditions' events as events of the ladder. Times count from the start of the renditions.

    Args:
        ladder: the ladder's id.
        frames: how many frames each rendition has.
        tell: takes each event.
    """

    def __init__(self, ladder: str, frames: Mapping[str, int], tell: Callable[[Event], None]) -> None:
        self._ladder = ladder
        self._frames = frames
        self._tell = tell
        self._running: dict[str, Progress] = {}
        self._finished: dict[str, int] = {}
        self._said: set[str] = set()

    def hear(self, rendition: str, event: Event) -> None:
        """Combine an event of a rendition with those before it, and tell the result."""
        match event:
            case Warned() if self._is_new(event.message):
                # Renditions that share their decodes wait for the same worker, so this warning names none of them.
                message = event.message if event.code == "waiting" else f"{rendition}: {event.message}"
                self._tell(replace(event, job=self._ladder, message=message))
            case StageStarted() if self._is_new(event.stage):
                self._tell(replace(event, job=self._ladder))
            case Progress():
                self._running[rendition] = event
                self._tell(self._progress(event.at_s))
            case Done():
                self._running.pop(rendition, None)
                self._finished[rendition] = event.report.frames
                self._tell(self._progress(event.at_s))

    def _is_new(self, text: str) -> bool:
        is_new = text not in self._said
        self._said.add(text)
        return is_new

    def _progress(self, at_s: float) -> Progress:
        running = self._running.values()
        done = sum(self._finished.values()) + sum(each.frames_done for each in running)
        total, fps = sum(self._frames.values()), sum(each.fps for each in running)
        left = max(0, total - done)
        eta_s = left / fps if fps else None if left else 0.0
        return Progress(self._ladder, at_s, frames_done=done, frames_total=total, fps=fps, eta_s=eta_s, running=())
