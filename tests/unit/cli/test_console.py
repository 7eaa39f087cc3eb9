"""The lines that are shown about a job."""

import io
import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from codecfleet.console.live import JsonView, PlainView, RichView
from codecfleet.console.output import FrameCounter, Output, ReaderGone, json_line
from codecfleet.console.text import bytes_text, clock_text, pace_text, planned_text, proof_lines
from codecfleet.errors import one_line
from codecfleet.jobs.report.events import Planned, Progress, StageStarted, Warned
from codecfleet.jobs.report.report import BurnReport, Warning_
from codecfleet.testing.fleet.fake_fleet import sample_events, sample_report

PLAN = Planned("job-1", 0.5, 3, 720, Fraction(30), "h264", "libx264", 2)
PROGRESS = Progress("job-1", 6.0, 410, 720, 45.2, 6.8, ((1, 170, 240), (2, 0, 240)))


class ClosedPipe(io.StringIO):
    """A stream whose reader has left."""

    def write(self, text: str) -> int:
        """Fail as a closed pipe does."""
        raise BrokenPipeError(32, text)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (999_950, "1.0 MB"),
        (4_210_000, "4.2 MB"),
        (10**16, "10000.0 TB"),
    ],
)
def test_sizes_read_naturally(size_bytes: int, text: str) -> None:
    """Sizes have decimal units, and never show 1000.0 of a smaller unit."""
    assert bytes_text(size_bytes) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (725, "12:05"), (3723, "1:02:03")])
def test_lengths_of_time_read_like_a_clock(seconds: float, text: str) -> None:
    """Times are rounded before they are split, so no clock shows 60 seconds."""
    assert clock_text(seconds) == text


def test_the_plan_and_the_pace_are_one_line_each() -> None:
    """The lines have frames, fps, speed relative to real time, and time left, in plain words."""
    assert planned_text(PLAN) == "0:30 of video, 720 frames to h264 (libx264) in 3 segments on 2 workers"
    assert pace_text(PROGRESS, PLAN) == "410/720 frames, 45.2 fps, 1.88x real time, 0:07 left"
    assert pace_text(replace(PROGRESS, eta_s=None), None) == "410/720 frames, 45.2 fps"


@given(st.text())
def test_strangers_text_cannot_steer_the_terminal(text: str) -> None:
    """Any tag or file name becomes one printable line."""
    shown = one_line(text)
    assert shown.isprintable()


def test_speed_has_one_meaning() -> None:
    """The proof has the same fps and speed as progress: those of the encoding, without the start."""
    report = sample_report().model_copy(update={"fps": 48.0, "timings_s": {"startup": 99.0, "total": 115.5}})
    (line,) = (each for each in proof_lines(report, None) if each.startswith("speed"))
    assert line.split(maxsplit=1)[1] == "48.0 fps, 2.00x real time on 2 workers, 3 segments; 115.5 s in all"


def test_a_log_names_the_stages_that_take_time() -> None:
    """A log states when workers start, segments are joined and the output is read back, but no earlier stages."""
    err = io.StringIO()
    view = PlainView(Output(io.StringIO()), Output(err))
    begins = [StageStarted("job-1", 0.1, stage) for stage in ("index", "plan", "startup")]
    for event in (*begins, *sample_events(segments=1, in_flight=1)):
        view.show(event)
    said = [line.removeprefix("codecfleet: ") for line in err.getvalue().splitlines()]
    assert said[0] == "starting workers"
    assert said[-2:] == ["joining", "reading the output back"]


def test_the_proof_says_when_something_differs() -> None:
    """A difference is shown in capitals."""
    report = sample_report()
    wrong = report.model_copy(
        update={"proof": report.proof.model_copy(update={"output_frames": 719, "times_equal": False})}
    )
    text = "\n".join(proof_lines(wrong, None))
    assert text.count("DIFFERENT") == 2
    assert "DIFFERENT" not in "\n".join(proof_lines(report, None))


def test_warnings_are_told_once_and_never_flood() -> None:
    """Warnings that were shown earlier are counted, new ones are listed, and a thousand of them are cut short."""
    many = tuple(Warning_(code="odd", message=f"oddity {number}", checks=()) for number in range(1000))
    report = sample_report().model_copy(update={"warnings": many})
    lines = proof_lines(report, "r.json", frozenset({"oddity 0"}))
    assert any(line.split() == ["warnings", "1000"] for line in lines)
    assert not any("oddity 0 " in line for line in lines)
    assert len(lines) < 40
    assert lines[-1].split() == ["report", "r.json"]


def test_the_summary_says_what_was_changed_as_asked() -> None:
    """Each choice has a row, burnt-in subtitles are not called dropped, and the times of a part name its start."""
    choices = tuple(Warning_(code="size", message=message, checks=()) for message in ("it is cropped", "it is scaled"))
    subtitle = sample_report().tracks[0].model_copy(update={"kind": "subtitle", "source_index": 7, "action": "dropped"})
    burnt = BurnReport(source_index=7, sha256="", screen=("0", "0", "9", "9"), source=(9, 9), shape="1")
    fields = {"choices": choices, "start_s": "7/2", "burnt": burnt, "tracks": (subtitle,)}
    lines = proof_lines(sample_report().model_copy(update=fields), None)
    assert "tracks    subtitle burnt in" in lines
    at = lines.index("changes   it is cropped")
    assert lines[at + 1] == "          it is scaled"
    (times,) = [line for line in lines if line.startswith("times")]
    assert times.endswith("each the source's, counted from its first picture at or after 3.5 s")


def test_json_knows_no_nan() -> None:
    """Numbers that JSON lacks become null, however deeply they are nested."""
    line = json_line({"a": float("nan"), "b": [float("inf"), {"c": (1.5, -float("inf"))}]})
    assert json.loads(line) == {"a": None, "b": [None, {"c": [1.5, None]}]}


def test_plain_progress_is_a_line_every_five_seconds() -> None:
    """Frequent progress is thinned out by the time of the job; segments and warnings are all shown."""
    err = io.StringIO()
    view = PlainView(Output(io.StringIO()), Output(err))
    view.show(PLAN)
    for tenths in range(200):
        view.show(replace(PROGRESS, at_s=tenths / 10))
    view.show(Warned("job-1", 20.0, "odd", "an oddity"))
    lines = err.getvalue().splitlines()
    assert len(lines) == 1 + 3 + 1
    assert all(line.startswith("codecfleet: ") for line in lines)
    assert lines[-1] == "codecfleet: warning: an oddity [odd]"


def test_a_closed_log_does_not_stop_the_job() -> None:
    """A closed stderr costs the progress lines, but not the work."""
    PlainView(Output(io.StringIO()), Output(ClosedPipe())).show(PLAN)


def test_a_closed_stdout_stops_the_job() -> None:
    """A closed stdout ends a run that prints events there."""
    with pytest.raises(ReaderGone):
        JsonView(Output(ClosedPipe()), Output(io.StringIO())).show(PLAN)


class Terminal(io.StringIO):
    """A stream that pretends to be a terminal."""

    def isatty(self) -> bool:
        """Say yes."""
        return True


def test_the_live_bar_shows_the_job_and_leaves_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar shows percent, speed and segments in flight; afterwards, only whole lines and the cursor remain."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "140")
    out, err = io.StringIO(), Terminal()
    report = sample_report(segments=12)
    with RichView(Output(out), err) as view:
        for event in sample_events(segments=12, in_flight=10):
            view.show(event)
        view.finish(report, None)
    screen = Text.from_ansi(err.getvalue()).plain
    assert "0:30" not in out.getvalue()
    assert "2:00 of video" in screen
    assert "warning: data track 2" in screen
    assert err.getvalue().rfind("\x1b[?25h") > err.getvalue().rfind("\x1b[?25l")
    assert report.proof.output_sha256 in out.getvalue()


def rows(view: RichView) -> list[str]:
    """Return the visible rows below that of the whole job."""
    return [str(task.description) for task in view._bars.tasks[1:] if task.visible]


def test_the_rows_of_the_live_bar_follow_the_segments_in_flight() -> None:
    """Rows appear and disappear with segments and keep their order; beyond eight, segments are only counted."""
    view = RichView(Output(io.StringIO()), Terminal())
    view.show(PLAN)
    view.show(replace(PROGRESS, running=tuple((number, 1, 240) for number in range(12))))
    assert rows(view) == [f"segment {number}" for number in range(8)] + ["  and 4 more"]
    view.show(replace(PROGRESS, running=((7, 200, 240), (9, 1, 240))))
    assert rows(view) == ["segment 7", "segment 9"]
    view.show(replace(PROGRESS, running=((3, 1, 240), (7, 200, 240), (9, 1, 240))))
    assert rows(view) == ["segment 3", "segment 7", "segment 9"]


def test_a_counter_counts_on_one_line_that_is_gone_afterwards() -> None:
    """On a terminal, a count is shown from time to time; in a pipe, nothing is shown."""
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        with FrameCounter(stream, "inferred") as counter:
            for frames in (0, 3, 9, 12, 15, 40):
                counter.show(frames)
    assert terminal.getvalue() == "\r\x1b[K12 frames inferred\r\x1b[K40 frames inferred\r\x1b[K"
    assert pipe.getvalue() == ""
