"""Views of a running batch: a live table on a terminal, plain lines elsewhere, JSON lines for programs, or nothing.

Progress goes to stderr and results go to stdout, as for a single job.
"""

from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from ..errors import one_line
from .batch_text import failed_text, progress_text, result_text, saved_text, summary_lines
from .output import Display, JsonLines, Output
from .text import clock_text

if TYPE_CHECKING:
    from rich.console import Group

    from ..jobs.batch.results import BatchProgress, BatchResult

SCHEMA_VERSION: Final = 1
_PLAIN_EVERY_S: Final = 5.0
_FILE_ROWS: Final = 8


class BatchView(Display):
    """Shows one batch; this base class shows nothing. All methods raise ReaderGone if stdout was closed."""

    def show(self, result: "BatchResult", progress: "BatchProgress") -> None:
        """Show the result of a file."""

    def tick(self, progress: "BatchProgress") -> None:
        """Show the progress of the batch; called several times a second."""

    def note(self, text: str) -> None:
        """Show a message that is not a file's result."""

    def finish(self, progress: "BatchProgress") -> None:
        """Show the summary. Raises StorageFailed if stdout cannot be written."""


class JsonBatchView(BatchView):
    """Prints each event as a line of JSON on stdout."""

    def __init__(self, stdout: Output, stderr: Output) -> None:
        self._lines = JsonLines(stdout, stderr)
        self._ticked_at_s = 0.0

    def show(self, result: "BatchResult", progress: "BatchProgress") -> None:
        self._print(result.to_json(), progress)

    def tick(self, progress: "BatchProgress") -> None:
        if progress.elapsed_s - self._ticked_at_s >= 1:
            self._ticked_at_s = progress.elapsed_s
            self._print({"event": "batch_progress", **progress.to_json()}, progress)

    def finish(self, progress: "BatchProgress") -> None:
        self._print({"event": "batch_done", **progress.to_json(), "exit_code": progress.exit_code}, progress)

    def _print(self, facts: dict[str, Any], progress: "BatchProgress") -> None:
        document = {"schema": SCHEMA_VERSION, "event": facts["event"], "at_s": round(progress.elapsed_s, 3)}
        self._lines.write(document | facts)


class QuietBatchView(BatchView):
    """Prints only each failed file and, at the end, the number of failures (``--quiet``)."""

    def __init__(self, stderr: Output) -> None:
        self._stderr = stderr

    def show(self, result: "BatchResult", progress: "BatchProgress") -> None:
        del progress
        if result.error is not None:
            self._stderr.log(result_text(result))

    def finish(self, progress: "BatchProgress") -> None:
        if progress.failed:
            self._stderr.log(f"error: {failed_text(progress)}")


class SummaryView(BatchView):
    """Prints the summary at the end."""

    def __init__(self, stdout: Output) -> None:
        self._stdout = stdout

    def finish(self, progress: "BatchProgress") -> None:
        self.close()
        for line in summary_lines(progress):
            self._stdout.line(line)


class PlainBatchView(SummaryView):
    """Prints whole lines for logs and pipes: the result of each file, progress every five seconds, and the summary."""

    def __init__(self, stdout: Output, stderr: Output) -> None:
        super().__init__(stdout)
        self._stderr = stderr
        self._ticked_at_s = 0.0

    def show(self, result: "BatchResult", progress: "BatchProgress") -> None:
        del progress
        self.note(result_text(result))

    def tick(self, progress: "BatchProgress") -> None:
        if progress.elapsed_s - self._ticked_at_s >= _PLAIN_EVERY_S:
            self._ticked_at_s = progress.elapsed_s
            self.note(progress_text(progress))

    def note(self, text: str) -> None:
        self._stderr.log(text)


class RichBatchView(PlainBatchView):
    """Shows a live table on a terminal: counts, speed, and the files in progress. Failures stay above the table."""

    def __init__(self, stdout: Output, stderr: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(stdout, Output(stderr))
        self._console = Console(file=stderr, highlight=False)
        self._live = Live(console=self._console, transient=True, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def close(self) -> None:
        self._live.stop()

    def show(self, result: "BatchResult", progress: "BatchProgress") -> None:
        del progress
        if result.error is not None:
            self._console.print(one_line(result_text(result)), style="red", markup=False, soft_wrap=True)

    def tick(self, progress: "BatchProgress") -> None:
        self._live.update(_batch_table(progress))

    def note(self, text: str) -> None:
        self._console.print(one_line(text), markup=False, soft_wrap=True)


def _batch_table(progress: "BatchProgress") -> "Group":
    """Return the live table: a row of counts, and below it rows for the first files in progress."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    counts = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    cells = {
        "done": f"{progress.done}/{progress.files}",
        "running": str(len(progress.running)),
        "failed": str(progress.failed),
        "waiting": str(progress.waiting),
        "fps": f"{progress.fps:.1f}",
        "time left": "unknown" if progress.eta_s is None else clock_text(progress.eta_s),
        "disk": saved_text(progress),
    }
    for name in cells:
        counts.add_column(name, style="red" if name == "failed" and progress.failed else None)
    counts.add_row(*cells.values())
    files = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for each in progress.running[:_FILE_ROWS]:
        bar = ProgressBar(total=each.frames_total or None, completed=each.frames_done, width=20)
        of = f"{each.frames_done}/{each.frames_total} frames" if each.frames_total else "being read"
        files.add_row(Text(one_line(each.source), overflow="ellipsis", no_wrap=True), bar, of)
    if (hidden := len(progress.running) - _FILE_ROWS) > 0:
        files.add_row(f"and {hidden} more", "", "")
    return Group(counts, files)
