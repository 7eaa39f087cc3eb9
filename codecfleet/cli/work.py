"""Runs a job or a batch in a view, from the start of the fleet to the end."""

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TextIO, TypeVar

from ..actors.task_owner import TaskOwner
from ..console.output import Output, ReaderGone, json_line
from ..errors import StorageFailed
from ..jobs.report.events import Failed
from .failures import READER_GONE_CODE, Failure, failure_of, print_failure
from .interrupts import Interrupts
from .report_file import ReportFile
from .services import Services

if TYPE_CHECKING:
    from ..console.batch_live import BatchView
    from ..console.live import View


ViewT = TypeVar("ViewT", bound="View | BatchView")
RequestT = TypeVar("RequestT")


class FollowedWork(ABC, Generic[RequestT, ViewT]):
    """Work that runs on a fleet, is shown in a view, and is cancelled by a signal."""

    stopping: str
    """The note that the view shows at the first signal."""
    interrupted_step: str
    """The advice to print after an interruption."""

    def __init__(
        self, request: RequestT, view: ViewT, services: Services, interrupts: Interrupts, report: ReportFile
    ) -> None:
        self._request = request
        self._view = view
        self._services = services
        self._interrupts = interrupts
        self._report = report
        self._is_published = False
        self._started_s = time.monotonic()
        self._starting: asyncio.Task[object] | None = None
        self._asked_to_stop = asyncio.Event()
        self._job_name = ""

    @abstractmethod
    async def drive(self) -> int:
        """Do the work, and return the exit code."""

    def run(self, stderr: TextIO, events: TextIO | None) -> int:
        """Do the work and return the exit code; report an early end on stderr, and as an event to ``events``."""
        try:
            with self._view:
                return asyncio.run(self._started())
        except ReaderGone:
            return 0 if self._is_published else READER_GONE_CODE
        except BaseException as error:  # noqa: BLE001 - outermost level: every error becomes a line and an exit code
            failure = self.failure(error)
            if events is not None:
                with contextlib.suppress(ReaderGone, StorageFailed):
                    Output(events).line(json_line(self._event(failure).to_json()))
            return print_failure(failure, error, stderr)

    async def _started(self) -> int:
        self._starting = asyncio.current_task()
        self._interrupts.attach(self._cancel)
        return await self.drive()

    def cancel_by(self, owner: TaskOwner, cancel: Callable[[], Awaitable[object]]) -> None:
        """From now on, let a signal call ``cancel`` instead of cancelling the start of the fleet."""
        self._starting = None
        owner.start(self._cancel_when_asked(cancel), "cancellation")

    async def _cancel_when_asked(self, cancel: Callable[[], Awaitable[object]]) -> None:
        await self._asked_to_stop.wait()
        await cancel()

    def _cancel(self) -> None:
        self._view.note(f"{self.stopping}; press Ctrl-C again to stop at once")
        self._asked_to_stop.set()
        if self._starting is not None:
            self._starting.cancel()

    def failure(self, error: BaseException) -> Failure:
        """Return the report of the error that ended the work early."""
        return failure_of(error, self._interrupts.exit_code, interrupted_step=self.interrupted_step)

    def _event(self, failure: Failure) -> Failed:
        return Failed(
            job=self._job_name,
            at_s=round(time.monotonic() - self._started_s, 3),
            error=failure.error,
            message=failure.message,
            next_step=failure.next_step,
            exit_code=failure.exit_code,
        )
