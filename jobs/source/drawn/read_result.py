"""Keeps the result of reading, or the error, as a value, so that everything can be read before any decision."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from ....errors import CodecfleetError

ReadT = TypeVar("ReadT")


@dataclass(frozen=True, slots=True)
class ReadResult(Generic[ReadT]):
    """The value that was read, or the error that prevented reading it."""

    outcome: ReadT | CodecfleetError

    @classmethod
    def of(cls, read: Callable[[], ReadT]) -> Self:
        """Read, and keep the result or the error."""
        try:
            return cls(read())
        except CodecfleetError as error:
            return cls(error)

    def get(self) -> ReadT:
        """Return the result, or raise the error that prevented it."""
        if isinstance(self.outcome, CodecfleetError):
            raise self.outcome
        return self.outcome
