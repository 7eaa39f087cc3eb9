"""Presets: the values of ``--preset``, where presets are found, and the built-in ones."""

import re
from pathlib import Path

import pytest

from codecfleet import UsageError, load_preset
from codecfleet.jobs.request.presets import PresetChoice, find_presets, preset_named, read_choice
from codecfleet.jobs.request.spec_file import SpecFile

OURS = find_presets(None)


def folder_with(folder: Path, **presets: str) -> Path:
    """Write a user's presets."""
    for name, text in presets.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("raw", "name", "speed"),
    [
        ("6", None, 6),
        (6, None, 6),
        ("web-h264", "web-h264", None),
        ("web-h264,6", "web-h264", 6),
        (["6", "web-h264"], "web-h264", 6),
        (["web-h264", 6], "web-h264", 6),
    ],
)
def test_a_preset_a_speed_or_both(raw: object, name: str | None, speed: int | None) -> None:
    """The command line's words, TOML's values and a variable's text have the same meaning."""
    assert read_choice("--preset", raw) == PresetChoice(name, speed)


@pytest.mark.parametrize("raw", ["", "8", "0", "-1", "a,b", ["4", "5"], [], True, 1.5, {}, "a b", "../a", ["a", [1]]])
def test_what_is_neither_is_refused(raw: object) -> None:
    """Each mistake is one error that names the option."""
    with pytest.raises(UsageError, match="--preset"):
        read_choice("--preset", raw)


def test_a_users_preset_counts_instead_of_ours(tmp_path: Path) -> None:
    """A user's presets are found beside the built-in ones, and replace those of the same name."""
    folder = folder_with(tmp_path, phone="# Smaller still\ncodec = 'hevc'", mine="preset = 7")
    found = find_presets(folder)
    assert set(found) == {*OURS, "mine"}
    assert list(found) == sorted(found)
    phone, mine = found["phone"], found["mine"]
    assert (phone.summary, phone.codec, phone.is_own, phone.hides) == ("Smaller still", "hevc", True, True)
    assert (mine.summary, mine.codec, mine.is_own, mine.hides) == ("", "", True, False)
    assert preset_named("phone", folder).path == tmp_path / "phone.toml"


@pytest.mark.parametrize("name", ["5", "two words"])
def test_a_file_that_cannot_be_asked_for_is_named(name: str, tmp_path: Path) -> None:
    """A user's file with a name that ``--preset`` does not accept is an error with its path."""
    with pytest.raises(UsageError, match=re.escape(f"{name}.toml")):
        find_presets(folder_with(tmp_path, **{name: ""}))


def test_a_preset_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``load_preset`` loads built-in and own presets by name, and given fields override theirs."""
    (tmp_path / "codecfleet" / "presets").mkdir(parents=True)
    folder_with(tmp_path / "codecfleet" / "presets", mine="codec = 'av1'")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load_preset("web-h264", source="a.mkv", output="b.mp4", quality=30).quality == 30
    assert load_preset("mine", source="a.mkv", output="b.mp4").codec == "av1"
    with pytest.raises(UsageError, match=r"name: there is no preset min\. Did you mean mine\?"):
        load_preset("min", source="a.mkv", output="b.mp4")
    with pytest.raises(UsageError, match="codecfleet presets"):
        preset_named("zzz", tmp_path / "missing")


@pytest.mark.parametrize("name", OURS)
def test_every_preset_of_ours_says_what_it_is_for_and_why(name: str) -> None:
    """The first line of every built-in preset states its purpose, and every value has a comment above it."""
    preset = OURS[name]
    assert preset.codec
    assert 10 < len(preset.summary) <= 100
    paragraphs = [part for part in preset.text.split("\n\n")[1:] if not part.startswith("codec")]
    assert all(paragraph.startswith("# ") for paragraph in paragraphs)
    assert not SpecFile.read(preset.path).fields.keys() & {"overwrite", "force", "restart", "device", "workers"}
