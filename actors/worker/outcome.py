"""The outcome of work, as sent back by a worker process."""

from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from ...errors import CodecfleetError, InputNotFound, Retry
from ..process.messages import portable

ResultT = TypeVar("ResultT")

_ON_EVERY_NODE: Final = "Give every node the input under the same name, or add --ship."


@dataclass(frozen=True, slots=True)
class Outcome(Generic[ResultT]):
    """A result, or an error.

    Errors are sent as values: raised in an actor they would arrive wrapped, or be lost if they do not pickle.
    """

    result: ResultT | None = None
    error: CodecfleetError | None = None
    spoils_process: bool = False  #: what broke in the process, such as a CUDA context, stays broken: it should end


def failed(error: CodecfleetError) -> Outcome[Any]:
    """Return the outcome of work that ended with ``error``, or with a substitute if it does not pickle."""
    return Outcome(error=portable(error), spoils_process=error.retry is Retry.ELSEWHERE)


def located(outcome: Outcome[Any], place: str) -> Outcome[Any]:
    """Return an outcome whose missing input, which the job's own process has read, is said to be missing there."""
    if not isinstance(outcome.error, InputNotFound):
        return outcome
    message = f"{outcome.error.message} as {place} sees it"
    return replace(outcome, error=InputNotFound(message, _ON_EVERY_NODE))
