"""The commands about Ray jobs, on a fake job server: what is submitted, shown and returned."""

import json
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codecfleet.cli.app import parse, run
from codecfleet.cli.services import Services
from codecfleet.cluster.submission.job_server import JobPhase, RayJob
from codecfleet.console.listings import job_json, job_rows
from codecfleet.testing import FakeJobServer

Captured = pytest.CaptureFixture[str]
LINE = "submit --installed --address http://head:8265 transcode a.mkv b.mp4 --codec hevc --overwrite"
"""Nothing is packed for it: that takes seconds."""


def services(server: FakeJobServer) -> Services:
    """Return the services that the commands call."""
    return Services(job_server=lambda _address: server)


def test_a_command_is_submitted_as_it_was_typed_and_ends_as_it_ends(capsys: Captured) -> None:
    """The submitted command keeps its options; its output goes to the same streams, and its exit code is returned."""
    end = RayJob("", JobPhase.FAILED, exit_code=3)
    server = FakeJobServer(["codecfleet: error: a.mkv is not there\noutput  none\n"], end)
    assert run(LINE.replace(" --installed", "").split(), services(server)) == 3
    ((job_id, entry),) = server.submitted.items()
    assert entry.arguments == ("transcode", "a.mkv", "b.mp4", "--codec", "hevc", "--overwrite")
    assert (entry.folder, entry.python) == (str(Path.cwd()), "python3")
    assert "jobs/fleet.py" in server.packages[0]
    said = capsys.readouterr()
    assert said.out == "output  none\n"
    first, second = said.err.splitlines()
    assert f"`codecfleet jobs logs {job_id} --address http://head:8265 --follow` shows it" in first
    assert second == "codecfleet: error: a.mkv is not there"


def test_without_waiting_the_name_is_all_that_is_printed(capsys: Captured) -> None:
    """With --no-wait the job continues; `jobs logs --follow` then shows its output and returns its exit code."""
    server = FakeJobServer(["output  b.mp4\n"], RayJob("", JobPhase.STOPPED))
    words = [
        "submit",
        "--address",
        "http://h",
        "--no-wait",
        "--installed",
        "--python",
        "/opt/py",
        "verify",
        "a.mkv",
        "b.mp4",
    ]
    assert run(words, services(server)) == 0
    said = capsys.readouterr()
    ((job_id, entry),) = server.submitted.items()
    assert (said.out, said.err) == (f"{job_id}\n", "")
    assert (server.packages, entry.python) == ([set()], "/opt/py")
    assert run(["jobs", "logs", job_id, "--follow", "--address", "http://h"], services(server)) == 130
    said = capsys.readouterr()
    assert said.out == "output  b.mp4\n"
    assert said.err == f"codecfleet: error: job {job_id} was stopped\n"


def test_one_that_ray_did_not_start_says_why(capsys: Captured) -> None:
    """If Ray did not start a job, the last line has Ray's reason."""
    server = FakeJobServer(end=RayJob("", JobPhase.FAILED, message="no such Python"))
    assert run(LINE.split(), services(server)) == 5
    assert capsys.readouterr().err.splitlines()[-1].endswith(": no such Python")


def test_an_interruption_ends_this_program_alone(capsys: Captured) -> None:
    """After an interruption the output says how to follow the job again, and the job is not stopped."""

    class Interrupted(FakeJobServer):
        async def log(self, job_id: str) -> AsyncIterator[str]:
            yield f"output  {job_id}\n"
            raise KeyboardInterrupt  # as the handler of Ctrl-C does, but without ending this process soon after

    server = Interrupted()
    assert run(LINE.split(), services(server)) == 130
    (job_id,) = server.submitted
    assert server.stopped == []
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"codecfleet: error: interrupted. The job goes on: `codecfleet jobs logs {job_id} ")


@pytest.fixture
def own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spec file in the current folder, and a preset of the user; return the preset's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    presets = tmp_path / "codecfleet" / "presets"
    presets.mkdir(parents=True)
    (presets / "mine.toml").write_text('# what I like: "quotes" and $HOME\ncodec = "hevc"\nquality = 21\n')
    (tmp_path / "film.toml").write_text("quality = 30\n")
    return presets


@pytest.mark.parametrize(
    "options",
    [
        "--preset mine",
        "--spec film.toml",
        "--spec=film.toml --preset mine --preset 6",
        "--preset web-h264",
        "--preset mine --quality 18",
    ],
)
def test_a_spec_file_and_a_preset_of_ones_own_go_with_the_command(
    options: str, own_files: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The user's files are sent, so a cluster without them runs the same command; built-in presets are not sent."""
    server, words = FakeJobServer(), ["transcode", "/a.mkv", "/b.mp4", *options.split()]
    here = parse(words)
    assert run(["submit", "--installed", "--address", "http://head:8265", *words], services(server)) == 0
    (entry,) = server.submitted.values()
    assert ("mine" in str(entry.variables)) is ("mine" in options)
    far = tmp_path_factory.mktemp("far")
    monkeypatch.chdir(far)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(far))
    assert own_files.parents[1] != far
    script = shlex.join([sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"])
    line = entry.shell_line.replace("python3 -P", f"{script} -P")
    sent = json.loads(subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout)
    for name in entry.variables:
        monkeypatch.setenv(name, sent[name])
    assert parse(list(entry.arguments)) == here


@pytest.mark.parametrize(
    ("parent", "is_sent"), [(f"00-{'a' * 32}-{'b' * 16}-01", True), ("a secret", False), ("", False)]
)
def test_a_command_belongs_to_the_span_of_who_submits_it(
    parent: str,
    is_sent: bool,  # noqa: FBT001 - a parameter
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A valid TRACEPARENT is sent with the command."""
    monkeypatch.setenv("TRACEPARENT", parent)
    server = FakeJobServer()
    line = "submit --installed --address http://head:8265 verify /a.mkv /b.mp4"
    assert run(line.split(), services(server)) == 0
    (entry,) = server.submitted.values()
    assert entry.variables == ({"TRACEPARENT": parent} if is_sent else {})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("quality = 21\n# s3://key:secret@bucket/a", "password"),
        (f"quality = 21\n# {'long ' * 8000}", "32768 at most can be sent"),
        ("quality = 'no'", "mine.toml:1"),
    ],
)
def test_files_that_must_not_travel_are_refused(text: str, named: str, own_files: Path, capsys: Captured) -> None:
    """Files with a secret, too much content or invalid content are refused in one line; nothing is submitted."""
    (own_files / "mine.toml").write_text(text)
    server = FakeJobServer()
    line = "submit --address http://h transcode a.mkv b.mp4 --preset mine"
    assert run(line.split(), services(server)) == 2
    assert server.submitted == {}
    assert named in capsys.readouterr().err


def test_help_of_a_submitted_command_is_shown_here(capsys: Captured) -> None:
    """Nothing is submitted."""
    server = FakeJobServer()
    assert run(["submit", "--address", "http://h", "transcode", "--help"], services(server)) == 0
    assert "--codec" in capsys.readouterr().out
    assert server.submitted == {}


def test_jobs_as_text_and_as_json() -> None:
    """Each job has a row, in which names cannot disturb a terminal; with --json all values are plain."""
    jobs = [
        RayJob("codecfleet-1", JobPhase.SUCCEEDED, "transcode \x1b[2J b.mp4", "ok", 0, 1000.0, 1065.0),
        RayJob("codecfleet-2", JobPhase.PENDING, "verify a b"),
        RayJob("codecfleet-3", JobPhase.RUNNING, "verify a b", started_utc_s=1990.0),
    ]
    rows = job_rows(jobs, 2000.0)
    assert [row.split()[:3] for row in rows[1:]] == [
        ["succeeded", "1:05", "codecfleet-1"],
        ["pending", "-", "codecfleet-2"],
        ["running", "0:10", "codecfleet-3"],
    ]
    assert "\\x1b[2J" in rows[1]
    assert job_rows([]) == ["no codecfleet jobs"]
    assert json.loads(json.dumps(job_json(jobs[0])))["exit_code"] == 0
