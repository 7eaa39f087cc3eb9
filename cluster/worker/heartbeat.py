"""What a worker says when it is asked how it is, and what two answers in a row tell about its speed."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["Decoding", "Heartbeat", "Speed", "speed_between"]

MEDIA_LABEL = "segment "
"""How the label of work begins whose frames are a video's: a track of sound counts its own."""

MOST = 0.75
"""Some of a worker's sessions have just ended their decoding and encode what is left, or have not yet begun it."""


class Decoding(Enum):
    """Who decodes for a worker's work."""

    SOFTWARE = "software"
    DEVICE = "device"
    BOTH = "both"  #: some of it the one, some the other: that says nothing about either


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """How a worker is. ``frames_done`` only grows while the process lives; ``running`` are (job, label) of its work.

    ``decoding`` counts its device's decoder sessions that are in use, ``encoding`` its encoder sessions that are open.
    ``refusals`` counts those that the driver did not open for their number, since the process began, and
    ``refused_at`` is how many were open at the last of them. ``recycle_due`` says why the process should be replaced
    when it is idle, "" while it should not.
    """

    frames_done: int
    running: tuple[tuple[str, str], ...]
    decoding: int = 0
    recycle_due: str = ""
    encoding: int = 0
    refusals: int = 0
    refused_at: int = 0

    @property
    def decoded_by(self) -> Decoding:
        """Who decodes for what runs now."""
        if not self.decoding:
            return Decoding.SOFTWARE
        return Decoding.DEVICE if self.decoding >= MOST * len(self.running) else Decoding.BOTH


@dataclass(frozen=True, slots=True)
class Speed:
    """Frames a second between two pulses.

    ``job`` is whose sessions they all were, "" where they were several jobs', their number changed, or not all of them
    decoded alike: then the figure is for people, and says nothing about a rate. ``on_device`` is whether the worker's
    device decoded.
    """

    fps: float
    job: str
    sessions: int
    on_device: bool = False


def speed_between(before: Heartbeat, after: Heartbeat, elapsed_s: float) -> Speed:
    """Return the speed between two pulses of one process that lie ``elapsed_s`` seconds apart."""
    fps = (after.frames_done - before.frames_done) / elapsed_s
    jobs = {job for job, _ in (*before.running, *after.running)}
    steady = len(before.running) == len(after.running) and len(jobs) == 1
    media = all(label.startswith(MEDIA_LABEL) for _, label in (*before.running, *after.running))
    alike = before.decoded_by is after.decoded_by is not Decoding.BOTH
    job = jobs.pop() if steady and media and alike else ""
    return Speed(fps, job, len(after.running), after.decoded_by is Decoding.DEVICE)
