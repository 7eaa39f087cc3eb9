"""What a client tells the supervisor of devices: failures, and results that a job found wrong."""

import itertools
from collections import deque
from typing import Any, Final

from ....actors.device.work import Work
from ....errors import DeviceError, Retry
from ...supervisor.state.messages import DeviceFault
from ...worker.outcome import Outcome
from ..run import Doubt

REPEATED: Final = 16
"""How many of the last faults every report repeats, since a report may be lost; each counts once."""


class FaultReports:
    """The last faults of devices."""

    def __init__(self) -> None:
        self._faults: deque[DeviceFault] = deque(maxlen=REPEATED)
        self._numbers = itertools.count(1)

    @property
    def recent(self) -> tuple[DeviceFault, ...]:
        """The last faults, oldest first."""
        return tuple(self._faults)

    def ended(self, work: Work[Any], worker: str, outcome: Outcome[Any]) -> None:
        """Note an outcome.

        A limit, a lack of memory or an unfit engine leaves the process as it was, and says nothing against the device.
        """
        error = outcome.error
        if work.constraints.alone and isinstance(error, DeviceError) and error.retry is Retry.ELSEWHERE:
            number = next(self._numbers)
            self._faults.append(DeviceFault(number, worker, work.file, is_wrong=False, reason=error.message))

    def doubted(self, doubt: Doubt) -> None:
        """Note what a job says of a result."""
        self._faults.append(
            DeviceFault(
                next(self._numbers),
                doubt.worker,
                doubt.file,
                is_wrong=doubt.is_wrong,
                reason=doubt.reason,
                is_doubtful=not doubt.is_wrong,
            )
        )
