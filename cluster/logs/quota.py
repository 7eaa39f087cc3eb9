"""How many entries are written: a number at once, and a number a second. Pure."""

from dataclasses import dataclass
from typing import Final

AT_ONCE: Final = 1000
"""A cluster of many nodes says so much when it starts."""
PER_S: Final = 50


@dataclass(slots=True)
class Quota:
    """Counts entries of one level; ``now_s`` is on a monotonic clock."""

    at_once: int = AT_ONCE
    per_s: int = PER_S
    suppressed: int = 0
    _room: float = -1.0
    _at_s: float = 0.0

    def takes(self, now_s: float) -> bool:
        """Return whether another entry is written; one that is not is ``suppressed``."""
        grown = float(self.at_once) if self._room < 0 else self._room + (now_s - self._at_s) * self.per_s
        self._room, self._at_s = min(float(self.at_once), grown), now_s
        if self._room < 1:
            self.suppressed += 1
            return False
        self._room -= 1
        return True

    def told(self) -> int:
        """Return how many were suppressed since the last call."""
        count, self.suppressed = self.suppressed, 0
        return count
