"""A warm fleet, as the programs find it that may use it: docs/warm-fleet.md."""

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from ...errors import FleetUnavailable
from ..process.process import StartedProcess
from .client_name import ClientName
from .meeting_place import Greeting, MeetingPlace, code_name, peer_of

GREETING_S: Final = 1.0
"""How long a warm fleet may take to answer: one that hangs must not keep a job from starting."""


class FoundFleet(NamedTuple):
    """A warm fleet of this code: the connection to it, its process, and what it says of itself."""

    end: socket.socket
    process: int
    greeting: Greeting


def find_warm() -> tuple[FoundFleet | None, str]:
    """Connect to the user's warm fleet; else return why one that is there is left alone, "" where there is none."""
    try:
        with MeetingPlace.open(make=False) as place:
            ours, names = code_name(), place.names()
            if ours in names and (found := greeted(place, ours)) is not None:
                return found, ""
            others = [each for name in names if name != ours and (each := greeted(place, name)) is not None]
    except FileNotFoundError:
        return None, ""
    except FleetUnavailable as error:
        return None, error.message
    for other in others:
        other.end.close()
    if not others:
        return None, ""
    other = others[0]
    return None, (
        f"the warm fleet (process {other.process}) was left alone: it runs other code, of codecfleet "
        f"{other.greeting.version}"
    )


def is_any_warm() -> bool:
    """Return whether the user has a warm fleet of this code that answers."""
    found, _ = find_warm()
    if found is not None:
        found.end.close()
    return found is not None


def greeted(place: MeetingPlace, name: str) -> FoundFleet | None:
    """Connect to a code's warm fleet; None where none answers."""
    with suppress(OSError, ValueError, TypeError):
        end = place.connect(name)
        try:
            greeting = Greeting.received(end, GREETING_S)
        except BaseException:
            end.close()
            raise
        return FoundFleet(end, peer_of(end)[0], greeting)
    return None


def warm_or_own(
    start_own: Callable[[ClientName], StartedProcess], slots: int | None, name: ClientName
) -> StartedProcess:
    """Return a connection to the user's warm fleet, or where there is none for ``slots`` slots a host of its own.

    Raises:
        OSError: a host of its own cannot be started.
    """
    found, note = find_warm()
    if found is None:
        return start_own(name)._replace(note=note)
    if slots is not None and slots > found.greeting.slots:
        found.end.close()
        has = f"it has {found.greeting.slots} slots, not {slots}"
        return start_own(name)._replace(note=f"the warm fleet (process {found.process}) was left alone: {has}")
    return connection_to(found)


def connection_to(found: FoundFleet) -> StartedProcess:
    """Return a warm fleet as a host: to kill it is to hang up."""
    end, process, _ = found

    def let_go() -> None:
        with suppress(OSError):  # it was closed before
            end.shutdown(socket.SHUT_RDWR)

    return StartedProcess(end, let_go, lambda: f"the warm fleet (process {process}) ended", warm_fleet=process)
