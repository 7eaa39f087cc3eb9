"""The commands ``config`` and ``presets``, and the configuration that a command's processes get."""

import json
import os
import tomllib
from pathlib import Path

import pytest

from codecfleet.cli.app import run
from codecfleet.cli.services import Answer, Services
from codecfleet.jobs.request.config import OPTIONS, load_config

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder of configuration files."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "codecfleet" / "presets").mkdir(parents=True)
    return tmp_path / "codecfleet"


def answer(line: str, capsys: Captured) -> str:
    """Run a command that succeeds, and return its output."""
    assert run(line.split()) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_config_show_says_where_each_value_came_from(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Each key has a line with its value and the place where it is set."""
    (folder / "config.toml").write_text(
        "workers = 4\ndeadline_seconds = '2.5'\npreset = ['phone', 6]\nidle_s = 5", "utf-8"
    )
    monkeypatch.setenv("CODECFLEET_DEVICE", "cpu")
    lines = answer("config show", capsys).splitlines()
    assert lines[0] == f"# {folder}/config.toml"
    rows = {tuple(part.strip() for part in line.split("  # ")) for line in lines[1:]}
    assert len(rows) == len(OPTIONS)
    assert rows >= {
        ("workers = 4", f"{folder}/config.toml:1"),
        ('deadline_seconds = "2.5"', f"{folder}/config.toml:2"),
        ('preset = ["phone", 6]', f"{folder}/config.toml:3"),
        ('device = "cpu"', "CODECFLEET_DEVICE"),
        ("idle_s = 5", f"{folder}/config.toml:4"),
        ("wait_seconds = 3600", "default"),
        ("# work", "default: beside the output"),
    }


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("queue", "postgresql://queue:se/c#r@et@db/films", "postgresql://queue:***@db/films"),
        ("queue", "postgresql://db/films?password=secret", "postgresql://db/films?password=***"),
        ("queue", "/films/a:secret@queue.sqlite", "/films/a:secret@queue.sqlite"),
        ("queue_token", "cfq-secret", "***"),
        ("queue_token", "/films/films.token", "/films/films.token"),
        ("work", "s3://key:secret@bucket/work", "s3://key:***@bucket/work"),
    ],
)
def test_config_show_shows_no_secret(key: str, value: str, shown: str, folder: Path, capsys: Captured) -> None:
    """A password in an address and a token in place of its file are hidden."""
    (folder / "config.toml").write_text(f"{key} = {json.dumps(value)}")
    for said in (answer("config show", capsys), answer("config show --json", capsys)):
        assert f'"{shown}"' in said
        assert (value in said) is (value == shown)


def test_what_config_show_prints_is_the_same_configuration(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """The printed text, saved as the configuration file, has the same settings."""
    monkeypatch.setenv("CODECFLEET_KEEP_EVIDENCE", 'a "quoted" \\ ∆')
    monkeypatch.setenv("CODECFLEET_DEADLINE_SECONDS", "0.123456789012345678")
    before = load_config(os.environ).settings
    shown = answer("config show", capsys)
    assert tomllib.loads(shown)["keep_evidence"] == 'a "quoted" \\ ∆'
    (folder / "config.toml").write_text(shown, "utf-8")
    monkeypatch.delenv("CODECFLEET_KEEP_EVIDENCE")
    monkeypatch.delenv("CODECFLEET_DEADLINE_SECONDS")
    assert load_config(os.environ).settings == before


def test_config_show_for_programs(folder: Path, capsys: Captured) -> None:
    """With ``--json``, every key has a value, an origin and a place."""
    (folder / "config.toml").write_text("device = 'cpu'", "utf-8")
    document = json.loads(answer("config show --json", capsys))
    assert (document["schema"], document["path"], document["is_there"]) == (1, f"{folder}/config.toml", True)
    by_key = {key.pop("key"): key for key in document["keys"]}
    assert list(by_key) == [option.key for option in OPTIONS.values()]
    place = f"{folder}/config.toml:1"
    assert by_key["device"] == {"value": "cpu", "origin": "file", "place": place, "default": "auto"}
    assert by_key["work"] == {"value": None, "origin": "default", "place": "", "default": "beside the output"}


def test_presets_lists_ours_and_yours(folder: Path, capsys: Captured) -> None:
    """The list has names, codecs and purposes, and marks the user's presets and the ones that they replace."""
    (folder / "presets" / "phone.toml").write_text("# Tiny\ncodec = 'av1'", "utf-8")
    (folder / "presets" / "mine.toml").write_text("quality = 20", "utf-8")
    rows = {line.split()[0]: line for line in answer("presets", capsys).splitlines()}
    assert "H.264 and AAC for every browser" in rows["web-h264"]
    assert rows["mine"].split(maxsplit=2)[1:] == ["-", f"(yours: {folder}/presets/mine.toml)"]
    assert "Tiny (yours" in rows["phone"]
    assert "replaces the built-in one" in rows["phone"]
    listed = json.loads(answer("presets list --json", capsys))
    assert [each["name"] for each in listed["presets"] if each["hides"]] == ["phone"]


def test_presets_show_prints_the_file(folder: Path, capsys: Captured) -> None:
    """The output is a spec file with the preset's options."""
    shown = answer("presets show archive-hevc", capsys)
    assert tomllib.loads(shown)["codec"] == "hevc"
    document = json.loads(answer("presets show archive-hevc --json", capsys))
    assert Path(document["path"]).read_text("utf-8") == document["toml"] == shown
    assert not document["is_own"]
    (folder / "presets" / "copy.toml").write_text(shown, "utf-8")
    assert answer("presets show copy", capsys) == shown


def test_processes_of_a_command_get_the_files_settings(folder: Path) -> None:
    """Only while a command runs, its environment has what the configuration sets for processes."""
    (folder / "config.toml").write_text("idle_s = '1:00'\nray = 'first'", "utf-8")
    names = ("CODECFLEET_IDLE_S", "CODECFLEET_RAY", "CODECFLEET_DEBUG")
    seen: list[str | None] = []

    def probe(_source: str) -> Answer:
        seen.extend(map(os.environ.get, names))
        return Answer([], {})

    assert run(["probe", "a.mkv"], Services(probe=probe)) == 0
    assert seen == ["60.0", "first", None]
    assert not any(name in os.environ for name in names)
