"""The command ``driver``, which runs the jobs of a queue."""

import asyncio
import tempfile
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TextIO

from ...console.output import Output
from ...jobs.request.values import parse_count
from ..params import valued
from ..services import Commands, Services
from .submit import QUEUE, JobsPlace

_AT_ONCE: Final = 2
_AT_ONCE_MAX: Final = 256
_LEASE_S: Final = 30
_LEASE_MIN_S: Final = 3
_LEASE_MAX_S: Final = 3600
_IDLE_MINUTES_MAX: Final = 60 * 24 * 365
_GB: Final = 1_000_000_000

FREE_MEMORY = valued(
    "--free-memory-gb", "N", "A driver claims a job only while at least N GB of memory are free. Default: 0."
)
FREE_DISK = valued(
    "--free-disk-gb", "N", "A driver claims a job only while at least N GB are free in TMPDIR. Default: 0."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """A parsed ``driver`` command."""

    queue: str | None
    at_once: int
    lease_s: int
    idle_s: float | None
    free_memory: int  #: in bytes; see ``Room``
    free_disk: int

    def run(self, services: Services, stdout: TextIO, stderr: TextIO) -> int:
        """Run jobs until the driver is idle or a signal stops it; return exit code 0."""
        from ...actors.task_owner import TaskOwner
        from ...cluster.node.claiming import Room, obstacle
        from ...cluster.queue.background import drive, hold_driver_lock
        from ...cluster.queue.driver import Driver
        from ...cluster.queue.places import open_store, queue_file
        from ...cluster.queue.values import QueueState
        from ...jobs.journal.found_work import remove_record
        from ...jobs.request.config import load_config

        del services, stdout
        say = Output(stderr).log
        least, head = Room(self.free_memory, self.free_disk), load_config().settings.address
        look = partial(obstacle, least, Path(tempfile.gettempdir()), head)

        async def run() -> None:
            driver = Driver(
                store,
                remove_record,
                at_once=self.at_once,
                lease_s=self.lease_s,
                idle_s=self.idle_s,
                say=say,
                look=look,
            )
            say(f"driver {driver.name} runs up to {self.at_once} jobs at once, until Ctrl-C")
            async with TaskOwner() as owner:
                if path is not None:  # while this is held, no other driver starts in the background
                    owner.start(hold_driver_lock(path), "the lock")
                await drive(driver)

        store, path = open_store(self.queue, makes=True), queue_file(self.queue)
        with closing(store):
            store.jobs([QueueState.RUNNING])  # fails now, before any work, if the queue is unusable
            asyncio.run(run())
        return 0


def parse_driver(
    *,
    queue: str | None = QUEUE,
    at_once: str | None = valued("--jobs-at-once", "N", f"Run up to this many jobs at once. Default: {_AT_ONCE}."),
    lease_seconds: str | None = valued(
        "--lease-seconds",
        "N",
        "If the driver has not renewed its claim to a job for this long, another driver may run the job: "
        f"docs/queue.md. Default: {_LEASE_S}.",
    ),
    idle_minutes: str | None = valued(
        "--idle-minutes", "N", "End after this many minutes without a job to run. Default: never."
    ),
    free_memory_gb: str | None = FREE_MEMORY,
    free_disk_gb: str | None = FREE_DISK,
) -> Drive:
    """Return the driver that these options describe."""
    count = parse_count("--jobs-at-once", at_once or str(_AT_ONCE), least=1, most=_AT_ONCE_MAX)
    lease_s = parse_count("--lease-seconds", lease_seconds or str(_LEASE_S), least=_LEASE_MIN_S, most=_LEASE_MAX_S)
    idle_s = None
    if idle_minutes is not None:
        idle_s = 60.0 * parse_count("--idle-minutes", idle_minutes, least=0, most=_IDLE_MINUTES_MAX)
    return Drive(
        queue=JobsPlace.of(queue, None, asks_cluster=False).queue,
        at_once=count,
        lease_s=lease_s,
        idle_s=idle_s,
        free_memory=_GB * parse_count("--free-memory-gb", free_memory_gb or "0"),
        free_disk=_GB * parse_count("--free-disk-gb", free_disk_gb or "0"),
    )


COMMANDS: Final[Commands] = {
    "driver": (parse_driver, ["driver", "driver --queue postgresql://db/queue --jobs-at-once 4"])
}
