"""What the page shows, as JSON values: pure functions of a fleet's status and history, of bounded size."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from ..cluster.supervisor.status import NO_SUPERVISOR, History, PieceSeen, Status
from ..cluster.worker_names import engine_of
from ..console.top import BROKEN, LIMITED, ScreenRow, Table, counted, present_workers, sums_of, tables, worker_order
from ..errors import FleetUnavailable, one_line

if TYPE_CHECKING:
    from ..cluster.operate.watch import Seen
    from ..cluster.supervisor.status import WorkerStatus

SCHEMA: Final = 1
ROWS_MAX: Final = 20
"""The most rows of a table."""
STATIONS_MAX: Final = 24
"""The most stations of the timeline."""
WINDOW_S: Final = 600
"""How far back the timeline goes."""
CELL_MAX: Final = 300
"""The most characters of a cell: a reason may be as long as an error of Ray's."""
_ENGINES: Final = {"cpu": "processor", "dla": "DLA"}
_STYLES: Final = {"red": "bad", "yellow": "limited"}
_NUMBER: Final = re.compile(r"(\d+)")
_DIGITS_MAX: Final = 18


def chosen_stations(seen: "Seen", shown: Collection[str] = ()) -> tuple[str, ...]:
    """Return the stations of the timeline: broken ones, then those ``shown`` before, then the busiest."""
    if not isinstance(seen, Status):
        return ()
    ordered = sorted(present_workers(seen), key=worker_order)
    ordered.sort(key=lambda worker: (worker.state not in BROKEN, worker.worker not in shown))
    return tuple(worker.worker for worker in ordered[:STATIONS_MAX])


def document(seen: "Seen", history: History, stations: tuple[str, ...]) -> dict[str, Any]:
    """Return what the page shows of a fleet: ``trouble`` where there is nothing to see, "" otherwise."""
    if seen is None:
        return {"schema": SCHEMA, "trouble": NO_SUPERVISOR, "fleet": None}
    if isinstance(seen, FleetUnavailable):
        return {"schema": SCHEMA, "trouble": _short(str(seen)), "fleet": None}
    return {"schema": SCHEMA, "trouble": "", "fleet": _fleet(seen, history, stations)}


def _fleet(status: Status, history: History, stations: tuple[str, ...]) -> dict[str, Any]:
    gone = _gone(status, history)
    timeline = _timeline(status, history, stations, gone)
    return {
        "supervisor": f"process {status.pid} on {_short(status.host)}",
        "sums": asdict(sums_of(status)) | _counts(status),
        "health": [_short(line) for line in _health(status)],
        "window_s": WINDOW_S,
        "speeds": [[round(ago_s, 1), round(fps, 1)] for ago_s, fps in history.speeds if ago_s <= WINDOW_S],
        "stations": len(present_workers(status)) + len(gone),
        "timeline": timeline,
        "titles": _titles(status, timeline),
        "tables": [_table(table, of) for table, of in zip(tables(status, ROWS_MAX), _all_rows(status), strict=True)],
    }


def _counts(status: Status) -> dict[str, Any]:
    return {
        "nodes": counted(node.state for node in status.nodes),
        "devices": counted(device.state for device in status.devices),
        "workers": counted(worker.state for worker in present_workers(status)),
        "jobs": len(status.jobs),
        "quarantined": len(status.quarantine),
    }


def _all_rows(status: Status) -> tuple[int, ...]:
    """Return how many rows each table has in all."""
    workers = len(present_workers(status))
    return len(status.quarantine), len(status.jobs), len(status.devices), workers, len(status.nodes), len(status.log)


def _health(status: Status) -> Iterator[str]:
    """Yield a line for each kind of thing that somebody may have to look at."""
    if status.quarantine:
        yield f"{len(status.quarantine)} in quarantine"
    if not any(worker.state == "ready" for worker in status.workers) and status.jobs:
        yield "no worker is ready"
    waiting = [job for job in status.jobs if job.waits_for]
    if waiting:
        yield f"jobs that wait: {len(waiting)}; the first because {waiting[0].waits_for}"
    for name, kind in (("devices", status.devices), ("workers", status.workers), ("nodes", status.nodes)):
        states = [each.state for each in kind if each.state in (*BROKEN, *LIMITED)]
        if states:
            yield f"{name}: {counted(states).partition(': ')[2]}"
    held_down = sum(device.throttle not in (None, "none") for device in status.devices)
    if held_down:
        yield f"devices whose clocks are held down: {held_down}"


def _table(table: Table, of: int) -> dict[str, Any]:
    """Return a table; its rows stand by their names, so that they stay where they are."""
    rows = table.rows
    if table.columns[0] != "event":
        rows = tuple(sorted(rows, key=_place))
    return {
        "columns": list(table.columns),
        "of": of,
        "rows": [[_STYLES.get(row.style, ""), *map(_short, row.cells)] for row in rows],
    }


def _place(row: ScreenRow) -> tuple[int, list[tuple[int, str]]]:
    styles = ("red", "yellow")
    return styles.index(row.style) if row.style in styles else len(styles), _natural(row.cells[0])


def _natural(name: str) -> list[tuple[int, str]]:
    """Return what sorts gpu-9 before gpu-10."""
    return [(int(part[:_DIGITS_MAX]), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(name)]


def _timeline(status: Status, history: History, stations: tuple[str, ...], gone: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each of ``stations``, and below them those that are gone, while there is room."""
    workers = {worker.worker: worker for worker in status.workers}
    there = [_row_of(workers[name], history) for name in stations if name in workers]
    left = [_row_of_gone(name, history) for name in gone[: STATIONS_MAX - len(there)]]
    return [*sorted(there, key=_by_title), *sorted(left, key=_by_title)]


def _titles(status: Status, timeline: list[dict[str, Any]]) -> dict[str, str]:
    """Return the names of the inputs of the timeline's jobs that still run, by job."""
    shown = {job for row in timeline for _, _, _, job, *_ in row["pieces"]}
    titles = {job.job.rpartition("/")[2]: _short(job.title) for job in status.jobs if job.title}
    return {job: titles[job] for job in sorted(shown & titles.keys())}


def _gone(status: Status, history: History) -> list[str]:
    """Return the stations whose workers are gone and that did something within the window, the latest first."""
    present = {worker.worker for worker in present_workers(status)}
    return [name for name in history.gone if name not in present and _within(history.pieces.get(name, ()))]


def _by_title(row: dict[str, Any]) -> list[tuple[int, str]]:
    return _natural(row["station"])


def _row_of(worker: "WorkerStatus", history: History) -> dict[str, Any]:
    on = _ENGINES.get(worker.kind) or worker.device or "GPU"
    what = {"on": _short(on), "state": worker.state, "slots": worker.slots}
    return _row(worker.node, worker.worker, what, history)


def _row_of_gone(name: str, history: History) -> dict[str, Any]:
    what = {"on": _ENGINES.get(engine_of(name)) or "GPU", "state": "gone", "slots": 0}
    return _row(history.gone[name], name, what, history)


def _row(node: str, station: str, what: dict[str, Any], history: History) -> dict[str, Any]:
    within = _within(history.pieces.get(station, ()))
    return {
        "station": _short(f"{node}/{station.rpartition('/')[2]}"),
        **what,
        "lanes": 1 + max((piece.lane for piece in within), default=0),
        "pieces": [_piece(piece) for piece in within],
    }


def _within(pieces: tuple[PieceSeen, ...]) -> list[PieceSeen]:
    return [piece for piece in pieces if piece.ended_s is None or piece.ended_s <= WINDOW_S]


def _piece(piece: PieceSeen) -> list[Any]:
    """Return [lane, begun s ago, ended s ago or null, job, label, ending]."""
    ended_s = None if piece.ended_s is None else round(piece.ended_s, 1)
    return [piece.lane, round(piece.began_s, 1), ended_s, _short(piece.job), _short(piece.label), piece.ending]


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= CELL_MAX else f"{line[: CELL_MAX - 1]}…"
