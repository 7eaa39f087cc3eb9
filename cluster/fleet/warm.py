"""Finds, starts and ends a user's warm fleet (docs/fleet.md)."""

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple
from typing import Final, NamedTuple

from ...actors.process.process import StartedProcess, start_program
from ...errors import FleetUnavailable
from .meeting_place import Greeting, MeetingPlace, code_name, end_all, locked_place, peer_of
from .pool import ClientName

HOST: Final = "codecfleet.cluster.fleet.host.program"
"""The program of a host; its ``main`` documents the settings."""
GREETING_S: Final = 1.0
"""How long a warm fleet may take to answer; a hung fleet must not delay a job."""
END_S: Final = 5.0
"""How long a fleet may take to end before it is killed."""
_HELP: Final = "Run `codecfleet doctor` to find what is wrong with this machine."


class FoundFleet(NamedTuple):
    """A warm fleet, and the connection to it."""

    end: socket.socket
    process: int
    greeting: Greeting


def find_warm() -> tuple[FoundFleet | None, str]:
    """Return the user's warm fleet and "", or None and why a running warm fleet is not used ("" if none runs)."""
    try:
        with MeetingPlace.open(make=False) as place:
            own, names = code_name(), place.names()
            if own in names and (found := greeted(place, own)) is not None:
                return found, ""
            other = next((each for name in names if name != own and (each := greeted(place, name))), None)
    except FileNotFoundError:
        return None, ""
    except FleetUnavailable as error:
        return None, error.message
    if other is None:
        return None, ""
    other.end.close()
    return None, _left_alone(other, f"it runs different code (codecfleet {other.greeting.version})")


def is_any_warm() -> bool:
    """Return whether a warm fleet of this user and this code answers."""
    found, _ = find_warm()
    if found is not None:
        found.end.close()
    return found is not None


def greeted(place: MeetingPlace, name: str) -> FoundFleet | None:
    """Return a connection to the warm fleet with this name; None if the fleet does not answer."""
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
    """Return a connection to the user's warm fleet, or to a new host with ``slots`` slots.

    Raises OSError if the host cannot be started.
    """
    found, note = find_warm()
    if found is None:
        return start_own(name)._replace(note=note)
    if slots is not None and slots > found.greeting.slots:
        found.end.close()
        return start_own(name)._replace(note=_left_alone(found, f"it has {found.greeting.slots} slots, not {slots}"))
    return connection_to(found)


def _left_alone(found: FoundFleet, why: str) -> str:
    return f"the warm fleet (process {found.process}) was not used: {why}"


def connection_to(found: FoundFleet) -> StartedProcess:
    """Return a warm fleet as if this process had started it; ``kill`` only disconnects."""
    end, process, _ = found

    def let_go() -> None:
        with suppress(OSError):  # the socket may be closed already
            end.shutdown(socket.SHUT_RDWR)

    return StartedProcess(end, let_go, lambda: f"the warm fleet (process {process}) ended", warm_fleet=process)


class WarmFleet(NamedTuple):
    """A running warm fleet."""

    process: int
    is_new: bool  # False if the fleet was already running
    greeting: Greeting


def bring_up(slots: int | None, idle_s: float, start: Callable[..., StartedProcess] = start_program) -> WarmFleet:
    """Start the user's warm fleet, or find the running one. The fleet outlives this process.

    If ``slots`` is None, the fleet has one slot for each core. It ends after ``idle_s`` without a connected program.
    Raises FleetUnavailable: the fleet does not start.
    """
    with locked_place():
        pass  # report a fault of the directory here, not in the fleet
    try:
        # The address "local" makes a warm fleet use this machine, even if the environment names a cluster.
        process = start(HOST, "local", slots, 0, astuple(ClientName()), idle_s, outlives=True)
    except OSError as error:
        raise FleetUnavailable(f"the warm fleet did not start: {error}", "Check the limits on processes.") from None
    if not (said := process.first_word()):
        raise FleetUnavailable(f"the warm fleet did not start: {process.ended()}", _HELP)
    found = json.loads(said)
    return WarmFleet(found["process"], found["is_new"], Greeting(*found["greeting"]))


def take_down() -> list[int]:
    """End all warm fleets of the user, of any version; return their processes.

    Running jobs start new hosts. Raises FleetUnavailable: other users could enter the directory of the sockets.
    """
    try:
        with MeetingPlace.open(make=False) as place:
            place.lock()  # waits until no fleet is starting
            found = {name: place.process_at(name) for name in place.names()}
            ended = end_all({process: END_S for process in found.values() if process})
            for name in found:
                place.remove(name)
            place.remove_if_empty()
    except FileNotFoundError:
        return []
    return ended
