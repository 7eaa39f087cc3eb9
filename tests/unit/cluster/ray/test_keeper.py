"""Processes of Ray tell the program that keeps their node whether its driver may run."""

import os
import subprocess

import pytest

from codecfleet.cluster.fleet_variables import KEEPER
from codecfleet.cluster.ray.keeper import Driving, Word, keeper_name, next_word, tell_keeper, words_heard

WORD = Word(3, 7 << 40, Driving.RESTS)


def test_only_the_program_that_keeps_the_node_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that another program started has nobody to tell, nor has one whose program has ended."""
    monkeypatch.delenv(KEEPER, raising=False)
    assert keeper_name() == ""
    tell_keeper(WORD)
    with words_heard() as (end, name):
        monkeypatch.setenv(KEEPER, name)
        assert keeper_name() == name
        for driving in Driving:
            tell_keeper(WORD._replace(driving=driving))
            assert next_word(end) == (*WORD[:2], driving)
    tell_keeper(WORD)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's process needs root")
def test_another_users_word_counts_for_nothing() -> None:
    """Anyone on the machine can reach the socket."""
    send = "import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'word', '\\0' + sys.argv[1])"
    with words_heard() as (end, name):
        subprocess.run(["/usr/bin/env", "python3", "-c", send, name], user="nobody", check=True)
        assert next_word(end) is None


def test_programs_do_not_hear_each_others_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may have several nodes."""
    with words_heard() as (one, name), words_heard() as (other, _):
        monkeypatch.setenv(KEEPER, name)
        tell_keeper(WORD)
        assert next_word(one) == WORD
        other.settimeout(0)
        with pytest.raises(BlockingIOError):
            next_word(other)
