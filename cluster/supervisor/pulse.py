"""What a worker says when it is asked how it is, and what two answers in a row tell about its speed."""

from dataclasses import dataclass

__all__ = ["Pulse", "Speed", "speed_between"]

MEDIA_LABEL = "segment "
"""How the label of work begins whose frames are a video's: a track of sound counts its own."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """How a worker is. ``frames_done`` only grows while the process lives; ``running`` are (job, label) of its work."""

    frames_done: int
    running: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Speed:
    """Frames a second between two pulses.

    ``job`` is whose sessions they all were, "" where they were several jobs', or their number changed: then the figure
    is for people, and says nothing about a rate.
    """

    fps: float
    job: str
    sessions: int


def speed_between(before: Pulse, after: Pulse, elapsed_s: float) -> Speed:
    """Return the speed between two pulses of one process that lie ``elapsed_s`` seconds apart."""
    fps = (after.frames_done - before.frames_done) / elapsed_s
    jobs = {job for job, _ in (*before.running, *after.running)}
    steady = len(before.running) == len(after.running) and len(jobs) == 1
    media = all(label.startswith(MEDIA_LABEL) for _, label in (*before.running, *after.running))
    return Speed(fps, jobs.pop() if steady and media else "", len(after.running))
