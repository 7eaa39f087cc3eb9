"""Processes of Ray tell the program that keeps their node whether its driver may run."""

from pathlib import Path

import pytest

from codecfleet.cluster.ray.keeper import KEEPER, Word, next_word, tell_keeper, words_heard


def test_only_the_program_that_keeps_the_node_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that another program started has nobody to tell, nor has one whose program has ended."""
    word = Word(3, 7 << 40, drains=True)
    monkeypatch.delenv(KEEPER, raising=False)
    tell_keeper(word)
    with words_heard() as (end, path):
        folder = Path(path).parent
        monkeypatch.setenv(KEEPER, path)
        tell_keeper(word)
        assert next_word(end) == word
        assert folder.stat().st_mode & 0o777 == 0o700
        end.close()
        tell_keeper(word)
    tell_keeper(word)
    assert not folder.exists()


def test_a_long_temp_folder_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of a socket has at most 107 bytes."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("x" * 100)))
    with words_heard() as (_, path):
        assert Path(path).is_socket()
