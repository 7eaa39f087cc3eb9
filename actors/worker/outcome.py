"""The outcome of work, as sent back by a worker process."""

from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from ...errors import CodecfleetError, InputNotFound, Retry
from ..process.messages import portable

ResultT = TypeVar("ResultT")

_ON_EVERY_NODE: Final = "Give every node the input under the same name, or add --ship."


@dataclass(frozen=True, slots=True)
class Outcome(Generic[ResultT]):
    """A result or an error. An error raised in an actor would arrive wrapped, or be lost if it cannot be pickled."""

    result: ResultT | None = None
    error: CodecfleetError | None = None
    spoils_process: bool = False  #: whether the process should end: a broken CUDA context, for example, stays broken


def failed(error: CodecfleetError) -> Outcome[Any]:
    """Return the outcome of work that ended with ``error``, or a substitute if the error cannot be pickled."""
    return Outcome(error=portable(error), spoils_process=error.retry is Retry.ELSEWHERE)


def located(outcome: Outcome[Any], place: str) -> Outcome[Any]:
    """Name the machine in an error about an input that the machine lacks, but the job's own process could read."""
    if not isinstance(outcome.error, InputNotFound):
        return outcome
    message = f"{outcome.error.message} as {place} sees it"
    return replace(outcome, error=InputNotFound(message, _ON_EVERY_NODE))
