"""The outcome of work, as sent back by a worker process."""

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

from ...errors import CodecfleetError, InputNotFound, Retry, UsageError, WorkError

ResultT = TypeVar("ResultT")
Buffer: TypeAlias = bytes | bytearray | memoryview


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
    return Outcome(error=_portable(error), spoils_process=error.retry is Retry.ELSEWHERE)


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


def packed(outcome: Outcome[Any], keep_aside: Callable[[pickle.PickleBuffer], object] | None = None) -> bytes:
    """Return an outcome as bytes, or the outcome of a result that does not pickle.

    ``keep_aside`` is given each large buffer, which is then not among the bytes.
    """
    try:
        return pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL, buffer_callback=keep_aside)
    except Exception as error:  # noqa: BLE001 - whatever pickling a user's result raises
        return pickle.dumps(_lost_result("pickle", error))


def unpacked(packed_outcome: Buffer, kept_aside: Iterable[Buffer] = ()) -> Outcome[Any]:
    """Return a packed outcome, given the buffers kept aside, or the outcome of a result that does not unpickle."""
    try:
        outcome: Outcome[Any] = pickle.loads(packed_outcome, buffers=kept_aside)  # noqa: S301 - from a process of ours
    except Exception as error:  # noqa: BLE001 - whatever unpickling a user's result raises
        return _lost_result("unpickle", error)
    return outcome


def _lost_result(what: str, error: Exception) -> Outcome[Any]:
    message = f"the result does not {what}: {type(error).__name__}: {error}"
    return failed(WorkError(message, "Return a value of importable classes."))


def _portable(error: CodecfleetError) -> CodecfleetError:
    try:
        survives = type(pickle.loads(pickle.dumps(error))) is type(error)  # noqa: S301 - pickled one line before
    except Exception:  # noqa: BLE001 - whatever a subclass's own pickling raises
        survives = False
    return error if survives else WorkError(f"{type(error).__name__}: {error}", error.next_step)
