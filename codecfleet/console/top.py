"""``codecfleet top``: the status of a fleet on one screen.

In each table, broken entries come first, then the busiest entries. ``tables`` returns the content as plain values;
``screen_lines`` draws as much of the content as fits.
"""

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Final

from ..cluster.placement.model import DeviceState
from ..cluster.supervisor.state import StationState
from ..errors import one_line
from .page.charts import shortened
from .text import clock_text

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from rich.text import Text

    from ..cluster.supervisor.status import DeviceStatus, JobStatus, NodeStatus, Status, WorkerStatus

_TITLE_MAX: Final = 24  # the most characters shown of the name of a job's input
BROKEN: Final = tuple(each.value for each in (DeviceState.QUARANTINED, StationState.RESTING))
LIMITED: Final = tuple(each.value for each in (DeviceState.DRAINING, DeviceState.CORDONED, StationState.LEAVING))
"""The states in which a node or station gets no new work."""
_STYLES: Final = {**dict.fromkeys(BROKEN, "red"), **dict.fromkeys(LIMITED, "yellow")}
_RANKS: Final = {state: rank for rank, state in enumerate((*BROKEN, *LIMITED))}


@dataclass(frozen=True, slots=True)
class ScreenRow:
    """The cells of a row, and the style of the row for rich; "" for no style."""

    cells: tuple[str, ...]
    style: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table, or only its first rows."""

    # the names of the columns; the first also names the table, and the last column shrinks first
    columns: tuple[str, ...]
    rows: tuple[ScreenRow, ...]
    of: int  # how many rows the whole table has


def screen_lines(status: "Status", *, width: int, height: int | None, colour: bool) -> list[str]:
    """Return a screen of at most ``width`` columns and ``height`` lines (None for all lines)."""
    head, drawn = heading(status), [table for table in tables(status) if table.rows]
    if height is None:
        rooms = [len(table.rows) for table in drawn]
    else:
        drawn = drawn[: max(0, height - len(head)) // 2]  # each table needs a heading and at least one row
        rooms = shared_rows([len(table.rows) for table in drawn], height - len(head) - len(drawn))
    parts = [_drawn(table, room) for table, room in zip(drawn, rooms, strict=True)]
    return _rendered(head, parts, width, colour=colour)[:height]


@dataclass(frozen=True, slots=True)
class Sums:
    """A fleet's totals."""

    used: int  # how many slots of ready workers are in use
    slots: int  # how many slots the ready workers have
    fps: float  # frames of sources per second, for all ready workers together
    sessions: int  # open encoder sessions
    segments_left: int  # how many segments of all jobs are unfinished
    waiting: int  # how many jobs wait for slots


def sums_of(status: "Status") -> Sums:
    """Return the totals of a fleet."""
    return Sums(
        used=sum(worker.used for worker in status.ready),
        slots=sum(worker.slots for worker in status.ready),
        fps=sum(worker.fps or 0.0 for worker in status.ready),
        sessions=sum(device.encoder_sessions.get("open") or 0 for device in status.devices),
        segments_left=sum(job.segments_left for job in status.jobs),
        waiting=sum(bool(job.waits_for) for job in status.jobs),
    )


def counts_of(status: "Status") -> dict[str, str]:
    """Return the numbers of nodes, devices and workers in each state."""
    return {
        "nodes": counted(node.state for node in status.nodes),
        "devices": counted(device.state for device in status.devices),
        "workers": counted(worker.state for worker in status.present),
    }


def heading(status: "Status") -> list[str]:
    """Return the lines above the tables: the process of the supervisor, and totals."""
    sums, counts = sums_of(status), counts_of(status)
    return [
        f"supervisor  process {status.pid} on {one_line(status.host)}",
        f"nodes       {counts['nodes']}",
        f"devices     {counts['devices']}; encoder sessions: {sums.sessions}",
        f"workers     {counts['workers']}; {sums.used} of {sums.slots} slots in use, {sums.fps:.1f} fps",
        f"jobs        {len(status.jobs)}, {sums.waiting} waiting; segments left: {sums.segments_left}",
    ]


def tables(status: "Status", most: int | None = None) -> list[Table]:
    """Return all tables in the order of display, each with its first ``most`` rows (None for all rows)."""
    jobs = sorted(status.jobs, key=lambda job: (not job.waits_for, -job.used_slots, -job.segments_left, job.job))
    devices = sorted(status.devices, key=_device_order)
    device_columns = ("device on", "state", "NVDEC", "NVENC", "memory GiB", "sessions", "what")
    workers = sorted(status.present, key=worker_order)

    def table(columns: tuple[str, ...], of: int, rows: Iterable[ScreenRow]) -> Table:
        return Table(columns, tuple(islice(rows, most)), of)

    quarantine = (ScreenRow((line,), "red") for line in status.quarantine)
    return [
        table(("quarantine",), len(status.quarantine), quarantine),
        table(("job", "input", "done", "left", "slots", "segments", "driver", "waits for"), len(jobs), map(_job, jobs)),
        table(device_columns, len(devices), map(_device, devices)),
        table(("worker", "state", "on", "slots", "fps", "works on"), len(workers), map(_worker, workers)),
        table(("node", "state", "slots", "fps", "offers"), len(status.nodes), _nodes(status)),
        table(("event", ""), len(status.log), map(_event, reversed(status.log))),
    ]


def shared_rows(wanted: Sequence[int], rows: int) -> list[int]:
    """Divide ``rows`` equally among tables, but give none more rows than it wants; negative ``rows`` count as 0."""
    shares = [0] * len(wanted)
    while rows > 0 and (open_ := [n for n, want in enumerate(wanted) if shares[n] < want]):
        for number in open_[:rows]:
            shares[number] += 1
        rows -= min(rows, len(open_))
    return shares


def counted(states: Iterable[str]) -> str:
    """Return counts as text, such as "300: 298 open, 2 draining"."""
    counts = Counter(states)
    parts = [f"{count} {state}" for state, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))]
    return f"{counts.total()}{': ' * bool(parts)}{', '.join(parts)}"


def _rank(state: str) -> int:
    return _RANKS.get(state, len(_RANKS))


def _event(event: tuple[float, str]) -> ScreenRow:
    at_s, line = event
    return ScreenRow((f"{datetime.fromtimestamp(at_s, tz=UTC):%H:%M:%S}", line))


def _job(job: "JobStatus") -> ScreenRow:
    slots, title = f"{job.used_slots} of {job.granted_slots}", shortened(job.title, _TITLE_MAX)
    done = "" if job.done_percent is None else f"{job.done_percent} %"
    left = "" if job.left_s is None else clock_text(job.left_s)
    driver = f"{job.client}, priority {job.priority}" if job.priority else job.client
    cells = (job.name, title, done, left, slots, str(job.segments_left), driver, job.waits_for)
    return ScreenRow(cells, "yellow" if job.waits_for else "")


def _device_order(device: "DeviceStatus") -> tuple[int, bool, int, str, str]:
    busiest = max((use["percent"] or 0 for use in device.use.values()), default=0)
    return _rank(device.state), not device.held_down, -busiest, device.node, device.device


def _device(device: "DeviceStatus") -> ScreenRow:
    sessions = device.encoder_sessions.get("open")
    what = "; ".join(filter(None, (device.name, device.reason, device.held_down)))
    engines = (_percent(device, "nvdec"), _percent(device, "nvenc"))
    cells = (device.node, device.state, *engines, device.memory_used, "" if sessions is None else str(sessions), what)
    return ScreenRow(cells, _STYLES.get(device.state, "yellow" if device.held_down else ""))


def _percent(device: "DeviceStatus", engine: str) -> str:
    percent = device.use.get(engine, {}).get("percent")
    return "" if percent is None else f"{percent} %"


def worker_order(worker: "WorkerStatus") -> tuple[int, int, float, str]:
    """Return a sort key for stations: broken ones first, then the busiest, then the fastest."""
    return _rank(worker.state), -worker.used, -(worker.fps or 0.0), worker.worker


def _worker(worker: "WorkerStatus") -> ScreenRow:
    fps = "" if worker.fps is None else f"{worker.fps:.1f}"
    does = "; ".join(filter(None, (worker.jobs, worker.reason)))
    cells = (worker.place, worker.state, worker.on, f"{worker.used} of {worker.slots}", fps, does)
    return ScreenRow(cells, _STYLES.get(worker.state, ""))


def _nodes(status: "Status") -> Iterator[ScreenRow]:
    used, slots, fps = Counter[str](), Counter[str](), dict[str, float]()
    for worker in status.ready:
        node_id = worker.worker.rpartition("/")[0]
        used[node_id] += worker.used
        slots[node_id] += worker.slots
        fps[node_id] = fps.get(node_id, 0.0) + (worker.fps or 0.0)

    def order(node: "NodeStatus") -> tuple[int, bool, int, float, str, str]:
        return _rank(node.state), node.probed, -used[node.node], -fps.get(node.node, 0.0), node.name, node.node

    for node in sorted(status.nodes, key=order):
        name, shown = f"{node.name} {node.node[:8]}", f"{used[node.node]} of {slots[node.node]}"
        offers = "; ".join(filter(None, ("" if node.probed else "not probed yet", node.clock, node.devices)))
        speed = f"{fps.get(node.node, 0.0):.1f}"
        yield ScreenRow(
            (name, node.state, shown, speed, offers), _STYLES.get(node.state, "yellow" if node.clock else "")
        )


def _drawn(table: Table, room: int) -> "RichTable":
    """Return a table with at most ``room`` rows; if rows are left out, the heading states how many there are in all."""
    from rich.table import Table as RichTable

    name, *others = table.columns
    hides = room < len(table.rows)
    drawn = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in (f"{name} ({room} of {len(table.rows)})" if hides else name, *others):
        # Only the last column may wrap, and so it shrinks first.
        drawn.add_column(_one_line(column), no_wrap=column != others[-1] if others else False)
    for row in table.rows[:room]:
        drawn.add_row(*map(_one_line, row.cells), style=row.style)
    return drawn


def _one_line(text: str) -> "Text":
    from rich.text import Text

    return Text(one_line(text), no_wrap=True, overflow="ellipsis")


def _rendered(head: list[str], parts: "list[RichTable]", width: int, *, colour: bool) -> list[str]:
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
        legacy_windows=False,
    )
    with console.capture() as captured:
        for line in head:
            console.print(line, markup=False, no_wrap=True, overflow="ellipsis")
        for part in parts:
            console.print(part)
    return [line.rstrip() for line in captured.get().splitlines()]
