"""The cache of trials returns what was stored, and ignores any other file in its folder."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, How, MediaCodec, Trial
from codecfleet.cluster.probes.trials.cache import cache_folder, is_lasting, load_trials, save_trials, trials_file

KEY = ("580.159.04", "NVIDIA H200", "av 18.1.0")
TRIAL = Trial(
    case=CodecCase(MediaCodec.HEVC, Direction.DECODE, "4:4:4", 10),
    engine=Engine.NVDEC,
    implementation="nvdec",
    works=True,
    how=How.TRIED,
    profile="main 4:4:4 10",
    max_width=8192,
    max_height=8192,
    engines=7,
)


def test_what_was_kept_comes_back(tmp_path: Path) -> None:
    """The same key returns the same trials, equal in every field."""
    trials = (TRIAL, replace(TRIAL, works=False, reason="this GPU has no decoder for it", max_width=None))
    file = trials_file(tmp_path / "deep" / "folder", *KEY)
    save_trials(file, trials)
    assert load_trials(file) == trials


@pytest.mark.parametrize("changed", range(3))
def test_another_driver_device_or_package_is_another_key(tmp_path: Path, changed: int) -> None:
    """Results that depend on other names or versions are in another file."""
    other = [*KEY[:changed], f"{KEY[changed]}1", *KEY[changed + 1 :]]
    assert trials_file(tmp_path, *other) != trials_file(tmp_path, *KEY) == trials_file(tmp_path, *KEY)


@example(b"[" * 400)
@example(b"[]")
@given(st.binary(max_size=400))
def test_any_file_at_all_is_no_cache_and_no_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """A file with arbitrary content counts as an empty cache."""
    file = tmp_path_factory.mktemp("cache") / "trials"
    file.write_bytes(content)
    assert load_trials(file) is None


def test_a_damaged_file_is_no_cache(tmp_path: Path) -> None:
    """A file that is truncated, or contains a value that is no trial, is ignored."""
    file = tmp_path / "trials"
    save_trials(file, (TRIAL,))
    whole = file.read_bytes()
    for damaged in (whole[:-3], b"", whole.replace(b'"nvdec"', b'"abacus"')):
        file.write_bytes(damaged)
        assert load_trials(file) is None


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    """A file in place of the folder, or no folder at all, is no error; no partial file stays behind."""
    (tmp_path / "occupied").write_text("a file")
    save_trials(tmp_path / "occupied" / "trials", (TRIAL,))
    save_trials(trials_file(None, *KEY), (TRIAL,))
    assert load_trials(None) is None
    save_trials(tmp_path / "trials", (TRIAL,))
    assert {path.name for path in tmp_path.iterdir()} == {"occupied", "trials"}


def test_only_what_will_not_change_is_worth_keeping() -> None:
    """Trials with a failure that can be fixed are not cached, and neither are a device's missing results."""
    assert is_lasting((TRIAL, replace(TRIAL, works=False, reason="no")))
    assert not is_lasting((TRIAL, replace(TRIAL, works=False, reason="no", fix="free memory")))
    assert not is_lasting(())


def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is in XDG_CACHE_HOME if that is absolute, as its specification requires, otherwise in ~/.cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/codecfleet")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/user")
    assert cache_folder() == Path("/home/user/.cache/codecfleet")
