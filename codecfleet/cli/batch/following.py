"""A batch from the start of its fleet to its end, with a view of it."""

import asyncio
import contextlib
import time
from typing import Final, Protocol, TextIO

from ...actors.task_owner import TaskOwner
from ...console.batch_live import BatchView
from ...console.output import Output, ReaderGone, json_line
from ...errors import StorageFailed
from ...jobs.report.events import Failed
from ...jobs.request.spec import BatchSpec
from ..calls.answers import BatchLike
from ..failures import failure_of, print_failure
from ..interrupts import Interrupts
from ..report_file import ReportFile
from ..services import Services

_TICK_S: Final = 0.25
GO_ON: Final = "What is finished is kept; the same command goes on from there."


class AskedBatch(Protocol):
    """What is asked for."""

    @property
    def spec(self) -> BatchSpec:
        """The batch."""
        ...

    @property
    def address(self) -> str | None:
        """The cluster's address, if one is named."""
        ...

    @property
    def as_json(self) -> bool:
        """Whether a program reads the answer."""
        ...

    @property
    def report_path(self) -> str | None:
        """Where the page goes, if one is wanted."""
        ...


class BatchFollowing:
    """One batch from the start of its fleet to its end."""

    def __init__(
        self, asked: AskedBatch, services: Services, view: BatchView, interrupts: Interrupts, report: ReportFile
    ) -> None:
        self.view = view
        self._asked = asked
        self._report = report
        self._services = services
        self._interrupts = interrupts
        self._started_s = time.monotonic()
        self._task: asyncio.Task[object] | None = None
        self._batch: BatchLike | None = None
        self._is_cancelled = asyncio.Event()
        self._warm_fleet: int | None = None

    async def drive(self) -> int:
        """Return the exit code."""
        self._task = asyncio.current_task()
        self._interrupts.attach(self.cancel)
        async with self._services.open_batch(self._asked.spec, self._asked.address) as batch:
            self._batch = batch
            try:
                await self._follow(batch)
            except ReaderGone:
                await batch.cancel()
                raise
            finally:
                self._write_report(batch)
            # Before the fleet closes: the summary need not wait for Ray's shutdown.
            self._interrupts.published()
            with contextlib.suppress(StorageFailed):
                self.view.finish(batch.progress)
            return batch.progress.exit_code

    def _write_report(self, batch: BatchLike) -> None:
        """Write the page, if it is wanted and files were listed; what is wrong with that fails no batch."""
        if self._asked.report_path is None or not batch.progress.files:
            return
        try:
            self._report.write_text(self._services.batch_page(self._asked.spec), "the batch has ended")
        except StorageFailed as error:
            self.view.note(f"warning: {error.message}")

    async def _follow(self, batch: BatchLike) -> None:
        async with TaskOwner() as owner:
            owner.start(self._tick(batch), "view")
            owner.start(self._cancel_when_asked(batch), "cancellation")
            async for result in batch:
                self._say_warm(batch)
                self.view.show(result, batch.progress)

    async def _cancel_when_asked(self, batch: BatchLike) -> None:
        await self._is_cancelled.wait()
        await batch.cancel()

    async def _tick(self, batch: BatchLike) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._say_warm(batch)
            self.view.tick(batch.progress)

    def _say_warm(self, batch: BatchLike) -> None:
        """Say once that a warm fleet does the work."""
        process = batch.progress.warm_fleet
        if process is not None and process != self._warm_fleet:
            self.view.note(f"on the warm fleet (process {process})")
        self._warm_fleet = process

    def cancel(self) -> None:
        """Cancel the batch, or the fleet's start; in the event loop."""
        self.view.note("stopping; press Ctrl-C again to stop at once")
        if self._batch is not None:
            self._is_cancelled.set()
        elif self._task is not None:
            self._task.cancel()

    def failed(self, error: BaseException, stdout: TextIO | None, stderr: TextIO) -> int:
        """Print what ended the batch before its end, on ``stdout`` as an event, and return the exit code."""
        failure = failure_of(error, self._interrupts.exit_code, interrupted_step=GO_ON)
        event = Failed(
            job="",
            at_s=round(time.monotonic() - self._started_s, 3),
            error=failure.error,
            message=failure.message,
            next_step=failure.next_step,
            exit_code=failure.exit_code,
        )
        if stdout is not None:
            with contextlib.suppress(ReaderGone, StorageFailed):
                Output(stdout).line(json_line(event.to_json()))
        print_failure(failure, error, stderr)
        return failure.exit_code
