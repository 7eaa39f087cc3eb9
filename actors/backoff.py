"""How long to wait before something that failed is tried again."""

from dataclasses import dataclass
from typing import Final

_DOUBLED_MOST: Final = 64
"""The largest exponent of ``factor``. A larger power could overflow a float, and much smaller powers reach ``most_s``.
"""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits between tries: the first is ``first_s``, each later one ``factor`` times the last, up to ``most_s``."""

    first_s: float
    most_s: float
    factor: float = 2.0

    def wait_s(self, failures: int) -> float:
        """Return how long to wait after ``failures`` failures in a row; 0 if there was no failure."""
        if failures <= 0:
            return 0.0
        return min(self.first_s * self.factor ** min(failures - 1, _DOUBLED_MOST), self.most_s)
