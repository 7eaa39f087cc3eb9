"""The command ``dashboard``, of a fleet that is given."""

import asyncio
import signal
import socket
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from codecfleet.cli.app import parse, run
from codecfleet.cli.commands.fleets import HOST, PORT, Dashboard
from codecfleet.cli.services import Services
from codecfleet.cluster.fleet.messages import SupervisorSide
from codecfleet.cluster.operate.desk import AskDesk
from codecfleet.errors import FleetUnavailable

from ..dashboard.hostile_fleet import FakeFleet

Captured = pytest.CaptureFixture[str]


def interrupted() -> Services:
    """Return the services of an idle fleet whose user presses Ctrl-C soon after the page is there."""
    fleet = FakeFleet(None)

    def open_desk(address: str | None) -> AbstractAsyncContextManager[AskDesk[SupervisorSide]]:
        asyncio.get_running_loop().call_later(0.05, signal.raise_signal, signal.SIGINT)
        return fleet.desk(address)

    return Services(open_desk=open_desk)


def test_the_request() -> None:
    """The page is on loopback unless something else is asked for."""
    assert parse(["dashboard"]) == Dashboard(address=None, host=HOST, port=PORT, asks_token=False)
    words = "dashboard --address head:1 --host 0.0.0.0 --port 0 --ask-token"
    assert parse(words.split()) == Dashboard(address="head:1", host="0.0.0.0", port=0, asks_token=True)  # noqa: S104


def test_it_ends_with_ctrl_c(capsys: Captured) -> None:
    """One line says where the page is; an interruption is not an error, and nothing more is said."""
    assert run(["dashboard", "--port", "0"], interrupted()) == 0
    said = capsys.readouterr()
    assert said.out.startswith("dashboard  http://127.0.0.1:")
    assert said.out.endswith("/ until Ctrl-C\n")
    assert said.err == ""


def test_the_token_is_not_said(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """Where the token is asked for the line says so, without it."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", "s3cret-token")
    assert run(["dashboard", "--port", "0", "--ask-token"], interrupted()) == 0
    said = capsys.readouterr()
    assert "(asks for the token)" in said.out
    assert "s3cret" not in said.out + said.err


def test_without_a_token_it_listens_on_loopback_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Elsewhere it refuses to start, in one line, before the fleet is asked."""
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    fleet = FakeFleet(None)
    assert run(["dashboard", "--host", "0.0.0.0", "--port", "0"], Services(open_desk=fleet.desk)) == 2  # noqa: S104
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n"), fleet.opened) == ("", 1, 0)
    assert "requires the cluster's token, but there is none. Copy the head's" in said.err


def test_a_taken_port_is_one_line(capsys: Captured) -> None:
    """The line says which port, and what to give instead."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert run(["dashboard", "--port", port], Services(open_desk=FakeFleet(None).desk)) == 2
    said = capsys.readouterr()
    assert f"port {port}: Address already in use. Give another --port" in said.err
    assert said.err.count("\n") == 1


def test_a_fleet_that_is_gone_is_one_line(capsys: Captured) -> None:
    """What cannot be reached ends the command with the error's own code, and no page is promised."""
    fleet = FakeFleet(None)
    fleet.lost = FleetUnavailable("no Ray answers at head:1", "Check.")
    assert run(["dashboard", "--port", "0"], Services(open_desk=fleet.desk)) == 5
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"codecfleet: error: {fleet.lost}\n")
