"""A supervisor's memory of the work of its stations."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.device.pieces import ReportedPiece
from codecfleet.cluster.supervisor.status.history import (
    EACH_LEAST,
    EACH_MAX,
    GONE_MAX,
    KEPT_S,
    SPEEDS_MAX,
    TOTAL_MAX,
    WorkHistory,
)
from codecfleet.cluster.worker_names import WorkerId

WORKER = WorkerId("node/cpu#0:7")
STATION = "node/cpu#0"


def running(run: str, began_s: float) -> ReportedPiece:
    """Return a running piece that began this long before the heartbeat."""
    return run, "35daf5cc", f"segment {run}", -began_s, None, ""


def ended(run: str, began_s: float, ended_s: float, ending: str = "done") -> ReportedPiece:
    """Return a piece that ended this long before the heartbeat."""
    return run, "35daf5cc", f"segment {run}", -began_s, -ended_s, ending


def seen(
    history: WorkHistory, now_s: float, *, is_live: bool = True
) -> list[tuple[str, int, float, float | None, str]]:
    """Return label, lane, begin, end and ending of each piece of a station's work."""
    found = history.of((STATION,), lambda _: is_live, now_s).pieces.get(STATION, ())
    return [(each.label, each.lane, each.began_s, each.ended_s, each.ending) for each in found]


def test_pieces_begin_run_and_end() -> None:
    """A piece is kept once, with the worker's times converted to the supervisor's clock."""
    history = WorkHistory(str)
    history.note(WORKER, [running("1", 3.0)], 10.0)
    assert seen(history, 11.0) == [("segment 1", 0, 4.0, None, "running")]
    for now_s in (12.0, 14.0):
        history.note(WORKER, [ended("1", now_s - 7.0, now_s - 11.5, "retry"), running("2", now_s - 11.5)], now_s)
    assert seen(history, 15.0) == [("segment 1", 0, 8.0, 3.5, "retry"), ("segment 2", 0, 3.5, None, "running")]


def test_missing_work_is_lost() -> None:
    """Work is lost as of its process's last heartbeat if the process is gone, replaced, or silent about the work."""
    history = WorkHistory(str)
    history.note(WORKER, [running("1", 2.0), running("2", 2.0)], 10.0)
    history.note(WORKER, [running("2", 4.0)], 12.0)
    history.note(WorkerId("node/cpu#0:8"), [running("3", 0.5)], 20.0)
    assert [(label, ended_s, ending) for label, _, _, ended_s, ending in seen(history, 20.0)] == [
        ("segment 1", 10.0, "lost"),
        ("segment 2", 8.0, "lost"),
        ("segment 3", None, "running"),
    ]
    assert seen(history, 22.0, is_live=False)[-1] == ("segment 3", 0, 2.5, 2.0, "lost")


def test_old_work_is_forgotten() -> None:
    """Pieces, stations and speeds are dropped after ``KEPT_S``; running work stays, and nothing dropped returns."""
    history = WorkHistory(str)
    history.note(WORKER, [ended("1", 4.0, 1.0), running("2", 4.0)], 10.0)
    history.look(25.0, 10.0)
    later_s = 12.0 + KEPT_S
    history.note(WORKER, [running("2", later_s - 6.0)], later_s)
    assert [label for label, *_ in seen(history, later_s)] == ["segment 2"]
    assert history.of((), lambda _: True, later_s).speeds == ()
    history.look(0.0, later_s + KEPT_S + 1)
    assert seen(history, later_s + KEPT_S + 1) == []


def test_one_station_cannot_fill_the_memory() -> None:
    """However many pieces end, only the newest are kept, each once, and dropped pieces do not return."""
    history = WorkHistory(str)
    for turn in range(EACH_MAX):
        for later_s in (0.0, 0.5):
            ages = [(f"{turn}.{n}", 2.0 - n / 10 + later_s) for n in range(10)]
            history.note(WORKER, [ended(run, age_s, age_s - 0.1) for run, age_s in ages], 2.0 * turn + later_s)
    found = [label for label, *_ in seen(history, 2.0 * EACH_MAX)]
    assert (len(found), len(set(found)), found[-1]) == (EACH_MAX, EACH_MAX, f"segment {EACH_MAX - 1}.9")


def test_many_stations_share_what_is_kept() -> None:
    """Each of 9,000 stations keeps its least number of pieces, and a thousand stations share the whole."""
    history = WorkHistory(str)
    many = TOTAL_MAX // EACH_LEAST + 1
    pieces = [ended(str(n), 1.0 - n / 1000, 0.9 - n / 1000) for n in range(EACH_LEAST + 5)]
    for number in range(many):
        history.note(WorkerId(f"node/cpu#{number}:1"), pieces, 10.0)
    for number in (0, many - 1):
        history.note(WorkerId(f"node/cpu#{number}:1"), pieces, 10.0)
    found = history.of(("node/cpu#0", f"node/cpu#{many - 1}"), lambda _: True, 10.0).pieces
    assert {len(each) for each in found.values()} == {EACH_LEAST}


def test_lost_workers_are_included_unasked() -> None:
    """The latest busy stations that are gone are included, under their old node names, with running work as lost."""
    titles = {"node": "alpha"}
    history = WorkHistory(lambda node: titles.get(node, node))
    history.note(WORKER, [running("1", 3.0)], 10.0)
    history.note(WorkerId("node/cpu#1:1"), [], 11.0)
    history.note(WorkerId("node/cpu#2:1"), [running("2", 1.0)], 12.0)
    titles.clear()
    found = history.of((), lambda worker: worker == "node/cpu#2:1", 15.0)
    assert found.gone == {STATION: "alpha"}
    assert [(each.ended_s, each.ending) for each in found.pieces[STATION]] == [(5.0, "lost")]
    for number in range(3, 3 + GONE_MAX):
        history.note(WorkerId(f"node/cpu#{number}:1"), [running("3", 1.0)], 10.0 + number)
    found = history.of((STATION,), lambda _: False, 50.0)
    assert list(found.gone) == [f"node/cpu#{number}" for number in range(2 + GONE_MAX, 2, -1)]
    assert len(found.pieces) == 1 + GONE_MAX


def test_speeds_are_bounded() -> None:
    """Only the newest speeds are kept, with their age."""
    history = WorkHistory(str)
    for turn in range(SPEEDS_MAX + 100):
        history.look(float(turn), turn * 2.0)
    speeds = history.of((), lambda _: True, 2.0 * (SPEEDS_MAX + 99)).speeds
    assert len(speeds) == SPEEDS_MAX
    assert speeds[-1] == (0.0, SPEEDS_MAX + 99.0)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=30))
def test_lanes_never_overlap(work: Iterable[tuple[int, int]]) -> None:
    """A lane never has two pieces at the same time, whatever work arrives."""
    history = WorkHistory(str)
    spans = {f"{n}": (float(began), float(began + length)) for n, (began, length) in enumerate(work)}
    for now_s in range(0, 45, 2):
        pieces = [
            ended(run, now_s - began, now_s - end) if end <= now_s else running(run, now_s - began)
            for run, (began, end) in spans.items()
            if began <= now_s and end >= now_s - 5
        ]
        history.note(WORKER, pieces, float(now_s))
    found = seen(history, 45.0)
    assert len(found) == len(spans)
    for _, lane, began_s, ended_s, _ in found:
        assert ended_s is not None
        beside = [each for each in found if each[1] == lane and each[2] > ended_s and (each[3] or 0.0) < began_s]
        assert len(beside) == 1
