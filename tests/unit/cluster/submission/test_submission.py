"""Ray jobs without Ray: the requests to a cluster, and how a job is followed."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.submission.entry import Entry, copied_package, refuse_secrets
from codecfleet.cluster.submission.follow import Follower, LogLines, exit_code_of
from codecfleet.cluster.submission.job_server import JobPhase, JobServer, RayJob, named_job_server
from codecfleet.errors import FleetUnavailable, UsageError
from codecfleet.testing import FakeJobServer

ENTRY = Entry(("transcode", "a.mkv", "b.mp4"), "/films", "python3")
ECHO = "import json, os, sys; print(json.dumps([os.getcwd(), sys.argv[1:]]))"


async def no_rest(_seconds: float) -> None:
    """Do not wait."""


async def followed(server: FakeJobServer) -> tuple[RayJob, list[tuple[str, bool]]]:
    """Submit a job and follow it; return its end and the lines shown."""
    server.submit("codecfleet-1", ENTRY, None)
    shown: list[tuple[str, bool]] = []
    follower = Follower(server, lambda line, is_remark: shown.append((line, is_remark)), no_rest)
    return await follower.follow("codecfleet-1"), shown


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1))
def test_a_shell_gets_each_argument_as_it_is(arguments: list[str]) -> None:
    """Spaces, quotes and variables in names have no meaning for the cluster's shell."""
    line = Entry(tuple(arguments), "/it's a $HOME", "python3").shell_line
    folder, command = line.split(" 2>/dev/null; exec ", 1)
    assert shlex.split(folder) == ["cd", "/it's a $HOME"]
    assert shlex.split(command) == ["python3", "-P", "-u", "-m", "codecfleet", *arguments]


@pytest.mark.parametrize("is_there", [True, False])
def test_relative_names_count_from_the_folder_where_it_exists(is_there: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    """If the folder does not exist, the job starts in Ray's folder."""
    folder = tmp_path / "its own"
    if is_there:
        folder.mkdir()
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nshift 4\nexec {shlex.quote(sys.executable)} -c {shlex.quote(ECHO)} "$@"\n')
    program.chmod(0o700)
    entry = Entry(("verify", "a b", "$c"), str(folder), str(program))
    done = subprocess.run(["sh", "-c", entry.shell_line], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f'["{folder if is_there else tmp_path}", ["verify", "a b", "$c"]]\n'


@pytest.mark.parametrize(
    "argument",
    ["s3://key:secret@bucket/film.mkv", "--work=ftp://u:p@host/", "http://:p@h", "https://h/f?X-Amz-Signature=secret"],
)
def test_a_password_is_refused(argument: str) -> None:
    """A password in an address is refused, because a cluster shows the commands of its jobs."""
    with pytest.raises(UsageError, match="list of jobs") as caught:
        refuse_secrets(["transcode", argument, "b.mp4"])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("argument", ["s3://bucket/a:b@c.mkv", "http://host:80/film.mkv", "a:b@c", "tune=film"])
def test_other_names_are_no_passwords(argument: str) -> None:
    """Ports, and special characters in a path, are allowed."""
    refuse_secrets([argument])


def test_the_package_is_this_code_without_links_or_compiled_files() -> None:
    """The package can be imported, and is removed afterwards."""
    with copied_package() as package:
        names = {str(path.relative_to(package)) for path in package.rglob("*")}
        assert not any(path.is_symlink() or path.name == "__pycache__" for path in package.rglob("*"))
    assert package.name == "codecfleet"
    assert {"__init__.py", "jobs/fleet.py", "cluster/submission/entry.py", "configs/policy.toml"} <= names
    assert not package.exists()


async def test_a_job_is_followed_until_it_ends() -> None:
    """Lines arrive whole and in order, each on the stream to which the command wrote it; Ray's own are left out."""
    pieces = [
        "2026-11-24 19:12:58,753\tINFO job_manager.py:568 -- Runtime env is setting up.\n",
        "Running entrypoint for job codecfleet-1: cd /films\ncodecfleet: reading",
        " the index\noutput    b.mp4\n",
        "SHA-256   abc",
    ]
    job, shown = await followed(FakeJobServer(pieces, pending=2))
    assert shown == [("codecfleet: reading the index", True), ("output    b.mp4", False), ("SHA-256   abc", False)]
    assert (job.phase, exit_code_of(job)) == (JobPhase.SUCCEEDED, 0)


@given(st.text(alphabet="ab\n", max_size=30), st.lists(st.integers(0, 10), max_size=5), st.data())
def test_what_was_shown_is_not_shown_again(text: str, breaks: list[int], data: st.DataObject) -> None:
    """However often a log breaks off and begins again, each line is shown once, in order."""
    lines, found = LogLines(), list[str]()
    for until in [*breaks, len(text)]:
        lines.restart()
        at = data.draw(st.integers(0, len(text)))
        for piece in (text[: min(at, until)], text[min(at, until) : until]):
            found += lines.take(piece)
    found += lines.end()
    assert found == text.split("\n")[: None if text and not text.endswith("\n") else -1]


async def test_a_way_that_breaks_is_found_again() -> None:
    """Neither a log that breaks off nor a server that is away for a while costs a line or the job."""
    _, shown = await followed(FakeJobServer(["a\nb", "\nc\n"], breaks_after=(0, 1), refusals=3))
    assert [line for line, _ in shown] == ["a", "b", "c"]


async def test_a_server_that_stays_away() -> None:
    """After two minutes without the server, following ends; the job may continue."""
    with pytest.raises(FleetUnavailable, match="does not answer"):
        await followed(FakeJobServer(refusals=10_000))


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (RayJob("j", JobPhase.SUCCEEDED, exit_code=0), 0),
        (RayJob("j", JobPhase.FAILED, exit_code=3), 3),
        (RayJob("j", JobPhase.FAILED, exit_code=-9), 137),
        (RayJob("j", JobPhase.FAILED, message="no runtime environment"), 5),
        (RayJob("j", JobPhase.STOPPED), 130),
    ],
)
def test_the_exit_code_is_the_jobs(job: RayJob, code: int) -> None:
    """The exit code is that of the job, as a shell would report it."""
    assert exit_code_of(job) == code


def test_where_the_job_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """An explicit address precedes the environment, and the address of Ray itself is refused."""
    for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    assert named_job_server(None) is None
    monkeypatch.setenv("RAY_ADDRESS", "http://ray:8265")
    assert named_job_server(None) == "http://ray:8265"
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://api:8265")
    assert named_job_server(None) == "http://api:8265"
    assert named_job_server("http://named:8265") == "http://named:8265"
    with pytest.raises(UsageError, match="head:6379 is not the address of a job server"):
        JobServer("head:6379")
