"""The start of a warm fleet, without a process: the first message, and failures."""

import json
import socket
from pathlib import Path

import pytest

from codecfleet.actors.process.process import StartedProcess
from codecfleet.cluster.fleet.meeting_place import Greeting
from codecfleet.cluster.fleet.warm import WarmFleet, bring_up
from codecfleet.errors import FleetUnavailable


class Starts:
    """Starts programs that send one message and then end, or raises an error."""

    def __init__(self, said: bytes | OSError) -> None:
        self.said = said
        self.settings: tuple[object, ...] = ()

    def __call__(self, _program: str, *settings: object, outlives: bool) -> StartedProcess:
        assert outlives
        self.settings = settings
        if isinstance(self.said, OSError):
            raise self.said
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.sendall(self.said)
        return StartedProcess(ours, lambda: pytest.fail("it goes on"), lambda: "no place for its files")


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime directory for this test."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def test_its_first_message_is_returned() -> None:
    """The first message gives the process, whether it is new, and the greeting; the process continues."""
    starts = Starts(json.dumps({"process": 7, "is_new": False, "greeting": ["1.2.3", 2, 90.0]}).encode())
    assert bring_up(3, 60.0, starts) == WarmFleet(7, is_new=False, greeting=Greeting("1.2.3", 2, 90.0))
    address, slots, dlas, _, idle_s = starts.settings
    assert (address, slots, dlas, idle_s) == ("local", 3, 0, 60.0)


@pytest.mark.parametrize("said", [b"", OSError(11, "no place for its files")])
def test_the_error_says_why_it_did_not_start(said: bytes | OSError) -> None:
    """The error has the last message of the process, or the kernel's reason."""
    with pytest.raises(FleetUnavailable, match=r"the warm fleet did not start: .*no place for its files"):
        bring_up(None, 60.0, Starts(said))


def test_a_place_that_cannot_be_used(runtime: Path) -> None:
    """A file in place of the directory is named before anything is started."""
    (runtime / "codecfleet").write_text("in the way", encoding="utf-8")
    starts = Starts(b"")
    with pytest.raises(FleetUnavailable, match="cannot be used: File exists"):
        bring_up(None, 60.0, starts)
    assert starts.settings == ()
