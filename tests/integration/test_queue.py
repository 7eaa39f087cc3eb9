"""Jobs of a queue, run by real drivers that are killed, frozen or stopped in the middle."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import psutil
import pytest

from codecfleet import Fleet, Queue, QueueState, TranscodeSpec
from codecfleet.cli.app import run as command_line
from codecfleet.cluster.queue.background import driver_lock
from codecfleet.cluster.queue.sqlite import SqliteStore
from codecfleet.cluster.queue.values import RunEnd, Usage
from codecfleet.errors import QueueFull
from codecfleet.jobs.journal.found_work import find_work
from codecfleet.jobs.verify.job import verify
from codecfleet.testing import LocalPool
from tests.live_processes import is_live
from tests.postgres_server import postgres_server
from tests.queue_drivers import end_drivers

from .local_jobs import film
from .test_killed_programs import gone

__all__ = ["film"]

LEASE_S = 6
SLOW = pytest.mark.slow


@pytest.fixture(params=["file", pytest.param("database", marks=SLOW)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A queue in a file, and a queue in a database."""
    if request.param == "file":
        yield str(tmp_path / "queue.sqlite")
        return
    with postgres_server() as server:
        yield server.url


@contextmanager
def driver(place: str) -> Iterator[psutil.Process]:
    """Run a driver as a program, and kill its remaining processes at the end."""
    command = [sys.executable, "-P", "-m", "codecfleet", "driver", "--queue", place]
    command += ["--lease-seconds", str(LEASE_S)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        found = psutil.Process(process.pid)
        try:
            yield found
        finally:
            family = found.children(recursive=True) if process.poll() is None else []
            process.kill()
            assert gone(family)


async def until(holds: Callable[[], bool], within_s: float = 60) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - files have no events
            await asyncio.sleep(0.02)


def arguments(film: Path, output: Path, report: Path, scale: str = "384x216") -> list[str]:
    """Return the arguments of a job with six segments."""
    options = ["--segment-seconds", "1", "--preset", "6", "--scale", scale, "--workers", "1", "--end", "6"]
    return ["transcode", *options, "--report", str(report), str(film), str(output)]


def finished(output: Path) -> int:
    """Return how many segments of an output's job are finished."""
    return sum(work.found.segments_done for work in find_work(str(output.parent)))


@contextmanager
def outside_of_a_transaction(place: str) -> Iterator[None]:
    """Lock the queue's file against drivers: a driver that is frozen inside a transaction would block it."""
    if place.startswith("postgresql"):
        yield  # The server ends such a transaction.
        return
    store = SqliteStore(Path(place))
    with store.transaction():
        yield
    store.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=SLOW), pytest.param(signal.SIGTERM, marks=SLOW)]
)
async def test_a_job_whose_driver_ends_goes_on_from_its_journal(
    how: signal.Signals, place: str, film: Path, tmp_path: Path
) -> None:
    """After a driver is killed, frozen or stopped, the next one finishes the film from the finished segments."""
    output, report = tmp_path / "o.mp4", tmp_path / "report.json"
    async with Queue(place, starts_driver=False) as queue:
        # A frozen driver's job is released only at its guard's deadline, and must not be finished before.
        scale = "960x540" if how is signal.SIGSTOP else "384x216"
        job = await queue.submit(arguments(film, output, report, scale), job_id="film")
        with driver(place) as first:
            await until(lambda: finished(output) >= 3)
            family = first.children(recursive=True)
            with outside_of_a_transaction(place):
                first.send_signal(how)
            await until(lambda: not any(map(is_live, family)), 10)
            if how is not signal.SIGTERM:  # The driver's work has ended before another one can claim the job.
                assert (await queue.get("film")).state is QueueState.RUNNING
            if how is signal.SIGTERM:
                await until(lambda: not is_live(first), 20)
                assert (await queue.get("film")).state is QueueState.QUEUED
            done = finished(output)
            with driver(place):
                ended = await asyncio.wait_for(queue.wait("film"), 150)
            if how is signal.SIGSTOP:
                first.send_signal(signal.SIGCONT)
        printed = (await queue.output("film")).text
    lost = how is not signal.SIGTERM
    assert (ended.state, ended.message) == (QueueState.DONE, "")
    assert (ended.attempt, ended.losses, ended.failures) == (2, lost, 0)
    assert ended.number == job.number
    assert printed.count("codecfleet: attempt ") == 2
    told = json.loads(report.read_text())
    assert done >= 3
    assert told["resumed"]["restored"] == done
    assert told["resumed"]["redone"] <= 1  # the segment that its only worker was encoding
    assert [each["restored"] for each in told["segments"]].count(True) == done
    assert verify(film, output, report=report).exact


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command line, and return its exit code and what it printed."""
    code = command_line(list(arguments))
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def own_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """This user's queue; its driver is stopped at the end."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "state" / "codecfleet" / "queue.sqlite"
    yield path
    end_drivers(path)


def test_a_submitted_command_needs_no_more_attention(
    own_queue: Path, film: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints its id at once, a driver starts, and every subcommand about jobs finds it."""
    submitted = ["submit", "--id", "small", "transcode", str(film), "small.mp4", "--preset", "1", "--end", "1"]
    code, out, err = command(capsys, *submitted)
    assert (code, out) == (0, "small\n")
    assert "`codecfleet jobs logs small --follow` shows it" in err
    with driver_lock(own_queue) as is_free:
        assert not is_free
    code, out, err = command(capsys, "jobs", "logs", "small", "--follow")
    assert code == 0
    assert "small.mp4" in out
    assert (tmp_path / "small.mp4").is_file()
    assert command(capsys, *submitted)[:2] == (0, "small\n")
    code, out, _ = command(capsys, "jobs", "list", "--json")
    (job,) = json.loads(out)["jobs"]
    assert (code, job["state"], job["attempts"], job["exit_code"]) == (0, "done", 1, 0)
    assert job["core_s"] > 0
    assert (job["gpu_s"], job["written_bytes"]) == (0, (tmp_path / "small.mp4").stat().st_size)
    code, out, _ = command(capsys, "jobs", "show", "small")
    assert (code, out.splitlines()[1].split()) == (0, ["state", "done"])
    for refused in ("retry", "show"):
        assert command(capsys, "jobs", refused, "small" if refused == "retry" else "big")[0] == 2


async def test_a_submitted_spec_gives_the_bytes_of_a_fleet(own_queue: Path, film: Path, tmp_path: Path) -> None:
    """At an exact time that is no decimal number."""
    spec = TranscodeSpec(source=film, output="queued.mp4", preset=1, start_s=Fraction(1001, 30000), end_s=1)
    async with Queue(own_queue) as queue:
        job = await queue.submit(spec)
        assert (await asyncio.wait_for(queue.wait(job.job_id), 60)).state is QueueState.DONE
    async with Fleet(pool=LocalPool(1)) as fleet:
        await (await fleet.transcode(spec.model_copy(update={"output": "direct.mp4"})))
    assert (tmp_path / "queued.mp4").read_bytes() == (tmp_path / "direct.mp4").read_bytes()


@pytest.mark.usefixtures("own_queue")
def test_jobs_of_a_queue_are_cancelled_retried_and_moved(
    film: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A running job ends within seconds; a failed one is shown with its own exit code."""
    assert command(capsys, "submit", "--id", "missing", "verify", "a.mkv", "b.mp4")[0] == 0
    long = arguments(film, tmp_path / "o.mp4", tmp_path / "report", scale="1920x1080")
    assert command(capsys, "submit", "--id", "long", *long)[0] == 0
    code, _, err = command(capsys, "jobs", "logs", "missing", "--follow")
    assert (code, "there is no file a.mkv" in err) == (3, True)
    assert command(capsys, "jobs", "priority", "long", "7")[0] == 0
    code, out, _ = command(capsys, "jobs", "cancel", "long", "--json")
    assert (code, json.loads(out)["jobs"][0]["priority"]) == (0, 7)
    code, _, err = command(capsys, "jobs", "logs", "long", "--follow")
    assert (code, err.splitlines()[-1]) == (130, "codecfleet: error: job long was cancelled")
    assert command(capsys, "jobs", "retry", "missing")[0] == 0


async def test_a_job_without_a_driver_gets_one_from_who_follows_it(
    own_queue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Following a job that no driver runs, as after a reboot, starts a driver and shows the job to its end."""
    async with Queue(own_queue, starts_driver=False) as queue:
        await queue.submit(["verify", "a.mkv", "b.mp4"], job_id="a", folder=own_queue.parent)
    code, _, err = await asyncio.to_thread(command, capsys, "jobs", "logs", "a", "--follow")
    assert (code, "there is no file a.mkv" in err) == (3, True)
    with driver_lock(own_queue) as is_free:
        assert not is_free


def test_a_queue_that_is_wrong_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing file, database, server or place for a queue has its own exit code."""
    (tmp_path / "rubbish").write_text("no database " * 100)
    cases: list[tuple[int, str, object]] = [
        (2, "there is no queue", tmp_path / "none"),
        (5, "cannot be read", tmp_path / "rubbish"),
        (5, "failed", "postgresql://127.0.0.1:1/none"),
        (2, "cannot hold a queue", "redis://there"),
    ]
    for code, words, place in cases:
        found, out, err = command(capsys, "jobs", "list", "--queue", str(place))
        assert (found, out, err.count("\n")) == (code, "", 1)
        assert words in err


async def test_a_full_queue_refuses_its_tenant(tmp_path: Path) -> None:
    """A full queue refuses its tenant's jobs, but accepts another tenant's."""
    async with Queue(tmp_path / "queue.sqlite", starts_driver=False) as queue:
        for number in range(3):
            await queue.submit(["verify", "a", "b"], job_id=str(number), queued_max=3)
        with pytest.raises(QueueFull) as caught:
            await queue.submit(["verify", "a", "b"], queued_max=3)
        assert caught.value.exit_code == 4
        other = await queue.submit(["verify", "a", "b"], tenant="another", queued_max=3)
        assert other.state is QueueState.QUEUED
        assert len(await queue.list([QueueState.QUEUED])) == 4


def test_tenants_have_tokens_and_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A submit needs a valid token, and must keep to the policy; each refusal is one line with its exit code."""
    place, policy, token = tmp_path / "queue.sqlite", tmp_path / "policy.toml", tmp_path / "token"
    limits = "queued_max = 2\npriority_max = 3\ncore_hours_max = 0.0001\n"
    policy.write_text(f"[default]\n{limits}[prices]\ncore_hour = 3600.0\n")

    def ask(*arguments: str) -> tuple[int, str, str]:
        return command(capsys, *arguments[:1], "--queue", str(place), *arguments[1:])

    def refused(code: int, words: str, *arguments: str) -> None:
        found, out, err = ask(*arguments)
        assert (found, out, err.count("\n")) == (code, "", 1), err
        assert words in err

    submit = ("submit", "verify", "a.mkv", "b.mp4")
    with driver_lock(place):  # so that no driver starts
        refused(2, "there is no queue", "tenants", "list")
        assert ask("tenants", "policy", str(policy))[:2] == (0, "no tenants\n")
        assert ask(*submit)[0] == 0
        code, out, _ = ask("tenants", "token", "films")
        token.write_text(out)
        refused(4, "only from tenants with a token", *submit)
        monkeypatch.setenv("CODECFLEET_QUEUE_TOKEN", str(token))
        for name in ("one", "two"):
            assert ask("submit", "--id", name, *submit[1:])[0] == 0
        refused(4, "the queue is full: films has 2 jobs in it, 2 at most", *submit)
        refused(4, "a priority of 3 at most, not 4", "jobs", "priority", "one", "4")
        refused(4, "belongs to films, not to other", "submit", "--tenant", "other", *submit[1:])
        assert ask("jobs", "cancel", "one")[0] == 0
        refused(4, "a priority of 3 at most, not 4", "submit", "--priority", "4", *submit[1:])
        assert ask("tenants", "revoke", "films")[0] == 0
        refused(4, "the token of films was revoked", *submit)
        refused(2, "no valid token of films", "tenants", "revoke", "films")
        token.write_text("cfq-0")
        refused(4, "does not know this token", *submit)
        token.write_text("\n")
        refused(2, f"the token's file {token} is empty", *submit)
        token.unlink()
        refused(2, f"the token's file {token} cannot be read", *submit)
        policy.write_text("[default]\nslots = 2\n")
        refused(2, "default.slots: extra inputs", "tenants", "policy", str(policy))
        refused(2, "cannot be read", "tenants", "policy", str(tmp_path / "none"))
        code, out, _ = ask("jobs", "list", "--json")
        assert (code, [job["tenant"] for job in json.loads(out)["jobs"]][1:]) == (0, ["films", "films"])
        store = SqliteStore(place)
        for job in store.claim("driver", 9, 30.0):
            store.end(job.claim, RunEnd(0, used=Usage(0.5, 0.0, 7)))
        store.close()
        code, out, _ = ask("tenants", "list", "--json")
        films = json.loads(out)["tenants"][0]
        assert (code, films["tenant"], films["token"], films["exceeded"]) == (0, "films", "revoked", "core_hours_max")
        code, out, _ = ask("usage", "--by", "job", "--json")
        rows = json.loads(out)["usage"]
        assert (code, rows[0]["job_id"], rows[0]["cost"], len(rows)) == (0, "two", 0.5, 2)
        assert ask("usage", "--since", "0")[:2] == (0, "no attempts have ended\n")
        assert "0.5000" in ask("jobs", "list")[1]
        assert "0.5 core s, 0.0 GPU s, 7 bytes" in ask("jobs", "show", "two")[1]
