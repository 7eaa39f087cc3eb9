"""A batch that was begun, as its user holds it. What it does is in ``run``."""

from collections.abc import AsyncIterator, Callable
from typing import Final

from ...actors.task_owner import consume_exception
from ...cluster.fleet.pool import Pool
from ...errors import Cancelled
from ..held import Held
from ..request.spec import BatchSpec
from .file_run import Submit
from .results import BatchProgress, BatchResult
from .run import BatchRun

_GO_ON: Final = "What is finished is kept; the same batch goes on from there."


class Batch:
    """Many files that are being done: iterate over it for how each ended, ask where it stands, or cancel it.

    Iterating ends with the batch, and raises what ended it before all files were done. Its files' own errors are in
    their results. When 1,000 results wait to be taken, no further file is begun.
    """

    def __init__(self, batch: BatchSpec, submit: Submit, pool: Pool) -> None:
        self.spec = batch
        self._run = BatchRun(batch, submit, pool)
        self._held = Held(self._run.run(), "codecfleet batch")
        self._held.task.add_done_callback(consume_exception)

    def __aiter__(self) -> AsyncIterator[BatchResult]:
        """Yield a result for each file that this run ends, as it does, and for each at which an earlier run failed.

        What earlier runs have done is only counted.

        Raises:
            UsageError: an input, a list or the template makes no sense; no file was begun.
            InputNotFound: there is nothing at an input; as above.
            OutputInUse: another process does the same batch; as above.
            WorkError: no file can be done any more. What is not done waits for another run.
            Cancelled: it was cancelled; the same.
        """
        return self._results()

    async def _results(self) -> AsyncIterator[BatchResult]:
        async for result in self._run.results():
            yield result
        await self._held.result(Cancelled("the batch was cancelled", _GO_ON))

    @property
    def progress(self) -> BatchProgress:
        """Where it stands now; its summary, once it has ended."""
        return self._run.progress()

    def on_end(self, call: "Callable[[Batch], None]") -> None:
        """Have ``call`` called with this batch once it has ended."""
        self._held.on_end(lambda: call(self))

    async def cancel(self) -> None:
        """Stop it. Files in flight keep what they have finished, and another run goes on from there. Idempotent."""
        await self._held.cancel()
