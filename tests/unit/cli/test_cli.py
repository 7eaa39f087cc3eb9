"""The command line, from arguments to exit code, with a fleet that plays a script."""

import io
import json
import os
from contextlib import redirect_stderr, redirect_stdout
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codecfleet.cli.app import parse, run
from codecfleet.cli.commands.transcode import Transcode
from codecfleet.cli.services import Answer, Services
from codecfleet.errors import (
    CodecfleetError,
    InputNotFound,
    OutputExists,
    SegmentFailed,
    WouldLose,
)
from codecfleet.jobs.report.events import JournalOpened, Planned
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing.fleet.fake_fleet import FakeFleet, sample_events, sample_report

Captured = pytest.CaptureFixture[str]


def services_with(fleet: FakeFleet) -> Services:
    """Return services that open ``fleet`` for every job."""
    return Services(open_fleet=fleet.open)


def transcoded(*options: str, fleet: FakeFleet | None = None) -> int:
    """Run a transcode on a fleet, by default one that plays a whole job; return the exit code."""
    return run(["transcode", "in.mkv", "out.mp4", *options], services_with(fleet or FakeFleet(sample_events())))


def spec_of(*arguments: str) -> TranscodeSpec:
    """Return the spec for ``transcode in.mkv out.mp4`` with ``arguments``."""
    request = parse(["transcode", "in.mkv", "out.mp4", *arguments])
    assert isinstance(request, Transcode)
    return request.spec


def test_no_option_is_the_documented_default() -> None:
    """Without options, the spec is the default of the model."""
    assert spec_of() == TranscodeSpec(source="in.mkv", output="out.mp4")


@pytest.mark.parametrize("line", ["--help", "-h", "--version", "transcode --help", "probe -h", "plan -h", "verify -h"])
def test_asking_for_help_is_no_mistake(line: str, capsys: Captured) -> None:
    """Help and version go to stdout with exit code 0."""
    assert run(line.split()) == 0
    out, err = capsys.readouterr()
    assert "codecfleet" in out
    assert err == ""


def test_a_finished_job_of_a_queue_tells_what_it_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As JSON, on the descriptor of its driver, with the place of its record."""
    told = os.memfd_create("told")
    monkeypatch.setenv("CODECFLEET_FAILURE_FD", str(told))
    opened = JournalOpened(job="job-1", at_s=0.1, work="/films/.out.mp4.codecfleet", restored=0, redone=0)
    assert transcoded("--quiet", fleet=FakeFleet([opened, *sample_events()])) == 0
    facts = json.loads(os.pread(told, 1 << 16, 0))
    assert facts == {"used": list(sample_report().used), "record": "/films/.out.mp4.codecfleet"}
    os.close(told)


def test_a_finished_job_prints_its_proof(capsys: Captured) -> None:
    """At the end, stdout has the proof and the place of the output; progress went to stderr."""
    fleet = FakeFleet(sample_events(segments=3))
    assert transcoded("--workers", "2", fleet=fleet) == 0
    out, err = capsys.readouterr()
    assert fleet.opened_with == (None, 2)
    assert "720 in, 720 out, 720 read back: every frame appears once" in out
    assert "5a" * 32 in out
    assert "2 of 2 agree" in out
    assert "0 s to 29.958333 s, each equal" in out
    assert "out.mp4" in out
    assert "segment 2 finished" in err
    assert "data track 2" in err
    assert "data track 2" not in out


def test_json_is_one_event_a_line_and_nothing_else(capsys: Captured) -> None:
    """Every line of stdout is an event of the schema, the last one is ``done``, and stderr stays empty."""
    assert transcoded("--json") == 0
    out, err = capsys.readouterr()
    events = [json.loads(line) for line in out.splitlines()]
    assert {event["schema"] for event in events} == {1}
    assert events[0]["event"] == "planned"
    assert events[-1]["event"] == "done"
    assert events[-1]["report"]["proof"]["output_sha256"] == "5a" * 32
    assert err == ""


def test_quiet_prints_nothing(capsys: Captured) -> None:
    """With --quiet a job that succeeds is silent."""
    assert transcoded("--quiet") == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "error",
    [
        InputNotFound("there is no file in.mkv", "Check the path."),
        OutputExists("out.mp4 exists", "Give --overwrite."),
        WouldLose("a line\nwith a break and \x1b[31mcolour", "Drop --strict."),
        SegmentFailed("segment 3 failed 4 times"),
    ],
)
@pytest.mark.parametrize("mode", [[], ["--quiet"], ["--json"]])
def test_a_failed_job_is_one_line_and_its_exit_code(error: CodecfleetError, mode: list[str], capsys: Captured) -> None:
    """A job's error is one clean line on stderr, whatever text it has; with --json, it is also the last event."""
    fleet = FakeFleet(sample_events()[:3], error=error)
    assert transcoded(*mode, fleet=fleet) == error.exit_code
    out, err = capsys.readouterr()
    last = err.splitlines()[-1]
    assert last.startswith("codecfleet: error: ")
    assert "\x1b" not in err
    if mode == ["--json"]:
        event = json.loads(out.splitlines()[-1])
        assert (event["event"], event["error"]) == ("failed", type(error).__name__)
        assert event["exit_code"] == error.exit_code
    else:
        assert out == ""


def test_an_unexpected_error_is_one_line_and_exit_5(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error is one line with the error's type and the way to get the traceback."""
    monkeypatch.delenv("CODECFLEET_DEBUG", raising=False)
    fleet = FakeFleet(error=ZeroDivisionError("division\nby zero"))
    assert transcoded(fleet=fleet) == 5
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "ZeroDivisionError: division by zero" in err
    assert "CODECFLEET_DEBUG=1" in err


def test_the_traceback_is_there_for_who_asks(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """CODECFLEET_DEBUG=1 prints the traceback before the line."""
    monkeypatch.setenv("CODECFLEET_DEBUG", "1")
    transcoded(fleet=FakeFleet(error=ZeroDivisionError("oops")))
    assert "Traceback" in capsys.readouterr().err


def test_errors_in_a_group_are_told_by_their_only_member(capsys: Captured) -> None:
    """The error within an exception group decides the message and the exit code."""
    error = ExceptionGroup("tasks", [ExceptionGroup("more", [InputNotFound("there is no file x")])])
    assert transcoded(fleet=FakeFleet(error=error)) == 3
    assert "there is no file x" in capsys.readouterr().err


def test_the_report_is_written_whole(tmp_path: Path, capsys: Captured) -> None:
    """--report writes the report as JSON, replaces an older one, leaves no other file, and prints the report's path."""
    target = tmp_path / "report.json"
    target.write_text("old")
    assert transcoded("--report", str(target)) == 0
    assert json.loads(target.read_text())["proof"]["frames_in"] == 720
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    assert str(target) in capsys.readouterr().out


@pytest.mark.parametrize("name", ["missing/report.json", "."])
def test_a_report_that_cannot_be_written_is_told_before_the_work(name: str, tmp_path: Path, capsys: Captured) -> None:
    """A report in a folder that does not exist is refused before any work: exit code 4, and no job starts."""
    fleet = FakeFleet(sample_events())
    report = str(tmp_path / name)
    assert transcoded("--report", report, fleet=fleet) == 4
    assert fleet.specs == []
    assert capsys.readouterr().err.count("\n") == 1


def test_questions_print_their_lines_or_one_document(capsys: Captured) -> None:
    """Probe, plan and verify print lines for people, without control characters, or one JSON document."""
    services = Services(
        probe=lambda source: Answer([f"  file {source}\x1b[31m"], {"source": source, "rate": float("nan")})
    )
    assert run(["probe", "in.mkv"], services) == 0
    assert capsys.readouterr().out == "  file in.mkv\\x1b[31m\n"
    assert run(["probe", "in.mkv", "--json"], services) == 0
    assert json.loads(capsys.readouterr().out) == {"source": "in.mkv", "rate": None}


@pytest.mark.parametrize("exact", [True, False])
def test_verify_answers_with_its_exit_code(*, exact: bool) -> None:
    """The exit code of verify is 0 if the files agree, and 1 if they differ."""
    services = Services(verify=lambda _pair, _progress: Answer(["..."], {}, exact))
    assert run(["verify", "in.mkv", "out.mp4"], services) == int(not exact)


def test_planned_without_frames_shows_no_speed(capsys: Captured) -> None:
    """An index without frames causes no division by zero."""
    script = [Planned("job-1", 0.1, 1, 0, Fraction(0), "h264", "libx264", 1), *sample_events(segments=1)[2:]]
    assert transcoded(fleet=FakeFleet(script)) == 0
    assert "1 segment" in capsys.readouterr().err


_WORDS = st.one_of(
    st.sampled_from(["transcode", "probe", "plan", "verify", "in.mkv", "out.mp4", "--", "-", "--json", "--quiet"]),
    st.sampled_from(["--bitrate", "--start", "--end", "--scale", "--workers", "--audio-track", "--report", "--preset"]),
    st.sampled_from(
        ["4M", "-1", "nan", "1:30", "0", "720p", "inf", "1e9", "a=b", "-5M", "--start=-1", "--bitrate=NaN"]
    ),
    st.text(max_size=8).filter(lambda text: text not in {"--help", "-h", "--version"}),
)


@given(st.lists(_WORDS, max_size=8))
@settings(deadline=None)
def test_no_command_line_does_anything_but_run_or_be_refused_in_one_line(words: list[str]) -> None:
    """Any command line either runs, or is refused in one line with exit code 2."""
    answer = Answer([], {})
    services = Services(
        open_fleet=FakeFleet(sample_events()).open,
        probe=lambda _source: answer,
        plan=lambda _spec, _on: answer,
        verify=lambda _pair, _progress: answer,
    )
    out, err = io.StringIO(), io.StringIO()
    words = [word for word in words if word != "--report"]
    with redirect_stdout(out), redirect_stderr(err):
        code = run(words, services)
    assert code in {0, 2}
    if code == 2:
        assert out.getvalue() == ""
        assert err.getvalue().count("\n") == 1


def test_a_missing_command_names_them_all(capsys: Captured) -> None:
    """Without a command, the error lists every command that --help lists."""
    assert run([], Services()) == 2
    said = capsys.readouterr().err
    for name in ("transcode", "infer", "devices", "status", "drain", "cordon", "uncordon"):
        assert name in said
