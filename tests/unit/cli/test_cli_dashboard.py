"""The command ``dashboard``, with a given fleet."""

import asyncio
import signal
from contextlib import AbstractAsyncContextManager

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
    """Return the services of an idle fleet, whose user presses Ctrl-C soon after the page is served."""
    fleet = FakeFleet(None)

    def open_desk(address: str | None) -> AbstractAsyncContextManager[AskDesk[SupervisorSide]]:
        asyncio.get_running_loop().call_later(0.05, signal.raise_signal, signal.SIGINT)
        return fleet.desk(address)

    return Services(open_desk=open_desk)


def test_the_request() -> None:
    """The page is on loopback, unless another address is requested."""
    assert parse(["dashboard"]) == Dashboard(address=None, host=HOST, port=PORT, asks_token=False)
    words = "dashboard --address head:1 --host 0.0.0.0 --port 0 --ask-token"
    assert parse(words.split()) == Dashboard(address="head:1", host="0.0.0.0", port=0, asks_token=True)  # noqa: S104


def test_it_ends_with_ctrl_c(capsys: Captured) -> None:
    """One line gives the page's address; an interruption is no error and prints nothing."""
    assert run(["dashboard", "--port", "0"], interrupted()) == 0
    said = capsys.readouterr()
    assert said.out.startswith("dashboard  http://127.0.0.1:")
    assert said.out.endswith("/ until Ctrl-C\n")
    assert said.err == ""


def test_the_token_is_not_said(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """If the token is required, the line says so, without the token."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", "s3cret-token")
    assert run(["dashboard", "--port", "0", "--ask-token"], interrupted()) == 0
    said = capsys.readouterr()
    assert "(asks for the token)" in said.out
    assert "s3cret" not in said.out + said.err


def test_a_fleet_that_is_gone_is_one_line(capsys: Captured) -> None:
    """If the fleet cannot be reached, the command ends with the error's exit code and prints no address."""
    fleet = FakeFleet(None)
    fleet.lost = FleetUnavailable("no Ray answers at head:1", "Check.")
    assert run(["dashboard", "--port", "0"], Services(open_desk=fleet.desk)) == 5
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"codecfleet: error: {fleet.lost}\n")
