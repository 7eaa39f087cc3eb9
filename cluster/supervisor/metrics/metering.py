"""Passes what a supervisor counts and measures on to monitoring, whatever becomes of it there."""

from collections.abc import Callable, Iterable, Mapping

from ...logs.actions import LogAction
from ...logs.writing import log
from ...worker.heartbeat import Heartbeat
from ..state.events import SupervisorEvent
from ..state.state import SupervisorState
from .table import PLACEMENT, MetricSample
from .tally import MetricTally

TakeSamples = Callable[[tuple[MetricSample, ...]], None]


class Metering:
    """The samples of the supervisor whose ``state`` this is, for ``take``; without that, nothing is measured.

    A defect is logged once and ends the metering alone.
    """

    def __init__(self, state: SupervisorState, take: TakeSamples | None, clock: Callable[[], float]) -> None:
        self._take = take
        self._clock = clock
        self._tally = MetricTally(state, clock())

    def hear(self, event: SupervisorEvent) -> None:
        """Measure an event that the core is about to take in."""
        self._pass_on(lambda: self._tally.hear(event, self._clock()))

    def beat(self, worker: str, before: Heartbeat, after: Heartbeat) -> None:
        """Measure what a worker did between two heartbeats."""
        self._pass_on(lambda: self._tally.beat(worker, before, after))

    def look(self, fps: Mapping[str, float]) -> None:
        """Measure how things stand; ``fps`` are workers' speeds."""
        self._pass_on(lambda: self._tally.look(fps, self._clock()))

    def placed(self, took_s: float) -> None:
        """Measure a placement of everything."""
        self._pass_on(lambda: (MetricSample(PLACEMENT, took_s),))

    def _pass_on(self, measured: Callable[[], Iterable[MetricSample]]) -> None:
        if self._take is None:
            return
        try:
            if samples := tuple(measured()):
                self._take(samples)
        except Exception as error:  # noqa: BLE001 - a defect in what is only shown must not end the supervisor
            log(LogAction.DEFECT, "metrics are not measured any more", error=error)
            self._take = None
