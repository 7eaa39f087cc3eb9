"""What a worker process reports: its identity, its heartbeat, the speed between two of them, when to replace it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ...actors.device.pieces import ToldPiece
from ...errors import Cancelled, CodecfleetError, Retry

MEDIA_LABEL = "segment "
"""The prefix of labels of work that counts video frames; audio tracks count their own."""

MOST = 0.75
"""Some of a worker's sessions have just finished decoding, or have not begun."""


RECYCLE_S: Final = 6 * 3600.0
"""Longer than any of our tests ran."""
SESSIONS_MAX: Final = 20_000
"""PyNvVideoCodec loses about 1.5 KB of host memory with each decoder that it makes: 30 MB."""


class Decoding(Enum):
    """What decodes for a worker."""

    SOFTWARE = "software"
    DEVICE = "device"
    BOTH = "both"  #: mixed, so the speed says nothing about either


class Ending(Enum):
    """How a piece of work ended."""

    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"  #: the same work fails the same way anywhere
    RETRY = "retry"  #: another try may succeed
    RETRY_ELSEWHERE = "retry_elsewhere"  #: another try may succeed on another worker; this one ends


_ENDINGS: Final = {
    Retry.NEVER: Ending.FAILED,
    Retry.ANYWHERE: Ending.RETRY,
    Retry.ELSEWHERE: Ending.RETRY_ELSEWHERE,
}


def ending_of(error: CodecfleetError | None) -> Ending:
    """Return how work ended that has this error, or none."""
    if error is None:
        return Ending.DONE
    return Ending.CANCELLED if isinstance(error, Cancelled) else _ENDINGS[error.retry]


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What a worker process reports once it is up.

    ``device`` is the identity of its GPU or slice (``gpu_identity``), "" for none; ``cores`` are those of its
    reservation. ``trouble`` says why it does not use that device. ``pyav`` is the version of its node.
    """

    pid: int
    slots: int
    device: str = ""
    cores: int = 0
    trouble: str = ""
    pyav: str = ""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A worker's state. ``frames_done`` only grows while the process lives; ``running`` are (job, label) of its work.

    ``decoding`` counts its device's decoder sessions in use, ``encoding`` its open encoder sessions. ``refusals``
    counts encoder sessions that the driver refused for their number since the process started, ``refused_at`` how many
    were open at the last refusal. ``recycle_due`` says why the process should be replaced once idle, "" while it should
    not. ``ended`` counts the work that ended since the process started. ``pieces`` are the running work and what ended
    in the last seconds, as ``ToldPiece`` says.
    """

    frames_done: int
    running: tuple[tuple[str, str], ...]
    decoding: int = 0
    recycle_due: str = ""
    encoding: int = 0
    refusals: int = 0
    refused_at: int = 0
    ended: Mapping[Ending, int] = field(default_factory=dict)
    pieces: tuple[ToldPiece, ...] = ()

    @property
    def decoded_by(self) -> Decoding:
        """What decodes the running work."""
        if not self.decoding:
            return Decoding.SOFTWARE
        return Decoding.DEVICE if self.decoding >= MOST * len(self.running) else Decoding.BOTH


@dataclass(frozen=True, slots=True)
class Speed:
    """Frames per second between two heartbeats.

    ``job`` owned all sessions; it is "" where several jobs did, their number changed, or they decoded differently: then
    the figure is for people, not for rates. ``on_device`` is whether the worker's device decoded.
    """

    fps: float
    job: str
    sessions: int
    on_device: bool = False


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
    """Say why a process that uses a GPU should be replaced once idle; "" while it should not."""
    if age_s >= RECYCLE_S:
        return f"it has used its GPU for {age_s / 3600:.1f} hours"
    if sessions_made >= SESSIONS_MAX:
        return f"it has opened {sessions_made} sessions on its GPU"
    return ""
