"""The results of a batch's files, and the progress of the batch."""

from dataclasses import dataclass
from typing import Any

from ... import errors
from ...errors import CodecfleetError
from ..report.report import Report
from .files import joined
from .store.schema import BatchEntry, FileFault, FileResult


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """The outcome of one file of a batch: its output, or the error."""

    source: str
    output: str  #: path or URL of the output; the file exists only if there is no error
    result: FileResult | None
    error: BaseException | None  #: None if the output was written
    report: Report | None  #: None if no job ran: the file failed before, or was copied
    source_bytes: int | None
    output_bytes: int | None
    tries: int  #: 0 if the file failed in an earlier run
    wall_s: float

    @property
    def error_class(self) -> str:
        """The name of the error's class; "" if there was no error."""
        return "" if self.error is None else type(self.error).__name__

    @property
    def exit_code(self) -> int:
        """The error's exit code; 0 if there was no error."""
        if self.error is None:
            return 0
        return self.error.exit_code if isinstance(self.error, CodecfleetError) else CodecfleetError.exit_code

    @property
    def message(self) -> str:
        """The error's message; "" if there was no error."""
        if self.error is None:
            return ""
        return self.error.message if isinstance(self.error, CodecfleetError) else str(self.error)

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON values: the event ``file_done`` or ``file_failed`` of docs/batch.md."""
        facts: dict[str, Any] = {"source": self.source, "output": self.output, "tries": self.tries}
        facts |= {"source_bytes": self.source_bytes, "wall_s": round(self.wall_s, 3)}
        if self.error is not None:
            step = self.error.next_step if isinstance(self.error, CodecfleetError) else ""
            fault = {"error": self.error_class, "message": self.message, "next_step": step}
            return {"event": "file_failed", **facts, **fault, "exit_code": self.exit_code}
        done: dict[str, Any] = {"result": self.result and self.result.value, "output_bytes": self.output_bytes}
        if self.report is not None:
            done |= {"frames": self.report.frames, "output_sha256": self.report.proof.output_sha256}
            done |= {"warnings": [[each.code, each.message] for each in self.report.warnings]}
        return {"event": "file_done", **facts, **done}


def earlier_failure(entry: BatchEntry, root: str) -> BatchResult:
    """Return the result of an entry that failed in an earlier run and is not retried."""
    return BatchResult(
        source=entry.source,
        output=joined(root, entry.output),
        result=None,
        error=error_of(entry.fault),
        report=None,
        source_bytes=entry.source_bytes,
        output_bytes=None,
        tries=0,
        wall_s=0.0,
    )


def error_of(fault: FileFault | None) -> CodecfleetError | None:
    """Return the error that a stored fault describes; for a defect, the message begins with the exception's class."""
    if fault is None:
        return None
    kind = getattr(errors, fault.error, None)
    if isinstance(kind, type) and issubclass(kind, CodecfleetError):
        return kind(fault.message, fault.next_step)
    return CodecfleetError(f"{fault.error}: {fault.message}", fault.next_step)


@dataclass(frozen=True, slots=True)
class FileProgress:
    """A file in flight; ``frames_total`` is 0 until the file is planned."""

    source: str
    frames_done: int
    frames_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """How many files of a batch are in each state, the speed, and the time left."""

    elapsed_s: float
    files: int
    done: int  #: including the ``skipped`` files
    skipped: int  #: files done by an earlier run
    failed: int
    waiting: int
    running: tuple[FileProgress, ...]
    frames: int  #: encoded in this run
    fps: float
    eta_s: float | None
    source_bytes: int  #: the size of the inputs of all files done
    output_bytes: int
    left_out: int  #: files found without a video extension
    failures: tuple[tuple[str, int], ...]  #: (class of the error, number of files), the most frequent first
    #: (input, fault) of a few failed files, including those of earlier runs; set at the end
    failed_files: tuple[tuple[str, FileFault], ...]
    exit_code: int  #: the command's exit code, given the failures so far
    #: process id of the warm fleet; None if the batch has its own workers or uses a cluster
    warm_fleet: int | None = None

    @property
    def saved_bytes(self) -> int:
        """How many bytes smaller the outputs are than their inputs; negative if they are larger."""
        return self.source_bytes - self.output_bytes

    def to_json(self) -> dict[str, Any]:
        """Return the progress as plain JSON values: the fields of the events ``batch_progress`` and ``batch_done``."""
        counts = {name: getattr(self, name) for name in ("files", "done", "skipped", "failed", "waiting", "left_out")}
        running = [[each.source, each.frames_done, each.frames_total] for each in self.running]
        pace = {"frames": self.frames, "fps": round(self.fps, 2), "eta_s": self.eta_s and round(self.eta_s, 1)}
        size = {"source_bytes": self.source_bytes, "output_bytes": self.output_bytes}
        rest = {"failures": dict(self.failures), "warm_fleet": self.warm_fleet}
        return {**counts, "running": running, **pace, **size, **rest}
