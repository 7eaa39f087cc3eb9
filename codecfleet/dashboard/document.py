"""The content of the page as JSON values of limited size, computed only from a fleet's status and history."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from ..cluster.supervisor.status import NO_SUPERVISOR, History, PieceSeen, Status
from ..cluster.worker_names import StationId
from ..console.top import BROKEN, LIMITED, ScreenRow, Table, counted, counts_of, sums_of, tables, worker_order
from ..errors import FleetUnavailable, one_line

if TYPE_CHECKING:
    from ..cluster.operate.desk import Seen

SCHEMA: Final = 1
ROWS_MAX: Final = 20  # the most rows in a table
STATIONS_MAX: Final = 24  # the most stations in the timeline
WINDOW_S: Final = 600  # how far back the timeline goes
CELL_MAX: Final = 300  # the most characters in a cell, since Ray's errors can be very long
_STYLES: Final = {"red": "bad", "yellow": "limited"}
_NUMBER: Final = re.compile(r"(\d+)")
_DIGITS_MAX: Final = 18


def chosen_stations(seen: "Seen", shown: Collection[StationId] = ()) -> tuple[StationId, ...]:
    """Return the stations for the timeline: broken ones first, then those already ``shown``, then the busiest."""
    if not isinstance(seen, Status):
        return ()
    ordered = sorted(seen.present, key=worker_order)
    ordered.sort(key=lambda worker: (worker.state not in BROKEN, worker.worker not in shown))
    return tuple(worker.worker for worker in ordered[:STATIONS_MAX])


def document(seen: "Seen", history: History, stations: tuple[StationId, ...]) -> dict[str, Any]:
    """Return the content of the page; its ``trouble`` says why there is no fleet to show, or is ""."""
    if seen is None:
        return {"schema": SCHEMA, "trouble": NO_SUPERVISOR, "fleet": None}
    if isinstance(seen, FleetUnavailable):
        return {"schema": SCHEMA, "trouble": _short(str(seen)), "fleet": None}
    return {"schema": SCHEMA, "trouble": "", "fleet": _fleet(seen, history, stations)}


def _fleet(status: Status, history: History, stations: tuple[StationId, ...]) -> dict[str, Any]:
    gone = _gone(status, history)
    timeline = _timeline(status, history, stations, gone)
    lengths = {"jobs": len(status.jobs), "quarantined": len(status.quarantine)}
    return {
        "supervisor": f"process {status.pid} on {_short(status.host)}",
        "sums": asdict(sums_of(status)) | counts_of(status) | lengths,
        "health": [_short(line) for line in _health(status)],
        "window_s": WINDOW_S,
        "speeds": [[round(ago_s, 1), round(fps, 1)] for ago_s, fps in history.speeds if ago_s <= WINDOW_S],
        "stations": len(status.present) + len(gone),
        "timeline": timeline,
        "titles": _titles(status, timeline),
        "tables": [_table(table) for table in tables(status, ROWS_MAX)],
    }


def _health(status: Status) -> Iterator[str]:
    if status.quarantine:
        yield f"{len(status.quarantine)} in quarantine"
    if status.jobs and not status.ready:
        yield "no worker is ready"
    waiting = [job for job in status.jobs if job.waits_for]
    if waiting:
        yield f"waiting jobs: {len(waiting)}; the first because {waiting[0].waits_for}"
    for name, kind in (("devices", status.devices), ("workers", status.workers), ("nodes", status.nodes)):
        states = [each.state for each in kind if each.state in (*BROKEN, *LIMITED)]
        if states:
            yield f"{name}: {counted(states).partition(': ')[2]}"
    if held_down := sum(bool(device.held_down) for device in status.devices):
        yield f"devices whose clocks are held down: {held_down}"


def _table(table: Table) -> dict[str, Any]:
    """Return a table as JSON values. Rows, except events, are sorted by severity and name, so that they seldom move."""
    rows = table.rows
    if table.columns[0] != "event":
        rows = tuple(sorted(rows, key=_place))
    return {
        "columns": list(table.columns),
        "of": table.of,
        "rows": [[_STYLES.get(row.style, ""), *map(_short, row.cells)] for row in rows],
    }


def _place(row: ScreenRow) -> tuple[int, list[tuple[int, str]]]:
    return [*_STYLES, ""].index(row.style), _natural(row.cells[0])


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts gpu-9 before gpu-10."""
    return [(int(part[:_DIGITS_MAX]), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(name)]


def _timeline(
    status: Status, history: History, stations: tuple[StationId, ...], gone: Sequence[StationId]
) -> list[dict[str, Any]]:
    """Return a row for each of ``stations`` and, if there is room, for stations that are gone."""
    workers = {worker.worker: worker for worker in status.workers if worker.worker in stations}
    there = [
        _row(worker.node, name, history, on=_short(worker.on), state=worker.state, slots=worker.slots)
        for name, worker in workers.items()
    ]
    left = [
        _row(history.gone[name], name, history, on=name.kind.title, state="gone", slots=0)
        for name in gone[: STATIONS_MAX - len(there)]
    ]
    return [row for rows in (there, left) for row in sorted(rows, key=lambda row: _natural(row["station"]))]


def _titles(status: Status, timeline: list[dict[str, Any]]) -> dict[str, str]:
    shown = {job for row in timeline for _, _, _, job, *_ in row["pieces"]}
    titles = {job.name: _short(job.title) for job in status.jobs if job.title}
    return {job: titles[job] for job in sorted(shown & titles.keys())}


def _gone(status: Status, history: History) -> list[StationId]:
    """Return the stations that had work within the window but have no worker now, the most recent first."""
    present = {worker.worker for worker in status.present}
    return [name for name in history.gone if name not in present and _within(history.pieces.get(name, ()))]


def _row(node: str, station: StationId, history: History, **what: object) -> dict[str, Any]:
    within = _within(history.pieces.get(station, ()))
    return {
        "station": _short(f"{node}/{station.local}"),
        **what,
        "lanes": 1 + max((piece.lane for piece in within), default=0),
        "pieces": [_piece(piece) for piece in within],
    }


def _within(pieces: tuple[PieceSeen, ...]) -> list[PieceSeen]:
    return [piece for piece in pieces if piece.ended_s is None or piece.ended_s <= WINDOW_S]


def _piece(piece: PieceSeen) -> list[Any]:
    """Return a run as [lane, seconds since its beginning, seconds since its end or null, job, label, ending]."""
    ended_s = None if piece.ended_s is None else round(piece.ended_s, 1)
    return [piece.lane, round(piece.began_s, 1), ended_s, _short(piece.job), _short(piece.label), piece.ending]


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= CELL_MAX else f"{line[: CELL_MAX - 1]}…"
