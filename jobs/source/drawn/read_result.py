"""What was read, or why it could not be read: all reading can then come before the first decision."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from ....errors import CodecfleetError

ReadT = TypeVar("ReadT")


@dataclass(frozen=True, slots=True)
class ReadResult(Generic[ReadT]):
    """The outcome of one attempt to read something."""

    outcome: ReadT | CodecfleetError

    @classmethod
    def of(cls, read: Callable[[], ReadT]) -> Self:
        """Read, and keep what came of it."""
        try:
            return cls(read())
        except CodecfleetError as error:
            return cls(error)

    def get(self) -> ReadT:
        """Return what was read; raise the error where there is one."""
        if isinstance(self.outcome, CodecfleetError):
            raise self.outcome
        return self.outcome
