"""What is refused: jobs that will never get slots, and encoder sessions that are too many just now.

Work whose session was refused for the number of sessions waits, instead of failing: the supervisor learns of it within
a heartbeat, and grants fewer slots.
"""

from typing import Final

from ....actors.backoff import Backoff
from ....errors import CodecfleetError, FleetUnavailable, NotEnoughMemory, Unsupported
from ...placement.model.demand import Demand
from ...supervisor.state.messages import Grants

WAITS: Final = Backoff(first_s=0.5, most_s=30.0)
WAITS_MAX: Final = 7
"""Together a minute: sessions of a usual segment end in less."""
_BROKEN: Final = "Run codecfleet doctor on their machine and look at its kernel's log; or run without these devices."


def unrecoverable(grants: Grants) -> FleetUnavailable | None:
    """Return why no job will ever get slots again, None while one may."""
    return FleetUnavailable(grants.unrecoverable, grants.what_next) if grants.unrecoverable else None


def broken(grants: Grants, job: str, demand: Demand | None) -> FleetUnavailable | None:
    """Return why the devices that a job needs are lost, None while they are not.

    The grants may answer an earlier demand: software may continue where NVENC failed.
    """
    reason = grants.broken.get(job, "") if demand is not None and demand.needs_devices else ""
    return FleetUnavailable(reason, _BROKEN) if reason else None


def impossible(grants: Grants, job: str, demand: Demand | None) -> CodecfleetError | None:
    """Return why a job will never get slots on these machines, None while it may."""
    if (lost := broken(grants, job, demand)) is not None:
        return lost
    if reason := grants.refused.get(job):
        return Unsupported(reason, "Let it run where there are machines for it: docs/fleet.md.")
    if reason := grants.too_large.get(job):
        return NotEnoughMemory(reason, NotEnoughMemory.WHAT_NEXT)
    return None
