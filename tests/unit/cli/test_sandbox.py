"""Which commands are confined to their files, and what happens to other commands."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from codecfleet import TranscodeSpec
from codecfleet.cli.app import parse
from codecfleet.cli.sandbox import FileUse, _refusal, confine_command
from codecfleet.cluster.sandbox import confine
from codecfleet.cluster.sandbox.confine import program_folders
from codecfleet.errors import Unsupported


def files_of(line: str) -> FileUse | None:
    """Return the files that a command names."""
    found: FileUse | None = getattr(parse(line.split()), "files", None)
    return found


def test_a_ladder_reads_its_file_and_what_that_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A confined command could not open them otherwise; evidence is written where it was asked for."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text('overlay = "logo.png"\n[[rendition]]\nname = "a"\n')
    files = files_of("ladder in.mkv sizes --preset own.toml --keep-evidence evidence")
    assert files is not None
    assert files.reads == ("in.mkv", "own.toml", "logo.png")
    assert files.writes == ("sizes", "evidence")


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ("transcode in.mkv out.mp4", ("in.mkv",)),
        ("probe in.mkv", ("in.mkv",)),
        ("plan in.mkv", ("in.mkv",)),
        ("verify in.mkv out.mp4", ("in.mkv", "out.mp4")),
        ("ladder in.mkv sizes", ("in.mkv",)),
        ("stills in.mkv shots --count 3", ("in.mkv",)),
    ],
)
def test_commands_on_single_films_name_their_files(line: str, reads: tuple[str, ...]) -> None:
    """A confined command gets only the files that are known before it runs."""
    files = files_of(line)
    assert files is not None
    assert (files.reads, files.needs_temporary) == (reads, line.startswith(("ladder", "stills")))


def test_a_command_has_no_threads_before_it_is_confined() -> None:
    """NumPy would start some, and a process with other threads cannot confine itself."""
    lines = ["transcode in.mkv out.mp4", "ladder in.mkv sizes", "stills in.mkv shots --count 3"]
    program = f"""
import sys
from codecfleet.cli.app import parse
for line in {lines}:
    parse(line.split())
    assert "numpy" not in sys.modules, line
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_verify_reads_what_a_report_names(tmp_path: Path) -> None:
    """A report may name the picture that was laid over the film; any other report adds no file."""
    report = tmp_path / "r.json"
    for text, named in (('{"overlay": {"picture": "logo.png"}}', ("logo.png",)), ('{"overlay": null}', ()), ("?", ())):
        report.write_text(text)
        files = files_of(f"verify in.mkv out.mp4 --report {report}")
        assert files is not None
        assert files.reads == ("in.mkv", "out.mp4", str(report), *named)


@pytest.mark.parametrize("line", ["doctor", "batch films --output out", "status --address head:1", "down"])
def test_other_commands_name_none(line: str) -> None:
    """Commands about machines, and those that find their files themselves, are not confined."""
    assert files_of(line) is None


def test_a_job_writes_where_its_files_go() -> None:
    """A job writes its output, its work folder, its evidence and its report."""
    spec = TranscodeSpec(
        source="a.mkv", output="o/b.mp4", work="w", keep_evidence="e", device="cpu", overlay="logo.png"
    )
    files = FileUse.of_job(spec, None, "r.json")
    assert files.reads == ("a.mkv", "logo.png")
    assert files.writes == ("o/b.mp4", "w", "e", "r.json")
    assert not files.may_use_gpu


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (None, "not known before it runs"),
        (FileUse(reads=("s3://bucket/a.mkv",)), "a remote URL"),
        (FileUse(reads=("a.mkv",), writes=("gs://bucket/b.mp4",)), "a remote URL"),
        (FileUse(reads=("a.mkv",), starts_workers=True, address="head:6379"), "over the network"),
    ],
)
def test_what_cannot_be_confined(files: FileUse | None, reason: str) -> None:
    """If the setting requires confinement, this is an error with the reason; otherwise, the command runs unconfined."""
    asked = SimpleNamespace(files=files)
    confine_command(asked, "auto")
    confine_command(asked, "off")
    with pytest.raises(Unsupported, match=reason) as caught:
        confine_command(asked, "required")
    assert caught.value.exit_code == 4


def test_a_job_that_sends_traces_is_not_confined(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that sends traces must connect, so it is not confined; if no collector is configured, it is confined."""
    files = FileUse(reads=("a.mkv",), starts_workers=True, may_use_gpu=False, may_send_traces=True)
    monkeypatch.setattr("codecfleet.actors.tracing.is_traced", lambda environment: "OTEL" in environment)
    monkeypatch.setenv("OTEL", "1")
    assert _refusal(files) == "it sends traces to a collector"
    assert _refusal(replace(files, may_send_traces=False)) == ""
    monkeypatch.delenv("OTEL")
    assert _refusal(files) == ""


def test_no_folder_of_the_user_s_is_a_program_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The working directory is not readable only because ``python -m`` searches it for modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend("")
    assert tmp_path not in program_folders()
    assert Path.home() not in program_folders()


def test_a_checkout_that_runs_without_being_installed_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """``python -m codecfleet`` in a checkout, and its child processes, find their modules in the checkout."""
    checkout = Path(confine.__file__).parents[3]
    monkeypatch.chdir(checkout)
    monkeypatch.setattr(sys, "path", [str(checkout)])
    assert checkout in program_folders()
