"""The outcome of work, as sent back by a worker process."""

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from ...errors import CodecfleetError, InputNotFound, Retry, UsageError
from ..process.messages import portable

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[ResultT]):
    """A result, or an error.

    Errors are sent as values: raised in an actor they would arrive wrapped, or be lost if they do not pickle.
    ``spoils_process``: the process should end, because what broke in it, such as a CUDA context, stays broken.
    """

    result: ResultT | None = None
    error: CodecfleetError | None = None
    spoils_process: bool = False


def failed(error: CodecfleetError) -> Outcome[Any]:
    """Return the outcome of work that ended with ``error``, or with a substitute if it does not pickle."""
    return Outcome(error=portable(error), spoils_process=error.retry is Retry.ELSEWHERE)


_ON_EVERY_NODE = "Give every node the input under the same name, or add --ship."


def located(outcome: Outcome[Any], place: str) -> Outcome[Any]:
    """Return an outcome whose missing input, which the job's own process has read, is said to be missing there."""
    if not isinstance(outcome.error, InputNotFound):
        return outcome
    message = f"{outcome.error.message} as {place} sees it"
    return replace(outcome, error=InputNotFound(message, _ON_EVERY_NODE))


def unreadable(error: Exception) -> Outcome[Any]:
    """Return the outcome of work that could not be unpickled."""
    return failed(unreadable_work(error))


def unreadable_work(error: Exception) -> CodecfleetError:
    """Return the error for work that could not be unpickled, or that this worker refuses."""
    if isinstance(error, CodecfleetError):
        return error
    message = f"the work cannot be unpickled on the worker: {type(error).__name__}: {error}"
    return UsageError(message, "Define its class in a module that is installed where the workers run.")
