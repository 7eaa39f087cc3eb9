"""Estimates the remaining time from the average pace."""

from typing import Final

_SOON_S: Final = 60.0
_PART_SOON: Final = 1 / 100
_PART: Final = 1 / 1000  # an estimate needs this part of the work done, and _PART_SOON in the first minute


def time_left_s(elapsed_s: float, *, done: float, left: float) -> float | None:
    """Return the remaining seconds at the average pace; None if too little is done for an estimate."""
    if left <= 0:
        return 0.0
    least = _PART_SOON if elapsed_s < _SOON_S else _PART
    return elapsed_s * left / done if done >= least * (done + left) else None
