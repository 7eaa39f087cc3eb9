"""Objects that a ``with`` block closes at its end."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """What holds something until it is closed."""

    @abstractmethod
    def close(self) -> None:
        """Give back what it holds."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close it."""
        self.close()
