"""What a terminal user, a log file or a program sees of a running job.

One ``View`` per way of looking: a live bar on a terminal, plain lines elsewhere, JSON lines for programs, nothing at
all with ``--quiet``. Progress goes to stderr and results to stdout, so that either can be piped. A view is driven by
events alone and holds no clock: what it prints is a function of what it was shown.
"""

from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TextIO

from ..console.output import Output, ReaderGone, json_line
from ..jobs.report.events import Done, Event, Planned, Progress, SegmentFinished, Warned
from ..jobs.report.report import Report
from .text import one_line, pace_text, planned_text, proof_lines, segment_text

if TYPE_CHECKING:
    from rich.progress import TaskID

__all__ = ["JsonView", "PlainView", "RichView", "View"]

_PLAIN_EVERY_S: Final = 5.0
_SEGMENT_ROWS: Final = 8


class View:
    """Shows one job; this one shows nothing, as ``--quiet`` wants it. The others say more.

    Used as a context manager around the job; nothing is on screen after it closes but whole lines.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take anything that moves off the screen. Idempotent."""

    def show(self, event: Event) -> None:
        """Show one event.

        Raises:
            ReaderGone: events go to stdout and nobody reads it.
        """

    def note(self, text: str) -> None:
        """Tell the person at the keyboard something that is no event."""

    def finish(self, report: Report, report_path: str | None) -> None:
        """Print the result on stdout.

        Raises:
            ReaderGone: nobody reads stdout.
        """


class JsonView(View):
    """One event a line, on stdout."""

    def __init__(self, stdout: Output) -> None:
        self._stdout = stdout

    def show(self, event: Event) -> None:
        """Print ``event``."""
        self._stdout.line(json_line(event.to_json()))


class PlainView(View):
    """Whole lines for logs and pipes: every finished segment, and progress every five seconds of the job's time."""

    def __init__(self, stdout: Output, stderr: Output) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._plan: Planned | None = None
        self._said_at_s = 0.0
        self._told: set[str] = set()

    def show(self, event: Event) -> None:
        """Print a line for ``event`` if it is worth one."""
        match event:
            case Planned():
                self._plan = event
                self.note(planned_text(event))
            case SegmentFinished():
                self.note(segment_text(event))
            case Progress() if event.at_s - self._said_at_s >= _PLAIN_EVERY_S:
                self._said_at_s = event.at_s
                self.note(pace_text(event, self._plan))
            case Warned():
                self._told.add(event.message)
                self.note(f"warning: {event.message} [{event.code}]")

    def note(self, text: str) -> None:
        """Print ``text`` on stderr; a log nobody reads any more is no reason to stop the job."""
        try:
            self._stderr.line(f"codecfleet: {one_line(text)}")
        except ReaderGone:
            return

    def finish(self, report: Report, report_path: str | None) -> None:
        """Print the proof on stdout."""
        for line in proof_lines(report, report_path, frozenset(self._told)):
            self._stdout.line(line)


class RichView(View):
    """A live bar on a terminal: the whole job, and one row per segment in flight."""

    def __init__(self, stdout: Output, stderr: TextIO) -> None:
        # rich takes a tenth of a second to import, which --help and --json should not pay.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

        self._stdout = stdout
        self._console = Console(file=stderr, highlight=False)
        self._bars = Progress(
            SpinnerColumn("line", finished_text=" "),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
            console=self._console,
            transient=True,
            refresh_per_second=8,
        )
        self._whole: TaskID = self._bars.add_task("starting", total=None, detail="")
        self._rows: dict[int, TaskID] = {}
        self._more: TaskID = self._bars.add_task("", total=None, detail="", visible=False)
        self._plan: Planned | None = None
        self._told: set[str] = set()

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def close(self) -> None:
        """Erase the bars and give the cursor back."""
        self._bars.stop()

    def show(self, event: Event) -> None:
        """Move the bars."""
        match event:
            case Planned():
                self._plan = event
                self.note(planned_text(event))
                self._bars.update(self._whole, description="encoding", total=event.frames or None)
            case Progress():
                self._show_progress(event)
            case Warned():
                self._told.add(event.message)
                self.note(f"warning: {event.message} [{event.code}]", style="yellow")
            case Done():
                self.close()

    def _show_progress(self, event: Progress) -> None:
        total = event.frames_total or None
        finishing = total is not None and event.frames_done >= total
        self._bars.update(
            self._whole,
            description="joining" if finishing else "encoding",
            completed=event.frames_done,
            total=total,
            detail=pace_text(event, self._plan),
        )
        shown = event.running[:_SEGMENT_ROWS]
        for segment in self._rows.keys() - {segment for segment, _, _ in shown}:
            self._bars.remove_task(self._rows.pop(segment))
        for segment, done, to_do in shown:
            self._show_segment(segment, done, to_do)
        hidden = len(event.running) - len(shown)
        self._bars.update(self._more, visible=hidden > 0, description=f"  and {hidden} more")

    def _show_segment(self, segment: int, done: int, to_do: int) -> None:
        if segment not in self._rows:
            self._rows[segment] = self._bars.add_task(f"segment {segment}", detail="")
        self._bars.update(self._rows[segment], completed=done, total=to_do or None, detail=f"{done}/{to_do} frames")

    def note(self, text: str, style: str | None = None) -> None:
        """Print ``text`` above the bars."""
        self._console.print(one_line(text), style=style, markup=False, soft_wrap=True)

    def finish(self, report: Report, report_path: str | None) -> None:
        """Print the proof on stdout."""
        self.close()
        for line in proof_lines(report, report_path, frozenset(self._told)):
            self._stdout.line(line)
