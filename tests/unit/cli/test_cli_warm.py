"""The commands ``up`` and ``down`` against fakes: what is asked for, and what is said."""

import json

import pytest

from codecfleet.cli.app import run
from codecfleet.cli.calls.answers import Answer
from codecfleet.cli.services import Services

Captured = pytest.CaptureFixture[str]


class Machine:
    """Remembers what it is asked to keep up."""

    def __init__(self) -> None:
        self.asked: list[tuple[int | None, int] | None] = []

    def services(self) -> Services:
        """Return what the commands call."""
        return Services(up=self._up, down=self._down)

    def _up(self, slots: int | None, idle_minutes: int) -> Answer:
        self.asked.append((slots, idle_minutes))
        return Answer(["the warm fleet is up"], {"schema": 1, "process": 7})

    def _down(self) -> Answer:
        self.asked.append(None)
        return Answer(["it is down"], {"schema": 1, "processes": [7]})


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("up", (None, 30)),
        ("up --workers 4 --idle-minutes 120", (4, 120)),
        ("down", None),
    ],
)
def test_what_is_asked_for_arrives(line: str, asked: tuple[int | None, int] | None, capsys: Captured) -> None:
    """Numbers arrive as they were given, and the answer is a line, or with --json a document."""
    machine = Machine()
    assert run(line.split(), machine.services()) == 0
    assert machine.asked == [asked]
    assert capsys.readouterr().out.count("\n") == 1
    assert run([*line.split(), "--json"], machine.services()) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == 1


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("up --workers 0", "--workers"),
        ("up --idle-minutes 0", "--idle-minutes"),
        ("up --idle-minutes 1.5", "--idle-minutes"),
        ("up here", "here"),
        ("down --workers 2", "--workers"),
    ],
)
def test_nonsense_is_refused(line: str, named: str, capsys: Captured) -> None:
    """Mistakes are one line on stderr, exit code 2, and nothing is started."""
    machine = Machine()
    assert run(line.split(), machine.services()) == 2
    assert machine.asked == []
    said = capsys.readouterr().err
    assert named in said
    assert said.count("\n") == 1
