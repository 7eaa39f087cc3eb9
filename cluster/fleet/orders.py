"""Brings a warm fleet up, and takes it down."""

import json
import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple
from typing import Final, NamedTuple

from ...errors import FleetUnavailable
from ..process.process import StartedProcess, start_program
from .client_name import ClientName
from .default import HOST
from .meeting_place import Greeting, MeetingPlace, locked_place, peer_of

END_S: Final = 5.0
"""How long a fleet may take to end in good order, before it is killed."""
_HELP: Final = "`codecfleet doctor` tells what is wrong with this machine."


class WarmFleet(NamedTuple):
    """A warm fleet that is up."""

    process: int
    is_new: bool
    """False where it was up before, as it is."""
    greeting: Greeting


def bring_up(slots: int | None, idle_s: float, start: Callable[..., StartedProcess] = start_program) -> WarmFleet:
    """Start the user's warm fleet, or find it; it goes on after this process.

    Args:
        slots: pieces of work at a time; None means one per core.
        idle_s: it ends itself after this long without a program.
        start: starts a program of ours.

    Raises:
        FleetUnavailable: it does not start.
    """
    with locked_place():
        pass  # what is wrong with the place is better said by this process
    try:
        # Whatever cluster the environment names: a warm fleet is this machine's.
        process = start(HOST, "local", slots, 0, astuple(ClientName()), idle_s, outlives=True)
    except OSError as error:
        raise FleetUnavailable(f"the warm fleet did not start: {error}", "Check the limits on processes.") from None
    if not (said := process.first_word()):
        raise FleetUnavailable(f"the warm fleet did not start: {process.ended()}", _HELP)
    found = json.loads(said)
    return WarmFleet(found["process"], found["is_new"], Greeting(*found["greeting"]))


def take_down() -> list[int]:
    """End all warm fleets of the user, those of other versions too; return their processes.

    Nothing of theirs is left: jobs that run on them go on by themselves.

    Raises:
        FleetUnavailable: others could enter the place where they are.
    """
    try:
        with MeetingPlace.open(make=False) as place:
            place.lock()  # one that is starting is up then
            ended = [process for name in place.names() if (process := _end(place, name))]
            place.remove_if_empty()
    except FileNotFoundError:
        return []
    return ended


def _end(place: MeetingPlace, name: str) -> int:
    """End the process that listens there, if one does, and remove its socket; return the process, or 0."""
    process = 0
    with suppress(OSError), place.connect(name) as end:
        process = peer_of(end)[0]
        handle = os.pidfd_open(process)
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                signal.pidfd_send_signal(handle, number)
                if select.select([handle], [], [], END_S)[0]:
                    break
        finally:
            os.close(handle)
    place.remove(name)
    return process
