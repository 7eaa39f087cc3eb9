"""The figures of a batch's last run, for the HTML page of ``--report``.

The figures are read from the batch's database, even while the batch runs. Addresses are redacted here, because the page
shortens them: the shown part might be a secret signature.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...errors import StorageFailed, redacted
from .store.file import open_to_read
from .store.states import EntryState

_BINS: Final = 60
_LARGEST: Final = 20
_MOST_SPANS: Final = 2000  #: A timeline with more segments than this shows only the load in ``_BINS`` bins


@dataclass(frozen=True, slots=True)
class FailedFile:
    """A failed input, the class of its error, and the error's message."""

    error: str
    source: str
    message: str


@dataclass(frozen=True, slots=True)
class EngineShare:
    """How much work one decoder or encoder did in the run."""

    engine: str
    does: str  #: ``decodes`` or ``encodes``
    segments: int
    frames: int
    busy_s: float  #: the sum of the times of all segments on this engine


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of the timeline, in seconds since the run began; ``load`` is the mean number of concurrent segments."""

    began_s: float
    ended_s: float
    load: float
    label: str


@dataclass(frozen=True, slots=True)
class TimelineLane:
    """A lane of the timeline: work of one station that does not overlap in time.

    A station with several slots may have several lanes.
    """

    station: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class SizedFile:
    """The sizes of an input and of its output."""

    source: str
    source_bytes: int
    output_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one run: totals, the engines' work, the timeline, and the largest and the failed files."""

    root: str
    run: int
    began_s: float  #: since 1970
    wall_s: float
    files: int
    done: int  #: including the ``skipped`` files
    skipped: int  #: done by earlier runs
    failed: int
    frames: int
    source_bytes: int  #: the size of the inputs of all files done
    output_bytes: int
    paces: tuple[float, ...]  #: frames per second in equal parts of the run
    failures: tuple[tuple[str, int], ...]  #: (class of the error, number of files), the most frequent first
    failed_files: tuple[FailedFile, ...]
    engines: tuple[EngineShare, ...]
    lanes: tuple[TimelineLane, ...]
    largest: tuple[SizedFile, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """When and where one segment ran, and by which decoder and encoder."""

    began_s: float  #: since the run began
    ended_s: float
    frames: int
    station: str
    decoded_by: str
    encoder: str  #: the encoder's name, then its settings
    source: str
    segment: int

    @property
    def length_s(self) -> float:
        """How long the segment ran."""
        return self.ended_s - self.began_s


def read_figures(database: Path) -> Figures:
    """Return the figures of a database's last run. Raises StorageFailed: the database cannot be read."""
    try:
        with closing(open_to_read(database)) as connection:
            connection.execute("BEGIN")  # all queries read the same snapshot
            return _read(connection)
    except sqlite3.Error as error:
        message = f"the batch's database {database} cannot be read: {error}"
        raise StorageFailed(message, "Check that its disk is mounted.") from error


def _read(connection: sqlite3.Connection) -> Figures:
    (root,) = connection.execute("SELECT value FROM batch WHERE name = 'root'").fetchone()
    run, began_s, ended_s = connection.execute(
        "SELECT run, began_s, ended_s FROM runs ORDER BY run DESC LIMIT 1"
    ).fetchone()
    rows = connection.execute("SELECT state, count(*) FROM entries WHERE listed_run = ? GROUP BY state", (run,))
    states = dict(rows.fetchall())
    skipped, source_bytes, output_bytes = connection.execute(
        "SELECT count(*) FILTER (WHERE ended_run < ?1), coalesce(sum(source_bytes), 0), coalesce(sum(output_bytes), 0) "
        "FROM entries WHERE listed_run = ?1 AND state = 'done'",
        (run,),
    ).fetchone()
    spans = _spans(connection, run, began_s)
    failed = _failed_files(connection, run)
    latest_s = max((span.ended_s for span in spans), default=0.0)
    wall_s = max(latest_s, 0.0 if ended_s is None else ended_s - began_s)
    return Figures(
        root=redacted(root),
        run=run,
        began_s=began_s,
        wall_s=wall_s,
        files=sum(states.values()),
        done=states.get(EntryState.DONE.value, 0),
        skipped=skipped,
        failed=states.get(EntryState.FAILED.value, 0),
        frames=sum(span.frames for span in spans),
        source_bytes=source_bytes,
        output_bytes=output_bytes,
        paces=paces(spans, wall_s, _BINS),
        failures=tuple(Counter(each.error for each in failed).most_common()),
        failed_files=failed,
        engines=engine_use(spans),
        lanes=lanes(spans, wall_s, _MOST_SPANS, _BINS),
        largest=_largest(connection, run),
    )


def _spans(connection: sqlite3.Connection, run: int, began_s: float) -> list[Span]:
    rows = connection.execute(
        "SELECT segments.began_s - ?1, segments.ended_s - ?1, segments.frames, station, decoded_by, encoder, source, "
        "segment FROM segments JOIN entries USING (entry) WHERE segments.run = ?2 ORDER BY segments.began_s",
        (began_s, run),
    )
    return [
        Span(max(0.0, began), max(0.0, ended), frames, station, decoded_by, encoder, redacted(source), segment)
        for began, ended, frames, station, decoded_by, encoder, source, segment in rows
    ]


def _failed_files(connection: sqlite3.Connection, run: int) -> tuple[FailedFile, ...]:
    rows = connection.execute(
        "SELECT error, source, message FROM entries WHERE listed_run = ? AND state = 'failed' ORDER BY error, position",
        (run,),
    )
    return tuple(FailedFile(error, redacted(source), message) for error, source, message in rows)


def _largest(connection: sqlite3.Connection, run: int) -> tuple[SizedFile, ...]:
    rows = connection.execute(
        "SELECT source, source_bytes, output_bytes FROM entries WHERE listed_run = ? AND state = 'done' "
        "AND source_bytes IS NOT NULL ORDER BY source_bytes DESC, source LIMIT ?",
        (run, _LARGEST),
    )
    return tuple(SizedFile(redacted(source), *sizes) for source, *sizes in rows)


def paces(spans: Iterable[Span], wall_s: float, bins: int) -> tuple[float, ...]:
    """Return the frames per second in ``bins`` equal parts of a run; a segment's frames are spread evenly."""
    if wall_s <= 0:
        return ()
    width_s = wall_s / bins
    return tuple(count / width_s for count in _binned(((span, span.frames) for span in spans), width_s, bins))


def _binned(weighted: Iterable[tuple[Span, float]], width_s: float, bins: int) -> list[float]:
    """Return the sum of the weights in each bin; a span's weight is spread evenly over its time."""
    sums = [0.0] * bins
    for span, weight in weighted:
        for index, part in _parts(span.began_s, span.ended_s, width_s, bins):
            sums[index] += weight * part
    return sums


def _parts(began_s: float, ended_s: float, width_s: float, bins: int) -> Iterable[tuple[int, float]]:
    """Yield (bin, part of the interval in it) for each bin that an interval touches; the last bin has no end."""
    first, last = (min(bins - 1, int(at_s / width_s)) for at_s in (began_s, ended_s))
    length_s = ended_s - began_s
    if first == last or length_s <= 0:
        yield first, 1.0
        return
    for index in range(first, last + 1):
        least = max(began_s, index * width_s)
        most = ended_s if index == last else min(ended_s, (index + 1) * width_s)
        yield index, (most - least) / length_s


def engine_use(spans: Iterable[Span]) -> tuple[EngineShare, ...]:
    """Return the work of each decoder and each encoder, the busiest first."""
    spans_of: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        for key in ((span.decoded_by, "decodes"), (span.encoder.partition(" ")[0], "encodes")):
            spans_of.setdefault(key, []).append(span)
    shares = [
        EngineShare(*key, len(found), sum(each.frames for each in found), sum(each.length_s for each in found))
        for key, found in spans_of.items()
    ]
    return tuple(sorted(shares, key=lambda each: (each.does, -each.frames, each.engine)))


def lanes(spans: Sequence[Span], wall_s: float, most: int, bins: int) -> tuple[TimelineLane, ...]:
    """Return when each station worked: a bar for each segment, or the load if there are more than ``most`` spans."""
    stations = sorted({span.station for span in spans})
    if len(spans) > most:
        return tuple(_load(station, [s for s in spans if s.station == station], wall_s, bins) for station in stations)
    return tuple(lane for station in stations for lane in _stacked(station, [s for s in spans if s.station == station]))


def _stacked(station: str, spans: Sequence[Span]) -> Iterable[TimelineLane]:
    """Return the fewest lanes that hold these segments without overlap; ``spans`` are sorted by their start."""
    rows: list[list[Bar]] = []
    for span in spans:
        bar = Bar(span.began_s, span.ended_s, 1.0, f"{span.source}, segment {span.segment}: {span.frames} frames")
        free = next((row for row in rows if row[-1].ended_s <= bar.began_s), None)
        if free is None:
            rows.append([bar])
        else:
            free.append(bar)
    return (TimelineLane(station, tuple(row)) for row in rows)


def _load(station: str, spans: Sequence[Span], wall_s: float, bins: int) -> TimelineLane:
    width_s = wall_s / bins
    busy_s = _binned(((span, span.length_s) for span in spans), width_s, bins)
    most_s = max(busy_s)
    bars = [
        Bar(i * width_s, (i + 1) * width_s, busy / most_s, f"{busy / width_s:.1f} segments at a time")
        for i, busy in enumerate(busy_s)
        if busy
    ]
    return TimelineLane(station, tuple(bars))
