"""Keeps the newest events, nodes and speeds for the next supervisor, without clock or I/O.

Times are in UTC, because clocks differ between processes. The next supervisor skips unreadable values.
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Any, Final, TypeAlias

import msgpack

from ....errors import one_line
from ...worker_names import NodeId
from .history import WorkHistory

EVENTS_KEY: Final = "codecfleet/events"
SPEEDS_KEY: Final = "codecfleet/speeds"
NODES_KEY: Final = "codecfleet/nodes"
NODES_NAMED: Final = 4  # the most lost nodes named in one event
EVENTS_MAX: Final = 1000  # the most events of a supervisor
EVENTS_KEPT: Final = 200  # the most events kept for the next supervisor
EVENTS_KEPT_S: Final = 86_400.0  # how long an event is kept; only the time of day is shown, so at most a day
LINE_MAX: Final = 400  # the most characters kept of each event
EVERY_S: Final = 5.0  # how often changes are stored

Put: TypeAlias = Callable[[str, bytes], Awaitable[None]]
"""Stores bytes under a key."""


class Past:
    """A supervisor's events; ``history`` has the speeds."""

    def __init__(self, history: WorkHistory) -> None:
        self._history = history
        self._events: deque[tuple[float, str]] = deque(maxlen=EVENTS_MAX)
        self._kept: dict[str, object] = {}  # the value last stored under each key
        self._next_s = -math.inf

    @property
    def events(self) -> tuple[tuple[float, str], ...]:
        """The events as (seconds since the epoch, line), oldest first."""
        return tuple(self._events)

    def note(self, line: str, utc_s: float) -> None:
        """Add an event."""
        self._events.append((utc_s, line))

    def recall(self, events: bytes | None, speeds: bytes | None, now_s: float, utc_offset_s: float) -> bool:
        """Start with an earlier supervisor's events and speeds; return whether there were events.

        ``utc_offset_s`` plus the supervisor's clock, which shows ``now_s``, is UTC.
        """
        utc_s = now_s + utc_offset_s
        lines = ((at_s, line) for at_s, line in _unpacked(events) if isinstance(line, str))
        earlier = [(at_s, line) for at_s, line in lines if abs(utc_s - at_s) < EVENTS_KEPT_S]
        self._events = deque([*earlier, *self._events], maxlen=EVENTS_MAX)
        seen = ((at_s - utc_offset_s, fps) for at_s, fps in _unpacked(speeds) if isinstance(fps, float))
        self._history.recall((each for each in seen if math.isfinite(each[1])), now_s)
        return bool(earlier)

    async def keep(self, put: Put, now_s: float, utc_offset_s: float, nodes: Mapping[NodeId, str]) -> None:
        """Store the changes since the last call, at most once in ``EVERY_S``.

        ``nodes`` are the live nodes: {id: name}. Errors of ``put`` are raised; the next call tries again.
        """
        if now_s < self._next_s:
            return
        self._next_s = now_s + EVERY_S
        events = [(at_s, one_line(line)[:LINE_MAX]) for at_s, line in list(self._events)[-EVENTS_KEPT:]]
        speeds = [(at_s + utc_offset_s, float(fps)) for at_s, fps in _moved(self._history.speeds)]
        for key, content, newest in (
            (EVENTS_KEY, events, events[-1:]),
            (SPEEDS_KEY, speeds, speeds[-1:]),
            (NODES_KEY, dict(nodes), dict(nodes)),
        ):
            if newest and newest != self._kept.get(key):
                await put(key, msgpack.packb(content))
                self._kept[key] = newest


def lost_nodes(packed: bytes | None, alive: Container[str]) -> str:
    """Return in one line which nodes of an earlier supervisor are not in ``alive``; "" if all are alive."""
    try:
        found = {} if packed is None else dict(msgpack.unpackb(packed))
    except (ValueError, TypeError):
        return ""
    lost = sorted(str(name) for node, name in found.items() if node not in alive)
    if not lost:
        return ""
    more = f" and {len(lost) - NODES_NAMED} more" if len(lost) > NODES_NAMED else ""
    names = f"{', '.join(lost[:NODES_NAMED])}{more}"
    return f"{'node' if len(lost) == 1 else 'nodes'} {names} left while no supervisor ran"


def _moved(speeds: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """Drop all final zeros but the first, so that an idle fleet stores nothing new."""
    last = max((number for number, (_, fps) in enumerate(speeds) if fps), default=-2)
    return speeds[: last + 2]


def _unpacked(packed: bytes | None) -> list[tuple[float, Any]]:
    """Return pairs of a time and a value; [] for None or for a malformed value."""
    try:
        return [(float(at_s), what) for at_s, what in ([] if packed is None else msgpack.unpackb(packed))]
    except (ValueError, TypeError):
        return []
