"""A worker process's heartbeat: the state, the speed between two heartbeats, and when to replace the process."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ..device.pieces import Ending, ReportedPiece

MEDIA_LABEL: Final = "segment "
"""The prefix of labels of work that counts video frames; audio tracks count audio frames."""
MOST: Final = 0.75
"""If this fraction of its work has device sessions, a worker counts as decoding on the device: the rest of the work has
just begun or ended.
"""
RECYCLE_S: Final = 6 * 3600.0
"""A process is replaced after using a GPU for this long, because longer runs were not tested."""
SESSIONS_MAX: Final = 20_000
"""The most sessions of a process: PyNvVideoCodec leaks about 1.5 KB of host memory with each, 30 MB in all."""


class Decoding(Enum):
    """Where a worker's video is decoded."""

    SOFTWARE = "software"
    DEVICE = "device"
    BOTH = "both"  #: work is decoded in both places, so the speed describes neither place


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """The unchanging facts about a worker process."""

    pid: int
    slots: int
    device: str = ""  #: the identity of the worker's GPU or slice (``gpu_identity``); "" if it has no GPU
    cores: int = 0  #: cores reserved for the worker
    trouble: str = ""  #: why the worker does not use its device
    pyav: str = ""  #: the worker's version of PyAV


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A worker's state. All counts start at 0 when the process starts."""

    frames_done: int  #: frames done so far
    running: tuple[tuple[str, str], ...]  #: (job, label) of the running work
    decoding: int = 0  #: decoder sessions in use on the worker's device
    recycle_due: str = ""  #: why the process should be replaced once idle; "" if it should not
    encoding: int = 0  #: open encoder sessions
    refusals: int = 0  #: encoder sessions refused by the driver because too many were open
    refused_at: int = 0  #: how many encoder sessions were open at the last refusal
    ended: Mapping[Ending, int] = field(default_factory=dict)  #: how many runs of work have ended, by how they ended
    pieces: tuple[ReportedPiece, ...] = ()  #: for a supervisor: work that runs, or ended in the last few seconds
    progress: Mapping[str, int] = field(default_factory=dict)  #: how many frames of the running work are done, by run
    facts: WorkerFacts = WorkerFacts(0, 0)
    sent_utc_s: float | None = None  #: the time by the clock of the worker's machine, in seconds since 1970

    @property
    def decoded_by(self) -> Decoding:
        """Where the running work is decoded."""
        if not self.decoding:
            return Decoding.SOFTWARE
        return Decoding.DEVICE if self.decoding >= MOST * len(self.running) else Decoding.BOTH


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed between two heartbeats."""

    fps: float
    job: str  #: the job of all sessions; "" if ``fps`` describes no job, because jobs are mixed or sessions changed
    sessions: int
    on_device: bool = False  #: whether the worker's device decoded


def speed_between(before: Heartbeat, after: Heartbeat, elapsed_s: float) -> Speed:
    """Return the speed between two heartbeats of one process, ``elapsed_s`` seconds apart."""
    fps = (after.frames_done - before.frames_done) / elapsed_s
    jobs = {job for job, _ in (*before.running, *after.running)}
    steady = len(before.running) == len(after.running) and len(jobs) == 1
    media = all(label.startswith(MEDIA_LABEL) for _, label in (*before.running, *after.running))
    alike = before.decoded_by is after.decoded_by is not Decoding.BOTH
    job = jobs.pop() if steady and media and alike else ""
    return Speed(fps, job, len(after.running), after.decoded_by is Decoding.DEVICE)


def recycle(age_s: float, sessions_made: int) -> str:
    """Return why a process that uses a GPU should be replaced once idle; "" if it should not."""
    if age_s >= RECYCLE_S:
        return f"it has used its GPU for {age_s / 3600:.1f} hours"
    if sessions_made >= SESSIONS_MAX:
        return f"it has opened {sessions_made} sessions on its GPU"
    return ""
