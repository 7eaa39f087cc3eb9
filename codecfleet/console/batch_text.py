"""The results, the progress and the summary of a batch as lines of text."""

from typing import TYPE_CHECKING

from ..cluster.grouping import counted
from ..errors import one_line
from .text import LABEL_WIDTH, bytes_text, clock_text, labelled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..jobs.batch.preview import Intended, Preview
    from ..jobs.batch.results import BatchProgress, BatchResult


def result_text(result: "BatchResult") -> str:
    """Return one line about the result of a file."""
    if result.error is not None:
        when = "failed" if result.tries else "failed in an earlier run"
        return f"{when}: {failure_text(result.source, result.message)} [{result.error_class}]"
    sizes = f"{size_text(result.source_bytes)} to {size_text(result.output_bytes)}"
    how = f"{result.result.value}: " if result.result is not None else ""
    return f"{how}{result.source}: {sizes} in {result.wall_s:.1f} s"


def failure_text(source: str, message: str) -> str:
    """Return an error of an input, with the input's name exactly once."""
    return message if source in message else f"{source}: {message}"


def size_text(size_bytes: int | None) -> str:
    """Return a size as text, or ``unknown size``."""
    return "unknown size" if size_bytes is None else bytes_text(size_bytes)


def progress_text(progress: "BatchProgress") -> str:
    """Return ``12/40 done, 1 failed, 4 running, 23 waiting, 210.0 fps, 3:05 left, 1.2 GB saved``."""
    parts = [f"{progress.done}/{progress.files} done"]
    parts += [f"{progress.failed} failed"] if progress.failed else []
    parts += [f"{len(progress.running)} running", f"{progress.waiting} waiting", f"{progress.fps:.1f} fps"]
    parts += [f"{clock_text(progress.eta_s)} left"] if progress.eta_s is not None else []
    return ", ".join([*parts, saved_text(progress)])


def saved_text(progress: "BatchProgress") -> str:
    """Return by how much the outputs are smaller or larger than their inputs."""
    verb = "saved" if progress.saved_bytes >= 0 else "more"
    return f"{bytes_text(abs(progress.saved_bytes))} {verb}"


def failed_text(progress: "BatchProgress") -> str:
    """Return the failures in one line: ``3 of 40 files failed: 2 InputUnreadable, 1 OutputExists``."""
    return f"{progress.failed} of {counted(progress.files, 'file')} failed: {_failures(progress)}"


def _failures(progress: "BatchProgress") -> str:
    return ", ".join(f"{count} {error}" for error, count in progress.failures)


def summary_lines(progress: "BatchProgress") -> list[str]:
    """Return the summary of a batch: the counts, the failures with their reasons, and the sizes."""
    skipped = f", {progress.skipped} of them by earlier runs" if progress.skipped else ""
    rows = [
        ("files", f"{progress.done} of {progress.files} done{skipped}"),
        ("failed", _failures(progress)),
        *_failed_files(progress),
        ("left out", f"{counted(progress.left_out, 'file')} without a video extension" if progress.left_out else ""),
        ("size", _sizes(progress)),
        ("speed", _speed(progress)),
    ]
    return labelled([(label, one_line(text)) for label, text in rows], LABEL_WIDTH)


def _failed_files(progress: "BatchProgress") -> "Iterator[tuple[str, str]]":
    """Yield the first failed files with their errors, then the number of further failures."""
    for source, fault in progress.failed_files:
        yield "", f"{failure_text(source, fault.message)} [{fault.error}]"
    if (more := progress.failed - len(progress.failed_files)) > 0 and progress.failed_files:
        yield "", f"and {more} more: --report FILE.html lists them all"


def _sizes(progress: "BatchProgress") -> str:
    if not progress.source_bytes:
        return ""
    before, after = bytes_text(progress.source_bytes), bytes_text(progress.output_bytes)
    percent = 100 * progress.output_bytes / progress.source_bytes
    return f"{before} to {after} ({percent:.0f} %), {saved_text(progress)}"


def _speed(progress: "BatchProgress") -> str:
    frames = f"{counted(progress.frames, 'frame')}, {progress.fps:.1f} fps, " if progress.frames else ""
    return f"{frames}{progress.elapsed_s:.1f} s in all"


def intended_text(intended: "Intended") -> str:
    """Return one line about what the batch would do with a file."""
    line = f"{intended.intent.value:<8}{one_line(intended.source)} -> {one_line(intended.output)}"
    error = intended.error
    return line if error is None else f"{line}: {one_line(error.message)} [{type(error).__name__}]"


def preview_lines(preview: "Preview") -> list[str]:
    """Return the summary of a dry run: the number of files, and estimates of time and size."""
    counts = ", ".join(f"{count} {intent.value}" for intent, count in preview.counts.items() if count)
    rows = [
        ("files", counts or "none"),
        ("left out", f"{counted(preview.left_out, 'file')} without a video extension" if preview.left_out else ""),
    ]
    rows += [
        ("would fail", f"{failure_text(source, error.message)} [{type(error).__name__}]")
        for source, error in preview.failed_samples
    ]
    if (estimate := preview.estimate) is not None:
        size = f"{bytes_text(estimate.source_bytes)} to about {bytes_text(round(estimate.output_bytes))}"
        rows.append(("estimate", f"about {clock_text(estimate.wall_s)}, {size}"))
        rows.append(("", f"from two seconds of {counted(estimate.samples, 'input')}, which were encoded"))
    return labelled(rows, LABEL_WIDTH)
