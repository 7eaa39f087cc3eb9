"""The commands that look at a cluster's supervisor or order something of it, with answers that are given."""

import asyncio
import io
import json
import math
import os
import signal
import termios
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from codecfleet.cli.app import parse, run
from codecfleet.cli.commands.supervisor import PRINTED_COLUMNS, WATCH_EVERY_S, Top, Watch, status_answer
from codecfleet.cli.services import Answer, Services
from codecfleet.cluster.operate.desk import Seen
from codecfleet.cluster.supervisor.status import Status
from codecfleet.console.top import screen_lines
from codecfleet.errors import FleetUnavailable, UsageError

Captured = pytest.CaptureFixture[str]
Show = Callable[[Seen], None]
ORDERS = ("drain", "cordon", "uncordon")
LOOKS = ("status", "status --watch", "top")


def busy(turn: int = 0) -> Status:
    """Return a cluster's status."""
    return Status(pid=turn, host="head", nodes=(), devices=(), workers=(), jobs=(), quarantine=(), log=())


class Unjson(Status):
    """A status that no JSON can be made of."""

    def to_json(self) -> dict[str, Any]:
        """Make none."""
        raise KeyError("pid")


class Cluster:
    """Services of a cluster whose answers are given; keeps what it was asked.

    Args:
        error: what every question raises; None for nothing.
        ending: what ends a watch once ``shows`` answers were shown.
        shows: how often a watch shows something.
    """

    def __init__(
        self, error: Exception | None = None, ending: Callable[[], Awaitable[None]] | None = None, shows: int = 2
    ) -> None:
        self.asked: list[tuple[str | None, ...]] = []
        self.forced_exits: list[int] = []
        self.every_s: list[float] = []
        self._error = error
        self._ending = ending
        self.answers = [busy(turn) for turn in range(shows)]

    def services(self) -> Services:
        """Return them."""
        return Services(
            status=self._status,
            watch=self._watch,
            order=self._order,
            keep_events=self._keep_events,
            exit_now=self.forced_exits.append,
        )

    def _status(self, address: str | None) -> Status:
        self.asked.append((address,))
        self._fail()
        return busy()

    def _keep_events(self, address: str | None, file: str) -> Answer:
        self.asked.append((address, file))
        return Answer([f"the newest events are in {file}"], {"file": file})

    def _order(self, address: str | None, order: str, node: str) -> Answer:
        self.asked.append((address, order, node))
        self._fail()
        return Answer([f"{order}: {node}"], {"node": node, "order": order})

    async def _watch(self, address: str | None, show: Show, every_s: float) -> None:
        self.asked.append((address,))
        self.every_s.append(every_s)
        self._fail()
        for seen in self.answers:
            show(seen)
        if self._ending is not None:
            await self._ending()

    def _fail(self) -> None:
        if self._error is not None:
            raise self._error


class Screen(io.StringIO):
    """A terminal as stdout."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


class ClosedPipe(io.StringIO):
    """A pipe whose reader goes away after the first line."""

    def write(self, text: str) -> int:
        """Write, as long as somebody reads."""
        if self.getvalue().endswith("\n"):
            raise BrokenPipeError
        return super().write(text)


async def interrupted(number: int) -> None:
    """Receive a signal, as a terminal sends it, and wait for what comes of it."""
    signal.raise_signal(number)
    await asyncio.Event().wait()


async def ctrl_c() -> None:
    """Receive Ctrl-C."""
    await interrupted(signal.SIGINT)


async def sigterm() -> None:
    """Receive SIGTERM."""
    await interrupted(signal.SIGTERM)


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("status", (None,)),
        ("status --address head:6379 --json", ("head:6379",)),
        ("top", (None,)),
        ("top --address head:6379", ("head:6379",)),
        ("drain gpu-3", (None, "drain", "gpu-3")),
        ("cordon gpu-3 --address auto", ("auto", "cordon", "gpu-3")),
        ("uncordon --address=auto --json 25ad036c", ("auto", "uncordon", "25ad036c")),
    ],
)
def test_what_is_asked_for_reaches_the_cluster(line: str, asked: tuple[str | None, ...], capsys: Captured) -> None:
    """Address, order and node arrive as they were given, once, and nothing is said on stderr."""
    cluster = Cluster()
    assert run(line.split(), cluster.services()) == 0
    assert cluster.asked == [asked]
    assert capsys.readouterr().err == ""


def test_status_shows_lines_or_one_document(capsys: Captured) -> None:
    """Lines for people as they are; with --json one document with the supervisor in it."""
    assert run(["status"], Cluster().services()) == 0
    assert capsys.readouterr().out.splitlines() == status_answer(busy()).lines
    assert run(["status", "--json"], Cluster().services()) == 0
    assert json.loads(capsys.readouterr().out)["supervisor"]["host"] == "head"


def test_status_writes_events_to_a_file(capsys: Captured) -> None:
    """The supervisor is asked for them once, and nothing else is shown."""
    cluster = Cluster()
    assert run(["status", "--address", "head:6379", "--events", "late.events"], cluster.services()) == 0
    assert cluster.asked == [("head:6379", "late.events")]
    assert capsys.readouterr().out == "the newest events are in late.events\n"


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_says_what_was_ordered(order: str, capsys: Captured) -> None:
    """One line for people; with --json one document with the order and the node as it was given."""
    assert run([order, "gpu-3"], Cluster().services()) == 0
    assert capsys.readouterr().out == f"{order}: gpu-3\n"
    assert run([order, "gpu-3", "--json"], Cluster().services()) == 0
    assert json.loads(capsys.readouterr().out) == {"node": "gpu-3", "order": order}


@pytest.mark.parametrize("line", ["drain a", "cordon a", "uncordon a", *LOOKS, "status --json"])
@pytest.mark.parametrize("address", ["", "local"])
def test_without_a_fleet_there_is_nothing_to_look_at(
    line: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """No address, or that of a private Ray, is a usage error that says what to give: the real services, without Ray."""
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert run(line.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    no_fleet = "" if line.partition(" ")[0] in ORDERS else ", and no warm fleet is up on this machine"
    assert said.err.startswith(f"codecfleet: error: no cluster is named{no_fleet}. Give --address, or set RAY_ADDRESS")


@pytest.mark.parametrize("line", [*LOOKS, "drain a"])
@pytest.mark.parametrize(
    ("error", "code"),
    [(UsageError("no node is called a", "See."), 2), (FleetUnavailable("no Ray answers", "Check."), 5)],
)
def test_a_cluster_that_refuses_or_is_gone_is_one_line(
    line: str, error: Exception, code: int, capsys: Captured
) -> None:
    """What the cluster raises becomes one line on stderr and the error's own exit code."""
    assert run(line.split(), Cluster(error).services()) == code
    assert capsys.readouterr().err == f"codecfleet: error: {error}\n"


def test_watch_is_a_request_of_its_own() -> None:
    """--watch keeps the address and the way of looking."""
    assert parse(["status", "--watch", "--address", "head:1", "--json"]) == Watch(address="head:1", as_json=True)
    assert parse(["top", "--address", "head:1"]) == Top(address="head:1")


@pytest.mark.parametrize("ending", [ctrl_c, sigterm])
def test_watch_prints_again_until_it_is_interrupted(ending: Callable[[], Awaitable[None]], capsys: Captured) -> None:
    """Each answer is printed as it comes, with an empty line after it; an interruption is not an error."""
    cluster = Cluster(ending=ending, shows=3)
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
    """Why is shown, and then the next one."""
    monkeypatch.setenv("TERM", "xterm")
    cluster, screen = Cluster(ending=ctrl_c), Screen()
    cluster.answers = [odd, busy(7)]
    with redirect_stdout(screen):
        assert run(line.split(), cluster.services()) == 0
    said = screen.getvalue()
    first = said.index("this look at the fleet failed: ")
    assert first < said.index('"pid":7' if "--json" in line else "process 7")
    assert capsys.readouterr().err == ""


def test_watch_with_json_is_a_line_each_time(capsys: Captured) -> None:
    """A program reads one document a line."""
    assert run(["status", "--watch", "--json"], Cluster(ending=ctrl_c).services()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["supervisor"]["pid"] for line in lines] == [0, 1]


def test_a_terminal_shows_the_screen_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """``top`` and ``status --watch`` say at once that they connect, then write over the screen, within its size.

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
    """In a file or a pipe it is whole, without escape sequences, and ends by itself."""
    assert run(["top"], Cluster().services()) == 0
    wanted = screen_lines(busy(), width=PRINTED_COLUMNS, height=None, colour=False)
    assert capsys.readouterr().out.splitlines() == wanted


def test_top_is_stopped_by_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key other than q does nothing, q ends it with exit code 0, and the terminal is as it was before."""
    monkeypatch.setenv("TERM", "xterm")
    keyboard, terminal = os.openpty()

    async def pressed() -> None:
        os.write(keyboard, b"x")
        await asyncio.sleep(0)
        os.write(keyboard, b"q")
        await asyncio.Event().wait()

    with os.fdopen(terminal) as stdin, redirect_stdout(Screen()) as screen:
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("os.tcgetpgrp", lambda _: os.getpgrp())  # the test's terminal is not its session's
        before = termios.tcgetattr(stdin)
        assert run(["top"], Cluster(ending=pressed).services()) == 0
        assert termios.tcgetattr(stdin) == before
    os.close(keyboard)
    assert "supervisor  process 1" in screen.getvalue()


@pytest.mark.parametrize("line", [*LOOKS, "status --watch --json"])
def test_a_reader_that_goes_away_ends_it_in_silence(line: str, capsys: Captured) -> None:
    """``status | head -1`` ends with exit code 141, and nothing is said on stderr."""
    pipe = ClosedPipe()
    with redirect_stdout(pipe):
        assert run(line.split(), Cluster(ending=ctrl_c).services()) == 141
    assert capsys.readouterr().err == ""


def test_signals_are_given_back_after_a_watch() -> None:
    """The caller's signal handlers are restored."""
    before = signal.getsignal(signal.SIGINT)
    with redirect_stdout(io.StringIO()):
        assert run(["status", "--watch"], Cluster(ending=ctrl_c).services()) == 0
    assert signal.getsignal(signal.SIGINT) is before
