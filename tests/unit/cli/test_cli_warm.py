"""The commands ``up`` and ``down`` against fakes: what is asked for, and what is said."""

import json

import pytest

from codecfleet.cli.app import run
from codecfleet.cli.services import Answer, Services

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
