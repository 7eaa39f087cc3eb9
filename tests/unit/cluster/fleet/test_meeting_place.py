"""The directory in which programs find warm fleets: access, and names that depend on the code."""

import os
import socket
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from codecfleet.cluster.fleet import meeting_place
from codecfleet.cluster.fleet.meeting_place import (
    Greeting,
    MeetingPlace,
    code_name,
    locked_place,
    meeting_path,
    peer_of,
)
from codecfleet.errors import FleetUnavailable


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime directory for this test, whose path is too long for the name of a socket."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


def test_it_is_made_for_its_user_alone(runtime: Path) -> None:
    """Directory and socket are closed to other users, whatever the umask."""
    former = os.umask(0)
    try:
        with locked_place() as place, place.listen("code"):
            assert (runtime / "codecfleet").stat().st_mode & 0o777 == 0o700
            assert (runtime / "codecfleet" / "code.sock").stat().st_mode & 0o777 == 0o600
            assert place.names() == ["code"]
    finally:
        os.umask(former)


@pytest.mark.parametrize("make", [True, False])
def test_one_that_others_may_enter_is_refused(make: bool, runtime: Path) -> None:  # noqa: FBT001 - a parameter
    """A directory that other users may enter, or that is a link, is not used."""
    path = runtime / "codecfleet"
    path.mkdir()
    path.chmod(0o755)
    with pytest.raises(FleetUnavailable, match="open to other users"):
        MeetingPlace.open(make=make)
    path.rmdir()
    path.symlink_to(runtime)
    with pytest.raises(FleetUnavailable, match="cannot be used"):
        MeetingPlace.open(make=make)


def test_without_a_runtime_directory_it_is_below_tmp(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path contains the user's number, so users have different directories."""
    for value in ("", "relative", "/no/such/directory"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", value)
        assert meeting_path() == Path(f"/tmp/codecfleet-{os.geteuid()}")  # noqa: S108 - the path is what is tested


def test_what_a_killed_fleet_has_left_is_replaced() -> None:
    """A socket without a listener refuses connections, and the next fleet takes its name."""
    with locked_place() as place:
        place.listen("code").close()
        with pytest.raises(ConnectionRefusedError):
            place.connect("code")
        with place.listen("code"):
            former = place.inode("code")
            with place.listen("code"):
                place.connect("code").close()
                assert place.inode("code") not in (0, former)
        place.remove("code")
        assert (place.names(), place.inode("code")) == ([], 0)


def test_one_at_a_time_may_start_or_end_a_fleet(runtime: Path) -> None:
    """Only one program holds the lock; once the last fleet has removed the directory, it is created again."""
    with locked_place() as place:
        with MeetingPlace.open(make=False) as other:
            assert not other.lock(waits=False)
        place.remove_if_empty()
        assert not place.is_current
        with locked_place() as again:
            assert again.is_current
            again.listen("code").close()
            again.remove_if_empty()
            assert (runtime / "codecfleet").exists()


def test_both_sides_know_the_other() -> None:
    """The kernel tells each side which process and user is on the other side."""
    with ExitStack() as open_:
        place = open_.enter_context(locked_place())
        listener = open_.enter_context(place.listen("code"))
        end = open_.enter_context(place.connect("code"))
        theirs = open_.enter_context(listener.accept()[0])
        assert peer_of(end) == peer_of(theirs) == (os.getpid(), os.geteuid())


def test_another_users_socket_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket of another user, or of a process in another namespace, is refused."""
    with locked_place() as place, place.listen("code"):
        for peer in ((os.getpid(), os.geteuid() + 1), (0, os.geteuid())):
            monkeypatch.setattr(meeting_place, "peer_of", lambda _end, peer=peer: peer)
            with pytest.raises(PermissionError, match="belongs to user"):
                place.connect("code")


@pytest.mark.parametrize("content", [b"{}\n", b"]]\n", b"x" * 5000, b"{", b""])
def test_what_is_no_greeting_is_refused(content: bytes) -> None:
    """A truncated greeting, a greeting that is too long, and other JSON are refused."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(content)
        with pytest.raises((OSError, ValueError, TypeError)):
            Greeting.received(ours, 10)


def test_a_greeting_arrives_as_it_was_sent() -> None:
    """A greeting may arrive in pieces, and the bytes after it stay unread."""
    greeting = Greeting("1.2.3", 8, 90.5)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        content = greeting.packed() + b"more"

        def send() -> None:
            for each in content:
                theirs.send(bytes([each]))

        thread = threading.Thread(target=send)
        thread.start()
        assert Greeting.received(ours, 10) == greeting
        thread.join()
        assert ours.recv(4, socket.MSG_WAITALL) == b"more"


def test_another_code_has_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name depends on each file and on the place of the package, but not on compiled files."""
    package = tmp_path / "package"
    (package / "room" / "__pycache__").mkdir(parents=True)
    module = package / "room" / "module.py"
    module.write_text("a = 1")
    monkeypatch.setattr(meeting_place, "_PACKAGE", package)
    before = code_name()
    (package / "room" / "__pycache__" / "module.pyc").write_bytes(b"compiled")
    assert code_name() == before
    module.write_text("a = 12")
    after = code_name()
    monkeypatch.setattr(meeting_place, "_PACKAGE", package / "room")
    assert len({before, after, code_name()}) == 3


def test_the_same_code_has_one_name_however_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``codecfleet`` and ``python -m codecfleet`` find the same fleet; another environment finds a different one."""
    package, python = tmp_path / "package", tmp_path / "python"
    package.mkdir()
    (package / "module.py").write_text("a = 1")
    python.symlink_to(sys.executable)
    (tmp_path / "link").symlink_to(package)
    monkeypatch.setattr(meeting_place, "_PACKAGE", package)
    before = code_name()
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(meeting_place, "_PACKAGE", tmp_path / "link")
    assert code_name() == before
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert code_name() != before
