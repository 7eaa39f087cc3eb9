"""Where ``--report`` may write."""

import json
import os
import socket
from pathlib import Path

import pytest

from codecfleet.cli.app import run
from codecfleet.cli.report_file import ReportFile
from codecfleet.errors import OutputUnwritable, StorageFailed
from codecfleet.testing.fleet.fake_fleet import sample_report

Captured = pytest.CaptureFixture[str]


def test_a_pipe_gets_the_report_as_a_stream(tmp_path: Path) -> None:
    """A pipe stays a pipe, and its reader gets the whole report."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with ReportFile(str(pipe)) as file:
        file.check()
        file.write(sample_report())
    assert os.read(reader, 1 << 16).startswith(b'{\n  "schema"')
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert pipe.is_fifo()


def test_a_pipe_without_a_reader_is_refused_before_the_work(tmp_path: Path) -> None:
    """A pipe without a reader is refused, because the wait for a reader might never end."""
    os.mkfifo(tmp_path / "pipe")
    with ReportFile(str(tmp_path / "pipe")) as file, pytest.raises(OutputUnwritable, match="nothing reads"):
        file.check()


def test_a_device_is_written_and_never_replaced() -> None:
    """A full device fails the report after the output was published, and stays a device."""
    with ReportFile("/dev/full") as file:
        file.check()
        with pytest.raises(StorageFailed, match="No space left"):
            file.write(sample_report())
    assert Path("/dev/full").is_char_device()


def test_sockets_and_links_to_nothing_are_refused(tmp_path: Path) -> None:
    """A socket would be replaced by a file; a dangling link would hide where the report is."""
    (tmp_path / "link").symlink_to("nothing")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name, words in (("link", "link to nothing"), ("socket", "socket")):
            with ReportFile(str(tmp_path / name)) as file, pytest.raises(OutputUnwritable, match=words):
                file.check()


@pytest.mark.parametrize("name", ["films.txt", "out/codecfleet-batch.sqlite"])
def test_a_batchs_report_replaces_no_file_of_the_batch(name: str, tmp_path: Path, capsys: Captured) -> None:
    """A report replaces neither the list nor the database of a batch."""
    (tmp_path / "out").mkdir()
    (tmp_path / "films.txt").write_text("film.mkv\n")
    (tmp_path / "out/codecfleet-batch.sqlite").write_text("states")
    before = (tmp_path / name).read_bytes()
    assert run(["batch", f"{tmp_path}/films.txt", "--output", f"{tmp_path}/out", "--report", f"{tmp_path}/{name}"]) == 2
    assert "is the same file as" in capsys.readouterr().err
    assert (tmp_path / name).read_bytes() == before


def test_a_link_to_a_file_keeps_pointing_there(tmp_path: Path) -> None:
    """The file behind a link is replaced, not the link."""
    (tmp_path / "real.json").write_text("old")
    link = tmp_path / "link.json"
    link.symlink_to("real.json")
    with ReportFile(str(link)) as file:
        file.check()
        file.write(sample_report())
    assert link.is_symlink()
    assert (tmp_path / "real.json").read_text().startswith("{")


@pytest.mark.parametrize(("length", "fits"), [(255, True), (256, False)])
def test_the_longest_name_is_known_before_the_work(length: int, *, fits: bool, tmp_path: Path) -> None:
    """The longest name that the file system allows is written; one more byte is refused before the work."""
    path = tmp_path / ("r" * length)
    with ReportFile(str(path)) as file:
        if fits:
            file.check()
            file.write(sample_report())
            assert list(tmp_path.iterdir()) == [path]
            return
        with pytest.raises(OutputUnwritable, match="name too long"):
            file.check()


def test_names_of_any_bytes_are_kept(tmp_path: Path) -> None:
    """A name that is not UTF-8 is in the report as JSON escapes, which give its bytes back; Unicode is not escaped."""
    name = os.fsdecode(b"fi\xfflm \xf0\x9f\x8e\xac.mkv")
    with ReportFile(str(tmp_path / "report.json")) as file:
        file.check()
        file.write(sample_report().model_copy(update={"source": name}))
    content = (tmp_path / "report.json").read_bytes()
    assert os.fsencode(json.loads(content)["source"]) == os.fsencode(name)
    assert "\N{CLAPPER BOARD}".encode() in content
