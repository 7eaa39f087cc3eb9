"""The content of the page, as values."""

import json
from dataclasses import replace
from typing import Any

from codecfleet.cluster.supervisor.status import NO_SUPERVISOR, Status
from codecfleet.cluster.supervisor.status.history import History, PieceSeen
from codecfleet.cluster.worker_names import StationId
from codecfleet.dashboard.document import CELL_MAX, ROWS_MAX, STATIONS_MAX, WINDOW_S, chosen_stations, document
from codecfleet.errors import FleetUnavailable

from ..cli.large_fleet import RESTING, SICK, WAITING, job, large_fleet, worker
from .hostile_fleet import busy_history

EMPTY = Status(pid=1, host="head", nodes=(), devices=(), workers=(), jobs=(), quarantine=(), log=())


def fleet_of(status: Status, history: History | None = None, stations: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the content of the page about a fleet."""
    found: dict[str, Any] = document(status, history or History(), stations)["fleet"]
    return found


def table(fleet: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a table by the name of its first column."""
    return next(each for each in fleet["tables"] if each["columns"][0] == name)


def test_an_idle_fleet() -> None:
    """In an idle fleet, there is no trouble, and each table is empty."""
    fleet = fleet_of(EMPTY)
    assert (fleet["health"], fleet["timeline"], fleet["speeds"], fleet["stations"]) == ([], [], [], 0)
    assert fleet["sums"]["slots"] == 0
    assert [(each["of"], each["rows"]) for each in fleet["tables"]] == [(0, [])] * 6


def test_without_a_fleet_there_is_the_reason() -> None:
    """A missing or silent supervisor is reported in words."""
    assert document(None, History(), ()) == {"schema": 1, "trouble": NO_SUPERVISOR, "fleet": None}
    gone = document(FleetUnavailable("the supervisor does not answer", "Wait."), History(), ())
    assert gone["trouble"] == "the supervisor does not answer. Wait."


def test_what_is_broken_is_said_in_words() -> None:
    """The health lines name quarantine, waiting jobs and entries that get no new work; styles mark their rows."""
    fleet = fleet_of(large_fleet())
    assert fleet["health"] == [
        "1 in quarantine",
        "waiting jobs: 1; the first because other jobs hold the slots",
        "devices: 1 quarantined",
        "workers: 1 resting",
        "nodes: 1 draining",
    ]
    assert table(fleet, "device on")["rows"][0][:3] == ["bad", f"gpu-{SICK}", "quarantined"]
    assert table(fleet, "worker")["rows"][0][:2] == ["bad", f"gpu-{RESTING}/cpu#0"]
    assert table(fleet, "job")["rows"][0][:2] == ["limited", f"{WAITING:08x}"]


def test_rows_stay_where_they_are_while_speeds_change() -> None:
    """Below broken entries, rows are sorted by name: gpu-9 before gpu-10, and a very long number last."""
    workers = tuple(worker(number) for number in range(12))
    status = replace(large_fleet(), workers=(replace(worker(12), node="gpu-" + "9" * 5000), *workers))
    names = [row[1] for row in table(fleet_of(status), "worker")["rows"]]
    assert names[:-1] == [f"gpu-{number}/cpu#0" for number in range(12)]


def test_chosen_stations_are_broken_then_shown_then_busy() -> None:
    """The timeline keeps its stations, and makes room only for stations that break."""
    status = large_fleet()
    first = chosen_stations(status)
    assert len(first) == STATIONS_MAX
    assert first[0] == worker(RESTING).worker
    slow = tuple(worker(number).worker for number in range(STATIONS_MAX - 1))
    assert set(chosen_stations(status, slow)) == {*slow, worker(RESTING).worker}
    assert chosen_stations(None) == ()


def test_the_timeline_is_the_history_of_the_chosen() -> None:
    """A row has the state and slots of its station, and the pieces within the window."""
    status = replace(large_fleet(), workers=(worker(10), worker(9)))
    history = History(
        {
            worker(9).worker: (
                PieceSeen("j", "segment 1", 1, WINDOW_S + 90.0, WINDOW_S + 1.0, "done"),
                PieceSeen("j", "segment 2", 0, 20.04, 10.26, "failed"),
                PieceSeen("j", "segment 3", 2, 9.0, None, "running"),
            )
        },
        ((WINDOW_S + 1.0, 5.0), (2.0, 24.96)),
    )
    fleet = fleet_of(status, history, chosen_stations(status))
    nine, ten = fleet["timeline"]
    assert (nine["station"], nine["state"], nine["slots"], nine["lanes"]) == ("gpu-9/cpu#0", "ready", 4, 3)
    assert nine["pieces"] == [[0, 20.0, 10.3, "j", "segment 2", "failed"], [2, 9.0, None, "j", "segment 3", "running"]]
    assert (ten["station"], ten["pieces"], ten["lanes"]) == ("gpu-10/cpu#0", [], 1)
    assert fleet["speeds"] == [[2.0, 25.0]]


def test_a_very_large_fleet_is_told_in_few_words() -> None:
    """With 1,000 nodes and 10,000 jobs, the document has a limited size, and still counts everything."""
    status = large_fleet(1000, 10_000)
    stations = chosen_stations(status)
    fleet = fleet_of(status, busy_history(stations), stations)
    assert [each["of"] for each in fleet["tables"]] == [1, 10_000, 1000, 1000, 1000, 100]
    assert all(len(each["rows"]) <= ROWS_MAX for each in fleet["tables"])
    assert (len(fleet["timeline"]), fleet["stations"]) == (STATIONS_MAX, 1000)
    assert len(json.dumps(fleet)) < 300_000


def test_texts_are_one_line_redacted_and_bounded() -> None:
    """Line breaks and escape sequences are made harmless, credentials are removed, and very long reasons are cut."""
    text = "s3://key:secret@bucket/a\n\x1b[31m" + "x" * 10_000
    status = replace(EMPTY, jobs=(replace(job(WAITING), waits_for=text),), host=text)
    fleet = fleet_of(status)
    shown = table(fleet, "job")["rows"][0][-1]
    assert len(shown) == CELL_MAX
    assert not {"\n", "\x1b"} & set(json.dumps(fleet, ensure_ascii=False))
    assert "secret" not in json.dumps(fleet)


def test_what_is_gone_stays_on_the_timeline_for_the_window() -> None:
    """A worker that is gone keeps its row, below those of live workers; a worker that came back has one row."""
    ran = (PieceSeen("j", "segment 1", 0, 30.0, 20.0, "lost"),)
    long_ago = (PieceSeen("j", "segment 0", 0, WINDOW_S + 9.0, WINDOW_S + 1.0, "done"),)
    there = worker(9)
    pieces = {"a1/cpu#0": ran, "b2/gpu#1": ran, "c3/cpu#0": long_ago, there.worker: ran}
    gone = {"a1/cpu#0": "zebra", "b2/gpu#1": "ant", "c3/cpu#0": "old", there.worker: there.node}
    gone = {StationId(station): node for station, node in gone.items()}
    fleet = fleet_of(replace(EMPTY, workers=(there,)), History(pieces, (), gone), (there.worker,))
    assert fleet["stations"] == 3
    assert [(row["station"], row["on"], row["state"]) for row in fleet["timeline"][1:]] == [
        ("ant/gpu#1", "GPU", "gone"),
        ("zebra/cpu#0", "processor", "gone"),
    ]
    assert fleet["timeline"][1]["pieces"] == [[0, 30.0, 20.0, "j", "segment 1", "lost"]]
    crowded = replace(EMPTY, workers=tuple(worker(number) for number in range(STATIONS_MAX)))
    full = fleet_of(crowded, History(pieces, (), gone), chosen_stations(crowded))
    assert {row["state"] for row in full["timeline"]} == {"ready"}
    assert full["stations"] == STATIONS_MAX + 2
