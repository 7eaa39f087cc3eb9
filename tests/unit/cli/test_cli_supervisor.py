"""The commands that ask a cluster's supervisor or give it orders, with given answers."""

import asyncio
import io
import json
import math
import os
import signal
import termios
from collections.abc import Awaitable, Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest

from codecfleet.cli.app import run
from codecfleet.cli.commands.supervisor import PRINTED_COLUMNS, WATCH_EVERY_S, status_answer
from codecfleet.cli.services import Services
from codecfleet.cluster.operate.desk import Seen
from codecfleet.cluster.supervisor.status import Status
from codecfleet.console.top import screen_lines
from codecfleet.errors import FleetUnavailable, UsageError

Captured = pytest.CaptureFixture[str]
Show = Callable[[Seen], None]
ORDERS = ("drain", "cordon", "uncordon")
LOOKS = ("status", "status --watch", "top")


def busy(turn: int = 0) -> Status:
    """Return the status of a busy cluster."""
    return Status(pid=turn, host="head", nodes=(), devices=(), workers=(), jobs=(), quarantine=(), log=())


class Unjson(Status):
    """A status that cannot be written as JSON."""

    def to_json(self) -> dict[str, Any]:
        """Make none."""
        raise KeyError("pid")


@dataclass
class Cluster:
    """The services of a cluster with given answers."""

    error: Exception | None = None  # the error that every question raises
    ending: Callable[[], Awaitable[None]] | None = None  # the function that ends a watch once all answers were shown
    answers: Sequence[Seen] = (busy(0), busy(1))  # the statuses that a watch shows
    every_s: list[float] = field(default_factory=list)

    def services(self) -> Services:
        """Return them."""
        return Services(status=self._answer, watch=self._watch, order=self._answer)

    def _answer(self, *_: object) -> Status:
        if self.error is not None:
            raise self.error
        return busy()

    async def _watch(self, _address: str | None, show: Show, every_s: float) -> None:
        self.every_s.append(every_s)
        self._answer()
        for seen in self.answers:
            show(seen)
        if self.ending is not None:
            await self.ending()


class Screen(io.StringIO):
    """A terminal as stdout."""

    def isatty(self) -> bool:
        """Return True."""
        return True


class ClosedPipe(io.StringIO):
    """A pipe whose reader leaves after the first line."""

    def write(self, text: str) -> int:
        """Write, as long as there is a reader."""
        if self.getvalue().endswith("\n"):
            raise BrokenPipeError
        return super().write(text)


async def ctrl_c(number: int = signal.SIGINT) -> None:
    """Receive a signal, as a terminal sends it, and wait for its effect."""
    signal.raise_signal(number)
    await asyncio.Event().wait()


async def sigterm() -> None:
    """Receive SIGTERM."""
    await ctrl_c(signal.SIGTERM)


def test_status_shows_lines_or_one_document(capsys: Captured) -> None:
    """Status prints lines for people or, with --json, one document with the supervisor."""
    assert run(["status"], Cluster().services()) == 0
    assert capsys.readouterr().out.splitlines() == status_answer(busy()).lines
    assert run(["status", "--json"], Cluster().services()) == 0
    assert json.loads(capsys.readouterr().out)["supervisor"]["host"] == "head"


@pytest.mark.parametrize("line", ["drain a", "cordon a", "uncordon a", *LOOKS, "status --json"])
@pytest.mark.parametrize("address", ["", "local"])
def test_without_a_fleet_there_is_nothing_to_look_at(
    line: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Without an address, or with that of a private Ray, the real services refuse with the next step."""
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert run(line.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    no_fleet = "" if line.partition(" ")[0] in ORDERS else ", and no warm fleet runs on this machine"
    assert said.err.startswith(f"codecfleet: error: no cluster is named{no_fleet}. Give --address, or set RAY_ADDRESS")


@pytest.mark.parametrize("line", [*LOOKS, "drain a"])
@pytest.mark.parametrize(
    ("error", "code"),
    [(UsageError("no node is called a", "See."), 2), (FleetUnavailable("no Ray answers", "Check."), 5)],
)
def test_a_cluster_that_refuses_or_is_gone_is_one_line(
    line: str, error: Exception, code: int, capsys: Captured
) -> None:
    """An error of the cluster becomes one line on stderr, with the error's exit code."""
    assert run(line.split(), Cluster(error).services()) == code
    assert capsys.readouterr().err == f"codecfleet: error: {error}\n"


@pytest.mark.parametrize("ending", [ctrl_c, sigterm])
def test_watch_prints_again_until_it_is_interrupted(ending: Callable[[], Awaitable[None]], capsys: Captured) -> None:
    """Each status is printed when it arrives, followed by an empty line; an interruption is no error."""
    cluster = Cluster(ending=ending, answers=[busy(turn) for turn in range(3)])
    assert run(["status", "--watch"], cluster.services()) == 0
    said = capsys.readouterr()
    answers = [status_answer(busy(turn)).lines for turn in range(3)]
    assert said.out == "".join("".join(f"{line}\n" for line in [*lines, ""]) for lines in answers)
    assert said.err == ""
    assert cluster.every_s == [WATCH_EVERY_S]


NO_TIME = replace(busy(), log=((math.inf, "a client came"),))


@pytest.mark.parametrize(
    ("line", "odd"),
    [
        ("top", NO_TIME),
        ("status --watch", NO_TIME),
        ("status --watch --json", Unjson(**{each.name: getattr(busy(), each.name) for each in fields(Status)})),
    ],
)
def test_a_look_that_cannot_be_shown_costs_itself_alone(
    line: str, odd: Status, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """If a status cannot be shown, the reason is shown, and then the next status."""
    monkeypatch.setenv("TERM", "xterm")
    cluster, screen = Cluster(ending=ctrl_c, answers=[odd, busy(7)]), Screen()
    with redirect_stdout(screen):
        assert run(line.split(), cluster.services()) == 0
    said = screen.getvalue()
    first = said.index("the fleet's status cannot be shown: ")
    assert first < said.index('"pid":7' if "--json" in line else "process 7")
    assert capsys.readouterr().err == ""


def test_watch_with_json_is_a_line_each_time(capsys: Captured) -> None:
    """A program reads one document per line."""
    assert run(["status", "--watch", "--json"], Cluster(ending=ctrl_c).services()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["supervisor"]["pid"] for line in lines] == [0, 1]


def test_a_terminal_shows_the_screen_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """``top`` and ``status --watch`` first say that they connect, then redraw the screen within its size.

    With --json there is no escape sequence.
    """
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("LINES", "4")
    lines = [screen_lines(busy(turn), width=30, height=3, colour=True) for turn in range(2)]
    drawn = "\x1b[H\x1b[Jconnecting to the fleet ...\n"
    drawn += "".join(f"\x1b[H\x1b[K{first}\n\x1b[K{second}\n\x1b[J{third}\n" for first, second, third in lines)
    for line, wanted in (("top", drawn), ("status --watch", drawn)):
        screen = Screen()
        with redirect_stdout(screen):
            assert run(line.split(), Cluster(ending=ctrl_c).services()) == 0
        assert screen.getvalue() == wanted
    screen = Screen()
    with redirect_stdout(screen):
        assert run(["status", "--watch", "--json"], Cluster(ending=ctrl_c).services()) == 0
    assert "\x1b" not in screen.getvalue()


def test_top_is_printed_once_where_there_is_no_terminal(capsys: Captured) -> None:
    """In a file or a pipe, the output is complete, has no escape sequences, and ends."""
    assert run(["top"], Cluster().services()) == 0
    wanted = screen_lines(busy(), width=PRINTED_COLUMNS, height=None, colour=False)
    assert capsys.readouterr().out.splitlines() == wanted


def test_top_is_stopped_by_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key q ends the command with exit code 0 and other keys do nothing; afterwards the terminal is as before."""
    monkeypatch.setenv("TERM", "xterm")
    keyboard, terminal = os.openpty()

    async def pressed() -> None:
        os.write(keyboard, b"x")
        await asyncio.sleep(0)
        os.write(keyboard, b"q")
        await asyncio.Event().wait()

    with os.fdopen(terminal) as stdin, redirect_stdout(Screen()) as screen:
        monkeypatch.setattr("sys.stdin", stdin)
        # the terminal of this test is not that of its session
        monkeypatch.setattr("os.tcgetpgrp", lambda _: os.getpgrp())
        before = termios.tcgetattr(stdin)
        assert run(["top"], Cluster(ending=pressed).services()) == 0
        assert termios.tcgetattr(stdin) == before
    os.close(keyboard)
    assert "supervisor  process 1" in screen.getvalue()


@pytest.mark.parametrize("line", [*LOOKS, "status --watch --json"])
def test_a_reader_that_goes_away_ends_it_in_silence(line: str, capsys: Captured) -> None:
    """``status | head -1`` ends with exit code 141, and prints nothing on stderr."""
    pipe = ClosedPipe()
    with redirect_stdout(pipe):
        assert run(line.split(), Cluster(ending=ctrl_c).services()) == 141
    assert capsys.readouterr().err == ""


def test_signals_are_given_back_after_a_watch() -> None:
    """After a watch, the caller's signal handlers are restored."""
    before = signal.getsignal(signal.SIGINT)
    with redirect_stdout(io.StringIO()):
        assert run(["status", "--watch"], Cluster(ending=ctrl_c).services()) == 0
    assert signal.getsignal(signal.SIGINT) is before
