"""Objects that a ``with`` block closes at its end, and clean-up after a failed block."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self


@contextmanager
def undone_by(undo: Callable[[], object]) -> Iterator[None]:
    """Call ``undo`` if the block fails."""
    try:
        yield
    except BaseException:  # an interrupt must not leave anything open either
        undo()
        raise


class Closing(ABC):
    """An object that holds something until the object is closed."""

    @abstractmethod
    def close(self) -> None:
        """Release what it holds."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close it."""
        self.close()
