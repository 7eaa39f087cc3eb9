"""Bringing a warm fleet up, without a process: what its start says, and how it fails."""

import json
import socket
from pathlib import Path

import pytest

from codecfleet.actors.process.process import StartedProcess
from codecfleet.cluster.fleet.meeting_place import Greeting
from codecfleet.cluster.fleet.warm import WarmFleet, bring_up
from codecfleet.errors import FleetUnavailable


class Starts:
    """Starts programs that say one thing to who started them, and end."""

    def __init__(self, said: bytes) -> None:
        self.said = said
        self.settings: tuple[object, ...] = ()
        self.kills = 0

    def __call__(self, _program: str, *settings: object, outlives: bool) -> StartedProcess:
        """Start one."""
        assert outlives
        self.settings = settings
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.sendall(self.said)
        return StartedProcess(ours, self._kill, lambda: "no place for its files")

    def _kill(self) -> None:
        self.kills += 1


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime directory of the test's own."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def test_what_it_says_is_returned() -> None:
    """The process, whether it is new, and what it is like; it goes on."""
    starts = Starts(json.dumps({"process": 7, "is_new": False, "greeting": ["1.2.3", 2, 90.0]}).encode())
    assert bring_up(3, 60.0, starts) == WarmFleet(7, is_new=False, greeting=Greeting("1.2.3", 2, 90.0))
    address, slots, dlas, _, idle_s = starts.settings
    assert (address, slots, dlas, idle_s, starts.kills) == ("local", 3, 0, 60.0, 0)


def test_one_that_ends_says_why() -> None:
    """Its last words are in the error."""
    with pytest.raises(FleetUnavailable, match="the warm fleet did not start: no place for its files"):
        bring_up(None, 60.0, Starts(b""))


def test_one_that_cannot_be_started() -> None:
    """The kernel's refusal is told."""

    def refuse(*_settings: object, **_options: object) -> StartedProcess:
        raise OSError(11, "Resource temporarily unavailable")

    with pytest.raises(FleetUnavailable, match=r"did not start: .*temporarily unavailable"):
        bring_up(None, 60.0, refuse)


def test_a_place_that_cannot_be_used(runtime: Path) -> None:
    """A file in the directory's place is named before anything is started."""
    (runtime / "codecfleet").write_text("in the way", encoding="utf-8")
    starts = Starts(b"")
    with pytest.raises(FleetUnavailable, match="cannot be used: File exists"):
        bring_up(None, 60.0, starts)
    assert starts.settings == ()
