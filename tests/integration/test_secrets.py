"""A secret in an address is used but never shown, in anything that a command prints, writes or leaves."""

import re
import shutil
import stat
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet.actors.backoff import Backoff
from codecfleet.cli.app import run
from codecfleet.cluster.logs.entry import is_entry

from .attacks import ON_THREADS, QUICK, clip
from .local_jobs import film, spec_of
from .test_bad_addresses import web
from .test_resume import interrupted

__all__ = ["clip", "film", "web"]

HIDDEN = "Hidden0Value"
Said = Callable[[], str]


@pytest.fixture
def address(web: str) -> str:
    """The clip's address, with a password and a signature."""
    host = web.removeprefix("http://")
    return f"http://me:{HIDDEN}@{host}/clip.mp4?X-Amz-Signature={HIDDEN}&part=1"


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Said:
    """Return what was printed and logged since the last call."""

    def read() -> str:
        caught = capfd.readouterr()
        return f"{caught.out}{caught.err}{caplog.text}"

    return read


@pytest.mark.parametrize("view", [[], ["--json"], ["--quiet"]])
def test_a_transcode_shows_no_secret(view: list[str], address: str, tmp_path: Path, said: Said) -> None:
    """Progress, events and the report file show the address without its secrets."""
    output, report = tmp_path / "o.mp4", tmp_path / "report.json"
    code = run(["transcode", *QUICK, *view, address, str(output), "--report", str(report)], ON_THREADS)
    assert code == 0
    text = said() + report.read_text()
    assert HIDDEN not in text
    assert "me:***@" in text
    assert "X-Amz-Signature=***&part=1" in text
    assert run(["verify", *(view if view == ["--json"] else []), address, str(output)], ON_THREADS) == 0
    assert HIDDEN not in said()


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_log_shows_no_secret(
    style: str, address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stderr has log entries instead of progress, for jobs and batches that succeed or fail; stdout has the answer."""
    monkeypatch.setenv("CODECFLEET_LOG", style)
    assert run(["transcode", *QUICK, address, str(tmp_path / "o.mp4")], ON_THREADS) == 0
    out, err = capfd.readouterr()
    assert "SHA-256" in out
    assert all(map(is_entry, err.splitlines()))
    assert "job.done" in err
    listed = tmp_path / "films.txt"
    listed.write_text(f"{address}\n{address.replace('/clip.mp4', '/none.mp4')}\n")
    assert run(["batch", *QUICK, str(listed), "--output", str(tmp_path / "small")], ON_THREADS) == 3
    batch = capfd.readouterr()
    assert "1 of 2 done" in batch.out
    assert re.search(r"file\.done.*me:\*\*\*@", batch.err)
    assert re.search(r"file\.failed.*me:\*\*\*@", batch.err)
    assert HIDDEN not in out + err + batch.out + batch.err


@pytest.mark.parametrize("command", [["probe"], ["probe", "--json"], ["plan"], ["plan", "--json"]])
def test_a_question_shows_no_secret(command: list[str], address: str, tmp_path: Path, said: Said) -> None:
    """Commands that only read show no secret either."""
    where = [str(tmp_path / "o.mp4")] if command[0] == "plan" else []
    assert run([*command, address, *where], ON_THREADS) == 0
    text = said()
    assert HIDDEN not in text
    assert "***" in text


@pytest.mark.parametrize("name", ["none.mp4", "403", "500", "breaks-off.mp4", ""])
@pytest.mark.parametrize("view", [[], ["--json"]])
def test_a_failure_shows_no_secret(
    name: str, view: list[str], address: str, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error line, whatever its origin, and a requested traceback show no secret."""
    monkeypatch.setattr("codecfleet.actors.media.storage_retry.PAUSES", Backoff(0, 0))
    monkeypatch.setenv("CODECFLEET_DEBUG", "1")
    source = address.replace("/clip.mp4", f"/{name}")
    assert run(["transcode", *view, source, "memory://films/o.mp4"], ON_THREADS) in (3, 5)
    text = said()
    assert "Traceback" in text
    assert re.search(r"error: .*me:\*\*\*@", text)
    assert HIDDEN not in text


def test_unfinished_work_shows_no_secret(address: str, clip: Path, film: Path, tmp_path: Path, said: Said) -> None:
    """A list of jobs and its hint to resume show no secret; the journal has the address, for its owner only."""
    shutil.copyfile(film, clip.with_name("film.mp4"))
    source = address.replace("/clip.mp4", "/film.mp4")
    spec = spec_of(source, tmp_path / "out" / "o.mp4", segment_s=Fraction(1), scale=(160, 120), preset=1)
    interrupted(spec, after=2)
    folder = tmp_path / "out" / ".o.mp4.codecfleet"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert run(["jobs", "unfinished", str(folder.parent)], ON_THREADS) == 0
    assert run(["jobs", "unfinished", str(folder)], ON_THREADS) == 0
    assert run(["jobs", "unfinished", "--json", str(folder.parent)], ON_THREADS) == 0
    assert run(["resume", str(folder)], ON_THREADS) == 0
    text = said()
    assert HIDDEN not in text
    assert "me:***@" in text
