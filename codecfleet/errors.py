"""Every error that codecfleet raises, by cause.

    CodecfleetError
    ├── UsageError       exit code 2: NoSuchFrame, NoSuchJob
    ├── InputError       3: InputNotFound, InputUnreadable, InputRefused, InputTooLarge, InputDamaged
    │   └── InputDamaged    FrameDamaged
    ├── RequestError     4: NoVideoTrack, NotEnoughMemory, NotSmaller, SizeExceeded, OutputExists, OutputInUse,
    │                      OutputUnwritable, JournalRefused, QueueFull, TenantRefused, Unsupported, WouldLose
    ├── WorkError        5: WorkerLost, DeadlineMissed, SegmentFailed, EncoderFailed, ProofFailed, StorageFailed,
    │   │                   FleetUnavailable, QueueUnavailable
    │   ├── StorageFailed   ObjectStoreFull
    │   ├── FleetUnavailable   VersionRefused
    │   ├── WorkerLost      NodeEnded, WorkAbandoned, WorkerOutOfMemory, WorkerBroken, ProcessKilled
    │   └── DeviceError     DeviceLost, DeviceMemory, SessionLimit, EngineBusy, EngineUnfit, EngineFailed, EngineHung
    └── Cancelled        130

``message`` states the failure and its cause, ``next_step`` is advice for the user, ``retry`` states whether another try
can help, and ``where`` names the worker on which the error occurred. All arguments are positional and stay in ``args``,
so every error survives pickling. Ray would change the type of an exception with keyword-only arguments, so that callers
could not catch it.
"""

import re
from enum import Enum
from typing import ClassVar, Final

__all__ = [
    "Cancelled",
    "CodecfleetError",
    "DeadlineMissed",
    "DeviceError",
    "DeviceLost",
    "DeviceMemory",
    "EncoderFailed",
    "EngineBusy",
    "EngineFailed",
    "EngineHung",
    "EngineUnfit",
    "FleetUnavailable",
    "FrameDamaged",
    "InputDamaged",
    "InputError",
    "InputNotFound",
    "InputRefused",
    "InputTooLarge",
    "InputUnreadable",
    "JournalRefused",
    "NoSuchFrame",
    "NoSuchJob",
    "NoVideoTrack",
    "NodeEnded",
    "NotEnoughMemory",
    "NotSmaller",
    "ObjectStoreFull",
    "OutputExists",
    "OutputInUse",
    "OutputUnwritable",
    "ProcessKilled",
    "ProofFailed",
    "QueueFull",
    "QueueUnavailable",
    "RequestError",
    "Retry",
    "SegmentFailed",
    "SessionLimit",
    "SizeExceeded",
    "StorageFailed",
    "TenantRefused",
    "Unsupported",
    "UsageError",
    "VersionRefused",
    "WorkAbandoned",
    "WorkError",
    "WorkerBroken",
    "WorkerLost",
    "WorkerOutOfMemory",
    "WouldLose",
]


_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^\s'\"<>]+")
_PASSWORD: Final = re.compile(r"(?<=://)([^/:@?#]*):[^/@?#]*@")
_SIGNATURE: Final = re.compile(
    r"([?&;][^=&;]*(?:sig|token|secret|passw|credential|key|auth|accessid|policy)[^=&;]*=)[^&;#]*", re.IGNORECASE
)
"""Query parameters whose values grant access, as in signed URLs of Amazon, Google and Azure."""


REDACTED: Final = "***"
"""The text that replaces a secret in an address."""


def redacted(text: str) -> str:
    """Return ``text`` with the secrets in all addresses replaced: passwords, keys, signatures, tokens.

    Only requests use whole addresses; messages, events, reports and printed text contain redacted ones.
    """
    return _ADDRESS.sub(_without_secrets, text) if "://" in text else text


def one_line(text: str) -> str:
    """Return ``text`` redacted, on one line and with control characters escaped; it may come from untrusted files."""
    joined = " ".join(redacted(text).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in joined)


def _without_secrets(address: "re.Match[str]") -> str:
    return _SIGNATURE.sub(rf"\1{REDACTED}", _PASSWORD.sub(rf"\1:{REDACTED}@", address[0]))


class Retry(Enum):
    """Whether, and where, the same work may succeed if it is tried again."""

    NEVER = "never"
    """The same work would fail in the same way anywhere."""
    ANYWHERE = "anywhere"
    """Another try may succeed, even on the same worker."""
    ELSEWHERE = "elsewhere"
    """Another try may succeed on another worker; the same worker must not be used again."""


class CodecfleetError(Exception):
    """The base class of codecfleet's errors.

    Args:
        message: one line that states the failure and its cause, with the wrong value; secrets in addresses are
            redacted.
        next_step: one line of advice for the user; "" if there is nothing to do.
    """

    exit_code: ClassVar[int] = 5
    retry: ClassVar[Retry] = Retry.NEVER

    def __init__(self, message: str, next_step: str = "") -> None:
        self.message = redacted(message)
        self.next_step = redacted(next_step)
        super().__init__(self.message, self.next_step)
        self.where = ""
        """The worker on which the error occurred, under its name in the pool; "" for none."""

    def __str__(self) -> str:
        if not self.next_step:
            return self.message
        return f"{self.message}{'' if self.message.endswith(('.', '?', '!')) else '.'} {self.next_step}"


class UsageError(CodecfleetError):
    """The call or its arguments are invalid."""

    exit_code = 2


class NoSuchFrame(UsageError, IndexError):
    """The film has no frame with the requested number or at the requested time; for a time, ``frame`` is None."""

    def __init__(self, message: str, next_step: str = "", frame: int | None = None) -> None:
        super().__init__(message, next_step)
        self.args = (message, next_step, frame)
        self.frame = frame


class NoSuchJob(UsageError):
    """The queue has no job with this id."""


class InputError(CodecfleetError):
    """The source cannot be used."""

    exit_code = 3


class InputNotFound(InputError):
    """Nothing exists at the path or address of the source."""


class InputUnreadable(InputError):
    """The source exists, but cannot be opened, parsed or decoded."""


class InputRefused(InputError):
    """Opening the source would be unsafe: it names other files or addresses, or needs a forbidden protocol."""


class InputTooLarge(InputError):
    """The source exceeds a limit, such as the size of its pictures or the number of its tracks."""


class InputDamaged(InputError):
    """The source is damaged and ``strict`` forbids damage, or no picture of the requested part can be decoded."""


class FrameDamaged(InputDamaged):
    """A requested frame cannot be decoded without damage; ``frame`` is the number of the frame."""

    def __init__(self, message: str, next_step: str = "", frame: int | None = None) -> None:
        super().__init__(message, next_step)
        self.args = (message, next_step, frame)
        self.frame = frame


class RequestError(CodecfleetError):
    """A valid request that this source cannot meet."""

    exit_code = 4


class NoVideoTrack(RequestError):
    """The source has no video to encode."""


class NotEnoughMemory(RequestError):
    """A segment needs more memory than any machine of the fleet has."""

    WHAT_NEXT: ClassVar = "Use a smaller --scale, a faster --preset, or a machine with more memory."


class NotSmaller(RequestError):
    """The result is not smaller than the source, which ``if_smaller`` requires."""


class SizeExceeded(RequestError):
    """The film cannot be made as small as ``size_bytes`` requires."""

    WHAT_NEXT: ClassVar = "Give a larger --size, a smaller --scale, or drop tracks."


class OutputExists(RequestError):
    """The name of the output is already taken."""


class QueueFull(RequestError):
    """The queue accepts no more jobs from this tenant."""


class TenantRefused(RequestError):
    """The queue does not know who submits the job, or its policy does not allow this tenant the priority."""


class OutputInUse(RequestError):
    """Another job is writing the same output."""

    retry = Retry.ANYWHERE


class JournalRefused(RequestError):
    """The output's unfinished work cannot be continued: it is unreadable, or has other options, input or encoder."""


class OutputUnwritable(RequestError):
    """The output cannot be created or written."""


class Unsupported(RequestError):
    """The codec, container, pixel format or options cannot be combined, or a required package or feature is missing."""


class WouldLose(RequestError):
    """Part of the source cannot be kept, and ``strict`` forbids losses."""


class WorkError(CodecfleetError):
    """The work failed, even after retries."""

    exit_code = 5


class WorkerLost(WorkError):
    """The worker process was lost while it had the work; a subclass may name the cause."""

    retry = Retry.ANYWHERE


class NodeEnded(WorkerLost):
    """The worker's node ended as announced, so the work moves to another node; the attempt does not count."""


class WorkAbandoned(WorkerLost):
    """A supervisor cancelled the work, because the program's reports no longer arrived; the attempt does not count."""


class WorkerOutOfMemory(WorkerLost):
    """A worker process ran out of memory, or was killed because it used too much memory."""


class DeadlineMissed(WorkError):
    """The work made no progress within its deadline."""

    retry = Retry.ELSEWHERE


class WorkerBroken(WorkerLost):
    """A worker ended itself because its device failed; any work that it had may have been the cause."""


class ProcessKilled(WorkerLost):
    """A process died while it ran only this work, so this work was the cause."""


class DeviceError(WorkError):
    """A GPU, one of its engines, or its driver failed."""

    retry = Retry.ELSEWHERE


class DeviceLost(DeviceError):
    """The device no longer answers; the worker must restart, or the device needs a reset."""


class DeviceMemory(DeviceError):
    """The device does not have enough free memory."""

    retry = Retry.ANYWHERE


class SessionLimit(DeviceError):
    """For now, the device or its driver opens no more sessions of the requested kind."""

    retry = Retry.ANYWHERE


class EngineBusy(DeviceError):
    """The GPU was still opening sessions, and the caller could use software instead of waiting."""

    retry = Retry.ANYWHERE


class EngineUnfit(DeviceError):
    """The device has no engine for this codec, format or source; software or another device may support it."""

    # No fault occurred, so the process continues.
    retry = Retry.ANYWHERE


class EngineFailed(DeviceError):
    """An engine aborted a task, or returned an impossible result."""


class EngineHung(DeviceError):
    """An engine or the driver did not answer in time."""


class SegmentFailed(WorkError):
    """A segment failed on every step of its retry ladder; ``segment`` is its number, or None if it has no number."""

    def __init__(self, message: str, next_step: str = "", segment: int | None = None) -> None:
        super().__init__(message, next_step)
        self.args = (message, next_step, segment)
        self.segment = segment


class EncoderFailed(WorkError):
    """An encoder refused a frame or returned an impossible result."""

    retry = Retry.ANYWHERE


class ProofFailed(WorkError):
    """A check of an output, or of a file to package, found that something is missing or wrong."""


class QueueUnavailable(WorkError):
    """The queue's database cannot be opened, read or written, or does not answer in time."""


class StorageFailed(WorkError):
    """The storage failed during a read or a write."""


class ObjectStoreFull(StorageFailed):
    """Ray's object store, and the disk to which it spills, had no room for a result."""

    retry = Retry.ANYWHERE


class FleetUnavailable(WorkError):
    """The fleet cannot run the work: Ray did not start or does not answer, or a required device is missing."""


class VersionRefused(FleetUnavailable):
    """This program and the cluster run different versions of codecfleet."""


class Cancelled(CodecfleetError):
    """The caller cancelled the job."""

    exit_code = 130
