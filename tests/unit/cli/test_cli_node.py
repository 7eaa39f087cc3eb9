"""A node that ``node start --block`` keeps in the foreground, and its log."""

import json

import pytest

from codecfleet.cli.app import run
from codecfleet.cli.services import Services
from codecfleet.errors import FleetUnavailable

from .kept_node import KeptNode

Captured = pytest.CaptureFixture[str]
LINE = ["node", "start", "--address", "head:6379", "--block"]


def test_a_node_in_the_foreground_says_what_happens(capsys: Captured) -> None:
    """The log has what the node offers, and when it started and ended; stdout stays empty."""
    assert run(LINE, Services(prepare_node=lambda *_: KeptNode(driver=("job a: done",)))) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "codecfleet: this node joins head:6379",
        "codecfleet: the node is up",
        "codecfleet: driver: job a: done",
        "codecfleet: the node is down",
    ]


def test_a_nodes_log_has_the_asked_style(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """For programs that collect a container's output, each line is one entry with time and action."""
    monkeypatch.setenv("CODECFLEET_LOG", "json")
    assert run(LINE, Services(prepare_node=lambda *_: KeptNode())) == 0
    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [each["action"] for each in entries] == ["node.starting", "node.up", "node.down"]


def test_a_node_that_does_not_start_is_an_error(capsys: Captured) -> None:
    """The exit code lets a service manager restart a node that did not start."""
    broken = KeptNode(FleetUnavailable("Ray did not start: no space left"))
    assert run(LINE, Services(prepare_node=lambda *_: broken)) == 5
    assert capsys.readouterr().err.splitlines()[-1] == "codecfleet: error: Ray did not start: no space left."
