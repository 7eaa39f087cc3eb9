"""Samples the queue of submitted jobs for the metrics.

The queue may be slow, damaged or out of reach, and must neither delay nor end the supervisor.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ....errors import QueueUnavailable, UsageError, one_line
from ...queue.places import open_store
from ...queue.store import JobStore
from ...queue.values import QueueFigures, UsageRow
from . import table
from .table import MetricSample, TenantUseOf
from .tally import Metering, TakeSamples

LOOK_S: Final = 15.0
"""How often the jobs are counted, which takes 45 ms for 100,000 jobs."""
USAGE_LOOKS: Final = 20
"""Tenants' use is read at only one of this many looks, because reading takes 0.6 s for 200,000 attempts."""
NAME_MAX: Final = 100
"""A tenant's name is cut after this many characters."""
TENANTS_MAX: Final = 100
"""At most this many tenants have series: those that used most."""


async def watch_queue(place: str, take: TakeSamples, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
    """Pass on samples of the queue at a place until cancelled; return at once if the place cannot hold a queue."""
    metering = Metering(take)
    try:
        watched = WatchedQueue(open_store(place, makes=False))
    except UsageError:
        return
    while True:
        metering.measure(await asyncio.to_thread(watched.samples))
        await sleep(LOOK_S)


@dataclass(slots=True)
class WatchedQueue:
    """A queue, and the number of looks until its usage is read."""

    store: JobStore
    has_answered: bool = False
    usage_in: int = 0  #: how many looks to skip before the usage is read

    def samples(self) -> tuple[MetricSample, ...]:
        """Read the queue; return no samples before the queue's file exists."""
        try:
            figures = self.store.figures()
        except Exception as error:  # noqa: BLE001 - nothing about the queue may end the supervisor
            is_known = self.has_answered or isinstance(error, QueueUnavailable)
            return (MetricSample(table.QUEUE_ANSWERS, 0),) if is_known else ()
        self.has_answered = True
        return tuple(_samples(figures, self._usage()))

    def _usage(self) -> list[UsageRow]:
        """Return the tenants' use if it is due, else nothing. After a failed read, wait until it is due again."""
        is_due, self.usage_in = not self.usage_in, (self.usage_in or USAGE_LOOKS) - 1
        with suppress(Exception):  # nothing about the queue may end the supervisor
            return self.store.usage() if is_due else []
        return []


def _samples(figures: QueueFigures, usage: list[UsageRow]) -> Iterator[MetricSample]:
    yield MetricSample(table.QUEUE_ANSWERS, 1)
    for state, count in figures.jobs.items():
        yield MetricSample(table.SUBMITTED_JOBS, count, (state.value,))
    yield MetricSample(table.SUBMITTED_AGE, figures.oldest_s)
    for row in sorted(usage, key=lambda each: each.run_s)[-TENANTS_MAX:]:
        yield from _of_tenant(row)


def _of_tenant(row: UsageRow) -> Iterator[MetricSample]:
    tenant = one_line(row.tenant).encode("ascii", "backslashreplace").decode()[:NAME_MAX]  # Ray takes only ASCII
    yield MetricSample(table.TENANT_COST, row.cost, (tenant,))
    uses = {TenantUseOf.SLOTS: row.run_s, TenantUseOf.CORES: row.core_s, TenantUseOf.GPUS: row.gpu_s}
    for use, used_s in uses.items():
        yield MetricSample(table.TENANT_USE, used_s, (tenant, use.value))
