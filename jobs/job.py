"""The caller's view of a submitted job, which ``job_run`` runs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any

from ..cluster.logs.actions import LogAction
from ..cluster.logs.entry import LogIds
from ..cluster.logs.writing import log
from ..errors import Cancelled, CodecfleetError
from .held import Held
from .report.channel import EventChannel
from .report.events import Event, Failed
from .report.report import Report
from .request.spec import TranscodeSpec


class Job:
    """A submitted job. Await it to get the report, listen to its events, or cancel it."""

    def __init__(
        self, job: str, spec: TranscodeSpec, run: "Callable[[EventChannel, Callable[[], bool]], Awaitable[Report]]"
    ) -> None:
        self.id = job
        self.spec = spec
        self._channel = EventChannel()
        self._cancelling = False
        self._keeps = False
        self._held = Held(self._run(run), f"codecfleet {job}")

    def __repr__(self) -> str:
        state = "running"
        if self.done:
            task = self._held.task
            failed = task.cancelled() or task.exception() is not None
            state = "cancelled" if self._cancelling else "failed" if failed else "done"
        return f"<Job {self.id}: {self.spec.source} -> {self.spec.output}, {state}>"

    async def _run(self, run: "Callable[[EventChannel, Callable[[], bool]], Awaitable[Report]]") -> Report:
        try:
            return await run(self._channel, lambda: self._keeps)
        except asyncio.CancelledError:
            log(LogAction.JOB_CANCELLED, f"{self.spec.source} was cancelled", LogIds(job=self.id))
            await self._fail(self._was_cancelled())
            raise
        except CodecfleetError as error:
            log(LogAction.JOB_FAILED, f"{type(error).__name__}: {error}", LogIds(job=self.id))
            await self._fail(error)
            raise
        except Exception as error:  # a defect is logged, reported as the job's end, and raised again
            log(LogAction.DEFECT, f"{self.spec.source}: {type(error).__name__}: {error}", LogIds(job=self.id), error)
            await self._fail(error)
            raise
        finally:
            await self._channel.close()

    def _was_cancelled(self) -> Cancelled:
        return Cancelled(f"job {self.id} was cancelled")

    async def _fail(self, error: BaseException) -> None:
        """Send the event that ends a job without an output, once."""
        if not self._channel.is_over:
            await self._channel.send(Failed.of(self.id, round(self._channel.elapsed_s, 3), error))

    def on_end(self, call: "Callable[[Job], None]") -> None:
        """Call ``call`` with this job once the job has ended."""
        self._held.on_end(lambda: call(self))

    def events(self) -> AsyncIterator[Event]:
        """Yield all events from the beginning. The last event is ``Done`` or ``Failed``."""
        return self._channel.listen()

    async def cancel(self, *, keep: bool = False) -> None:
        """Stop the job, remove its files, and return when that is done. Idempotent.

        With ``keep``, finished segments stay in the work folder, from which the same job continues when submitted
        again.
        """
        if not self._cancelling:
            self._cancelling, self._keeps = True, keep
        await self._held.cancel()
        # If a task is cancelled before its first step, none of its code runs.
        await self._fail(self._was_cancelled())
        await self._channel.close()

    @property
    def done(self) -> bool:
        """Whether the job has ended, successfully or not."""
        return self._held.task.done()

    def __await__(self) -> Generator[Any, None, Report]:
        """Wait for the report. Raises CodecfleetError: the job failed; Cancelled: it was cancelled."""
        return self._held.result(self._was_cancelled()).__await__()
