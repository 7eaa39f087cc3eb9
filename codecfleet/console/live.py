"""Views of a running job: a live bar on a terminal, plain lines elsewhere, JSON lines for programs, or nothing.

Progress goes to stderr and results go to stdout. The output of a view depends only on the job's events.
"""

from typing import TYPE_CHECKING, Final, Self, TextIO

from ..errors import one_line
from ..jobs.report.events import Done, Event, JournalOpened, Planned, Progress, SegmentFinished, StageStarted, Warned
from ..jobs.report.report import Report
from .output import Display, JsonLines, Output
from .text import pace_text, planned_text, proof_lines, restored_text, segment_text, stage_text

if TYPE_CHECKING:
    from rich.progress import TaskID

_PLAIN_EVERY_S: Final = 5.0
_SEGMENT_ROWS: Final = 8
_LONG_STAGES: Final = frozenset({"startup", "probe", "gather", "proof"})
"""The stages that a log mentions; every other stage is short or has its own output."""


class View(Display):
    """Shows one job; this base class shows nothing (``--quiet``). All methods raise ReaderGone if stdout was closed."""

    def show(self, event: Event) -> None:
        """Show one event."""

    def note(self, text: str, style: str | None = None) -> None:
        """Show a message that is not an event."""

    def finish(self, report: Report, report_path: str | None) -> None:
        """Show the result of a finished job."""


class JsonView(View):
    """Prints each event as a line of JSON on stdout."""

    def __init__(self, stdout: Output, stderr: Output) -> None:
        self._lines = JsonLines(stdout, stderr)

    def show(self, event: Event) -> None:
        self._lines.write(event.to_json())


class ProofView(View):
    """Prints the proof at the end. Passes the plan and each warning to ``note``, which some subclasses print."""

    def __init__(self, stdout: Output) -> None:
        self._stdout = stdout
        self._plan: Planned | None = None
        self._shown: set[str] = set()

    def show(self, event: Event) -> None:
        match event:
            case Planned():
                self._plan = event
                self.note(planned_text(event))
            case JournalOpened() if event.restored or event.redone:
                self.note(restored_text(event))
            case Warned():
                self._shown.add(event.message)
                self.note(f"warning: {event.message} [{event.code}]", style="yellow")

    def finish(self, report: Report, report_path: str | None) -> None:
        self.close()
        for line in proof_lines(report, report_path, frozenset(self._shown)):
            self._stdout.line(line)


class PlainView(ProofView):
    """Prints whole lines for logs and pipes: every finished segment, and progress every five seconds."""

    def __init__(self, stdout: Output, stderr: Output) -> None:
        super().__init__(stdout)
        self._stderr = stderr
        self._progress_at_s = 0.0

    def show(self, event: Event) -> None:
        super().show(event)
        match event:
            case StageStarted() if event.stage in _LONG_STAGES:
                self.note(stage_text(event))
            case SegmentFinished():
                self.note(segment_text(event))
            case Progress() if event.at_s - self._progress_at_s >= _PLAIN_EVERY_S:
                self._progress_at_s = event.at_s
                self.note(pace_text(event, self._plan))

    def note(self, text: str, style: str | None = None) -> None:
        del style
        self._stderr.log(text)


class RichView(ProofView):
    """Shows live bars on a terminal: one for the whole job, and one for each running segment."""

    def __init__(self, stdout: Output, stderr: TextIO) -> None:
        # Imported only here, because the import of rich takes a tenth of a second.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

        super().__init__(stdout)
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
        # All rows are made now, so that their order never changes.
        self._rows = [self._bars.add_task("", total=None, detail="", visible=False) for _ in range(_SEGMENT_ROWS)]
        self._more: TaskID = self._bars.add_task("", total=None, detail="", visible=False)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def close(self) -> None:
        self._bars.stop()

    def show(self, event: Event) -> None:
        super().show(event)
        match event:
            case StageStarted():
                self._bars.update(self._whole, description=stage_text(event))
            case Planned():
                self._bars.update(self._whole, total=event.frames or None)
            case Progress():
                self._show_progress(event)
            case Done():
                self.close()

    def _show_progress(self, event: Progress) -> None:
        total, pace = event.frames_total or None, pace_text(event, self._plan)
        self._bars.update(self._whole, completed=event.frames_done, total=total, detail=pace)
        for row, task in enumerate(self._rows):
            self._show_segment(task, event.running[row : row + 1])
        hidden = len(event.running) - _SEGMENT_ROWS
        self._bars.update(self._more, visible=hidden > 0, description=f"  and {hidden} more")

    def _show_segment(self, task: "TaskID", running: tuple[tuple[int, int, int], ...]) -> None:
        """Show ``running``, which is at most one segment, in a row; hide the row if there is none."""
        for segment, done, to_do in running:
            name, detail = f"segment {segment}", f"{done}/{to_do} frames"
            self._bars.update(task, description=name, completed=done, total=to_do or None, detail=detail)
        self._bars.update(task, visible=bool(running))

    def note(self, text: str, style: str | None = None) -> None:
        self._console.print(one_line(text), style=style, markup=False, soft_wrap=True)
