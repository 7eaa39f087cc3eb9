"""Processes of Ray tell the program that keeps their node whether its driver may run."""

import os
import signal

import pytest

from codecfleet.cluster.ray.keeper import DRIVER_RESTS, DRIVER_RUNS, KEEPER, tell_keeper


def test_only_the_program_that_keeps_the_node_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that another program started has nobody to tell."""
    heard: list[int] = []
    both = (DRIVER_RESTS, DRIVER_RUNS)
    former = {number: signal.signal(number, lambda *said: heard.append(said[0])) for number in both}
    try:
        monkeypatch.delenv(KEEPER, raising=False)
        tell_keeper(drains=True)
        monkeypatch.setenv(KEEPER, str(os.getpid()))
        tell_keeper(drains=True)
        tell_keeper(drains=False)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    assert heard == [DRIVER_RESTS, DRIVER_RUNS]
