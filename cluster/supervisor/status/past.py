"""Keeps the newest events and the live nodes for the next supervisor, without clock or I/O.

Times are in UTC, because clocks differ between processes. The next supervisor skips unreadable values.
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Final, TypeAlias

import msgpack

from ....errors import one_line
from ...worker_names import NodeId

EVENTS_KEY: Final = "codecfleet/events"
NODES_KEY: Final = "codecfleet/nodes"
NODES_NAMED: Final = 4  # the most lost nodes named in one event
EVENTS_MAX: Final = 1000  # the most events that a supervisor remembers
EVENTS_KEPT: Final = 200  # the most events kept for the next supervisor
EVENTS_KEPT_S: Final = 86_400.0  # how long an event is kept; only the time of day is shown, so at most a day
LINE_MAX: Final = 400  # the most characters kept of each event
EVERY_S: Final = 5.0  # how often changes are stored

Put: TypeAlias = Callable[[str, bytes], Awaitable[None]]
"""Stores bytes under a key."""


class Past:
    """A supervisor's events, and those of earlier supervisors."""

    def __init__(self) -> None:
        self._events: deque[tuple[float, str]] = deque(maxlen=EVENTS_MAX)
        self._kept: dict[str, object] = {}  # the value last stored under each key
        self._next_s = -math.inf

    @property
    def events(self) -> tuple[tuple[float, str], ...]:
        """The events as (seconds since 1970, line), oldest first."""
        return tuple(self._events)

    def note(self, line: str, utc_s: float) -> None:
        """Add an event."""
        self._events.append((utc_s, line))

    def recall(self, events: bytes | None, utc_s: float) -> bool:
        """Start with an earlier supervisor's events; return whether there were any."""
        earlier = [(at_s, line) for at_s, line in _unpacked(events) if abs(utc_s - at_s) < EVENTS_KEPT_S]
        self._events = deque([*earlier, *self._events], maxlen=EVENTS_MAX)
        return bool(earlier)

    async def keep(self, put: Put, now_s: float, nodes: Mapping[NodeId, str]) -> None:
        """Store the changes since the last call, at most once in ``EVERY_S``.

        ``nodes`` are the live nodes: {id: name}. Errors of ``put`` are raised; the next call tries again.
        """
        if now_s < self._next_s:
            return
        self._next_s = now_s + EVERY_S
        events = [(at_s, one_line(line)[:LINE_MAX]) for at_s, line in list(self._events)[-EVENTS_KEPT:]]
        for key, content, newest in ((EVENTS_KEY, events, events[-1:]), (NODES_KEY, dict(nodes), dict(nodes))):
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


def _unpacked(packed: bytes | None) -> list[tuple[float, str]]:
    """Return events as ``Past`` stored them; [] for None or for a malformed value."""
    try:
        pairs = [] if packed is None else msgpack.unpackb(packed)
        return [(float(at_s), line) for at_s, line in pairs if isinstance(line, str)]
    except (ValueError, TypeError):
        return []
