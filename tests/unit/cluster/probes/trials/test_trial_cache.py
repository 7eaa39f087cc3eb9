"""The cache of trials returns what was stored, and ignores any other file in its folder."""

from dataclasses import replace
from pathlib import Path

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, How, MediaCodec, Trial
from codecfleet.cluster.probes.trials.cache import CacheKey, cache_folder, is_lasting, load_trials, save_trials

KEY = CacheKey("580.159.04", "NVIDIA H200", ("av 18.1.0", "PyNvVideoCodec 2.2.4"))
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
    save_trials(tmp_path / "deep" / "folder", KEY, trials)
    assert load_trials(tmp_path / "deep" / "folder", KEY) == trials


@pytest.mark.parametrize(
    "other",
    [
        replace(KEY, driver="580.159.05"),
        replace(KEY, subject="NVIDIA H200 MIG 1g.18gb"),
        replace(KEY, packages=("av 18.1.1", "PyNvVideoCodec 2.2.4")),
    ],
)
def test_another_driver_device_or_package_is_another_key(tmp_path: Path, other: CacheKey) -> None:
    """Results for another key are ignored, even in a file with the right name."""
    save_trials(tmp_path, KEY, (TRIAL,))
    assert load_trials(tmp_path, other) is None
    (tmp_path / KEY.file_name).rename(tmp_path / other.file_name)
    assert load_trials(tmp_path, other) is None


@example(b"\x81\x90\x00")
@given(st.binary(max_size=400))
def test_any_file_at_all_is_no_cache_and_no_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """A file with arbitrary content counts as an empty cache."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / KEY.file_name).write_bytes(content)
    assert load_trials(folder, KEY) is None


def test_a_damaged_file_is_no_cache(tmp_path: Path) -> None:
    """A file that is truncated, has another schema, or contains a value that is no trial is ignored."""
    save_trials(tmp_path, KEY, (TRIAL,))
    path = tmp_path / KEY.file_name
    whole = path.read_bytes()
    kept = msgpack.unpackb(whole)
    for damaged in (
        whole[:-3],
        b"",
        msgpack.packb(kept | {"key": [99, *kept["key"][1:]]}),
        msgpack.packb(kept | {"trials": [{**kept["trials"][0], "engine": "abacus"}]}),
    ):
        path.write_bytes(damaged)
        assert load_trials(tmp_path, KEY) is None
    path.write_bytes(whole)
    assert load_trials(tmp_path, KEY) == (TRIAL,)


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    """A file in place of the folder, or no folder at all, is no error; no partial file stays behind."""
    (tmp_path / "occupied").write_text("a file")
    save_trials(tmp_path / "occupied", KEY, (TRIAL,))
    save_trials(None, KEY, (TRIAL,))
    assert load_trials(None, KEY) is None
    save_trials(tmp_path, KEY, (TRIAL,))
    assert {path.name for path in tmp_path.iterdir()} == {"occupied", KEY.file_name}


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
