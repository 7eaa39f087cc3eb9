"""Objects that a ``with`` block closes when it ends, and clean-up after a failed block."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self


@contextmanager
def undone_by(undo: Callable[[], object]) -> Iterator[None]:
    """Call ``undo`` if the block raises, even for ``KeyboardInterrupt``; the error is raised again."""
    try:
        yield
    except BaseException:  # even an interrupt must not leave anything open
        undo()
        raise


class Closing(ABC):
    """An object that holds resources until it is closed."""

    @abstractmethod
    def close(self) -> None:
        """Release everything that this object holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
