"""What a client tells the supervisor of devices: failures, and results that a job found wrong."""

import itertools
from collections import deque
from typing import Any, Final

from ....actors.device.work import Work
from ....errors import DeviceError, Retry
from ...supervisor.state.messages import DeviceFault
from ...worker.outcome import Outcome

REPEATED: Final = 16
"""How many of the last faults every report repeats, since a report may be lost; each counts once."""
PLACES_KEPT: Final = 4096


class FaultReports:
    """The last faults of devices, and which worker gave which result."""

    def __init__(self) -> None:
        self._faults: deque[DeviceFault] = deque(maxlen=REPEATED)
        self._numbers = itertools.count(1)
        self._places: dict[tuple[str, str], tuple[str, str]] = {}

    @property
    def recent(self) -> tuple[DeviceFault, ...]:
        """The last faults, oldest first."""
        return tuple(self._faults)

    def ended(self, work: Work[Any], worker: str, outcome: Outcome[Any]) -> None:
        """Take note of an outcome.

        A limit, a lack of memory or an unfit engine leaves the process as it was, and says nothing against the device.
        """
        self._places.pop((work.job, work.label), None)
        self._places[work.job, work.label] = worker, work.file
        if len(self._places) > PLACES_KEPT:
            del self._places[next(iter(self._places))]
        error = outcome.error
        if work.constraints.alone and isinstance(error, DeviceError) and error.retry is Retry.ELSEWHERE:
            self._add(worker, work.file, error.message, is_wrong=False)

    def found_wrong(self, job: str, label: str, reason: str, *, is_doubtful: bool = False) -> None:
        """The last result of this piece of work failed a check of its job, or only puts its device in doubt."""
        worker, file = self._places.get((job, label), ("", ""))
        if worker:
            self._add(worker, file, reason, is_wrong=not is_doubtful, is_doubtful=is_doubtful)

    def _add(self, worker: str, file: str, reason: str, *, is_wrong: bool, is_doubtful: bool = False) -> None:
        self._faults.append(DeviceFault(next(self._numbers), worker, file, is_wrong, reason, is_doubtful))
