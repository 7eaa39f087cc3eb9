"""``codecfleet top``: a fleet's status on one screen. Of each kind what is broken comes first, then what is busiest.

``tables`` decides what is shown, as plain values; ``screen_lines`` draws as much of it as there is room for.
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

GIB: Final = 1 << 30
_TITLE_MAX: Final = 24
"""The most characters of a job's input."""
BROKEN: Final = tuple(each.value for each in (DeviceState.QUARANTINED, StationState.RESTING))
LIMITED: Final = tuple(each.value for each in (DeviceState.DRAINING, DeviceState.CORDONED, StationState.LEAVING))
"""States in which no new work is given."""
_STYLES: Final = {**dict.fromkeys(BROKEN, "red"), **dict.fromkeys(LIMITED, "yellow")}
_RANKS: Final = {state: rank for rank, state in enumerate((*BROKEN, *LIMITED))}


@dataclass(frozen=True, slots=True)
class ScreenRow:
    """A row's cells, and its style as rich names it, "" for none."""

    cells: tuple[str, ...]
    style: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table; ``columns`` are names, the first the table's own. On a narrow screen the last is cut short first."""

    columns: tuple[str, ...]
    rows: tuple[ScreenRow, ...]


def screen_lines(status: "Status", *, width: int, height: int | None, colour: bool) -> list[str]:
    """Return the screen as lines.

    Args:
        status: what is shown.
        width: columns of the screen; no line is wider.
        height: lines of the screen; there are never more. None draws all there is.
        colour: whether lines may have ANSI colours.
    """
    head, drawn = heading(status), [table for table in tables(status) if table.rows]
    if height is None:
        rooms = [len(table.rows) for table in drawn]
    else:
        drawn = drawn[: max(0, height - len(head)) // 2]  # each has a heading and a row
        rooms = shared_rows([len(table.rows) for table in drawn], height - len(head) - len(drawn))
    parts = [_drawn(table, room) for table, room in zip(drawn, rooms, strict=True)]
    return _rendered(head, parts, width, colour=colour)[:height]


@dataclass(frozen=True, slots=True)
class Sums:
    """A fleet in figures: slots and ``fps`` (of the source) are those of ready workers."""

    used: int
    slots: int
    fps: float
    sessions: int
    segments_left: int
    waiting: int


def sums_of(status: "Status") -> Sums:
    """Return a fleet's sums."""
    ready = [worker for worker in status.workers if worker.state == StationState.READY.value]
    return Sums(
        used=sum(map(_used, ready)),
        slots=sum(worker.slots for worker in ready),
        fps=sum(worker.fps or 0.0 for worker in ready),
        sessions=sum(device.encoder_sessions.get("open") or 0 for device in status.devices),
        segments_left=sum(job.segments_left for job in status.jobs),
        waiting=sum(bool(job.waits_for) for job in status.jobs),
    )


def heading(status: "Status") -> list[str]:
    """Return the lines above the tables: where the supervisor is, and sums."""
    sums, workers = sums_of(status), counted(worker.state for worker in present_workers(status))
    return [
        f"supervisor  process {status.pid} on {one_line(status.host)}",
        f"nodes       {counted(node.state for node in status.nodes)}",
        f"devices     {counted(device.state for device in status.devices)}; encoder sessions: {sums.sessions}",
        f"workers     {workers}; {sums.used} of {sums.slots} slots in use, {sums.fps:.1f} fps",
        f"jobs        {len(status.jobs)}, {sums.waiting} waiting; segments left: {sums.segments_left}",
    ]


def tables(status: "Status", most: int | None = None) -> list[Table]:
    """Return all tables, in the order in which they are shown, with the first ``most`` of their rows or all."""
    jobs = sorted(status.jobs, key=lambda job: (not job.waits_for, -job.used_slots, -job.segments_left, job.job))
    devices = sorted(status.devices, key=_device_order)
    workers = sorted(present_workers(status), key=worker_order)
    device_columns = ("device on", "state", "NVDEC", "NVENC", "memory GiB", "sessions", "what")
    return [
        Table(("quarantine",), tuple(ScreenRow((line,), "red") for line in status.quarantine[:most])),
        Table(
            ("job", "input", "done", "left", "slots", "segments", "driver", "waits for"), tuple(map(_job, jobs[:most]))
        ),
        Table(device_columns, tuple(map(_device, devices[:most]))),
        Table(("worker", "state", "on", "slots", "fps", "works on"), tuple(map(_worker, workers[:most]))),
        Table(("node", "state", "slots", "fps", "offers"), tuple(islice(_nodes(status), most))),
        Table(("event", ""), tuple(map(_event, status.log[::-1][:most]))),
    ]


def shared_rows(wanted: Sequence[int], rows: int) -> list[int]:
    """Share ``rows`` fairly: in turns one each, until each has what it wants or none is left.

    Args:
        wanted: how many rows each table has.
        rows: how many there are; a negative number is none.
    """
    shares = [0] * len(wanted)
    while rows > 0 and (open_ := [n for n, want in enumerate(wanted) if shares[n] < want]):
        for number in open_[:rows]:
            shares[number] += 1
        rows -= min(rows, len(open_))
    return shares


def counted(states: Iterable[str]) -> str:
    """Return such as "300: 298 open, 2 draining"."""
    counts = Counter(states)
    parts = [f"{count} {state}" for state, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))]
    return f"{counts.total()}{': ' * bool(parts)}{', '.join(parts)}"


def present_workers(status: "Status") -> "list[WorkerStatus]":
    """Return the stations that are not empty."""
    return [worker for worker in status.workers if worker.state != StationState.EMPTY.value]


def _used(worker: "WorkerStatus") -> int:
    return sum(worker.leases.values())


def _rank(state: str) -> int:
    return _RANKS.get(state, len(_RANKS))


def _event(event: tuple[float, str]) -> ScreenRow:
    at_s, line = event
    return ScreenRow((f"{datetime.fromtimestamp(at_s, tz=UTC):%H:%M:%S}", line))


def _job(job: "JobStatus") -> ScreenRow:
    slots, name = f"{job.used_slots} of {job.granted_slots}", job.job.rpartition("/")[2]
    done = "" if job.done_percent is None else f"{job.done_percent} %"
    left = "" if job.left_s is None else clock_text(job.left_s)
    driver = f"{job.client}, priority {job.priority}" if job.priority else job.client
    title = shortened(job.title, _TITLE_MAX)
    cells = (name, title, done, left, slots, str(job.segments_left), driver, job.waits_for)
    return ScreenRow(cells, "yellow" if job.waits_for else "")


def _is_held_down(device: "DeviceStatus") -> bool:
    return device.throttle not in (None, "none")


def _device_order(device: "DeviceStatus") -> tuple[int, bool, int, str, str]:
    busiest = max((use["percent"] or 0 for use in device.use.values()), default=0)
    return _rank(device.state), not _is_held_down(device), -busiest, device.node, device.device


def _device(device: "DeviceStatus") -> ScreenRow:
    total, used = device.memory.get("total_bytes"), device.memory.get("used_bytes")
    memory = "" if total is None or used is None else f"{used / GIB:.1f} of {total / GIB:.1f}"
    sessions = device.encoder_sessions.get("open")
    held_down = f"clocks are held down: {device.throttle}" if _is_held_down(device) else ""
    what = "; ".join(filter(None, (device.name, device.reason, held_down)))
    engines = (_percent(device, "nvdec"), _percent(device, "nvenc"))
    cells = (device.node, device.state, *engines, memory, "" if sessions is None else str(sessions), what)
    return ScreenRow(cells, _STYLES.get(device.state, "yellow" if held_down else ""))


def _percent(device: "DeviceStatus", engine: str) -> str:
    percent = device.use.get(engine, {}).get("percent")
    return "" if percent is None else f"{percent} %"


def worker_order(worker: "WorkerStatus") -> tuple[int, int, float, str]:
    """Return what sorts stations: broken ones first, then those with most work, then the fastest."""
    return _rank(worker.state), -_used(worker), -(worker.fps or 0.0), worker.worker


def _worker(worker: "WorkerStatus") -> ScreenRow:
    engine = {"cpu": "processor", "dla": "DLA"}.get(worker.kind) or worker.device or "GPU"
    jobs = ", ".join(f"{job.rpartition('/')[2]} {slots}" for job, slots in worker.leases.items())
    fps = "" if worker.fps is None else f"{worker.fps:.1f}"
    place = f"{worker.node}/{worker.worker.rpartition('/')[2]}"
    cells = (place, worker.state, engine, f"{_used(worker)} of {worker.slots}", fps)
    return ScreenRow((*cells, "; ".join(filter(None, (jobs, worker.reason)))), _STYLES.get(worker.state, ""))


def _nodes(status: "Status") -> Iterator[ScreenRow]:
    used, slots, fps = Counter[str](), Counter[str](), dict[str, float]()
    for worker in status.workers:
        place = worker.worker.rpartition("/")[0]
        if worker.state == StationState.READY.value:
            used[place] += _used(worker)
            slots[place] += worker.slots
            fps[place] = fps.get(place, 0.0) + (worker.fps or 0.0)

    def order(node: "NodeStatus") -> tuple[int, bool, int, float, str, str]:
        return _rank(node.state), node.probed, -used[node.node], -fps.get(node.node, 0.0), node.name, node.node

    for node in sorted(status.nodes, key=order):
        name, shown = f"{node.name} {node.node[:8]}", f"{used[node.node]} of {slots[node.node]}"
        offers = node.devices if node.probed else f"not probed yet; {node.devices}"
        yield ScreenRow(
            (name, node.state, shown, f"{fps.get(node.node, 0.0):.1f}", offers), _STYLES.get(node.state, "")
        )


def _drawn(table: Table, room: int) -> "RichTable":
    """Return a table of at most ``room`` rows below its heading, which says of how many where that is not all."""
    from rich.table import Table as RichTable

    name, *others = table.columns
    hides = room < len(table.rows)
    drawn = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in (f"{name} ({room} of {len(table.rows)})" if hides else name, *others):
        # The last column's text may be cut shorter than its longest word: so it is the first to give way.
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
